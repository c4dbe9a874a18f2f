//! The node has GPUs for a pod that shares GPUs, chosen in the policy's order. KAI reports no reason where it has not.

use std::fmt;

use crate::engine::placement::gpu::choose;

use super::{PodOnNode, Verdict};

/// There are no reasons.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    if pair.shape.shared && choose(pair.model, pair.pod_id, pair.id, pair.settings.gpu_order).is_none() {
        return V::refused_for(|| None);
    }
    V::FITS
}
