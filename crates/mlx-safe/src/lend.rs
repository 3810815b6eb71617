//! Arrays over memory of the caller's, for as long as a call lasts.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::marker::PhantomData;

use mlx_sys as sys;

use crate::array::{bounded_rank, elements};
use crate::error::{argument, check, install_handler};
use crate::{Array, Block, Dtype, Result, Stream};

/// Tensors of fewer bytes are copied: a copy costs no more than the care for a loan.
const WORTH_A_LOAN: usize = 16 << 10;

/// Makes arrays over memory that lives for `'env`; see [`lend`].
pub struct Loans<'env> {
    lent: RefCell<Vec<Array>>,
    bytes: Cell<Traffic>,
    /// Invariant, so that nothing shorter-lived can be lent.
    env: PhantomData<Cell<&'env ()>>,
}

/// How many bytes of a caller's tensors became arrays, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Copied to memory of MLX's.
    pub copied: usize,
    /// Used where they lie.
    pub lent: usize,
}

/// Runs `work`, which may make arrays over memory that outlives this call.
///
/// MLX never writes to that memory, and does not touch it after this call: where an array or a view of one is still held by
/// then, it has a copy of its own from then on. Nothing is copied for what was evaluated and dropped.
///
/// ```
/// let data = vec![0u8; 1 << 20];
/// let zeros = mlx_safe::lend(|loans| {
///     let x = loans.array(mlx_safe::Dtype::Uint8, &[1 << 20], &data)?;
///     x.equal(&mlx_safe::Array::scalar(0u8))?.all(.., false)?.item::<bool>()
/// });
/// assert!(zeros?);
/// # Ok::<(), mlx_safe::Error>(())
/// ```
pub fn lend<'env, T>(work: impl FnOnce(&Loans<'env>) -> T) -> T {
    let loans = Loans { lent: RefCell::default(), bytes: Cell::default(), env: PhantomData };
    work(&loans)
}

impl<'env> Loans<'env> {
    /// An array of `shape` and `dtype` over `data`, row-major in the host's byte order. What lies in a [`Block`] is used there.
    /// Elsewhere small tensors, bools that are neither 0 nor 1, and what the back end cannot use where it lies are copied.
    ///
    /// # Errors
    /// As for [`Array::from_bytes`].
    pub fn array(&self, dtype: Dtype, shape: &[i32], data: &'env [u8]) -> Result<Array> {
        let in_block = Block::holds(data.as_ptr(), data.len());
        if in_block && dtype == Dtype::Bool {
            // What lies there is not looked at by the host.
            return self.array(Dtype::Uint8, shape, data)?.not_equal(&Array::scalar(0u8));
        }
        let impure = || dtype == Dtype::Bool && data.iter().any(|&byte| byte > 1);
        if !in_block && (data.len() < WORTH_A_LOAN || impure()) {
            let array = Array::from_bytes(dtype, shape, data)?;
            self.count(data.len(), false);
            return Ok(array);
        }
        bounded_rank("lend", shape.len())?;
        if elements(shape).and_then(|n| n.checked_mul(dtype.size())) != Some(data.len()) {
            return argument("lend", format!("{dtype:?}{shape:?} does not take {} bytes", data.len()));
        }
        install_handler();
        let mut lent = false;
        let array = Array::from_op("lend", |out| {
            // SAFETY: `data` holds the elements that `shape` asks for. It lives until the loan ends in `drop`: `'env` outlives
            // the call of `lend` that owns us. MLX does not write to it, because `lent` keeps a handle till then.
            Stream::with_current(|stream| unsafe {
                sys::ortmlx_lend(
                    out,
                    data.as_ptr().cast_mut().cast(),
                    shape.as_ptr(),
                    shape.len(),
                    dtype.raw(),
                    stream,
                    &raw mut lent,
                )
            })
        })?;
        if lent {
            self.lent.borrow_mut().push(array.clone());
        }
        self.count(data.len(), lent);
        Ok(array)
    }

    /// Whether an evaluated array lies in lent memory: it is one of the lent arrays or a view of one.
    pub fn hold(&self, array: &Array) -> bool {
        // SAFETY: both handles are live.
        self.lent
            .borrow()
            .iter()
            .any(|lent| unsafe { sys::ortmlx_array_shares_memory(lent.raw(), array.raw()) })
    }

    /// What was lent and what was copied so far.
    pub fn traffic(&self) -> Traffic {
        self.bytes.get()
    }

    fn count(&self, bytes: usize, lent: bool) {
        let mut traffic = self.bytes.get();
        *(if lent { &mut traffic.lent } else { &mut traffic.copied }) += bytes;
        self.bytes.set(traffic);
    }
}

