//! Sizes that nobody declares because a model computes them: what a `Reshape` or `Expand` makes of sizes that are declared,
//! and what follows from that further down. Only gaps are filled.

use onnx_graph::pattern::{Maker, Scopes, from_front};
use onnx_graph::{Dim, Graph, NodeId, Shape, TensorType, ValueId, ValueType, topological_order};

use crate::Error;
use crate::rewrite::size::{Size, sizes};
use crate::rewrite::stack::ELEMENTWISE;

/// Declares what follows from declared sizes.
///
/// # Errors
/// If `graph` has a cycle.
pub(crate) fn declare(graph: &mut Graph<'_>) -> Result<(), Error> {
    for id in topological_order(graph)? {
        let Some((value, ty)) = filled(graph, id) else { continue };
        graph.set_type(value, ValueType::Tensor(ty));
    }
    Ok(())
}

/// The first output of a node, and its type if more of it is known than declared.
fn filled(graph: &Graph<'_>, id: NodeId) -> Option<(ValueId, TensorType)> {
    let node = graph.node(id);
    let value = node.outputs().first().copied().flatten()?;
    let TensorType { element, shape } = graph.value(value).tensor_type()?.clone();
    if shape.as_ref().is_some_and(|shape| !shape.0.contains(&Dim::Unknown)) {
        return None;
    }
    let scopes = Scopes::new(graph);
    let found = follows(&scopes, &Maker { depth: 0, id, node, output: 0 })?;
    let dims = match shape {
        Some(Shape(declared)) if declared.len() == found.len() => {
            let pairs = declared.into_iter().zip(found);
            pairs.map(|(declared, found)| if declared == Dim::Unknown { found } else { declared }).collect()
        }
        Some(_) => return None,
        None => found,
    };
    Some((value, TensorType { element, shape: Some(Shape(dims)) }))
}

/// The sizes of a node's first output.
fn follows(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>) -> Option<Vec<Dim>> {
    let op = maker.node.op_type.as_str();
    if !maker.is(op) {
        return None;
    }
    let dims = |i: usize| Some(scopes.shape(maker.input(i)?)?.0);
    match op {
        "Reshape" => {
            reshaped(&dims(0)?, &sizes(scopes, maker.input(1)?)?, maker.int_or("allowzero", 0)? != 0)
        }
        "Expand" => {
            let to: Vec<Dim> = sizes(scopes, maker.input(1)?)?.iter().map(Size::dim).collect();
            Some(broadcast(&dims(0)?, &to))
        }
        "ConstantOfShape" => Some(sizes(scopes, maker.input(0)?)?.iter().map(Size::dim).collect()),
        "Range" if scopes.ints(maker.input(0)?)? == [0] && scopes.ints(maker.input(2)?)? == [1] => {
            Some(vec![sizes(scopes, maker.input(1)?)?.first()?.dim()])
        }
        "CumSum" | "IsNaN" | "Softmax" | "Trilu" => dims(0),
        "Transpose" => {
            let from = dims(0)?;
            let perm =
                maker.ints("perm").map_or_else(|| (0..from.len() as i64).rev().collect(), <[i64]>::to_vec);
            perm.iter().map(|&axis| from.get(usize::try_from(axis).ok()?).cloned()).collect()
        }
        "MatMul" => {
            let (mut a, mut b) = (dims(0)?, dims(1)?);
            let (columns, _) = (b.pop()?, b.pop()?);
            let (_, rows) = (a.pop()?, a.pop()?);
            Some([broadcast(&a, &b), vec![rows, columns]].concat())
        }
        "Unsqueeze" => {
            let from = dims(0)?;
            let rank = from.len() + scopes.named_axes(maker)?.len();
            let added = scopes.axes(maker, rank)?;
            let mut kept = from.into_iter();
            (0..rank)
                .map(|axis| if added.contains(&axis) { Some(Dim::Known(1)) } else { kept.next() })
                .collect()
        }
        "Squeeze" => {
            let from = dims(0)?;
            let dropped = scopes.axes(maker, from.len())?;
            let kept = from.into_iter().enumerate().filter(|(axis, _)| !dropped.contains(axis));
            Some(kept.map(|(_, dim)| dim).collect())
        }
        "ReduceMax" | "ReduceMean" | "ReduceSum" if maker.int_or("keepdims", 1)? == 1 => {
            let mut kept = dims(0)?;
            let axes = scopes.axes(maker, kept.len())?;
            axes.into_iter().for_each(|axis| kept[axis] = Dim::Known(1));
            Some(kept)
        }
        "Slice" if maker.node.version >= 10 => sliced(scopes, maker, dims(0)?),
        "Concat" => joined(maker, (0..maker.node.inputs().len()).map(dims).collect::<Option<_>>()?),
        op if ELEMENTWISE.contains(&op) => {
            let all = (0..maker.node.inputs().len()).map(dims).collect::<Option<Vec<_>>>()?;
            all.into_iter().reduce(|a, b| broadcast(&a, &b))
        }
        _ => None,
    }
}

