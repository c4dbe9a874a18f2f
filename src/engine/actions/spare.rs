//! Sparing whoever need not go.
//!
//! Searches pack freely: a victim takes the best place that is left, not its own. Later answers of the cycle may take plans back, or make room. So pods may be
//! on the way out, or on the way elsewhere, although their places are free with all that is decided. Here they get them back: first everybody at once, then
//! whoever is in the way of a decision leaves again, the least worth keeping first; who left is then tried one by one. What was bound in this cycle is worth
//! most, a pod that loses its place more than one that has another.
//!
//! Without the plugin this is done for those alone who would wait for the very place that they hold: whoever else goes goes as the searches say.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::fairshare::reclaim::parting;
use crate::engine::input::Claim;
use crate::engine::model::Mark;
use crate::engine::model::gang::Member;
use crate::engine::model::ids::{GangId, NodeId, QueueId, TaskId};
use crate::engine::model::resources::{GPUS, Resources};
use crate::engine::model::task::{Place, State, Status};
use crate::engine::placement::filter::ports_free;
use crate::engine::placement::neighbours::{Spreading, clash};
use crate::engine::placement::volumes;
use crate::engine::policy::ActionKind;

use super::session::Session;
use super::victims::Answer;

/// Passes over those who left, at most: each pass may make room for the next.
const PASSES: usize = 8;

/// What a pod was before the answers of this cycle took its place.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its state then.
    pub before: State,
    /// How many others had been taken from before.
    order: usize,
    /// How many answers of reclaim had been kept when it lost its place.
    gains: usize,
}

/// A pod that may stay after all.
struct Leaver {
    task: TaskId,
    stay: State,
    go: State,
    stays: bool,
}

impl Leaver {
    /// Where it is if it stays.
    fn place(&self) -> &Place {
        let place = self.stay.plan.as_ref().or(self.stay.hold.as_ref());
        place.expect("only those who have a place can stay there")
    }
}

/// Pods that may stay after all, and what must be known about the others.
struct Sparing {
    /// Those worth most first.
    leavers: Vec<Leaver>,
    /// Leavers by the node where they would stay.
    on: BTreeMap<NodeId, Vec<usize>>,
    /// Leavers of each gang that has several.
    gangs: Vec<Vec<usize>>,
    /// What is free there later if nobody stays. A node may be short of something for other reasons.
    floors: BTreeMap<NodeId, Resources>,
    /// Pods with a new place that depends on where others are.
    followers: Vec<TaskId>,
}

