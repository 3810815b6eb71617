//! Test rows for operators: one node, run by this crate and by ONNX Runtime's CPU provider with optimisations off.
//!
//! ```text
//! op_cases! {
//!     last_axis: case("Softmax", 13).x(f32s([2, 3])).attr("axis", -1) => close(tol::F32);
//!     double:    case("Softmax", 13).x(tensor(E::Double, [1], &[1.0])) => declines();
//! }
//! ```
//! 16-bit floats are compared with ONNX Runtime's float32 result on the same (rounded) inputs. Every row runs twice: with
//! shapes declared, and with every dimension of the inputs a symbol; each time lowered, and replayed from a recording that
//! was made with other values (`testing/ours.rs`) or, where the operator allows it, sizes (`testing/other_sizes.rs`).

use std::collections::BTreeMap;
use std::sync::OnceLock;

use half::{bf16, f16};
use onnx_graph::{
    Attribute, Dim, Graph, GraphBuilder, Shape, Tensor, TensorType, ValueId, ValueType, write_bytes,
};
use ort::session::{Session, SessionInputValue, builder::GraphOptimizationLevel};
use ort::value::TensorElementType;

pub(crate) mod graphs;
mod in_scan;
mod other_sizes;
mod ours;
pub(crate) mod text;

pub(crate) use onnx_graph::ElementType as E;

/// Named tolerances: relative and absolute.
pub(crate) mod tol {
    pub(crate) type Tolerance = (f64, f64);
    pub(crate) const F32: Tolerance = (1e-5, 1e-6);
    /// For long sums: products of matrices, convolutions, reductions over many elements.
    pub(crate) const F32_SUM: Tolerance = (1e-4, 1e-5);
    pub(crate) const F16: Tolerance = (4e-3, 2e-3);
    pub(crate) const BF16: Tolerance = (3e-2, 1.5e-2);
}

/// What a row expects.
pub(crate) enum Expect {
    /// Floats within a tolerance, everything else equal.
    Close(tol::Tolerance),
    /// The claim says no.
    Declines,
    /// ONNX Runtime's run and ours both fail; ours with a message that holds this.
    Fails(&'static str),
}

pub(crate) fn close(tolerance: tol::Tolerance) -> Expect {
    Expect::Close(tolerance)
}

pub(crate) fn exact() -> Expect {
    Expect::Close((0.0, 0.0))
}

pub(crate) fn declines() -> Expect {
    Expect::Declines
}

pub(crate) fn fails(message: &'static str) -> Expect {
    Expect::Fails(message)
}

#[derive(Clone)]
struct Given {
    tensor: Tensor<'static>,
    constant: bool,
}

/// One node with its inputs.
#[derive(Clone)]
pub(crate) struct Case {
    op: &'static str,
    opset: i64,
    domain: &'static str,
    inputs: Vec<Option<Given>>,
    attributes: Vec<(&'static str, Attribute<'static>)>,
    outputs: usize,
    /// Whether the inputs' ranks are declared.
    ranked: bool,
}

/// A node of ai.onnx under the rules of `opset`.
pub(crate) fn case(op: &'static str, opset: i64) -> Case {
    Case { op, opset, domain: "", inputs: Vec::new(), attributes: Vec::new(), outputs: 1, ranked: true }
}

impl Case {
    /// The next input, given at run time.
    pub(crate) fn x(mut self, tensor: Tensor<'static>) -> Self {
        self.inputs.push(Some(Given { tensor, constant: false }));
        self
    }

    /// The next input, as an initializer.
    pub(crate) fn c(mut self, tensor: Tensor<'static>) -> Self {
        self.inputs.push(Some(Given { tensor, constant: true }));
        self
    }

    /// Leaves the next input out.
    pub(crate) fn none(mut self) -> Self {
        self.inputs.push(None);
        self
    }

    pub(crate) fn attr(mut self, name: &'static str, value: impl Into<Attribute<'static>>) -> Self {
        self.attributes.push((name, value.into()));
        self
    }

    /// How many outputs to ask for; 1 unless said.
    pub(crate) fn outputs(mut self, count: usize) -> Self {
        self.outputs = count;
        self
    }

    /// Leaves the shapes of inputs open: ONNX Runtime's shape inference would refuse what its kernels take.
    pub(crate) fn unranked(mut self) -> Self {
        self.ranked = false;
        self
    }

