//! The node is not cordoned, and ready by its conditions.

use std::fmt;

use crate::engine::input::Name;
use crate::engine::model::constraints::Constraints;
use crate::engine::model::node::Node;

use super::Verdict;

/// Why it is not ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Cordoned.
    Unschedulable,
    /// One of its conditions, by its type.
    Condition(Name),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unschedulable => f.write_str("node is unschedulable"),
            Self::Condition(kind) if &**kind == "Ready" => f.write_str("node has NotReady condition"),
            Self::Condition(kind) => write!(f, "node has {kind} condition"),
        }
    }
}

/// The rule. All reasons are given.
pub fn check<V: Verdict<Refusal>>(_: &Constraints, node: &Node) -> V {
    if node.ready() {
        return V::FITS;
    }
    V::refused_for(|| {
        let input = node.input.as_ref();
        let cordoned = input.is_some_and(|input| input.unschedulable);
        let faults = input.into_iter().flat_map(|input| &input.faults);
        let conditions = faults.map(|fault| Refusal::Condition(fault.kind().into()));
        cordoned.then_some(Refusal::Unschedulable).into_iter().chain(conditions)
    })
}
