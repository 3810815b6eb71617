//! The door of this crate: a session's choices, and the programs it compiles.

use std::sync::Arc;

use mlx_safe::{Block, Device, DeviceType};
use onnx_graph::{Cluster, Graph, Membership, Node, NodeId};

use crate::cluster::ClusterProgram;
use crate::executable::mode::{Mode, announce};
use crate::io::{OutputSink, Ran, TensorView};
use crate::rewrite::{self, Fused, Rules};
use crate::worker::{Remote, Worker};
use crate::{
    ClaimPolicy, Claims, CompileChoice, Decline, DeviceChoice, Error, Fusion, NodeRef, Options,
    RewriteChoice, SelectiveScanChoice, policy, precision, registry,
};

/// One session's device and policy. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    device: Device,
    claim: ClaimPolicy,
    rules: Rules,
    /// For how many keys a program is recorded; `None` for never.
    room: Option<usize>,
    worker: Arc<Worker>,
}

impl Engine {
    /// Chooses the device and starts its worker thread if this is the first use.
    ///
    /// # Errors
    /// If the device that was asked for is not there, or an earlier session on a GPU asked for another precision.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let device = choose(options.device)?;
        let rules = Rules {
            selective_scan: options.selective_scan == SelectiveScanChoice::Auto,
            spelled: options.rewrite == RewriteChoice::Auto,
        };
        let room = (options.compile == CompileChoice::Auto).then_some(options.cache);
        if device.kind == DeviceType::Gpu {
            precision::agree(options.precision)?;
        }
        let worker = Worker::of(device)?;
        if let Some(bytes) = options.memory_cache {
            worker.keep_freed(bytes)?;
        }
        announce(device.kind);
        Ok(Self { device, claim: options.claim, rules, room, worker })
    }

    /// The device that runs what is claimed.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Asks the registry about every node of `graph`, the rules about those that would run as one kernel, and the policy
    /// about all that could be taken. What the caller `forbids` is not taken.
    ///
    /// # Errors
    /// If `graph` has a cycle.
    pub fn claim(
        &self,
        graph: &Graph<'_>,
        forbids: &dyn Fn(&Node<'_>) -> Option<Decline>,
    ) -> Result<Claims, Error> {
        let kind = self.device.kind;
        let forbidden = |id: NodeId| forbids(graph.node(id)).map_or(Ok(()), Err);
        let alone: Vec<Result<(), Decline>> = (0..graph.node_count())
            .map(NodeId)
            .map(|id| {
                let node = NodeRef::new(graph, id, kind);
                registry::claim(&node)?;
                policy::admit(self.claim, kind, &node)?;
                forbidden(id)
            })
            .collect();
        if self.claim == ClaimPolicy::None {
            return Ok(Claims { nodes: alone, fusions: Vec::new() });
        }
        // What only runs where nodes are claimed anyway need not be looked for where none are.
        let rules = Rules { spelled: self.rules.spelled && alone.iter().any(Result::is_ok), ..self.rules };
        let mut fused = rewrite::apply(&mut graph.clone(), rules, kind)?;
        fused.retain(|fused| fused.nodes.iter().all(|&id| forbidden(id).is_ok()));
        loop {
            let mut nodes = alone.clone();
            for node in fused.iter().filter(|fused| fused.claims).flat_map(|fused| &fused.nodes) {
                nodes[node.0] = Ok(());
            }
            // A kernel's nodes must not be torn apart by a node between them that stays with ONNX Runtime.
            let claimed: Vec<bool> = nodes.iter().map(Result::is_ok).collect();
            let clusters = onnx_graph::partition(graph, &claimed)?;
            let claims = |fused: &[Fused]| fused.iter().filter(|fused| fused.claims).count();
            let before = claims(&fused);
            let membership = Membership::of(&clusters);
            fused.retain(|fused| membership.is_shared(&fused.nodes));
            if claims(&fused) == before {
                return Ok(Claims { nodes, fusions: self.named(fused)? });
            }
        }
    }

    /// Whether the node that `graph` consists of is taken whole, or may be once it is seen what is around it.
    ///
    /// # Errors
    /// If `graph` has a cycle.
    pub fn may_take(
        &self,
        graph: &Graph<'_>,
        forbids: &dyn Fn(&Node<'_>) -> Option<Decline>,
    ) -> Result<bool, Error> {
        let claims = self.claim(graph, forbids)?;
        let forbidden = graph.nodes().any(|(_, node)| forbids(node).is_some());
        let may = self.claim != ClaimPolicy::None && !forbidden && rewrite::may_fit(graph, self.rules);
        Ok(may || claims.nodes.iter().all(Result::is_ok))
    }

    /// The kernels that run here in place of nodes.
    fn named(&self, fused: Vec<Fused>) -> Result<Vec<Fusion>, Error> {
        if fused.is_empty() {
            return Ok(Vec::new());
        }
        self.worker.run(|| {
            let named = fused.into_iter().map(|Fused { operator, nodes, .. }| Fusion {
                operator,
                kernel: rewrite::kernel(operator),
                nodes,
            });
            named.collect()
        })
    }

    /// Groups the claimed nodes into as few convex clusters as can be, and drops those not worth the trip.
    ///
    /// # Errors
    /// If `graph` has a cycle.
    pub fn clusters(&self, graph: &Graph<'_>, claims: &Claims) -> Result<Vec<Cluster>, Error> {
        let claimed: Vec<bool> = claims.nodes.iter().map(Result::is_ok).collect();
        let clusters = onnx_graph::partition(graph, &claimed)?;
        Ok(clusters.into_iter().filter(|c| policy::worthwhile(self.claim, graph, c)).collect())
    }

    /// Turns a graph whose nodes were all claimed into an executable. Constants are copied to the device.
    ///
    /// # Errors
    /// If MLX cannot hold a constant.
    pub fn compile(&self, graph: &Graph<'_>) -> Result<Executable, Error> {
        let kind = self.device.kind;
        let (rules, room) = (self.rules, self.room);
        let program = self.worker.keep(|| ClusterProgram::new(graph, kind, rules, room))?;
        Ok(Executable { program })
    }
}

/// A compiled cluster. Runs may come from any thread; they take turns on the device's worker.
pub struct Executable {
    program: Remote<ClusterProgram>,
}

impl Executable {
    /// Records without shapes on a CPU too, where every operator allows it; whether it does.
    #[cfg(test)]
    pub(crate) fn infer_shapes(&self) -> bool {
        let mode = self.program.with(|program| {
            program.infer_shapes();
            program.mode()
        });
        matches!(mode, Ok(Mode::Shapeless(_)))
    }

    /// How this program runs, as far as its runs have shown.
    ///
    /// # Errors
    /// In the child of a fork.
    pub fn mode(&self) -> Result<Mode, Error> {
        self.program.with(ClusterProgram::mode)
    }

    /// Runs on `inputs`, which follow the graph's inputs and then the outer-scope values that it reads. Nothing refers to them
    /// afterwards.
    ///
    /// # Errors
    /// If an input has the wrong type, a node cannot work with its values, or the sink refuses an output.
    pub fn run(&self, inputs: &[TensorView<'_>], outputs: &mut dyn OutputSink) -> Result<Ran, Error> {
        self.program.with(|program| program.run(inputs, outputs))?
    }
}

/// Memory for tensors that runs read and write without a copy where the back end can.
///
/// # Errors
/// If there is none left.
pub fn allocate(bytes: usize) -> Result<Block, Error> {
    if gpu_available()? {
        // It sets up what must be said before the GPU's first use.
        Worker::of(Device::GPU)?;
    }
    Ok(Block::new(bytes)?)
}

/// Whether the loaded MLX library can use a GPU here.
///
/// # Errors
/// If MLX cannot say.
pub fn gpu_available() -> Result<bool, Error> {
    Ok(Device::GPU.is_available()?)
}

/// The version of the MLX library that is loaded.
///
/// # Errors
/// If MLX cannot say.
pub fn mlx_version() -> Result<String, Error> {
    Ok(mlx_safe::version()?)
}

fn choose(choice: DeviceChoice) -> Result<Device, Error> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::CPU),
        DeviceChoice::Auto => Ok(if gpu_available()? { Device::GPU } else { Device::CPU }),
        DeviceChoice::Gpu if gpu_available()? => Ok(Device::GPU),
        DeviceChoice::Gpu => Err(Error::Device {
            wanted: "gpu",
            hint: "MLX sees no GPU. Use device=auto or device=cpu, or on Linux the CUDA build of the plugin and a \
                   driver that works (nvidia-smi)",
        }),
    }
}