    pub(crate) fn microsoft(mut self) -> Self {
        self.domain = "com.microsoft";
        self
    }

    /// Runs the row in every form.
    pub(crate) fn check(&self, expect: &Expect) {
        if let Expect::Declines = expect {
            let graph = self.graph(&self.inputs, &self.guessed_types(), false);
            assert!(
                engine().claim(&graph, &|_| None).expect("no cycle").nodes[0].is_err(),
                "claimed, but should be declined"
            );
            return;
        }
        let reference = self.reference();
        for symbolic in [false, true] {
            let types: Vec<Option<TensorType>> = match &reference {
                Ok(outputs) => outputs.iter().map(|t| Some(self.declared(t))).collect(),
                Err(_) => vec![None; self.outputs],
            };
            let result = self.ours(&types, symbolic);
            match (expect, &reference, result) {
                (Expect::Close(tolerance), Ok(wanted), Ok(got)) => {
                    assert_eq!(wanted.len(), got.len(), "number of outputs");
                    for (i, (wanted, got)) in wanted.iter().zip(&got).enumerate() {
                        compare(i, wanted, got, *tolerance);
                    }
                    if symbolic {
                        self.check_in_scan(wanted, &types, *tolerance);
                        self.check_other_sizes(wanted, &types, *tolerance);
                    }
                }
                (Expect::Close(_), Err(error), _) => panic!("ONNX Runtime refuses the row: {error}"),
                (Expect::Close(_), Ok(_), Err(error)) => panic!("ours failed (symbolic {symbolic}): {error}"),
                (Expect::Fails(message), Err(_), Err(error)) => {
                    assert!(error.contains(message), "our message is '{error}'");
                }
                (Expect::Fails(_), Ok(_), _) => panic!("ONNX Runtime does not fail"),
                (Expect::Fails(_), Err(error), Ok(_)) => {
                    panic!("ours does not fail, ONNX Runtime says: {error}")
                }
                (Expect::Declines, ..) => unreachable!("handled above"),
            }
        }
    }

    /// The half types of outputs were widened for the reference: narrow them back where an input is half.
    fn declared(&self, reference: &Tensor<'_>) -> TensorType {
        let half = self.inputs.iter().flatten().map(|g| g.tensor.element()).find(|e| is_half(*e));
        let element = match (reference.element(), half) {
            (E::Float, Some(half)) if !self.attributes.iter().any(|(n, _)| matches!(*n, "to" | "dtype")) => {
                half
            }
            (element, _) => element,
        };
        TensorType { element, shape: Some(Shape::fixed(reference.dims())) }
    }

    /// For rows without a reference: the type that an attribute names, or else the first input's.
    fn guessed_types(&self) -> Vec<Option<TensorType>> {
        let named = self.attributes.iter().find_map(|(name, value)| match (*name, value) {
            ("to" | "dtype", Attribute::Int(number)) => E::from_onnx(*number as i32),
            _ => None,
        });
        let first = || self.inputs.iter().flatten().next().map(|g| g.tensor.element());
        let element = named.or_else(first).unwrap_or(E::Float);
        vec![Some(TensorType { element, shape: None }); self.outputs]
    }

    fn graph(
        &self,
        inputs: &[Option<Given>],
        types: &[Option<TensorType>],
        symbolic: bool,
    ) -> Graph<'static> {
        let mut b = GraphBuilder::new("case", self.opset);
        let mut values = Vec::new();
        for (i, given) in inputs.iter().enumerate() {
            values.push(given.as_ref().map(|given| {
                let name = format!("x{i}");
                if given.constant {
                    return b.initializer(&name, given.tensor.clone());
                }
                let dims: Vec<Dim> = (given.tensor.dims().iter().enumerate())
                    .map(|(d, &n)| if symbolic { Dim::Symbol(format!("d{i}_{d}")) } else { n.into() })
                    .collect();
                let element = given.tensor.element();
                let shape = self.ranked.then_some(Shape(dims));
                b.input_of(&name, ValueType::Tensor(TensorType { element, shape }))
            }));
        }
        let mut node = b.node(self.op, &values).name("under_test");
        if !self.domain.is_empty() {
            node = node.domain(self.domain, 1);
        }
        for (name, value) in &self.attributes {
            node = node.attr(name, value.clone());
        }
        let names: Vec<String> = (0..types.len()).map(|i| format!("y{i}")).collect();
        let outputs = node.outputs_as(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for output in outputs.iter().flatten() {
            b.output(*output);
        }
        let mut graph = b.build().expect("a well-formed case");
        for (output, ty) in outputs.iter().zip(types) {
            if let (Some(output), Some(ty)) = (output, ty) {
                graph.set_type(*output, ValueType::Tensor(ty.clone()));
            }
        }
        graph
    }

