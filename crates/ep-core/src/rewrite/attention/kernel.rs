//! What the operators of attention read, drawn from scores and values.

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{Attribute, Dim, Node, TensorType};

use super::causal::known;
use super::fillings::agree;
use super::layout::{Frame, Operand, broadcast, times, widen};
use super::matrices::{Axis, Matrices, same, same_dims};
use super::scores::{Kind, Mask, Scores, frame};
use crate::rewrite::sketch::{DOMAIN, Sketch, Wire};

/// The inputs of an attention, drawn. What the graph multiplies is the number in front times what is drawn.
pub(crate) struct Drawn {
    pub(crate) frame: Frame,
    /// That of keys and values, where heads of queries share them.
    pub(crate) shared: Option<Frame>,
    pub(crate) q: (Wire, f64),
    pub(crate) k: (Wire, f64),
    pub(crate) v: (Wire, f64),
    /// The pullback's dY.
    pub(crate) dy: Option<(Wire, f64)>,
    mask: Option<Wire>,
    causal: bool,
    /// What the kernel multiplies scores by.
    pub(crate) scale: f64,
}

/// How operands are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) even: bool,
    pub(crate) share: bool,
}

/// The operands of an attention.
pub(crate) struct Operands {
    pub(crate) q: Operand,
    pub(crate) k: Operand,
    pub(crate) v: Operand,
    pub(crate) dy: Option<Operand>,
}

impl Operands {
    /// `v` has keys for rows, `dy` queries.
    pub(crate) fn new(scopes: &Scopes<'_, '_>, scores: &Scores, v: &Matrices, dy: Option<&Matrices>) -> Self {
        Self {
            q: Operand::new(scopes, &scores.q, Axis::Row),
            k: Operand::new(scopes, &scores.k, Axis::Col),
            v: Operand::new(scopes, v, Axis::Row),
            dy: dy.map(|dy| Operand::new(scopes, dy, Axis::Row)),
        }
    }

    /// Draws what the kernel reads. Stacks that are not certainly `even` are broadcast to each other; heads of keys that the
    /// graph repeats are drawn once if the kernel may `share` them.
    pub(crate) fn draw(
        &self,
        sketch: &mut Sketch<'_, '_>,
        scopes: &Scopes<'_, '_>,
        scores: &Scores,
        Choice { even, share }: Choice,
    ) -> Option<Drawn> {
        let known = known(scopes, &scores.masks, &scores.q, &scores.k);
        let read = scores.masks.iter().zip(&known).filter(|(_, known)| !**known);
        let masks: Vec<Mask> = read.map(|(mask, _)| mask.clone()).collect();
        agree(scopes, &masks).then_some(())?;
        if scores.has_scales() && !even {
            return None;
        }
        let wanted = match masks[..] {
            [] => None,
            _ if !even => None,
            _ => Some(frame(scopes, &masks)?),
        };
        let all: Vec<&Operand> = [&self.q, &self.k, &self.v].into_iter().chain(&self.dy).collect();
        let grouped = if even { None } else { self.grouped(scopes) };
        let frame = match &grouped {
            Some([of_queries, _]) => Frame::like(scopes, of_queries)?,
            None if even => Frame::choose(scopes, wanted, &all)?,
            None => Frame::as_read(scopes, &scores.q)?,
        };
        let mut q = frame.bring(sketch, scopes, &self.q)?;
        for &(value, power) in &scores.scale.computed {
            q.0 = times(sketch, q.0, Wire::Old(value), power)?;
        }
        let scales = masks.iter().filter_map(|mask| match mask.kind {
            Kind::Scaled(power) => Some((mask, power)),
            _ => None,
        });
        for (scale, power) in scales {
            let by = frame.aligned(sketch, scale)?;
            q.0 = times(sketch, q.0, by, power)?;
        }
        let masks: Vec<Mask> =
            masks.iter().filter(|mask| !matches!(mask.kind, Kind::Scaled(_))).cloned().collect();
        let found = match &grouped {
            Some([_, of_keys]) => {
                let frame = Frame::like(scopes, of_keys)?;
                let both = [frame.bring(sketch, scopes, &self.k)?, frame.bring(sketch, scopes, &self.v)?];
                Some((frame, both))
            }
            None if share => frame.bring_shared(sketch, scopes, [&self.k, &self.v]),
            None => None,
        };
        let (shared, [mut k, mut v]) = match found {
            Some((frame, both)) => (Some(frame), both),
            None => (None, [frame.bring(sketch, scopes, &self.k)?, frame.bring(sketch, scopes, &self.v)?]),
        };
        let mask = frame.mask(sketch, &masks)?;
        if !even && grouped.is_none() {
            // A mask of undeclared rank may have no axes for the stack.
            let ranked = masks.iter().all(|mask| scopes.rank(mask.value).is_some());
            for wire in [Some(k.0), Some(v.0), mask.filter(|_| ranked)].into_iter().flatten() {
                q.0 = broadcast(sketch, q.0, wire)?;
            }
            k.0 = broadcast(sketch, k.0, q.0)?;
            v.0 = broadcast(sketch, v.0, q.0)?;
        }
        if let Some(mask) = mask {
            // Softmax is over what the mask makes of the scores.
            if masks.iter().any(|m| may_widen(scopes, m, &scores.q, Axis::Row)) {
                q.0 = widen(sketch, q.0, mask, 2)?;
            }
            if masks.iter().any(|m| may_widen(scopes, m, &scores.k, Axis::Col)) {
                k.0 = widen(sketch, k.0, mask, 3)?;
            }
        }
        let dy = match &self.dy {
            Some(dy) => Some(frame.bring(sketch, scopes, dy)?),
            None => None,
        };
        let scale = scores.scale.number * q.1 * k.1;
        (scale.is_finite() && scale != 0.0).then_some(Drawn {
            frame,
            shared,
            q,
            k,
            v,
            dy,
            mask,
            causal: known.contains(&true),
            scale,
        })
    }
}

