//! Small tensors that live on the host: shapes, axes, slice bounds and what is computed from them.

use half::{bf16, f16};
use mlx_safe::Array;
use ndarray::{ArrayD, IxDyn};
use onnx_graph::ElementType;

use crate::{LowerError, dtype};

/// Most elements that a tensor may have to be followed on the host.
pub(crate) const HOST_LIMIT: usize = 1024;

/// A tensor whose values are known on the host. Integers and booleans are held as `i64`, floats as `f64`; `element` says
/// what they stand for, and every constructor brings the values into its range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostTensor {
    element: ElementType,
    values: HostValues,
}

/// The values of a [`HostTensor`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HostValues {
    Ints(ArrayD<i64>),
    Floats(ArrayD<f64>),
}

impl HostTensor {
    /// An integer or boolean tensor; values wrap to `element` as C's conversions do, and booleans become 0 or 1.
    pub(crate) fn ints(element: ElementType, values: ArrayD<i64>) -> Self {
        use ElementType as E;
        let values = match element {
            E::Bool => values.mapv(|v| i64::from(v != 0)),
            E::Int8 => values.mapv(|v| i64::from(v as i8)),
            E::Int16 => values.mapv(|v| i64::from(v as i16)),
            E::Int32 => values.mapv(|v| i64::from(v as i32)),
            E::Uint8 => values.mapv(|v| i64::from(v as u8)),
            E::Uint16 => values.mapv(|v| i64::from(v as u16)),
            E::Uint32 => values.mapv(|v| i64::from(v as u32)),
            _ => values,
        };
        Self { element, values: HostValues::Ints(values) }
    }

    /// A floating-point tensor; values are rounded to `element`.
    pub(crate) fn floats(element: ElementType, values: ArrayD<f64>) -> Self {
        use ElementType as E;
        let values = match element {
            E::Float => values.mapv(|v| f64::from(v as f32)),
            E::Float16 => values.mapv(|v| f64::from(f16::from_f64(v))),
            E::Bfloat16 => values.mapv(|v| f64::from(bf16::from_f64(v))),
            _ => values,
        };
        Self { element, values: HostValues::Floats(values) }
    }

    /// An int64 tensor of rank 1: the form of shapes.
    pub(crate) fn shape_of(values: impl IntoIterator<Item = i64>) -> Self {
        let values: Vec<i64> = values.into_iter().collect();
        Self::ints(ElementType::Int64, ndarray::Array1::from_vec(values).into_dyn())
    }

    /// An int64 scalar.
    pub(crate) fn scalar(value: i64) -> Self {
        Self::ints(ElementType::Int64, ndarray::arr0(value).into_dyn())
    }

    /// Reads bytes of `element`; `None` for types and sizes that are not followed on the host.
    pub(crate) fn from_bytes(element: ElementType, dims: &[usize], data: &[u8]) -> Option<Self> {
        let count: usize = dims.iter().product();
        if count > HOST_LIMIT || element == ElementType::Uint64 {
            return None;
        }
        let tensor = onnx_graph::Tensor::new(element, dims, data).ok()?;
        if let Some(ints) = tensor.ints() {
            return Some(Self::ints(element, ArrayD::from_shape_vec(IxDyn(dims), ints).ok()?));
        }
        Some(Self::floats(element, ArrayD::from_shape_vec(IxDyn(dims), tensor.floats()?).ok()?))
    }

    pub(crate) fn element(&self) -> ElementType {
        self.element
    }

    pub(crate) fn values(&self) -> &HostValues {
        &self.values
    }