impl Drop for Loans<'_> {
    fn drop(&mut self) {
        for array in self.lent.take() {
            let ended = check("lend", || -> c_int {
                // SAFETY: the handle is live and came from `ortmlx_lend` on this thread, since arrays stay on theirs.
                unsafe { sys::ortmlx_take_back(array.raw()) }
            });
            if ended.is_err() {
                // The memory is the caller's again, arrays over it are still about, and there is none for a copy.
                std::process::abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: i32 = 1 << 16;

    /// Floats and room for them that begins 64 bytes into a page, so that they can be lent.
    fn floats() -> (Vec<u8>, usize) {
        let mut memory = vec![0u8; (N as usize) * 4 + 3 * 4096];
        let offset = memory.as_ptr().align_offset(4096) + 64;
        for (i, chunk) in memory[offset..offset + N as usize * 4].chunks_exact_mut(4).enumerate() {
            chunk.copy_from_slice(&(i as f32 - 9.5).to_ne_bytes());
        }
        (memory, offset)
    }

    fn lent_here() -> bool {
        !crate::metal::is_available().unwrap() && !crate::cuda::is_available().unwrap()
    }

    #[test]
    fn lent_memory_is_read_in_place_and_never_written() {
        let (memory, offset) = floats();
        let before = memory.clone();
        let data = &memory[offset..offset + N as usize * 4];
        let sum = lend(|loans| {
            let x = loans.array(Dtype::Float32, &[N], data).unwrap();
            let wanted = if lent_here() { (0, data.len()) } else { (data.len(), 0) };
            assert_eq!((loans.traffic().copied, loans.traffic().lent), wanted);
            // Chains of operations that MLX does in place, on an array that nobody seems to hold.
            let view = x.reshape(&[-1, 2]).unwrap();
            let other = x.negative().unwrap();
            crate::eval([&view, &other]).unwrap();
            assert!(!loans.hold(&other) && loans.hold(&view) == lent_here());
            drop((view, other));
            let y = x.negative().unwrap().abs().unwrap().sqrt().unwrap();
            drop(x);
            y.sum(.., false).unwrap().item::<f32>().unwrap()
        });
        let wanted: f64 = (0..N).map(|i| (f64::from(i) - 9.5).abs().sqrt()).sum();
        assert!((f64::from(sum) - wanted).abs() < 1e-4 * wanted, "{sum} {wanted}");
        assert_eq!(memory, before);
    }

    #[test]
    fn what_escapes_has_a_copy() {
        let (mut memory, offset) = floats();
        let bytes = offset..offset + N as usize * 4;
        let data: &[u8] = &memory[bytes.clone()];
        let (whole, view, evaluated, lazy) = lend(|loans| {
            let x = loans.array(Dtype::Float32, &[N], data).unwrap();
            let evaluated = x.reshape(&[2, N / 2]).unwrap();
            evaluated.eval().unwrap();
            let lazy = x.add(&Array::scalar(1.0f32)).unwrap();
            (x.clone(), x.reshape(&[N / 2, 2]).unwrap(), evaluated, lazy)
        });
        memory[bytes].fill(0xff);
        let wanted: Vec<f32> = (0..N).map(|i| i as f32 - 9.5).collect();
        assert_eq!(whole.to_vec::<f32>().unwrap(), wanted);
        assert_eq!(view.to_vec::<f32>().unwrap(), wanted);
        assert_eq!(evaluated.to_vec::<f32>().unwrap(), wanted);
        assert!(lazy.to_vec::<f32>().unwrap().iter().zip(&wanted).all(|(y, x)| *y == x + 1.0));
    }

    #[test]
    fn what_cannot_be_lent_is_copied() {
        let (memory, offset) = floats();
        let page = offset - 64;
        lend(|loans| {
            let at = |first: usize, bytes: usize| {
                let before = loans.traffic().copied;
                let data = &memory[first..first + bytes];
                let x = loans.array(Dtype::Float32, &[(bytes / 4) as i32], data).unwrap();
                assert_eq!(loans.traffic().copied - before, bytes);
                let first = f32::from_ne_bytes(data[..4].try_into().unwrap());
                assert!(x.to_vec::<f32>().unwrap()[0] == first);
            };
            at(page, 1 << 15); // Nothing before it.
            at(offset + 1, 1 << 15); // Not as floats must lie.
            at(offset, (1 << 15) + 4096 - 64 - 32); // Ends with a page.
            at(offset, 64); // Small.
            assert!(loans.array(Dtype::Float32, &[3], &memory[..1 << 15]).is_err());
            let bools = loans.array(Dtype::Bool, &[1 << 15], &memory[offset..offset + (1 << 15)]).unwrap();
            let wanted: Vec<bool> =
                memory[offset..offset + (1 << 15)].iter().map(|&byte| byte != 0).collect();
            assert_eq!(bools.to_vec::<bool>().unwrap(), wanted);
            assert_eq!(loans.traffic().lent, 0);
        });
    }

    #[test]
    fn a_panic_ends_a_loan() {
        let (memory, offset) = floats();
        let data = &memory[offset..offset + N as usize * 4];
        let kept = std::cell::RefCell::new(None);
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lend(|loans| {
                *kept.borrow_mut() = Some(loans.array(Dtype::Float32, &[N], data).unwrap());
                panic!("on purpose");
            })
        }));
        assert!(failed.is_err());
        drop(memory);
        let kept = kept.take().unwrap();
        assert_eq!(kept.to_vec::<f32>().unwrap()[10], 0.5);
    }
}
