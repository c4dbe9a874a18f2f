//! The scheduler's events for traces. They are only made if a collector is configured.

use std::collections::BTreeMap;

use super::cycle::Timeline;
use crate::clock;
use crate::components::bus::{CycleSeen, GroupKey, GroupOutcome, Grouping, Object, TraceEvent, Traces};
use crate::components::{Settings, pods};
use crate::engine::decision::Decisions;
use crate::mirror::Shard;

/// An object was created or changed. `leading`: the pods of this shard are bound by this process.
pub fn applied(traces: &Traces, object: &Object, settings: &Settings, shard: &Shard, leading: bool) {
    let Object::Pod(pod) = object else { return };
    if !traces.are_on() || !shard.selects(&**pod) {
        return;
    }
    if !leading {
        if pods::is_bound(pod) {
            deleted(traces, object);
        }
        return;
    }
    let waits = || pods::is_ours(pod, settings) && !pods::is_bound(pod) && pod.metadata.deletion_timestamp.is_none();
    if waits() {
        traces.tell(|| TraceEvent::Pod {
            pod: pods::pod_ref(pod),
            group: pods::annotated_group(pod),
            at: clock::system_time(),
        });
    }
}

/// An object was deleted, or is a pod that another process bound.
pub fn deleted(traces: &Traces, object: &Object) {
    let Object::Pod(pod) = object else { return };
    traces.tell(|| TraceEvent::Gone {
        uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
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
