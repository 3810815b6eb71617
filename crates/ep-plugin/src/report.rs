//! The trace file: one JSON object a line, for programs that want to know what was claimed and why not. Lines are
//! appended, so that sessions may share a file.
//!
//! ```json
//! {"event":"claim","graph":"main","node":"conv1","index":0,"op":"Conv","domain":"","claimed":true,"reason":null}
//! {"event":"cluster","graph":"main","cluster":0,"nodes":[0,1,2]}
//! ```

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ep_core::Claims;
use onnx_graph::{Cluster, Graph};
use serde_json::{Value, json};

use crate::error::Error;

/// An open trace file.
pub struct Report {
    path: PathBuf,
    file: Mutex<File>,
}

impl Report {
    /// Opens the file at `path`, or makes it.
    ///
    /// # Errors
    /// [`Error::Trace`] if that fails.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|source| Error::Trace { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file: Mutex::new(file) })
    }

    /// Writes what was claimed of a graph.
    ///
    /// # Errors
    /// [`Error::Trace`] if the file cannot be written.
    pub fn claims(&self, graph: &Graph<'_>, claims: &Claims, clusters: &[Cluster]) -> Result<(), Error> {
        let mut text = String::new();
        for line in claim_lines(graph, claims).chain(cluster_lines(graph, clusters)) {
            text.push_str(&line.to_string());
            text.push('\n');
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(text.as_bytes()).map_err(|source| Error::Trace { path: self.path.clone(), source })
    }
}

fn claim_lines(graph: &Graph<'_>, claims: &Claims) -> impl Iterator<Item = Value> {
    graph.nodes().zip(&claims.nodes).map(|((id, node), claim)| {
        json!({
            "event": "claim",
            "graph": graph.name,
            "node": node.name,
            "index": id.0,
            "op": node.op_type,
            "domain": node.domain,
            "claimed": claim.is_ok(),
            "reason": claim.as_ref().err().map(ToString::to_string),
        })
    })
}

fn cluster_lines(graph: &Graph<'_>, clusters: &[Cluster]) -> impl Iterator<Item = Value> {
    clusters.iter().enumerate().map(|(index, cluster)| {
        let nodes: Vec<usize> = cluster.nodes.iter().map(|node| node.0).collect();
        json!({ "event": "cluster", "graph": graph.name, "cluster": index, "nodes": nodes })
    })
}
