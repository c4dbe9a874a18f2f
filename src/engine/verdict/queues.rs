//! Verdicts about queues: missing, not schedulable, at their limit, at their quota.

use std::collections::BTreeMap;

use crate::api::names::object;
use crate::engine::decision::{Cause, QueueFigures, ReasonCode, Verdict};
use crate::engine::explain::queue::missing_above;
use crate::engine::input::Name;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, QueueId};

use super::words::{list, shared, shared_number, workload};

/// Names of the resources in a queue's `spec.resources`.
const FIELDS: [&str; 3] = ["cpu", "memory", "gpu"];
/// Pod groups scanned for names of holders.
const LOOKED_AT: usize = 4096;
/// Names in a message.
const NAMED: usize = 2;

/// The holders found so far.
pub type Holders = BTreeMap<QueueId, Vec<PodGroupId>>;

/// About the queue `name`, which takes no pod groups.
#[must_use]
pub fn closed(model: &Model, node_pool: &str, queue: Option<QueueId>, name: &Name) -> Verdict {
    let known = queue.filter(|queue| model.queues()[*queue].input.is_some());
    let Some(known) = known else {
        if node_pool != object::DEFAULT_NODE_POOL {
            let sentence = format!(
                "Queue {name} does not exist in node pool {node_pool}; give it the label of that pool or name another one"
            );
            return Verdict::new(Cause::QueueMissing, sentence);
        }
        let sentence = format!("Queue {name} does not exist; create it or name another one");
        let pool = "Queues with the label of a node pool do not count for workloads without it";
        return Verdict {
            evidence: vec![pool.to_owned()],
            ..Verdict::new(Cause::QueueMissing, sentence)
        };
    };
    let entry = &model.queues()[known];
    if entry.valid {
        let below: Vec<String> = entry
            .children
            .iter()
            .take(3)
            .map(|id| model.queues()[*id].name.to_string())
            .collect();
        let below = list(&below, entry.children.len());
        let sentence =
            format!("Queue {name} has queues below it and takes no workloads itself; name one of those: {below}");
        return Verdict::new(Cause::QueueNotLeaf, sentence);
    }
    let sentence = match missing_above(model, known) {
        Some((child, parent)) if child == *name => {
            format!("Queue {name}'s parent {parent} does not exist; create it or correct spec.parentQueue")
        }
        Some((child, parent)) => {
            format!(
                "Queue {child} above queue {name} has a parent {parent} that does not exist; create it or correct spec.parentQueue"
            )
        }
        // Without the full hierarchy top queues take no part.
        None if entry.input.as_ref().is_some_and(|input| input.parent.is_none()) => {
            format!("Queue {name} is a top queue; workloads need a queue below one")
        }
        None => format!("Queue {name} is below itself; correct spec.parentQueue"),
    };
    Verdict::new(Cause::ParentQueueMissing, sentence)
}

/// About a limit or a quota that a pod group would exceed.
#[must_use]
pub fn gate(
    model: &Model,
    pod_group: PodGroupId,
    code: ReasonCode,
    figures: &QueueFigures,
    holders: &mut Holders,
) -> Verdict {
    let over = |resource: &usize| {
        let (asked, held, most) = gate_figures(code, figures, *resource);
        asked > 0 && most.is_some_and(|most| held + asked > most)
    };
    let resource = (0..3).find(over).unwrap_or(2);
    let (asked, held, most) = gate_figures(code, figures, resource);
    let field = FIELDS[resource];
    let entry = &model.pod_groups()[pod_group];
    let own = entry.queue.map(|queue| &model.queues()[queue].name);
    let queue = match own {
        Some(own) if *own != figures.name => format!("Queue {} (above queue {own})", figures.name),
        _ => format!("Queue {}", figures.name),
    };
    let most = most.unwrap_or(0);
    let (asked, used) = (shared_number(resource, asked), shared_number(resource, held));
    let namespace = entry.key.namespace();
    let found = model.queues().id(&figures.name).into_iter();
    let found = found.flat_map(|id| holders.entry(id).or_insert_with(|| holders_of(model, id)).clone());
    let holders: Vec<String> = found
        .map(|id| workload(&model.pod_groups()[id].key, namespace))
        .collect();
    let wait = if holders.is_empty() {
        String::new()
    } else {
        format!(" or wait for {}", holders.join(" or "))
    };
    if code == ReasonCode::OverLimit {
        let unset = model.queues().id(&figures.name).is_some_and(|id| {
            let input = model.queues()[id].input.as_ref();
            most == 0 && input.is_some_and(|input| input.limits_unset[resource])
        });
        let sentence = if unset {
            format!(
                "{queue} has no spec.resources.{field}.limit, and a limit that is unset counts as 0 ({used} used, asks {asked}); set it, or -1 for no limit"
            )
        } else {
            let most = shared(resource, most);
            format!(
                "{queue} is at its limit of {most} ({used} used, asks {asked}); raise spec.resources.{field}.limit{wait}"
            )
        };
        return Verdict::new(Cause::QueueLimit, sentence);
    }
    let most = shared(resource, most);
    let sentence = format!(
        "{queue} has a quota of {most}, which non-preemptible workloads may not pass ({used} used by them, asks {asked}); raise spec.resources.{field}.quota, make it preemptible{wait}"
    );
    Verdict::new(Cause::QueueQuota, sentence)
}

/// Requested, held, and allowed.
fn gate_figures(code: ReasonCode, figures: &QueueFigures, resource: usize) -> (i64, i64, Option<i64>) {
    let (held, most) = if code == ReasonCode::OverLimit {
        (figures.allocated, figures.limit)
    } else {
        (figures.allocated_non_preemptible, figures.deserved)
    };
    let asked = figures.group_requested[resource].unwrap_or(0);
    (asked, held[resource].unwrap_or(0), most[resource])
}

/// Some workloads that hold something of a queue.
fn holders_of(model: &Model, queue: QueueId) -> Vec<PodGroupId> {
    let all = model.pod_groups().iter().take(LOOKED_AT);
    let within = |leaf: QueueId| model.path_up(leaf).any(|at| at == queue);
    let holding = all.filter(|(_, entry)| entry.holds() && entry.queue.is_some_and(within));
    let mut holding: Vec<_> = holding.map(|(id, entry)| (&entry.key, id)).collect();
    holding.sort_unstable_by_key(|(key, _)| *key);
    holding.into_iter().map(|(_, id)| id).take(NAMED).collect()
}

#[cfg(test)]
mod tests;
