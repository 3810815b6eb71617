//! The values of one slot over the steps of a chunk.

use std::cell::OnceCell;
use std::rc::Rc;

use mlx_safe::Array;
use ndarray::Axis;

use super::collect::stacked;
use crate::LowerError;
use crate::host::rearrange;
use crate::lowering::Value;

/// What a slot holds in each step of a chunk.
#[derive(Clone)]
pub(super) enum Track {
    /// The same in every step.
    Same(Value),
    /// Row `k` of an array in step `k`.
    Rows(Rc<Rows>),
    /// One by one.
    Steps(Rc<[Value]>),
}

pub(super) struct Rows {
    array: Array,
    /// The rows as values, made when one is asked for.
    split: OnceCell<Vec<Value>>,
}

impl Track {
    /// The rows of `array`.
    pub(super) fn rows(array: Array) -> Self {
        Self::Rows(Rc::new(Rows { array, split: OnceCell::new() }))
    }

    /// `count` rows of a sequence from row `first`, the last one first if `reverse`.
    pub(super) fn of_sequence(
        sequence: &Value,
        first: usize,
        count: usize,
        reverse: bool,
    ) -> Result<Self, LowerError> {
        if let Some(host) = sequence.known() {
            let row = |k| {
                let k = if reverse { first + count - 1 - k } else { first + k };
                rearrange!(host, |v| Some(v.index_axis(Axis(0), k).to_owned())).map(Value::host)
            };
            let rows: Option<Rc<[Value]>> = (0..count).map(row).collect();
            return rows.map(Self::Steps).ok_or_else(|| LowerError::Bug("a row of a host tensor".into()));
        }
        let rows = sequence.array()?.slice_axis(0, first as i32..(first + count) as i32)?;
        Ok(Self::rows(if reverse && count > 1 { rows.flip(&[0])? } else { rows }))
    }

    /// The value in step `k`.
    pub(super) fn at(&self, k: usize) -> Result<Value, LowerError> {
        match self {
            Self::Same(value) => Ok(value.clone()),
            Self::Steps(values) => Ok(values[k].clone()),
            Self::Rows(rows) => {
                if let Some(split) = rows.split.get() {
                    return Ok(split[k].clone());
                }
                let split = rows.array.unstack(0)?.into_iter().map(Value::device).collect();
                Ok(rows.split.get_or_init(|| split)[k].clone())
            }
        }
    }

    /// The values as rows of one array; `None` if they are the same in every step.
    pub(super) fn array(&self) -> Result<Option<Array>, LowerError> {
        match self {
            Self::Same(_) => Ok(None),
            Self::Rows(rows) => Ok(Some(rows.array.clone())),
            Self::Steps(values) => stacked(values).map(Some),
        }
    }

    /// The values of `count` steps as rows of one array.
    pub(super) fn repeated(&self, count: usize) -> Result<Array, LowerError> {
        if let Some(array) = self.array()? {
            return Ok(array);
        }
        let one = self.at(0)?.array()?.clone();
        let shape: Vec<i32> = std::iter::once(count as i32).chain(one.shape().iter().copied()).collect();
        Ok(one.broadcast_to(&shape)?)
    }
}
