//! Changes to a graph: nodes leave it, and values get other makers. Ids of what stays do not change.

use std::collections::BTreeMap;

use crate::{Attribute, Error, Graph, NodeId, ValueId};

impl<'a> Graph<'a> {
    /// Takes `node` out. What it made has no origin until another node takes it over.
    pub fn remove_node(&mut self, node: NodeId) {
        let Some(removed) = self.nodes.get_mut(node.0).filter(|n| !n.removed) else { return };
        removed.removed = true;
        let reads: Vec<ValueId> = removed.all_inputs().collect();
        let made: Vec<ValueId> = removed.outputs.iter().flatten().copied().collect();
        for value in reads {
            self.values[value.0].uses.retain(|u| u.node != node);
        }
        for value in made {
            self.values[value.0].producer = None;
        }
    }

    /// The attributes of `node`, to be changed. A body put there may read nothing from outside that its node did not.
    pub fn attributes_mut(&mut self, node: NodeId) -> &mut BTreeMap<String, Attribute<'a>> {
        &mut self.nodes[node.0].attributes
    }

    /// Whether `node` was taken out.
    pub fn is_removed(&self, node: NodeId) -> bool {
        self.nodes[node.0].removed
    }

    /// Makes `value` the output of the node that makes `fresh`, in place of its maker until now. Who reads `value`, bodies
    /// that know it by name included, does not notice; who reads `fresh` reads `value` from then on.
    ///
    /// # Errors
    /// [`Error::Graph`] if no node makes `fresh`, if a body knows it by name, or if something other than a node makes
    /// `value`.
    pub fn take_over(&mut self, value: ValueId, fresh: ValueId) -> Result<(), Error> {
        let name = |id: ValueId| self.value(id).name.clone();
        let Some((maker, index)) = self.value(fresh).producer() else {
            return Err(Error::Graph(format!("no node makes '{}'", name(fresh))));
        };
        if self.value(value).is_initializer() || self.inputs().contains(&value) {
            return Err(Error::Graph(format!("'{}' is not a node's to make", name(value))));
        }
        let uses = self.value(fresh).uses().to_vec();
        if uses.iter().any(|u| u.index >= self.node(u.node).inputs().len()) {
            return Err(Error::Graph(format!("a body reads '{}'", name(fresh))));
        }
        for u in &uses {
            self.nodes[u.node.0].inputs[u.index] = Some(value);
        }
        self.values[value.0].uses.extend(uses);
        self.values[fresh.0].uses.clear();
        if let Some((old, index)) = self.values[value.0].producer.take() {
            self.nodes[old.0].outputs[index] = None;
        }
        self.nodes[maker.0].outputs[index] = Some(value);
        self.values[value.0].producer = Some((maker, index));
        self.values[fresh.0].producer = None;
        Ok(())
    }

    /// Takes out the nodes of `from` of which nobody reads an output, then those that only they read, and so on. Gives
    /// what was taken out, in order of id.
    pub fn sweep(&mut self, from: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
        let mut left: Vec<NodeId> = from.into_iter().collect();
        let mut swept = Vec::new();
        while let Some(id) = left.pop() {
            if self.is_removed(id) || self.is_read(id) {
                continue;
            }
            let above = self.node(id).all_inputs().filter_map(|v| self.value(v).producer());
            left.extend(above.map(|(node, _)| node).collect::<Vec<_>>());
            self.remove_node(id);
            swept.push(id);
        }
        swept.sort_unstable();
        swept
    }

    fn is_read(&self, node: NodeId) -> bool {
        let mut made = self.node(node).outputs().iter().flatten();
        made.any(|v| !self.value(*v).uses().is_empty() || self.outputs().contains(v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ElementType, GraphBuilder, topological_order};

    /// y = Neg(Relu(x)), z = Abs(Relu(x)); y and z are returned.
    fn graph() -> Graph<'static> {
        let mut b = GraphBuilder::new("g", 17);
        let x = b.input("x", ElementType::Float, &[]);
        let r = b.node("Relu", &[Some(x)]).output_as("r");
        for (op, name) in [("Neg", "y"), ("Abs", "z")] {
            let y = b.node(op, &[Some(r)]).output_as(name);
            b.output(y);
        }
        b.build().unwrap()
    }

    #[test]
    fn a_value_changes_hands_and_the_old_maker_is_swept() {
        let mut g = graph();
        let (x, y) = (g.find_value("x").unwrap(), g.find_value("y").unwrap());
        let fresh = g.value_named("fresh");
        let node = crate::Node::new("Elu", 17);
        let elu = g.add_node(node, vec![Some(x)], vec![Some(fresh)], Vec::new()).unwrap();
        let reader = crate::Node::new("Not", 17);
        let reader = g.add_node(reader, vec![Some(fresh)], Vec::new(), Vec::new()).unwrap();
        g.take_over(y, fresh).unwrap();
        assert_eq!(g.value(y).producer(), Some((elu, 0)));
        assert_eq!((g.value(fresh).producer(), g.value(fresh).uses().len()), (None, 0));
        assert_eq!(g.node(reader).inputs(), [Some(y)]);
        g.remove_node(reader);
        // Neg goes; Relu stays, for Abs reads it.
        assert_eq!(g.sweep([NodeId(1)]), [NodeId(1)]);
        assert_eq!(topological_order(&g).unwrap(), [NodeId(0), NodeId(2), elu]);
        assert_eq!(g.nodes().count(), 3);
        assert_eq!(g.node_count(), 5);
        assert!(g.check().is_ok());
    }

    #[test]
    fn sweeping_goes_up_and_spares_what_is_returned() {
        let mut g = graph();
        assert_eq!(g.sweep([NodeId(1), NodeId(2)]), []);
        let y = g.find_value("y").unwrap();
        g.remove_node(NodeId(2));
        assert_eq!(g.value(y).producer(), Some((NodeId(1), 0)));
        assert_eq!(g.value(g.find_value("r").unwrap()).uses().len(), 1);
        g.remove_node(NodeId(1));
        assert_eq!(g.sweep([NodeId(0)]), [NodeId(0)]);
        assert!(g.value(g.find_value("x").unwrap()).uses().is_empty());
    }

    #[test]
    fn inputs_are_nobodys_to_make() {
        let mut g = graph();
        let (x, y) = (g.find_value("x").unwrap(), g.find_value("y").unwrap());
        assert!(g.take_over(x, y).is_err());
        assert!(g.take_over(y, x).is_err());
    }
}
