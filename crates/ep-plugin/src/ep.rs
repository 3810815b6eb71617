//! `OrtEp`: the provider inside one session.

use std::ffi::c_char;
use std::slice;
use std::sync::Arc;

use ep_core::Engine;
use ort_sys::{OrtGraph, OrtLogger, OrtNode, OrtSessionOptions, OrtStatusPtr};
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use crate::abi::{OrtEp, OrtEpGraphSupportInfo, OrtNodeComputeInfo};
use crate::api::Api;
use crate::compute::{Compute, Input, Parts, Trace};
use crate::error::Error;
use crate::factory::{Factory, NAME};
use crate::graph_ref::{GraphRef, NodeRef};
use crate::report::Report;
use crate::{boundary, capability, import, logger, session_options};

/// The provider of one session behind its table.
#[repr(C)]
pub struct Ep {
    table: OrtEp,
    api: Api,
    log: Dispatch,
    engine: Engine,
    report: Option<Arc<Report>>,
    /// A library can be unregistered while sessions live, and ONNX Runtime releases them through the factory.
    _factory: Arc<Factory>,
}

impl Ep {
    /// Sets up a session's provider as its options ask.
    ///
    /// # Errors
    /// [`Error::Option`], [`Error::Trace`], or [`Error::Core`] if the device asked for is not there.
    ///
    /// # Safety
    /// `session` must be live; `logger` must outlive the provider.
    pub unsafe fn new(
        factory: Arc<Factory>,
        session: *const OrtSessionOptions,
        logger: *const OrtLogger,
    ) -> Result<Box<Self>, Error> {
        let api = factory.api();
        // SAFETY: by the caller's word.
        let log = unsafe { logger::dispatch(api, logger) };
        let (engine, report) = with_default(&log, || {
            // SAFETY: by the caller's word.
            let options = unsafe { session_options::read(api, session) }?;
            let report = options.trace.as_deref().map(Report::open).transpose()?.map(Arc::new);
            Ok::<_, Error>((Engine::new(&options)?, report))
        })?;
        let table = OrtEp {
            ort_version_supported: api.version(),
            GetName: Some(get_name),
            GetCapability: Some(get_capability),
            Compile: Some(compile),
            ReleaseNodeComputeInfos: Some(release_node_compute_infos),
            IsConcurrentRunSupported: Some(is_concurrent_run_supported),
            ..OrtEp::default()
        };
        Ok(Box::new(Self { table, api, log, engine, report, _factory: factory }))
    }

    /// Gives it to ONNX Runtime.
    pub fn into_raw(self: Box<Self>) -> *mut OrtEp {
        Box::into_raw(self).cast()
    }

    /// Takes it back; null is none.
    ///
    /// # Safety
    /// `raw` must be null or come from [`Self::into_raw`] and not have been taken back yet.
    pub unsafe fn take(raw: *mut OrtEp) -> Option<Box<Self>> {
        // SAFETY: by the caller's word; the table is the first member.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw.cast()) })
    }

    /// # Safety
    /// `raw` must come from [`Self::into_raw`] and be live for `'a`.
    unsafe fn borrow<'a>(raw: *const OrtEp) -> &'a Self {
        // SAFETY: by the caller's word; the table is the first member.
        unsafe { &*raw.cast() }
    }

    /// ONNX Runtime's function tables.
    pub fn api(&self) -> Api {
        self.api
    }

    /// What claims and compiles.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The trace file, if one is asked for.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_deref()
    }

    /// Runs an entry point under its guard, its events going to the session's log.
    fn enter(&self, entry: &'static str, body: impl FnOnce() -> Result<(), Error>) -> OrtStatusPtr {
        boundary::status(self.api.statuses(), entry, || with_default(&self.log, body))
    }

    fn compile_cluster(&self, graph: GraphRef<'_>, fused: NodeRef<'_>) -> Result<Box<Compute>, Error> {
        let import::Cluster { graph, feeds } = import::cluster(graph, fused)?;
        let executable = self.engine.compile(&graph)?;
        let inputs = graph.inputs().iter().zip(feeds);
        let inputs = inputs.map(|(&id, feed)| Input { name: graph.value(id).name.clone(), feed }).collect();
        let constants = graph.values().filter_map(|(_, value)| value.constant.as_ref());
        let trace = match &self.report {
            Some(report) => Some(Trace { report: Arc::clone(report), name: fused.name()?.to_owned() }),
            None => None,
        };
        Ok(Box::new(Compute::new(
            self.api,
            self.log.clone(),
            Parts {
                executable,
                inputs,
                outputs: graph.outputs().len(),
                constants: constants.map(|tensor| tensor.data().len()).sum(),
                trace,
            },
        )))
    }
}

unsafe extern "system" fn get_name(_: *const OrtEp) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "system" fn get_capability(
    this: *mut OrtEp,
    graph: *const OrtGraph,
    sink: *mut OrtEpGraphSupportInfo,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes an `Ep` of ours; graph and sink are live for this call.
    let (ep, graph) = unsafe {
        let ep = Ep::borrow(this);
        (ep, GraphRef::new(ep.api, graph))
    };
    // SAFETY: as above.
    ep.enter("GetCapability", || unsafe { capability::claim(ep, graph, sink) })
}

unsafe extern "system" fn compile(
    this: *mut OrtEp,
    graphs: *mut *const OrtGraph,
    fused_nodes: *mut *const OrtNode,
    count: usize,
    computes: *mut *mut OrtNodeComputeInfo,
    _ep_context_nodes: *mut *mut OrtNode,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes an `Ep` of ours.
    let ep = unsafe { Ep::borrow(this) };
    ep.enter("Compile", || {
        if count == 0 {
            return Ok(());
        }
        // SAFETY: both arrays hold `count` objects that are live for this call.
        let clusters = unsafe {
            slice::from_raw_parts(graphs, count)
                .iter()
                .zip(slice::from_raw_parts(fused_nodes, count))
                .map(|(&graph, &node)| (GraphRef::new(ep.api, graph), NodeRef::new(ep.api, node)))
        };
        let compiled: Vec<_> =
            clusters.map(|(graph, fused)| ep.compile_cluster(graph, fused)).collect::<Result<_, _>>()?;
        for (index, compute) in compiled.into_iter().enumerate() {
            // SAFETY: the array has room for `count` results.
            unsafe { *computes.add(index) = compute.into_raw() };
        }
        Ok(())
    })
}

unsafe extern "system" fn release_node_compute_infos(
    _: *mut OrtEp,
    computes: *mut *mut OrtNodeComputeInfo,
    count: usize,
) {
    boundary::void("ReleaseNodeComputeInfos", || {
        for index in 0..count {
            // SAFETY: the array holds `count` results of `compile`, each given back once.
            drop(unsafe { Compute::take(*computes.add(index)) });
        }
    });
}

unsafe extern "system" fn is_concurrent_run_supported(this: *mut OrtEp, out: *mut bool) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes an `Ep` of ours.
    let ep = unsafe { Ep::borrow(this) };
    ep.enter("IsConcurrentRunSupported", || {
        // SAFETY: an out-parameter.
        unsafe { *out = true };
        Ok(())
    })
}
