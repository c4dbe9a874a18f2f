//! The affinity terms of a pod to other pods, as its spec lists them.

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm};

/// What an affinity term to other pods asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To be where they are.
    Near,
    /// To be where they are not.
    Apart,
    /// To be rather where they are, with that weight; if it is negative, where they are not.
    Preferred(i32),
}

/// The affinity and anti-affinity terms to other pods.
pub fn terms(affinity: &Affinity) -> impl Iterator<Item = (Wish, &PodAffinityTerm)> {
    let near = affinity.pod_affinity.iter().flat_map(|near| {
        let required = near
            .required_during_scheduling_ignored_during_execution
            .iter()
            .flatten();
        let preferred = near
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten();
        let preferred = preferred.map(|one| (Wish::Preferred(one.weight), &one.pod_affinity_term));
        required.map(|term| (Wish::Near, term)).chain(preferred)
    });
    let apart = affinity.pod_anti_affinity.iter().flat_map(|apart| {
        let required = apart
            .required_during_scheduling_ignored_during_execution
            .iter()
            .flatten();
        let preferred = apart
            .preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten();
        let preferred = preferred.map(|one| (Wish::Preferred(-one.weight), &one.pod_affinity_term));
        required.map(|term| (Wish::Apart, term)).chain(preferred)
    });
    near.chain(apart)
}
