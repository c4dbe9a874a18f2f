//! Pods that got a place in this cycle and lost it to a later action of it, and pod groups that are pipelined although they need not wait.
//!
//! The first were never bound, so nothing is evicted and their places are free at once. Pod groups that were pipelined to these places are allocated here.
//! Otherwise each cycle would give the places away again and take them back, and no pod would ever be bound.
//!
//! Those that are to move to another place wait for the next cycle if this one evicts any pod, as in KAI.
//!
//! A search places pods while its victims count as gone, so it may choose nodes that suffice without them, where allocation, which chose others, found none for
//! some pods. Each cycle would find the same again. So such pod groups get the nodes that the search chose.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::input::PodStatus;
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::pod::{Assumed, State, Status};
use crate::engine::placement::score::{GpuOrder, Scorers};

use super::allocate::{record_start, runs};
use super::cycle::Cycle;
use super::place::Mode;
use super::spare::{forget_evictions, spare_needless};

/// Limit on attempts to allocate pipelined pod groups together. Each attempt leaves out those that did not fit in the last one.
const ATTEMPTS: usize = 8;

/// A pod group, and its pipelined pods with their nodes.
type Waiting = (PodGroupId, Vec<(PodId, NodeId)>);

/// Allocates pipelined pods of a pod group. Returns whether all fit without waiting for others.
type Allocates = fn(&mut Cycle, PodGroupId, &[(PodId, NodeId)]) -> bool;

/// Whether the pod was bound before this cycle, so that it must be evicted to free its place.
pub fn was_bound(model: &Model, pod: PodId) -> bool {
    let pod = &model.pods()[pod];
    pod.assumed == Assumed::Bound || pod.input.status != PodStatus::Pending
}

/// Frees the places of pods that were not bound, and allocates the pod groups that wait for these places. Returns whether any place was freed.
pub fn free_unbound(cycle: &mut Cycle) -> bool {
    let taken = cycle.log.taken.keys().copied();
    let unbound: Vec<PodId> = taken
        .filter(|pod| cycle.model.pods()[*pod].state.leaving && !was_bound(cycle.model, *pod))
        .collect();
    if unbound.is_empty() {
        return false;
    }
    let freed = free(cycle, &unbound);
    allocate_waiting(cycle, &unbound, &freed);
    // A pod that was to move to one of these places may stay where it is after all, and others can have the place.
    if spare_needless(cycle) {
        allocate_waiting(cycle, &unbound, &freed);
    }
    true
}

/// Allocates the pod groups that have room now on the nodes that they are pipelined to. Not if the cycle evicts any pod: most wait for that, and the next cycle
/// decides about the others.
pub fn start_planned(cycle: &mut Cycle) {
    if !cycle.log.evictions.is_empty() {
        return;
    }
    let mut waiting = waiting_on(cycle.model, |_| true);
    waiting.retain(|(_, planned)| planned.iter().all(|(pod, node)| may_fit_now(cycle.model, *pod, *node)));
    if !waiting.is_empty() {
        cycle.caches.unschedulable.clear();
        allocate_planned(cycle, waiting, fit_as_planned);
    }
}

/// Frees the places of pods that were not bound; returns the nodes.
fn free(cycle: &mut Cycle, unbound: &[PodId]) -> NodeSet {
    let model = &mut *cycle.model;
    let mut freed = NodeSet::default();
    for &pod in unbound {
        let state = &model.pods()[pod].state;
        if let Some(hold) = &state.hold {
            freed.add(hold.node.at());
        }
        let state = match state.plan.clone() {
            None => State::nowhere(Status::Pending),
            plan => State::pipelined(plan),
        };
        model.set_state(pod, state);
    }
    forget_evictions(cycle, unbound);
    cycle.commit();
    freed
}

/// Allocates the pod groups that wait for places on these nodes.
fn allocate_waiting(cycle: &mut Cycle, unbound: &[PodId], freed: &NodeSet) {
    // More is free than when they were filled.
    cycle.caches.unschedulable.clear();
    let mut waiting = waiting_on(cycle.model, |node| freed.has(node.at()));
    let lost_its_place = |(_, planned): &Waiting| planned.iter().any(|(pod, _)| unbound.binary_search(pod).is_ok());
    if !cycle.log.evictions.is_empty() {
        waiting.retain(|one| !lost_its_place(one));
    }
    // Those that are to move find other places; the ones for which they move may not.
    waiting.sort_by_key(lost_its_place);
    allocate_planned(cycle, waiting, fit_now);
}

