//! What a run through ONNX Runtime and the plugin costs, beside ONNX Runtime's CPU provider and beside the same network
//! written in mlx-safe and compiled: `cargo bench -p ort-mlx-tests --bench run_path`, with parts of rows' names to choose, and
//! `--json=FILE` for a file with an object for every row.
//!
//! Rows run on the GPU if MLX sees one. All sides take turns and start and end with tensors in host memory. Where both run
//! one network, their results are compared before anything is timed.
#![allow(clippy::unwrap_used)] // A bench: it stops where something fails.

mod encoder;
mod onnx;
mod resnet;
mod weights;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use half::f16;
use mlx_safe::{Array, Closure, Device, Stream};
use ort::session::Session;
use ort::value::TensorRef;
use weights::{Precision, Random};

/// How long the sides of one row take turns on a CPU and on a GPU, after they are warm.
const SECONDS: [f64; 2] = [8.0, 2.0];

/// How long a turn takes at least.
const BLOCK: Duration = Duration::from_millis(50);

/// Elements in host memory.
enum Elements {
    Float32(Vec<f32>),
    Float16(Vec<f16>),
}

impl Elements {
    fn new(values: Vec<f32>, precision: Precision) -> Self {
        match precision {
            Precision::Float32 => Self::Float32(values),
            Precision::Float16 => Self::Float16(values.into_iter().map(f16::from_f32).collect()),
        }
    }

    fn floats(&self) -> Vec<f32> {
        match self {
            Self::Float32(values) => values.clone(),
            Self::Float16(values) => values.iter().map(|v| v.to_f32()).collect(),
        }
    }
}

/// A tensor in host memory.
struct Tensor {
    shape: Vec<usize>,
    elements: Elements,
}

/// One side of a row: a call and what it was seen to take.
struct Side<'a> {
    name: &'static str,
    call: Box<dyn FnMut() -> Elements + 'a>,
    first: Duration,
    times: Vec<Duration>,
}

impl<'a> Side<'a> {
    /// Calls once, for what that takes and gives.
    fn new(name: &'static str, mut call: Box<dyn FnMut() -> Elements + 'a>) -> (Self, Vec<f32>) {
        let start = Instant::now();
        let result = call();
        (Self { name, call, first: start.elapsed(), times: Vec::new() }, result.floats())
    }

    fn time(&mut self) {
        let start = Instant::now();
        std::hint::black_box((self.call)());
        self.times.push(start.elapsed());
    }

    fn median(&mut self) -> Duration {
        self.times.sort();
        self.times[self.times.len() / 2]
    }
}

