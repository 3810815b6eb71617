//! Models that the Python package `onnx` wrote (`data/make.py`), read and checked.

use std::{collections::BTreeMap, path::PathBuf};

use onnx_graph::{
    Attribute, ElementType, Error, Graph, Model, NodeId, ValueType, read_bytes, read_file, topological_order,
    write_bytes,
};

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn read(name: &str) -> Model {
    read_file(data(name)).expect(name)
}

fn names(graph: &Graph<'_>, values: &[onnx_graph::ValueId]) -> Vec<String> {
    values.iter().map(|&v| graph.value(v).name.clone()).collect()
}

#[test]
fn typed_fields_hold_what_raw_bytes_hold() {
    let graph = read("elements.onnx").graph;
    for &element in ElementType::ALL {
        if element == ElementType::String {
            continue;
        }
        let tensor = |form| {
            let value = graph.find_value(&format!("{element}_{form}")).expect("one of each form");
            graph.value(value).constant.as_ref().unwrap()
        };
        let (typed, raw) = (tensor("typed"), tensor("raw"));
        assert_eq!((raw.element(), raw.dims()), (element, &[7][..]));
        // The spare bits of a last byte mean nothing.
        let spare = raw.data().len() * 8 - 7 * element.bits();
        let last = |t: &onnx_graph::Tensor<'_>| u32::from(*t.data().last().unwrap()) & (0xFF >> spare);
        assert_eq!(typed.data()[..typed.data().len() - 1], raw.data()[..raw.data().len() - 1], "{element}");
        assert_eq!(last(typed), last(raw), "{element}");
    }
    let ints = |name| graph.value(graph.find_value(name).unwrap()).constant.as_ref().unwrap().ints().unwrap();
    assert_eq!(ints("int8_typed"), [0, 1, -1, 1, 0, -1, 1]);
    assert_eq!(ints("bool_typed"), [1, 0, 1, 1, 1, 1, 1]);
    assert_eq!(ints("uint32_typed"), [1, 0, 2, 3, 1, 1, 2]);
}

#[test]
fn keeps_structure() {
    let model = read("structure.onnx");
    assert_eq!(model.opsets, BTreeMap::from([("".to_owned(), 17), ("com.example".to_owned(), 1)]));
    assert_eq!((model.ir_version, model.producer.as_str()), (10, "make.py 1"));
    let graph = &model.graph;
    let ops: Vec<_> = graph.nodes().map(|(_, n)| (n.op_type.as_str(), n.version)).collect();
    assert_eq!(ops, [("Clip", 17), ("If", 17), ("SequenceConstruct", 17), ("Fancy", 1)]);

    // An initializer that is also an input is a default that the caller may override.
    assert_eq!(names(graph, graph.inputs()), ["x", "flag", "flag2", "shift"]);
    let shift = graph.find_value("shift").unwrap();
    assert!(graph.value(shift).constant.is_none() && !graph.value(shift).is_initializer());

    let x = graph.find_value("x").unwrap();
    assert_eq!(graph.value(x).tensor_type().unwrap().to_string(), "float[N, 3, ?]");
    let y = graph.find_value("y").unwrap();
    assert_eq!(graph.value(y).tensor_type().unwrap().to_string(), "float[N, 3, ?]");
    let seq = graph.find_value("seq").unwrap();
    assert_eq!(graph.value(seq).ty, ValueType::Other("seq(tensor(float))".to_owned()));

    let clip = graph.node(NodeId(0));
    assert_eq!((clip.name.as_str(), clip.inputs()), ("clip", &[Some(x), None, Some(shift)][..]));
    assert_eq!(names(graph, graph.node(NodeId(1)).implicit_inputs()), ["x", "flag2", "shift"]);
    let bodies: BTreeMap<_, _> = graph.node(NodeId(1)).bodies().collect();
    let free = |g: &Graph<'_>| names(g, &g.outer_values().collect::<Vec<_>>());
    assert_eq!(free(bodies["else_branch"]), ["x"]);
    assert_eq!(free(bodies["then_branch"]), ["flag2", "x", "shift"]);

    let fancy = graph.node(NodeId(3));
    assert_eq!(fancy.outputs()[1], None);
    let words = graph.value(fancy.inputs()[0].unwrap());
    assert!(words.is_initializer() && words.constant.is_none());
    assert_eq!(words.tensor_type().unwrap().to_string(), "string[2]");
}

#[test]
fn keeps_every_kind_of_attribute() {
    let model = read("structure.onnx");
    let a = &model.graph.node(NodeId(3)).attributes;
    assert!(matches!(a["f"], Attribute::Float(0.5)));
    assert!(matches!(a["i"], Attribute::Int(-3)));
    assert!(matches!(&a["s"], Attribute::String(s) if s == b"text"));
    assert!(matches!(&a["fs"], Attribute::Floats(v) if *v == [1.0, 2.0]));
    assert!(matches!(&a["ints"], Attribute::Ints(v) if *v == [4, 5]));
    assert!(matches!(&a["ss"], Attribute::Strings(v) if *v == [b"a", b"b"]));
    assert!(matches!(&a["t"], Attribute::Tensor(t) if t.ints().unwrap() == [7, 8]));
    assert!(matches!(&a["st"], Attribute::Other(kind) if kind.starts_with("TENSOR of strings")));
    assert!(matches!(&a["ty"], Attribute::Other("TYPE_PROTO")));
}

