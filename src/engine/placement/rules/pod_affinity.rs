//! Required pod affinity and anti-affinity, of the pod and of existing pods (kube-scheduler's InterPodAffinity).

use std::fmt;

use crate::engine::placement::neighbours::{AffinityConflict, clash};

use super::{PodOnNode, Verdict};

/// Which term does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal(pub AffinityConflict);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            AffinityConflict::Affinity => "node(s) didn't match pod affinity rules",
            AffinityConflict::AntiAffinity => "node(s) didn't match pod anti-affinity rules",
            AffinityConflict::ExistingAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
        })
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    match clash(pair.model, pair.pod_id, pair.id) {
        None => V::FITS,
        Some(conflict) => V::refused(|| Refusal(conflict)),
    }
}
