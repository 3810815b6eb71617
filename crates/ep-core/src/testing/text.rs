//! Graphs in a few words, for tests of rules: `m = ReduceMean(x, [-1]); d = Sub(x, m)`. What starts with a digit, a sign or
//! a bracket is a constant: `0.5` a float, `2h` a float16, `2d` a double, `2i` an int64, `[1, 2]` integers, `[0.5]` floats. Attributes stand in angle brackets:
//! `Cast<to=1>(x)`, and the sizes of what a node makes after its name: `a:0x3`, in which 0 is a symbol. Floats are the default type of what a node makes; where it takes another, that of its first input.

use std::str::FromStr;

use onnx_graph::{Attribute, Dim, Graph, GraphBuilder, Shape, Tensor, TensorType, ValueId, ValueType};

use crate::testing::{E, tensor};

/// A graph of these inputs, each `name` with its element type and sizes, in which a size of 0 is a symbol; of initializers;
/// and of nodes. The last values are its outputs, `outputs` of them.
pub(crate) fn graph(
    opset: i64,
    inputs: &[(&str, E, &[usize])],
    initializers: &[(&str, Tensor<'static>)],
    nodes: &str,
    outputs: &[&str],
) -> Graph<'static> {
    let mut b = GraphBuilder::new("g", opset);
    for (name, element, sizes) in inputs {
        b.input(name, *element, &shape(sizes).0);
    }
    for (name, tensor) in initializers {
        b.initializer(name, tensor.clone());
    }
    let mut elements = Vec::new();
    for line in nodes.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        elements.push(node(&mut b, line));
    }
    for name in outputs {
        let value = b.outer(name);
        b.output(value);
    }
    let mut graph = b.build().expect("a well-formed graph");
    for (outputs, first, to) in elements {
        let first = graph.value(first).tensor_type().map(|t| t.element);
        let element = to.or(first).unwrap_or(E::Float);
        for (output, shape) in outputs {
            graph.set_type(output, ValueType::Tensor(TensorType { element, shape }));
        }
    }
    graph
}

/// What a line adds: its outputs with their shapes, the first input, and the type that it names.
type Line = (Vec<(ValueId, Option<Shape>)>, ValueId, Option<E>);

fn node(b: &mut GraphBuilder<'static>, line: &str) -> Line {
    let (names, rest) = line.split_once(" = ").expect("outputs = Op(inputs)");
    let (op, inputs) = rest.strip_suffix(')').and_then(|rest| rest.split_once('(')).expect("Op(inputs)");
    let (op, attributes) = op.strip_suffix('>').and_then(|op| op.split_once('<')).unwrap_or((op, ""));
    let inputs: Vec<Option<ValueId>> = words(inputs).map(|word| Some(value(b, word))).collect();
    let mut to = (op == "Shape").then_some(E::Int64);
    let mut node = b.node(op, &inputs);
    for (name, text) in words(attributes).filter_map(|attribute| attribute.split_once('=')) {
        if name == "to" {
            to = E::from_onnx(text.parse().expect("an element type"));
        }
        node = node.attr(name, attribute(text));
    }
    let (names, sizes): (Vec<&str>, Vec<Option<&str>>) = names
        .split(", ")
        .map(|name| name.split_once(':').map_or((name, None), |(n, s)| (n, Some(s))))
        .unzip();
    let outputs = node.outputs_as(&names);
    let shapes = sizes.into_iter().map(|sizes| {
        let sizes: Vec<usize> = sizes?.split('x').map(|n| n.parse().expect("a size")).collect();
        Some(shape(&sizes))
    });
    (outputs.into_iter().flatten().zip(shapes).collect(), inputs[0].expect("an input"), to)
}

/// Sizes, of which 0 are symbols: the same on the same axis.
fn shape(sizes: &[usize]) -> Shape {
    let dim = |(i, &n): (usize, &usize)| if n == 0 { Dim::Symbol(format!("N{i}")) } else { n.into() };
    Shape(sizes.iter().enumerate().map(dim).collect())
}

/// What commas outside of brackets separate.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    let split = text.split(move |c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    split.map(str::trim).filter(|word| !word.is_empty())
}

fn value(b: &mut GraphBuilder<'static>, word: &str) -> ValueId {
    let suffixes = [('h', E::Float16), ('d', E::Double), ('i', E::Int64)];
    let suffixed = |&(suffix, element): &(char, E)| Some((word.strip_suffix(suffix)?, element));
    let (number, element) = suffixes.iter().find_map(suffixed).unwrap_or((word, E::Float));
    let constant = match (list(word), number.parse::<f64>()) {
        (Some(values), _) if word.contains(['.', 'e']) => tensor(E::Float, [values.len()], &values),
        (Some(values), _) => tensor(E::Int64, [values.len()], &values),
        (_, Ok(number)) => tensor(element, [], &[number]),
        _ => return b.outer(word),
    };
    let (element, dims): (E, Vec<Dim>) =
        (constant.element(), constant.dims().iter().map(|&n| n.into()).collect());
    let value = b.node("Constant", &[]).attr("value", constant).output();
    b.declare(value, element, &dims);
    value
}

fn list<T: FromStr>(word: &str) -> Option<Vec<T>> {
    let list = word.strip_prefix('[')?.strip_suffix(']')?;
    words(list).map(|number| number.parse().ok()).collect()
}

fn attribute(text: &str) -> Attribute<'static> {
    match (list(text), text.parse::<i64>(), text.parse::<f32>()) {
        (Some(list), ..) => Attribute::Ints(list),
        (_, Ok(int), _) => Attribute::Int(int),
        (_, _, Ok(float)) => Attribute::Float(float),
        _ => Attribute::String(text.as_bytes().to_vec()),
    }
}
