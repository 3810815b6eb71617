//! `MLXExecutionProvider`: a plugin execution provider that runs ONNX graphs on MLX.
//!
//! A stock ONNX Runtime from 1.24 on loads this library with `RegisterExecutionProviderLibrary` and calls the two
//! functions exported here. From there on everything goes through tables: a factory makes one provider a session, the
//! provider claims nodes and compiles clusters, and each cluster then runs by itself.
//!
//! Only this crate knows ONNX Runtime's C interface; how a node is lowered is the business of `ep-core`.

mod abi;
mod allocator;
mod api;
mod attribute_ref;
mod boundary;
mod capability;
mod compute;
mod data_transfer;
mod domain;
mod element;
mod ep;
mod error;
mod factory;
mod graph_ref;
mod heap;
mod import;
mod key_values;
mod logger;
mod memory_info;
mod report;
mod session_options;
mod tensor_ref;

use std::ffi::c_char;
use std::ptr::null_mut;

use ort_sys::{OrtApiBase, OrtLogger, OrtSessionOptions, OrtStatusPtr};

use crate::abi::OrtEpFactory;
use crate::api::{Api, Statuses, ort};
use crate::error::Error;
use crate::factory::Factory;

/// Called by ONNX Runtime when the library is registered: hands out the one factory.
///
/// Fails with a status that says so on a runtime older than 1.24.
///
/// # Safety
/// The arguments must be those that `RegisterExecutionProviderLibrary` passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CreateEpFactories(
    _registered_name: *const c_char,
    base: *const OrtApiBase,
    _default_logger: *const OrtLogger,
    factories: *mut *mut OrtEpFactory,
    max_factories: usize,
    num_factories: *mut usize,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes its base table.
    boundary::status(unsafe { Statuses::new(base) }, "CreateEpFactories", || {
        // SAFETY: as above.
        let api = unsafe { Api::connect(base) }?;
        if max_factories == 0 {
            return Err(Error::Bug("ONNX Runtime has no room for a factory".into()));
        }
        // SAFETY: there is room for `max_factories` results; the last is an out-parameter.
        unsafe {
            *factories = Factory::new(api).into_raw();
            *num_factories = 1;
        }
        Ok(())
    })
}

/// Called by ONNX Runtime when the library is unregistered. Sessions that still live keep the factory.
///
/// # Safety
/// `factory` must come from [`CreateEpFactories`] and be released once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ReleaseEpFactory(factory: *mut OrtEpFactory) -> OrtStatusPtr {
    // SAFETY: by the caller's word.
    boundary::void("ReleaseEpFactory", || drop(unsafe { Factory::take(factory) }));
    OrtStatusPtr(null_mut())
}

/// Called by ONNX Runtime's `RegisterCustomOpsLibrary`: gives the operators of the domain `ai.ortmlx`, which run on the CPU,
/// to a session that does not list our devices.
///
/// Fails with a status that says so on a runtime older than 1.24.
///
/// # Safety
/// The arguments must be those that `RegisterCustomOpsLibrary` passes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RegisterCustomOps(
    options: *mut OrtSessionOptions,
    base: *const OrtApiBase,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes its base table.
    boundary::status(unsafe { Statuses::new(base) }, "RegisterCustomOps", || {
        // SAFETY: as above.
        let api = unsafe { Api::connect(base) }?;
        let domain = domain::of(api)?;
        // SAFETY: the options are live for this call, the domain for ever.
        unsafe { api.check(ort!(api, AddCustomOpDomain(options, domain))) }
    })
}
