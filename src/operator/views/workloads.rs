//! The views of workloads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodCondition;

use super::overview::{Overview, Shard};
use super::queues;
use crate::api::names::{condition, reason};
use crate::api::queue_access::QueueAccess;
use crate::api::views::{
    Amounts, Held, Moment, MomentKind, Pod, PodCounts, PodState, Queue, Verdict, Workload, WorkloadDetails,
    WorkloadList, WorkloadOrder, WorkloadState,
};
use crate::components::bus::{GroupDetails, GroupKey, GroupSeen};
use crate::engine::decision::Cause;
use crate::engine::input::{Hold, Time};
use crate::engine::model::pod::Status;
use crate::engine::overview::{PodSeen, PodsSeen, first_sentence};

use super::super::access::Namespaces;

/// Which workloads are listed; all by default.
#[derive(Default)]
pub struct Asked<'a> {
    /// Only those in this queue or a queue below it.
    pub queue: Option<&'a str>,
    /// Only those in this state.
    pub state: Option<WorkloadState>,
    /// Only those with a pod that waits.
    pub waiting: bool,
    /// Only those with this text in `namespace/name` or in the name of the queue.
    pub contains: Option<&'a str>,
    /// How they are ordered.
    pub order: WorkloadOrder,
    /// Only those after this one (`namespace/name`) in that order: the next page.
    pub after: Option<&'a str>,
    /// The maximum number of workloads.
    pub limit: Option<usize>,
}

/// The requested workloads.
pub fn list(overview: &Overview, asked: &Asked, visible: &Namespaces) -> WorkloadList {
    let parents = overview.parents();
    let fits = |group: &GroupSeen| {
        visible.show(group.key.namespace())
            && (!asked.waiting || waits(&group.pods))
            && asked.contains.is_none_or(|text| contains(group, text))
            && asked.state.is_none_or(|wanted| state(&group.pods) == wanted)
            && asked
                .queue
                .is_none_or(|wanted| is_below(&parents, &group.queue, wanted))
    };
    let mut all: Vec<(&Shard, &GroupSeen)> = overview
        .shards
        .iter()
        .flat_map(|shard| shard.groups.iter().map(move |group| (shard, group)))
        .filter(|(_, group)| fits(group))
        .collect();
    let key = |group: &GroupSeen| (group.key.namespace().to_owned(), group.key.name().to_owned());
    match asked.order {
        WorkloadOrder::Name => all.sort_by_cached_key(|(_, group)| key(group)),
        WorkloadOrder::Line => all.sort_by_cached_key(|(shard, group)| {
            let position = shard.positions.get(&group.key).copied().unwrap_or(usize::MAX);
            (position, group.created, key(group))
        }),
        WorkloadOrder::Age => all.sort_by_cached_key(|(_, group)| (group.created, key(group))),
    }
    let total = all.len();
    let from = match (asked.after.and_then(|after| after.split_once('/')), asked.order) {
        (None, _) => 0,
        (Some((namespace, name)), WorkloadOrder::Name) => {
            let after = (namespace.to_owned(), name.to_owned());
            all.partition_point(|(_, group)| key(group) <= after)
        }
        (Some((namespace, name)), _) => {
            let is_it = |key: &GroupKey| key.namespace() == namespace && key.name() == name;
            let at = all.iter().position(|(_, group)| is_it(&group.key));
            // If that one has been deleted, the list begins again.
            at.map_or(0, |at| at + 1)
        }
    };
    let rest = all.get(from..).unwrap_or_default();
    let most = asked.limit.unwrap_or(usize::MAX).max(1);
    let workloads: Vec<Workload> = rest
        .iter()
        .take(most)
        .map(|(shard, group)| show(overview, shard, group))
        .collect();
    let more = rest.len() > workloads.len();
    let next = workloads.last().filter(|_| more);
    WorkloadList {
        meta: overview.meta.clone(),
        total,
        next: next.map(|last| format!("{}/{}", last.namespace, last.name)),
        workloads,
    }
}

fn waits(pods: &PodsSeen) -> bool {
    pods.waiting + pods.gated > 0
}

fn contains(group: &GroupSeen, text: &str) -> bool {
    let (namespace, name) = (group.key.namespace(), group.key.name());
    group.queue.contains(text)
        || match text.split_once('/') {
            Some((in_namespace, in_name)) => namespace.ends_with(in_namespace) && name.starts_with(in_name),
            None => namespace.contains(text) || name.contains(text),
        }
}

