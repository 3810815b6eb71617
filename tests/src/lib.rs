//! What the end-to-end tests share: a stock ONNX Runtime with the plugin registered, and sessions on it.

pub mod lora;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;

use onnx_graph::{Graph, write_bytes};
use ort::environment::Environment;
use ort::session::Session;

/// The provider's name.
pub const EP_NAME: &str = "MLXExecutionProvider";

/// The plugin that cargo built beside the running test or for the running example, or the one that `ORT_MLX_LIBRARY` names.
pub fn library() -> PathBuf {
    if let Some(path) = std::env::var_os("ORT_MLX_LIBRARY") {
        return path.into();
    }
    let name = format!("{}onnxruntime_mlx_ep{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let program = std::env::current_exe().expect("a running program has a path");
    let beside = program.with_file_name(&name);
    if beside.exists() { beside } else { program.with_file_name("../deps").join(name) }
}

/// ONNX Runtime as `cargo xtask deps` fetched it, with the plugin registered once.
pub fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let runtime =
            std::env::var("ORT_DYLIB_PATH").expect("the workspace's cargo configuration sets ORT_DYLIB_PATH");
        let environment =
            ort::init_from(runtime).expect("ONNX Runtime loads").build().expect("an environment");
        environment.register_ep_library(EP_NAME, library()).expect("the plugin registers");
        environment
    })
}

/// A session on the provider's first device with these provider options.
///
/// # Errors
/// What ONNX Runtime says.
pub fn session(model: &[u8], options: &[(&str, &str)]) -> ort::Result<Session> {
    let environment = environment();
    let device = environment.devices().find(|d| d.ep().is_ok_and(|name| name == EP_NAME));
    let options: Vec<(String, String)> =
        options.iter().map(|(key, value)| (format!("{EP_NAME}.{key}"), (*value).to_owned())).collect();
    Session::builder(environment)?
        .with_devices(device, Some(&options))
        .map_err(ort::Error::<()>::from)?
        .commit_from_memory(model)
}

/// A session on ONNX Runtime's own CPU provider alone. It is named: a session that names none chooses among all devices.
///
/// # Errors
/// What ONNX Runtime says.
pub fn cpu_session(model: &[u8]) -> ort::Result<Session> {
    let environment = environment();
    let cpu = environment.devices().find(|d| d.ep().is_ok_and(|name| name == "CPUExecutionProvider"));
    Session::builder(environment)?
        .with_devices(cpu, None)
        .map_err(ort::Error::<()>::from)?
        .commit_from_memory(model)
}

/// `graph` as a model of `opset`.
pub fn model(graph: &Graph<'_>, opset: i64) -> Vec<u8> {
    write_bytes(graph, &BTreeMap::from([(String::new(), opset)]), 8)
}
