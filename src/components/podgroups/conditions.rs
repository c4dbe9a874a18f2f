//! The condition for a pod group that cannot run. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::{self, object, reason, resource};
use crate::api::pod_group::{QueueDetails, SchedulingCondition, UnschedulableDetails, UnschedulableReason};
use crate::api::quantity::{Amount, Format};
use crate::api::{PodGroup, QuantityMap};
use crate::components::Settings;
use crate::engine::decision::{Figures, GroupReport, QueueFigures, Reason, Wording};

/// The node pool that the group is in.
#[must_use]
pub fn node_pool(group: &PodGroup, settings: &Settings) -> String {
    let label = group
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(&settings.pools.key));
    label
        .filter(|pool| !pool.is_empty())
        .map_or(object::DEFAULT_NODE_POOL, String::as_str)
        .to_owned()
}

/// The condition for a report. Its transition id and time are set by [`advance`].
#[must_use]
pub fn condition(report: &GroupReport, node_pool: String, words: Wording) -> SchedulingCondition {
    SchedulingCondition {
        r#type: Some(names::condition::UNSCHEDULABLE_ON_NODE_POOL.to_owned()),
        node_pool: Some(node_pool),
        reason: Some(reason::UNSCHEDULABLE.to_owned()),
        message: Some(report.text(words)),
        status: Some("True".to_owned()),
        transition_id: None,
        last_transition_time: None,
        reasons: report.reasons.iter().map(finding).collect(),
    }
}

fn finding(finding: &Reason) -> UnschedulableReason {
    let details = finding.detail.queue().map(|figures| UnschedulableDetails {
        queue_details: Some(queue(figures)),
    });
    UnschedulableReason {
        reason: Some(finding.code.as_str().to_owned()),
        message: Some(finding.message.clone()),
        details,
    }
}

fn queue(figures: &QueueFigures) -> QueueDetails {
    QueueDetails {
        name: Some(figures.name.to_string()),
        queue_requested_resources: amounts(&figures.requested),
        queue_deserved_resources: amounts(&figures.deserved),
        queue_allocated_resources: amounts(&figures.allocated),
        queue_allocated_non_preemptible_resources: amounts(&figures.allocated_non_preemptible),
        queue_resource_limits: amounts(&figures.limit),
        pod_group_requested_resources: amounts(&figures.group_requested),
        pod_group_requested_non_preemptible_resources: amounts(&figures.group_requested_non_preemptible),
    }
}

/// The three shared resources; what is unlimited is left out.
fn amounts(figures: &Figures) -> QuantityMap {
    let [cpu, memory, gpu] = *figures;
    let entries = [
        (
            resource::CPU,
            cpu.map(|milli| Amount::from_milli(milli).to_quantity(Format::DecimalSi)),
        ),
        (
            resource::MEMORY,
            memory.map(|bytes| Amount::from_units(bytes).to_quantity(Format::DecimalSi)),
        ),
        // Millionths to thousandths, rounded up.
        (
            resource::NVIDIA_GPU,
            gpu.map(|micro| Amount::from_milli((micro + 999) / 1_000).to_quantity(Format::DecimalSi)),
        ),
    ];
    entries
        .into_iter()
        .filter_map(|(name, amount)| Some((name.to_owned(), amount?)))
        .collect()
}

/// The conditions with a new one; `None` if the same is stored. The transition id grows over all node pools, the newest condition is the last, and a
/// node pool has one.
#[must_use]
pub fn advance(
    existing: &[SchedulingCondition],
    mut new: SchedulingCondition,
    now: Timestamp,
) -> Option<Vec<SchedulingCondition>> {
    let id = |condition: &SchedulingCondition| {
        condition
            .transition_id
            .as_deref()
            .and_then(|id| id.parse::<i64>().ok())
            .unwrap_or(-1)
    };
    // The first of those with the highest id.
    let last = existing.iter().rev().max_by_key(|condition| id(condition));
    let place = existing
        .iter()
        .position(|condition| condition.node_pool == new.node_pool);
    let same = |last: &SchedulingCondition| {
        (&last.r#type, &last.node_pool, &last.reason, &last.message, &last.status)
            == (&new.r#type, &new.node_pool, &new.reason, &new.message, &new.status)
    };
    if last.is_some_and(same) && place.is_some_and(|place| place + 1 == existing.len()) {
        return None;
    }
    new.transition_id = Some((last.map_or(0, id).max(0) + 1).to_string());
    new.last_transition_time = Some(Time(now));
    let others = existing
        .iter()
        .filter(|condition| condition.node_pool != new.node_pool)
        .cloned();
    Some(others.chain([new.clone()]).collect())
}

#[cfg(test)]
mod tests;
