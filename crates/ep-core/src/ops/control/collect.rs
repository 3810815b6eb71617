//! What iterations hand out, one item after another, becoming one array.

use mlx_safe::{Array, concatenate, stack, zeros};

use crate::lowering::Value;
use crate::run::Run;
use crate::{LowerError, axes};

/// The arrays among `values`: what there is to evaluate.
pub(super) fn evaluated(values: &[Value]) -> Vec<Array> {
    values.iter().filter_map(|value| value.on_device().cloned()).collect()
}

/// Items of one shape whose number is not known beforehand.
#[derive(Clone, Default)]
pub(super) struct Rows {
    shape: Option<Vec<i32>>,
    /// Items since the last [`Rows::gather`].
    items: Vec<Value>,
    gathered: Vec<Array>,
}

impl Rows {
    pub(super) fn push(&mut self, item: Value) -> Result<(), LowerError> {
        let shape = item.shape()?;
        let first = self.shape.get_or_insert_with(|| shape.clone());
        if *first != shape {
            return Err(LowerError::invalid(format!(
                "a scan output has shape {first:?} in one iteration and {shape:?} in another"
            )));
        }
        self.items.push(item);
        Ok(())
    }

    /// Makes the items so far one array, and gives it if there are any.
    pub(super) fn gather(&mut self) -> Result<Option<Array>, LowerError> {
        if self.items.is_empty() {
            return Ok(None);
        }
        let rows = stacked(&self.items)?;
        self.items.clear();
        self.gathered.push(rows.clone());
        Ok(Some(rows))
    }

    /// All items along a new first axis; `None` if there is none.
    pub(super) fn finish(mut self) -> Result<Option<Array>, LowerError> {
        self.gather()?;
        Ok(match self.gathered.as_slice() {
            [] => None,
            [rows] => Some(rows.clone()),
            many => Some(concatenate(many, 0)?),
        })
    }
}

/// The values along a new first axis.
pub(super) fn stacked(values: &[Value]) -> Result<Array, LowerError> {
    let arrays = values.iter().map(|value| value.array().cloned()).collect::<Result<Vec<_>, _>>()?;
    Ok(match arrays.as_slice() {
        [only] => only.expand_dims(&[0])?,
        many => stack(many, 0)?,
    })
}

/// A known number of items, written to their places in the final layout as they come.
pub(super) struct Assembly {
    /// The axis of items in the result; a negative one counts from the end.
    pub(super) axis: i64,
    /// Whether the first item comes last.
    pub(super) reverse: bool,
    pub(super) total: i32,
    written: i32,
    array: Option<Array>,
}

impl Assembly {
    pub(super) fn new(axis: i64, reverse: bool, total: i32) -> Self {
        Self { axis, reverse, total, written: 0, array: None }
    }

    /// Takes the next items, which lie along the first axis of `rows`.
    pub(super) fn push(&mut self, rows: Array, run: &Run) -> Result<(), LowerError> {
        let axis = axes::axis(self.axis, rows.ndim())?;
        let count = rows.dim(0)?;
        let rows = if self.reverse && count > 1 { rows.flip(&[0])? } else { rows };
        let rows = rows.moveaxis(0, axis as i32)?;
        let mut shape = rows.shape().to_vec();
        shape[axis] = self.total;
        let first = if self.reverse { self.total - self.written - count } else { self.written };
        self.written += count;
        if count == self.total {
            self.array = Some(rows);
            return Ok(());
        }
        let whole = match self.array.take() {
            Some(whole) if whole.shape() == shape => whole,
            Some(whole) => {
                return Err(LowerError::invalid(format!(
                    "a scan output has items for {whole} first, and for {shape:?} later"
                )));
            }
            None => {
                run.afford(&shape, rows.dtype())?;
                zeros(&shape, rows.dtype())?
            }
        };
        let mut start = vec![0; shape.len()];
        start[axis] = first;
        shape[axis] = first + count;
        // Nobody else holds `whole` when this is evaluated, so MLX writes in place.
        self.array = Some(whole.slice_update(&rows, &start, &shape, &vec![1; shape.len()])?);
        Ok(())
    }

    /// What is there so far.
    pub(super) fn array(&self) -> Option<&Array> {
        self.array.as_ref()
    }

    /// The result; `None` if there were no items.
    pub(super) fn finish(self) -> Option<Array> {
        self.array
    }
}
