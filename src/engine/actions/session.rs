//! One cycle's work on the model: the settings, what was found, what was decided.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::decision::{Bind, ClaimGrant, Decisions, Eviction, GroupTimes, Pipeline, Why, Work};
use crate::engine::explain::refusal::PodProblem;
use crate::engine::explain::report::Findings;
use crate::engine::fairshare::lines::Lines;
use crate::engine::fairshare::order::Rules;
use crate::engine::fairshare::tree::{Job, JobTree, Pick, Purpose, View};
use crate::engine::input::{GPU, GpuKind, GroupKey, Name, PodInput, PodStatus, Time, WHOLE};
use crate::engine::model::claims::Used;
use crate::engine::model::class::NodeSet;
use crate::engine::model::ids::{ClassId, GangId, QueueId, ShapeId, TaskId};
use crate::engine::model::numa::{Ledger, ZoneShare};
use crate::engine::model::resources::GPUS;
use crate::engine::model::task::{Assumed, Place, State, Status};
use crate::engine::model::{Mark, Model};
use crate::engine::placement::choose::Closed;
use crate::engine::placement::domains::Surveys;
use crate::engine::placement::score::Scorers;
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::stage::Onlooker;

use super::spare::Taken;
use super::victims::Reach;
use super::victims::probe::Spots;
use super::victims::room::Rooms;

/// Who evicted a pod, for whom, and what to tell.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The action.
    pub action: ActionKind,
    /// The group that gets the place.
    pub for_group: Option<GroupKey>,
    /// The reason.
    pub why: Why,
}

/// Pods of a kind that fitted nowhere, while nothing was freed since.
#[derive(Debug, Default)]
pub struct Hopeless {
    kinds: BTreeMap<(ClassId, ShapeId), Arc<PodProblem>>,
    since: Vec<(Mark, (ClassId, ShapeId))>,
}

impl Hopeless {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Forgets what was found after a mark, because it is taken back.
    fn rolled_back(&mut self, mark: Mark) {
        while let Some((found, kind)) = self.since.last().copied()
            && found > mark
        {
            self.since.pop();
            self.kinds.remove(&kind);
        }
    }

    /// What is placed now stays, so what was found holds from here on.
    fn committed(&mut self) {
        self.since.clear();
    }

    /// Remembers a kind.
    pub fn add(&mut self, mark: Mark, kind: (ClassId, ShapeId), problem: Arc<PodProblem>) {
        self.kinds.insert(kind, problem);
        self.since.push((mark, kind));
    }

    /// What was found about a kind.
    #[must_use]
    pub fn get(&self, kind: (ClassId, ShapeId)) -> Option<&Arc<PodProblem>> {
        self.kinds.get(&kind)
    }
}

/// What the engine keeps from cycle to cycle beside the model.
type Kept<'a> = (&'a mut Lines, &'a mut Rooms, &'a mut Spots, &'a Cell<Option<GangId>>);

/// A cycle under way.
pub struct Session<'a> {
    /// The cluster.
    pub model: &'a mut Model,
    /// The settings.
    pub policy: &'a Policy,
    /// Now.
    pub now: Time,
    /// Rules of order.
    pub rules: Rules,
    /// Preferences among nodes.
    pub scorers: Scorers,
    /// What was found, per gang.
    pub findings: BTreeMap<GangId, Findings>,
    /// Kinds of pods that fit nowhere at present.
    pub hopeless: Hopeless,
    /// Nodes that do not suit pods like the last one.
    pub closed: RefCell<Closed>,
    /// Room counted in the domains of topologies.
    pub surveys: RefCell<Surveys>,
    /// Verdicts on evicted pods.
    pub verdicts: BTreeMap<TaskId, Verdict>,
    /// What was taken in this cycle from pods that held a place.
    pub taken: BTreeMap<TaskId, Taken>,
    /// For each answer of reclaim, the queues that hold more by it.
    pub gains: Vec<Vec<QueueId>>,
    /// When gangs evicted in this cycle had been evicted before.
    pub evictions_before: BTreeMap<GangId, [Option<Time>; 2]>,
    /// Gangs with a new timestamp.
    pub timed: BTreeSet<GangId>,
    /// Instants at which a preemption delay ends.
    pub wait_until: BTreeSet<Time>,
    /// How far the search under way goes, as far as disruption budgets are concerned.
    pub reach: Reach,
    /// A disruption budget has kept a victim from being taken in the search under way.
    pub budgets_in_the_way: Cell<bool>,
    /// When the first of the minimum run times ends that kept a victim from being taken.
    pub protected_until: Cell<Option<Time>>,
    /// Who stands in line.
    pub lines: &'a mut Lines,
    /// How much room there is.
    pub rooms: &'a mut Rooms,
    /// Kinds of pods that found no place in the simulation under way: nothing becomes free in it any more.
    pub lost_kinds: Vec<(Mark, (ClassId, ShapeId))>,
    /// See [`Spots`].
    pub spots: &'a mut Spots,
    /// Searches go step by step, as they are defined.
    #[cfg(test)]
    pub plainly: bool,
    /// What the last resort answers is held to all sets of victims.
    #[cfg(test)]
    pub exhaustively: bool,
    /// Steps that the last resort may still take.
    pub steps_left: usize,
    /// Steps.
    pub work: Work,
    /// Is told what has been done.
    pub onlooker: Onlooker<'a>,
    /// The gang that is being served.
    pub serving: &'a Cell<Option<GangId>>,
}

