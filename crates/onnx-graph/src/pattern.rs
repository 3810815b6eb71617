//! The vocabulary of rules that look for patterns: who makes a value, what a constant holds however it is given, which
//! axes a node names. Questions are asked across the border of a body: names of an outer scope are looked up there.

use crate::{Attribute, Dim, ElementType, Graph, Node, NodeId, Shape, Tensor, ValueId};

/// A graph and, for a body, the graphs around it, outermost first.
#[derive(Clone, Debug)]
pub struct Scopes<'g, 'a> {
    graphs: Vec<&'g Graph<'a>>,
}

/// A value of one of the graphs of [`Scopes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Which graph: 0 is the outermost.
    pub depth: usize,
    /// Which of its values.
    pub value: ValueId,
}

/// A node with the graph it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'g, 'a> {
    /// Which graph.
    pub depth: usize,
    /// The node's id there.
    pub id: NodeId,
    /// The node.
    pub node: &'g Node<'a>,
    /// Which of its outputs was asked about.
    pub output: usize,
}

impl<'a> Maker<'_, 'a> {
    /// Whether this is `op_type` of ai.onnx.
    pub fn is(&self, op_type: &str) -> bool {
        matches!(self.node.domain.as_str(), "" | "ai.onnx") && self.node.op_type == op_type
    }

    /// Input `i`, if it is given.
    pub fn input(&self, i: usize) -> Option<Place> {
        let value = self.node.inputs().get(i).copied().flatten()?;
        Some(Place { depth: self.depth, value })
    }

    /// Both inputs of a node with two, one way round and the other: for operators that commute.
    pub fn either_way(&self) -> Option<[(Place, Place); 2]> {
        let (a, b) = (self.input(0)?, self.input(1)?);
        (self.node.inputs().len() == 2).then_some([(a, b), (b, a)])
    }

    /// An `INT` attribute, or its default.
    pub fn int_or(&self, name: &str, default: i64) -> Option<i64> {
        match self.node.attributes.get(name) {
            None => Some(default),
            Some(Attribute::Int(value)) => Some(*value),
            Some(_) => None,
        }
    }

    /// An `INTS` attribute.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.node.attributes.get(name) {
            Some(Attribute::Ints(values)) => Some(values),
            _ => None,
        }
    }

    /// The axes of an `Einsum`'s operands and of its result, as letters; `None` if it has an ellipsis or leaves the result
    /// to be worked out.
    pub fn equation(&self) -> Option<(Vec<Vec<char>>, Vec<char>)> {
        let Some(Attribute::String(equation)) = self.node.attributes.get("equation") else { return None };
        let equation: String = std::str::from_utf8(equation).ok()?.split_whitespace().collect();
        let (operands, result) = equation.split_once("->").filter(|_| !equation.contains('.'))?;
        let operands = operands.split(',').map(|letters| letters.chars().collect());
        Some((operands.collect(), result.chars().collect()))
    }

    /// Its body called `name`.
    pub fn body(&self, name: &str) -> Option<&Graph<'a>> {
        match self.node.attributes.get(name) {
            Some(Attribute::Graph(body)) => Some(body),
            _ => None,
        }
    }
}

impl<'g, 'a> Scopes<'g, 'a> {
    /// A graph that lies in no other.
    pub fn new(graph: &'g Graph<'a>) -> Self {
        Self { graphs: vec![graph] }
    }

    /// The same with a body inside the innermost graph.
    pub fn inside(&self, body: &'g Graph<'a>) -> Self {
        let mut graphs = self.graphs.clone();
        graphs.push(body);
        Self { graphs }
    }

    /// The depth of the innermost graph.
    pub fn depth(&self) -> usize {
        self.graphs.len() - 1
    }

    /// One of the graphs.
    pub fn graph(&self, depth: usize) -> &'g Graph<'a> {
        self.graphs[depth]
    }

