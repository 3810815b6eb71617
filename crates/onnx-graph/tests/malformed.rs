//! Broken models: every one gives an error or a graph, none a panic.

use std::collections::BTreeMap;

use onnx_graph::{
    ElementType, Error, GraphBuilder, Tensor, partition, read_bytes, topological_order, write_bytes,
};
use proptest::prelude::*;

const MODELS: [&[u8]; 4] = [
    include_bytes!("data/elements.onnx"),
    include_bytes!("data/structure.onnx"),
    include_bytes!("data/functions.onnx"),
    include_bytes!("data/external.onnx"),
];

/// Reads `bytes` and, where that works, walks over the graph.
fn survive(bytes: &[u8]) {
    let Ok(model) = read_bytes(bytes) else { return };
    let claimed = vec![true; model.graph.node_count()];
    let _ = partition(&model.graph, &claimed);
    let _ = read_bytes(&write_bytes(&model.graph, &model.opsets, model.ir_version));
}

#[test]
fn truncated_anywhere() {
    for model in MODELS {
        for end in 0..model.len() {
            survive(&model[..end]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn bytes_changed(
        which in 0..MODELS.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = MODELS[which].to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        survive(&bytes);
    }

    #[test]
    fn noise(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        survive(&bytes);
    }
}

fn error(bytes: &[u8]) -> String {
    read_bytes(bytes).expect_err("a broken model").to_string()
}

#[test]
fn says_what_is_wrong() {
    assert!(matches!(read_bytes(b"this is no model"), Err(Error::Parse(_))));
    assert!(error(b"").contains("no graph"));

    let mut b = GraphBuilder::new("g", 17);
    let x = b.input("x", ElementType::Float, &[]);
    let nowhere = b.outer("nowhere");
    let y = b.node("Add", &[Some(x), Some(nowhere)]).name("adder").output();
    b.output(y);
    let graph = b.build().unwrap();
    let opsets = BTreeMap::from([(String::new(), 17)]);
    assert!(error(&write_bytes(&graph, &opsets, 8)).contains("'nowhere'"));
    let none = error(&write_bytes(&graph, &BTreeMap::new(), 8));
    assert!(none.contains("adder") && none.contains("ai.onnx"), "{none}");
}

#[test]
fn a_cycle_reads_but_has_no_order() {
    let mut b = GraphBuilder::new("g", 17);
    let later = b.outer("later");
    let y = b.node("Relu", &[Some(later)]).output();
    b.node("Relu", &[Some(y)]).output_as("later");
    b.output(y);
    let bytes = write_bytes(&b.build().unwrap(), &BTreeMap::from([(String::new(), 17)]), 8);
    assert!(topological_order(&read_bytes(&bytes).unwrap().graph).is_err());
}

#[test]
fn bodies_nest_only_so_deep() {
    let mut body: Option<onnx_graph::Graph<'_>> = None;
    for depth in 0..40 {
        let mut b = GraphBuilder::new(format!("g{depth}"), 17);
        let flag = b.initializer(&format!("flag{depth}"), Tensor::from_ints(&[1]));
        let node = b.node("If", &[Some(flag)]);
        let y = match body.take() {
            Some(body) => node.attr("then_branch", body).output(),
            None => node.output(),
        };
        b.output(y);
        body = Some(b.build().unwrap());
    }
    let bytes = write_bytes(&body.unwrap(), &BTreeMap::from([(String::new(), 17)]), 8);
    assert!(matches!(read_bytes(&bytes), Err(Error::Parse(_))));
}
