//! Matrices of few bits a weight.

use std::ffi::CStr;

use super::bounds::bounded_batch;
use super::{op, op_vec};
use crate::error::argument;
use crate::handle::{optional_dtype, optional_int};
use crate::{Array, Dtype, Result};

/// How weights are packed along the last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantization {
    /// w = scale q + bias in groups of `group_size` (32, 64, 128), `bits` (2 to 6, 8) each.
    Affine {
        /// Weights that share a scale and a bias.
        group_size: i32,
        /// Bits a weight.
        bits: i32,
    },
    /// 4-bit floats, groups of 32, 8-bit power-of-two scales.
    Mxfp4,
    /// 8-bit floats, groups of 32, 8-bit power-of-two scales.
    Mxfp8,
    /// 4-bit floats, groups of 16, 8-bit float scales.
    Nvfp4,
}

impl Quantization {
    fn name(self) -> &'static CStr {
        match self {
            Self::Affine { .. } => c"affine",
            Self::Mxfp4 => c"mxfp4",
            Self::Mxfp8 => c"mxfp8",
            Self::Nvfp4 => c"nvfp4",
        }
    }

    fn group_size(self) -> mlx_sys::mlx_optional_int {
        optional_int(match self {
            Self::Affine { group_size, .. } => Some(group_size),
            _ => None,
        })
    }

    /// Refuses what MLX's kernels do not know, and scales (and biases) of which there is not one a group: `packed` is
    /// (..., N, K bits / 32), they are (..., N, K / group).
    fn check(
        self,
        op: &'static str,
        packed: Option<&Array>,
        scales: Option<&Array>,
        biases: Option<&Array>,
    ) -> Result<()> {
        if let Self::Affine { group_size, bits } = self
            && !([32, 64, 128].contains(&group_size) && [2, 3, 4, 5, 6, 8].contains(&bits))
        {
            return argument(op, format!("no kernel for groups of {group_size} and {bits} bits"));
        }
        let Some((packed, scales)) = packed.zip(scales) else { return Ok(()) };
        let rows = |array: &Array| array.shape().split_last().map(|(_, rows)| rows.to_vec());
        if packed.ndim() < 2
            || rows(packed) != rows(scales)
            || biases.is_some_and(|biases| biases.shape() != scales.shape())
        {
            return argument(op, format!("{packed:?}, scales {scales:?} and biases {biases:?} do not fit"));
        }
        Ok(())
    }

    fn bits(self) -> mlx_sys::mlx_optional_int {
        optional_int(match self {
            Self::Affine { bits, .. } => Some(bits),
            _ => None,
        })
    }
}

impl Array {
    /// A matrix (..., K) packed: weights as uint32 (..., K bits / 32), scales (..., K / group) and, for affine packing,
    /// biases of the same shape. `global_scale` is for `Nvfp4`.
    ///
    /// # Errors
    /// If K is no multiple of the group, or the packing does not exist.
    pub fn quantize(&self, how: Quantization, global_scale: Option<&Array>) -> Result<Vec<Array>> {
        how.check("quantize", None, None, None)?;
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op_vec!("quantize", mlx_quantize(self.raw(), group, bits, name, Array::raw_or_null(global_scale)))
    }

    /// The weights that [`Array::quantize`] packed, as `dtype` (by default that of the scales).
    ///
    /// # Errors
    /// If shapes and packing do not fit.
    pub fn dequantize(
        &self,
        scales: &Array,
        biases: Option<&Array>,
        how: Quantization,
        global_scale: Option<&Array>,
        dtype: Option<Dtype>,
    ) -> Result<Array> {
        how.check("dequantize", Some(self), Some(scales), biases)?;
        let (biases, global) = (Array::raw_or_null(biases), Array::raw_or_null(global_scale));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        let dtype = optional_dtype(dtype);
        op!("dequantize", mlx_dequantize(self.raw(), scales.raw(), biases, group, bits, name, global, dtype))
    }

