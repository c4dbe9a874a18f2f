//! The affinity terms of a pod to other pods, as its spec lists them.

use k8s_openapi::api::core::v1::{Affinity, PodAffinityTerm, WeightedPodAffinityTerm};

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
        let required = &near.required_during_scheduling_ignored_during_execution;
        let preferred = &near.preferred_during_scheduling_ignored_during_execution;
        listed(required.iter().flatten(), Wish::Near, preferred.iter().flatten(), 1)
    });
    let apart = affinity.pod_anti_affinity.iter().flat_map(|apart| {
        let required = &apart.required_during_scheduling_ignored_during_execution;
        let preferred = &apart.preferred_during_scheduling_ignored_during_execution;
        listed(required.iter().flatten(), Wish::Apart, preferred.iter().flatten(), -1)
    });
    near.chain(apart)
}

/// [`terms`] with mutable references.
pub fn terms_mut(affinity: &mut Affinity) -> impl Iterator<Item = &mut PodAffinityTerm> {
    let near = affinity.pod_affinity.iter_mut().map(|near| {
        let required = near.required_during_scheduling_ignored_during_execution.iter_mut();
        (required, &mut near.preferred_during_scheduling_ignored_during_execution)
    });
    let apart = affinity.pod_anti_affinity.iter_mut().map(|apart| {
        let required = apart.required_during_scheduling_ignored_during_execution.iter_mut();
        (
            required,
            &mut apart.preferred_during_scheduling_ignored_during_execution,
        )
    });
    near.chain(apart).flat_map(|(required, preferred)| {
        let preferred = preferred.iter_mut().flatten();
        required
            .flatten()
            .chain(preferred.map(|one| &mut one.pod_affinity_term))
    })
}

/// Terms with what they ask for; `sign` is that of the weights.
fn listed<'a>(
    required: impl Iterator<Item = &'a PodAffinityTerm>,
    wish: Wish,
    preferred: impl Iterator<Item = &'a WeightedPodAffinityTerm>,
    sign: i32,
) -> impl Iterator<Item = (Wish, &'a PodAffinityTerm)> {
    let preferred = preferred.map(move |one| {
        let weight = one.weight.saturating_mul(sign);
        (Wish::Preferred(weight), &one.pod_affinity_term)
    });
    required.map(move |term| (wish, term)).chain(preferred)
}
