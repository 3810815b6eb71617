//! The dialects for GPUs: one text, `source/`, in which the states of a channel lie on several lanes.
//!
//! Forward: one launch, or two where the steps are cut into segments: summaries of all but the last, then the scan, each
//! segment of which starts from what the summaries before it leave of h0. Gradient: summaries that keep every 32nd state,
//! then one launch that goes backwards and makes the states between again, and one that adds up what its groups give.

mod layout;

use mlx_safe::{Array, Dtype, Spec, TemplateArg, concatenate};

use self::layout::{BLOCK, GRADIENT_STATES, Layout, MOST_STATES, Segments, Sums};
use super::{SelectiveScan, Sizes};
use crate::Result;
use crate::gpu::{Call, Dialect, Kernel, Run};

const LANES: &str = include_str!("source/lanes.h");

static FORWARD: Kernel = Kernel {
    name: "selective_scan",
    functions: &[LANES, include_str!("source/forward.h")],
    body: include_str!("source/forward.body.h"),
    inputs: &["sizes", "dt", "x", "b", "c", "a", "h0", "states", "steps"],
    outputs: &["y", "h"],
};

static SUMMARY: Kernel = Kernel {
    name: "selective_scan_summary",
    functions: &[LANES, include_str!("source/summary.h")],
    body: include_str!("source/summary.body.h"),
    inputs: &["sizes", "dt", "x", "b", "a"],
    outputs: &["states", "steps"],
};

static ADJOINT_SUMMARY: Kernel = Kernel {
    name: "selective_scan_adjoint_summary",
    functions: &[LANES, include_str!("source/summary.h")],
    body: include_str!("source/adjoint_summary.body.h"),
    inputs: &["sizes", "dt", "x", "b", "a", "c", "dy"],
    outputs: &["states", "steps", "adjoint"],
};

static GRADIENT: Kernel = Kernel {
    name: "selective_scan_grad",
    functions: &[LANES, include_str!("source/gradient.h")],
    body: include_str!("source/gradient.body.h"),
    inputs: &["sizes", "dt", "x", "b", "c", "a", "h0", "dy", "dh", "states", "steps", "adjoint"],
    outputs: &["ddt", "dx", "db", "dc", "da", "dh0"],
};

static SUMS: Kernel = Kernel {
    name: "selective_scan_sums",
    functions: &[include_str!("source/sums.h")],
    body: include_str!("source/sums.body.h"),
    inputs: &["sizes", "db_parts", "dc_parts", "da_parts"],
    outputs: &["db", "dc", "da"],
};

/// Bytes of memory that a group shares, as the bodies count them.
fn forward_memory(form: Layout) -> usize {
    4 * (form.tile + 4) * 2 * (form.channels() + form.lanes * form.states)
}

fn adjoint_memory(form: Layout) -> usize {
    4 * (form.tile + 4) * (3 * form.channels() + 2 * form.lanes * form.states)
}

fn gradient_memory(form: Layout, sums: Sums) -> usize {
    let states = form.lanes * form.states;
    let floats = sums.turns * (form.threads / 32) * sums.flush * 8 * states;
    let starts = (form.tile / form.run - 1) * form.states * form.threads;
    4 * ((form.tile + 4) * (3 * form.channels() + 2 * states) + floats + starts)
}

/// Whether these kernels take the sizes: none is 0, a channel has at most 256 states, and the numbers of threads, of elements
/// of b and a, and offsets within a tile have 32 bits.
pub(super) fn takes(sizes: Sizes) -> bool {
    let Sizes { steps, batch, channels, states } = sizes;
    let product = |numbers: &[usize]| numbers.iter().fold(1usize, |n, &m| n.saturating_mul(m));
    let most = [
        product(&[batch, channels.max(states), 2 * BLOCK]),
        product(&[batch, channels.next_multiple_of(256), 32, steps.div_ceil(64)]),
        product(&[steps, batch, states, 3]),
        product(&[channels, states, 3]),
    ];
    let least = steps.min(batch).min(channels).min(states);
    least > 0 && states <= MOST_STATES && most.iter().all(|&n| n <= i32::MAX as usize)
}

/// What all launches of one scan know.
struct Scan<'a> {
    run: Run<'a>,
    reverse: bool,
    sizes: Sizes,
    dt: &'a Array,
    x: &'a Array,
    b: &'a Array,
    c: &'a Array,
    a: &'a Array,
    h0: Option<&'a Array>,
}

impl<'a> Scan<'a> {
    fn new(scan: SelectiveScan, sizes: Sizes, primals: &'a [Array], run: Run<'a>) -> Self {
        let [dt, x, b, c, a, ..] = primals else { unreachable!("a scan has five inputs or six") };
        Self { run, reverse: scan.reverse, sizes, dt, x, b, c, a, h0: primals.get(5) }
    }