    /// Where `place` is defined: itself, or the value of that name further out.
    pub fn resolve(&self, mut place: Place) -> Place {
        while place.depth > 0 {
            let graph = self.graphs[place.depth];
            let value = graph.value(place.value);
            if value.producer().is_some() || value.is_initializer() || graph.inputs().contains(&place.value) {
                break;
            }
            match self.graphs[place.depth - 1].find_value(&value.name) {
                Some(value) => place = Place { depth: place.depth - 1, value },
                None => break,
            }
        }
        place
    }

    /// The node that makes a value.
    pub fn maker(&self, place: Place) -> Option<Maker<'g, 'a>> {
        let place = self.resolve(place);
        let graph = self.graphs[place.depth];
        let (id, output) = graph.value(place.value).producer()?;
        Some(Maker { depth: place.depth, id, node: graph.node(id), output })
    }

    /// The node that makes a value, if it is `op_type` of ai.onnx.
    pub fn made_by(&self, place: Place, op_type: &str) -> Option<Maker<'g, 'a>> {
        self.maker(place).filter(|m| m.is(op_type))
    }

    /// The element type of a value.
    pub fn element(&self, place: Place) -> Option<ElementType> {
        let place = self.resolve(place);
        Some(self.graphs[place.depth].value(place.value).tensor_type()?.element)
    }

    /// The declared shape of a value; that of a constant is certain.
    pub fn shape(&self, place: Place) -> Option<Shape> {
        let place = self.resolve(place);
        let value = self.graphs[place.depth].value(place.value);
        match &value.constant {
            Some(tensor) => Some(Shape::fixed(tensor.dims())),
            None => value.tensor_type()?.shape.clone(),
        }
    }

    /// The declared rank of a value.
    pub fn rank(&self, place: Place) -> Option<usize> {
        Some(self.shape(place)?.rank())
    }

    /// Whether a size is declared to be 1.
    pub fn is_one(&self, place: Place, axis: usize) -> bool {
        self.shape(place).is_some_and(|s| s.0.get(axis) == Some(&Dim::Known(1)))
    }

    /// A constant: an initializer, a `Constant` node's tensor, or `Identity` of one.
    pub fn constant(&self, place: Place) -> Option<&'g Tensor<'a>> {
        let place = self.resolve(place);
        if let Some(tensor) = &self.graphs[place.depth].value(place.value).constant {
            return Some(tensor);
        }
        let maker = self.maker(place)?;
        match maker.node.attributes.get("value") {
            Some(Attribute::Tensor(tensor)) if maker.is("Constant") => Some(tensor),
            _ if maker.is("Identity") => self.constant(maker.input(0)?),
            _ => None,
        }
    }

    /// The elements in order of a constant of integers, however it is given: an initializer, a `Constant` node, or either
    /// behind `Identity`, casts between integers and changes of shape.
    pub fn ints(&self, place: Place) -> Option<Vec<i64>> {
        if let Some(tensor) = self.constant(place) {
            return tensor.ints();
        }
        let maker = self.maker(place)?;
        match (maker.node.op_type.as_str(), maker.node.attributes.first_key_value()) {
            ("Constant", Some((_, Attribute::Int(v)))) => Some(vec![*v]),
            ("Constant", Some((_, Attribute::Ints(v)))) => Some(v.clone()),
            ("Cast", _) if !self.element(place)?.is_integer() => None,
            (op, _) if KEEPS_ELEMENTS.contains(&op) => self.ints(maker.input(0)?),
            _ => None,
        }
    }

    /// The one element of a constant number, however it is given: see [`Scopes::ints`].
    pub fn scalar(&self, place: Place) -> Option<f64> {
        if let Some(tensor) = self.constant(place) {
            let ints = || Some(tensor.ints()?.into_iter().map(|v| v as f64).collect());
            return match Some(tensor).filter(|t| t.len() == 1)?.floats().or_else(ints)?.as_slice() {
                [value] => Some(*value),
                _ => None,
            };
        }
        let maker = self.maker(place)?;
        match (maker.node.op_type.as_str(), maker.node.attributes.first_key_value()) {
            ("Constant", Some((_, Attribute::Float(v)))) => Some(f64::from(*v)),
            ("Constant", Some((_, Attribute::Int(v)))) => Some(*v as f64),
            ("Cast", _) if !self.element(place)?.is_float() => None,
            (op, _) if KEEPS_ELEMENTS.contains(&op) => self.scalar(maker.input(0)?),
            _ => None,
        }
    }

