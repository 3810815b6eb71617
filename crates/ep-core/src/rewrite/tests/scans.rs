//! Spellings of a recurrence in a `Scan`.

use super::{OPSET, SIZES, Values, Writer, check, data, inputs, scan, scan_with};
use crate::testing::graphs::{agrees, kernels};
use crate::testing::{E, uniform};
use onnx_graph::ValueId;

const SELECTIVE: &[&str] = &["SelectiveScan"];
const LINEAR: &[&str] = &["LinearScan"];

#[test]
fn plain() {
    check(&scan(Writer::plain_step), SELECTIVE);
}

#[test]
fn operands_the_other_way_round() {
    let step = |w: &mut Writer, s: &Values| {
        let column = w.unsqueeze(s.dt, 2);
        let log = w.mul(s.a, column);
        let decay = w.op("Exp", &[log]);
        let u = w.plain_input(s);
        let kept = w.mul(s.h, decay);
        let next = w.add(u, kept);
        let c = w.unsqueeze(s.c, -2);
        let product = w.mul(c, next);
        (next, w.sum(product, 2))
    };
    check(&scan(step), SELECTIVE);
}

#[test]
fn dt_times_x_times_b_in_any_order() {
    let orders: [fn(&mut Writer, &Values) -> ValueId; 3] = [
        |w, s| {
            let (x, b, dt) = (w.unsqueeze(s.x, -1), w.unsqueeze(s.b, 1), w.unsqueeze(s.dt, -1));
            let xb = w.mul(x, b);
            w.mul(dt, xb)
        },
        |w, s| {
            let (x, b, dt) = (w.unsqueeze(s.x, -1), w.unsqueeze(s.b, 1), w.unsqueeze(s.dt, -1));
            let db = w.mul(dt, b);
            w.mul(db, x)
        },
        |w, s| {
            let dx = w.mul(s.x, s.dt);
            w.einsum("bd,bn->bdn", dx, s.b)
        },
    ];
    for order in orders {
        let step = |w: &mut Writer, s: &Values| {
            let decay = w.decay(s.dt, s.a);
            let u = order(w, s);
            let kept = w.mul(decay, s.h);
            let next = w.add(kept, u);
            let y = w.plain_sum(next, s.c);
            (next, y)
        };
        check(&scan(step), SELECTIVE);
    }
}

#[test]
fn sums_by_matmul_or_einsum() {
    let sums: [fn(&mut Writer, ValueId, ValueId) -> ValueId; 4] = [
        |w, h, c| {
            let column = w.unsqueeze(c, -1);
            let y = w.matmul(h, column);
            w.squeeze(y, -1)
        },
        |w, h, c| {
            let column = w.unsqueeze(c, 2);
            let y = w.matmul(h, column);
            w.pick(y, 2, 0)
        },
        |w, h, c| w.einsum("bdn,bn->bd", h, c),
        |w, h, c| w.einsum("bn, bdn -> db", c, h),
    ];
    for sum in sums {
        let step = |w: &mut Writer, s: &Values| {
            // The plain sum stays behind, unread: dead nodes do not stand in the way.
            let (next, _) = w.plain_step(s);
            let y = sum(w, next, s.c);
            (next, y)
        };
        check(&scan(step), SELECTIVE);
    }
}

#[test]
fn powers_of_two_quotients_and_differences() {
    let step = |w: &mut Writer, s: &Values| {
        let (two, log2e) = (w.number(2.0), w.number(std::f32::consts::LOG2_E));
        let column = w.unsqueeze(s.dt, -1);
        let a = w.mul(s.a, log2e);
        let log = w.mul(column, a);
        let decay = w.op("Pow", &[two, log]);
        let u = w.plain_input(s);
        let kept = w.mul(decay, s.h);
        let next = w.add(kept, u);
        let y = w.plain_sum(next, s.c);
        (next, y)
    };
    check(&scan(step), SELECTIVE);
    let step = |w: &mut Writer, s: &Values| {
        let column = w.unsqueeze(s.dt, -1);
        let minus = w.op("Neg", &[column]);
        let log = w.mul(minus, s.a);
        // Not too large to divide by.
        let small = w.number(0.01);
        let log = w.mul(log, small);
        let growth = w.op("Exp", &[log]);
        let kept = w.op("Div", &[s.h, growth]);
        let u = w.plain_input(s);
        let minus_u = w.op("Neg", &[u]);
        let next = w.op("Sub", &[kept, minus_u]);
        let y = w.plain_sum(next, s.c);
        (next, y)
    };
    check(&scan(step), SELECTIVE);
}

