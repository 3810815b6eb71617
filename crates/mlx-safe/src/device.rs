//! Devices.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use mlx_sys as sys;

use crate::error::{argument, check, install_handler};
use crate::{Result, Stream};

/// The kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceType {
    /// The host processor.
    Cpu,
    /// A GPU, by Metal or CUDA.
    Gpu,
}

impl DeviceType {
    fn raw(self) -> sys::mlx_device_type {
        match self {
            Self::Cpu => sys::mlx_device_type__MLX_CPU,
            Self::Gpu => sys::mlx_device_type__MLX_GPU,
        }
    }
}

/// One of a device's properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// A name or a version.
    Text(String),
    /// A size in bytes, or a number.
    Number(usize),
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
        if self.index < 0 {
            return Ok(false);
        }
        let mut available = false;
        self.with_raw(|device| {
            check("device", || {
                // SAFETY: both are valid for the call.
                unsafe { sys::mlx_device_is_available(&mut available, device) }
            })
        })?;
        Ok(available)
    }

    /// How many devices of `kind` there are.
    ///
    /// # Errors
    /// If MLX cannot say.
    pub fn count(kind: DeviceType) -> Result<usize> {
        let mut count = 0;
        check("device_count", || {
            // SAFETY: writes one int.
            unsafe { sys::mlx_device_count(&mut count, kind.raw()) }
        })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// What MLX knows of this device, by name: `device_name`, `architecture`, `memory_size` and more, by back end.
    ///
    /// # Errors
    /// If the device is not there.
    pub fn info(self) -> Result<BTreeMap<String, Property>> {
        if !self.is_available()? {
            return argument("device_info", format!("{self:?} is not available"));
        }
        let mut info = Info::new();
        self.with_raw(|device| {
            check("device_info", || {
                // SAFETY: `info` is a live handle that the call fills; the device lives for the call.
                unsafe { sys::mlx_device_info_get(&mut info.0, device) }
            })
        })?;
        info.keys()?
            .into_iter()
            .map(|key| Ok((key.to_string_lossy().into_owned(), info.get(&key)?)))
            .collect()
    }

    /// Makes this MLX's default device. The calling thread's operations go to its default stream from now on, whatever
    /// [`Stream::set_current`] said before.
    ///
    /// # Errors
    /// If the device is not there.
    pub fn set_default(self) -> Result<()> {
        if !self.is_available()? {
            return argument("set_default_device", format!("{self:?} is not available"));
        }
        self.with_raw(|device| {
            check("set_default_device", || {
                // SAFETY: the handle is valid for the call; MLX copies it.
                unsafe { sys::mlx_set_default_device(device) }
            })
        })?;
        Stream::forget_current();
        Ok(())
    }

    pub(crate) fn with_raw<T>(self, use_it: impl FnOnce(sys::mlx_device) -> T) -> T {
        install_handler();
        // SAFETY: makes a handle that we own.
        let raw = unsafe { sys::mlx_device_new_type(self.kind.raw(), self.index) };
        let result = use_it(raw);
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_device_free(raw) };
        result
    }
}

struct Info(sys::mlx_device_info);

impl Info {
    fn new() -> Self {
        install_handler();
        // SAFETY: makes an empty handle.
        Self(unsafe { sys::mlx_device_info_new() })
    }

    fn keys(&self) -> Result<Vec<CString>> {
        // SAFETY: makes an empty vector.
        let mut keys = unsafe { sys::mlx_vector_string_new() };
        let read = check("device_info", || {
            // SAFETY: both handles are live; the call fills `keys`.
            unsafe { sys::mlx_device_info_get_keys(&mut keys, self.0) }
        })
        .and_then(|()| {
            // SAFETY: the vector is live.
            let count = unsafe { sys::mlx_vector_string_size(keys) };
            (0..count)
                .map(|i| {
                    let mut key = std::ptr::null_mut();
                    check("device_info", || {
                        // SAFETY: the vector is live and `i` is below its size.
                        unsafe { sys::mlx_vector_string_get(&mut key, keys, i) }
                    })?;
                    // SAFETY: the vector lends a C string, which is copied while it lives.
                    Ok(unsafe { CStr::from_ptr(key) }.to_owned())
                })
                .collect()
        });
        // SAFETY: we own the vector, and this is its last use.
        unsafe { sys::mlx_vector_string_free(keys) };
        read
    }

    fn get(&self, key: &CStr) -> Result<Property> {
        let mut is_text = false;
        check("device_info", || {
            // SAFETY: the handle and the key are live; writes one bool.
            unsafe { sys::mlx_device_info_is_string(&mut is_text, self.0, key.as_ptr()) }
        })?;
        if !is_text {
            let mut number = 0;
            check("device_info", || {
                // SAFETY: the handle and the key are live; writes one size_t.
                unsafe { sys::mlx_device_info_get_size(&mut number, self.0, key.as_ptr()) }
            })?;
            return Ok(Property::Number(number));
        }
        let mut text = std::ptr::null();
        check("device_info", || {
            // SAFETY: the handle and the key are live; the call lends a string of the handle's.
            unsafe { sys::mlx_device_info_get_string(&mut text, self.0, key.as_ptr()) }
        })?;
        // SAFETY: a C string that lives as long as the handle, copied here.
        Ok(Property::Text(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_device_info_free(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_counted_and_described() {
        assert!(Device::count(DeviceType::Cpu).unwrap() >= 1);
        let info = Device::CPU.info().unwrap();
        assert!(info.contains_key("device_name"), "{info:?}");
        for kind in [DeviceType::Cpu, DeviceType::Gpu] {
            for index in [99, -1] {
                let none = Device { kind, index };
                assert!(none.info().is_err() && none.set_default().is_err() && Stream::new_on(none).is_err());
            }
        }
        assert_eq!(crate::Array::scalar(2.0f32).square().unwrap().item::<f32>().unwrap(), 4.0);
    }
}
