//! Which of the nodes that MLX could run it should run.

use mlx_safe::DeviceType;
use onnx_graph::{Cluster, Graph};

use crate::{ClaimPolicy, Decline, DeclineCode, NodeRef};

/// Says yes, or why the policy keeps the node with ONNX Runtime.
pub(crate) fn admit(policy: ClaimPolicy, device: DeviceType, _node: &NodeRef<'_>) -> Result<(), Decline> {
    let no = |detail: &str| Err(Decline::new(DeclineCode::Policy, detail));
    match (policy, device) {
        (ClaimPolicy::All, _) | (ClaimPolicy::Auto, DeviceType::Gpu) => Ok(()),
        (ClaimPolicy::None, _) => no("claim=none"),
        // Op by op, ONNX Runtime's CPU provider is the faster one. What runs as a fused kernel is not asked about here.
        (ClaimPolicy::Auto, DeviceType::Cpu) => no(
            "claim=auto takes only fused kernels on a CPU: ONNX Runtime runs the rest as fast; claim=all takes everything",
        ),
    }
}

/// Operators that compute nothing: a cluster of these alone costs more in copies than it saves.
const MOVERS: &[&str] = &[
    "Cast",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Range",
    "Reshape",
    "Shape",
    "Size",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
];

/// Whether a cluster is worth the trip to MLX.
pub(crate) fn worthwhile(policy: ClaimPolicy, graph: &Graph<'_>, cluster: &Cluster) -> bool {
    policy == ClaimPolicy::All
        || cluster.nodes.iter().any(|&id| !MOVERS.contains(&graph.node(id).op_type.as_str()))
}
