//! The summary of a pod group in one line, as `kubectl get podgroups` shows it: pods with a node, its state, and why pods wait. Pure.

use std::collections::BTreeSet;

use super::ledger::Sums;
use super::status::Finding;
use crate::api::PodGroup;
use crate::api::hold::Hold;
use crate::api::pod_group::{PodGroupSpec, PodGroupSummary};
use crate::engine::decision::Cause;

/// The state of a pod group with a hold; added to the state of one that runs.
const HELD: &str = "Held";

/// The desired summary. A group without pods and without a report keeps the stored one.
#[must_use]
pub fn summary(group: &PodGroup, sums: &Sums, finding: &Finding) -> Option<PodGroupSummary> {
    let before = group.status.as_ref().and_then(|status| status.summary.as_ref());
    if sums.pods == 0 && before.is_none() && !matches!(finding, Finding::Waits(_)) {
        return None;
    }
    let minimum = minimum(&group.spec);
    let there = sums.running + sums.waiting;
    let (state, of) = match sums {
        _ if there == 0 && sums.pods > 0 => ("Finished", sums.pods),
        Sums { pods: 0, .. } if !matches!(finding, Finding::Waits(_)) => ("Empty", minimum),
        Sums { running: 0, .. } => ("Pending", there.max(minimum)),
        Sums { running, .. } if *running < minimum => ("Partial", there.max(minimum)),
        Sums { .. } => ("Running", there),
    };
    let reported = matches!(finding, Finding::Waits(report) if report.verdict.cause == Cause::Held);
    let state = match (state, reported || is_held(group)) {
        ("Pending", true) => HELD.to_owned(),
        ("Partial" | "Running", true) => format!("{state},{HELD}"),
        _ => state.to_owned(),
    };
    let reason = match finding {
        _ if state == "Finished" => None,
        Finding::Cleared | Finding::Unknown if sums.only_gated() => Some(Cause::Gated.as_str().to_owned()),
        Finding::Waits(report) => Some(report.verdict.cause.as_str().to_owned()),
        Finding::Held | Finding::Unknown if sums.waiting > 0 => before.and_then(|before| before.reason.clone()),
        Finding::Held | Finding::Unknown | Finding::Cleared => None,
    };
    Some(PodGroupSummary {
        running: Some(format!("{}/{of}", sums.running)),
        state: Some(state),
        reason,
    })
}

/// Whether its own annotation holds it.
fn is_held(group: &PodGroup) -> bool {
    let annotations = group.metadata.annotations.iter().flatten();
    Hold::of(annotations.map(|(key, value)| (key.as_str(), value.as_str()))).is_some()
}

/// How many pods must run together. With sub-groups: the sum over all leaves, or one where not all sub-groups need run.
fn minimum(spec: &PodGroupSpec) -> usize {
    let count = |minimum: i32| usize::try_from(minimum).unwrap_or_default();
    if spec.sub_groups.is_empty() {
        return count(spec.min_member.unwrap_or(1));
    }
    let parts = &spec.sub_groups;
    if spec.min_sub_group.is_some() || parts.iter().any(|part| part.min_sub_group.is_some()) {
        return 1;
    }
    let inner: BTreeSet<_> = parts.iter().filter_map(|part| part.parent.as_deref()).collect();
    let leaves = parts.iter().filter(|part| !inner.contains(part.name.as_str()));
    leaves.map(|leaf| count(leaf.min_member.unwrap_or(0))).sum()
}

#[cfg(test)]
mod tests;
