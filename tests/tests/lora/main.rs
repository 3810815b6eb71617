//! Fine-tuning with LoRA adapters: the ONNX graph through ONNX Runtime learns what the program on mlx-safe learns.

mod file;

/// The program.
#[path = "../../../crates/kernels-metal/examples/lora.rs"]
#[expect(dead_code, reason = "its main")]
mod program;

use ort::session::Session;
use ort_mlx_tests::lora::{Attention, Start, step, train};
use ort_mlx_tests::{cpu_session, model, session};

/// Rounding grows from step to step.
const STEPS: usize = 40;

fn losses(mut session: Session, start: &Start) -> Vec<f32> {
    train(&mut session, start, STEPS).expect("it runs")
}

#[test]
fn the_graph_learns_as_the_program_does() {
    let path = std::env::temp_dir().join(format!("ort-mlx-lora-{}.safetensors", std::process::id()));
    let path = path.to_str().unwrap();
    program::fine_tune(Some(path)).unwrap();
    let (start, wanted) = file::load(path).unwrap();
    std::fs::remove_file(path).unwrap();
    let graph = |attention| model(&step(&start, attention).unwrap(), 17);
    let trace = format!("{path}.jsonl");
    let options = [("claim", "all"), ("device", "cpu"), ("trace", trace.as_str())];
    let spelled = graph(Attention::Spelled);
    let runs = [
        ("operators", losses(session(&graph(Attention::Operators), &options[..2]).unwrap(), &start)),
        ("spelled", losses(session(&spelled, &options).unwrap(), &start)),
        ("ONNX Runtime alone", losses(cpu_session(&spelled).unwrap(), &start)),
    ];
    let lines = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    let fused = |kernel: &str| {
        let events = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        events.filter(|event| event["event"] == "fused" && event["kernel"] == kernel).count()
    };
    assert_eq!((fused("attention/host"), fused("attention_grad/host")), (2, 2), "one for each layer");
    assert!(wanted[STEPS - 1] < 0.7 * wanted[0], "nothing to learn: {wanted:?}");
    for (name, losses) in runs {
        for (i, (got, wanted)) in losses.iter().zip(&wanted).enumerate() {
            assert!((got - wanted).abs() < 2e-3 * wanted, "{name}, step {}: {got}, not {wanted}", i + 1);
        }
    }
}
