//! Minimum run times: how long after its start a pod group is protected from eviction.

use crate::engine::input::{Millis, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::model::pod_group::PodGroup;
use crate::engine::model::queue::Queue;
use crate::engine::policy::{MinRuntime, Policy, ResolveMethod};

/// Until when a running pod group is protected from preemption (`reclaimer` is `None`) or from a queue that reclaims; `None` = not at all.
#[must_use]
pub fn protected_until(model: &Model, policy: &Policy, victim: &PodGroup, reclaimer: Option<QueueId>) -> Option<Time> {
    let MinRuntime {
        preempt,
        reclaim,
        resolve,
    } = policy.plugins.min_runtime?;
    let started = victim.input.as_ref()?.last_start?;
    let leaf = victim.queue?;
    let least = match reclaimer {
        None => first_set(model, leaf, |queue| queue.input.as_ref()?.preempt_min_runtime).unwrap_or(preempt),
        Some(reclaimer) => {
            let from = match resolve {
                ResolveMethod::Queue => leaf,
                ResolveMethod::Lca => below_common_ancestor(model, reclaimer, leaf),
            };
            first_set(model, from, |queue| queue.input.as_ref()?.reclaim_min_runtime).unwrap_or(reclaim)
        }
    };
    Some(Time(started.0 + least))
}

fn first_set(model: &Model, from: QueueId, value: impl Fn(&Queue) -> Option<Millis>) -> Option<Millis> {
    model.path_up(from).find_map(|queue| value(&model.queues()[queue]))
}

/// The queue right below the lowest common ancestor, on the victim's side; the victim's top queue if there is none.
fn below_common_ancestor(model: &Model, reclaimer: QueueId, victim: QueueId) -> QueueId {
    super::reclaim::parting(model, reclaimer, victim).map_or(victim, |(_, theirs)| theirs)
}

/// Some pod set has more pods than it needs, or some set more members than it needs.
#[must_use]
pub fn elastic(pod_group: &PodGroup) -> bool {
    pod_group.pod_sets().any(|(_, pods)| pods.min < pods.pods.len()) || pod_group.surplus(0, &pod_group.active())
}

#[cfg(test)]
mod tests;
