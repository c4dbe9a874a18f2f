//! Sparing pods that need not be evicted or moved.
//!
//! A simulation gives a victim the best place that is left, not its own, and later steps of the cycle may undo plans or free more resources. So pods may be
//! evicted or moved although no decision needs their places. Here they get them back: first all at once; then those that block a
//! decision lose them again, the least valuable first; then these are tried one by one. Pods bound in this cycle are the most
//! valuable, and a pod without another place is more valuable than one that is moved.
//!
//! Without the plugin this is done only for pods that would be pipelined to the place that they hold.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::input::Claim;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId};
use crate::engine::model::pod::{Place, State, Status};
use crate::engine::model::pod_group::Member;
use crate::engine::model::resources::{GPUS, Resources};
use crate::engine::model::{Mark, Model};
use crate::engine::placement::neighbours::{Spreading, clash};
use crate::engine::placement::rules::host_ports;
use crate::engine::placement::volumes;
use crate::engine::policy::ActionKind;

use super::context::CycleContext;
use super::cycle::Cycle;
use super::cycle_log::{CycleLog, Taken};

/// Limit on passes over the evicted and moved pods. A pass may free resources that the next can use.
const PASSES: usize = 8;

/// An evicted or moved pod that may keep its place.
struct Candidate {
    pod: PodId,
    stay: State,
    go: State,
    stays: bool,
}

impl Candidate {
    /// Where it is if it stays.
    fn place(&self) -> &Place {
        let place = self.stay.plan.as_ref().or(self.stay.hold.as_ref());
        place.expect("only pods that have a place can stay there")
    }
}

/// The candidates, and facts about the other pods.
struct SpareState {
    /// The most valuable first.
    candidates: Vec<Candidate>,
    /// Positions of candidates by the node where they would stay.
    on: BTreeMap<NodeId, Vec<usize>>,
    /// Positions of the candidates of each pod group that has several.
    pod_groups: Vec<Vec<usize>>,
    /// Future free resources of the nodes if no candidate stays. They may be negative for other reasons.
    free_without: BTreeMap<NodeId, Resources>,
    /// Pods with a new place that depends on where others are.
    dependents: Vec<PodId>,
}

/// Gives evicted and moved pods their places back.
pub struct Sparer<'a> {
    /// The cluster.
    pub model: &'a mut Model,
    /// The settings and the time.
    pub context: CycleContext<'a>,
    /// Pods that had a place and lost it in this cycle.
    pub taken: &'a BTreeMap<PodId, Taken>,
}

/// Runs at the end of a cycle: pods that lost their places or are moved stay where no decision needs the place. Returns whether any pod stays.
pub fn spare_needless(cycle: &mut Cycle) -> bool {
    let start = cycle.model.mark();
    let by_order = cycle.log.taken.iter().map(|(pod, taken)| (*pod, taken.clone()));
    let mut taken: Vec<(PodId, Taken)> = by_order.collect();
    taken.sort_by_key(|(_, taken)| taken.order);
    let (log, policy) = (&cycle.log, cycle.context.policy);
    let mut sparer = Sparer {
        model: cycle.model,
        context: cycle.context,
        taken: &log.taken,
    };
    for (pod, taken) in &taken {
        sparer.restore_gpu_groups(*pod, &taken.before);
    }
    let mut found: Vec<(PodId, State)> = Vec::new();
    for (pod, taken) in taken {
        let now = &sparer.model.pods()[pod].state;
        let meant = (log.evictions.get(&pod)).is_some_and(|reason| reason.action == ActionKind::StaleGangEviction);
        let waits_for_its_own = now.plan.is_some() && now.plan == now.hold;
        let reclaim_relies_on = || now.plan.is_none() && reclaim_relies_on(sparer.model, log, pod, &taken);
        let to_be_spared = policy.plugins.spare || waits_for_its_own;
        if now.leaving && to_be_spared && now.hold == taken.before.hold && !meant && !reclaim_relies_on() {
            found.push((pod, taken.before));
        }
    }
    if found.is_empty() && sparer.model.mark() == start {
        return false;
    }
    let spared = sparer.spare(found);
    forget_evictions(cycle, &spared);
    cycle.commit();
    !spared.is_empty()
}

