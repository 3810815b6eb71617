//! `OrtAllocator` over MLX's: tensors in its memory are inputs and outputs without a copy.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use ep_core::Block;
use ort_sys::{OrtAllocator, OrtMemoryInfo};

use crate::abi::AllocatorTable;
use crate::api::Api;
use crate::boundary;
use crate::memory_info::MemoryInfo;

/// An allocator behind its table. It may outlive the factory that made it.
#[repr(C)]
pub struct Allocator {
    table: AllocatorTable,
    info: Arc<MemoryInfo>,
}

impl Allocator {
    /// An allocator of the memory that `info` describes.
    pub fn new(api: Api, info: Arc<MemoryInfo>) -> Box<Self> {
        let table = AllocatorTable {
            version: api.version(),
            Alloc: Some(alloc),
            Free: Some(free),
            Info: Some(describe),
            Reserve: Some(alloc),
            ..AllocatorTable::default()
        };
        Box::new(Self { table, info })
    }

    /// Gives it to ONNX Runtime.
    pub fn into_raw(self: Box<Self>) -> *mut OrtAllocator {
        Box::into_raw(self).cast()
    }

    /// Takes it back; null is none.
    ///
    /// # Safety
    /// `raw` must be null or come from [`Self::into_raw`] and not have been taken back yet.
    pub unsafe fn take(raw: *mut OrtAllocator) -> Option<Box<Self>> {
        // SAFETY: by the caller's word; the table is the first member.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw.cast()) })
    }
}

/// Null, which ONNX Runtime reports, if there is no memory left.
unsafe extern "system" fn alloc(_: *mut AllocatorTable, size: usize) -> *mut c_void {
    boundary::value("Alloc", null_mut(), || match ep_core::allocate(size) {
        Ok(block) => block.into_raw().as_ptr().cast(),
        Err(error) => {
            tracing::error!("{error}");
            null_mut()
        }
    })
}

unsafe extern "system" fn free(_: *mut AllocatorTable, data: *mut c_void) {
    boundary::void("Free", || {
        if let Some(data) = std::ptr::NonNull::new(data.cast()) {
            // SAFETY: ONNX Runtime gives back what `alloc` made, once, when no tensor lies there any more.
            drop(unsafe { Block::from_raw(data) });
        }
    });
}

unsafe extern "system" fn describe(this: *const AllocatorTable) -> *const OrtMemoryInfo {
    // SAFETY: ONNX Runtime passes an allocator of ours.
    unsafe { (*this.cast::<Allocator>()).info.raw() }
}
