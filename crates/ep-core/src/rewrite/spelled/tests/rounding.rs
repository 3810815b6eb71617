//! Casts to 16 bits and back round, and a spelling that has them on the way is no operator: its numbers would be others.

use super::{Model, check};
use crate::testing::tol;

/// Operators of x that are spelled with `a` for x under a curve or a root, and with `b` elsewhere; they make t.
fn operators(a: &str, b: &str) -> [(String, &'static str); 4] {
    let root = "v = ReduceMean(q, [-1]); e = Add(v, 1e-5); s = Sqrt(e)";
    [
        (format!("s = Sigmoid({a}); t = Mul({b}, s)"), "swish"),
        (
            format!(
                "u = Mul({a}, 0.70710678); e = Erf(u); p = Add(e, 1.0); k = Mul({b}, p); t = Mul(k, 0.5)"
            ),
            "gelu",
        ),
        (format!("q = Mul({a}, {a}); {root}; t = Div({b}, s)"), "rms_norm"),
        (
            format!(
                "m = ReduceMean({a}, [-1]); d = Sub({a}, m); q = Mul(d, d); {root}; d2 = Sub({b}, m); t = Div(d2, s)"
            ),
            "layer_norm",
        ),
    ]
}

/// The value `to` is `from`, rounded.
fn rounded(from: &str, to: &str, element: i32) -> String {
    format!("{to}h = Cast<to={element}>({from}); {to} = Cast<to=1>({to}h)")
}

#[test]
fn before_and_behind() {
    for element in [10, 16] {
        for (nodes, wanted) in operators("f", "f") {
            check(&format!("{}; {nodes}; y = Neg(t)", rounded("x", "f", element)), &[wanted]);
        }
        for (nodes, wanted) in operators("x", "x") {
            // What lies between two numbers of 16 bits may be rounded to either.
            let within = Model { tolerance: tol::BF16, ..Model::new() };
            within.check(&format!("{nodes}; {}", rounded("t", "y", element)), &[wanted]);
        }
    }
}

#[test]
fn on_the_way() {
    for element in [10, 16] {
        for (nodes, _) in operators("x", "f").into_iter().chain(operators("f", "x")) {
            check(&format!("{}; {nodes}; y = Neg(t)", rounded("x", "f", element)), &[]);
        }
        let of_curve = rounded("s", "r", element);
        check(&format!("s = Sigmoid(x); {of_curve}; y = Mul(x, r)"), &[]);
        let of_mean = rounded("v", "r", element);
        check(
            &format!(
                "q = Mul(x, x); v = ReduceMean(q, [-1]); {of_mean}; e = Add(r, 1e-5); s = Sqrt(e); y = Div(x, s)"
            ),
            &[],
        );
    }
}
