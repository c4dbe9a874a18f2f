//! Records decisions in the history that users can read: evictions with their causes, and what happened to pod groups.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::api::views::{Amounts, Bounds, Eviction, Moment, MomentKind, QueueSide};
use crate::clock;
use crate::components::bus::GroupKey;
use crate::components::history::History;
use crate::components::watches::Stores;
use crate::engine::decision::{self, Decisions, EvictionCause, GroupReport, Side};
use crate::engine::model::Model;

/// Limit on the nodes in a sentence.
const NAMED: usize = 4;

/// Records the decisions of a cycle.
pub fn decided(history: &History, decisions: &Decisions, model: &Model, stores: &Stores) {
    let at = clock::now();
    let mut moments = Vec::new();
    moments.extend(decisions.unschedulable.iter().map(|report| waiting(report, at)));
    let mut moment = |group: &GroupKey, kind, text| moments.push((group.clone(), Moment { at, kind, text }));
    let mut leaving: BTreeMap<(&GroupKey, Option<&GroupKey>), usize> = BTreeMap::new();
    for eviction in &decisions.evict {
        *leaving
            .entry((&eviction.group, eviction.for_group.as_ref()))
            .or_default() += 1;
    }
    for ((group, by), pods) in leaving {
        let by = by.map_or_else(String::new, |by| format!(" for {by}"));
        moment(group, MomentKind::Evicted, format!("{} evicted{by}", were(pods)));
    }
    let mut places: BTreeMap<&GroupKey, (usize, Vec<&str>)> = BTreeMap::new();
    for bind in &decisions.bind {
        let (pods, nodes) = places.entry(&bind.group).or_default();
        *pods += 1;
        if !nodes.contains(&&*bind.node) && nodes.len() <= NAMED {
            nodes.push(&bind.node);
        }
    }
    for (group, (pods, nodes)) in places {
        let more = if nodes.len() > NAMED { " and others" } else { "" };
        let nodes = nodes.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        moment(
            group,
            MomentKind::Decided,
            format!("{} given places on {nodes}{more}", were(pods)),
        );
    }
    let evictions = decisions
        .evict
        .iter()
        .map(|evicted| eviction(evicted, at, model, stores));
    history.add(evictions.collect(), moments);
}

/// Records that pod groups wait for another cause than before.
pub fn waits(history: &History, reports: &[GroupReport]) {
    let at = clock::now();
    history.add(Vec::new(), reports.iter().map(|report| waiting(report, at)).collect());
}

fn waiting(report: &GroupReport, at: Timestamp) -> (GroupKey, Moment) {
    let sentence = &report.verdict.sentence;
    let moment = Moment {
        at,
        kind: MomentKind::Waits,
        text: sentence.lines().next().unwrap_or_default().to_owned(),
    };
    (report.group.clone(), moment)
}

/// Records that a bind failed.
pub fn not_bound(history: &History, pod: &str, model: &Model) {
    let Some(group) = model.pods().id(pod).and_then(|id| model.pod_group_of(id)) else {
        return;
    };
    let moment = Moment {
        at: clock::now(),
        kind: MomentKind::NotBound,
        text: "A pod could not be bound and waits again".to_owned(),
    };
    history.add(Vec::new(), vec![(group.key.clone(), moment)]);
}

fn were(pods: usize) -> String {
    if pods == 1 {
        "1 pod was".to_owned()
    } else {
        format!("{pods} pods were")
    }
}

fn eviction(evicted: &decision::Eviction, at: Timestamp, model: &Model, stores: &Stores) -> Eviction {
    let pod = &evicted.pod;
    let groups = model.pod_groups();
    let input = groups.id(&evicted.group).and_then(|id| groups[id].input.as_ref());
    let object = stores.pods.get(&pod.namespace, &pod.name);
    let sides = match &evicted.why {
        EvictionCause::Reclaimed(Some(sides)) => vec![side(&sides.theirs), side(&sides.ours)],
        EvictionCause::Reclaimed(None)
        | EvictionCause::Preempted
        | EvictionCause::Moved
        | EvictionCause::Broken { .. } => Vec::new(),
    };
    Eviction {
        at,
        namespace: pod.namespace.to_string(),
        pod: pod.name.to_string(),
        workload: evicted.group.name().to_owned(),
        queue: input.map(|input| input.queue.to_string()),
        node: object.and_then(|pod| pod.spec.as_ref()?.node_name.clone()),
        action: evicted.action.as_str().to_owned(),
        evicted_for: evicted.for_group.as_ref().map(ToString::to_string),
        message: evicted.sentence(),
        overruled_budgets: evicted.exceeds.iter().map(ToString::to_string).collect(),
        sides,
    }
}

fn side(side: &Side) -> QueueSide {
    QueueSide {
        queue: side.queue.to_string(),
        allocated: Amounts::of(side.used),
        quota: Bounds::of(side.quota),
        fair_share: Amounts::of(side.fair),
        priority: side.priority,
    }
}