/// The sizes that two shapes broadcast to.
fn broadcast(a: &[Dim], b: &[Dim]) -> Vec<Dim> {
    let rank = a.len().max(b.len());
    let at = |dims: &[Dim], axis: usize| {
        (axis + dims.len()).checked_sub(rank).map_or(Dim::Known(1), |i| dims[i].clone())
    };
    let both = |axis: usize| match (at(a, axis), at(b, axis)) {
        (Dim::Known(1), other) | (other, Dim::Known(1)) => other,
        (Dim::Known(n), _) | (_, Dim::Known(n)) => Dim::Known(n),
        (a, b) if a == b => a,
        _ => Dim::Unknown,
    };
    (0..rank).map(both).collect()
}

/// What a `Reshape` of `from` to `to` makes.
fn reshaped(from: &[Dim], to: &[Size], zeros: bool) -> Option<Vec<Dim>> {
    let copied = |(axis, size): (usize, &Size)| match size.number() {
        Some(0) if !zeros => from.get(axis).map(Size::of),
        Some(-1) => Some(Size::one()),
        _ => Some(size.clone()),
    };
    let mut made = to.iter().enumerate().map(copied).collect::<Option<Vec<_>>>()?;
    if let Some(rest) = to.iter().position(|size| size.number() == Some(-1)) {
        let all = from.iter().map(Size::of).reduce(|a, b| a.times(&b)).unwrap_or(Size::one());
        let others = made.iter().cloned().reduce(|a, b| a.times(&b)).unwrap_or(Size::one());
        made[rest] = all.over(&others);
    }
    Some(made.iter().map(Size::dim).collect())
}

/// What a `Slice` leaves: axes that it does not name are as they were.
fn sliced(scopes: &Scopes<'_, '_>, maker: &Maker<'_, '_>, mut dims: Vec<Dim>) -> Option<Vec<Dim>> {
    let list =
        |i: usize| sizes(scopes, maker.input(i)?)?.iter().map(Size::number).collect::<Option<Vec<_>>>();
    let axes = scopes.ints(maker.input(3)?)?;
    let (starts, ends) = (list(1), list(2));
    let steps = if maker.input(4).is_some() { list(4) } else { Some(vec![1; axes.len()]) };
    for (i, &axis) in axes.iter().enumerate() {
        let axis = from_front(axis, dims.len())?;
        let length = || {
            let n = i64::try_from(dims[axis].known()?).ok()?;
            let bound = |at: i64| if at < 0 { (at + n).max(0) } else { at.min(n) };
            let (start, end) = (bound(*starts.as_ref()?.get(i)?), bound(*ends.as_ref()?.get(i)?));
            let step = *steps.as_ref()?.get(i)?;
            let count = (step > 0).then(|| (end - start + step - 1).max(0) / step)?;
            usize::try_from(count).ok()
        };
        dims[axis] = length().map_or(Dim::Unknown, Dim::Known);
    }
    Some(dims)
}

