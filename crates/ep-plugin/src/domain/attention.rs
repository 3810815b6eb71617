//! `ScaledDotProductAttention` and `ScaledDotProductAttentionGrad`: attention without the L x S matrix, and its derivative.
//!
//! B batch, Hq query heads, Hk key heads (Hq is a multiple), L queries, S keys, E and Ev widths of keys and values.

use std::borrow::Cow;

use kernels_metal::attention::host::{self, Mask, MaskValues};
use kernels_metal::attention::{Attention, Sizes};
use kernels_metal::sample::Sample;
use onnx_graph::{ElementType, TensorType};

use super::call::{Call, Element};
use super::operator::{self, Attribute, Formal, Kind, Operator, Value, kernels, optional, required};

const QUERIES: &[&str] = &["B", "Hq", "L", "E"];
const KEYS: &[&str] = &["B", "Hk", "S", "E"];
const VALUES: &[&str] = &["B", "Hk", "S", "Ev"];
const RESULTS: &[&str] = &["B", "Hq", "L", "Ev"];

const Q: Formal = required("Q", QUERIES);
const K: Formal = required("K", KEYS);
const V: Formal = required("V", VALUES);
const MASK: Formal = Formal { kind: Kind::Mask, ..optional("mask", &["B", "Hq", "L", "S"]) };
const LSE: Formal = Formal { kind: Kind::Float, ..optional("lse", &["B", "Hq", "L"]) };

const ATTRIBUTES: &[Attribute] = &[
    Attribute::Float { name: c"scale", meaning: "a finite float, or leave it out for 1 / sqrt(E)" },
    Attribute::Int {
        name: c"is_causal",
        default: 0,
        allowed: 0..=1,
        meaning: "0 for every key, 1 for keys 0 to i of query i",
    },
];

/// Y and the rows' log-sum-exp.
pub const FORWARD: Operator = Operator {
    name: c"ScaledDotProductAttention",
    inputs: &[Q, K, V, MASK],
    outputs: &[required("Y", RESULTS), LSE],
    attributes: ATTRIBUTES,
    check: |sizes, _| heads(sizes),
    kernels: kernels!(forward),
};

const SAVED: [usize; 2] = [5, 6];

/// Derivatives by Q, K and V, from that by Y.
pub const GRADIENT: Operator = Operator {
    name: c"ScaledDotProductAttentionGrad",
    inputs: &[Q, K, V, required("dY", RESULTS), MASK, optional("Y", RESULTS), LSE],
    outputs: &[optional("dQ", QUERIES), optional("dK", KEYS), optional("dV", VALUES)],
    attributes: ATTRIBUTES,
    check: |sizes, inputs| {
        heads(sizes)?;
        saved_together(inputs)
    },
    kernels: kernels!(gradient),
};

fn heads(sizes: &operator::Sizes) -> Result<(), String> {
    match (sizes.dim("Hq").known(), sizes.dim("Hk").known()) {
        (Some(heads), Some(key_heads)) if heads.checked_rem(key_heads).unwrap_or(heads) != 0 => Err(format!(
            "Hq is {heads} and Hk {key_heads}: each key head serves the same number of query heads"
        )),
        _ => Ok(()),
    }
}

fn saved_together(inputs: &[Option<TensorType>]) -> Result<(), String> {
    let [y, lse] = SAVED.map(|index| inputs.get(index).is_some_and(Option::is_some));
    if y == lse { Ok(()) } else { Err("inputs 'Y' and 'lse' belong together: give both or none".into()) }
}

fn sizes(call: &Call<'_>) -> Result<Sizes, String> {
    Ok(Sizes {
        batch: call.size("B")?,
        heads: call.size("Hq")?,
        key_heads: call.size("Hk")?,
        queries: call.size("L")?,
        keys: call.size("S")?,
        width: call.size("E")?,
        value_width: call.size("Ev")?,
    })
}

fn attention(call: &Call<'_>) -> Result<Attention, String> {
    let Value::Float(scale) = call.attribute(0)? else { return Err("'scale' is no float".into()) };
    Ok(Attention { scale, causal: call.attribute(1)? == Value::Int(1) })
}

/// A mask's elements, as they are or as Rust wants them.
enum MaskElements<'a> {
    Bool(Cow<'a, [bool]>),
    Other(MaskValues<'a>),
}

impl<'a> MaskElements<'a> {
    fn of(call: &Call<'a>, index: usize) -> Result<Option<Self>, String> {
        Ok(Some(match call.element(index) {
            None => return Ok(None),
            Some(ElementType::Bool) => Self::Bool(call.bools(index)?),
            Some(ElementType::Float16) => Self::Other(MaskValues::Float16(call.input(index)?)),
            Some(ElementType::Bfloat16) => Self::Other(MaskValues::Bfloat16(call.input(index)?)),
            Some(_) => Self::Other(MaskValues::Float32(call.input(index)?)),
        }))
    }

    fn mask(&self, shape: &[usize]) -> Mask<'_> {
        let mut sizes = [1; 4];
        for (size, &given) in sizes.iter_mut().rev().zip(shape.iter().rev()) {
            *size = given;
        }
        let values = match self {
            Self::Bool(values) => MaskValues::Bool(values),
            Self::Other(values) => *values,
        };
        Mask { sizes, values }
    }
}

fn inputs<'a, T: Element + Sample>(
    call: &Call<'a>,
    mask: Option<Mask<'a>>,
) -> Result<host::Inputs<'a, T>, String> {
    Ok(host::Inputs { q: call.input(0)?, k: call.input(1)?, v: call.input(2)?, mask })
}

fn forward<T: Element + Sample>(mut call: Call<'_>) -> Result<(), String> {
    let sizes = sizes(&call)?;
    let rows = sizes.batch * sizes.heads * sizes.queries;
    let mut y = call.output::<T>(0, rows * sizes.value_width)?;
    let mut lse = call.output::<f32>(1, rows)?;
    let elements = MaskElements::of(&call, 3)?;
    let mask = elements.as_ref().map(|elements| elements.mask(call.shape(3)));
    let inputs = inputs::<T>(&call, mask)?;
    let outputs = host::Outputs { y: &mut y, lse: &mut lse };
    host::forward(&attention(&call)?, sizes, &inputs, outputs).map_err(|error| error.to_string())
}

fn gradient<T: Element + Sample>(mut call: Call<'_>) -> Result<(), String> {
    let sizes = sizes(&call)?;
    let keys = sizes.batch * sizes.key_heads * sizes.keys;
    let mut dq = call.output::<T>(0, sizes.batch * sizes.heads * sizes.queries * sizes.width)?;
    let mut dk = call.output::<T>(1, keys * sizes.width)?;
    let mut dv = call.output::<T>(2, keys * sizes.value_width)?;
    let elements = MaskElements::of(&call, 4)?;
    let mask = elements.as_ref().map(|elements| elements.mask(call.shape(4)));
    let inputs = inputs::<T>(&call, mask)?;
    let saved = match SAVED.map(|index| call.element(index).is_some()) {
        [true, true] => Some(host::Saved { y: call.input(SAVED[0])?, lse: call.input(SAVED[1])? }),
        _ => None,
    };
    let grads = host::Grads { q: &mut dq, k: &mut dk, v: &mut dv };
    host::grad(&attention(&call)?, sizes, &inputs, call.input(3)?, saved, grads)
        .map_err(|error| error.to_string())
}
