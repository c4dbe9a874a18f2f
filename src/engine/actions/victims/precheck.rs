//! Checks before a search: which pod groups may have victims, and for which no victims can help.

use jiff::SignedDuration;

use crate::api::duration::format_go;
use crate::engine::decision::ReasonCode;
use crate::engine::explain::refusal::impossible;
use crate::engine::fairshare::quotas::{self, over_quota};
use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::fairshare::{largest_gpu, reclaim, wanted};
use crate::engine::input::Time;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::pod_group::delay::{Delay, DelayCause};
use crate::engine::model::resources::Shared;
use crate::engine::placement::bounds::never_fits;
use crate::engine::placement::claims;
use crate::engine::placement::rules::refresh_class;

use super::bounds::asked_gpus;
use super::rules::EvictingAction;
use crate::engine::actions::cycle::Cycle;

/// See [`reclaim::may_reclaim`]; false without the plugin `proportion`.
pub fn may_reclaim(cycle: &Cycle, queue: QueueId, entry: &Shared, preemptible: bool) -> bool {
    cycle.context.rules.shares && reclaim::may_reclaim(cycle.model, queue, entry, preemptible)
}

/// Records which pod groups an action skips for some time, because of their preemption delay or of evictions in vain.
pub fn note_delays(cycle: &mut Cycle, action: EvictingAction) {
    let pending: Vec<PodGroupId> = cycle.model.pending().iter().copied().collect();
    for pod_group in pending {
        let Some(input) = &cycle.model.pod_groups()[pod_group].input else {
            continue;
        };
        let suits = cycle.kept.sorted.waiting(pod_group).is_some()
            && schedulable_queue(cycle.model, pod_group).is_some()
            && action.serves(input);
        let Some(Delay { until, cause }) = cycle.model.pod_groups()[pod_group]
            .delay(cycle.context.now)
            .filter(|_| suits)
        else {
            continue;
        };
        cycle.log.delayed_until.insert(until);
        if !cycle.log.note(pod_group).names(ReasonCode::PreemptionDelayNotElapsed) {
            let why = match cause {
                DelayCause::PreemptionDelay(delay) => {
                    let delay = format_go(SignedDuration::from_millis(delay));
                    format!("Workload is within its preemption delay window ({delay}) and")
                }
                DelayCause::InVain(times) => format!("Pods were evicted for this workload {times} times in vain: it"),
            };
            let message = format!("{why} may not trigger evictions before {}", instant(until));
            cycle
                .log
                .refuse(pod_group, ReasonCode::PreemptionDelayNotElapsed, message);
        }
    }
}

/// Cheap checks before a search: false if it cannot succeed.
pub fn promising(cycle: &mut Cycle, action: EvictingAction, queue: QueueId, pods: &[PodId], preemptible: bool) -> bool {
    for pod in pods {
        refresh_class(cycle.model, cycle.model.pods()[*pod].class);
    }
    let pod_group = pods.first().and_then(|pod| cycle.model.pods()[*pod].pod_group);
    if pod_group.is_some_and(|pod_group| never_fits(cycle.model, cycle.context.policy, pod_group, pods)) {
        return false;
    }
    match action {
        EvictingAction::Preempt => {
            let asked = wanted(cycle.model, pods, largest_gpu(cycle.model));
            preemptible || !cycle.context.rules.shares || over_quota(cycle.model, queue, &asked).is_none()
        }
        EvictingAction::Consolidation if is_beyond_limits(cycle, queue, pods, preemptible) => false,
        EvictingAction::Consolidation => {
            let asked: i64 = pods.iter().map(|pod| asked_gpus(cycle.model, *pod)).sum();
            cycle.kept.capacity.update(cycle.model);
            asked <= cycle.kept.capacity.ready_sum
        }
        EvictingAction::Reclaim => true,
    }
}

/// Whether a limit or quota of the queue refuses the pods. Consolidation cannot help then: what it moves counts as before.
fn is_beyond_limits(cycle: &Cycle, queue: QueueId, pods: &[PodId], preemptible: bool) -> bool {
    let asked = wanted(cycle.model, pods, largest_gpu(cycle.model));
    cycle.context.rules.shares && quotas::check(cycle.model, queue, preemptible, &asked).is_some()
}

/// Whether no eviction can satisfy the claims of some pod.
pub fn claims_in_vain(cycle: &mut Cycle, pods: &[PodId]) -> bool {
    let mut seen = Vec::new();
    pods.iter().any(|&id| {
        let pod = &cycle.model.pods()[id];
        let kind = (pod.class, pod.shape);
        if pod.input.claims.is_none() || seen.contains(&kind) {
            return false;
        }
        seen.push(kind);
        refresh_class(cycle.model, kind.0);
        claims::refused(cycle.model, id).is_some() || !claims::possible_when_unallocated(cycle.model, id)
    })
}

/// Whether some pod cannot be scheduled whichever pods are evicted.
pub fn is_impossible(cycle: &mut Cycle, pod_group: PodGroupId, pods: &[PodId]) -> bool {
    let found = pods
        .iter()
        .find_map(|&pod| Some((pod, impossible(cycle.model, cycle.context.policy, pod)?)));
    let Some((pod, text)) = found else { return false };
    let pod = &cycle.model.pods()[pod].input.pod;
    let message = format!("Resources were not found for pod {pod} due to: {text}");
    if !cycle.log.note(pod_group).says(&message) {
        cycle.log.refuse(pod_group, ReasonCode::PodSchedulingErrors, message);
    }
    true
}

/// An instant in RFC 3339, UTC, seconds.
fn instant(time: Time) -> String {
    let stamp = jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