    /// The number that every element of a value is: of a constant, or of what `Expand` and `ConstantOfShape` fill with one.
    pub fn fill(&self, place: Place) -> Option<f64> {
        let all = |numbers: Vec<f64>| {
            let first = *numbers.first()?;
            numbers.iter().all(|number| *number == first).then_some(first)
        };
        let numbers = |tensor: &Tensor<'_>| {
            let ints = || Some(tensor.ints()?.into_iter().map(|v| v as f64).collect());
            all(tensor.floats().or_else(ints)?)
        };
        if let Some(tensor) = self.constant(place) {
            return numbers(tensor);
        }
        if let Some(number) = self.scalar(place) {
            return Some(number);
        }
        let maker = self.maker(place)?;
        match (maker.node.op_type.as_str(), maker.node.attributes.get("value")) {
            (op, _) if !maker.is(op) => None,
            ("Expand", _) => self.fill(maker.input(0)?),
            ("ConstantOfShape", None) => Some(0.0),
            ("ConstantOfShape", Some(Attribute::Tensor(tensor))) => numbers(tensor),
            _ => None,
        }
    }

    /// The axes that `maker` names by attribute `axes` or, newer, by input 1, counted from the front of `rank`; `None`
    /// where they are left out, computed, or not there.
    pub fn axes(&self, maker: &Maker<'_, '_>, rank: usize) -> Option<Vec<usize>> {
        self.named_axes(maker)?.into_iter().map(|axis| from_front(axis, rank)).collect()
    }

    /// The same as the model writes them: some may count from the back.
    pub fn named_axes(&self, maker: &Maker<'_, '_>) -> Option<Vec<i64>> {
        match (maker.ints("axes"), maker.input(1)) {
            (Some(axes), _) => Some(axes.to_vec()),
            (None, Some(input)) => self.ints(input),
            (None, None) => None,
        }
    }
}

/// An axis of ONNX, which may count from the back, counted from the front.
pub fn from_front(axis: i64, rank: usize) -> Option<usize> {
    let axis = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(axis).ok().filter(|&a| a < rank)
}

