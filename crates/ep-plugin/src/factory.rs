//! `OrtEpFactory`: what a registered library offers, and where sessions get their provider.

use std::ffi::{CStr, c_char};
use std::ptr::null;
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ort_sys::{
    OrtAllocator, OrtCustomOpDomain, OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType, OrtKeyValuePairs,
    OrtLogger, OrtMemoryInfo, OrtSessionOptions, OrtStatusPtr,
};

use crate::abi::{OrtDataTransferImpl, OrtEp, OrtEpFactory};
use crate::allocator::Allocator;
use crate::api::Api;
use crate::boundary;
use crate::data_transfer::DataTransfer;
use crate::domain;
use crate::ep::Ep;
use crate::error::Error;
use crate::key_values::KeyValues;
use crate::memory_info::MemoryInfo;

/// The provider's name. Option keys and ONNX Runtime's reports are made from it.
pub const NAME: &CStr = c"MLXExecutionProvider";
const VENDOR: &CStr = c"ort-mlx";
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

/// A registered library behind its table. Sessions share it, since they may outlive the registration.
#[repr(C)]
pub struct Factory {
    table: OrtEpFactory,
    api: Api,
    /// How many devices it has handed out.
    devices: AtomicUsize,
    /// The memory that tensors may lie in without a copy.
    memory: OnceLock<Arc<MemoryInfo>>,
}

/// The devices of all factories: the library may be registered under several names.
static DEVICES: AtomicUsize = AtomicUsize::new(0);

/// The first version of ONNX Runtime to which several devices may give the same domain. An older one that is asked to choose
/// among all devices itself takes the domain from each, and then refuses every session for having it twice.
const KEEPS_ONE_DOMAIN: u32 = 31;

impl Factory {
    /// A factory for the runtime behind `api`.
    pub fn new(api: Api) -> Arc<Self> {
        let table = OrtEpFactory {
            ort_version_supported: api.version(),
            GetName: Some(get_name),
            GetVendor: Some(get_vendor),
            GetSupportedDevices: Some(get_supported_devices),
            CreateEp: Some(create_ep),
            ReleaseEp: Some(release_ep),
            GetVendorId: Some(get_vendor_id),
            GetVersion: Some(get_version),
            CreateAllocator: Some(create_allocator),
            ReleaseAllocator: Some(release_allocator),
            CreateDataTransfer: Some(create_data_transfer),
            GetNumCustomOpDomains: Some(get_num_custom_op_domains),
            GetCustomOpDomains: Some(get_custom_op_domains),
            ..OrtEpFactory::default()
        };
        Arc::new(Self { table, api, devices: AtomicUsize::new(0), memory: OnceLock::new() })
    }

    /// Gives it to ONNX Runtime.
    pub fn into_raw(self: Arc<Self>) -> *mut OrtEpFactory {
        Arc::into_raw(self).cast_mut().cast()
    }

    /// Takes it back; null is none.
    ///
    /// # Safety
    /// `raw` must be null or come from [`Self::into_raw`] and not have been taken back yet.
    pub unsafe fn take(raw: *mut OrtEpFactory) -> Option<Arc<Self>> {
        // SAFETY: by the caller's word; the table is the first member.
        (!raw.is_null()).then(|| unsafe { Arc::from_raw(raw.cast()) })
    }

    /// # Safety
    /// `raw` must come from [`Self::into_raw`] and be live.
    unsafe fn share(raw: *mut OrtEpFactory) -> Arc<Self> {
        let raw: *const Self = raw.cast();
        // SAFETY: by the caller's word; the count grows by one for the result.
        unsafe {
            Arc::increment_strong_count(raw);
            Arc::from_raw(raw)
        }
    }

    fn memory(&self) -> Result<&Arc<MemoryInfo>, Error> {
        if let Some(memory) = self.memory.get() {
            return Ok(memory);
        }
        let memory = Arc::new(MemoryInfo::new(self.api, gpu_available())?);
        Ok(self.memory.get_or_init(|| memory))
    }

    /// How many operator domains to give to each session that lists a device of ours.
    fn domains(&self) -> usize {
        usize::from(self.api.minor() >= KEEPS_ONE_DOMAIN || DEVICES.load(Ordering::Relaxed) <= 1)
    }

    /// ONNX Runtime's function tables.
    pub fn api(&self) -> Api {
        self.api
    }

    /// # Safety
    /// `device` must be live.
    unsafe fn suits(&self, device: *const OrtHardwareDevice) -> bool {
        // SAFETY: the device is live; a C enum is an int, and read as one it may hold what ort-sys does not name.
        let kind = unsafe {
            let kind: unsafe extern "system" fn(*const OrtHardwareDevice) -> i32 =
                std::mem::transmute((*self.api.table()).HardwareDevice_Type);
            kind(device)
        };
        kind == OrtHardwareDeviceType::OrtHardwareDeviceType_CPU as i32
            || kind == OrtHardwareDeviceType::OrtHardwareDeviceType_GPU as i32 && gpu_available()
    }

    /// # Safety
    /// `this` must be the table of this factory, `device` live.
    unsafe fn ep_device(
        &self,
        this: *mut OrtEpFactory,
        device: *const OrtHardwareDevice,
    ) -> Result<*mut OrtEpDevice, Error> {
        let api = self.api;
        let mlx = ep_core::mlx_version()?;
        let versions = [("mlx_version", mlx.as_str()), ("ort_mlx_version", env!("CARGO_PKG_VERSION"))];
        let metadata = KeyValues::new(api, &versions);
        let memory = self.memory()?;
        // SAFETY: by the caller's word; metadata and memory info are copied.
        unsafe {
            let create = (*api.ep_table()).CreateEpDevice;
            let made = api.get(|out| create(this, device, metadata.raw(), null(), out))?;
            let add = (*api.ep_table()).EpDevice_AddAllocatorInfo;
            api.check(add(made, memory.raw()))?;
            Ok(made)
        }
    }
}

