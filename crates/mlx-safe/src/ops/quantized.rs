//! Matrices of few bits a weight.

use std::ffi::CStr;

use super::{op, op_vec};
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
        let (x, w, scales, biases) = (self.raw(), weights.raw(), scales.raw(), Array::raw_or_null(biases));
        let (lhs, rhs) = (Array::raw_or_null(lhs), Array::raw_or_null(rhs));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op!(
            "gather_qmm",
            mlx_gather_qmm(x, w, scales, biases, lhs, rhs, transpose, group, bits, name, sorted)
        )
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
        let (x, w, scales) = (self.raw(), weights.raw(), Array::raw_or_null(scales));
        let (lhs, rhs) = (Array::raw_or_null(lhs), Array::raw_or_null(rhs));
        let (gx, gw) = (Array::raw_or_null(global_scale), Array::raw_or_null(weights_global_scale));
        let (group, bits, name) = (how.group_size(), how.bits(), how.name().as_ptr());
        op!("gather_qqmm", mlx_gather_qqmm(x, w, scales, lhs, rhs, group, bits, name, gx, gw, sorted))
    }
}
