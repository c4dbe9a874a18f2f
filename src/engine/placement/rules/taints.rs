//! All `NoSchedule` and `NoExecute` taints are tolerated (kube-scheduler's TaintToleration).

use std::fmt;

use crate::engine::model::constraints::Constraints;
use crate::engine::model::node::Node;

use super::Verdict;

/// A taint is not tolerated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node(s) had untolerated taint(s)")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(constraints: &Constraints, node: &Node) -> V {
    V::fits_if(constraints.tolerates(node), || Refusal)
}