fn joined(maker: &Maker<'_, '_>, parts: Vec<Vec<Dim>>) -> Option<Vec<Dim>> {
    let axis = from_front(maker.int_or("axis", 0)?, parts.first()?.len())?;
    let sum: Option<usize> = parts.iter().map(|dims| dims.get(axis)?.known()).sum();
    let mut dims = parts.into_iter().reduce(|a, b| broadcast(&a, &b))?;
    dims[axis] = sum.map_or(Dim::Unknown, Dim::Known);
    Some(dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{E, text};

    /// What is known of the sizes of y, which is made from x (N0, N1, 32).
    fn known(nodes: &str) -> String {
        let mut graph = text::graph(18, &[("x", E::Float, &[0, 0, 32])], &[], nodes, &["y"]);
        declare(&mut graph).unwrap();
        let value = graph.value(graph.find_value("y").unwrap());
        let Some(shape) = &value.tensor_type().unwrap().shape else { return String::new() };
        let names = shape.0.iter().map(|dim| match dim {
            Dim::Known(n) => n.to_string(),
            Dim::Symbol(name) => name.clone(),
            Dim::Unknown => "?".to_owned(),
        });
        names.collect::<Vec<_>>().join(" ")
    }

    const SIZES: &str = "s = Shape(x); b = Gather(s, [0]); l = Slice(s, [1], [2]); h = Mul(b, [4]);";

    #[test]
    fn sizes_that_are_computed() {
        let heads = format!("{SIZES} t = Concat<axis=0>(b, l, [4, 8]); a = Reshape(x, t);");
        assert_eq!(known(&format!("{heads} y = Transpose<perm=[0, 2, 1, 3]>(a)")), "N0 4 N1 8");
        let flat = format!(
            "{heads} r = Transpose<perm=[0, 2, 1, 3]>(a); f = Concat<axis=0>(h, l, [8]); y = Reshape(r, f)"
        );
        assert_eq!(known(&flat), "4*N0 N1 8");
        let scores = format!(
            "{heads} k = Transpose<perm=[0, 2, 3, 1]>(a); q = Transpose<perm=[0, 2, 1, 3]>(a); m = MatMul(q, k); y = Softmax(m)"
        );
        assert_eq!(known(&scores), "N0 4 N1 N1");
        let half =
            format!("{heads} w = Shape(a); n = Gather(w, [-1]); e = Div(n, [2]); y = Slice(a, [0], e, [3])");
        assert_eq!(known(&half), "N0 N1 4 4");
    }

    #[test]
    fn what_a_reshape_leaves_open() {
        assert_eq!(known("y = Reshape(x, [0, 0, 4, -1])"), "N0 N1 4 8");
        assert_eq!(known("y = Reshape(x, [-1, 32])"), "N0*N1 32");
        assert_eq!(known("y = Reshape(x, [5, -1])"), "5 ?");
        // The size of what is not declared.
        assert_eq!(known("n = NonZero(x); s = Shape(n); y = Reshape(x, s)"), "");
    }

    #[test]
    fn only_gaps_are_filled() {
        assert_eq!(known("y:7x0x32 = Relu(x)"), "7 N1 32");
        assert_eq!(known("k = Unsqueeze(x, [1]); y = ReduceMean(k, [-1])"), "N0 1 N1 1");
        let wide = format!(
            "{SIZES} t = Concat<axis=0>(b, [-1, 32]); m = Equal(t, [-1, -1, -1]); e = Where(m, [1, 1, 1], t); y = Expand(x, e)"
        );
        assert_eq!(known(&wide), "N0 N1 32");
        let steps = format!("{SIZES} k = Squeeze(l); r = Range(0i, k, 1i); y = Unsqueeze(r, [0])");
        assert_eq!(known(&steps), "1 N1");
        assert_eq!(known("k = Softmax(x); y = IsNaN(k)"), "N0 N1 32");
        assert_eq!(known("y = Concat<axis=-1>(x, x)"), "N0 N1 64");
        assert_eq!(known("s = Shape(x); t = Slice(s, [-2], [9], [0]); y = ConstantOfShape(t)"), "N1 32");
    }
}
