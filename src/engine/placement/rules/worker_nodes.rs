//! Nodes are kept for pods with GPUs or for pods without, by label, where the policy says so.

use std::fmt;

use crate::engine::input::{Name, PodRef};
use crate::engine::model::prepare::has_label;

use super::{PodOnNode, Verdict};

/// The node lacks the label for pods of this kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// `cpu` or `gpu`.
    pub kind: &'static str,
    /// The pod.
    pub pod: PodRef,
    /// The node.
    pub node: Name,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, namespace, name, node) = (self.kind, &self.pod.namespace, &self.pod.name, &self.node);
        write!(
            f,
            "{kind} task: <{namespace}/{name}> can't run on non {kind} nodes, node: <{node}>"
        )
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    if !pair.settings.policy.restrict_nodes {
        return V::FITS;
    }
    let (kind, label) = if pair.shape.cpu_only {
        ("cpu", &pair.settings.policy.cpu_worker_label)
    } else {
        ("gpu", &pair.settings.policy.gpu_worker_label)
    };
    V::fits_if(has_label(pair.node, label), || Refusal {
        kind,
        pod: pair.pod.input.pod.clone(),
        node: pair.node.name.clone(),
    })
}
