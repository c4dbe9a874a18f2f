//! The node is not cordoned, and ready by its conditions.

use std::fmt;

use crate::engine::model::constraints::Constraints;
use crate::engine::model::node::Node;

use super::Verdict;

/// Why it is not ready.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// Cordoned.
    Unschedulable,
    /// Its conditions.
    NotReady,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unschedulable => "node is unschedulable",
            Self::NotReady => "node has NotReady condition",
        })
    }
}

/// The rule. Both reasons are given where both hold.
pub fn check<V: Verdict<Refusal>>(_: &Constraints, node: &Node) -> V {
    if node.ready() {
        return V::FITS;
    }
    V::refused_for(|| {
        let input = node.input.as_ref();
        let unschedulable = input.is_some_and(|input| input.unschedulable);
        let not_ready = input.is_some_and(|input| input.fault.is_some());
        let reasons = [
            unschedulable.then_some(Refusal::Unschedulable),
            not_ready.then_some(Refusal::NotReady),
        ];
        reasons.into_iter().flatten()
    })
}
