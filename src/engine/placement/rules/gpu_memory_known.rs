//! A request by GPU memory needs a node whose memory per GPU is known.

use std::fmt;

use crate::engine::input::{Name, PodRef};

use super::{PodOnNode, Verdict};

/// The node's memory per GPU is unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The pod.
    pub pod: PodRef,
    /// The node.
    pub node: Name,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (namespace, name, node) = (&self.pod.namespace, &self.pod.name, &self.node);
        write!(
            f,
            "node is not a gpu node or the gpu memory count on the node was not synced yet, task: <{namespace}/{name}>, node: <{node}>"
        )
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    let known = || pair.node.input.as_ref().is_some_and(|input| input.gpu_memory.is_some());
    V::fits_if(pair.shape.gpu.memory == 0 || known(), || Refusal {
        pod: pair.pod.input.pod.clone(),
        node: pair.node.name.clone(),
    })
}
