//! Memory of MLX's allocator for tensors of others.

use std::ptr::NonNull;

use mlx_sys as sys;

use crate::error::install_handler;
use crate::{Error, Result};

/// Bytes that both the host and MLX's device can use, aligned for tensors. [`lend`](crate::lend) uses tensors that lie here where
/// they are, on every back end, and [`Array::copy_to`](crate::Array::copy_to) writes here by the device.
///
/// On a CPU and with Metal that is one memory; with CUDA it is managed memory, whose pages move to who uses them.
pub struct Block(NonNull<u8>);

// SAFETY: the bytes are reached by raw pointers only, and the allocator may be called from any thread.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// Makes a block of `bytes`, uninitialised.
    ///
    /// # Errors
    /// If there is no memory left.
    pub fn new(bytes: usize) -> Result<Self> {
        install_handler();
        // SAFETY: takes a number.
        let data = unsafe { sys::ortmlx_block_new(bytes) };
        let no_memory = || Error::Argument { op: "block", message: format!("no memory for {bytes} bytes") };
        Ok(Self(NonNull::new(data.cast()).ok_or_else(no_memory)?))
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Gives the block up for its first byte.
    pub fn into_raw(self) -> NonNull<u8> {
        let data = self.0;
        std::mem::forget(self);
        data
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// `data` must come from [`into_raw`](Self::into_raw), once, and no tensor may lie there when the block is dropped.
    pub unsafe fn from_raw(data: NonNull<u8>) -> Self {
        Self(data)
    }

    /// Whether `bytes` from `data` on lie in one block.
    pub fn holds(data: *const u8, bytes: usize) -> bool {
        // SAFETY: the address is compared, not followed.
        unsafe { sys::ortmlx_in_block(data.cast(), bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: we own the block, and this is its last use.
        unsafe { sys::ortmlx_block_free(self.0.as_ptr().cast()) }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;
    use crate::{Array, Dtype, lend};

    const N: usize = 3000;

    /// Room for `bytes` somewhere in a block.
    fn room(block: &mut Block, offset: usize, bytes: usize) -> &mut [MaybeUninit<u8>] {
        // SAFETY: the tests ask for what they made, and use one slice at a time.
        unsafe { std::slice::from_raw_parts_mut(block.as_ptr().add(offset).cast(), bytes) }
    }

    fn floats(bytes: &[MaybeUninit<u8>]) -> Vec<f32> {
        // SAFETY: the tests read what they wrote.
        let bytes = bytes.chunks_exact(4).map(|b| [0, 1, 2, 3].map(|i| unsafe { b[i].assume_init() }));
        bytes.map(f32::from_ne_bytes).collect()
    }

    #[test]
    fn blocks_know_their_bytes() {
        let (one, two) = (Block::new(100).unwrap(), Block::new(0).unwrap());
        assert!(one.as_ptr().addr().is_multiple_of(64));
        assert!(Block::holds(one.as_ptr(), 100) && Block::holds(one.as_ptr().wrapping_add(99), 1));
        assert!(!Block::holds(one.as_ptr(), 101) && !Block::holds(one.as_ptr().wrapping_sub(1), 1));
        assert!(!Block::holds([0u8; 4].as_ptr(), 4));
        let data = one.into_raw();
        drop(two);
        // SAFETY: given up above.
        drop(unsafe { Block::from_raw(data) });
        assert!(!Block::holds(data.as_ptr(), 1));
        assert!(Block::new(usize::MAX).is_err() && Block::new(usize::MAX / 2).is_err());
    }

    #[test]
    fn tensors_in_blocks_are_used_there_small_ones_and_bools_too() {
        let mut block = Block::new(4 * N + 8).unwrap();
        for (offset, count) in [(0, N), (4, N), (8, 1)] {
            let wanted: Vec<f32> = (0..count).map(|i| i as f32 - 1.5).collect();
            Array::from_slice(&wanted, &[count as i32])
                .unwrap()
                .copy_to(room(&mut block, offset, 4 * count))
                .unwrap();
            // SAFETY: written above.
            let data = unsafe { std::slice::from_raw_parts(block.as_ptr().add(offset), 4 * count) };
            let (negative, escaped) = lend(|loans| {
                let x = loans.array(Dtype::Float32, &[count as i32], data).unwrap();
                assert_eq!((loans.traffic().copied, loans.traffic().lent), (0, 4 * count));
                (x.negative().unwrap().to_vec::<f32>().unwrap(), x.reshape(&[1, -1]).unwrap())
            });
            assert!(negative.iter().zip(&wanted).all(|(y, x)| *y == -x));
            assert_eq!(floats(room(&mut block, offset, 4 * count)), wanted);
            room(&mut block, 0, 4 * N).fill(MaybeUninit::new(0xff));
            assert_eq!(escaped.to_vec::<f32>().unwrap(), wanted);
        }
        room(&mut block, 0, 3).copy_from_slice(&[0u8, 1, 200].map(MaybeUninit::new));
        // SAFETY: written above.
        let data = unsafe { std::slice::from_raw_parts(block.as_ptr(), 3) };
        let bools = lend(|loans| loans.array(Dtype::Bool, &[3], data).unwrap().to_vec::<bool>().unwrap());
        assert_eq!(bools, [false, true, true]);
    }

    #[test]
    fn the_device_writes_to_blocks() {
        let mut block = Block::new(4 * N).unwrap();
        let values: Vec<f32> = (0..N).map(|i| i as f32).collect();
        let x = Array::from_slice(&values, &[30, N as i32 / 30]).unwrap();
        for (array, offset) in [
            (&x, 0),
            (&x.transpose(&[1, 0]).unwrap(), 0),
            (&x.slice(&[0, 0], &[2, 100], &[1, 3]).unwrap(), 64),
        ] {
            let bytes = array.nbytes();
            room(&mut block, 0, 4 * N).fill(MaybeUninit::new(0));
            array.eval().unwrap();
            assert!(array.write_to_block(room(&mut block, offset, bytes)).unwrap());
            assert_eq!(floats(room(&mut block, offset, bytes)), array.to_vec::<f32>().unwrap());
        }
        let mut elsewhere = vec![MaybeUninit::uninit(); 4 * N];
        assert!(!x.write_to_block(&mut elsewhere).unwrap());
        // MLX does not update a small part of a large block in place.
        let mut large = Block::new(1 << 20).unwrap();
        assert!(!x.write_to_block(room(&mut large, 0, 4 * N)).unwrap());
    }
}
