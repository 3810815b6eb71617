//! Masks that put numbers in the place of scores, several of them, with rows that see no key.

use onnx_graph::Graph;

use super::causal::{attention, is_told, ones, trilu};
use super::{FORWARD, OPSET, SIZES, Value, Writer, agrees_at, check, data};
use crate::testing::graphs::{agrees, kernels};
use crate::testing::{E, tensor, uniform};

const SCORES: &[&str] = &["B", "H", "L", "S"];
const MASK: &[&str] = &["B", "1", "L", "S"];
const NONE: &[&str] = &[];

/// Scores where a mask of bools, an input, is true.
fn filled(w: &mut Writer, scores: &Value, mask: &str, fill: f32) -> Value {
    let (mask, fill) = (w.input(mask, E::Bool, MASK), w.number(fill));
    w.op("Where", &[&mask, scores, &fill], SCORES)
}

/// `number` where a mask of bools is false, 0 elsewhere, added.
fn added(w: &mut Writer, scores: &Value, mask: &str, number: f32) -> Value {
    let zero = w.number(0.0);
    let mask = w.input(mask, E::Bool, MASK);
    let low = w.number(number);
    let mask = w.op("Where", &[&mask, &zero, &low], MASK);
    w.like("Add", &[scores, &mask])
}

/// Scores where key j <= query i.
fn triangle(w: &mut Writer, scores: &Value, fill: f32) -> Value {
    let ones = ones(w);
    let (seen, fill) = (trilu(w, &ones, 0, 0), w.number(fill));
    w.op("Where", &[&seen, scores, &fill], SCORES)
}

/// Checks at the first size only.
fn check_once(graph: &Graph<'static>, wanted: &[&str]) {
    assert_eq!(kernels(graph), wanted);
    agrees_at(graph, SIZES[0]);
}

/// What is low enough is hidden; a score may be as low as -10000.
#[test]
fn one_filling() {
    for (fill, wanted) in
        [(f32::MIN, &[FORWARD][..]), (-1e9, &[FORWARD]), (-65504.0, NONE), (-1e4, NONE), (1e9, NONE)]
    {
        check(&attention(|w, scores| filled(w, scores, "blind", fill)), wanted);
    }
    // Turned upside down afterwards.
    let turned = attention(|w, scores| {
        let filled = filled(w, scores, "blind", -1e9);
        w.times(&filled, -1.0)
    });
    check(&turned, NONE);
}

/// A row that sees nothing is even over the keys of the highest filling.
#[test]
fn two_fillings() {
    for (inner, outer, wanted) in [
        (-1e9, -1e9, &[FORWARD][..]),
        (f32::NEG_INFINITY, -1e9, &[FORWARD]),
        (-1e9, f32::NEG_INFINITY, &[FORWARD]),
        (f32::MIN, -1e9, &[FORWARD]),
        (-1e9, f32::MIN, &[FORWARD]),
        (-1e9, -2e9, NONE),
        (-1e9, -65504.0, NONE),
        (-1e4, -1e9, NONE),
    ] {
        // Rows of nothing but minus infinity are 0 here: there are none.
        let [first, second] = match inner == f32::NEG_INFINITY {
            true => ["visible", "blind"],
            false => ["blind", "visible"],
        };
        let graph = attention(|w, scores| {
            let scores = filled(w, scores, first, inner);
            filled(w, &scores, second, outer)
        });
        check(&graph, wanted);
    }
}

/// What is added may hide keys as well: only beside a filling that nothing moves is that the same.
#[test]
fn fillings_and_what_is_added() {
    for (fill, number, wanted) in [
        (f32::MIN, f32::MIN, &[FORWARD][..]),
        (f32::MIN, -1e9, &[FORWARD]),
        (f32::NEG_INFINITY, -1e9, &[FORWARD]),
        (-1e9, -1e4, &[FORWARD]),
        (-1e9, -1e9, NONE),
    ] {
        let before = attention(|w, scores| {
            let scores = added(w, scores, "visible", number);
            filled(w, &scores, "blind", fill)
        });
        // Rows of nothing but minus infinity are 0 here.
        if fill.is_finite() {
            check(&before, wanted);
        } else {
            assert_eq!(kernels(&before), wanted);
        }
    }
    for (fill, wanted) in [(f32::MIN, &[FORWARD][..]), (-1e9, NONE)] {
        let after = attention(|w, scores| {
            let scores = filled(w, scores, "blind", fill);
            added(w, &scores, "visible", -1e9)
        });
        check(&after, wanted);
    }
}

/// A bias that certainly hides nothing, and one that may.
#[test]
fn fillings_and_biases() {
    let biased = |lowest: f64, fill: f32| {
        attention(|w, scores| {
            let bias = uniform(E::Float, [3, 1, 1], lowest, 2.0);
            let id = w.b.initializer("table", bias);
            let bias = Value { id, dims: vec!["H", "1", "1"], element: E::Float };
            let scores = w.like("Add", &[scores, &bias]);
            filled(w, &scores, "blind", fill)
        })
    };
    check_once(&biased(-2.0, -1e9), &[FORWARD]);
    check_once(&biased(-2e9, -1e9), NONE);
    check_once(&biased(-2e9, f32::MIN), &[FORWARD]);
    check(
        &attention(|w, scores| {
            let bias = w.input("bias", E::Float, &["H", "L", "S"]);
            let scores = w.like("Add", &[scores, &bias]);
            filled(w, &scores, "blind", -1e9)
        }),
        NONE,
    );
}