    fn header(&self, segments: Segments, block: usize, dh: bool) -> Result<Array> {
        let Sizes { steps, batch, channels, states } = self.sizes;
        let flags = [self.reverse, self.h0.is_some(), dh].map(usize::from);
        let numbers = [steps, batch, channels, states, segments.length, block].into_iter().chain(flags);
        Ok(Array::from_slice(&numbers.map(|n| n as i32).collect::<Vec<_>>(), &[9])?)
    }

    fn state(&self, rows: &[usize]) -> Spec {
        let Sizes { batch, channels, states, .. } = self.sizes;
        f32s(&[rows, &[batch, channels, states]].concat())
    }

    /// The spans up to the ends of `blocks` blocks of the first `count` segments, the states there but for the end of all
    /// steps, and with `dy` the adjoints.
    fn summary(
        &self,
        form: Layout,
        header: &Array,
        [states, blocks, count]: [usize; 3],
        dy: Option<&Array>,
    ) -> Result<Vec<Array>> {
        let Sizes { batch, channels, .. } = self.sizes;
        let mut call = Call {
            kernel: &SUMMARY,
            groups: form.sides(self.sizes) * batch * count,
            threads: form.threads,
            memory: forward_memory(form),
            resident: form.resident,
            template: vec![
                ("L", int(form.lanes)),
                ("NS", int(form.states)),
                ("W", int(form.threads)),
                ("TILE", int(form.tile)),
                ("T", self.x.dtype().into()),
            ],
            inputs: vec![header, self.dt, self.x, self.b, self.a],
            outputs: vec![self.state(&[states]), f32s(&[blocks, batch, channels])],
        };
        if let Some(dy) = dy {
            call.kernel = &ADJOINT_SUMMARY;
            call.memory = adjoint_memory(form);
            call.inputs.extend([self.c, dy]);
            call.outputs.push(self.state(&[count]));
        }
        (self.run)(call)
    }
}

fn int(value: usize) -> TemplateArg {
    TemplateArg::Int(value as i32)
}

fn f32s(shape: &[usize]) -> Spec {
    spec(shape, Dtype::Float32)
}

fn spec(shape: &[usize], dtype: Dtype) -> Spec {
    Spec::new(&shape.iter().map(|&n| n as i32).collect::<Vec<_>>(), dtype)
}

/// y and the last state. The sizes must be [`taken`](takes).
pub(super) fn forward(scan: SelectiveScan, sizes: Sizes, primals: &[Array], run: Run) -> Result<Vec<Array>> {
    let form = layout::forward(sizes);
    forward_in(Segments::forward(sizes, form), form, scan, sizes, primals, run)
}

fn forward_in(
    segments: Segments,
    form: Layout,
    scan: SelectiveScan,
    sizes: Sizes,
    primals: &[Array],
    run: Run,
) -> Result<Vec<Array>> {
    let scan = Scan::new(scan, sizes, primals, run);
    let header = scan.header(segments, segments.length, false)?;
    let before = segments.count - 1;
    let summary = match before {
        0 => None,
        _ => Some(scan.summary(form, &header, [before; 3], None)?),
    };
    let (states, steps) = summary.as_deref().map_or((scan.a, scan.a), |list| (&list[0], &list[1]));
    let Sizes { steps: times, batch, channels, .. } = sizes;
    run(Call {
        kernel: &FORWARD,
        groups: form.sides(sizes) * batch * segments.count,
        threads: form.threads,
        memory: forward_memory(form),
        resident: form.resident,
        template: vec![
            ("O", scan.x.dtype().into()),
            ("L", int(form.lanes)),
            ("NS", int(form.states)),
            ("W", int(form.threads)),
            ("TILE", int(form.tile)),
            ("R", int(form.run)),
        ],
        inputs: vec![
            &header,
            scan.dt,
            scan.x,
            scan.b,
            scan.c,
            scan.a,
            scan.h0.unwrap_or(scan.a),
            states,
            steps,
        ],
        outputs: vec![spec(&[times, batch, channels], scan.x.dtype()), scan.state(&[])],
    })
}

