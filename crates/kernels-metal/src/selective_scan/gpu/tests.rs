//! The very text that ships, as Metal on the host, against float64.

use mlx_safe::{Array, Dtype};

use super::layout::{self, Layout, Segments};
use super::*;
use crate::gpu::Dialect;

#[path = "../../../tests/reference/mod.rs"]
mod reference;
use reference::{Problem, Results, near};

const MILD: (f64, f64) = (-4.0, -0.01);
const STEEP: (f64, f64) = (-46.4, -1.0);

fn checked(checks: metal_host::Checks) -> impl Fn(Call) -> Result<Vec<Array>> {
    move |call| {
        let (source, launch) = (call.source(Dialect::Metal), call.launch()?);
        Ok(metal_host::launch(&source, &launch, &call.inputs, checks).unwrap())
    }
}

fn primals(problem: &Problem, dtype: Dtype) -> Vec<Array> {
    let Sizes { steps, batch, channels, states } = problem.sizes;
    let array = |data: &[f32], shape: &[usize]| {
        Array::from_slice(data, &shape.iter().map(|&n| n as i32).collect::<Vec<_>>()).unwrap()
    };
    let wide = |data: &[f32]| array(data, &[steps, batch, channels]).astype(dtype).unwrap();
    let rows = |data: &[f32]| array(data, &[steps, batch, states]).astype(dtype).unwrap();
    let mut list = vec![wide(&problem.dt), wide(&problem.x), rows(&problem.b), rows(&problem.c)];
    list.push(array(&problem.a, &[channels, states]));
    list.extend(problem.h0.as_ref().map(|h0| array(h0, &[batch, channels, states])));
    list
}

/// The problem with its inputs rounded to `dtype`.
fn rounded(mut problem: Problem, dtype: Dtype) -> Problem {
    let list = primals(&problem, dtype);
    let floats = |array: &Array| array.astype(Dtype::Float32).unwrap().to_vec().unwrap();
    (problem.dt, problem.x) = (floats(&list[0]), floats(&list[1]));
    (problem.b, problem.c) = (floats(&list[2]), floats(&list[3]));
    problem
}

fn is(what: &str, got: &Array, wanted: &[f64], tolerance: f64) {
    near(what, &got.astype(Dtype::Float32).unwrap().to_vec::<f32>().unwrap(), wanted, tolerance);
}

struct Case {
    sizes: [usize; 4],
    range: (f64, f64),
    h0: bool,
    reverse: bool,
    /// Segments, where it is not the rule that says how many.
    segments: Option<usize>,
    dtype: Dtype,
}

impl Case {
    fn new(sizes: [usize; 4]) -> Self {
        Self { sizes, range: MILD, h0: true, reverse: false, segments: None, dtype: Dtype::Float32 }
    }

    fn problem(&self) -> (Problem, Results) {
        let problem = rounded(Problem::new(self.sizes, self.range, self.h0), self.dtype);
        let results = problem.solve(self.reverse);
        (problem, results)
    }

    fn cut(&self, unit: usize, rule: Segments) -> Segments {
        let Some(count) = self.segments else { return rule };
        let length = self.sizes[0].div_ceil(count).next_multiple_of(unit);
        let segments = Segments { length, count: self.sizes[0].div_ceil(length) };
        assert_eq!(segments.count, count);
        segments
    }

    fn forward_in(&self, form: Layout) {
        let (problem, wanted) = self.problem();
        let sizes = problem.sizes;
        assert!(takes(sizes));
        let segments = self.cut(form.tile, Segments::forward(sizes, form));
        let scan = SelectiveScan { reverse: self.reverse };
        let run = checked(metal_host::Checks::Memory);
        let got = forward_in(segments, form, scan, sizes, &primals(&problem, self.dtype), &run).unwrap();
        assert_eq!(got[0].dtype(), self.dtype);
        let tolerance = if self.dtype == Dtype::Float32 { 1e-5 } else { 5e-3 };
        is(&format!("{:?} y", self.sizes), &got[0], &wanted.y, tolerance);
        is(&format!("{:?} h", self.sizes), &got[1], &wanted.h, 1e-5);
    }

    fn forward(&self) {
        let [steps, batch, channels, states] = self.sizes;
        self.forward_in(layout::forward(Sizes { steps, batch, channels, states }));
    }