    /// ONNX Runtime's answer, in float32 where an input is a 16-bit float.
    fn reference(&self) -> Result<Vec<Tensor<'static>>, String> {
        let widen = |given: &Given| Given { tensor: widen(&given.tensor), constant: given.constant };
        let inputs: Vec<Option<Given>> = self.inputs.iter().map(|g| g.as_ref().map(widen)).collect();
        let graph = self.graph(&inputs, &vec![None; self.outputs], false);
        let opsets = BTreeMap::from([(String::new(), self.opset), ("com.microsoft".to_owned(), 1)]);
        let bytes = write_bytes(&graph, &opsets, 8);
        let runtime: Vec<(String, Tensor<'static>)> = (inputs.into_iter().enumerate())
            .filter_map(|(i, g)| g.filter(|g| !g.constant).map(|g| (format!("x{i}"), g.tensor)))
            .collect();
        run_on_ort_cpu(&bytes, &runtime).map_err(|e| e.to_string())
    }

    fn ours(&self, types: &[Option<TensorType>], symbolic: bool) -> Result<Vec<Tensor<'static>>, String> {
        let mut types = types.to_vec();
        if types.iter().any(Option::is_none) {
            types = self.guessed_types();
        }
        let graph = self.graph(&self.inputs, &types, symbolic);
        if let Err(decline) = &engine().claim(&graph, &|_| None).expect("no cycle").nodes[0] {
            panic!("declined (symbolic {symbolic}): {decline}");
        }
        run_ours(&graph, &self.given())
    }

    /// The tensors that are given at run time.
    fn given(&self) -> Vec<&Tensor<'static>> {
        self.inputs.iter().flatten().filter(|given| !given.constant).map(|given| &given.tensor).collect()
    }
}

/// Compares two nodes, the second of which takes the output of the first after inputs of its own; both results are of type
/// `element`.
pub(crate) fn chain(first: &Case, element: E, second: &Case, tolerance: tol::Tolerance) {
    let mut b = GraphBuilder::new("chain", second.opset);
    let mut given = Vec::new();
    let mut values = |b: &mut GraphBuilder<'static>, case: &Case, prefix: &str| -> Vec<Option<ValueId>> {
        let add = |(i, input): (usize, &Option<Given>)| {
            let Given { tensor, constant } = input.as_ref()?;
            let name = format!("{prefix}{i}");
            if *constant {
                return Some(b.initializer(&name, tensor.clone()));
            }
            given.push((name.clone(), tensor.clone()));
            let dims: Vec<Dim> = tensor.dims().iter().map(|&n| n.into()).collect();
            Some(b.input(&name, tensor.element(), &dims))
        };
        case.inputs.iter().enumerate().map(add).collect()
    };
    let (inputs, mut others) = (values(&mut b, first, "a"), values(&mut b, second, "b"));
    let mut end = None;
    for (case, name) in [(first, "between"), (second, "y")] {
        let inputs = if name == "y" { &others } else { &inputs };
        let mut node = b.node(case.op, inputs).name(name);
        for (name, value) in &case.attributes {
            node = node.attr(name, value.clone());
        }
        end = Some(node.output_as(name));
        others.push(end);
    }
    let end = end.expect("two nodes");
    b.output(end);
    let mut graph = b.build().expect("a well-formed chain");
    for value in others.into_iter().rev().take(2).flatten() {
        graph.set_type(value, ValueType::Tensor(TensorType { element, shape: None }));
    }
    let bytes = write_bytes(&graph, &BTreeMap::from([(String::new(), second.opset)]), 8);
    let wanted = run_on_ort_cpu(&bytes, &given).expect("ONNX Runtime runs it");
    let tensors: Vec<&Tensor<'_>> = given.iter().map(|(_, tensor)| tensor).collect();
    compare(0, &wanted[0], &run_ours(&graph, &tensors).expect("ours runs it")[0], tolerance);
}