impl<'a> Session<'a> {
    /// A cycle on a prepared model.
    pub fn new(
        model: &'a mut Model,
        (lines, rooms, spots, serving): Kept<'a>,
        policy: &'a Policy,
        now: Time,
        onlooker: Onlooker<'a>,
    ) -> Self {
        let rules = Rules::of(policy);
        // The lines are for those who wait.
        if !model.pending.is_empty() {
            lines.update(model, rules, now);
        }
        rooms.begin(model);
        Self {
            rules,
            lines,
            rooms,
            lost_kinds: Vec::new(),
            spots,
            #[cfg(test)]
            plainly: false,
            #[cfg(test)]
            exhaustively: false,
            steps_left: policy.plugins.complete_search_steps,
            scorers: Scorers::of(policy),
            model,
            policy,
            now,
            findings: BTreeMap::new(),
            hopeless: Hopeless::default(),
            closed: RefCell::default(),
            surveys: RefCell::default(),
            verdicts: BTreeMap::new(),
            taken: BTreeMap::new(),
            gains: Vec::new(),
            evictions_before: BTreeMap::new(),
            timed: BTreeSet::new(),
            wait_until: BTreeSet::new(),
            reach: Reach::Within,
            budgets_in_the_way: Cell::new(false),
            protected_until: Cell::new(None),
            work: Work::default(),
            onlooker,
            serving,
        }
    }

    /// A gang's turn has come.
    pub fn serve(&self, gang: GangId) {
        self.serving.set(Some(gang));
        #[cfg(test)]
        crate::engine::tests::faults::panic_if_told(&self.model.gangs[gang].key);
    }

    /// What a tree of jobs looks at.
    #[must_use]
    pub fn view<'v>(&'v self, pick: &'v dyn Fn(GangId) -> Pick) -> View<'v> {
        View {
            model: self.model,
            lines: self.lines,
            pick,
        }
    }

    /// A tree for those who wait, as deep as the policy wants an action to look. It has no lines yet.
    #[must_use]
    pub fn pending_tree(&self, action: ActionKind) -> JobTree {
        let tree = JobTree::new(self.rules, Purpose::Serve);
        match self.policy.queue_depth.iter().find(|(of, _)| *of == action) {
            Some((_, most)) => tree.at_most(*most),
            None => tree,
        }
    }

    /// A gang as it waits, to be put in line again.
    #[must_use]
    pub fn waiting_job(&self, gang: GangId) -> Option<Job> {
        let (_, order, amount) = self.lines.waiting(gang)?;
        let order = order.clone();
        Some(Job {
            order,
            gang,
            amount,
            tasks: None,
        })
    }

    /// Notes about a gang, to be added to.
    pub fn note(&mut self, gang: GangId) -> &mut Findings {
        self.findings.entry(gang).or_default()
    }

    /// Takes everything back since a mark.
    pub fn rollback(&mut self, mark: Mark) {
        self.model.rollback(mark);
        self.hopeless.rolled_back(mark);
        while self.lost_kinds.last().is_some_and(|(found, _)| *found > mark) {
            self.lost_kinds.pop();
        }
    }

