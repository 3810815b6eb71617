//! Devices.

use mlx_sys as sys;

use crate::Result;
use crate::error::{check, install_handler};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceType {
    /// The host processor.
    Cpu,
    /// A GPU, by Metal or CUDA.
    Gpu,
}

/// A device that MLX runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Device {
    /// Its kind.
    pub kind: DeviceType,
    /// Its index among devices of the kind.
    pub index: i32,
}

impl Device {
    /// The host processor.
    pub const CPU: Device = Device { kind: DeviceType::Cpu, index: 0 };
    /// The first GPU.
    pub const GPU: Device = Device { kind: DeviceType::Gpu, index: 0 };

    /// Whether the loaded MLX library can use this device here.
    pub fn is_available(self) -> Result<bool> {
        let mut available = false;
        self.with_raw(|device| {
            check("device", || {
                // SAFETY: both are valid for the call.
                unsafe { sys::mlx_device_is_available(&mut available, device) }
            })
        })?;
        Ok(available)
    }

    /// Makes this the calling thread's default device.
    pub fn set_default(self) -> Result<()> {
        self.with_raw(|device| {
            check("set_default_device", || {
                // SAFETY: the handle is valid for the call; MLX copies it.
                unsafe { sys::mlx_set_default_device(device) }
            })
        })
    }

    pub(crate) fn with_raw<T>(self, use_it: impl FnOnce(sys::mlx_device) -> T) -> T {
        install_handler();
        let kind = match self.kind {
            DeviceType::Cpu => sys::mlx_device_type__MLX_CPU,
            DeviceType::Gpu => sys::mlx_device_type__MLX_GPU,
        };
        // SAFETY: makes a handle that we own.
        let raw = unsafe { sys::mlx_device_new_type(kind, self.index) };
        let result = use_it(raw);
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_device_free(raw) };
        result
    }
}