    pub(crate) fn dims(&self) -> &[usize] {
        match &self.values {
            HostValues::Ints(v) => v.shape(),
            HostValues::Floats(v) => v.shape(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.dims().iter().product()
    }

    /// The integers, if the type is one.
    pub(crate) fn as_ints(&self) -> Option<&ArrayD<i64>> {
        match &self.values {
            HostValues::Ints(v) => Some(v),
            HostValues::Floats(_) => None,
        }
    }

    /// The floats, if the type is one.
    pub(crate) fn as_floats(&self) -> Option<&ArrayD<f64>> {
        match &self.values {
            HostValues::Floats(v) => Some(v),
            HostValues::Ints(_) => None,
        }
    }

    /// All integers in order, if the type is one.
    pub(crate) fn to_ints(&self) -> Option<Vec<i64>> {
        Some(self.as_ints()?.iter().copied().collect())
    }

    /// All values in order as floats.
    pub(crate) fn to_floats(&self) -> Vec<f64> {
        match &self.values {
            HostValues::Ints(v) => v.iter().map(|&v| v as f64).collect(),
            HostValues::Floats(v) => v.iter().copied().collect(),
        }
    }

    /// Applies one rearrangement to whichever values there are.
    ///
    /// `ints` and `floats` are the same function at two types; see [`rearrange!`].
    pub(crate) fn map_values(
        &self,
        ints: impl FnOnce(&ArrayD<i64>) -> Option<ArrayD<i64>>,
        floats: impl FnOnce(&ArrayD<f64>) -> Option<ArrayD<f64>>,
    ) -> Option<Self> {
        let values = match &self.values {
            HostValues::Ints(v) => HostValues::Ints(ints(v)?),
            HostValues::Floats(v) => HostValues::Floats(floats(v)?),
        };
        Some(Self { element: self.element, values })
    }

    /// Copies the values to the current MLX device.
    pub(crate) fn upload(&self) -> Result<Array, LowerError> {
        use ElementType as E;
        let shape = shape_i32(self.dims())?;
        macro_rules! as_type {
            ($values:expr, $ty:ty) => {
                Array::from_slice(&$values.iter().map(|&v| v as $ty).collect::<Vec<_>>(), &shape)?
            };
        }
        Ok(match (&self.values, self.element) {
            (HostValues::Ints(v), E::Bool) => {
                Array::from_slice(&v.iter().map(|&v| v != 0).collect::<Vec<_>>(), &shape)?
            }
            (HostValues::Ints(v), E::Int8) => as_type!(v, i8),
            (HostValues::Ints(v), E::Int16) => as_type!(v, i16),
            (HostValues::Ints(v), E::Int32) => as_type!(v, i32),
            (HostValues::Ints(v), E::Int64) => as_type!(v, i64),
            (HostValues::Ints(v), E::Uint8) => as_type!(v, u8),
            (HostValues::Ints(v), E::Uint16) => as_type!(v, u16),
            (HostValues::Ints(v), E::Uint32) => as_type!(v, u32),
            (HostValues::Ints(v), E::Uint64) => as_type!(v, u64),
            (HostValues::Floats(v), E::Float) => as_type!(v, f32),
            (HostValues::Floats(v), E::Float16) => {
                Array::from_slice(&v.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>(), &shape)?
            }
            (HostValues::Floats(v), E::Bfloat16) => {
                Array::from_slice(&v.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>(), &shape)?
            }
            (_, element) => {
                return Err(LowerError::Bug(format!("a host tensor of {element} has no MLX type")));
            }
        })
    }

    /// Evaluates an array and copies it to the host.
    pub(crate) fn download(array: &Array) -> Result<Self, LowerError> {
        let element = dtype::to_onnx(array.dtype());
        let dims: Vec<usize> = array.shape().iter().map(|&d| d as usize).collect();
        let tensor = array
            .with_bytes(|bytes| onnx_graph::Tensor::new(element, dims.clone(), bytes.to_vec()))?
            .map_err(|e| LowerError::Bug(e.to_string()))?;
        let no_values = || LowerError::Bug(format!("{element} values cannot be read on the host"));
        let bad_shape = |e: ndarray::ShapeError| LowerError::Bug(e.to_string());
        let values = match tensor.ints() {
            Some(ints) => HostValues::Ints(ArrayD::from_shape_vec(IxDyn(&dims), ints).map_err(bad_shape)?),
            None => HostValues::Floats(
                ArrayD::from_shape_vec(IxDyn(&dims), tensor.floats().ok_or_else(no_values)?)
                    .map_err(bad_shape)?,
            ),
        };
        Ok(Self { element, values })
    }
}

/// Applies the same generic expression to a host tensor's integers or floats:
/// `rearrange!(tensor, |v| v.to_shape(dims).ok().map(|v| v.to_owned()))` gives `Option<HostTensor>`.
macro_rules! rearrange {
    ($tensor:expr, |$v:ident| $body:expr) => {
        $tensor.map_values(|$v| $body, |$v| $body)
    };
}
pub(crate) use rearrange;

/// The integers of input `i`, if it is given and holds integers.
pub(crate) fn given_ints(inputs: &[Option<&HostTensor>], i: usize) -> Option<Vec<i64>> {
    inputs.get(i).copied().flatten()?.to_ints()
}

/// Whether a tensor of this shape may be followed on the host. Sizes beside a 0 count: tables are as long as they are.
pub(crate) fn is_small(dims: &[usize]) -> bool {
    dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d.max(1))).is_some_and(|n| n <= HOST_LIMIT)
}

/// Sizes as MLX writes them.
pub(crate) fn shape_i32<T: Copy + TryInto<i32> + std::fmt::Debug>(
    dims: &[T],
) -> Result<Vec<i32>, LowerError> {
    let beyond =
        || LowerError::invalid(format!("shape {dims:?} is beyond MLX, whose sizes end at {}", i32::MAX));
    dims.iter().map(|&d| d.try_into().map_err(|_| beyond())).collect()
}
