//! Volumes: those that the pod's claims have can be reached, those that they lack can be found or made, and the node can attach them.

use crate::engine::model::constraints::Constraints;
use crate::engine::model::node::Node;
use crate::engine::placement::volumes::{VolumeConflict, fit};

use super::{PodOnNode, Verdict};

/// What is against the node.
pub type Refusal = VolumeConflict;

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    match fit(
        pair.model,
        pair.pod_id,
        pair.id,
        false,
        pair.settings.policy.csi_storage,
    ) {
        Ok(_) => V::FITS,
        Err(clash) => V::refused(|| clash),
    }
}

/// The part of the rule that needs no more than the node's labels and name: no claim has a volume elsewhere.
#[must_use]
pub fn reaches(constraints: &Constraints, node: &Node) -> bool {
    constraints.reaches(node)
}
