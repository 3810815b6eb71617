//! `OrtMemoryInfo`: how ONNX Runtime names the memory that MLX computes in.

use ort_sys::{OrtAllocatorType, OrtDeviceMemoryType, OrtMemoryInfo, OrtMemoryInfoDeviceType};

use crate::abi::OrtMemoryDevice;
use crate::api::{Api, ort};
use crate::error::Error;

/// The memory of MLX's allocator: shared by the host and the device, on every back end.
///
/// On a CPU and with Metal it is one memory; with CUDA it is managed memory, whose pages stay where they are used.
pub struct MemoryInfo {
    api: Api,
    raw: *mut OrtMemoryInfo,
}

// SAFETY: never written after it is made.
unsafe impl Send for MemoryInfo {}
// SAFETY: as above.
unsafe impl Sync for MemoryInfo {}

impl MemoryInfo {
    /// Describes MLX's memory: that of a GPU if MLX has one.
    ///
    /// # Errors
    /// [`Error::Ort`] if ONNX Runtime refuses.
    pub fn new(api: Api, gpu: bool) -> Result<Self, Error> {
        let device = match gpu {
            true => OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU,
            false => OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU,
        };
        let shared = OrtDeviceMemoryType::OrtDeviceMemoryType_HOST_ACCESSIBLE;
        let kind = OrtAllocatorType::OrtDeviceAllocator;
        // SAFETY: the name is copied.
        let raw = unsafe {
            api.get(|out| {
                ort!(api, CreateMemoryInfo_V2(c"MLX".as_ptr(), device, 0, 0, shared, 0, kind, out))
            })?
        };
        Ok(Self { api, raw })
    }

    /// The description, which lives as long as this.
    pub fn raw(&self) -> *const OrtMemoryInfo {
        self.raw
    }

    /// Whether `device` is this memory.
    ///
    /// # Safety
    /// `device` must be live.
    pub unsafe fn is(&self, device: *const OrtMemoryDevice) -> bool {
        let table = self.api.ep_table();
        // SAFETY: by the caller's word; ours is live as long as `self`.
        unsafe { ((*table).MemoryDevice_AreEqual)(((*table).MemoryInfo_GetMemoryDevice)(self.raw), device) }
    }
}

impl Drop for MemoryInfo {
    fn drop(&mut self) {
        // SAFETY: we own it, and this is its last use.
        unsafe { ort!(self.api, ReleaseMemoryInfo(self.raw)) }
    }
}