    /// Keeps everything.
    pub fn commit(&mut self) {
        self.rooms.touch(self.model.nodes_in_log());
        self.model.commit();
        self.hopeless.committed();
        self.lines.update(self.model, self.rules, self.now);
    }

    /// Turns what was decided into decisions, and the model's states into what is assumed from now on.
    pub fn finish(&mut self, decisions: &mut Decisions) {
        self.hold_back_parts();
        let mut seen = NodeSet::default();
        let mut decided = std::mem::take(&mut self.model.decided);
        decided.retain(|task| seen.add(task.at()));
        let states = decided.iter().map(|task| self.model.tasks[*task].state.status);
        let with = |wanted: Status| states.clone().filter(|status| *status == wanted).count();
        decisions.bind.reserve(with(Status::Allocated));
        decisions.pipeline.reserve(with(Status::Pipelined));
        decisions.evict.reserve(with(Status::Releasing));
        // All at once: each is far from the others in memory, and so they are waited for together.
        let real: Vec<bool> = decided.iter().map(|task| self.is_real(*task)).collect();
        let beyond = self.budgets_exceeded(&decided, &real);
        for (task, real) in decided.into_iter().zip(real) {
            self.finish_task(task, real, decisions);
        }
        for eviction in &mut decisions.evict {
            eviction
                .exceeds
                .extend(beyond.get(&eviction.pod.uid).into_iter().flatten().cloned());
        }
        for &gang in &self.timed {
            let gang = &self.model.gangs[gang];
            if let Some(input) = &gang.input {
                decisions.times.push(GroupTimes {
                    group: gang.key.clone(),
                    stale_since: input.stale_since,
                    last_start: input.last_start,
                    last_eviction: input.last_eviction,
                });
            }
        }
        decisions.times.sort_by(|left, right| left.group.cmp(&right.group));
        decisions.work = self.work;
        // Now, while few wait for an answer, so that whoever comes next need not.
        self.rooms.begin(self.model);
        self.rooms.update(self.model);
    }

    /// A gang placed in this cycle that lost a part of it again to a later action is not bound in part: the rest waits with it.
    fn hold_back_parts(&mut self) {
        let decided = self.model.decided.iter().copied();
        let mut placed: Vec<TaskId> = decided
            .filter(|task| self.model.tasks[*task].state.status == Status::Allocated)
            .collect();
        placed.sort_unstable();
        placed.dedup();
        let mut broken: Vec<GangId> = placed.iter().filter_map(|task| self.model.tasks[*task].gang).collect();
        broken.sort_unstable();
        broken.dedup();
        broken.retain(|gang| !self.whole_without_plans(*gang));
        for task in placed {
            let gang = self.model.tasks[task].gang;
            if gang.is_some_and(|gang| broken.binary_search(&gang).is_ok()) {
                let plan = self.model.tasks[task].state.hold.clone();
                self.model.settle(
                    task,
                    State {
                        plan,
                        ..State::nowhere(Status::Pipelined)
                    },
                );
            }
        }
    }

    /// Its minimum is met by pods that do not wait for a place.
    #[must_use]
    pub fn whole_without_plans(&self, gang: GangId) -> bool {
        let gang = &self.model.gangs[gang];
        gang.satisfied(0, &gang.per_member(|pods| pods.active() - pods.with(Status::Pipelined)))
    }

    /// It was bound before this cycle, so that to take its place is to evict it.
    fn is_real(&self, id: TaskId) -> bool {
        let task = &self.model.tasks[id];
        task.assumed == Assumed::Bound || task.input.status != PodStatus::Pending
    }

    fn finish_task(&mut self, id: TaskId, real: bool, decisions: &mut Decisions) {
        let state = self.model.tasks[id].state.clone();
        if state.status == Status::Allocated {
            decisions.bind.extend(self.bind(id));
            self.model.binding(id);
            self.model.tasks[id].assumed = Assumed::Bound;
            return;
        }
        if let Some(place) = state.plan.as_ref().filter(|_| state.status == Status::Pipelined) {
            decisions.pipeline.extend(self.pipeline(id, place));
        }
        if !matches!(state.status, Status::Pipelined | Status::Releasing) {
            return;
        }
        if state.hold.is_some() && real {
            decisions.evict.extend(self.eviction(id));
            self.model.settle(
                id,
                State {
                    status: Status::Releasing,
                    plan: None,
                    ..state
                },
            );
            self.model.tasks[id].assumed = Assumed::Evicted;
        } else {
            self.model.settle(id, State::nowhere(Status::Pending));
        }
    }

