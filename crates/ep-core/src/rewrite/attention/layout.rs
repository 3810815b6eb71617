//! Stacks of matrices as the kernel wants them, (B, H, rows, columns), and its results as the graph has them.

use onnx_graph::pattern::Scopes;
use onnx_graph::{Attribute, Dim, ElementType, Tensor};

use super::factor::{Factor, Part, parts};
use super::fillings::standing;
use super::matrices::{Axis, Matrices, plain, same, same_dims};
use super::scores::{Kind, Mask};
use super::shared::behind;
use crate::rewrite::sketch::{Sketch, Wire, ranked};

/// Something that a kernel reads.
pub(crate) struct Operand {
    parts: Vec<Part>,
    /// Which of rows and columns are the kernel's rows.
    rows: Axis,
}

impl Operand {
    pub(crate) fn new(scopes: &Scopes<'_, '_>, view: &Matrices, rows: Axis) -> Self {
        Self { parts: parts(scopes, view), rows }
    }

    /// As the product reads it.
    pub(crate) fn read(&self) -> Option<&Part> {
        self.parts.first()
    }

    /// Where it comes from in the end.
    pub(crate) fn base(&self) -> Option<&Part> {
        self.parts.last()
    }

    /// The part whose stack has the sizes of `frame`, with least work to be done, and how much that is.
    fn pick(&self, scopes: &Scopes<'_, '_>, frame: &Frame) -> Option<(&Part, usize)> {
        let fits = |part: &&Part| match frame.like {
            Like::Read => part.as_read && part.view.batch().len() == frame.dims.len(),
            _ => part.view.batch_dims(scopes).is_some_and(|dims| same_dims(&dims, &frame.dims)),
        };
        let work = |part: &Part| usize::from(part.view.axes != self.wanted(frame.dims.len()));
        let found = self.parts.iter().filter(fits).map(|part| (part, work(part)));
        found.min_by_key(|(_, work)| *work)
    }

    fn wanted(&self, batch: usize) -> Vec<Axis> {
        (0..batch).map(Axis::Batch).chain(self.matrix()).collect()
    }

    fn matrix(&self) -> [Axis; 2] {
        if self.rows == Axis::Row { [Axis::Row, Axis::Col] } else { [Axis::Col, Axis::Row] }
    }
}

/// How the stacks of all that a kernel reads are laid out.
pub(crate) struct Frame {
    dims: Vec<Dim>,
    like: Like,
}

/// What is known of a frame's sizes.
enum Like {
    /// They are those of this value's stack.
    Value(Matrices),
    /// The graph has no such value at hand.
    Nothing,
    /// They may differ from operand to operand, which are laid out as their products read them.
    Read,
}

impl Frame {
    /// The sizes `wanted`, or if any will do, those that ask for least work.
    pub(crate) fn choose(
        scopes: &Scopes<'_, '_>,
        wanted: Option<Vec<Dim>>,
        operands: &[&Operand],
    ) -> Option<Self> {
        let all = || operands.iter().flat_map(|operand| &operand.parts);
        if let Some(dims) = wanted {
            let fits = |part: &&Part| part.view.batch_dims(scopes).is_some_and(|d| same_dims(&d, &dims));
            let like = all().find(fits).map_or(Like::Nothing, |part| Like::Value(part.view.clone()));
            return Some(Self { dims, like });
        }
        let frames = all().filter_map(|part| Some((part.view.batch_dims(scopes)?, &part.view)));
        let frames = frames.map(|(dims, like)| Self { dims, like: Like::Value(like.clone()) });
        frames.min_by_key(|frame| {
            let work = |operand: &&Operand| operand.pick(scopes, frame).map_or(10, |(_, work)| work);
            // Two axes are what the kernel has.
            operands.iter().map(work).sum::<usize>() + frame.dims.len().abs_diff(2)
        })
    }

    /// The layout of a stack.
    pub(crate) fn like(scopes: &Scopes<'_, '_>, view: &Matrices) -> Option<Self> {
        Some(Self { dims: view.batch_dims(scopes)?, like: Like::Value(view.clone()) })
    }

    /// The layout in which `q` is read; other sizes may be broadcast to its.
    pub(crate) fn as_read(scopes: &Scopes<'_, '_>, q: &Matrices) -> Option<Self> {
        let dims = q.batch_dims(scopes)?;
        (dims.len() <= 2).then_some(Self { dims, like: Like::Read })
    }

