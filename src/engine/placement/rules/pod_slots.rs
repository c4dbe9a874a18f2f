//! A GPU that is opened for sharing needs a pod slot for its reservation pod, beside the pod's own.

use std::fmt;

use crate::engine::model::resources::PODS;

use super::gpu_sharing::joins;
use super::{PodOnNode, Verdict};

/// Too few slots are left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node(s) pod number exceeded")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    let (node, shape) = (pair.node, pair.shape);
    let needed = || if joins(node, shape) { 1 } else { 2 };
    V::fits_if(!shape.shared || node.future.get(PODS) >= needed(), || Refusal)
}