impl Session<'_> {
    /// Remembers what an answer takes from pods that hold a place.
    pub fn remember_taken(&mut self, answer: &Answer) {
        if answer.case.action == ActionKind::Reclaim {
            self.gains.push(self.gaining(answer));
        }
        for (task, before) in self.model.states_before(answer.mark) {
            let now = &self.model.tasks[task].state;
            if now.evicted_from.is_none() || now.hold.is_none() {
                continue;
            }
            let (order, gains) = (self.taken.len(), self.gains.len());
            let taken = self.taken.entry(task).or_insert_with(|| Taken {
                before: before.clone(),
                order,
                gains,
            });
            if now.plan.is_none() {
                taken.gains = gains;
            }
        }
    }

    /// The queues that hold more by an answer of reclaim, as far up as they were compared with those that lost.
    fn gaining(&self, answer: &Answer) -> Vec<QueueId> {
        let queue = answer.case.queue;
        let losers = answer
            .victims
            .iter()
            .filter_map(|batch| self.model.gangs[batch.gang].queue);
        let sides = losers.filter_map(|loser| Some(parting(self.model, queue, loser)?.0));
        let most = |side| {
            self.model
                .path_up(queue)
                .position(|at| at == side)
                .map_or(0, |at| at + 1)
        };
        let compared = sides.map(most).max().unwrap_or(0).max(1);
        self.model.path_up(queue).take(compared).collect()
    }

    /// A later answer of reclaim let a queue grow that had lost this pod, or one above it.
    fn counted_on(&self, task: TaskId, taken: &Taken) -> bool {
        let queue = self.model.gangs_of(task).and_then(|gang| gang.queue);
        let later = &self.gains[taken.gains..];
        queue.is_some_and(|queue| {
            let mut path = self.model.path_up(queue);
            path.any(|at| later.iter().any(|gaining| gaining.contains(&at)))
        })
    }

    /// Whoever lost its place, or its plan, to the open statement since a mark gets it back where nothing needs it. With `moved` also who has another place.
    pub fn spare_since(&mut self, mark: Mark, moved: bool) {
        let mut seen = BTreeSet::new();
        let mut found: Vec<(TaskId, State)> = Vec::new();
        for (task, before) in self.model.states_before(mark) {
            let now = &self.model.tasks[task].state;
            let taken = now.evicted_from.is_some() && (now.plan.is_none() || moved);
            // Mostly the place is taken, and that is seen at once.
            if taken && (moved || !self.is_full(task, before)) && seen.insert(task) {
                found.push((task, before.clone()));
            }
        }
        if found.is_empty() {
            return;
        }
        for (task, before) in &found {
            self.rejoin(*task, before);
        }
        self.spare(found);
    }

    /// The node where a pod was has no room for it.
    fn is_full(&self, task: TaskId, before: &State) -> bool {
        let task = &self.model.tasks[task];
        let shape = &self.model.shapes[task.shape];
        let place = before.plan.as_ref().or(before.hold.as_ref());
        let full = |place: &Place| !shape.vector.fits(&self.model.nodes[place.node].future, false);
        !shape.shared && task.input.claims.is_none() && place.is_none_or(full)
    }

    /// The plugin is on.
    #[must_use]
    pub fn spares(&self) -> bool {
        self.policy.plugins.spare
    }

    /// Before decisions go out: whoever lost its place in this cycle, or is to move, stays where nothing that is decided needs the place. Whether anybody does.
    pub fn spare_at_last(&mut self) -> bool {
        let start = self.model.mark();
        let mut taken: Vec<(TaskId, Taken)> = self.taken.iter().map(|(task, taken)| (*task, taken.clone())).collect();
        taken.sort_by_key(|(_, taken)| taken.order);
        for (task, taken) in &taken {
            self.rejoin(*task, &taken.before);
        }
        let mut found: Vec<(TaskId, State)> = Vec::new();
        for (task, taken) in taken {
            let now = &self.model.tasks[task].state;
            let meant =
                (self.verdicts.get(&task)).is_some_and(|verdict| verdict.action == ActionKind::StaleGangEviction);
            let waits_for_its_own = now.plan.is_some() && now.plan == now.hold;
            let counted_on = || now.plan.is_none() && self.counted_on(task, &taken);
            let to_be_spared = self.spares() || waits_for_its_own;
            if now.leaving && to_be_spared && now.hold == taken.before.hold && !meant && !counted_on() {
                found.push((task, taken.before));
            }
        }
        if found.is_empty() && self.model.mark() == start {
            return false;
        }
        let spared = self.spare(found);
        for &task in &spared {
            self.verdicts.remove(&task);
            self.model.budgets.refund(&self.model.tasks[task].input.pod.uid);
        }
        self.take_back_times(&spared);
        self.commit();
        !spared.is_empty()
    }

    /// Gangs that lose nothing after all were not evicted in this cycle.
    fn take_back_times(&mut self, spared: &[TaskId]) {
        let gangs: BTreeSet<GangId> = spared.iter().filter_map(|task| self.model.tasks[*task].gang).collect();
        for gang in gangs {
            let entry = &mut self.model.gangs[gang];
            let evicted = entry.tasks.iter().any(|task| self.verdicts.contains_key(task));
            if let Some(before) = self.evictions_before.get(&gang).filter(|_| !evicted) {
                entry.not_evicted(*before);
            }
        }
    }

    /// Gives pods back what they had, where that can be. Returns those.
    fn spare(&mut self, found: Vec<(TaskId, State)>) -> Vec<TaskId> {
        let mut sparing = self.sparing(found);
        let mut nodes = BTreeSet::new();
        for leaver in &mut sparing.leavers {
            nodes.insert(self.ranked(leaver.place().node));
            self.model.set_state(leaver.task, leaver.stay.clone());
            leaver.stays = true;
        }
        while !nodes.is_empty() {
            self.make_room(&mut sparing, nodes);
            nodes = BTreeSet::new();
            for at in (0..sparing.leavers.len()).rev() {
                if sparing.leavers[at].stays && !self.may_stay(&sparing, at) {
                    nodes.extend(self.let_go(&mut sparing.leavers[at]));
                }
            }
        }
        for _ in 0..PASSES {
            let mut any = false;
            for at in 0..sparing.leavers.len() {
                any |= self.try_alone(&mut sparing, at);
            }
            for gang in 0..sparing.gangs.len() {
                any |= self.try_together(&mut sparing, gang);
            }
            if !any {
                break;
            }
        }
        let spared = sparing.leavers.into_iter().filter(|leaver| leaver.stays);
        spared.map(|leaver| leaver.task).collect()
    }

    /// A pod that is to get new shared GPUs on its own node gets its old ones instead, as far as nobody else is left on them; and so does whoever was to share
    /// the new ones.
    fn rejoin(&mut self, task: TaskId, stay: &State) {
        let (Some(hold), Some(plan)) = (&stay.hold, self.model.tasks[task].state.plan.clone()) else {
            return;
        };
        let (old, new) = (&hold.extras().groups, &plan.extras().groups);
        if hold.node != plan.node || old.is_empty() {
            return;
        }
        let gpus = &self.model.nodes[hold.node].groups;
        let opened = |group: &&u32| {
            let gpu = &gpus[**group as usize];
            gpu.staying.pods + gpu.leaving.pods + gpu.reserved == 0
        };
        let left = |group: &&u32| gpus[**group as usize].all_leaving();
        let fresh = new.iter().filter(|group| !old.contains(group)).filter(opened);
        let free = old.iter().filter(|group| !new.contains(group)).filter(left);
        let pairs: Vec<(u32, u32)> = fresh.copied().zip(free.copied()).collect();
        for (fresh, old) in pairs {
            for other in self.model.nodes[hold.node].coming.clone() {
                let mut state = self.model.tasks[other].state.clone();
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

    /// Those of the pods found that could stay at best.
    fn sparing(&self, found: Vec<(TaskId, State)>) -> Sparing {
        let model = &*self.model;
        let mut ranked: Vec<((u8, Reverse<usize>), Leaver)> = Vec::with_capacity(found.len());
        let mut floors: BTreeMap<NodeId, Resources> = BTreeMap::new();
        // What is free on nodes once those planned there stay where they are.
        let mut most: BTreeMap<NodeId, Resources> = BTreeMap::new();
        for (order, (task, stay)) in found.into_iter().enumerate() {
            let go = model.tasks[task].state.clone();
            let worth = match &stay.status {
                Status::Allocated => 0,
                _ if stay.hold.is_some() && go.plan.is_none() => 1,
                _ => 2,
            };
            let leaver = Leaver {
                task,
                stay,
                go,
                stays: false,
            };
            let node = leaver.place().node;
            let free = &model.nodes[node].future;
            floors.entry(node).or_insert_with(|| free.clone());
            if let Some(plan) = &leaver.go.plan {
                let most = most
                    .entry(plan.node)
                    .or_insert_with(|| model.nodes[plan.node].future.clone());
                most.add(&model.shapes[model.tasks[task].shape].vector, 1);
            }
            ranked.push(((worth, Reverse(order)), leaver));
        }
        let hopeless = |leaver: &Leaver| {
            let (task, node) = (&model.tasks[leaver.task], leaver.place().node);
            let shape = &model.shapes[task.shape];
            let most = most.get(&node).unwrap_or(&model.nodes[node].future);
            !shape.shared && task.input.claims.is_none() && !shape.vector.fits(most, false)
        };
        ranked.retain(|(_, leaver)| !hopeless(leaver));
        ranked.sort_by_key(|(worth, _)| *worth);
        let leavers: Vec<Leaver> = ranked.into_iter().map(|(_, leaver)| leaver).collect();
        let mut on: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        let mut of: BTreeMap<GangId, Vec<usize>> = BTreeMap::new();
        for (at, leaver) in leavers.iter().enumerate() {
            on.entry(leaver.place().node).or_default().push(at);
            if let Some(gang) = model.tasks[leaver.task].gang {
                of.entry(gang).or_default().push(at);
            }
        }
        let mut gangs: Vec<Vec<usize>> = of.into_values().filter(|those| those.len() > 1).collect();
        // By who is worth most in them.
        gangs.sort();
        let counted = leavers
            .iter()
            .any(|leaver| !model.tasks[leaver.task].counted.is_empty());
        let followers = if counted { self.followers() } else { Vec::new() };
        Sparing {
            leavers,
            on,
            gangs,
            floors,
            followers,
        }
    }

    /// Pods placed in this cycle that must be near others, or spread among them.
    fn followers(&self) -> Vec<TaskId> {
        let model = &*self.model;
        let changed = model.decided.iter().copied().chain(model.changed_in_statement());
        let follows = |task: &TaskId| {
            let task = &model.tasks[*task];
            let asked = model.classes[task.class].asked.as_ref();
            matches!(task.state.status, Status::Allocated | Status::Pipelined)
                && asked.is_some_and(|asked| !asked.near.is_empty() || !asked.spread.is_empty())
        };
        let mut followers: Vec<TaskId> = changed.filter(follows).collect();
        followers.sort_unstable();
        followers.dedup();
        followers
    }

    /// A node by its name's rank, so that the order in which nodes became known does not matter.
    fn ranked(&self, node: NodeId) -> (u32, NodeId) {
        (self.model.nodes[node].rank, node)
    }

    /// Lets a pod go after all. The node where it is planned, if it is.
    fn let_go(&mut self, leaver: &mut Leaver) -> Option<(u32, NodeId)> {
        self.model.set_state(leaver.task, leaver.go.clone());
        leaver.stays = false;
        leaver.go.plan.as_ref().map(|plan| self.ranked(plan.node))
    }

    /// Lets pods go until there is room for what is decided on these nodes, and on those to which they go.
    fn make_room(&mut self, sparing: &mut Sparing, mut nodes: BTreeSet<(u32, NodeId)>) {
        while let Some((_, node)) = nodes.pop_first() {
            let here = sparing.on.get(&node).cloned().unwrap_or_default();
            let crowded = |session: &Self, sparing: &Sparing| {
                let staying = here.iter().rev().filter(|at| sparing.leavers[**at].stays);
                staying.copied().find(|at| !session.has_room_to_stay(sparing, *at))
            };
            while let Some(at) = crowded(self, sparing) {
                nodes.extend(self.let_go(&mut sparing.leavers[at]));
            }
        }
    }

    /// There is room for a pod that stays, beside all that is decided.
    fn has_room_to_stay(&self, sparing: &Sparing, at: usize) -> bool {
        let leaver = &sparing.leavers[at];
        let model = &*self.model;
        let (place, shape) = (leaver.place(), &model.shapes[model.tasks[leaver.task].shape]);
        let (node, extras) = (&model.nodes[place.node], place.extras());
        let floor = &sparing.floors[&place.node];
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
            && grants.all(|used| model.devices.suffices(used.claim, &used.allocation))
    }

    /// Nothing but room speaks against it that a pod stays, which it does at present.
    fn may_stay(&mut self, sparing: &Sparing, at: usize) -> bool {
        let leaver = &sparing.leavers[at];
        let Some((gang, member)) = self.model.tasks[leaver.task]
            .gang
            .zip(self.model.tasks[leaver.task].member)
        else {
            return false;
        };
        self.within_limits(leaver, gang)
            && (leaver.go.plan.is_some() || self.is_of_use(gang, member))
            && self.in_one_domain(gang)
            && self.suits_others(leaver, &sparing.followers)
    }

    /// No queue passes its limit by it.
    fn within_limits(&self, leaver: &Leaver, gang: GangId) -> bool {
        let model = &*self.model;
        let shape = &model.shapes[model.tasks[leaver.task].shape];
        let at = |place: &Place| shape.accepted(model.nodes[place.node].gpu_memory());
        let (after, before) = (at(leaver.place()), leaver.go.plan.as_ref().map_or([0; 3], at));
        let more: Vec<usize> = (0..3).filter(|resource| after[*resource] > before[*resource]).collect();
        let Some(queue) = model.gangs[gang]
            .queue
            .filter(|_| self.rules.shares && !more.is_empty())
        else {
            return true;
        };
        model.path_up(queue).all(|queue| {
            let queue = &model.queues[queue];
            let inside = |resource: &usize| {
                let limit = queue.share(*resource).limit;
                limit.is_none_or(|limit| queue.allocated[*resource] <= limit)
            };
            more.iter().all(inside)
        })
    }

    /// The gang can use a pod that it had lost: it has what it needs, and so has the pod set; or it has lost nothing.
    fn is_of_use(&self, gang: GangId, member: Member) -> bool {
        let entry = &self.model.gangs[gang];
        let active = entry.active();
        let lost = |task: &TaskId| {
            let state = &self.model.tasks[*task].state;
            let taken = state.evicted_from.is_some() || self.taken.contains_key(task);
            taken && state.status == Status::Releasing
        };
        (entry.satisfied(0, &active) && entry.satisfied(member, &active)) || !entry.tasks.iter().any(lost)
    }

    /// Each part of the gang that must be in one domain of a topology is.
    fn in_one_domain(&self, gang: GangId) -> bool {
        let model = &*self.model;
        let entry = &model.gangs[gang];
        if !self.policy.plugins.topology {
            return true;
        }
        let numbered = entry.tree.iter().enumerate();
        let mut constrained = numbered.filter_map(|(member, part)| Some((member as Member, part.topology.as_ref()?)));
        constrained.all(|(member, constraint)| {
            let topology = model.topologies.get(&constraint.topology);
            let level = |key| topology.and_then(|topology| Some((topology, topology.level(key)?)));
            let Some((topology, level)) = constraint.required.as_deref().and_then(level) else {
                return true;
            };
            let placed = entry.tasks.iter().filter(|task| {
                let task = &model.tasks[**task];
                task.state.status.active_allocated() && task.member.is_some_and(|own| entry.is_under(own, member))
            });
            let nodes = placed.filter_map(|task| model.node_of(*task));
            let mut domains = nodes.map(|node| topology.domain_of(node, level));
            let first = domains.next();
            first.is_none_or(|first| first.is_some() && domains.all(|domain| domain == first))
        })
    }

    /// Other pods allow the one that stays, and those that were placed with it gone still may be where they are.
    fn suits_others(&mut self, leaver: &Leaver, followers: &[TaskId]) -> bool {
        let model = &*self.model;
        let (task, node) = (leaver.task, leaver.place().node);
        let pod = &model.tasks[task];
        let ports = &model.classes[pod.class].constraints.ports;
        let related = !pod.counted.is_empty() || model.classes[pod.class].asked.is_some();
        if (!ports.is_empty() && !ports_free(model, task, &model.nodes[node]))
            || (related && !self.stands_well(task, node))
        {
            return false;
        }
        self.reaches_volumes(leaver)
            && followers
                .iter()
                .all(|other| *other == task || self.still_follows(*other, task))
    }

    /// A pod's relations to others hold on a node.
    fn stands_well(&self, task: TaskId, node: NodeId) -> bool {
        let heeded = |_: &Spreading| self.policy.plugins.topology_spread;
        let spreading = Spreading::of(self.model, task).filter(heeded);
        clash(self.model, task, node).is_none()
            && spreading.is_none_or(|spreading| spreading.clash(self.model, node).is_none())
    }

    /// The storage that would go with the pod is not counted on, and its volumes can be had with it counted as gone, so they can with it.
    fn reaches_volumes(&mut self, leaver: &Leaver) -> bool {
        let (model, node) = (&*self.model, leaver.place().node);
        let claims = model.tasks[leaver.task].input.volumes.iter();
        let short = |claim: &Claim| claim.owned && model.storage.room(&claim.class, node, 0, 0, true) == Some(false);
        if self.policy.csi_storage && claims.flat_map(|volumes| &volumes.claims).any(short) {
            return false;
        }
        if !volumes::concerned(model, leaver.task) {
            return true;
        }
        let mark = self.model.mark();
        let gone = State {
            evicted_from: None,
            plan: None,
            ..leaver.go.clone()
        };
        self.model.set_state(leaver.task, gone);
        let reached = volumes::fit(self.model, leaver.task, node, false, self.policy.csi_storage).is_ok();
        self.model.rollback(mark);
        reached
    }

    /// A pod whose place depends on others still may be there, whatever became of this one.
    fn still_follows(&mut self, follower: TaskId, task: TaskId) -> bool {
        let asked = self.model.classes[self.model.tasks[follower].class].asked.as_ref();
        let about = |counter| self.model.tasks[task].counted.contains(counter);
        let Some(node) = self.model.node_of(follower) else {
            return true;
        };
        if !asked.is_some_and(|asked| asked.near.iter().chain(&asked.spread).any(about)) {
            return true;
        }
        let mark = self.model.mark();
        self.model.set_state(follower, State::nowhere(Status::Pending));
        let holds = self.stands_well(follower, node);
        self.model.rollback(mark);
        holds
    }

    /// Keeps one pod if that can be.
    fn try_alone(&mut self, sparing: &mut Sparing, at: usize) -> bool {
        if sparing.leavers[at].stays {
            return false;
        }
        let mark = self.model.mark();
        self.model
            .set_state(sparing.leavers[at].task, sparing.leavers[at].stay.clone());
        let stays = self.has_room_to_stay(sparing, at) && self.may_stay(sparing, at);
        sparing.leavers[at].stays = stays;
        if !stays {
            self.model.rollback(mark);
        }
        stays
    }

    /// Keeps those of a gang for whom there is room, if they can only stay together.
    fn try_together(&mut self, sparing: &mut Sparing, gang: usize) -> bool {
        let those: Vec<usize> = sparing.gangs[gang]
            .iter()
            .copied()
            .filter(|at| !sparing.leavers[*at].stays)
            .collect();
        if those.len() < 2 {
            return false;
        }
        let mark = self.model.mark();
        let mut staying = Vec::with_capacity(those.len());
        for at in those {
            let before = self.model.mark();
            self.model
                .set_state(sparing.leavers[at].task, sparing.leavers[at].stay.clone());
            if self.has_room_to_stay(sparing, at) {
                staying.push(at);
            } else {
                self.model.rollback(before);
            }
        }
        let together = staying.len() > 1 && staying.iter().all(|at| self.may_stay(sparing, *at));
        if !together {
            self.model.rollback(mark);
            return false;
        }
        for at in staying {
            sparing.leavers[at].stays = true;
        }
        true
    }
}
