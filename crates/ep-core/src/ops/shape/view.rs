//! Operators that give the same elements in the same order another shape.

use ndarray::{ArrayD, IxDyn};

use crate::host::{HostTensor, given_ints, rearrange, shape_i32};
use crate::lowering::Lowering;
use crate::op::{Op, OpKey, ShapeMode};
use crate::{Decline, LowerError, NodeRef, axes};

/// Reshape, Flatten, Squeeze and Unsqueeze.
pub(crate) struct View {
    rule: Rule,
    /// Axes from before opset 13.
    attribute: Option<Vec<i64>>,
}

enum Rule {
    /// A 0 in the target copies the input's size unless `zero_is_zero`.
    Reshape {
        zero_is_zero: bool,
    },
    Flatten {
        axis: i64,
    },
    Squeeze,
    Unsqueeze,
}

impl View {
    /// The new shape of a tensor of shape `from`; `argument` is the target or the axes.
    fn target(&self, from: &[i64], argument: Option<Vec<i64>>) -> Result<Vec<i64>, LowerError> {
        let argument = self.attribute.clone().or(argument);
        match self.rule {
            Rule::Reshape { zero_is_zero } => reshape(from, &argument.unwrap_or_default(), zero_is_zero),
            Rule::Flatten { axis } => flatten(from, axis),
            Rule::Squeeze => squeeze(from, &argument.unwrap_or_default()),
            Rule::Unsqueeze => unsqueeze(from, &argument.unwrap_or_default()),
        }
    }
}

fn reshape(from: &[i64], target: &[i64], zero_is_zero: bool) -> Result<Vec<i64>, LowerError> {
    let misfit = || LowerError::invalid(format!("shape {from:?} cannot become {target:?}"));
    let mut to = target.to_vec();
    for (i, size) in to.iter_mut().enumerate() {
        if *size == 0 && !zero_is_zero {
            *size = *from.get(i).ok_or_else(misfit)?;
        }
    }
    let count: i64 = from.iter().product();
    let rest = to.iter().filter(|&&n| n != -1).try_fold(1i64, |n, &d| n.checked_mul(d)).ok_or_else(misfit)?;
    let known = |dims: &[i64]| -> i64 { dims.iter().filter(|&&n| n > 0).product() };
    match to.iter().filter(|&&n| n < 0).count() {
        0 => {}
        // As on ONNX Runtime, zeros that stand for themselves are left out on both sides.
        1 if zero_is_zero && rest == 0 && count == 0 && known(from) % known(&to) == 0 => {
            let size = known(from) / known(&to);
            to.iter_mut().filter(|n| **n == -1).for_each(|n| *n = size);
        }
        1 if rest > 0 && count % rest == 0 => {
            to.iter_mut().filter(|n| **n == -1).for_each(|n| *n = count / rest);
        }
        _ => return Err(misfit()),
    }
    if to.iter().product::<i64>() == count { Ok(to) } else { Err(misfit()) }
}

fn flatten(from: &[i64], axis: i64) -> Result<Vec<i64>, LowerError> {
    let rank = from.len();
    let axis = if axis == rank as i64 { rank } else { axes::axis(axis, rank)? };
    Ok(vec![from[..axis].iter().product(), from[axis..].iter().product()])
}

/// Without axes, every size of 1 goes.
fn squeeze(from: &[i64], list: &[i64]) -> Result<Vec<i64>, LowerError> {
    let gone: Vec<usize> = if list.is_empty() {
        (0..from.len()).filter(|&i| from[i] == 1).collect()
    } else {
        list.iter().map(|&a| axes::axis(a, from.len())).collect::<Result<_, _>>()?
    };
    if let Some(&axis) = gone.iter().find(|&&i| from[i] != 1) {
        return Err(LowerError::invalid(format!(
            "axis {axis} of shape {from:?} has not size 1 and cannot go"
        )));
    }
    Ok(from.iter().enumerate().filter(|(i, _)| !gone.contains(i)).map(|(_, &n)| n).collect())
}

