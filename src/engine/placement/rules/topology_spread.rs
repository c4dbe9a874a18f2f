//! Topology spread constraints with `DoNotSchedule` (kube-scheduler's PodTopologySpread).

use std::fmt;

use crate::engine::placement::neighbours::SpreadConflict;

use super::{PodOnNode, Verdict};

/// The constraint that one more pod would violate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal(pub SpreadConflict);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SpreadConflict::MissingLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            SpreadConflict::Skew => "node(s) didn't match pod topology spread constraints",
        })
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    match pair
        .settings
        .spreading
        .and_then(|spreading| spreading.clash(pair.model, pair.id))
    {
        None => V::FITS,
        Some(conflict) => V::refused(|| Refusal(conflict)),
    }
}