    /// Draws an operand as (B, H, rows, columns). The operand is the number times what is drawn.
    pub(crate) fn bring(
        &self,
        sketch: &mut Sketch<'_, '_>,
        scopes: &Scopes<'_, '_>,
        operand: &Operand,
    ) -> Option<(Wire, f64)> {
        let rows = operand.matrix();
        if let Some((part, _)) = operand.pick(scopes, self) {
            let wire = arranged(sketch, &part.view, rows)?;
            return Some((self.outward(sketch, wire)?, part.number));
        }
        let (part, Like::Value(like)) = (operand.parts.first()?, &self.like) else { return None };
        let wire = arranged(sketch, &part.view, rows)?;
        let batch = sizes(sketch, Wire::Old(like.place.value), &like.batch())?;
        let rank = sketch.rank(wire)?;
        let matrix = sizes(sketch, wire, &[rank - 2, rank - 1])?;
        let wire = reshape(sketch, wire, batch, matrix, self.dims.len() + 2)?;
        Some((self.outward(sketch, wire)?, part.number))
    }

    /// Draws keys and values as (B, Hk, rows, columns) where H / Hk heads of queries share each, and gives the frame of those.
    /// `None` if they do not.
    pub(crate) fn bring_shared(
        &self,
        sketch: &mut Sketch<'_, '_>,
        scopes: &Scopes<'_, '_>,
        operands: [&Operand; 2],
    ) -> Option<(Self, [(Wire, f64); 2])> {
        if matches!(self.like, Like::Read) || self.dims.len() != 2 {
            return None;
        }
        let heads = operands.map(|operand| {
            let found = behind(scopes, operand.base()?).into_iter().filter_map(|part| {
                let dims = part.view.batch_dims(scopes)?;
                (dims.len() == 2 && same(&dims[0], &self.dims[0])).then_some((part, dims))
            });
            let wanted = operand.wanted(2);
            found.min_by_key(|(part, _)| part.view.axes != wanted)
        });
        let [Some((k, k_dims)), Some((v, v_dims))] = heads else { return None };
        if !same_dims(&k_dims, &v_dims) {
            return None;
        }
        let mut bring = |part: &Part, operand: &Operand| {
            Some((arranged(sketch, &part.view, operand.matrix())?, part.number))
        };
        let both = [bring(&k, operands[0])?, bring(&v, operands[1])?];
        Some((Self { dims: k_dims, like: Like::Value(k.view) }, both))
    }

    /// The sizes of the stack.
    pub(crate) fn dims(&self) -> &[Dim] {
        &self.dims
    }

    /// (stack.., rows, columns) as (B, H, rows, columns).
    fn outward(&self, sketch: &mut Sketch<'_, '_>, wire: Wire) -> Option<Wire> {
        match self.dims.len() {
            n @ 0..=2 => sketch.view("Unsqueeze", wire, &(0..2 - n).collect::<Vec<_>>()),
            n => {
                let batch = sizes(sketch, wire, &(0..n).collect::<Vec<_>>())?;
                let count = sketch.op("ReduceProd", &[batch], &[], ranked(ElementType::Int64, 1));
                let matrix = sizes(sketch, wire, &[n, n + 1])?;
                let wire = reshape(sketch, wire, count, matrix, 3)?;
                sketch.view("Unsqueeze", wire, &[0])
            }
        }
    }

    /// A kernel's result (B, H, rows, columns) times `by` as the matrices `to`, whose stack has the sizes of that of `like`.
    pub(crate) fn give(
        &self,
        sketch: &mut Sketch<'_, '_>,
        scopes: &Scopes<'_, '_>,
        (wire, by): (Wire, &Factor),
        to: &Matrices,
        like: &Matrices,
    ) -> Option<Wire> {
        let mut wire = sketch.scale(wire, by.number)?;
        for &(value, power) in &by.computed {
            wire = times(sketch, wire, Wire::Old(value), power)?;
        }
        let dims = to.batch_dims(scopes)?;
        let same = matches!(self.like, Like::Read)
            || same_dims(&dims, &self.dims)
            || same_dims(&like.batch_dims(scopes)?, &self.dims);
        wire = if same && dims.len() <= 2 {
            sketch.view("Squeeze", wire, &(0..2 - dims.len()).collect::<Vec<_>>())?
        } else {
            let batch = sizes(sketch, Wire::Old(like.place.value), &like.batch())?;
            let matrix = sizes(sketch, wire, &[2, 3])?;
            reshape(sketch, wire, batch, matrix, dims.len() + 2)?
        };
        let order = |axis: &Axis| match axis {
            Axis::Batch(n) => Some(*n),
            Axis::Row => Some(dims.len()),
            Axis::Col => Some(dims.len() + 1),
            Axis::One => None,
        };
        let perm: Vec<usize> = to.axes.iter().filter_map(order).collect();
        let ones: Vec<usize> = (0..to.axes.len()).filter(|&i| to.axes[i] == Axis::One).collect();
        let wire = sketch.view("Transpose", wire, &perm)?;
        sketch.view("Unsqueeze", wire, &ones)
    }