/// Whether a queue is `other` or below it.
fn is_below(parents: &BTreeMap<&str, &str>, queue: &str, other: &str) -> bool {
    let mut path = std::iter::successors(Some(queue), |at| parents.get(at).copied());
    // At most as many steps as there are queues: they may form a cycle.
    path.by_ref().take(parents.len() + 1).any(|at| at == other)
}

/// A workload in the list.
pub fn show(overview: &Overview, shard: &Shard, group: &GroupSeen) -> Workload {
    let state = state(&group.pods);
    let waits = group.pods.waiting > 0;
    Workload {
        namespace: group.key.namespace().to_owned(),
        name: group.key.name().to_owned(),
        queue: group.queue.to_string(),
        shard: shard.name.to_string(),
        priority: group.priority,
        preemptible: group.preemptible,
        state,
        pods: PodCounts {
            min: group.pods.min,
            wanted: group.pods.alive,
            running: group.pods.placed,
            waiting: group.pods.waiting,
            gated: group.pods.gated,
            leaving: group.pods.leaving,
            ended: group.pods.ended,
        },
        requested: Amounts::of(group.requested),
        created: timestamp(group.created),
        started: group.started.and_then(timestamp),
        held: group.held.as_ref().map(held),
        verdict: verdict(overview, group),
        position: shard.positions.get(&group.key).copied().filter(|_| waits),
    }
}

fn held(hold: &Hold) -> Held {
    Held {
        queue: hold.queue.as_deref().map(str::to_owned),
        reason: hold.reason.as_deref().map(str::to_owned),
    }
}

/// Why it waits. If another process schedules its shard, from the status that this process wrote.
fn verdict(overview: &Overview, group: &GroupSeen) -> Option<Verdict> {
    if !waits(&group.pods) {
        return None;
    }
    if let Some((cause, sentence)) = &group.verdict {
        return Some(Verdict {
            cause: cause.as_str().to_owned(),
            sentence: sentence.clone(),
        });
    }
    if group.pods.waiting == 0 {
        let gated = group.pods.gated;
        let (pods, wait) = if gated == 1 {
            ("pod has", "waits")
        } else {
            ("pods have", "wait")
        };
        return Some(Verdict {
            cause: Cause::Gated.as_str().to_owned(),
            sentence: format!("{gated} {pods} scheduling gates, and {wait} until they are removed"),
        });
    }
    let object = overview
        .stores
        .pod_groups
        .get(group.key.namespace(), group.key.name())?;
    let condition = object.status.as_ref()?.scheduling_conditions.last()?;
    Some(verdict_of_condition(
        condition.reason.as_deref(),
        condition.message.as_deref(),
    ))
}

/// The verdict that a condition states.
pub fn verdict_of_condition(cause: Option<&str>, message: Option<&str>) -> Verdict {
    let cause = cause.filter(|cause| !cause.is_empty());
    Verdict {
        cause: cause.unwrap_or(reason::UNSCHEDULABLE).to_owned(),
        sentence: first_sentence(message.unwrap_or_default()).to_owned(),
    }
}

/// The condition of a pod that it has no node.
pub fn unscheduled<'c>(mut conditions: impl Iterator<Item = &'c PodCondition>) -> Option<&'c PodCondition> {
    conditions.find(|one| one.type_ == condition::POD_SCHEDULED && one.status == "False")
}

fn state(pods: &PodsSeen) -> WorkloadState {
    match pods {
        PodsSeen {
            alive: 0, leaving: 1.., ..
        } => WorkloadState::Leaving,
        PodsSeen {
            alive: 0, ended: 1.., ..
        } => WorkloadState::Finished,
        PodsSeen { alive: 0, .. } => WorkloadState::Empty,
        PodsSeen { placed: 0, .. } => WorkloadState::Waiting,
        PodsSeen { alive, placed, .. } if placed < alive => WorkloadState::PartlyRunning,
        PodsSeen { .. } => WorkloadState::Running,
    }
}

