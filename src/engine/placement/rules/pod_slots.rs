//! Each GPU that is opened for sharing needs a pod slot for its reservation pod, beside the pod's own. Where slots are short, the pod joins shared GPUs that
//! have room (see [`choose`](crate::engine::placement::gpu::choose)), so only those count that have to be opened.

use std::fmt;

use crate::engine::model::resources::PODS;

use super::gpu_sharing::opened;
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
    let slots = node.future.get(PODS);
    // The GPUs of the node are counted only where slots are short.
    let enough = !shape.shared || slots > shape.gpu.count || slots > opened(node, shape);
    V::fits_if(enough, || Refusal)
}
