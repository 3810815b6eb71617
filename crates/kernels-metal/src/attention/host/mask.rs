//! Masks over (B, Hq, L, S).

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::attention::{KERNEL, Sizes};
use crate::{Error, Result};

/// A mask that broadcasts to (B, Hq, L, S). A last size other than 1 that is below S hides the keys beyond it.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a> {
    /// Its sizes, leading ones filled in.
    pub sizes: [usize; 4],
    /// Its elements, row-major.
    pub values: MaskValues<'a>,
}

/// The elements of a mask.
#[derive(Clone, Copy, Debug)]
pub enum MaskValues<'a> {
    /// True: the key is seen.
    Bool(&'a [bool]),
    /// Added to scores.
    Float32(&'a [f32]),
    /// Added to scores.
    Float16(&'a [f16]),
    /// Added to scores.
    Bfloat16(&'a [bf16]),
}

impl Mask<'_> {
    pub(super) fn check(&self, sizes: Sizes) -> Result<()> {
        sizes.mask(&self.sizes.map(|n| n as i32))?;
        let (length, wanted) = (self.values.len(), self.sizes.iter().product());
        if length != wanted {
            return Err(Error::Length { kernel: KERNEL, array: "mask", length, wanted });
        }
        Ok(())
    }

    /// How many of `keys` it may show.
    pub(super) fn keys(&self, keys: usize) -> usize {
        if self.sizes[3] == 1 { keys } else { self.sizes[3] }
    }

    /// Writes what is added to the scores of one query with the keys from `key` on: minus infinity hides a key.
    pub(super) fn bias(&self, [batch, head, query, key]: [usize; 4], to: &mut [f32]) {
        let [b, h, l, s] = self.sizes;
        let at = |index: usize, size: usize| if size == 1 { 0 } else { index };
        let row = (at(batch, b) * h + at(head, h)) * l + at(query, l);
        if s == 1 {
            let mut value = [0.0];
            self.values.read(row, &mut value);
            to.fill(value[0]);
        } else {
            self.values.read(row * s + key, to);
        }
    }
}

impl MaskValues<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Bool(values) => values.len(),
            Self::Float32(values) => values.len(),
            Self::Float16(values) => values.len(),
            Self::Bfloat16(values) => values.len(),
        }
    }

    fn read(&self, from: usize, to: &mut [f32]) {
        let range = from..from + to.len();
        match self {
            Self::Bool(values) => {
                for (to, &seen) in to.iter_mut().zip(&values[range]) {
                    *to = if seen { 0.0 } else { f32::NEG_INFINITY };
                }
            }
            Self::Float32(values) => to.copy_from_slice(&values[range]),
            Self::Float16(values) => values[range].convert_to_f32_slice(to),
            Self::Bfloat16(values) => values[range].convert_to_f32_slice(to),
        }
    }
}