/// Removes what was recorded about evictions of pods that are not evicted after all.
pub fn forget_evictions(cycle: &mut Cycle, pods: &[PodId]) {
    for &pod in pods {
        cycle.log.evictions.remove(&pod);
        cycle.model.refund_budgets(pod);
    }
    restore_eviction_times(cycle, pods);
}

/// Whether a later reclaim gave capacity to a queue that had lost this pod, or to one above it: that decision counted on the loss.
fn reclaim_relies_on(model: &Model, log: &CycleLog, pod: PodId, taken: &Taken) -> bool {
    let queue = model.pod_group_of(pod).and_then(|pod_group| pod_group.queue);
    let later = &log.gains[taken.gains..];
    queue.is_some_and(|queue| {
        let mut path = model.path_up(queue);
        path.any(|at| later.iter().any(|gaining| gaining.contains(&at)))
    })
}

/// Restores the eviction times of pod groups that lose no pod after all.
fn restore_eviction_times(cycle: &mut Cycle, pods: &[PodId]) {
    let pod_groups: BTreeSet<PodGroupId> = pods
        .iter()
        .filter_map(|pod| cycle.model.pods()[*pod].pod_group)
        .collect();
    for pod_group in pod_groups {
        let entry = &cycle.model.pod_groups()[pod_group];
        let evicted = entry.pods.iter().any(|pod| cycle.log.evictions.contains_key(pod));
        if let Some(before) = cycle.log.evictions_before.get(&pod_group).filter(|_| !evicted) {
            cycle.model.not_evicted(pod_group, *before);
        }
    }
}