#[test]
fn gates_skips_and_discretisation_in_the_body() {
    let step = |w: &mut Writer, s: &Values| {
        let dt = w.op("Softplus", &[s.dt]);
        let gate = w.op("Sigmoid", &[s.x]);
        let x = w.mul(s.x, gate);
        let inner = Values { dt, x, ..*s };
        let (next, y) = w.plain_step(&inner);
        let skip = w.number(0.7);
        let skip = w.mul(x, skip);
        let y = w.add(y, skip);
        (next, w.mul(gate, y))
    };
    check(&scan(step), SELECTIVE);
}

#[test]
fn directions_and_axes() {
    let graph = scan_with(Writer::plain_step, |node| {
        node.attr("scan_input_directions", vec![1i64; 4]).attr("scan_output_directions", vec![1i64])
    });
    check(&graph, SELECTIVE);
    let graph = scan_with(Writer::plain_step, |node| {
        node.attr("scan_input_directions", vec![1i64, 0, 0, 1]).attr("scan_output_axes", vec![-1i64])
    });
    check(&graph, SELECTIVE);
}

#[test]
fn states_that_are_handed_on() {
    let mut body = Writer::new("body");
    let mut input = |name: &str, dims: &[&str]| {
        let dims: Vec<onnx_graph::Dim> = dims.iter().map(|&d| d.into()).collect();
        body.b.input(name, E::Float, &dims)
    };
    let (a, h) = (input("a_in", &["D", "N"]), input("h_in", &["B", "D", "N"]));
    let (c, x) = (input("c_t", &["B", "N"]), input("x_t", &["B", "D"]));
    let (dt, b) = (input("dt_t", &["B", "D"]), input("b_t", &["B", "N"]));
    let (next, y) = body.plain_step(&Values { h, dt, x, b, c, a });
    let a = body.op("Identity", &[a]);
    for output in [a, next, y] {
        body.b.output(output);
    }
    let body = body.finish();
    let mut w = Writer::new("g");
    let v = inputs(&mut w);
    let given = [v.a, v.h, v.c, v.x, v.dt, v.b].map(Some);
    let node = w.b.node("Scan", &given).attr("body", body).attr("num_scan_inputs", 4i64);
    for output in node.outputs_as(&["a_last", "last", "y"]).into_iter().flatten() {
        w.b.output(output);
    }
    check(&w.finish(), SELECTIVE);
}

/// Decay and input computed for all steps beforehand, the sum afterwards: no tensor of T B D N elements is left.
#[test]
fn the_four_dimensional_form() {
    for reverse in [false, true] {
        let graph = precomputed(reverse);
        assert_eq!(kernels(&graph), SELECTIVE);
        for [t, b, d, n] in SIZES {
            let mut given = data([t, b, d, n]);
            for (name, last) in [("dt", d), ("x", d), ("b", n), ("c", n)] {
                let tensor = given.iter_mut().find(|(other, _)| *other == name).unwrap();
                tensor.1 = uniform(E::Float, [b, t, last], 0.01, 1.0);
            }
            agrees(&graph, OPSET, &given);
        }
    }
}

