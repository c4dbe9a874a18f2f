//! The kubelet's Topology Manager will take the pod.

use std::fmt;

use crate::engine::placement::numa::allows;

use super::{PodOnNode, Verdict};

/// It would refuse the pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("node cannot NUMA-align the pod's resources under its Topology Manager policy")
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    V::fits_if(allows(pair.model, pair.pod_id, pair.id), || Refusal)
}