/// The kernel may hide later keys for good where no row is even because of them.
#[test]
fn a_triangle_beside_another_mask() {
    let low = f32::NEG_INFINITY;
    for (of_triangle, other, outside, told) in [
        (-1e9, -1e9, true, false),
        (-1e9, -1e9, false, false),
        (low, -1e9, true, true),
        (low, -1e9, false, false),
        (-1e9, low, true, false),
    ] {
        let graph = attention(|w, scores| {
            if outside {
                let scores = filled(w, scores, "blind", other);
                triangle(w, &scores, of_triangle)
            } else {
                let scores = triangle(w, scores, of_triangle);
                filled(w, &scores, "blind", other)
            }
        });
        assert_eq!(is_told(&graph), told, "{of_triangle} {other} {outside}");
        check_once(&graph, &[FORWARD]);
    }
    // A bias that hides nothing leaves each query its own key; one that is unknown may not.
    for (named, told) in [(false, true), (true, false)] {
        let graph = attention(|w, scores| {
            let bias = match named {
                true => w.input("bias", E::Float, &["H", "L", "S"]),
                false => w.number(-3.0),
            };
            let scores = w.like("Add", &[scores, &bias]);
            triangle(w, &scores, f32::MIN)
        });
        assert_eq!(is_told(&graph), told);
        check(&graph, &[FORWARD]);
    }
}

/// What is put in the place of scores may make more of them.
#[test]
fn fillings_that_are_broadcast_to() {
    let filled = |dims: &'static [&'static str; 4]| {
        let sizes = dims.map(|n| n.parse::<usize>().unwrap_or(1));
        attention(move |w, scores| {
            let low = tensor(E::Float, sizes, &vec![-1e9; sizes.iter().product()]);
            let id = w.b.initializer("low", low);
            let (mask, low) =
                (w.input("blind", E::Bool, MASK), Value { id, dims: dims.to_vec(), element: E::Float });
            w.op("Where", &[&mask, scores, &low], &[dims[0], "H", "L", "S"])
        })
    };
    let narrow = filled(&["1", "1", "1", "1"]);
    assert_eq!(kernels(&narrow), [FORWARD]);
    agrees_at(&narrow, SIZES[0]);
    let wide = filled(&["3", "1", "1", "1"]);
    assert_eq!(kernels(&wide), NONE);
    agrees_at(&wide, [1, 3, 5, 7, 4, 6]);
}

/// A triangle for each of three is no triangle for one.
#[test]
fn triangles_that_are_broadcast_to() {
    let graph = attention(|w, scores| {
        let ones = ones(w);
        let (seen, low) = (trilu(w, &ones, 0, 0), w.number(f32::NEG_INFINITY));
        let shape = w.constant(tensor(E::Int64, [4], &[3.0, 1.0, 1.0, 1.0]));
        let seen = w.node("Expand", &[&seen, &shape], &[], &["3", "1", "L", "S"], E::Bool);
        w.op("Where", &[&seen, scores, &low], &["3", "H", "L", "S"])
    });
    assert!(!is_told(&graph));
    agrees_at(&graph, [1, 3, 5, 7, 4, 6]);
}

/// A triangle with more rows than there are queries makes more of them.
#[test]
fn a_triangle_that_is_broadcast_to() {
    let numbers: Vec<f64> = (0..25).map(|at| f64::from(u8::from(at % 5 <= at / 5))).collect();
    let graph = attention(|w, scores| {
        let id = w.b.initializer("seen", tensor(E::Bool, [5, 5], &numbers));
        let (seen, low) = (Value { id, dims: vec!["5", "5"], element: E::Bool }, w.number(f32::NEG_INFINITY));
        w.op("Where", &[&seen, scores, &low], &["B", "H", "5", "5"])
    });
    assert!(!is_told(&graph));
    for queries in [5, 1] {
        agrees_at(&graph, [2, 3, queries, 5, 4, 6]);
    }
}

/// A key that is hidden may be no number: its score is replaced.
#[test]
fn hidden_keys_that_are_no_numbers() {
    for fill in [-1e9, f32::MIN, f32::NEG_INFINITY] {
        let graph = attention(|w, scores| {
            let (mask, fill) = (w.input("few", E::Bool, &["1", "S"]), w.number(fill));
            w.op("Where", &[&mask, scores, &fill], SCORES)
        });
        assert_eq!(kernels(&graph), [FORWARD]);
        let mut inputs = data([1, 1, 5, 3, 2, 6]);
        inputs.truncate(4);
        let k = [0.5, -1.0, f64::NAN, f64::INFINITY, 0.25, 2.0];
        inputs[1].1 = tensor(E::Float, [1, 1, 3, 2], &k);
        inputs.push(("few", tensor(E::Bool, [1, 3], &[1.0, 0.0, 1.0])));
        agrees(&graph, OPSET, &inputs);
    }
}

#[test]
fn a_triangle_of_numbers_that_scores_reach() {
    // As added numbers they stay what they are, and scores may be lower.
    let far = |w: &mut Writer, scores: &Value| {
        let ones = ones(w);
        let (seen, zero, low) = (trilu(w, &ones, 0, 0), w.number(0.0), w.number(-1e4));
        let mask = w.op("Where", &[&seen, &zero, &low], &["L", "S"]);
        let scores = w.times(scores, 2e4);
        w.like("Add", &[&scores, &mask])
    };
    let graph = attention(far);
    assert!(!is_told(&graph));
    check(&graph, &[FORWARD]);
}
