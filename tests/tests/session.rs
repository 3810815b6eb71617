//! Sessions of Rust programs: the `ort` crate, stock ONNX Runtime and the plugin.

use onnx_graph::{ElementType, GraphBuilder, Tensor as Constant};
use ort::session::Session;
use ort::value::Tensor;
use ort_mlx_tests::{EP_NAME, environment, model, session};

/// y = max(x W + 1, 0) for x (N, 3), W (3, 2).
fn dense() -> Vec<u8> {
    let mut b = GraphBuilder::new("dense", 17);
    let x = b.input("x", ElementType::Float, &["N".into(), 3.into()]);
    let weights: Vec<u8> = [1.0f32, -2.0, 3.0, 4.0, -5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let w = b.initializer("w", Constant::new(ElementType::Float, [3, 2], weights).expect("24 bytes"));
    let one = b.initializer("one", Constant::scalar(1.0));
    let product = b.node("MatMul", &[Some(x), Some(w)]).output();
    let sum = b.node("Add", &[Some(product), Some(one)]).output();
    let y = b.node("Relu", &[Some(sum)]).output_as("y");
    b.output(y);
    model(&b.build().expect("a well-formed graph"), 17)
}

fn run(session: &mut Session, rows: usize, x: &[f32]) -> ort::Result<Vec<f32>> {
    let outputs = session.run(ort::inputs!["x" => Tensor::from_array(([rows, 3], x.to_vec()))?])?;
    let (_, y) = outputs["y"].try_extract_tensor::<f32>()?;
    Ok(y.to_vec())
}

#[test]
fn runs_and_takes_other_sizes_later() {
    let mut session = session(&dense(), &[("claim", "all"), ("device", "cpu")]).unwrap();
    assert_eq!(run(&mut session, 1, &[1.0, 1.0, 1.0]).unwrap(), [0.0, 9.0]);
    assert_eq!(run(&mut session, 2, &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]).unwrap(), [2.0, 0.0, 4.0, 5.0]);
    assert_eq!(run(&mut session, 0, &[]).unwrap(), []);
}

#[test]
fn nothing_claimed_is_right_too() {
    let mut session = session(&dense(), &[("claim", "none")]).unwrap();
    assert_eq!(run(&mut session, 1, &[1.0, 1.0, 1.0]).unwrap(), [0.0, 9.0]);
}

#[test]
fn unknown_options_are_refused_with_what_there_is() {
    let error = session(&dense(), &[("devise", "gpu")]).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("unknown option 'devise'") && error.contains("claim (auto, all or none)"),
        "{error}"
    );
}

#[test]
fn the_device_names_its_provider() {
    let devices: Vec<_> =
        environment().devices().filter(|d| d.ep().is_ok_and(|name| name == EP_NAME)).collect();
    assert!(!devices.is_empty());
    assert_eq!(devices[0].ep_vendor().unwrap(), "ort-mlx");
}

/// y of a `SelectiveScan` (ai.ortmlx) with sizes T, B = D = N = 1.
fn scan() -> Vec<u8> {
    let mut b = GraphBuilder::new("scan", 17);
    let mut input = |name: &str, dims: &[onnx_graph::Dim]| Some(b.input(name, ElementType::Float, dims));
    let series = || ["T".into(), 1.into(), 1.into()];
    let inputs = [
        input("dt", &series()),
        input("x", &series()),
        input("b", &series()),
        input("c", &series()),
        input("A", &[1.into(), 1.into()]),
    ];
    let y = b.node("SelectiveScan", &inputs).domain("ai.ortmlx", 1).output_as("y");
    b.output(y);
    model(&b.build().expect("a well-formed graph"), 17)
}

#[test]
fn operators_of_our_own_run() {
    let mut session = session(&scan(), &[("claim", "none")]).unwrap();
    let series = |values: [f32; 2]| Tensor::from_array(([2, 1, 1], values.to_vec())).unwrap();
    let outputs = session
        .run(ort::inputs![
            "dt" => series([1.0, 2.0]),
            "x" => series([3.0, 4.0]),
            "b" => series([1.0, 1.0]),
            "c" => series([1.0, -1.0]),
            "A" => Tensor::from_array(([1, 1], vec![-1.0f32])).unwrap(),
        ])
        .unwrap();
    let (_, y) = outputs["y"].try_extract_tensor::<f32>().unwrap();
    // h[0] = 1 * 3 and h[1] = exp(-2) h[0] + 2 * 4.
    let wanted = [3.0, -(3.0 * (-2.0f64).exp() + 8.0) as f32];
    assert!(y.iter().zip(wanted).all(|(y, w)| (y - w).abs() < 1e-5), "{y:?}");
}

/// The `ort` crate's sessions let ONNX Runtime choose among the devices, unless told otherwise.
#[test]
fn a_session_that_chooses_its_device_has_the_operators() {
    Session::builder(environment()).unwrap().commit_from_memory(&scan()).unwrap();
}
