//! The desired status of a pod group, the difference to the stored one, and the patch.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::Stored;
use super::conditions::{self, advance, node_pool};
use super::ledger::Sums;
use super::waiting::Said;
use crate::api::names::{condition, preemptibility, priority_class, reason};
use crate::api::pod_group::{PodGroupStatus, ResourcesStatus};
use crate::api::{PodGroup, QuantityMap};
use crate::clock;
use crate::components::bus::{Amounts, GroupKey, GroupReport, PodRef, Usage, Waits};
use crate::components::patch::merge_diff;
use crate::components::quantities::{quantities, same_amounts};
use crate::components::watches::Stores;
use crate::components::{Context, Settings};
use crate::engine::decision::Cause;

/// The latest report on a group.
pub enum Finding<'a> {
    /// It waits, with the reason.
    Waits(&'a GroupReport),
    /// It waits; its condition stays as it is for a while.
    Held,
    /// The scheduler reported that nothing is pending: each pod has a node, is being bound, or is pipelined.
    Cleared,
    /// No report yet.
    Unknown,
}

/// The reason for a report, in events and in the condition of pods. Only at `Unschedulable` autoscalers add nodes.
#[must_use]
pub fn reason_of(report: &GroupReport) -> &'static str {
    match report.verdict.cause {
        _ if report.not_ready => reason::NOT_READY,
        Cause::Held => reason::HELD,
        Cause::BindRetry => reason::BINDING_ERROR,
        _ => reason::UNSCHEDULABLE,
    }
}

/// The desired status of the group.
#[must_use]
pub fn target(group: &PodGroup, sums: &Sums, finding: Finding, stores: &Stores, settings: &Settings) -> PodGroupStatus {
    let mut status = group.status.clone().unwrap_or_default();
    let allocated = quantities(&sums.allocated.amounts());
    let resources = ResourcesStatus {
        allocated_non_preemptible: if is_preemptible(group, stores) {
            QuantityMap::new()
        } else {
            allocated.clone()
        },
        allocated,
        requested: quantities(&sums.requested.amounts()),
    };
    let same = status
        .resources_status
        .as_ref()
        .map_or(resources == ResourcesStatus::default(), |is| equal(is, &resources));
    if !same {
        status.resources_status = Some(resources);
    }
    match finding {
        // With schedulingBackoff it is not tried again while it has the condition, so only a group that no node takes gets one.
        Finding::Waits(report) if !report.partly_runs && reason_of(report) == reason::UNSCHEDULABLE => {
            let new = conditions::condition(report, node_pool(group, settings), settings.messages);
            if let Some(conditions) = advance(&status.scheduling_conditions, new, clock::now()) {
                status.scheduling_conditions = conditions;
            }
        }
        Finding::Cleared | Finding::Unknown if sums.waiting == 0 => status.scheduling_conditions.clear(),
        // It stays while pods have no node, since they may wait again. But with schedulingBackoff they would not be tried again.
        Finding::Cleared if backs_off(group) => status.scheduling_conditions.clear(),
        Finding::Waits(_) | Finding::Held | Finding::Cleared | Finding::Unknown => {}
    }
    status
}

/// Whether it is not tried again while it has the condition.
#[must_use]
pub fn backs_off(group: &PodGroup) -> bool {
    group.spec.scheduling_backoff.is_some_and(|backoff| backoff != -1)
}

/// Equal in value, in any spelling.
fn equal(a: &ResourcesStatus, b: &ResourcesStatus) -> bool {
    same_amounts(&a.allocated, &b.allocated)
        && same_amounts(&a.allocated_non_preemptible, &b.allocated_non_preemptible)
        && same_amounts(&a.requested, &b.requested)
}

/// The patch of the group's status, if it differs.
#[must_use]
pub fn patch(group: &PodGroup, target: &PodGroupStatus) -> Option<Value> {
    let is = group.status.clone().unwrap_or_default();
    merge_diff(&is, target).map(|status| json!({"status": status}))
}