/// The operators of a graph, each with where its inputs come from; names play no part.
fn shape_of(graph: &Graph<'_>) -> String {
    let mut text = String::new();
    for id in topological_order(graph).expect("no cycle") {
        let node = graph.node(id);
        text += &format!("{}(", node.op_type);
        let mut inputs = node.inputs().to_vec();
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        for input in inputs {
            text += &match input.map(|v| (v, graph.value(v).producer())) {
                None => "-, ".to_owned(),
                Some((_, Some((p, i)))) => format!("{}.{i}, ", p.0),
                Some((v, None)) => format!("{}, ", graph.value(v).name),
            };
        }
        text += ") ";
        for (name, body) in node.bodies() {
            text += &format!("{name}[{}] ", shape_of(body));
        }
    }
    text
}

/// `shape_of` names what a body reads from outside; in an inlined function those names differ.
fn without_outer_names(graph: &Graph<'_>) -> String {
    let made: Vec<_> = graph.nodes().flat_map(|(_, n)| n.outputs()).flatten().collect();
    let text = shape_of(graph);
    made.iter().fold(text, |text, &&v| {
        let (node, output) = graph.value(v).producer().expect("made by a node");
        text.replace(&format!("({}, ", graph.value(v).name), &format!("(outer {}.{output}, ", node.0))
    })
}

#[test]
fn inlines_functions_as_onnx_does() {
    let model = read("functions.onnx");
    assert_eq!(model.functions, ["com.example.Inner", "com.example.Outer"]);
    let expected = read("functions_inlined.onnx");
    assert_eq!(without_outer_names(&model.graph), without_outer_names(&expected.graph));

    // The specification gives a function's attributes defaults, which onnx's inliner passes over.
    let slopes: Vec<_> = model
        .graph
        .nodes()
        .filter(|(_, n)| n.op_type == "LeakyRelu")
        .map(|(_, n)| match n.attributes["alpha"] {
            Attribute::Float(slope) => slope,
            _ => f32::NAN,
        })
        .collect();
    assert_eq!(slopes, [0.5, 0.25, 0.25]);
}

#[test]
fn finds_external_data_beside_the_model() {
    let graph = read("external.onnx").graph;
    let w = graph.value(graph.find_value("w").unwrap()).constant.as_ref().unwrap();
    assert_eq!((w.dims(), w.floats().unwrap()), (&[2, 3][..], vec![0.0, 0.25, 0.5, 0.75, 1.0, 1.25]));

    let bytes = std::fs::read(data("external.onnx")).unwrap();
    assert!(read_bytes(&bytes).unwrap_err().to_string().contains("external.bin"));
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("external.onnx");
    std::fs::write(&alone, bytes).unwrap();
    assert!(matches!(read_file(&alone), Err(Error::Io { path, .. }) if path.ends_with("external.bin")));
    std::fs::write(folder.path().join("external.bin"), [0; 23]).unwrap();
    let error = read_file(&alone).unwrap_err().to_string();
    assert!(error.contains("'w'") && error.contains("which has 23"), "{error}");
}

#[test]
fn before_ir_4_initializers_are_constant() {
    let model = read("old.onnx");
    let graph = &model.graph;
    assert_eq!(names(graph, graph.inputs()), ["x"]);
    let w = graph.value(graph.find_value("w").unwrap()).constant.as_ref().unwrap();
    assert!((w.floats().unwrap()[0] - std::f64::consts::PI).abs() < 1e-6);
    let again = read_bytes(&write_bytes(graph, &model.opsets, 3)).unwrap();
    assert_eq!(names(&again.graph, again.graph.inputs()), ["x"]);
    assert!(again.graph.find_value("w").is_some_and(|w| again.graph.value(w).constant.is_some()));
}

#[test]
fn writing_and_reading_changes_nothing() {
    for name in ["elements.onnx", "functions.onnx", "external.onnx", "old.onnx"] {
        let first = read(name);
        let bytes = write_bytes(&first.graph, &first.opsets, first.ir_version);
        let second = read_bytes(&bytes).unwrap();
        assert_eq!(shape_of(&first.graph), shape_of(&second.graph));
        for (id, value) in first.graph.values() {
            let same = second.graph.value(second.graph.find_value(&value.name).unwrap());
            assert_eq!((&value.ty, &value.constant), (&same.ty, &same.constant), "{name} {id:?}");
        }
        assert_eq!(write_bytes(&second.graph, &second.opsets, second.ir_version), bytes);
    }
}