/// The pod groups with pods that are pipelined to such nodes and hold no place, in the order in which they were decided, with all their pods of that kind.
fn waiting_on(model: &Model, is_meant: impl Fn(NodeId) -> bool) -> Vec<Waiting> {
    let mut waiting: Vec<Waiting> = Vec::new();
    let (mut position, mut there, mut seen) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
    for &pod in model.decided() {
        let entry = &model.pods()[pod];
        let plan = entry.state.plan.as_ref().filter(|_| entry.state.hold.is_none());
        let (Some(pod_group), Some(plan)) = (entry.pod_group, plan) else {
            continue;
        };
        if !seen.insert(pod) {
            continue;
        }
        let at = *position.entry(pod_group).or_insert(waiting.len());
        if at == waiting.len() {
            waiting.push((pod_group, Vec::new()));
        }
        waiting[at].1.push((pod, plan.node));
        if is_meant(plan.node) {
            there.insert(pod_group);
        }
    }
    waiting.retain(|(pod_group, _)| there.contains(pod_group));
    waiting
}

/// Whether a node has enough free now for a pod that is pipelined to it, as far as that is seen at once.
fn may_fit_now(model: &Model, pod: PodId, node: NodeId) -> bool {
    let pod = &model.pods()[pod];
    let shape = &model.shapes()[pod.shape];
    shape.shared || pod.input.claims.is_some() || shape.vector.fits(&model.nodes()[node].idle, false)
}

/// Allocates pipelined pods. Pod groups that do not fit keep their plans.
fn allocate_planned(cycle: &mut Cycle, mut waiting: Vec<Waiting>, allocates: Allocates) {
    for _ in 0..ATTEMPTS {
        let mark = cycle.model.mark();
        let starting = waiting.iter().map(|(pod_group, _)| *pod_group);
        let starting: Vec<PodGroupId> = starting.filter(|pod_group| !runs(cycle.model, *pod_group)).collect();
        // All at once, because they may share GPUs.
        for (_, planned) in &waiting {
            for &(pod, _) in planned {
                cycle.model.set_state(pod, State::nowhere(Status::Pending));
            }
        }
        let before = waiting.len();
        waiting.retain(|(pod_group, planned)| allocates(cycle, *pod_group, planned));
        if waiting.len() == before {
            cycle.commit();
            for pod_group in starting {
                record_start(cycle, pod_group);
            }
            return;
        }
        cycle.placer().rollback(mark);
    }
}

/// Allocates them where they fit best.
fn fit_now(cycle: &mut Cycle, pod_group: PodGroupId, planned: &[(PodId, NodeId)]) -> bool {
    cycle.begin_placing(pod_group);
    let pods: Vec<PodId> = planned.iter().map(|(pod, _)| *pod).collect();
    let mark = cycle.model.mark();
    let mut placer = cycle.placer();
    placer.place(pod_group, &pods, Mode::Real) && !placer.wait_as_one(pod_group, mark)
}

/// Allocates them on the nodes that they were pipelined to. Where pods get parts of several GPUs, the first ones may leave too few GPUs for the last one in the
/// order of the policy, but not in another order: if no pod terminates there for which they would wait, all orders are tried.
fn fit_as_planned(cycle: &mut Cycle, pod_group: PodGroupId, planned: &[(PodId, NodeId)]) -> bool {
    cycle.begin_placing(pod_group);
    let model = &*cycle.model;
    let terminate = |node: NodeId| {
        model.nodes()[node]
            .pods
            .iter()
            .any(|pod| model.pods()[*pod].state.leaving)
    };
    let mut orders = vec![cycle.context.scorers.gpus];
    if !planned.iter().any(|(_, node)| terminate(*node)) {
        orders.extend([GpuOrder::Spread, GpuOrder::Pack]);
    }
    let fits = |gpus: GpuOrder| {
        let mut placer = cycle.placer();
        let scorers = Scorers {
            gpus,
            ..*placer.context.scorers
        };
        placer.context.scorers = &scorers;
        placer.place_as_planned(planned)
    };
    orders.into_iter().any(fits) && cycle.model.pod_groups()[pod_group].whole_without_plans()
}