    /// All masks, the outermost first, as one that broadcasts to (B, H, L, S): of bools that say what stays, or added. `None`
    /// within if there is none.
    pub(crate) fn mask(&self, sketch: &mut Sketch<'_, '_>, masks: &[Mask]) -> Option<Option<Wire>> {
        if let [Mask { kind: Kind::Chosen { stays, fill: f64::NEG_INFINITY }, .. }] = masks {
            let wire = self.aligned(sketch, &masks[0])?;
            let ty = sketch.ty(wire)?;
            return Some(Some(if *stays { wire } else { sketch.op("Not", &[wire], &[], ty) }));
        }
        let mut sum: Option<Wire> = None;
        for mask in masks.iter().rev() {
            if let Kind::Lifted(floor) = mask.kind {
                // Scores alone never come so low.
                let Some(lifted) = sum else { continue };
                let lifted = sketch.cast(lifted, ElementType::Float)?;
                let low = sketch.constant(Tensor::scalar(standing(floor)));
                sum = Some(sketch.op("Max", &[lifted, low], &[], ranked(ElementType::Float, 4)));
                continue;
            }
            let wire = self.aligned(sketch, mask)?;
            sum = Some(match mask.kind {
                Kind::Added(times) => {
                    let more = sketch.scale(wire, times)?;
                    match sum {
                        None => more,
                        Some(sum) => {
                            let more = sketch.cast(more, ElementType::Float)?;
                            let sum = sketch.cast(sum, ElementType::Float)?;
                            sketch.op("Add", &[sum, more], &[], ranked(ElementType::Float, 4))
                        }
                    }
                }
                Kind::Scaled(_) | Kind::Lifted(_) => return None,
                Kind::Chosen { stays, fill } => {
                    let low = sketch.constant(Tensor::scalar(standing(fill)));
                    let kept = match sum {
                        Some(sum) => sketch.cast(sum, ElementType::Float)?,
                        None => sketch.constant(Tensor::scalar(0f32)),
                    };
                    let wire = sketch.cast(wire, ElementType::Bool)?;
                    let (yes, no) = if stays { (kept, low) } else { (low, kept) };
                    sketch.op("Where", &[wire, yes, no], &[], ranked(ElementType::Float, 4))
                }
            });
        }
        Some(sum)
    }

    /// A mask with four axes.
    pub(crate) fn aligned(&self, sketch: &mut Sketch<'_, '_>, mask: &Mask) -> Option<Wire> {
        let count = self.dims.len();
        let wire = Wire::Old(mask.value.value);
        if sketch.rank(wire).is_none() && count == 2 && Some(&mask.scores.axes) == plain(4).as_ref() {
            return Some(wire);
        }
        let skip = mask.scores.axes.len().checked_sub(sketch.rank(wire)?)?;
        let axes = &mask.scores.axes[skip..];
        let sizes = sketch.ty(wire)?.shape?.0;
        let is_one = |i: &usize| match axes[*i] {
            Axis::One => true,
            Axis::Batch(_) => sizes[*i] == Dim::Known(1),
            Axis::Row | Axis::Col => false,
        };
        let (ones, kept): (Vec<usize>, Vec<usize>) = (0..axes.len()).partition(is_one);
        let kept: Vec<Axis> = kept.into_iter().map(|i| axes[i]).collect();
        let all: Vec<Axis> = (0..count).map(Axis::Batch).chain([Axis::Row, Axis::Col]).collect();
        let order = all.iter().filter_map(|axis| kept.iter().position(|k| k == axis)).collect::<Vec<_>>();
        let missing: Vec<usize> = (0..all.len()).filter(|&i| !kept.contains(&all[i])).collect();
        // More axes of the stack than the kernel has are taken together: a mask without them does not mind.
        if order.len() != kept.len() || (count > 2 && kept.iter().any(|a| matches!(a, Axis::Batch(_)))) {
            return None;
        }
        let wire = sketch.view("Squeeze", wire, &ones)?;
        let wire = sketch.view("Transpose", wire, &order)?;
        if count > 2 {
            return sketch.view("Unsqueeze", wire, &(0..4 - kept.len()).collect::<Vec<_>>());
        }
        let wire = sketch.view("Unsqueeze", wire, &missing)?;
        sketch.view("Unsqueeze", wire, &(0..2 - count).collect::<Vec<_>>())
    }
}