/// Lets the sides take turns of a block of calls each. The first call of a block does not count: the threads of the side
/// before may still be spinning.
fn take_turns(sides: &mut [Side<'_>], seconds: f64) {
    let start = Instant::now();
    let mut rounds = 0;
    while rounds < 5 || start.elapsed().as_secs_f64() < seconds {
        for side in &mut *sides {
            let block = Instant::now();
            let before = side.times.len();
            side.time();
            while side.times.len() - before < 2 || block.elapsed() < BLOCK {
                side.time();
            }
            side.times.remove(before);
        }
        rounds += 1;
    }
}

fn run(session: &mut Session, x: &Tensor) -> Elements {
    let shape = x.shape.clone();
    match &x.elements {
        Elements::Float32(values) => {
            let input = TensorRef::from_array_view((shape, &values[..])).unwrap();
            let outputs = session.run(ort::inputs!["x" => input]).unwrap();
            Elements::Float32(outputs["y"].try_extract_tensor().unwrap().1.to_vec())
        }
        Elements::Float16(values) => {
            let input = TensorRef::from_array_view((shape, &values[..])).unwrap();
            let outputs = session.run(ort::inputs!["x" => input]).unwrap();
            Elements::Float16(outputs["y"].try_extract_tensor().unwrap().1.to_vec())
        }
    }
}

fn apply(network: &Closure, x: &Tensor) -> Elements {
    let shape: Vec<i32> = x.shape.iter().map(|&dim| dim as i32).collect();
    let input = match &x.elements {
        Elements::Float32(values) => Array::from_slice(values, &shape),
        Elements::Float16(values) => Array::from_slice(values, &shape),
    };
    let output = network.apply(&[input.unwrap()]).unwrap().remove(0);
    match x.elements {
        Elements::Float32(_) => Elements::Float32(output.to_vec().unwrap()),
        Elements::Float16(_) => Elements::Float16(output.to_vec().unwrap()),
    }
}

/// The largest difference over the largest value.
fn error(of: &[f32], from: &[f32]) -> f32 {
    assert_eq!(of.len(), from.len());
    let scale = from.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
    of.iter().zip(from).fold(0.0, |m: f32, (a, b)| m.max((a - b).abs())) / scale
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The table of networks, and the file that has the same rows.
struct Report {
    gpu: bool,
    seconds: f64,
    json: Option<File>,
    wanted: Vec<String>,
}

impl Report {
    /// What the arguments ask for.
    fn new(arguments: impl Iterator<Item = String>, gpu: bool) -> Self {
        let (flags, wanted): (Vec<_>, Vec<_>) = arguments.partition(|a| a.starts_with('-'));
        let path = flags.iter().find_map(|flag| flag.strip_prefix("--json="));
        println!("| network | first ms | EP ms | mlx-safe ms | EP / mlx-safe | ORT CPU ms | EP / ORT CPU |");
        println!("|---|--:|--:|--:|--:|--:|--:|");
        Self {
            gpu,
            seconds: SECONDS[usize::from(gpu)],
            json: path.map(|path| File::create(path).unwrap()),
            wanted,
        }
    }

    fn asks_for(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|part| name.contains(part.as_str()))
    }

    /// Measures and reports a row. A GPU slows down while the CPU computes, so there ONNX Runtime's CPU provider only says what
    /// is right, unless it is all that there is to compare with.
    fn row(&mut self, name: &str, model: &[u8], network: Option<&Closure>, x: &Tensor, with_cpu: bool) {
        let mut ours = ort_mlx_tests::session(model, &[("claim", "all")]).unwrap();
        let mut cpu = with_cpu.then(|| ort_mlx_tests::cpu_session(model).unwrap());
        let (ep, result) = Side::new("EP", Box::new(|| run(&mut ours, x)));
        let mut sides = vec![ep];
        let others = [
            network.map(|n| Side::new("mlx-safe", Box::new(|| apply(n, x)))),
            cpu.as_mut().map(|session| Side::new("ORT CPU", Box::new(|| run(session, x)))),
        ];
        let tolerance = if matches!(x.elements, Elements::Float16(_)) { 5e-2 } else { 1e-3 };
        for (side, expected) in others.into_iter().flatten() {
            let error = error(&result, &expected);
            assert!(error < tolerance, "{name}: differs from {} by {error:e}", side.name);
            if sides.len() == 1 || !self.gpu {
                sides.push(side);
            }
        }
        take_turns(&mut sides, self.seconds);
        let first = milliseconds(sides[0].first);
        let ms: Vec<(&str, f64)> = sides.iter_mut().map(|s| (s.name, milliseconds(s.median()))).collect();
        let of = |side: &str| ms.iter().find(|(name, _)| *name == side).map(|(_, ms)| *ms);
        let beside = |side: &str| {
            of(side)
                .map_or_else(|| "- | -".to_owned(), |other| format!("{other:.3} | {:.2}", ms[0].1 / other))
        };
        println!("| {name} | {first:.1} | {:.3} | {} | {} |", ms[0].1, beside("mlx-safe"), beside("ORT CPU"));
        if let Some(file) = &mut self.json {
            let sides: BTreeMap<_, _> = ms.into_iter().collect();
            writeln!(file, "{}", serde_json::json!({ "name": name, "first_ms": first, "ms": sides }))
                .unwrap();
        }
    }
}

/// y = x + x over one element.
fn add() -> Vec<u8> {
    let (mut onnx, x) = onnx::Onnx::new(Precision::Float32, &[1.into()]);
    let y = onnx.op("Add", &[x, x]);
    onnx.model(y, &[1.into()])
}

fn main() {
    ort_mlx_tests::environment();
    let gpu = Device::GPU.is_available().unwrap();
    if gpu {
        mlx_safe::environment::set_defaults();
    }
    let device = if gpu { Device::GPU } else { Device::CPU };
    device.set_default().unwrap();
    Stream::default_on(device).unwrap().set_current();
    println!("on the {}\n", if gpu { "GPU" } else { "CPU" });
    let mut report = Report::new(std::env::args().skip(1), gpu);
    let mut random = Random(3);
    let mut input = |shape: &[usize], precision| {
        let values = random.weight(shape, 0.0, 1.5).values;
        Tensor { shape: shape.to_vec(), elements: Elements::new(values, precision) }
    };
    if report.asks_for("Add, one element") {
        report.row("Add, one element", &add(), None, &input(&[1], Precision::Float32), true);
    }
    // ONNX Runtime's CPU provider has no float16 to speak of, and MLX's CPU back end computes it slowly.
    let precisions = [Precision::Float32, Precision::Float16];
    for precision in precisions.into_iter().filter(|&p| gpu || p == Precision::Float32) {
        let type_ = precision.element();
        let single = precision == Precision::Float32;
        let name = format!("encoder, 12 layers, (8, 128, 768), {type_}");
        if report.asks_for(&name) {
            let encoder = encoder::Encoder::new();
            let network = encoder.mlx(precision);
            report.row(
                &name,
                &encoder.onnx(precision),
                Some(&network),
                &input(&encoder::SHAPE, precision),
                single,
            );
        }
        let name = format!("ResNet-50, (8, 3, 224, 224), {type_}");
        if report.asks_for(&name) {
            let net = resnet::ResNet::new();
            let network = net.mlx(precision);
            report.row(
                &name,
                &net.onnx(precision),
                Some(&network),
                &input(&resnet::SHAPE, precision),
                single,
            );
        }
    }
}