/// A workload with its details.
pub fn details(overview: &Overview, shard: &Shard, details: GroupDetails, past: Vec<Moment>) -> WorkloadDetails {
    let GroupDetails { group, report, pods } = details;
    let workload = show(overview, shard, &group);
    let evidence = report.map_or_else(Vec::new, |report| report.verdict.evidence);
    let conditions: Vec<_> = pods.iter().map(|seen| conditions(overview, seen)).collect();
    let pods = pods.iter().zip(&conditions);
    let pods = pods.map(|(seen, conditions)| show_pod(seen, conditions)).collect();
    let timeline = timeline(&workload, conditions.iter().flatten(), past);
    WorkloadDetails {
        meta: overview.meta.clone(),
        queues: queues_of(overview, shard, &workload),
        workload,
        evidence,
        pods,
        timeline,
    }
}

/// The queue of a workload and those above it: their figures explain why it waits. None if they do not accept its namespace, since anyone can name a queue.
fn queues_of(overview: &Overview, shard: &Shard, workload: &Workload) -> Vec<Queue> {
    let path = queues::path_up(overview, shard, &workload.queue);
    let mut access = QueueAccess::default();
    for queue in &path {
        if let Some(object) = overview.stores.queues.get("", &queue.name) {
            access.put_queue(&object);
        }
    }
    if access.closed_by(&workload.queue, &workload.namespace).is_some() {
        return Vec::new();
    }
    path
}

/// The conditions of a pod.
fn conditions(overview: &Overview, seen: &PodSeen) -> Vec<PodCondition> {
    let object = overview.stores.pods.get(&seen.pod.namespace, &seen.pod.name);
    let conditions = object.and_then(|object| object.status.as_ref()?.conditions.clone());
    conditions.unwrap_or_default()
}

/// The recorded moments, and the transition times of its pods' conditions.
fn timeline<'c>(
    workload: &Workload,
    conditions: impl Iterator<Item = &'c PodCondition>,
    past: Vec<Moment>,
) -> Vec<Moment> {
    let created = workload.created.map(|at| Moment {
        at,
        kind: MomentKind::Created,
        text: "The PodGroup was created".to_owned(),
    });
    let mut told: BTreeMap<(Timestamp, &str), usize> = BTreeMap::new();
    for condition in conditions.filter(|condition| condition.status == "True") {
        let known = [condition::POD_SCHEDULED, condition::POD_READY]
            .into_iter()
            .find(|known| *known == condition.type_);
        if let (Some(kind), Some(at)) = (known, &condition.last_transition_time) {
            *told.entry((at.0, kind)).or_default() += 1;
        }
    }
    let told = told.into_iter().map(|((at, condition), pods)| {
        let (kind, what) = match condition {
            condition::POD_READY => (MomentKind::Running, "ready"),
            _ => (MomentKind::Bound, "bound"),
        };
        let text = if pods == 1 {
            format!("1 pod was {what}")
        } else {
            format!("{pods} pods were {what}")
        };
        Moment { at, kind, text }
    });
    // Moments of an earlier workload of the same name are left out.
    let is_its = |moment: &Moment| workload.created.is_none_or(|created| moment.at >= created);
    let mut all: Vec<Moment> = created
        .into_iter()
        .chain(past.into_iter().filter(is_its))
        .chain(told)
        .collect();
    all.sort_by_key(|moment| moment.at);
    all
}

fn show_pod(seen: &PodSeen, conditions: &[PodCondition]) -> Pod {
    let state = match seen.status {
        Status::Pending | Status::Allocated => PodState::Waiting,
        Status::Gated => PodState::Gated,
        Status::Pipelined => PodState::Planned,
        Status::Binding => PodState::Binding,
        Status::Bound => PodState::Bound,
        Status::Running => PodState::Running,
        Status::Releasing | Status::Stuck => PodState::Leaving,
        Status::Succeeded => PodState::Succeeded,
        Status::Failed => PodState::Failed,
        Status::Unknown => PodState::Unknown,
    };
    Pod {
        name: seen.pod.name.to_string(),
        state,
        sub_group: Some(seen.sub_group.to_string()).filter(|name| !name.is_empty()),
        node: seen.node.as_deref().map(str::to_owned),
        requested: Amounts::of(seen.requested),
        gpu_groups: seen.gpu_groups.iter().map(ToString::to_string).collect(),
        message: unscheduled(conditions.iter()).and_then(|condition| condition.message.clone()),
    }
}

fn timestamp(Time(at): Time) -> Option<Timestamp> {
    (at > 0).then(|| Timestamp::from_millisecond(at).ok()).flatten()
}
