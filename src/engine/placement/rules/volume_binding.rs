//! Volumes (kube-scheduler's VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits): bound volumes can be used on the node, unbound claims can get one, and the node can attach them.

use crate::engine::model::constraints::Constraints;
use crate::engine::model::node::Node;
use crate::engine::placement::volumes::{VolumeConflict, fit};

use super::{PodOnNode, Verdict};

/// Why volumes exclude the node.
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

/// The part of the rule that depends only on the node's labels and name: no bound volume excludes it.
#[must_use]
pub fn reaches(constraints: &Constraints, node: &Node) -> bool {
    constraints.reaches(node)
}