impl Drop for Factory {
    fn drop(&mut self) {
        DEVICES.fetch_sub(*self.devices.get_mut(), Ordering::Relaxed);
    }
}

/// An MLX that cannot say counts as one without.
fn gpu_available() -> bool {
    ep_core::gpu_available().unwrap_or(false)
}

unsafe extern "system" fn get_name(_: *const OrtEpFactory) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn get_vendor(_: *const OrtEpFactory) -> *const c_char {
    VENDOR.as_ptr()
}

unsafe extern "system" fn get_version(_: *const OrtEpFactory) -> *const c_char {
    VERSION.as_ptr().cast()
}

/// We have no PCI vendor number.
unsafe extern "system" fn get_vendor_id(_: *const OrtEpFactory) -> u32 {
    0
}

unsafe extern "system" fn get_supported_devices(
    this: *mut OrtEpFactory,
    devices: *const *const OrtHardwareDevice,
    num_devices: usize,
    ep_devices: *mut *mut OrtEpDevice,
    max_ep_devices: usize,
    num_ep_devices: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a live factory of ours.
    let factory = unsafe { Factory::share(this) };
    boundary::status(factory.api.statuses(), "GetSupportedDevices", || {
        // SAFETY: an out-parameter.
        unsafe { *num_ep_devices = 0 };
        if num_devices == 0 {
            return Ok(());
        }
        // SAFETY: the array holds `num_devices` live devices.
        let devices = unsafe { slice::from_raw_parts(devices, num_devices) }.iter().copied();
        // SAFETY: as above.
        let suitable = devices.filter(|&device| unsafe { factory.suits(device) });
        for (index, device) in suitable.take(max_ep_devices).enumerate() {
            // SAFETY: there is room for `max_ep_devices` results, which ONNX Runtime then owns.
            unsafe {
                *ep_devices.add(index) = factory.ep_device(this, device)?;
                *num_ep_devices = index + 1;
            }
            factory.devices.fetch_add(1, Ordering::Relaxed);
            DEVICES.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
}

unsafe extern "system" fn create_ep(
    this: *mut OrtEpFactory,
    _devices: *const *const OrtHardwareDevice,
    _metadata: *const *const OrtKeyValuePairs,
    _num_devices: usize,
    session_options: *const OrtSessionOptions,
    logger: *const OrtLogger,
    out: *mut *mut OrtEp,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a live factory of ours.
    let factory = unsafe { Factory::share(this) };
    boundary::status(factory.api.statuses(), "CreateEp", || {
        // SAFETY: the options are live for this call, the logger for the session; the last is an out-parameter.
        unsafe { *out = Ep::new(Arc::clone(&factory), session_options, logger)?.into_raw() };
        Ok(())
    })
}

/// The factory may be unregistered already; the provider holds the last share of it.
unsafe extern "system" fn release_ep(_: *mut OrtEpFactory, ep: *mut OrtEp) {
    // SAFETY: ONNX Runtime gives back what `create_ep` made, once.
    boundary::void("ReleaseEp", || drop(unsafe { Ep::take(ep) }));
}

unsafe extern "system" fn create_allocator(
    this: *mut OrtEpFactory,
    _info: *const OrtMemoryInfo,
    _options: *const OrtKeyValuePairs,
    out: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a live factory of ours.
    let factory = unsafe { Factory::share(this) };
    boundary::status(factory.api.statuses(), "CreateAllocator", || {
        let memory = Arc::clone(factory.memory()?);
        // SAFETY: an out-parameter. Our devices have no other memory that could be asked for.
        unsafe { *out = Allocator::new(factory.api, memory).into_raw() };
        Ok(())
    })
}

unsafe extern "system" fn release_allocator(_: *mut OrtEpFactory, allocator: *mut OrtAllocator) {
    // SAFETY: ONNX Runtime gives back what `create_allocator` made, once.
    boundary::void("ReleaseAllocator", || drop(unsafe { Allocator::take(allocator) }));
}

unsafe extern "system" fn create_data_transfer(
    this: *mut OrtEpFactory,
    out: *mut *mut OrtDataTransferImpl,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a live factory of ours.
    let factory = unsafe { Factory::share(this) };
    boundary::status(factory.api.statuses(), "CreateDataTransfer", || {
        let memory = Arc::clone(factory.memory()?);
        // SAFETY: an out-parameter.
        unsafe { *out = DataTransfer::new(factory.api, memory).into_raw() };
        Ok(())
    })
}

unsafe extern "system" fn get_num_custom_op_domains(
    this: *mut OrtEpFactory,
    out: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a live factory of ours.
    let factory = unsafe { Factory::share(this) };
    boundary::status(factory.api.statuses(), "GetNumCustomOpDomains", || {
        // SAFETY: an out-parameter.
        unsafe { *out = factory.domains() };
        Ok(())
    })
}

/// Asked for every session that lists one of our devices.
unsafe extern "system" fn get_custom_op_domains(
    this: *mut OrtEpFactory,
    out: *mut *mut OrtCustomOpDomain,
    room: usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a live factory of ours.
    let factory = unsafe { Factory::share(this) };
    boundary::status(factory.api.statuses(), "GetCustomOpDomains", || {
        if room > 0 {
            // SAFETY: there is room for it, and it lives for ever.
            unsafe { *out = domain::of(factory.api)? };
        }
        Ok(())
    })
}
