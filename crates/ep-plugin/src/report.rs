//! The trace file: one JSON object a line, for programs that want to know what was claimed and why not. Lines are
//! appended, so that sessions may share a file. A line that cannot be written is lost, with a warning: nobody's session or run
//! fails for it. `index` and `nodes` count the nodes of the graph named; `body_of` is the
//! operator whose body that graph is.
//!
//! ```json
//! {"event":"claim","graph":"g","body_of":null,"node":"a","index":0,"op":"Add","domain":"","claimed":true,"reason":null}
//! {"event":"cluster","graph":"g","body_of":null,"cluster":0,"nodes":[0,1,2]}
//! {"event":"mode","cluster":"f","mode":"keyed","why":"MLX records the sizes","shapes":{"x":[2,3]},"values":[]}
//! {"event":"run","cluster":"f","copied_in":0,"read_in_place":4096,"copied_out":4096}
//! {"event":"fused","graph":"g","body_of":null,"kernel":"selective_scan/host","nodes":[1,2]}
//! ```

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use ep_core::{Claims, Decision, Fusion, Traffic};
use onnx_graph::{Cluster, Graph, Membership, Node};
use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::factory::NAME;

/// An open trace file.
pub struct Report {
    path: PathBuf,
    file: Mutex<File>,
    warning: Once,
}

impl Report {
    /// Opens the file at `path`, or makes it.
    ///
    /// # Errors
    /// [`Error::Trace`] if that fails.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|source| Error::Trace { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file), warning: Once::new() })
    }

    /// Writes what was claimed of a graph, which is a body of the operator `body_of` or the main graph.
    pub fn claims(&self, graph: &Graph<'_>, body_of: Option<&str>, claims: &Claims, clusters: &[Cluster]) {
        let mut text = String::new();
        let lines = claim_lines(graph, body_of, claims)
            .chain(cluster_lines(graph, body_of, clusters))
            .chain(fused_lines(graph, body_of, claims, clusters));
        for line in lines {
            text.push_str(&line.to_string());
            text.push('\n');
        }
        self.append(&text);
    }

    /// Writes how many bytes a run of the fused node `cluster` moved.
    pub fn run(&self, cluster: &str, traffic: Traffic) {
        let Traffic { copied_in, read_in_place, copied_out } = traffic;
        let line = json!({
            "event": "run",
            "cluster": cluster,
            "copied_in": copied_in,
            "read_in_place": read_in_place,
            "copied_out": copied_out,
        });
        self.append(&format!("{line}\n"));
    }

    /// Writes what was decided when the fused node `cluster`, whose inputs have these names, ran with a new key: its mode, the
    /// shapes, and the inputs whose values belong to the key.
    pub fn mode(&self, cluster: &str, decision: &Decision, inputs: &[&str]) {
        self.append(&format!("{}\n", mode_line(cluster, decision, inputs)));
    }

    fn append(&self, text: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(text.as_bytes()) {
            let path = self.path.display();
            self.warning.call_once(|| tracing::warn!("the trace file {path} lacks lines: {error}"));
        }
    }
}

/// ONNX Runtime asks again about a graph in which it has put fused nodes of ours: those are left out, and the others are
/// marked, so that a reader counts them once.
fn claim_lines(graph: &Graph<'_>, body_of: Option<&str>, claims: &Claims) -> impl Iterator<Item = Value> {
    let fused = |node: &Node<'_>| NAME.to_bytes() == node.domain.as_bytes();
    let again = graph.nodes().any(|(_, node)| fused(node));
    graph.nodes().zip(&claims.nodes).filter(move |((_, node), _)| !fused(node)).map(
        move |((id, node), claim)| {
            json!({
                "event": "claim",
                "again": again,
                "graph": graph.name,
                "body_of": body_of,
                "node": node.name,
                "index": id.0,
                "op": node.op_type,
                "domain": node.domain,
                "claimed": claim.is_ok(),
                "reason": claim.as_ref().err().map(ToString::to_string),
            })
        },
    )
}

fn mode_line(cluster: &str, decision: &Decision, inputs: &[&str]) -> Value {
    let shapes = inputs.iter().zip(&decision.shapes).map(|(name, shape)| ((*name).to_owned(), json!(shape)));
    let values: Vec<&str> = decision.read.iter().filter_map(|&i| inputs.get(i).copied()).collect();
    json!({
        "event": "mode",
        "cluster": cluster,
        "mode": decision.mode.name(),
        "why": decision.mode.why(),
        "shapes": shapes.collect::<Map<_, _>>(),
        "values": values,
    })
}

