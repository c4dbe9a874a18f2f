//! Node selector and required node affinity (kube-scheduler's NodeAffinity).

use std::fmt;

use crate::engine::model::constraints::Constraints;
use crate::engine::model::node::Node;

use super::Verdict;

/// The node's labels or name do not match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node(s) didn't match Pod's node affinity/selector")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(constraints: &Constraints, node: &Node) -> V {
    V::fits_if(constraints.selects(node), || Refusal)
}
