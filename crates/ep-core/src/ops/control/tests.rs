//! How bodies are taken apart, and what declines.

use mlx_safe::DeviceType;
use onnx_graph::{Dim, Graph, GraphBuilder, NodeId};

use super::body::Body;
use super::plan::{Core, ScanPlan};
use crate::compile::Compiler;
use crate::program::Program;
use crate::testing::graphs::floats_by_default;
use crate::testing::*;
use crate::{ClaimPolicy, Engine, NodeRef, Options, policy, registry};

fn operators(part: &Program) -> Vec<&str> {
    part.steps().iter().map(|step| step.label.op_type.as_str()).collect()
}

#[test]
fn a_body_is_taken_apart_by_what_depends_on_states_and_steps() {
    let mut b = GraphBuilder::new("body", 21);
    let float = |b: &mut GraphBuilder<'static>, name: &str| Some(b.input(name, E::Float, &[Dim::Known(2)]));
    let (h, a, x) = (float(&mut b, "h"), float(&mut b, "a"), float(&mut b, "x"));
    let scale = Some(b.outer("scale"));
    // `a` is handed on, so its exponential is the same in every step.
    let handed_on = b.node("Identity", &[a]).output();
    let fixed = Some(b.node("Exp", &[a]).output());
    let fixed = Some(b.node("Div", &[fixed, scale]).output());
    let before = Some(b.node("Tanh", &[x]).output());
    let before = Some(b.node("Mul", &[before, fixed]).output());
    let decayed = Some(b.node("Sub", &[h, before]).output());
    let next = b.node("Max", &[decayed, x]).output();
    let y = b.node("Neg", &[Some(next)]).output();
    let z = b.node("Cos", &[before]).output();
    for output in [next, handed_on, y, z] {
        b.output(output);
    }
    let body = floats_by_default(b.build().unwrap());
    let program = Compiler::new(DeviceType::Cpu).program(&body).unwrap();
    let plan = ScanPlan::new(Body { program, captured: vec![0] }, 2, 1);
    assert_eq!(operators(&plan.fixed), ["Identity", "Exp", "Div"]);
    assert_eq!(operators(&plan.pre), ["Tanh", "Mul", "Cos"]);
    let Core::Loop(core) = &plan.core else { panic!("a loop") };
    assert_eq!(operators(core), ["Sub", "Max"]);
    assert_eq!(operators(&plan.post), ["Neg"]);
    assert_eq!(plan.states.iter().map(|state| state.constant).collect::<Vec<_>>(), [false, true]);
    assert_eq!(plan.outputs.len(), 2);
}

/// `If` whose branches each have one node of the operators given.
fn branches(then: &str, otherwise: &str) -> Graph<'static> {
    let branch = |name: &str, op: &str| {
        let mut b = GraphBuilder::new(name, 21);
        let x = b.outer("x");
        let y = b.node(op, &[Some(x)]).name(name).output();
        b.output(y);
        floats_by_default(b.build().unwrap())
    };
    let mut b = GraphBuilder::new("g", 21);
    let c = b.input("c", E::Bool, &[]);
    let _x = b.input("x", E::Float, &[Dim::Known(2)]);
    let node = b.node("If", &[Some(c)]).attr("then_branch", branch("yes", then));
    let y = node.attr("else_branch", branch("no", otherwise)).output_as("y");
    b.output(y);
    floats_by_default(b.build().unwrap())
}

#[test]
fn a_decline_inside_a_body_names_the_node() {
    let graph = branches("Neg", "Wombat");
    let node = NodeRef::new(&graph, NodeId(0), DeviceType::Cpu);
    let reason = registry::claim(&node).unwrap_err().to_string();
    assert!(reason.contains("else_branch: Wombat node 'no'"), "{reason}");
    assert!(reason.contains("not implemented"), "{reason}");
}

#[test]
fn the_policy_is_asked_about_the_node_with_the_body() {
    let graph = branches("Neg", "Abs");
    let node = NodeRef::new(&graph, NodeId(0), DeviceType::Cpu);
    assert!(registry::claim(&node).is_ok());
    assert!(policy::admit(ClaimPolicy::Auto, DeviceType::Cpu, &node).is_err());
    let engine = Engine::new(&Options::parse([("claim", "auto"), ("device", "cpu")]).unwrap()).unwrap();
    assert!(engine.claim(&graph, &|_| None).unwrap().nodes[0].is_err());
}
