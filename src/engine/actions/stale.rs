//! Stale gang eviction: the remaining pods of a pod group below its minimum are evicted after a grace period.
//!
//! This exceeds disruption budgets unless the policy always respects them: the remaining pods do no work, and a budget would let them hold their
//! devices for ever.

use std::collections::BTreeSet;

use crate::engine::decision::EvictionCause;
use crate::engine::input::{Name, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, PodId};
use crate::engine::model::pod::Pod;
use crate::engine::model::pod_group::PodGroup;
use crate::engine::policy::{ActionKind, DisruptionBudgets};

use super::budgets::within_budgets;
use super::context::CycleContext;
use super::cycle::Cycle;
use super::cycle_log::EvictionReason;

/// Updates the set of stale pod groups and their timestamps.
fn watch_stale(cycle: &mut Cycle, stale: &mut BTreeSet<PodGroupId>) {
    let now = cycle.context.now;
    for id in cycle.model.take_changed_pod_groups() {
        let known = cycle.model.pod_groups().contains(id);
        let present = known && cycle.model.pod_groups()[id].input.is_some();
        if present && lacks_sub_groups(cycle.model, id) {
            stale.remove(&id);
            continue;
        }
        let is_stale = present && cycle.model.pod_groups()[id].stale();
        if is_stale {
            stale.insert(id);
        } else {
            stale.remove(&id);
        }
        if present && cycle.model.set_stale(id, is_stale, now) {
            cycle.log.timed.insert(id);
        }
    }
}

/// Whether the sub-group of a bound pod is not known yet, so that the pod counts for any of them: a Binding cannot name the sub-group, and a process
/// that has just started may not have grouped the pod.
fn lacks_sub_groups(model: &Model, id: PodGroupId) -> bool {
    let pod_group = &model.pod_groups()[id];
    let mut pods = pod_group.pods.iter().map(|pod| &model.pods()[*pod]);
    let lacks = |pod: &Pod| pod.input.fallback_queue.is_some() && pod.input.sub_group.is_none();
    pod_group.pod_set(None).is_none() && pods.any(|pod| pod.state.status.allocated() && lacks(pod))
}

/// When a stale pod group's grace period ends; `None` = never.
#[must_use]
pub fn stale_until(model: &Model, context: CycleContext, pod_group: PodGroupId) -> Option<Time> {
    let input = model.pod_groups()[pod_group].input.as_ref()?;
    let grace = input.staleness_grace.or(context.policy.staleness_grace)?;
    (grace >= 0).then(|| Time(input.stale_since.unwrap_or(context.now).0 + grace))
}

/// The first sub-group with fewer pods than its minimum, and that minimum.
fn lacking(pod_group: &PodGroup) -> Option<(Name, usize)> {
    let mut explicit = pod_group
        .pod_sets()
        .filter(|(member, _)| !pod_group.is_implicit(*member));
    let (member, pods) = explicit.find(|(_, pods)| pods.active_used() < pods.min)?;
    Some((Name::from(&*pod_group.tree[member as usize].name), pods.min))
}

/// Runs the action.
pub fn evict_stale(cycle: &mut Cycle, stale: &mut BTreeSet<PodGroupId>) {
    watch_stale(cycle, stale);
    for &id in &*stale {
        if stale_until(cycle.model, cycle.context, id).is_none_or(|until| until > cycle.context.now) {
            continue;
        }
        cycle.begin_placing(id);
        let pod_group = &cycle.model.pod_groups()[id];
        let lacking = lacking(pod_group);
        let mut doomed: Vec<(PodId, EvictionCause)> = Vec::new();
        for (member, pods) in pod_group.pod_sets() {
            let name = &pod_group.tree[member as usize].name;
            let implicit = pod_group.is_implicit(member);
            for &pod in &pods.pods {
                let entry = &cycle.model.pods()[pod];
                if entry.state.status.active_allocated() && entry.state.hold.is_some() {
                    let cause = EvictionCause::Broken {
                        min: pods.min,
                        sub_group: (!implicit).then(|| Name::from(&**name)),
                        lacking: lacking.clone(),
                    };
                    doomed.push((pod, cause));
                }
            }
        }
        doomed.retain(|(pod, _)| !cycle.model.refused([*pod].into_iter()));
        let respected = cycle.context.policy.disruption_budgets == DisruptionBudgets::Respect;
        if doomed.is_empty()
            || (respected && !within_budgets(cycle.model, cycle.context.policy, doomed.iter().map(|(pod, _)| *pod)))
        {
            continue;
        }
        for (pod, cause) in doomed {
            cycle.model.evict(pod);
            cycle.log.evictions.insert(
                pod,
                EvictionReason {
                    action: ActionKind::StaleGangEviction,
                    preemptor: None,
                    cause,
                },
            );
        }
        cycle.model.evicted(id, cycle.context.now);
        cycle.log.timed.insert(id);
        cycle.commit();
    }
}
