//! Streams, and which one an operation goes to.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use mlx_sys as sys;

use crate::error::{Error, check, install_handler, take_message};
use crate::{Device, DeviceType, Result};

struct Raw(sys::mlx_stream);

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: we own the handle, and this is its last use.
        unsafe { sys::mlx_stream_free(self.0) };
    }
}

/// A queue of work on one device, in order. It belongs to the thread that made it.
#[derive(Clone)]
pub struct Stream(Rc<Raw>, PhantomData<*const ()>);

thread_local! {
    static CURRENT: RefCell<Option<Stream>> = const { RefCell::new(None) };
    /// The handle of `CURRENT`, or null: quicker to read on every call.
    static HANDLE: Cell<sys::mlx_stream> = const { Cell::new(NONE) };
}

const NONE: sys::mlx_stream = sys::mlx_stream { ctx: std::ptr::null_mut() };

/// Makes `stream` the calling thread's, and gives back the one before.
fn replace_current(stream: Option<Stream>) -> Option<Stream> {
    HANDLE.set(stream.as_ref().map_or(NONE, |stream| stream.0.0));
    CURRENT.with(|current| std::mem::replace(&mut *current.borrow_mut(), stream))
}

impl Stream {
    /// The calling thread's default stream on `device`.
    ///
    /// # Errors
    /// If the device is not there.
    pub fn default_on(device: Device) -> Result<Self> {
        install_handler();
        if !device.is_available()? {
            return Err(Error::Argument { op: "stream", message: format!("{device:?} is not available") });
        }
        let mut raw = Raw(sys::mlx_stream { ctx: std::ptr::null_mut() });
        device.with_raw(|device| {
            check("default_stream", || {
                // SAFETY: `raw` is an empty handle that the call fills; the device lives for the call.
                unsafe { sys::mlx_get_default_stream(&mut raw.0, device) }
            })
        })?;
        Self::adopt(raw)
    }

    /// A new stream on `device`.
    ///
    /// # Errors
    /// If the device is not there.
    pub fn new_on(device: Device) -> Result<Self> {
        install_handler();
        if !device.is_available()? {
            return Err(Error::Argument { op: "stream", message: format!("{device:?} is not available") });
        }
        // SAFETY: the device handle lives for the call; the result is ours.
        let raw = Raw(device.with_raw(|device| unsafe { sys::mlx_stream_new_device(device) }));
        Self::adopt(raw)
    }

    fn adopt(raw: Raw) -> Result<Self> {
        if raw.0.ctx.is_null() {
            return Err(Error::Mlx { op: "stream", message: take_message() });
        }
        Ok(Self(Rc::new(raw), PhantomData))
    }

    /// Makes this the stream of every operation that the calling thread asks for from now on.
    pub fn set_current(&self) {
        replace_current(Some(self.clone()));
    }

    /// Leaves the choice to MLX's default device again.
    pub(crate) fn forget_current() {
        replace_current(None);
    }

    /// Runs `work` with this as the calling thread's stream.
    pub fn scope<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Restore(Option<Stream>);
        impl Drop for Restore {
            fn drop(&mut self) {
                replace_current(self.0.take());
            }
        }
        let _restore = Restore(replace_current(Some(self.clone())));
        work()
    }

    /// Waits until all work given to this stream is done.
    pub fn synchronize(&self) -> Result<()> {
        check("synchronize", || {
            // SAFETY: the handle is live.
            unsafe { sys::mlx_synchronize(self.0.0) }
        })
    }

    /// The kind of device that the calling thread's operations go to.
    ///
    /// # Errors
    /// If MLX cannot say.
    pub fn current_device() -> Result<DeviceType> {
        let mut device = sys::mlx_device { ctx: std::ptr::null_mut() };
        let mut kind = sys::mlx_device_type__MLX_CPU;
        let read = Self::with_current(|stream| {
            check("stream", || {
                // SAFETY: the stream is live and `device` is an empty handle that the call fills.
                unsafe { sys::mlx_stream_get_device(&mut device, stream) }
            })?;
            check("device", || {
                // SAFETY: the call before filled `device`.
                unsafe { sys::mlx_device_get_type(&mut kind, device) }
            })
        });
        // SAFETY: we own the handle, filled or empty, and this is its last use.
        unsafe { sys::mlx_device_free(device) };
        read?;
        Ok(if kind == sys::mlx_device_type__MLX_CPU { DeviceType::Cpu } else { DeviceType::Gpu })
    }

    /// Calls `use_it` with the current stream of this thread: the one set last, else MLX's default on its default device.
    pub(crate) fn with_current<T>(use_it: impl FnOnce(sys::mlx_stream) -> T) -> T {
        // No operation that takes a stream calls back into Rust, so `CURRENT` keeps the handle alive meanwhile.
        let handle = HANDLE.get();
        if !handle.ctx.is_null() {
            return use_it(handle);
        }
        match Self::of_default_device() {
            Ok(stream) => use_it(stream.0.0),
            // MLX says what is wrong with an empty handle.
            Err(_) => use_it(NONE),
        }
    }

    fn of_default_device() -> Result<Self> {
        let mut device = sys::mlx_device { ctx: std::ptr::null_mut() };
        check("default_device", || {
            // SAFETY: `device` is an empty handle that the call fills.
            unsafe { sys::mlx_get_default_device(&mut device) }
        })?;
        let mut raw = Raw(sys::mlx_stream { ctx: std::ptr::null_mut() });
        let filled = check("default_stream", || {
            // SAFETY: both handles are live for the call.
            unsafe { sys::mlx_get_default_stream(&mut raw.0, device) }
        });
        // SAFETY: we own the device handle, and this is its last use.
        unsafe { sys::mlx_device_free(device) };
        filled?;
        let stream = Self::adopt(raw)?;
        stream.set_current();
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_sends_work_to_its_stream_and_ends() {
        let stream = Stream::new_on(Device::CPU).unwrap();
        assert_eq!(stream.scope(|| Stream::current_device().unwrap()), DeviceType::Cpu);
        let x = stream.scope(|| crate::Array::scalar(2.0f32).square()).unwrap();
        assert_eq!(x.item::<f32>().unwrap(), 4.0);
        stream.synchronize().unwrap();
    }

    #[test]
    fn a_new_default_device_counts_from_the_next_operation() {
        std::thread::spawn(|| {
            let before = Stream::current_device().unwrap();
            Device::CPU.set_default().unwrap();
            assert_eq!(Stream::current_device().unwrap(), DeviceType::Cpu);
            let back = if before == DeviceType::Cpu { Device::CPU } else { Device::GPU };
            back.set_default().unwrap();
            assert_eq!(Stream::current_device().unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