fn precomputed(reverse: bool) -> onnx_graph::Graph<'static> {
    let mut body = Writer::new("body");
    let dims = |names: &[&str]| names.iter().map(|&d| d.into()).collect::<Vec<onnx_graph::Dim>>();
    let state = dims(&["B", "D", "N"]);
    let [h, decay, u] = ["h_in", "decay_t", "u_t"].map(|name| body.b.input(name, E::Float, &state));
    let kept = body.mul(decay, h);
    let next = body.add(kept, u);
    let collected = body.op("Identity", &[next]);
    body.b.output(next);
    body.b.output(collected);
    let body = body.finish();
    let mut w = Writer::new("g");
    let dt = w.b.input("dt", E::Float, &dims(&["B", "T", "D"]));
    let x = w.b.input("x", E::Float, &dims(&["B", "T", "D"]));
    let b = w.b.input("b", E::Float, &dims(&["B", "T", "N"]));
    let c = w.b.input("c", E::Float, &dims(&["B", "T", "N"]));
    let a = w.b.input("a", E::Float, &dims(&["D", "N"]));
    let h0 = w.b.input("h0", E::Float, &state);
    let (dt, b) = (w.unsqueeze(dt, -1), w.unsqueeze(b, 2));
    let log = w.mul(dt, a);
    let decay = w.op("Exp", &[log]);
    let db = w.mul(dt, b);
    let x = w.unsqueeze(x, 3);
    let u = w.mul(db, x);
    let (mut decay, mut u) = (w.transpose(decay, &[1, 0, 2, 3]), w.transpose(u, &[1, 0, 2, 3]));
    let flip = |w: &mut Writer, value: ValueId| {
        let bounds = [-1, i64::MIN, 0, -1].map(|v| w.ints(&[v]));
        w.op("Slice", &[value, bounds[0], bounds[1], bounds[2], bounds[3]])
    };
    if reverse {
        (decay, u) = (flip(&mut w, decay), flip(&mut w, u));
    }
    let node = w.b.node("Scan", &[Some(h0), Some(decay), Some(u)]).attr("body", body);
    let scanned = node.attr("num_scan_inputs", 2i64).outputs_as(&["last", "states"]);
    let mut states = scanned[1].unwrap();
    if reverse {
        states = flip(&mut w, states);
    }
    let states = w.transpose(states, &[1, 0, 2, 3]);
    let c = w.unsqueeze(c, 2);
    let product = w.mul(states, c);
    let y = w.sum(product, -1);
    w.b.output(y);
    w.b.output(scanned[0].unwrap());
    w.finish()
}

#[test]
fn a_collected_state_is_a_linear_scan() {
    let step = |w: &mut Writer, s: &Values| {
        let (next, _) = w.plain_step(s);
        (next, next)
    };
    check(&scan(step), LINEAR);
    // The state before the step, and its square.
    let step = |w: &mut Writer, s: &Values| {
        let (next, y) = w.plain_step(s);
        let square = w.mul(s.h, next);
        let square = w.sum(square, 2);
        (next, w.add(y, square))
    };
    let graph = scan(step);
    check(&graph, LINEAR);
    agrees(&graph, OPSET, &data([700, 2, 3, 4]));
}

/// The second state reads the first one's next: together they are no diagonal recurrence.
#[test]
fn states_that_read_each_other() {
    for coupled in [false, true] {
        let mut body = Writer::new("body");
        let row = [onnx_graph::Dim::from("D")];
        let [g, h, x] = ["g_in", "h_in", "x_t"].map(|name| body.b.input(name, E::Float, &row));
        let half = body.number(0.5);
        let kept = body.mul(g, half);
        let next_g = body.add(kept, x);
        let gate = body.op("Sigmoid", &[x]);
        let kept = body.mul(gate, h);
        let next_h = body.add(kept, if coupled { next_g } else { x });
        let y = body.mul(next_g, next_h);
        for output in [next_g, next_h, y] {
            body.b.output(output);
        }
        let body = body.finish();
        let mut w = Writer::new("g");
        let [g, h] = ["g0", "h0"].map(|name| w.b.input(name, E::Float, &row));
        let x = w.b.input("x", E::Float, &["T".into(), "D".into()]);
        let node = w.b.node("Scan", &[Some(g), Some(h), Some(x)]).attr("body", body);
        let scanned = node.attr("num_scan_inputs", 1i64).outputs_as(&["g_last", "h_last", "y"]);
        scanned.into_iter().flatten().for_each(|output| w.b.output(output));
        let graph = w.finish();
        assert_eq!(kernels(&graph), if coupled { &[] } else { LINEAR });
        for [t, d] in [[3, 4], [50, 1]] {
            let random = |dims: &[usize]| uniform(E::Float, dims, -1.0, 1.0);
            agrees(&graph, OPSET, &[("g0", random(&[d])), ("h0", random(&[d])), ("x", random(&[t, d]))]);
        }
    }
}

#[test]
fn any_decay_that_is_free_of_the_state() {
    let step = |w: &mut Writer, s: &Values| {
        let gate = w.op("Sigmoid", &[s.dt]);
        let gate = w.unsqueeze(gate, -1);
        let one = w.number(1.0);
        let rest = w.op("Sub", &[one, gate]);
        let x = w.unsqueeze(s.x, -1);
        let new = w.mul(rest, x);
        let kept = w.mul(s.h, gate);
        let next = w.add(kept, new);
        let y = w.plain_sum(next, s.c);
        (next, y)
    };
    check(&scan(step), LINEAR);
}