    /// This (..., M, K) times packed weights: (N, K) if `transpose`, else (K, N).
    ///
    /// # Errors
    /// If shapes and packing do not fit.
    pub fn quantized_matmul(
        &self,
        weights: &Array,
        scales: &Array,
        biases: Option<&Array>,
        transpose: bool,
        how: Quantization,
    ) -> Result<Array> {
        how.check("quantized_matmul", Some(weights), Some(scales), biases)?;
        let (w, scales, biases) = (weights.raw(), scales.raw(), Array::raw_or_null(biases));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op!(
            "quantized_matmul",
            mlx_quantized_matmul(self.raw(), w, scales, biases, transpose, group, bits, name)
        )
    }

    /// [`Array::quantized_matmul`] of chosen matrices, as [`Array::gather_mm`] chooses them.
    ///
    /// # Errors
    /// If shapes and packing do not fit.
    #[allow(clippy::too_many_arguments)]
    pub fn gather_qmm(
        &self,
        weights: &Array,
        scales: &Array,
        biases: Option<&Array>,
        lhs: Option<&Array>,
        rhs: Option<&Array>,
        transpose: bool,
        how: Quantization,
        sorted: bool,
    ) -> Result<Array> {
        const NAME: &str = "gather_qmm";
        how.check(NAME, Some(weights), Some(scales), biases)?;
        let (lhs, rhs) = (bounded_batch(NAME, lhs, self)?, bounded_batch(NAME, rhs, weights)?);
        let (x, w, scales, biases) = (self.raw(), weights.raw(), scales.raw(), Array::raw_or_null(biases));
        let (lhs, rhs) = (Array::raw_or_null(lhs.as_ref()), Array::raw_or_null(rhs.as_ref()));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op!(NAME, mlx_gather_qmm(x, w, scales, biases, lhs, rhs, transpose, group, bits, name, sorted))
    }

    /// This (M, K), packed on the fly, times (N, K): packed already if `scales` are given. GPU only.
    ///
    /// # Errors
    /// If shapes and packing do not fit; on the CPU.
    pub fn qqmm(
        &self,
        weights: &Array,
        scales: Option<&Array>,
        how: Quantization,
        global_scale: Option<&Array>,
        weights_global_scale: Option<&Array>,
    ) -> Result<Array> {
        how.check("qqmm", Some(weights), scales, None)?;
        let scales = Array::raw_or_null(scales);
        let (gx, gw) = (Array::raw_or_null(global_scale), Array::raw_or_null(weights_global_scale));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op!("qqmm", mlx_qqmm(self.raw(), weights.raw(), scales, group, bits, name, gx, gw))
    }

    /// [`Array::qqmm`] of chosen matrices, as [`Array::gather_mm`] chooses them. GPU only.
    ///
    /// # Errors
    /// If shapes and packing do not fit; on the CPU.
    #[allow(clippy::too_many_arguments)]
    pub fn gather_qqmm(
        &self,
        weights: &Array,
        scales: Option<&Array>,
        lhs: Option<&Array>,
        rhs: Option<&Array>,
        how: Quantization,
        global_scale: Option<&Array>,
        weights_global_scale: Option<&Array>,
        sorted: bool,
    ) -> Result<Array> {
        const NAME: &str = "gather_qqmm";
        how.check(NAME, Some(weights), scales, None)?;
        let (lhs, rhs) = (bounded_batch(NAME, lhs, self)?, bounded_batch(NAME, rhs, weights)?);
        let (x, w, scales) = (self.raw(), weights.raw(), Array::raw_or_null(scales));
        let (lhs, rhs) = (Array::raw_or_null(lhs.as_ref()), Array::raw_or_null(rhs.as_ref()));
        let (gx, gw) = (Array::raw_or_null(global_scale), Array::raw_or_null(weights_global_scale));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op!(NAME, mlx_gather_qqmm(x, w, scales, lhs, rhs, group, bits, name, gx, gw, sorted))
    }
}