pub(crate) use ours::{engine, run_ours};

/// Calls `$go!(Rust type)` for the Rust type of a runtime element type, or panics.
macro_rules! with_type {
    ($element:expr, $go:ident, $($args:tt)*) => {
        match $element {
            E::Float => $go!(f32, $($args)*),
            E::Double => $go!(f64, $($args)*),
            E::Int8 => $go!(i8, $($args)*),
            E::Int16 => $go!(i16, $($args)*),
            E::Int32 => $go!(i32, $($args)*),
            E::Int64 => $go!(i64, $($args)*),
            E::Uint8 => $go!(u8, $($args)*),
            E::Uint16 => $go!(u16, $($args)*),
            E::Uint32 => $go!(u32, $($args)*),
            E::Uint64 => $go!(u64, $($args)*),
            other => panic!("no test values of type {other}"),
        }
    };
}

/// ONNX Runtime, loaded from where the workspace's cargo configuration says `cargo xtask deps` put it.
fn environment() -> &'static ort::environment::Environment {
    static ENVIRONMENT: OnceLock<ort::environment::Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let library = std::env::var("ORT_DYLIB_PATH").expect("cargo sets ORT_DYLIB_PATH");
        ort::init_from(library).expect("ONNX Runtime's library").build().expect("an environment")
    })
}

/// Runs a model on ONNX Runtime's CPU provider, optimisations off.
pub(crate) fn run_on_ort_cpu(
    model: &[u8],
    inputs: &[(String, Tensor<'static>)],
) -> ort::Result<Vec<Tensor<'static>>> {
    let mut session = Session::builder(environment())?
        .with_optimization_level(GraphOptimizationLevel::Disable)
        .map_err(ort::Error::<()>::from)?
        .with_intra_threads(1)
        .map_err(ort::Error::<()>::from)?
        .commit_from_memory(model)?;
    let mut feeds: Vec<(String, SessionInputValue<'_>)> = Vec::new();
    for (name, tensor) in inputs {
        macro_rules! feed {
            ($ty:ty, $tensor:expr) => {{
                let values: Vec<$ty> =
                    $tensor.data().as_chunks().0.iter().map(|&b| <$ty>::from_le_bytes(b)).collect();
                ort::value::Tensor::from_array(($tensor.dims().to_vec(), values))?.into_dyn()
            }};
        }
        let value = match tensor.element() {
            E::Bool => {
                let values: Vec<bool> = tensor.data().iter().map(|&b| b != 0).collect();
                ort::value::Tensor::from_array((tensor.dims().to_vec(), values))?.into_dyn()
            }
            element => with_type!(element, feed, tensor),
        };
        feeds.push((name.clone(), value.into()));
    }
    let outputs = session.run(feeds)?;
    let mut results = Vec::new();
    for (_, value) in outputs.iter() {
        let element = match value.dtype().tensor_type() {
            Some(TensorElementType::Bool) => {
                let (shape, data) = value.try_extract_tensor::<bool>()?;
                let dims: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
                let bytes: Vec<u8> = data.iter().map(|&b| u8::from(b)).collect();
                results.push(Tensor::new(E::Bool, dims, bytes).expect("ONNX Runtime's own sizes"));
                continue;
            }
            Some(TensorElementType::Float32) => E::Float,
            Some(TensorElementType::Float64) => E::Double,
            Some(TensorElementType::Int8) => E::Int8,
            Some(TensorElementType::Int16) => E::Int16,
            Some(TensorElementType::Int32) => E::Int32,
            Some(TensorElementType::Int64) => E::Int64,
            Some(TensorElementType::Uint8) => E::Uint8,
            Some(TensorElementType::Uint16) => E::Uint16,
            Some(TensorElementType::Uint32) => E::Uint32,
            Some(TensorElementType::Uint64) => E::Uint64,
            other => panic!("an output of type {other:?}"),
        };
        macro_rules! read {
            ($ty:ty, $value:expr) => {{
                let (shape, data) = $value.try_extract_tensor::<$ty>()?;
                let dims: Vec<usize> = shape.iter().map(|&d| d as usize).collect();
                let bytes: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
                Tensor::new(element, dims, bytes).expect("ONNX Runtime's own sizes")
            }};
        }
        results.push(with_type!(element, read, value));
    }
    Ok(results)
}

fn compare(index: usize, wanted: &Tensor<'_>, got: &Tensor<'_>, (relative, absolute): tol::Tolerance) {
    assert_eq!(wanted.dims(), got.dims(), "shape of output {index}");
    let values =
        |t: &Tensor<'_>| t.floats().or_else(|| Some(t.ints()?.into_iter().map(|v| v as f64).collect()));
    if wanted.element() == E::Uint64 {
        let values = |t: &Tensor<'_>| -> Vec<u64> {
            t.data().as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect()
        };
        assert_eq!(got.element(), E::Uint64, "type of output {index}");
        assert_eq!(values(wanted), values(got), "output {index}");
        return;
    }
    if let (Some(w), Some(g)) = (wanted.ints(), got.ints()) {
        assert_eq!(wanted.element(), got.element(), "type of output {index}");
        assert_eq!(w, g, "output {index}");
        return;
    }
    let (mut w, g) = (values(wanted).expect("numbers"), values(got).expect("numbers"));
    if is_half(got.element()) {
        w = tensor(got.element(), wanted.dims(), &w).floats().expect("floats");
    }
    for (at, (&w, &g)) in w.iter().zip(&g).enumerate() {
        let same = w == g || (w.is_nan() && g.is_nan());
        let near = (w - g).abs() <= absolute + relative * w.abs();
        assert!(same || near, "output {index} at {at}: {g}, should be {w}");
    }
}

fn is_half(element: E) -> bool {
    matches!(element, E::Float16 | E::Bfloat16)
}

fn widen(tensor: &Tensor<'static>) -> Tensor<'static> {
    match tensor.floats() {
        Some(values) if is_half(tensor.element()) => {
            let data: Vec<u8> = values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect();
            Tensor::new(E::Float, tensor.dims(), data).expect("as many values")
        }
        _ => tensor.clone(),
    }
}

/// A tensor of any numeric or boolean type from values.
pub(crate) fn tensor(element: E, dims: impl Into<Vec<usize>>, values: &[f64]) -> Tensor<'static> {
    macro_rules! bytes {
        ($ty:ty, $values:expr) => {
            $values.iter().flat_map(|&v| (v as $ty).to_le_bytes()).collect::<Vec<u8>>()
        };
    }
    let data: Vec<u8> = match element {
        E::Bool => values.iter().map(|&v| u8::from(v != 0.0)).collect(),
        E::Float16 => values.iter().flat_map(|&v| f16::from_f64(v).to_le_bytes()).collect(),
        E::Bfloat16 => values.iter().flat_map(|&v| bf16::from_f64(v).to_le_bytes()).collect(),
        _ => with_type!(element, bytes, values),
    };
    Tensor::new(element, dims, data).expect("as many values as the shape asks for")
}

/// An int64 tensor of rank 1.
pub(crate) fn i64s(values: &[i64]) -> Tensor<'static> {
    Tensor::from_ints(values)
}

