//! The operator domain `ai.ortmlx`, version 1: operators that ONNX lacks, as ONNX Runtime's custom operators.
//!
//! ONNX Runtime gives the domain to every session that lists our devices. A node that the provider does not claim runs on
//! the CPU by the function in the operator's description, so a model that uses the domain loads and runs everywhere.
//!
//! To add an operator: one file that describes it, and one row in [`OPERATORS`].

mod attention;
mod call;
mod custom_op;
mod inference;
mod kernel;
mod operator;
mod selective_scan;

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use ort_sys::{OrtApi, OrtCustomOpDomain};

use crate::api::{Api, ort};
use crate::error::Error;
use custom_op::CustomOp;
use operator::{Operator, TYPES};

/// The domain's name.
pub const NAME: &CStr = c"ai.ortmlx";

/// Every operator of the domain.
static OPERATORS: &[&Operator] =
    &[&attention::FORWARD, &attention::GRADIENT, &selective_scan::FORWARD, &selective_scan::GRADIENT];

/// The domain as one runtime knows it.
struct Domain {
    runtime: *const OrtApi,
    raw: *mut OrtCustomOpDomain,
}

// SAFETY: the table is static, and the domain is never changed once it is made.
unsafe impl Send for Domain {}

/// The domain for the runtime behind `api`: made once, and never released, since sessions hold pointers into it for as
/// long as they please.
///
/// # Errors
/// [`Error::Ort`] if ONNX Runtime will not have it.
pub fn of(api: Api) -> Result<*mut OrtCustomOpDomain, Error> {
    static MADE: Mutex<Vec<Domain>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(domain) = made.iter().find(|domain| domain.runtime == api.table()) {
        return Ok(domain.raw);
    }
    let raw = make(api)?;
    made.push(Domain { runtime: api.table(), raw });
    Ok(raw)
}

fn make(api: Api) -> Result<*mut OrtCustomOpDomain, Error> {
    let mut raw = null_mut();
    // SAFETY: the name is copied; an out-parameter.
    unsafe { api.check(ort!(api, CreateCustomOpDomain(NAME.as_ptr(), &raw mut raw))) }?;
    for operator in OPERATORS {
        for element in TYPES {
            let op = CustomOp::leak(api, operator, element);
            // SAFETY: the domain is live, the operator lives for ever.
            let added = unsafe { api.check(ort!(api, CustomOpDomain_Add(raw, op))) };
            if let Err(error) = added {
                // SAFETY: made above, and known to nobody else.
                unsafe { ort!(api, ReleaseCustomOpDomain(raw)) };
                return Err(error);
            }
        }
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::{Attribute, Formal};

    /// Every operator, parameter and attribute is documented, with its letters.
    #[test]
    fn operators_are_documented() {
        let text = include_str!("../../../../docs/operators.md").replace('\n', " ");
        for operator in OPERATORS {
            let title = format!("## {} ", operator.title());
            let (_, section) = text.split_once(&title).unwrap_or_else(|| panic!("no section {title}"));
            let section = section.split(" ## ").next().unwrap();
            let shown = |formal: &Formal| format!("**{}** ({})", formal.name, formal.axes.join(", "));
            for formal in operator.inputs.iter().chain(operator.outputs) {
                assert!(section.contains(&shown(formal)), "{title}: {}", shown(formal));
            }
            for attribute in operator.attributes {
                let name = attribute.name().to_str().unwrap();
                let shown = match attribute {
                    Attribute::Int { default, .. } => format!("**{name}** (int, default {default})"),
                    Attribute::Float { .. } => format!("**{name}** (float)"),
                };
                assert!(section.contains(&shown), "{title}: {shown}");
            }
        }
    }
}
