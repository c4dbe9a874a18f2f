//! The views of queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::Timestamp;

use super::overview::{Overview, Shard};
use crate::api::queue_access::hold_of;
use crate::api::quota_schedule::QuotaSchedule;
use crate::api::views::{Amounts, Bounds, Held, InForce, Queue, QueueList};
use crate::clock;
use crate::components::bus::QueueSeen;
use crate::engine::input::Time;

/// All queues, as a tree in one list.
pub fn list(overview: &Overview) -> QueueList {
    let mut queues = Vec::new();
    for shard in &overview.shards {
        queues.extend(of_shard(overview, shard).iter().cloned());
    }
    QueueList {
        meta: overview.meta.clone(),
        queues,
    }
}

/// A queue and its ancestors, from itself up.
pub fn path_up(overview: &Overview, shard: &Shard, name: &str) -> Vec<Queue> {
    let all = of_shard(overview, shard);
    let mut path: Vec<Queue> = Vec::new();
    let mut next = Some(name);
    while let Some(queue) = next.and_then(|name| all.iter().find(|queue| queue.name == name)) {
        // Parents that form a cycle.
        if path.iter().any(|known| known.name == queue.name) {
            break;
        }
        next = queue.parent.as_deref();
        path.push(queue.clone());
    }
    path
}

/// The queues of a shard, computed once for each overview.
fn of_shard<'s>(overview: &Overview, shard: &'s Shard) -> &'s [Queue] {
    shard.shown_queues.get_or_init(|| shown(overview, shard))
}

fn shown(overview: &Overview, shard: &Shard) -> Vec<Queue> {
    let counts = counts(overview, shard);
    let by_name: BTreeMap<&str, &QueueSeen> = shard.queues.iter().map(|queue| (&*queue.name, queue)).collect();
    let mut below: BTreeMap<&str, Vec<&QueueSeen>> = BTreeMap::new();
    let mut tops = Vec::new();
    for queue in by_name.values() {
        match queue.parent.as_deref().filter(|parent| by_name.contains_key(parent)) {
            Some(parent) => below.entry(parent).or_default().push(queue),
            None => tops.push(*queue),
        }
    }
    let mut shown = Vec::with_capacity(by_name.len());
    let mut seen = BTreeSet::new();
    // Queues in a cycle of parents have no top queue; they come last.
    let circles = by_name.values().copied().filter(|queue| !queue.valid);
    for top in tops.into_iter().chain(circles) {
        let mut open = vec![(top, 0, None)];
        while let Some((queue, depth, above)) = open.pop() {
            if !seen.insert(&*queue.name) {
                continue;
            }
            let held = held(overview, queue).or(above);
            let mut one = show(overview, shard, queue, &counts);
            one.depth = depth;
            one.problem = problem(queue, &by_name);
            one.held.clone_from(&held);
            shown.push(one);
            let children = below.get(&*queue.name).into_iter().flatten();
            open.extend(children.rev().map(|child| (*child, depth + 1, held.clone())));
        }
    }
    shown
}

/// The hold on a queue itself.
fn held(overview: &Overview, queue: &QueueSeen) -> Option<Held> {
    let object = overview.stores.queues.get("", &queue.name)?;
    let reason = hold_of(&object)?.reason;
    let queue = Some(queue.name.to_string());
    Some(Held { queue, reason })
}

/// Why a queue is not in the tree.
fn problem(queue: &QueueSeen, all: &BTreeMap<&str, &QueueSeen>) -> Option<String> {
    if queue.valid {
        return None;
    }
    let mut at = queue;
    for _ in all {
        let Some(parent) = at.parent.as_deref() else { break };
        match all.get(parent) {
            Some(above) => at = above,
            None => return Some(format!("Queue {parent}, the parent of {}, does not exist", at.name)),
        }
    }
    Some(format!("Queue {} is below itself", queue.name))
}

/// How many workloads wait and how many hold resources, per queue, with the queues below it.
fn counts<'o>(overview: &'o Overview, shard: &'o Shard) -> HashMap<&'o str, (usize, usize)> {
    let parents = overview.parents();
    let mut counts: HashMap<&str, (usize, usize)> = HashMap::new();
    for group in &shard.groups {
        let waits = usize::from(group.pods.waiting > 0);
        let runs = usize::from(group.pods.placed > 0);
        let mut at = Some(&*group.queue);
        for _ in 0..=shard.queues.len() {
            let Some(queue) = at else { break };
            let count = counts.entry(queue).or_default();
            count.0 += waits;
            count.1 += runs;
            at = parents.get(queue).copied();
        }
    }
    counts
}

fn show(overview: &Overview, shard: &Shard, queue: &QueueSeen, counts: &HashMap<&str, (usize, usize)>) -> Queue {
    let (waiting, running) = counts.get(&*queue.name).copied().unwrap_or_default();
    let [cpu, memory, gpu] = queue.weight.map(|weight| weight as f64 / 1e6);
    let [used_cpu, used_memory, used_gpu] = queue.usage.map(|part| part as f64 / 1e9);
    Queue {
        name: queue.name.to_string(),
        display_name: (queue.display != queue.name).then(|| queue.display.to_string()),
        parent: queue.parent.as_deref().map(str::to_owned),
        depth: 0,
        shard: shard.name.to_string(),
        problem: None,
        held: None,
        priority: queue.priority,
        quota: Bounds::of(queue.quota),
        limit: Bounds::of(queue.limit),
        weight: Amounts { gpu, cpu, memory },
        fair_share: Amounts::of(queue.fair),
        allocated: Amounts::of(queue.allocated),
        non_preemptible: Amounts::of(queue.non_preemptible),
        requested: Amounts::of(queue.wanted),
        used_over_time: (queue.usage != [0; 3]).then_some(Amounts {
            gpu: used_gpu,
            cpu: used_cpu,
            memory: used_memory,
        }),
        waiting,
        running,
        schedule: in_force(overview, queue),
    }
}

/// The entry of a queue's schedule that is in force.
fn in_force(overview: &Overview, queue: &QueueSeen) -> Option<InForce> {
    let object = overview.stores.queues.get("", &queue.name)?;
    let schedule = QuotaSchedule::of(&object)?.ok()?;
    let period = schedule.calendar.at(clock::now()).period;
    let entry = period.and_then(|period| schedule.entries.get(period));
    Some(InForce {
        entry: entry.map(|entry| entry.name.clone()),
        until: queue.schedule_until.and_then(timestamp),
    })
}

fn timestamp(Time(at): Time) -> Option<Timestamp> {
    Timestamp::from_millisecond(at).ok()
}
