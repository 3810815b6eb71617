//! Graphs run by this crate on MLX's CPU back end, in every way: lowered anew, recorded, and replayed.

use onnx_graph::{ElementType, Graph, Tensor};

use crate::{Elements, Engine, Executable, Options, OutputSink, TensorView};

type Outputs = Vec<Tensor<'static>>;

/// An engine that takes everything.
pub(crate) fn engine() -> Engine {
    engine_with("auto")
}

fn engine_with(compile: &str) -> Engine {
    let options = [("claim", "all"), ("device", "cpu"), ("compile", compile)];
    Engine::new(&Options::parse(options).expect("valid options")).expect("a CPU")
}

/// Compiles `graph` and runs it: without recordings, and with one that was made for the same inputs with their elements in
/// another order, where that can be. All agree to the bit.
pub(crate) fn run_ours(graph: &Graph<'_>, inputs: &[&Tensor<'_>]) -> Result<Outputs, String> {
    let compile = |engine: Engine| engine.compile(graph).map_err(|e| e.to_string());
    let eager = run(&compile(engine_with("off"))?, graph, inputs);
    let executable = compile(engine())?;
    let others: Vec<Tensor<'static>> = inputs.iter().map(|t| rotated(t)).collect();
    // What other values make of the operator is not what is tested here.
    let _ = run(&executable, graph, &others.iter().collect::<Vec<_>>());
    for _ in 0..2 {
        let recorded = run(&executable, graph, inputs);
        match (&eager, &recorded) {
            (Ok(eager), Ok(recorded)) => {
                for (i, (eager, recorded)) in eager.iter().zip(recorded).enumerate() {
                    assert_eq!(eager.dims(), recorded.dims(), "shape of output {i}, lowered and recorded");
                    assert_eq!(eager.data(), recorded.data(), "output {i}, lowered and recorded");
                }
            }
            // A message has more to say where a value is known on the host.
            (Err(_), Err(_)) => {}
            _ => panic!("lowered: {eager:?}, recorded: {recorded:?}"),
        }
    }
    eager
}

/// One run.
pub(super) fn run(
    executable: &Executable,
    graph: &Graph<'_>,
    inputs: &[&Tensor<'_>],
) -> Result<Outputs, String> {
    struct Sink(Vec<Option<Tensor<'static>>>);
    impl OutputSink for Sink {
        fn write(
            &mut self,
            index: usize,
            element: ElementType,
            shape: &[usize],
            elements: Elements<'_>,
        ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
            self.0[index] = Some(Tensor::new(element, shape, elements.to_vec()?)?);
            Ok(())
        }
    }
    let views: Vec<TensorView<'_>> =
        inputs.iter().map(|t| TensorView { element: t.element(), shape: t.dims(), data: t.data() }).collect();
    let mut sink = Sink(vec![None; graph.outputs().len()]);
    executable.run(&views, &mut sink).map_err(|e| e.to_string())?;
    Ok(sink.0.into_iter().map(|t| t.expect("every output was written")).collect())
}

/// The same elements, each one place further.
pub(super) fn rotated(tensor: &Tensor<'_>) -> Tensor<'static> {
    let mut data = tensor.data().to_vec();
    if !data.is_empty() {
        let size = data.len() / tensor.len();
        data.rotate_right(size);
    }
    Tensor::new(tensor.element(), tensor.dims(), data).expect("as many bytes")
}