impl Sparer<'_> {
    /// Gives back places and plans that the open statement took since a mark and does not need. With `moved` also to pods with another place.
    pub fn spare_since(&mut self, mark: Mark, moved: bool) {
        let mut seen = BTreeSet::new();
        let mut found: Vec<(PodId, State)> = Vec::new();
        for (pod, before) in self.model.states_before(mark) {
            let now = &self.model.pods()[pod].state;
            let taken = now.evicted_from.is_some() && (now.plan.is_none() || moved);
            // Fast path: mostly the place is in use.
            if taken && (moved || !self.is_full(pod, before)) && seen.insert(pod) {
                found.push((pod, before.clone()));
            }
        }
        if found.is_empty() {
            return;
        }
        for (pod, before) in &found {
            self.restore_gpu_groups(*pod, before);
        }
        self.spare(found);
    }

    /// Whether the node where a pod was has too few free resources for it.
    fn is_full(&self, pod: PodId, before: &State) -> bool {
        let pod = &self.model.pods()[pod];
        let shape = &self.model.shapes()[pod.shape];
        let place = before.plan.as_ref().or(before.hold.as_ref());
        let full = |place: &Place| !shape.vector.fits(&self.model.nodes()[place.node].future, false);
        !shape.shared && pod.input.claims.is_none() && place.is_none_or(full)
    }

    /// Gives pods back the states that they had, where possible. Returns these pods.
    fn spare(&mut self, found: Vec<(PodId, State)>) -> Vec<PodId> {
        let mut spare_state = self.spare_state(found);
        let mut nodes = BTreeSet::new();
        for candidate in &mut spare_state.candidates {
            nodes.insert(self.ranked(candidate.place().node));
            self.model.set_state(candidate.pod, candidate.stay.clone());
            candidate.stays = true;
        }
        // Again after each eviction: others may have been to stay only with that pod.
        let mut evicted = true;
        while evicted {
            self.free_space(&mut spare_state, std::mem::take(&mut nodes));
            evicted = false;
            for at in (0..spare_state.candidates.len()).rev() {
                if spare_state.candidates[at].stays && !self.may_stay(&spare_state, at) {
                    nodes.extend(self.evict_again(&mut spare_state.candidates[at]));
                    evicted = true;
                }
            }
        }
        for _ in 0..PASSES {
            let mut any = false;
            for at in 0..spare_state.candidates.len() {
                any |= self.try_alone(&mut spare_state, at);
            }
            for pod_group in 0..spare_state.pod_groups.len() {
                any |= self.try_together(&mut spare_state, pod_group);
            }
            if !any {
                break;
            }
        }
        let spared = spare_state.candidates.into_iter().filter(|candidate| candidate.stays);
        spared.map(|candidate| candidate.pod).collect()
    }

    /// A pod that would get new shared GPUs on its own node keeps its old ones instead, unless another pod stays on them. Pods that were to share
    /// the new ones share the old ones.
    fn restore_gpu_groups(&mut self, pod: PodId, stay: &State) {
        let (Some(hold), Some(plan)) = (&stay.hold, self.model.pods()[pod].state.plan.clone()) else {
            return;
        };
        let (old, new) = (&hold.extras().groups, &plan.extras().groups);
        if hold.node != plan.node || old.is_empty() {
            return;
        }
        let gpus = &self.model.nodes()[hold.node].groups;
        let opened = |group: &&u32| {
            let gpu = &gpus[**group as usize];
            gpu.staying.pods + gpu.leaving.pods + gpu.reserved == 0
        };
        let left = |group: &&u32| gpus[**group as usize].all_leaving();
        let fresh = new.iter().filter(|group| !old.contains(group)).filter(opened);
        let free = old.iter().filter(|group| !new.contains(group)).filter(left);
        let pairs: Vec<(u32, u32)> = fresh.copied().zip(free.copied()).collect();
        for (fresh, old) in pairs {
            for other in self.model.nodes()[hold.node].coming.clone() {
                let mut state = self.model.pods()[other].state.clone();
                if let Some(plan) = state.plan.as_mut().filter(|plan| plan.extras().groups.contains(&fresh)) {
                    plan.change(|extras| {
                        let renamed = extras.groups.iter_mut().filter(|group| **group == fresh);
                        renamed.for_each(|group| *group = old);
                    });
                    self.model.set_state(other, state);
                }
            }
        }
    }

    /// The pods that could stay if no other candidate did.
    fn spare_state(&self, found: Vec<(PodId, State)>) -> SpareState {
        let model = &*self.model;
        let mut ranked: Vec<((u8, Reverse<usize>), Candidate)> = Vec::with_capacity(found.len());
        let mut free_without: BTreeMap<NodeId, Resources> = BTreeMap::new();
        // Free resources of nodes without the pods that are pipelined there and could stay where they are.
        let mut most: BTreeMap<NodeId, Resources> = BTreeMap::new();
        for (order, (pod, stay)) in found.into_iter().enumerate() {
            let go = model.pods()[pod].state.clone();
            let worth = match &stay.status {
                Status::Allocated => 0,
                _ if stay.hold.is_some() && go.plan.is_none() => 1,
                _ => 2,
            };
            let candidate = Candidate {
                pod,
                stay,
                go,
                stays: false,
            };
            let node = candidate.place().node;
            let free = &model.nodes()[node].future;
            free_without.entry(node).or_insert_with(|| free.clone());
            if let Some(plan) = &candidate.go.plan {
                let most = most
                    .entry(plan.node)
                    .or_insert_with(|| model.nodes()[plan.node].future.clone());
                most.add(&model.shapes()[model.pods()[pod].shape].vector, 1);
            }
            ranked.push(((worth, Reverse(order)), candidate));
        }
        let no_room = |candidate: &Candidate| {
            let (pod, node) = (&model.pods()[candidate.pod], candidate.place().node);
            let shape = &model.shapes()[pod.shape];
            let most = most.get(&node).unwrap_or(&model.nodes()[node].future);
            !shape.shared && pod.input.claims.is_none() && !shape.vector.fits(most, false)
        };
        ranked.retain(|(_, candidate)| !no_room(candidate));
        ranked.sort_by_key(|(worth, _)| *worth);
        let candidates: Vec<Candidate> = ranked.into_iter().map(|(_, candidate)| candidate).collect();
        let mut on: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        let mut of: BTreeMap<PodGroupId, Vec<usize>> = BTreeMap::new();
        for (at, candidate) in candidates.iter().enumerate() {
            on.entry(candidate.place().node).or_default().push(at);
            if let Some(pod_group) = model.pods()[candidate.pod].pod_group {
                of.entry(pod_group).or_default().push(at);
            }
        }
        let mut pod_groups: Vec<Vec<usize>> = of.into_values().filter(|those| those.len() > 1).collect();
        // By their most valuable pod.
        pod_groups.sort();
        let counted = candidates
            .iter()
            .any(|candidate| !model.pods()[candidate.pod].counted.is_empty());
        let dependents = if counted { self.dependents() } else { Vec::new() };
        SpareState {
            candidates,
            on,
            pod_groups,
            free_without,
            dependents,
        }
    }

    /// Pods placed in this cycle with pod affinity or spread constraints.
    fn dependents(&self) -> Vec<PodId> {
        let model = &*self.model;
        let changed = model.decided().iter().copied().chain(model.changed_in_statement());
        let follows = |pod: &PodId| {
            let pod = &model.pods()[*pod];
            let asked = model.classes()[pod.class].asked.as_ref();
            matches!(pod.state.status, Status::Allocated | Status::Pipelined)
                && asked.is_some_and(|asked| !asked.near.is_empty() || !asked.spread.is_empty())
        };
        let mut dependents: Vec<PodId> = changed.filter(follows).collect();
        dependents.sort_unstable();
        dependents.dedup();
        dependents
    }

    /// A node with the rank of its name, so that results do not depend on the order of node events.
    fn ranked(&self, node: NodeId) -> (u32, NodeId) {
        (self.model.nodes()[node].rank, node)
    }

    /// Evicts a candidate again. Returns the node that it is pipelined to, if any.
    fn evict_again(&mut self, candidate: &mut Candidate) -> Option<(u32, NodeId)> {
        self.model.set_state(candidate.pod, candidate.go.clone());
        candidate.stays = false;
        candidate.go.plan.as_ref().map(|plan| self.ranked(plan.node))
    }

    /// Evicts candidates again until these nodes, and those to which the candidates move, have room for the decisions.
    fn free_space(&mut self, spare_state: &mut SpareState, mut nodes: BTreeSet<(u32, NodeId)>) {
        while let Some((_, node)) = nodes.pop_first() {
            let here = spare_state.on.get(&node).cloned().unwrap_or_default();
            let crowded = |sparer: &Self, spare_state: &SpareState| {
                let staying = here.iter().rev().filter(|at| spare_state.candidates[**at].stays);
                staying.copied().find(|at| !sparer.has_room_to_stay(spare_state, *at))
            };
            while let Some(at) = crowded(self, spare_state) {
                nodes.extend(self.evict_again(&mut spare_state.candidates[at]));
            }
        }
    }

    /// Whether the node has room for a candidate beside the decisions.
    fn has_room_to_stay(&self, spare_state: &SpareState, at: usize) -> bool {
        let candidate = &spare_state.candidates[at];
        let model = &*self.model;
        let (place, shape) = (candidate.place(), &model.shapes()[model.pods()[candidate.pod].shape]);
        let (node, extras) = (&model.nodes()[place.node], place.extras());
        let floor = &spare_state.free_without[&place.node];
        let enough = |at: usize| node.future.get(at) >= floor.get(at).min(0);
        let on_gpus = shape.shared || extras.devices.is_some();
        let mut grants = extras.devices.iter().flat_map(|grants| &**grants);
        shape.vector.iter().all(|(at, asked)| asked <= 0 || enough(at))
            && (!on_gpus || enough(GPUS))
            && extras
                .groups
                .iter()
                .all(|group| node.groups[*group as usize].free_later(node.gpu_memory()) >= 0)
            && node.numa.as_ref().is_none_or(|ledger| ledger.suffices(&extras.zones))
            && grants.all(|used| model.devices().suffices(used.claim, &used.allocation))
    }

    /// Whether a candidate, which stays at present, may stay if the node has room for it.
    fn may_stay(&mut self, spare_state: &SpareState, at: usize) -> bool {
        let candidate = &spare_state.candidates[at];
        let Some((pod_group, member)) = self.model.pods()[candidate.pod]
            .pod_group
            .zip(self.model.pods()[candidate.pod].member)
        else {
            return false;
        };
        self.within_limits(candidate, pod_group)
            && (candidate.go.plan.is_some() || self.is_useful(pod_group, member))
            && self.in_one_domain(pod_group)
            && self.others_allow(candidate, &spare_state.dependents)
    }

    /// Whether all queues stay within their limits.
    fn within_limits(&self, candidate: &Candidate, pod_group: PodGroupId) -> bool {
        let model = &*self.model;
        let shape = &model.shapes()[model.pods()[candidate.pod].shape];
        let at = |place: &Place| shape.accepted(model.nodes()[place.node].gpu_memory());
        let (after, before) = (at(candidate.place()), candidate.go.plan.as_ref().map_or([0; 3], at));
        let more: Vec<usize> = (0..3).filter(|resource| after[*resource] > before[*resource]).collect();
        let Some(queue) = model.pod_groups()[pod_group]
            .queue
            .filter(|_| self.context.rules.shares && !more.is_empty())
        else {
            return true;
        };
        model.path_up(queue).all(|queue| {
            let queue = &model.queues()[queue];
            let inside = |resource: &usize| {
                let limit = queue.share(*resource).limit;
                limit.is_none_or(|limit| queue.allocated[*resource] <= limit)
            };
            more.iter().all(inside)
        })
    }

    /// Whether the pod group can use the pod: its minimum and that of the pod set are met, or it has lost no pod.
    fn is_useful(&self, pod_group: PodGroupId, member: Member) -> bool {
        let entry = &self.model.pod_groups()[pod_group];
        let active = entry.active();
        let lost = |pod: &PodId| {
            let state = &self.model.pods()[*pod].state;
            let taken = state.evicted_from.is_some() || self.taken.contains_key(pod);
            taken && state.status == Status::Releasing
        };
        (entry.satisfied(0, &active) && entry.satisfied(member, &active)) || !entry.pods.iter().any(lost)
    }

    /// Whether each member with a required topology level is in one domain.
    fn in_one_domain(&self, pod_group: PodGroupId) -> bool {
        let model = &*self.model;
        let entry = &model.pod_groups()[pod_group];
        if !self.context.policy.plugins.topology {
            return true;
        }
        let numbered = entry.tree.iter().enumerate();
        let mut constrained = numbered.filter_map(|(member, part)| Some((member as Member, part.topology.as_ref()?)));
        constrained.all(|(member, constraint)| {
            let topology = model.topologies().get(&constraint.topology);
            let level = |key| topology.and_then(|topology| Some((topology, topology.level(key)?)));
            let Some((topology, level)) = constraint.required.as_deref().and_then(level) else {
                return true;
            };
            let placed = entry.pods.iter().filter(|pod| {
                let pod = &model.pods()[**pod];
                pod.state.status.active_allocated() && pod.member.is_some_and(|own| entry.is_under(own, member))
            });
            let nodes = placed.filter_map(|pod| model.node_of(*pod));
            let mut domains = nodes.map(|node| topology.domain_of(node, level));
            let first = domains.next();
            first.is_none_or(|first| first.is_some() && domains.all(|domain| domain == first))
        })
    }

    /// Whether relations between pods allow the candidate to stay, and still allow the pods that were placed while it was gone.
    fn others_allow(&mut self, candidate: &Candidate, dependents: &[PodId]) -> bool {
        let model = &*self.model;
        let (id, node) = (candidate.pod, candidate.place().node);
        let pod = &model.pods()[id];
        let ports = &model.classes()[pod.class].constraints.ports;
        let related = !pod.counted.is_empty() || model.classes()[pod.class].asked.is_some();
        if (!ports.is_empty() && !host_ports::free(model, id, &model.nodes()[node]))
            || (related && !self.relations_hold(id, node))
        {
            return false;
        }
        self.reaches_volumes(candidate)
            && dependents
                .iter()
                .all(|other| *other == id || self.dependent_fits(*other, id))
    }

    /// A pod's relations to others hold on a node.
    fn relations_hold(&self, pod: PodId, node: NodeId) -> bool {
        let enabled = |_: &Spreading| self.context.policy.plugins.topology_spread;
        let spreading = Spreading::of(self.model, pod).filter(enabled);
        clash(self.model, pod, node).is_none()
            && spreading.is_none_or(|spreading| spreading.clash(self.model, node).is_none())
    }

    /// Whether no decision uses storage that would be freed with the pod, and its own volumes are available.
    fn reaches_volumes(&mut self, candidate: &Candidate) -> bool {
        let (model, node) = (&*self.model, candidate.place().node);
        let claims = model.pods()[candidate.pod].input.volumes.iter();
        let short = |claim: &Claim| claim.owned && model.storage().room(&claim.class, node, 0, 0, true) == Some(false);
        if self.context.policy.csi_storage && claims.flat_map(|volumes| &volumes.claims).any(short) {
            return false;
        }
        if !volumes::concerned(model, candidate.pod) {
            return true;
        }
        let mark = self.model.mark();
        let gone = State {
            evicted_from: None,
            plan: None,
            ..candidate.go.clone()
        };
        self.model.set_state(candidate.pod, gone);
        let reached = volumes::fit(self.model, candidate.pod, node, false, self.context.policy.csi_storage).is_ok();
        self.model.rollback(mark);
        reached
    }

    /// Whether a dependent pod still fits its place if `pod` stays.
    fn dependent_fits(&mut self, dependent: PodId, pod: PodId) -> bool {
        let asked = self.model.classes()[self.model.pods()[dependent].class].asked.as_ref();
        let about = |counter| self.model.pods()[pod].counted.contains(counter);
        let Some(node) = self.model.node_of(dependent) else {
            return true;
        };
        if !asked.is_some_and(|asked| asked.near.iter().chain(&asked.spread).any(about)) {
            return true;
        }
        let mark = self.model.mark();
        self.model.set_state(dependent, State::nowhere(Status::Pending));
        let holds = self.relations_hold(dependent, node);
        self.model.rollback(mark);
        holds
    }

    /// Keeps one candidate if possible.
    fn try_alone(&mut self, spare_state: &mut SpareState, at: usize) -> bool {
        if spare_state.candidates[at].stays {
            return false;
        }
        let mark = self.model.mark();
        self.model
            .set_state(spare_state.candidates[at].pod, spare_state.candidates[at].stay.clone());
        let stays = self.has_room_to_stay(spare_state, at) && self.may_stay(spare_state, at);
        spare_state.candidates[at].stays = stays;
        if !stays {
            self.model.rollback(mark);
        }
        stays
    }

    /// Keeps the candidates of a pod group that fit together, where each alone could not stay.
    fn try_together(&mut self, spare_state: &mut SpareState, pod_group: usize) -> bool {
        let those: Vec<usize> = spare_state.pod_groups[pod_group]
            .iter()
            .copied()
            .filter(|at| !spare_state.candidates[*at].stays)
            .collect();
        if those.len() < 2 {
            return false;
        }
        let mark = self.model.mark();
        let mut staying = Vec::with_capacity(those.len());
        for at in those {
            let before = self.model.mark();
            self.model
                .set_state(spare_state.candidates[at].pod, spare_state.candidates[at].stay.clone());
            if self.has_room_to_stay(spare_state, at) {
                staying.push(at);
            } else {
                self.model.rollback(before);
            }
        }
        let together = staying.len() > 1 && staying.iter().all(|at| self.may_stay(spare_state, *at));
        if !together {
            self.model.rollback(mark);
            return false;
        }
        for at in staying {
            spare_state.candidates[at].stays = true;
        }
        true
    }
}
