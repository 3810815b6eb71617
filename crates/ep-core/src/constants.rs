//! Constants of programs, one array for equal ones: of a graph and its bodies, and of all sessions of a device.
//!
//! The caller reads or maps a file anew for each session, and a file may change, so contents are compared. That costs no more
//! than the copy it saves, where the host can read MLX's memory.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use mlx_safe::Array;
use onnx_graph::{ElementType, Tensor};

use crate::host::{HostTensor, shape_i32};
use crate::lowering::{Value, WeakValue};
use crate::{Error, dtype};

/// Smaller constants are not worth looking for.
const WORTH_SHARING: usize = 64 << 10;

/// Bytes at the start, the middle and the end that tell most contents apart.
const SAMPLE: usize = 256;

/// What equal constants agree in: type, sizes, and a hash of samples.
type Likeness = (ElementType, Vec<usize>, u64);

thread_local! {
    /// What programs of this thread hold.
    static HELD: RefCell<HashMap<Likeness, Vec<WeakValue>>> = RefCell::default();
}

/// The constant `name` on the device: an equal one that a program holds already, or uploaded.
///
/// # Errors
/// If it has no form in MLX, or MLX cannot hold it.
pub(crate) fn value(name: &str, tensor: &Tensor<'_>) -> Result<Value, Error> {
    if tensor.data().len() < WORTH_SHARING || mlx_safe::cuda::is_available()? {
        return upload(name, tensor);
    }
    let likeness = likeness(tensor);
    let candidates: Vec<Value> = HELD.with_borrow_mut(|held| {
        let all = held.entry(likeness.clone()).or_default();
        all.retain(WeakValue::is_held);
        all.iter().filter_map(WeakValue::upgrade).collect()
    });
    for value in candidates {
        let Some(array) = value.on_device() else { continue };
        if array.with_bytes(|bytes| bytes == tensor.data())? {
            return Ok(value);
        }
    }
    let value = upload(name, tensor)?;
    HELD.with_borrow_mut(|held| {
        held.retain(|_, all| all.iter().any(WeakValue::is_held));
        held.entry(likeness).or_default().push(value.weak());
    });
    Ok(value)
}

fn likeness(tensor: &Tensor<'_>) -> Likeness {
    let data = tensor.data();
    let mut hasher = DefaultHasher::new();
    for start in [0, data.len() / 2, data.len().saturating_sub(SAMPLE)] {
        data[start..data.len().min(start + SAMPLE)].hash(&mut hasher);
    }
    (tensor.element(), tensor.dims().to_vec(), hasher.finish())
}

fn upload(name: &str, tensor: &Tensor<'_>) -> Result<Value, Error> {
    let (element, data) = (tensor.element(), tensor.data());
    let fail = |detail: String| Error::Bug(format!("constant '{name}': {detail}"));
    let dtype = dtype::to_mlx(element).ok_or_else(|| fail(format!("{element} has no MLX type")))?;
    let shape = shape_i32(tensor.dims()).map_err(|e| fail(e.to_string()))?;
    let array = Array::from_bytes(dtype, &shape, data)?;
    Ok(match HostTensor::from_bytes(element, tensor.dims(), data) {
        Some(host) => Value::both(array, host),
        None => Value::device(array),
    })
}
