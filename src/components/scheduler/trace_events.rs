//! The scheduler's events for traces. They are only made if a collector is configured.

use std::collections::BTreeMap;

use super::cycle::Timeline;
use crate::clock;
use crate::components::bus::{CycleSeen, GroupKey, GroupOutcome, Grouping, TraceEvent, Traces};
use crate::components::{Settings, pods};
use crate::engine::decision::Decisions;
use crate::mirror::packed::Pod;
use crate::mirror::{PackedChange, PackedObject, Shard};

/// An object was created, changed or deleted. `leading`: the pods of this shard are bound by this process.
pub fn changed(traces: &Traces, change: &PackedChange, settings: &Settings, shard: &Shard, leading: bool) {
    if !traces.are_on() {
        return;
    }
    match change {
        PackedChange::Applied(PackedObject::Pod(pod)) if shard.takes(&pod.labels) => {
            let bound = pod.node.is_some();
            let is_ours = *pod.scheduler == *settings.scheduler_name;
            if leading && is_ours && !bound && pod.deleted.is_none() {
                traces.tell(|| TraceEvent::Pod {
                    pod: pod.pod.clone(),
                    group: pod.group.clone(),
                    at: clock::system_time(),
                });
            } else if !leading && bound {
                // Another process bound it.
                gone(traces, pod);
            }
        }
        PackedChange::Deleted(PackedObject::Pod(pod)) => gone(traces, pod),
        _ => {}
    }
}

fn gone(traces: &Traces, pod: &Pod) {
    traces.tell(|| TraceEvent::Gone {
        uid: pod.pod.uid.clone(),
        at: clock::system_time(),
    });
}

/// A pod was grouped.
pub fn grouped(traces: &Traces, grouping: &Grouping, shard: &Shard) {
    if !shard.selects(&*grouping.group) {
        return;
    }
    traces.tell(|| TraceEvent::Grouped {
        pod: grouping.pod.clone(),
        group: pods::group_key(&grouping.group.metadata),
        queue: grouping.group.spec.queue.clone().unwrap_or_default(),
        at: clock::system_time(),
    });
}

/// The result of a cycle for each pod group with a new one.
fn attempts(decisions: &Decisions) -> Vec<(GroupKey, GroupOutcome)> {
    let count = |groups: &mut dyn Iterator<Item = &GroupKey>| {
        let mut counts: BTreeMap<GroupKey, usize> = BTreeMap::new();
        for group in groups {
            *counts.entry(group.clone()).or_default() += 1;
        }
        counts.into_iter()
    };
    let waiting = decisions.unschedulable.iter();
    let waiting = waiting.map(|report| {
        (
            report.group.clone(),
            GroupOutcome::Unschedulable(report.message.clone()),
        )
    });
    let pipelined = count(&mut decisions.pipeline.iter().map(|pipeline| &pipeline.group));
    let bound = count(&mut decisions.bind.iter().map(|bind| &bind.group));
    waiting
        .chain(pipelined.map(|(group, pods)| (group, GroupOutcome::Pipelined(pods))))
        .chain(bound.map(|(group, pods)| (group, GroupOutcome::Bound(pods))))
        .collect()
}

/// A cycle has decided.
pub fn cycle(traces: &Traces, timeline: &Timeline, decisions: &Decisions) {
    traces.tell(|| {
        let searches = timeline.searches();
        TraceEvent::Cycle(Box::new(CycleSeen {
            began: timeline.began_at,
            took: timeline.took,
            steps: timeline.steps(),
            searches: searches
                .map(|(who, solved, begin, end)| (who.as_str(), solved, begin, end))
                .collect(),
            attempts: attempts(decisions),
            evicted: decisions.evict.len(),
        }))
    });
}