impl Operands {
    /// The queries (.., G) and the keys (.., 1) of heads that the products share by broadcasting, as they are read.
    fn grouped(&self, scopes: &Scopes<'_, '_>) -> Option<[Matrices; 2]> {
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|operand| {
            let view = &operand.read()?.view;
            Some((view, view.batch_dims(scopes)?))
        });
        let ((q, of_q), (k, of_k), (_, of_v)) = (q?, k?, v?);
        let (_, heads) = of_q.split_last()?;
        let shared = |dims: &[Dim]| matches!(dims, [rest @ .., Dim::Known(1)] if same_dims(rest, heads));
        (heads.len() == 2 && shared(&of_k) && shared(&of_v)).then(|| [q.clone(), k.clone()])
    }
}

/// Whether `mask` may have more entries along an axis, the queries' or the keys', than the one of `operand`.
fn may_widen(scopes: &Scopes<'_, '_>, mask: &Mask, operand: &Matrices, axis: Axis) -> bool {
    let size = |matrices: &Matrices, value: Place| {
        let shape = scopes.shape(value)?;
        let at = matrices.axes.iter().position(|a| *a == axis)?;
        shape.0.get((at + shape.0.len()).checked_sub(matrices.axes.len())?).cloned()
    };
    let Some(of_mask) = size(&mask.scores, mask.value) else { return false };
    let of_operand = size(operand, operand.place).unwrap_or(Dim::Unknown);
    of_mask != Dim::Known(1) && of_operand.known().is_none_or(|n| n == 1) && !same(&of_mask, &of_operand)
}

impl Drawn {
    /// Draws the operator. Gives the number of its node.
    pub(crate) fn node(
        &self,
        sketch: &mut Sketch<'_, '_>,
        operator: &str,
        outputs: Vec<TensorType>,
    ) -> usize {
        let mut node = Node::new(operator, 1);
        node.domain = DOMAIN.to_owned();
        node.attributes.insert("scale".to_owned(), Attribute::Float(self.scale as f32));
        if self.causal {
            node.attributes.insert("is_causal".to_owned(), Attribute::Int(1));
        }
        let mut inputs = vec![Some(self.q.0), Some(self.k.0), Some(self.v.0)];
        inputs.extend(self.dy.map(|(dy, _)| Some(dy)));
        inputs.push(self.mask);
        sketch.node(node, inputs, outputs)
    }
}