    /// The disruption budgets that pods are evicted beyond, by the pods' uids.
    fn budgets_exceeded(&self, decided: &[TaskId], real: &[bool]) -> BTreeMap<Name, Vec<Name>> {
        if self.model.budgets.is_empty() {
            return BTreeMap::new();
        }
        let evicted = decided.iter().zip(real).filter(|(id, real)| {
            let state = &self.model.tasks[**id].state;
            **real && state.hold.is_some() && matches!(state.status, Status::Pipelined | Status::Releasing)
        });
        let evicted: Vec<&PodInput> = evicted.map(|(id, _)| &*self.model.tasks[*id].input).collect();
        self.model.budgets.exceeded(&evicted)
    }

    fn group_of(&self, id: TaskId) -> Option<GroupKey> {
        self.model.tasks[id].gang.map(|gang| self.model.gangs[gang].key.clone())
    }

    fn group_names(&self, place: &Place) -> Vec<Name> {
        let node = &self.model.nodes[place.node];
        let groups = place.extras().groups.iter();
        groups.map(|group| node.groups[*group as usize].name.clone()).collect()
    }

    fn bind(&self, id: TaskId) -> Option<Bind> {
        let task = &self.model.tasks[id];
        let place = task.state.hold.as_ref()?;
        let (node, shape) = (&self.model.nodes[place.node], &self.model.shapes[task.shape]);
        let (received, gpu_count, gpu_portion) = match shape.gpu.kind {
            GpuKind::Fraction | GpuKind::Memory => (
                GpuKind::Fraction,
                shape.gpu.count,
                shape.device_portion(node.gpu_memory()),
            ),
            GpuKind::Mig => (GpuKind::Mig, 0, 0),
            GpuKind::Regular => {
                let count = (shape.vector.get(GPUS) - shape.gpu.dra * GPU) / GPU;
                (GpuKind::Regular, count, if count > 0 { WHOLE } else { 0 })
            }
        };
        Some(Bind {
            pod: self.model.tasks[id].input.pod.clone(),
            group: self.group_of(id)?,
            node: node.name.clone(),
            received,
            gpu_count,
            gpu_portion,
            gpu_groups: self.group_names(place),
            zones: self.zone_names(place),
            volumes: place
                .extras()
                .volumes
                .iter()
                .flat_map(|all| all.iter())
                .cloned()
                .collect(),
            claims: self.claim_grants(id, place),
        })
    }

    fn claim_grants(&self, id: TaskId, place: &Place) -> Vec<ClaimGrant> {
        let Some(claims) = &self.model.tasks[id].input.claims else {
            return Vec::new();
        };
        let grant = |used: &Used| ClaimGrant {
            reference: used.reference.map(|at| claims.named[at as usize].reference.clone()),
            claim: self.model.devices.claims[used.claim].key.clone(),
            allocation: used.allocation.given.clone(),
        };
        place
            .extras()
            .devices
            .iter()
            .flat_map(|used| &**used)
            .map(grant)
            .collect()
    }

    fn zone_names(&self, place: &Place) -> Vec<(Name, Vec<(Name, i64)>)> {
        let ledger = self.model.nodes[place.node].numa.as_ref();
        let named = |ledger: &Ledger| {
            let zone = |share: &ZoneShare| (ledger.input.zones[share.zone].name.clone(), share.amounts.clone());
            place.extras().zones.iter().map(zone).collect()
        };
        ledger.map(named).unwrap_or_default()
    }

    fn pipeline(&self, id: TaskId, place: &Place) -> Option<Pipeline> {
        Some(Pipeline {
            pod: self.model.tasks[id].input.pod.clone(),
            group: self.group_of(id)?,
            node: self.model.nodes[place.node].name.clone(),
            gpu_groups: self.group_names(place),
        })
    }

    fn eviction(&mut self, id: TaskId) -> Option<Eviction> {
        let verdict = self.verdicts.remove(&id)?;
        Some(Eviction {
            pod: self.model.tasks[id].input.pod.clone(),
            group: self.group_of(id)?,
            action: verdict.action,
            for_group: verdict.for_group,
            why: verdict.why,
            exceeds: Vec::new(),
        })
    }
}