    fn gradient(&self) {
        let (problem, wanted) = self.problem();
        let (sizes, inputs) = (problem.sizes, primals(&problem, self.dtype));
        let [wide, state] =
            [inputs[0].shape(), &[sizes.batch, sizes.channels, sizes.states].map(|n| n as i32)];
        let dy = Array::from_slice(&problem.dy, wide).unwrap().astype(self.dtype).unwrap();
        let dh = Array::from_slice(&problem.dh, state).unwrap();
        let scan = SelectiveScan { reverse: self.reverse };
        let run = checked(metal_host::Checks::Memory);
        let got = match self.segments {
            None => grad(scan, sizes, &inputs, &dy, Some(&dh), Dialect::Metal, &run),
            Some(_) => {
                let form = layout::gradient(sizes, Dialect::Metal);
                let segments = self.cut(BLOCK, Segments::gradient(sizes, form.0));
                grad_of(segments, form, scan, sizes, &inputs, &dy, Some(&dh), self.dtype, &run)
            }
        }
        .unwrap();
        for (i, (got, wanted)) in got.iter().zip(&wanted.grads).enumerate() {
            is(&format!("{:?} gradient {i}", self.sizes), got, wanted, 2e-5);
        }
    }
}

#[test]
fn sixteen_states_forward() {
    Case::new([1, 1, 1, 16]).forward();
    Case { reverse: true, range: STEEP, ..Case::new([67, 2, 19, 16]) }.forward();
    Case { segments: Some(3), h0: false, ..Case::new([90, 1, 9, 13]) }.forward();
    Case { segments: Some(2), reverse: true, ..Case::new([64, 1, 16, 16]) }.forward();
}

#[test]
fn the_form_for_many_channels() {
    let many = layout::forward(Sizes { steps: 1, batch: 1, channels: 8192, states: 16 });
    assert_eq!(many.lanes, 4);
    Case { reverse: true, ..Case::new([21, 2, 33, 16]) }.forward_in(many);
    Case { segments: Some(3), range: STEEP, ..Case::new([47, 1, 35, 15]) }.forward_in(many);
}

#[test]
fn other_numbers_of_states_forward() {
    for states in [1, 2, 3, 7, 32, 64] {
        Case { reverse: states % 2 == 0, ..Case::new([19, 2, 5, states]) }.forward();
    }
    Case { segments: Some(2), ..Case::new([19, 1, 3, 250]) }.forward();
}

#[test]
fn halves_forward() {
    for dtype in [Dtype::Float16, Dtype::Bfloat16] {
        Case { dtype, ..Case::new([40, 1, 3, 16]) }.forward();
    }
}

#[test]
fn sixteen_states_gradient() {
    Case::new([1, 1, 1, 16]).gradient();
    Case { reverse: true, range: STEEP, h0: false, ..Case::new([70, 2, 35, 16]) }.gradient();
    Case { segments: Some(3), ..Case::new([90, 1, 5, 13]) }.gradient();
    Case { segments: Some(2), reverse: true, ..Case::new([64, 1, 4, 16]) }.gradient();
}

#[test]
fn other_numbers_of_states_gradient() {
    Case::new([35, 1, 5, 1]).gradient();
    Case { segments: Some(2), ..Case::new([37, 2, 5, 7]) }.gradient();
    Case { reverse: true, ..Case::new([33, 1, 5, 40]) }.gradient();
}

#[test]
fn there_are_no_races() {
    let run = checked(metal_host::Checks::Races);
    let (problem, _) = Case::new([70, 1, 19, 16]).problem();
    let (sizes, inputs) = (problem.sizes, primals(&problem, Dtype::Float32));
    let scan = SelectiveScan { reverse: false };
    let form = layout::forward(sizes);
    forward_in(Segments { length: 64, count: 2 }, form, scan, sizes, &inputs, &run).unwrap();
    let dy = Array::from_slice(&problem.dy, inputs[0].shape()).unwrap();
    let dh = Array::from_slice(&problem.dh, inputs[5].shape()).unwrap();
    let form = layout::gradient(sizes, Dialect::Metal);
    grad_of(
        Segments { length: 64, count: 2 },
        form,
        scan,
        sizes,
        &inputs,
        &dy,
        Some(&dh),
        Dtype::Float32,
        &run,
    )
    .unwrap();
}
