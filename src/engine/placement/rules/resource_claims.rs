//! Resource claims (dynamic resource allocation): the node has devices that satisfy the pod's claims.

use std::fmt;

use crate::engine::placement::claims::{NoClaims, choose_bounded};

use super::{PodOnNode, Verdict};

/// Why it cannot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal(pub NoClaims);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    match choose_bounded(pair.model, pair.pod_id, pair.id, false) {
        Ok(_) => V::FITS,
        Err(why) => V::refused(|| Refusal(why)),
    }
}