fn unsqueeze(from: &[i64], list: &[i64]) -> Result<Vec<i64>, LowerError> {
    let rank = from.len() + list.len();
    let new = axes::axes(list, rank)?;
    let mut old = from.iter().copied();
    Ok((0..rank).map(|i| if new.contains(&i) { 1 } else { old.next().unwrap_or(1) }).collect())
}

impl Op for View {
    const KEYS: &'static [OpKey] =
        &[OpKey::onnx("Flatten"), OpKey::onnx("Reshape"), OpKey::onnx("Squeeze"), OpKey::onnx("Unsqueeze")];

    fn claim(node: &NodeRef<'_>) -> Result<Self, Decline> {
        let rule = match node.op_type() {
            "Reshape" => Rule::Reshape { zero_is_zero: node.flag_or("allowzero", false)? },
            "Flatten" => Rule::Flatten { axis: node.int_or("axis", 1)? },
            "Squeeze" => Rule::Squeeze,
            _ => Rule::Unsqueeze,
        };
        let attribute = match rule {
            Rule::Squeeze | Rule::Unsqueeze if node.version() < 13 => node.ints("axes")?,
            Rule::Reshape { .. } if node.version() < 5 => node.ints("shape")?,
            _ => None,
        };
        if matches!(rule, Rule::Reshape { .. } | Rule::Unsqueeze) && attribute.is_none() && !node.has_input(1)
        {
            return Err(Decline::invalid("the new shape, or the axes, are missing"));
        }
        Ok(Self { rule, attribute })
    }

    fn shape_mode(&self) -> ShapeMode {
        ShapeMode::Keyed("the new shape is worked out on the host")
    }

    fn lower(&self, cx: &mut Lowering<'_>) -> Result<(), LowerError> {
        let from: Vec<i64> = cx.shape(0)?.into_iter().map(i64::from).collect();
        let to = self.target(&from, cx.optional_ints(1)?)?;
        cx.emit(0, cx.array(0)?.reshape(&shape_i32(&to)?)?)
    }

