//! Every operator that can be claimed, by domain and name.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::compile::Compiler;
use crate::op::{AnyOp, Entry, OpKey};
use crate::ops::FAMILIES;
use crate::{Decline, DeclineCode, LowerError, NodeRef};

/// The domain and name of every operator that has an entry, sorted.
pub fn operators() -> Vec<(&'static str, &'static str)> {
    let mut keys: Vec<_> = by_key().keys().copied().collect();
    keys.sort_unstable();
    keys
}

/// Asks the operator that takes `node` whether it can run, or says why it stays with ONNX Runtime.
pub(crate) fn claim(node: &NodeRef<'_>) -> Result<(), Decline> {
    (entry(node)?.claim)(node)?;
    node.check_attributes()
}

/// Makes what a program holds of a node that [`claim`] took.
pub(crate) fn compile(node: &NodeRef<'_>, compiler: &Compiler) -> Result<Box<dyn AnyOp>, LowerError> {
    let compilation = entry(node).and_then(|entry| (entry.compile)(node, compiler));
    compilation.unwrap_or_else(|decline| {
        Err(LowerError::Bug(format!("claimed before, declined at compilation: {decline}")))
    })
}

fn entry(node: &NodeRef<'_>) -> Result<&'static Entry, Decline> {
    let key = (node.domain(), node.op_type());
    let Some(entry) = by_key().get(&key) else {
        let domain = if node.domain().is_empty() { "ai.onnx" } else { node.domain() };
        let detail = format!("{domain}.{} is not implemented", node.op_type());
        return Err(Decline::new(DeclineCode::Unknown, detail));
    };
    node.check_basics()?;
    Ok(entry)
}

fn by_key() -> &'static HashMap<(&'static str, &'static str), &'static Entry> {
    static MAP: OnceLock<HashMap<(&str, &str), &Entry>> = OnceLock::new();
    MAP.get_or_init(|| entries().map(|(key, entry)| ((key.domain, key.name), entry)).collect())
}

fn entries() -> impl Iterator<Item = (&'static OpKey, &'static Entry)> {
    FAMILIES
        .iter()
        .flat_map(|family| family.iter())
        .flat_map(|entry| entry.keys.iter().map(move |key| (key, entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The README's list, as it should be.
    fn listing() -> String {
        let domain = |wanted: &str| {
            let names: Vec<&str> =
                operators().into_iter().filter(|(d, _)| *d == wanted).map(|(_, n)| n).collect();
            format!(
                "{} of {}: {}.\n",
                names.len(),
                if wanted.is_empty() { "ai.onnx" } else { wanted },
                names.join(", ")
            )
        };
        format!("{}\n{}", domain(""), domain("com.microsoft"))
    }

    #[test]
    fn the_readme_lists_every_operator() {
        let readme = include_str!("../../../README.md");
        let listed = readme.split("<!-- operators -->\n").nth(1).unwrap();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(listed), words(&listing()), "README.md should say:\n{}", listing());
    }

    #[test]
    fn no_operator_is_listed_twice() {
        assert_eq!(by_key().len(), entries().count());
    }
}