/// The explicit value, else by priority: below 100 is preemptible.
fn is_preemptible(group: &PodGroup, stores: &Stores) -> bool {
    match group.spec.preemptibility.as_deref() {
        Some(preemptibility::PREEMPTIBLE) => true,
        Some(preemptibility::NON_PREEMPTIBLE) => false,
        Some(_) | None => priority(group, stores) < priority_class::NON_PREEMPTIBLE_FROM,
    }
}

fn priority(group: &PodGroup, stores: &Stores) -> i32 {
    let class = group
        .spec
        .priority_class_name
        .as_deref()
        .and_then(|name| stores.priority_classes.get("", name));
    let class = class.or_else(|| {
        let classes = stores.priority_classes.list();
        classes.into_iter().find(|class| class.global_default == Some(true))
    });
    class.map_or(priority_class::FALLBACK_VALUE, |class| class.value)
}

/// The group's usage, for the queues.
#[must_use]
pub fn usage(
    key: GroupKey,
    group: Option<&PodGroup>,
    sums: &Sums,
    report: Option<&GroupReport>,
    stores: &Stores,
) -> Usage {
    let held = group.is_some_and(|group| !is_preemptible(group, stores));
    // Pods with gates are not tried, so nothing is reported of them.
    let cause = match report {
        _ if sums.only_gated() => Cause::Gated,
        Some(report) => report.verdict.cause,
        None => Cause::Unknown,
    };
    let allocated = sums.allocated.amounts();
    Usage {
        group: key,
        queue: group.map(|group| group.spec.queue.clone().unwrap_or_default()),
        requested: sums.requested.amounts(),
        allocated_non_preemptible: if held { allocated.clone() } else { Amounts::new() },
        waits: (sums.waiting > 0).then_some(Waits {
            cause,
            since: sums.waiting_since,
        }),
        allocated,
    }
}

/// The patch that writes the reason on a pod, if it differs. It contains the pod's resource version, so that it fails for a pod that was bound
/// meanwhile.
#[must_use]
pub fn pod_patch(pod: &Pod, Said { reason, message }: &Said) -> Option<Value> {
    let existing = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let existing = existing
        .iter()
        .find(|existing| existing.type_ == condition::POD_SCHEDULED);
    let says = |condition: &PodCondition| {
        condition.status == "False"
            && condition.reason.as_deref() == Some(reason)
            && condition.message.as_deref() == Some(message)
    };
    if existing.is_some_and(says) {
        return None;
    }
    let since = existing
        .filter(|condition| condition.status == "False")
        .and_then(|condition| condition.last_transition_time.clone());
    let since = since.map_or_else(clock::now, |time| time.0);
    Some(json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": [{
            "type": condition::POD_SCHEDULED,
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": null,
            "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }]},
    }))
}

/// Writes a group's status.
///
/// # Errors
/// Those of the client.
pub async fn write_group(context: &Context, key: &GroupKey, patch: Value) -> Result<Stored, kube::Error> {
    let api: Api<PodGroup> = Api::namespaced(context.writes.clone(), key.namespace());
    let summarised = patch.pointer("/status/summary").is_some();
    let patch = Patch::Merge(patch);
    let stored = api.patch_status(key.name(), &PatchParams::default(), &patch).await?;
    let kept = stored.status.is_some_and(|status| status.summary.is_some());
    Ok(if summarised && !kept {
        Stored::WithoutSummary
    } else {
        Stored::Whole
    })
}

/// Writes a pod's condition.
///
/// # Errors
/// Those of the client.
pub async fn write_pod(context: &Context, pod: &PodRef, patch: Value) -> Result<Stored, kube::Error> {
    let api: Api<Pod> = Api::namespaced(context.writes.clone(), &pod.namespace);
    api.patch_status(&pod.name, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .map(|_| Stored::Whole)
}

#[cfg(test)]
mod tests;