    fn fold(&self, inputs: &[Option<&HostTensor>]) -> Result<Option<Vec<HostTensor>>, LowerError> {
        let Some(Some(x)) = inputs.first() else { return Ok(None) };
        let from: Vec<i64> = x.dims().iter().map(|&d| d as i64).collect();
        let to: Vec<usize> =
            self.target(&from, given_ints(inputs, 1))?.into_iter().map(|d| d as usize).collect();
        let y = rearrange!(x, |v| ArrayD::from_shape_vec(IxDyn(&to), v.iter().copied().collect()).ok());
        Ok(y.map(|y| vec![y]))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    op_cases! {
        reshape: case("Reshape", 13).x(f32s([2, 3, 4])).c(i64s(&[4, 6])) => exact();
        reshape_runtime_target: case("Reshape", 5).x(f32s([2, 3, 4])).x(i64s(&[-1, 2])) => exact();
        reshape_zero_copies: case("Reshape", 14).x(f32s([2, 3, 4])).c(i64s(&[0, -1])) => exact();
        reshape_allowzero: case("Reshape", 14).x(f32s([0, 3])).c(i64s(&[3, 0])).attr("allowzero", 1) => exact();
        reshape_empty: case("Reshape", 14).x(f32s([0, 3])).c(i64s(&[3, 0, 7])) .attr("allowzero", 1)=> exact();
        reshape_empty_copied: case("Reshape", 14).x(f32s([0, 3])).c(i64s(&[0, 1, 3])) => exact();
        reshape_empty_inferred: case("Reshape", 14).x(f32s([0, 4])).c(i64s(&[-1, 2])) => exact();
        reshape_zero_and_inferred: case("Reshape", 14).x(f32s([0, 4])).x(i64s(&[0, -1])) => fails("cannot become");
        reshape_allowzero_inferred: case("Reshape", 14).x(f32s([5, 0, 2])).x(i64s(&[-1, 0, 5])).attr("allowzero", 1) => exact();
        reshape_allowzero_inferred_last: case("Reshape", 14).x(f32s([0, 4])).x(i64s(&[2, 0, -1])).attr("allowzero", 1) => exact();
        reshape_allowzero_inferred_one: case("Reshape", 14).x(f32s([0, 0])).x(i64s(&[-1, 0])).attr("allowzero", 1) => exact();
        reshape_allowzero_no_fit: case("Reshape", 14).x(f32s([5, 0, 3])).x(i64s(&[-1, 0, 2])).attr("allowzero", 1) => fails("cannot become");
        reshape_allowzero_not_empty: case("Reshape", 14).x(f32s([2, 3])).x(i64s(&[-1, 0])).attr("allowzero", 1) => fails("cannot become");
        reshape_to_scalar: case("Reshape", 14).x(f32s([1, 1])).c(i64s(&[])) => exact();
        reshape_scalar: case("Reshape", 14).x(f32s([])).c(i64s(&[-1])) => exact();
        reshape_bool: case("Reshape", 21).x(random(E::Bool, [2, 2])).c(i64s(&[4])) => exact();
        reshape_f16: case("Reshape", 13).x(random(E::Float16, [2, 33])).c(i64s(&[66])) => exact();
        reshape_bf16: case("Reshape", 19).x(random(E::Bfloat16, [2, 33])).c(i64s(&[11, -1])) => exact();
        reshape_host: case("Reshape", 13).x(i64s(&[5, 6])).x(i64s(&[2, 1])) => exact();
        reshape_uint64: case("Reshape", 13).x(random(E::Uint64, [2, 2])).c(i64s(&[4])) => exact();
        reshape_wrong_size: case("Reshape", 13).x(f32s([2, 3])).x(i64s(&[4])) => fails("cannot become");
        reshape_two_unknown: case("Reshape", 13).x(f32s([2, 3])).x(i64s(&[-1, -1])) => fails("cannot become");
        reshape_zero_beyond: case("Reshape", 13).x(f32s([6])).x(i64s(&[6, 0])) => fails("cannot become");
        flatten_default: case("Flatten", 13).x(f32s([2, 3, 4])) => exact();
        flatten_negative: case("Flatten", 11).x(f32s([2, 3, 4])).attr("axis", -1) => exact();
        flatten_all: case("Flatten", 9).x(f32s([2, 3])).attr("axis", 2) => exact();
        flatten_none: case("Flatten", 9).x(f32s([2, 3])).attr("axis", 0) => exact();
        flatten_scalar: case("Flatten", 13).x(f32s([])).attr("axis", 0) => exact();
        flatten_empty: case("Flatten", 13).x(f32s([2, 0, 3])) => exact();
        squeeze_attribute: case("Squeeze", 11).x(f32s([1, 3, 1, 5])).attr("axes", vec![0, -2]) => exact();
        squeeze_all: case("Squeeze", 13).x(f32s([1, 3, 1, 5])) => exact();
        squeeze_input: case("Squeeze", 13).x(f32s([1, 3, 1, 5])).x(i64s(&[-2])) => exact();
        squeeze_host: case("Squeeze", 13).x(i64s(&[7])).c(i64s(&[0])) => exact();
        squeeze_empty: case("Squeeze", 13).x(f32s([1, 0])).c(i64s(&[0])) => exact();
        squeeze_not_one: case("Squeeze", 13).x(f32s([2, 3])).x(i64s(&[0])) => fails("has not size 1");
        unsqueeze_attribute: case("Unsqueeze", 11).x(f32s([3, 4])).attr("axes", vec![0, 3]) => exact();
        unsqueeze_input: case("Unsqueeze", 13).x(f32s([3, 4])).c(i64s(&[-1, 1])) => exact();
        unsqueeze_scalar: case("Unsqueeze", 13).x(f32s([])).x(i64s(&[0])) => exact();
        unsqueeze_host: case("Unsqueeze", 13).x(tensor(E::Int64, [], &[5.0])).c(i64s(&[0])) => exact();
        unsqueeze_twice: case("Unsqueeze", 13).x(f32s([3])).x(i64s(&[0, 0])) => fails("twice");
    }
}
