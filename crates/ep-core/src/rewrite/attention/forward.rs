//! The rule of attention: `Softmax` over scores, and nothing but a product with values behind it.

use onnx_graph::pattern::{Place, Scopes};
use onnx_graph::{ElementType, Graph, NodeId};

use super::factor::Factor;
use super::flow::readers;
use super::kernel::{Choice, Operands};
use super::probabilities::{is_question, passes_probabilities, shown};
use super::product::{Product, result};
use super::scores::Scores;
use super::{FORWARD, softmax_at};
use crate::rewrite::sketch::{Replacement, Sketch, Wire, ranked};

/// The attention whose probabilities the node makes.
pub(crate) fn attention<'a>(graph: &Graph<'a>, id: NodeId) -> Option<Replacement<'a>> {
    let scopes = Scopes::new(graph);
    let softmax = softmax_at(graph, id)?;
    let probabilities = graph.node(id).outputs().first().copied().flatten()?;
    let readers = readers(graph, probabilities, &passes_probabilities)?;
    let [reader] = readers.iter().filter(|used| !is_question(graph.node(used.node))).collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let y = Place { depth: 0, value: graph.node(reader.node).outputs().first().copied().flatten()? };
    let scores = Scores::read(&scopes, &softmax)?;
    let written = result(&scopes, y)?;
    // The product as the node has it, or of both factors transposed.
    let (to, product, as_made) = [written.clone(), written.transposed()].into_iter().find_map(|to| {
        let product = Product::of(&scopes, &to)?;
        let (_, as_made) = shown(&scopes, &product.left).filter(|(maker, _)| maker.id == id)?;
        Some((to, product, as_made))
    })?;
    let v = product.right;
    let even = scores.even && product.even;
    // What may be broadcast is laid out as the products have it.
    if !(even || as_made && scores.as_made) {
        return None;
    }
    let mut sketch = Sketch::new(graph);
    let operands = Operands::new(&scopes, &scores, &v, None);
    let drawn = operands.draw(&mut sketch, &scopes, &scores, Choice { even, share: true })?;
    let element = sketch.element(drawn.q.0)?;
    let node = drawn.node(&mut sketch, FORWARD, vec![ranked(element, 4), ranked(ElementType::Float, 3)]);
    let by = Factor { number: product.alpha * drawn.v.1, computed: Vec::new() };
    // The result's stack is that of both factors.
    let like = if even { &v } else { &scores.q };
    let wire = drawn.frame.give(&mut sketch, &scopes, (Wire::Node(node, 0), &by), &to, like)?;
    sketch.replace(FORWARD, vec![(y.value, wire)])
}
