//! `OrtDataTransferImpl`: copies between MLX's memory and the host's.

use std::slice;
use std::sync::Arc;

use ort_sys::{OrtMemoryInfoDeviceType, OrtStatusPtr, OrtSyncStream, OrtValue};

use crate::abi::{OrtDataTransferImpl, OrtMemoryDevice};
use crate::api::{Api, ort};
use crate::boundary;
use crate::error::Error;
use crate::memory_info::MemoryInfo;

/// A data transfer behind its table. Every call of MLX's is over when it returns, so the host may copy at any time.
#[repr(C)]
pub struct DataTransfer {
    table: OrtDataTransferImpl,
    api: Api,
    info: Arc<MemoryInfo>,
}

impl DataTransfer {
    /// Copies from and to the memory that `info` describes.
    pub fn new(api: Api, info: Arc<MemoryInfo>) -> Box<Self> {
        let table = OrtDataTransferImpl {
            ort_version_supported: api.version(),
            Release: Some(release),
            CanCopy: Some(can_copy),
            CopyTensors: Some(copy_tensors),
        };
        Box::new(Self { table, api, info })
    }

    /// Gives it to ONNX Runtime, which calls `Release` in the end.
    pub fn into_raw(self: Box<Self>) -> *mut OrtDataTransferImpl {
        Box::into_raw(self).cast()
    }

    /// # Safety
    /// `device` must be live.
    unsafe fn reaches(&self, device: *const OrtMemoryDevice) -> bool {
        // SAFETY: by the caller's word.
        unsafe {
            let kind = ((*self.api.ep_table()).MemoryDevice_GetDeviceType)(device);
            self.info.is(device) || kind == OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU as i32
        }
    }

    /// # Safety
    /// Both tensors must be live, and nobody else may use `to`.
    unsafe fn copy(&self, from: *const OrtValue, to: *mut OrtValue) -> Result<(), Error> {
        let api = self.api;
        // SAFETY: by the caller's word.
        unsafe {
            let size: usize = api.get(|out| ort!(api, GetTensorSizeInBytes(from, out)))?;
            let room: usize = api.get(|out| ort!(api, GetTensorSizeInBytes(to, out)))?;
            if size != room {
                return Err(Error::Tensor(format!("{size} bytes are to be copied to {room}")));
            }
            if size > 0 {
                let source: *const std::ffi::c_void = api.get(|out| ort!(api, GetTensorData(from, out)))?;
                let target: *mut std::ffi::c_void =
                    api.get(|out| ort!(api, GetTensorMutableData(to, out)))?;
                target.cast::<u8>().copy_from(source.cast(), size);
            }
            Ok(())
        }
    }
}

unsafe extern "system" fn release(this: *mut OrtDataTransferImpl) {
    // SAFETY: ONNX Runtime gives back what `into_raw` made, once.
    boundary::void("Release", || drop(unsafe { Box::from_raw(this.cast::<DataTransfer>()) }));
}

unsafe extern "system" fn can_copy(
    this: *const OrtDataTransferImpl,
    from: *const OrtMemoryDevice,
    to: *const OrtMemoryDevice,
) -> bool {
    // SAFETY: ONNX Runtime passes a transfer of ours and live devices.
    boundary::value("CanCopy", false, || unsafe {
        let this = &*this.cast::<DataTransfer>();
        this.reaches(from) && this.reaches(to) && (this.info.is(from) || this.info.is(to))
    })
}

unsafe extern "system" fn copy_tensors(
    this: *mut OrtDataTransferImpl,
    from: *mut *const OrtValue,
    to: *mut *mut OrtValue,
    _streams: *mut *mut OrtSyncStream,
    count: usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a transfer of ours.
    let this = unsafe { &*this.cast::<DataTransfer>() };
    boundary::status(this.api.statuses(), "CopyTensors", || {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: both arrays hold `count` live tensors.
        let (from, to) = unsafe { (slice::from_raw_parts(from, count), slice::from_raw_parts(to, count)) };
        // SAFETY: as above; targets are ONNX Runtime's to give.
        from.iter().zip(to).try_for_each(|(&from, &to)| unsafe { this.copy(from, to) })
    })
}