/// Derivatives by dt, x, b, c, a and h0, of the types of these; the sizes must be [`taken`](takes). `dh` is in float32.
pub(super) fn grad(
    scan: SelectiveScan,
    sizes: Sizes,
    primals: &[Array],
    dy: &Array,
    dh: Option<&Array>,
    dialect: Dialect,
    run: Run,
) -> Result<Vec<Array>> {
    let dtype = primals[1].dtype();
    if sizes.states <= GRADIENT_STATES {
        let form = layout::gradient(sizes, dialect);
        return grad_of(Segments::gradient(sizes, form.0), form, scan, sizes, primals, dy, dh, dtype, run);
    }
    // States have nothing to do with each other but that the derivatives by dt and x are sums over them.
    let mut slices = Vec::new();
    for from in (0..sizes.states).step_by(GRADIENT_STATES) {
        let to = sizes.states.min(from + GRADIENT_STATES);
        let part = |array: &Array| -> Result<Array> {
            let (mut start, mut stop) = (vec![0; array.ndim()], array.shape().to_vec());
            let last = array.ndim() - 1;
            (start[last], stop[last]) = (from as i32, to as i32);
            Ok(array.slice(&start, &stop, &vec![1; array.ndim()])?)
        };
        let mut inputs = primals.to_vec();
        for input in &mut inputs[2..] {
            *input = part(input)?;
        }
        let dh = dh.map(part).transpose()?;
        let sizes = Sizes { states: to - from, ..sizes };
        let form = layout::gradient(sizes, dialect);
        let segments = Segments::gradient(sizes, form.0);
        slices.push(grad_of(segments, form, scan, sizes, &inputs, dy, dh.as_ref(), Dtype::Float32, run)?);
    }
    let mut grads = Vec::new();
    for i in 0..6 {
        let mut parts = slices.iter().map(|slice| &slice[i]);
        grads.push(if i < 2 {
            let first = parts.next().unwrap_or_else(|| unreachable!("there is a slice")).clone();
            parts.try_fold(first, |sum, part| sum.add(part))?.astype(dtype)?
        } else {
            concatenate(&parts.cloned().collect::<Vec<_>>(), -1)?
        });
    }
    Ok(grads)
}

/// The derivatives for at most [`GRADIENT_STATES`]; those by dt and x in `dtype`.
#[allow(clippy::too_many_arguments)] // Tests choose what `grad` computes.
fn grad_of(
    segments: Segments,
    (form, sums): (Layout, Sums),
    scan: SelectiveScan,
    sizes: Sizes,
    primals: &[Array],
    dy: &Array,
    dh: Option<&Array>,
    dtype: Dtype,
    run: Run,
) -> Result<Vec<Array>> {
    let scan = Scan::new(scan, sizes, primals, run);
    let Sizes { steps: times, batch, channels, states } = sizes;
    let header = scan.header(segments, BLOCK, dh.is_some())?;
    let dual = (segments.count > 1).then_some(dy);
    let blocks = times.div_ceil(BLOCK);
    let summary = match blocks {
        1 => Vec::new(),
        _ => scan.summary(layout::summary(sizes), &header, [blocks - 1, blocks, segments.count], dual)?,
    };
    let summary = |i: usize| summary.get(i).unwrap_or(scan.a);
    let sides = form.sides(sizes);
    let wide = spec(&[times, batch, channels], dtype);
    let rows = f32s(&[sides, times, batch, states]);
    let mut grads = run(Call {
        kernel: &GRADIENT,
        groups: sides * batch * segments.count,
        threads: form.threads,
        memory: gradient_memory(form, sums),
        resident: form.resident,
        template: vec![
            ("O", dtype.into()),
            ("T", scan.x.dtype().into()),
            ("L", int(form.lanes)),
            ("NS", int(form.states)),
            ("W", int(form.threads)),
            ("K", int(form.tile)),
            ("R", int(form.run)),
            ("FLUSH", int(sums.flush)),
            ("TURNS", int(sums.turns)),
        ],
        inputs: vec![
            &header,
            scan.dt,
            scan.x,
            scan.b,
            scan.c,
            scan.a,
            scan.h0.unwrap_or(scan.a),
            dy,
            dh.unwrap_or(scan.a),
            summary(0),
            summary(1),
            summary(2),
        ],
        outputs: vec![wide.clone(), wide, rows.clone(), rows, scan.state(&[segments.count]), scan.state(&[])],
    })?;
    let sums = add_up(&scan, [sides, segments.count * batch], &grads[2..5])?;
    grads.splice(2..5, sums);
    Ok(grads)
}

/// db, dc (T, B, N) and da (D, N) from the parts of them that groups gave: `counts` of the first two and of the last.
fn add_up(scan: &Scan, counts: [usize; 2], parts: &[Array]) -> Result<Vec<Array>> {
    const THREADS: usize = 256;
    let Sizes { steps, batch, channels, states } = scan.sizes;
    let (rows, rates) = (steps * batch * states, channels * states);
    let numbers = [rows, counts[0], rates, counts[1]].map(|n| n as i32);
    let header = Array::from_slice(&numbers, &[4])?;
    let dtype = scan.b.dtype();
    let row = spec(&[steps, batch, states], dtype);
    (scan.run)(Call {
        kernel: &SUMS,
        groups: (2 * rows + rates).div_ceil(THREADS),
        threads: THREADS,
        memory: 0,
        resident: 1,
        template: vec![("O", dtype.into()), ("W", int(THREADS))],
        inputs: [&header].into_iter().chain(parts).collect(),
        outputs: vec![row.clone(), row, f32s(&[channels, states])],
    })
}

#[cfg(test)]
mod tests;
