//! One thread per device that owns all MLX state of the process.
//!
//! MLX's streams and compile cache belong to the thread that made them. Callers hand closures to the worker and wait;
//! what must stay there is kept in a [`Remote`].

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mlx_safe::{Device, DeviceType, Stream};

use crate::Error;

/// A thread that serves one device.
pub(crate) struct Worker {
    pool: rayon::ThreadPool,
    process: u32,
    /// Whether MLX was in use before this process was forked.
    inherited: bool,
}

/// How many bytes of freed memory MLX keeps on a CPU. With its own choice, 32 MiB, a network of images gives pages back to the
/// system in every run, and a third of the time goes into getting them anew.
const CPU_CACHE: usize = 1 << 30;

static WORKERS: Mutex<Option<HashMap<DeviceType, Arc<Worker>>>> = Mutex::new(None);

thread_local! {
    static KEPT: RefCell<HashMap<u64, Box<dyn Any>>> = RefCell::default();
}

static NEXT: AtomicU64 = AtomicU64::new(0);

impl Worker {
    /// The process's worker for `device`, started on first use.
    pub(crate) fn of(device: Device) -> Result<Arc<Self>, Error> {
        let mut workers = WORKERS.lock().unwrap_or_else(PoisonError::into_inner);
        let workers = workers.get_or_insert_default();
        let inherited =
            workers.values().any(|worker| worker.inherited || worker.process != std::process::id());
        if let Some(worker) = workers.get(&device.kind) {
            if worker.process == std::process::id() {
                return Ok(worker.clone());
            }
            // The child of a fork: the thread is not here. Its pool must not be dropped, which would wait for it.
            std::mem::forget(workers.remove(&device.kind));
        }
        if device.kind == DeviceType::Gpu {
            mlx_safe::environment::set_defaults();
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            // MLX fuses graphs by recursion.
            .stack_size(8 << 20)
            .thread_name(move |_| format!("ort-mlx {:?}", device.kind))
            .build()
            .map_err(|e| Error::Worker(e.to_string()))?;
        pool.install(|| -> Result<(), mlx_safe::Error> {
            device.set_default()?;
            Stream::default_on(device)?.set_current();
            Ok(())
        })?;
        let worker = Arc::new(Self { pool, process: std::process::id(), inherited });
        if device.kind == DeviceType::Cpu && !inherited {
            worker.keep_freed(CPU_CACHE)?;
        }
        workers.insert(device.kind, worker.clone());
        Ok(worker)
    }

    /// Has MLX keep up to so many bytes of freed memory for reuse.
    ///
    /// # Errors
    /// [`Error::ForkedCache`] in the child of a process that used MLX: MLX would first wait for streams whose threads are not here.
    pub(crate) fn keep_freed(&self, bytes: usize) -> Result<(), Error> {
        if self.inherited {
            return Err(Error::ForkedCache);
        }
        self.run(|| mlx_safe::memory::set_cache_limit(bytes))??;
        Ok(())
    }

    /// Runs `work` on the worker's thread and waits for it.
    ///
    /// # Errors
    /// [`Error::Forked`] in a child process that inherited the worker but not its thread.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        if std::process::id() != self.process {
            return Err(Error::Forked);
        }
        // The caller's subscriber gets what is logged over there too.
        let log = tracing::dispatcher::get_default(Clone::clone);
        Ok(self.pool.install(|| tracing::dispatcher::with_default(&log, work)))
    }

    /// Makes something on the worker's thread and leaves it there.
    pub(crate) fn keep<T: 'static, E: Send + From<Error>>(
        self: &Arc<Self>,
        make: impl FnOnce() -> Result<T, E> + Send,
    ) -> Result<Remote<T>, E> {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.run(|| {
            let made: Box<dyn Any> = Box::new(make()?);
            KEPT.with(|kept| kept.borrow_mut().insert(id, made));
            Ok::<(), E>(())
        })??;
        Ok(Remote { id, worker: self.clone(), kind: PhantomData })
    }
}

/// Something that lives on a worker's thread and is reached only there. Dropping this drops it there.
pub(crate) struct Remote<T> {
    id: u64,
    worker: Arc<Worker>,
    kind: PhantomData<fn() -> T>,
}

impl<T: 'static> Remote<T> {
    /// Runs `work` on it, on its thread.
    pub(crate) fn with<R: Send>(&self, work: impl FnOnce(&T) -> R + Send) -> Result<R, Error> {
        self.worker.run(|| {
            KEPT.with(|kept| {
                let kept = kept.borrow();
                let value = kept.get(&self.id).and_then(|v| v.downcast_ref::<T>());
                Ok(work(value.ok_or_else(|| Error::Bug("a program is gone from its thread".into()))?))
            })
        })?
    }
}

impl<T> Drop for Remote<T> {
    fn drop(&mut self) {
        let id = self.id;
        // In a forked child there is nothing to drop: the thread and its memory belong to the parent.
        let _ = self.worker.run(|| KEPT.with(|kept| kept.borrow_mut().remove(&id)).map(drop).is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_on_its_thread_and_is_dropped_there() {
        struct Noted(std::sync::mpsc::Sender<Option<String>>);
        impl Drop for Noted {
            fn drop(&mut self) {
                self.0.send(std::thread::current().name().map(str::to_owned)).unwrap();
            }
        }
        let worker = Worker::of(Device::CPU).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let remote = worker.keep(move || Ok::<_, Error>(Noted(sender))).unwrap();
        let name = remote.with(|_| std::thread::current().name().map(str::to_owned)).unwrap();
        drop(remote);
        assert_eq!(receiver.recv().unwrap(), name);
        assert_eq!(name.as_deref(), Some("ort-mlx Cpu"));
    }

    #[test]
    fn panics_reach_the_caller_and_leave_the_worker_alive() {
        let worker = Worker::of(Device::CPU).unwrap();
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker.run(|| panic!("on purpose"))));
        assert!(result.is_err());
        assert_eq!(worker.run(|| 1).unwrap(), 1);
    }
}
