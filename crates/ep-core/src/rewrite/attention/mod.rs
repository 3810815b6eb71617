//! Attention and its pullback, in the many ways in which exporters write them: a softmax over scaled and masked products
//! of queries and keys, multiplied by values.

mod causal;
mod factor;
mod fillings;
mod flow;
mod forward;
mod gradient;
mod kernel;
mod layout;
mod matrices;
mod probabilities;
mod product;
mod ranks;
mod scores;
mod shared;

pub(crate) use forward::attention;
pub(crate) use gradient::pullback;
pub(crate) use matrices::same_dims;
pub(crate) use ranks::declare;

use kernels_metal::Result;
use mlx_safe::{DeviceType, Stream};
use onnx_graph::pattern::Maker;
use onnx_graph::{Graph, NodeId};

/// The operator of the forward pass.
pub(crate) const FORWARD: &str = "ScaledDotProductAttention";

/// The operator of the pullback.
pub(crate) const BACKWARD: &str = "ScaledDotProductAttentionGrad";

/// The kernel on the current stream as traces name it. On a GPU sizes decide which one runs.
pub(crate) fn kernel(name: &str) -> Result<String> {
    Ok(match Stream::current_device()? {
        DeviceType::Cpu => format!("{name}/host"),
        DeviceType::Gpu => format!("{name}/gpu"),
    })
}

/// The node, if it is a `Softmax`.
fn softmax_at<'g, 'a>(graph: &'g Graph<'a>, id: NodeId) -> Option<Maker<'g, 'a>> {
    let maker = Maker { depth: 0, id, node: graph.node(id), output: 0 };
    maker.is("Softmax").then_some(maker)
}
