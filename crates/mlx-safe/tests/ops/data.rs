//! `ops.json`: arrays in, arrays out, and how close.

use std::collections::BTreeMap;

use mlx_safe::{Array, Device, Dtype, Stream};
use num_complex::Complex32;
use serde_json::Value;

pub struct Case {
    tolerance: f64,
    pub inputs: Vec<Array>,
    outputs: Vec<Expected>,
}

struct Expected {
    kind: String,
    shape: Vec<i32>,
    /// Real and imaginary parts in turn if complex.
    values: Vec<f64>,
}

/// What a call returns.
pub trait Results {
    fn arrays(self) -> Vec<Array>;
}

impl Results for Array {
    fn arrays(self) -> Vec<Array> {
        vec![self]
    }
}

impl Results for Vec<Array> {
    fn arrays(self) -> Vec<Array> {
        self
    }
}

impl Results for (Array, Array) {
    fn arrays(self) -> Vec<Array> {
        vec![self.0, self.1]
    }
}

impl Results for (Array, Array, Array) {
    fn arrays(self) -> Vec<Array> {
        vec![self.0, self.1, self.2]
    }
}

pub fn read() -> BTreeMap<String, Case> {
    let text = include_str!("../data/ops.json");
    let cases: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
    cases.into_iter().map(|(name, case)| (name, Case::read(&case))).collect()
}

impl Case {
    fn read(case: &Value) -> Self {
        let list = |key: &str| case[key].as_array().unwrap().iter().map(Expected::read);
        Self {
            tolerance: case["tol"].as_f64().unwrap(),
            inputs: list("in").map(|e| e.array()).collect(),
            outputs: list("out").collect(),
        }
    }

    /// Compares types, shapes and values.
    pub fn check(&self, outputs: &[Array]) -> Result<(), String> {
        if outputs.len() != self.outputs.len() {
            return Err(format!("{} outputs, expected {}", outputs.len(), self.outputs.len()));
        }
        outputs.iter().zip(&self.outputs).try_for_each(|(got, want)| want.check(got, self.tolerance))
    }
}

impl Expected {
    fn read(array: &Value) -> Self {
        let number = |v: &Value| match v.as_str() {
            Some(text) => text.parse().unwrap(),
            None => v.as_f64().unwrap(),
        };
        Self {
            kind: array["type"].as_str().unwrap().to_owned(),
            shape: array["shape"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap() as i32).collect(),
            values: array["values"].as_array().unwrap().iter().map(number).collect(),
        }
    }

    fn array(&self) -> Array {
        let dtype = match self.kind.as_str() {
            "bool" => Dtype::Bool,
            "uint8" => Dtype::Uint8,
            "uint32" => Dtype::Uint32,
            "int32" => Dtype::Int32,
            "float32" => Dtype::Float32,
            "complex64" => {
                let values: Vec<_> =
                    self.values.chunks(2).map(|z| Complex32::new(z[0] as f32, z[1] as f32)).collect();
                return Array::from_slice(&values, &self.shape).unwrap();
            }
            other => panic!("{other} as an input"),
        };
        // Converted on the CPU: GPUs have no float64.
        let array = Stream::default_on(Device::CPU)
            .unwrap()
            .scope(|| Array::from_slice(&self.values, &self.shape).and_then(|array| array.astype(dtype)));
        let array = array.unwrap();
        array.eval().unwrap();
        array
    }

    fn check(&self, got: &Array, tolerance: f64) -> Result<(), String> {
        let dtype = got.dtype();
        let right_kind = match self.kind.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "bool" => dtype == Dtype::Bool,
            "float" => dtype.is_float(),
            "complex" => dtype == Dtype::Complex64,
            _ => dtype.is_integer(),
        };
        if !right_kind || got.shape() != self.shape {
            return Err(format!("{got:?}, expected {}{:?}", self.kind, self.shape));
        }
        let values: Vec<f64> = if dtype == Dtype::Complex64 {
            let values = got.to_vec::<Complex32>().map_err(|e| e.to_string())?;
            values.iter().flat_map(|z| [f64::from(z.re), f64::from(z.im)]).collect()
        } else {
            got.astype(Dtype::Float64).and_then(|g| g.to_vec()).map_err(|e| e.to_string())?
        };
        for (i, (got, want)) in values.iter().zip(&self.values).enumerate() {
            let close = (got - want).abs() <= tolerance * want.abs().max(1.0);
            if !(close || got == want || (got.is_nan() && want.is_nan())) {
                return Err(format!("[{i}] is {got}, expected {want}"));
            }
        }
        Ok(())
    }
}