/// Seeded values between -2 and 2, by shape: the same row always sees the same numbers.
pub(crate) fn random(element: E, dims: impl Into<Vec<usize>>) -> Tensor<'static> {
    uniform(element, dims, -2.0, 2.0)
}

/// Seeded values between `low` and `high`; integers include both.
pub(crate) fn uniform(element: E, dims: impl Into<Vec<usize>>, low: f64, high: f64) -> Tensor<'static> {
    let dims = dims.into();
    let mut state =
        dims.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |s, &d| s.wrapping_mul(31).wrapping_add(d as u64 + 1));
    let values: Vec<f64> = (0..dims.iter().product())
        .map(|_| {
            // SplitMix64 (Steele, Lea, Flood 2014).
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
            if element.is_float() {
                low + unit * (high - low)
            } else {
                (low + unit * (high - low + 1.0)).floor().min(high)
            }
        })
        .collect();
    tensor(element, dims, &values)
}

/// Seeded float32 values between -2 and 2.
pub(crate) fn f32s(dims: impl Into<Vec<usize>>) -> Tensor<'static> {
    random(E::Float, dims)
}

/// Declares one `#[test]` a row; see the module's documentation.
macro_rules! op_cases {
    ($($(#[$meta:meta])* $name:ident: $case:expr => $expect:expr;)*) => {$(
        #[test]
        $(#[$meta])*
        fn $name() {
            $case.check(&$expect);
        }
    )*};
}
pub(crate) use op_cases;