fn cluster_lines(
    graph: &Graph<'_>,
    body_of: Option<&str>,
    clusters: &[Cluster],
) -> impl Iterator<Item = Value> {
    clusters.iter().enumerate().map(move |(index, cluster)| {
        let nodes: Vec<usize> = cluster.nodes.iter().map(|node| node.0).collect();
        json!({
            "event": "cluster",
            "graph": graph.name,
            "body_of": body_of,
            "cluster": index,
            "nodes": nodes,
        })
    })
}

/// Only what is in a cluster will run.
fn fused_lines(
    graph: &Graph<'_>,
    body_of: Option<&str>,
    claims: &Claims,
    clusters: &[Cluster],
) -> impl Iterator<Item = Value> {
    let membership = Membership::of(clusters);
    let taken = move |fusion: &&Fusion| membership.is_shared(&fusion.nodes);
    claims.fusions.iter().filter(taken).map(move |fusion| {
        let nodes: Vec<usize> = fusion.nodes.iter().map(|node| node.0).collect();
        json!({
            "event": "fused",
            "graph": graph.name,
            "body_of": body_of,
            "kernel": fusion.kernel,
            "nodes": nodes,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ep_core::{Decline, DeclineCode, Mode};
    use onnx_graph::NodeId;

    #[test]
    fn a_decision_names_the_inputs() {
        let mode = Mode::Keyed("a \"reason\"".to_owned());
        let decision = Decision { mode, shapes: vec![vec![2, 3], vec![]], read: vec![1] };
        let line = mode_line("f", &decision, &["x", "length"]);
        assert_eq!((&line["mode"], &line["why"]), (&json!("keyed"), &json!("a \"reason\"")));
        assert_eq!(line["shapes"], json!({"x": [2, 3], "length": []}));
        assert_eq!(line["values"], json!(["length"]));
    }

    #[test]
    fn lines_say_what_was_claimed_and_why_not() {
        let mut graph = Graph::new("body");
        for op in ["Add", "NonZero"] {
            graph.add_node(Node::new(op, 13), Vec::new(), Vec::new(), Vec::new()).unwrap();
        }
        let no = Decline::new(DeclineCode::Unknown, "no such \"op\"");
        let claims = Claims { nodes: vec![Ok(()), Err(no)], fusions: Vec::new() };
        let lines: Vec<Value> = claim_lines(&graph, Some("Loop"), &claims).collect();
        assert_eq!((&lines[0]["claimed"], &lines[0]["reason"]), (&json!(true), &Value::Null));
        assert_eq!((&lines[1]["claimed"], &lines[1]["reason"]), (&json!(false), &json!("no such \"op\"")));
        assert_eq!((&lines[1]["op"], &lines[1]["index"]), (&json!("NonZero"), &json!(1)));
        assert_eq!((&lines[1]["graph"], &lines[1]["body_of"]), (&json!("body"), &json!("Loop")));
        assert!(lines.iter().all(|line| line["again"] == json!(false)));
        let mut fused = Node::new("Fused", 1);
        fused.domain = NAME.to_str().unwrap().to_owned();
        graph.add_node(fused, Vec::new(), Vec::new(), Vec::new()).unwrap();
        let claims = Claims { nodes: vec![Ok(()), Ok(()), Ok(())], fusions: Vec::new() };
        let lines: Vec<Value> = claim_lines(&graph, None, &claims).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines.iter().all(|line| line["again"] == json!(true)));
        let clusters = [Cluster { nodes: vec![NodeId(0)] }];
        let line = cluster_lines(&graph, None, &clusters).next().unwrap();
        assert_eq!((&line["nodes"], &line["body_of"]), (&json!([0]), &Value::Null));
        let fusion =
            |node| Fusion { operator: "Op", kernel: "op/host".to_owned(), nodes: vec![NodeId(node)] };
        let claims = Claims { nodes: vec![Ok(()), Ok(()), Ok(())], fusions: vec![fusion(0), fusion(1)] };
        let lines: Vec<Value> = fused_lines(&graph, None, &claims, &clusters).collect();
        assert_eq!(lines.len(), 1, "a kernel in no cluster does not run");
        assert_eq!((&lines[0]["kernel"], &lines[0]["nodes"]), (&json!("op/host"), &json!([0])));
    }
}