/// The wire times another that broadcasts to it, or divided by it.
pub(crate) fn times(sketch: &mut Sketch<'_, '_>, wire: Wire, by: Wire, power: i32) -> Option<Wire> {
    let ty = sketch.ty(wire)?;
    let by = sketch.cast(by, ty.element)?;
    Some(sketch.op(if power < 0 { "Div" } else { "Mul" }, &[wire, by], &[], ty))
}

/// A wire (B, H, rows, columns) with the first two sizes of another where they are 1.
pub(crate) fn broadcast(sketch: &mut Sketch<'_, '_>, wire: Wire, to: Wire) -> Option<Wire> {
    let shape = [sizes(sketch, to, &[0, 1])?, sketch.ints(&[1, 1])];
    expand(sketch, wire, &shape)
}

/// A wire (B, H, rows, columns) with as many rows as another has entries along `axis`, if it has one.
pub(crate) fn widen(sketch: &mut Sketch<'_, '_>, wire: Wire, to: Wire, axis: usize) -> Option<Wire> {
    let shape = [sketch.ints(&[1, 1]), sizes(sketch, to, &[axis])?, sketch.ints(&[1])];
    expand(sketch, wire, &shape)
}

/// A wire of four axes, broadcast to a shape that is given in parts.
fn expand(sketch: &mut Sketch<'_, '_>, wire: Wire, shape: &[Wire]) -> Option<Wire> {
    let axis = Attribute::Int(0);
    let shape = sketch.op("Concat", shape, &[("axis", axis)], ranked(ElementType::Int64, 1));
    let ty = ranked(sketch.element(wire)?, 4);
    Some(sketch.op("Expand", &[wire, shape], &[], ty))
}

/// A view as (stack.., rows.., columns..).
fn arranged(sketch: &mut Sketch<'_, '_>, view: &Matrices, matrix: [Axis; 2]) -> Option<Wire> {
    let ones: Vec<usize> = (0..view.axes.len()).filter(|&i| view.axes[i] == Axis::One).collect();
    let kept: Vec<Axis> = view.axes.iter().copied().filter(|a| *a != Axis::One).collect();
    let all = (0..kept.len() - 2).map(Axis::Batch).chain(matrix);
    let order = all.map(|axis| kept.iter().position(|k| *k == axis)).collect::<Option<Vec<_>>>()?;
    let wire = sketch.view("Squeeze", Wire::Old(view.place.value), &ones)?;
    sketch.view("Transpose", wire, &order)
}

/// The sizes of some axes.
fn sizes(sketch: &mut Sketch<'_, '_>, wire: Wire, axes: &[usize]) -> Option<Wire> {
    let ints: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
    let shape = sketch.op("Shape", &[wire], &[], ranked(ElementType::Int64, 1));
    let axes = sketch.ints(&ints);
    Some(sketch.op("Gather", &[shape, axes], &[], ranked(ElementType::Int64, 1)))
}

/// The wire with the sizes `batch` and `matrix`.
fn reshape(sketch: &mut Sketch<'_, '_>, wire: Wire, batch: Wire, matrix: Wire, rank: usize) -> Option<Wire> {
    let axis = Attribute::Int(0);
    let shape = sketch.op("Concat", &[batch, matrix], &[("axis", axis)], ranked(ElementType::Int64, 1));
    // A size of 0 is one.
    let zeros = Attribute::Int(1);
    let ty = ranked(sketch.element(wire)?, rank);
    Some(sketch.op("Reshape", &[wire, shape], &[("allowzero", zeros)], ty))
}
