//! Working memory that begins on a cache line.

use std::ops::{Deref, DerefMut};

/// Floats, all zero at first, whose first lies at a multiple of 64 bytes: vectors then never cross a line.
pub(super) struct Scratch {
    data: Vec<f32>,
    skip: usize,
    length: usize,
}

impl Scratch {
    pub(super) fn new(length: usize) -> Self {
        let data = vec![0.0; length + 16];
        let skip = data.as_ptr().align_offset(64).min(16);
        Self { data, skip, length }
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.data[self.skip..][..self.length]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.skip..][..self.length]
    }
}