/// Operators that pass the elements of their first input on in the same order.
const KEEPS_ELEMENTS: &[&str] =
    &["Cast", "CastLike", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;

    fn at(depth: usize, value: ValueId) -> Place {
        Place { depth, value }
    }

    #[test]
    fn constants_are_found_however_they_are_given() {
        let mut b = GraphBuilder::new("g", 17);
        let initializer = b.initializer("i", Tensor::from_ints(&[-1]));
        let identity = b.node("Identity", &[Some(initializer)]).output();
        let node = b.node("Constant", &[]).attr("value", Tensor::scalar(0.5)).output();
        let int = b.node("Constant", &[]).attr("value_int", 7i64).output();
        let cast = b.node("Cast", &[Some(int)]).attr("to", 7i64).output();
        b.declare(cast, ElementType::Int64, &[]);
        let unsqueezed = b.node("Unsqueeze", &[Some(cast), Some(initializer)]).output();
        let float = b.node("Cast", &[Some(int)]).attr("to", 1i64).output();
        b.declare(float, ElementType::Float, &[]);
        let x = b.input("x", ElementType::Float, &[]);
        let g = b.build().unwrap();
        let scopes = Scopes::new(&g);
        assert_eq!(scopes.ints(at(0, initializer)), Some(vec![-1]));
        assert_eq!(scopes.ints(at(0, identity)), Some(vec![-1]));
        assert_eq!(scopes.ints(at(0, unsqueezed)), Some(vec![7]));
        assert_eq!(scopes.ints(at(0, float)), None);
        assert_eq!(scopes.scalar(at(0, node)), Some(0.5));
        assert_eq!(scopes.scalar(at(0, float)), Some(7.0));
        assert_eq!(scopes.scalar(at(0, x)), None);
    }

    #[test]
    fn fillings_are_found_however_they_are_made() {
        let mut b = GraphBuilder::new("g", 17);
        let even = b.initializer("even", Tensor::from_ints(&[4, 4, 4]));
        let odd = b.initializer("odd", Tensor::from_ints(&[4, 5]));
        let low = b.initializer("low", Tensor::scalar(f32::NEG_INFINITY));
        let wide = b.node("Expand", &[Some(low), Some(even)]).output();
        let zeros = b.node("ConstantOfShape", &[Some(even)]).output();
        let ones = b.node("ConstantOfShape", &[Some(even)]).attr("value", Tensor::scalar(1.0)).output();
        let g = b.build().unwrap();
        let scopes = Scopes::new(&g);
        let fill = |v| scopes.fill(at(0, v));
        assert_eq!((fill(even), fill(odd)), (Some(4.0), None));
        assert_eq!((fill(wide), fill(zeros), fill(ones)), (Some(f64::NEG_INFINITY), Some(0.0), Some(1.0)));
    }

    #[test]
    fn names_are_looked_up_outside() {
        let mut body = GraphBuilder::new("body", 17);
        let seen = body.outer("a");
        let y = body.node("Relu", &[Some(seen)]).output();
        body.output(y);
        let body = body.build().unwrap();
        let mut b = GraphBuilder::new("g", 17);
        let a = b.initializer("a", Tensor::scalar(3.0));
        let g = b.build().unwrap();
        let scopes = Scopes::new(&g).inside(&body);
        assert_eq!(scopes.resolve(at(1, seen)), at(0, a));
        assert_eq!(scopes.resolve(at(1, y)), at(1, y));
        assert_eq!(scopes.scalar(at(1, seen)), Some(3.0));
        assert_eq!(scopes.made_by(at(1, y), "Relu").unwrap().input(0), Some(at(1, seen)));
        assert!(scopes.made_by(at(1, y), "Elu").is_none());
    }

    #[test]
    fn equations_are_letters() {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &[2.into(), 3.into()]);
        let mut einsum = |equation: &str| {
            let equation = Attribute::String(equation.as_bytes().to_vec());
            b.node("Einsum", &[Some(x), Some(x)]).attr("equation", equation).output()
        };
        let (whole, open, dots) = (einsum("ij, kj -> ik"), einsum("ij,kj"), einsum("...i,ji->j"));
        let g = b.build().unwrap();
        let scopes = Scopes::new(&g);
        let equation = |v| scopes.maker(at(0, v)).unwrap().equation();
        assert_eq!(equation(whole), Some((vec![vec!['i', 'j'], vec!['k', 'j']], vec!['i', 'k'])));
        assert_eq!((equation(open), equation(dots)), (None, None));
    }

    #[test]
    fn axes_come_by_attribute_or_input() {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &[2.into(), 3.into()]);
        let axes = b.initializer("axes", Tensor::from_ints(&[-1]));
        let by_input = b.node("Unsqueeze", &[Some(x), Some(axes)]).output();
        let by_attribute = b.node("Unsqueeze", &[Some(x)]).attr("axes", vec![0i64, -1]).output();
        let none = b.node("ReduceSum", &[Some(x)]).output();
        let g = b.build().unwrap();
        let scopes = Scopes::new(&g);
        let axes = |v, rank| scopes.axes(&scopes.maker(at(0, v)).unwrap(), rank);
        assert_eq!(axes(by_input, 3), Some(vec![2]));
        assert_eq!(axes(by_attribute, 4), Some(vec![0, 3]));
        assert_eq!(axes(by_attribute, 0), None);
        assert_eq!(axes(none, 2), None);
    }
}
