//! One cycle's work on the model: the settings, what was found, what was decided.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::decision::{Bind, ClaimGrant, Decisions, Eviction, GroupTimes, Pipeline, Why, Work};
use crate::engine::explain::refusal::PodProblem;
use crate::engine::explain::report::Findings;
use crate::engine::fairshare::order::Rules;
use crate::engine::fairshare::sorted::SortedPodGroups;
use crate::engine::fairshare::tree::{OrderEntry, OrderTree, Pick, Purpose, View};
use crate::engine::input::{GPU, GpuKind, GroupKey, Name, PodInput, PodStatus, Time, WHOLE};
use crate::engine::model::devices::claims::Used;
use crate::engine::model::ids::{ClassId, PodGroupId, PodId, QueueId, ShapeId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::numa::{Ledger, ZoneShare};
use crate::engine::model::pod::{Assumed, Place, State, Status};
use crate::engine::model::resources::GPUS;
use crate::engine::model::{Mark, Model};
use crate::engine::placement::choose::RejectedNodes;
use crate::engine::placement::domains::DomainCapacityCache;
use crate::engine::placement::score::Scorers;
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::stage::Observer;

use super::capacity::CapacityTables;
use super::node_scratch::NodeScratch;

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

/// What a pod was before the answers of this cycle took its place.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its state then.
    pub before: State,
    /// How many others had been taken from before.
    pub(super) order: usize,
    /// How many answers of reclaim had been kept when it lost its place.
    pub(super) gains: usize,
}

/// How far victims are looked for, as far as disruption budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetReach {
    /// Those that budgets let go.
    Within,
    /// The others.
    Beyond,
}

/// Pods of a kind that fitted nowhere, while nothing was freed since.
#[derive(Debug, Default)]
pub struct UnschedulableCache {
    kinds: BTreeMap<(ClassId, ShapeId), Arc<PodProblem>>,
    since: Vec<(Mark, (ClassId, ShapeId))>,
}

impl UnschedulableCache {
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
type Kept<'a> = (
    &'a mut SortedPodGroups,
    &'a mut CapacityTables,
    &'a mut NodeScratch,
    &'a Cell<Option<PodGroupId>>,
);

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
    /// What was found, per pod group.
    pub findings: BTreeMap<PodGroupId, Findings>,
    /// Kinds of pods that fit nowhere at present.
    pub unschedulable: UnschedulableCache,
    /// Nodes that refused pods like the last one.
    pub rejected: RefCell<RejectedNodes>,
    /// Capacity counted in the domains of topologies.
    pub domain_capacity: RefCell<DomainCapacityCache>,
    /// Verdicts on evicted pods.
    pub verdicts: BTreeMap<PodId, Verdict>,
    /// What was taken in this cycle from pods that held a place.
    pub taken: BTreeMap<PodId, Taken>,
    /// For each answer of reclaim, the queues that hold more by it.
    pub gains: Vec<Vec<QueueId>>,
    /// When pod groups evicted in this cycle had been evicted before.
    pub evictions_before: BTreeMap<PodGroupId, [Option<Time>; 2]>,
    /// Pod groups with a new timestamp.
    pub timed: BTreeSet<PodGroupId>,
    /// Instants at which a preemption delay ends.
    pub wait_until: BTreeSet<Time>,
    /// How far the search under way goes, as far as disruption budgets are concerned.
    pub reach: BudgetReach,
    /// A disruption budget has kept a victim from being taken in the search under way.
    pub budgets_in_the_way: Cell<bool>,
    /// When the first of the minimum run times ends that kept a victim from being taken.
    pub protected_until: Cell<Option<Time>>,
    /// Pending pod groups and possible victims of each queue, in order.
    pub sorted: &'a mut SortedPodGroups,
    /// Free resources per node.
    pub capacity: &'a mut CapacityTables,
    /// Kinds of pods that found no place in the simulation under way: nothing becomes free in it any more.
    pub lost_kinds: Vec<(Mark, (ClassId, ShapeId))>,
    /// See [`NodeScratch`].
    pub node_scratch: &'a mut NodeScratch,
    /// Victims are searched by the reference implementation.
    #[cfg(test)]
    pub plainly: bool,
    /// What the complete search answers is compared with all sets of victims.
    #[cfg(test)]
    pub exhaustively: bool,
    /// Steps that the last resort may still take.
    pub steps_left: usize,
    /// Steps.
    pub work: Work,
    /// Is told what has been done.
    pub observer: Observer<'a>,
    /// The pod group that is being placed.
    pub placing: &'a Cell<Option<PodGroupId>>,
}

impl<'a> Session<'a> {
    /// A cycle on a prepared model.
    pub fn new(
        model: &'a mut Model,
        (sorted, capacity, node_scratch, placing): Kept<'a>,
        policy: &'a Policy,
        now: Time,
        observer: Observer<'a>,
    ) -> Self {
        let rules = Rules::of(policy);
        // The order is needed only while pods are pending.
        if !model.pending().is_empty() {
            sorted.update(model, rules, now);
        }
        capacity.begin(model);
        Self {
            rules,
            sorted,
            capacity,
            lost_kinds: Vec::new(),
            node_scratch,
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
            unschedulable: UnschedulableCache::default(),
            rejected: RefCell::default(),
            domain_capacity: RefCell::default(),
            verdicts: BTreeMap::new(),
            taken: BTreeMap::new(),
            gains: Vec::new(),
            evictions_before: BTreeMap::new(),
            timed: BTreeSet::new(),
            wait_until: BTreeSet::new(),
            reach: BudgetReach::Within,
            budgets_in_the_way: Cell::new(false),
            protected_until: Cell::new(None),
            work: Work::default(),
            observer,
            placing,
        }
    }

    /// Notes which pod group is being placed.
    pub fn begin_placing(&self, pod_group: PodGroupId) {
        self.placing.set(Some(pod_group));
        #[cfg(test)]
        crate::engine::tests::faults::panic_if_told(&self.model.pod_groups()[pod_group].key);
    }

    /// What a tree of pod groups looks at.
    #[must_use]
    pub fn view<'v>(&'v self, pick: &'v dyn Fn(PodGroupId) -> Pick) -> View<'v> {
        View {
            model: self.model,
            sorted: self.sorted,
            pick,
        }
    }

    /// A tree for pending pod groups, as deep as the policy wants an action to look. No queue has been added yet.
    #[must_use]
    pub fn pending_tree(&self, action: ActionKind) -> OrderTree {
        let tree = OrderTree::new(self.rules, Purpose::Pending);
        match self.policy.queue_depth.iter().find(|(of, _)| *of == action) {
            Some((_, most)) => tree.at_most(*most),
            None => tree,
        }
    }

    /// A pending pod group, to be pushed again.
    #[must_use]
    pub fn waiting_entry(&self, pod_group: PodGroupId) -> Option<OrderEntry> {
        let (_, order, amount) = self.sorted.waiting(pod_group)?;
        let order = order.clone();
        Some(OrderEntry {
            order,
            pod_group,
            amount,
            pods: None,
        })
    }

    /// Notes about a pod group, to be added to.
    pub fn note(&mut self, pod_group: PodGroupId) -> &mut Findings {
        self.findings.entry(pod_group).or_default()
    }

    /// Takes everything back since a mark.
    pub fn rollback(&mut self, mark: Mark) {
        self.model.rollback(mark);
        self.unschedulable.rolled_back(mark);
        while self.lost_kinds.last().is_some_and(|(found, _)| *found > mark) {
            self.lost_kinds.pop();
        }
    }

    /// Keeps everything.
    pub fn commit(&mut self) {
        self.capacity.touch(self.model.nodes_in_log());
        self.model.commit();
        self.unschedulable.committed();
        self.sorted.update(self.model, self.rules, self.now);
    }

    /// Turns what was decided into decisions, and the model's states into what is assumed from now on.
    pub fn finish(&mut self, decisions: &mut Decisions) {
        self.hold_back_parts();
        let mut seen = NodeSet::default();
        let mut decided = self.model.take_decided();
        decided.retain(|pod| seen.add(pod.at()));
        let states = decided.iter().map(|pod| self.model.pods()[*pod].state.status);
        let with = |wanted: Status| states.clone().filter(|status| *status == wanted).count();
        decisions.bind.reserve(with(Status::Allocated));
        decisions.pipeline.reserve(with(Status::Pipelined));
        decisions.evict.reserve(with(Status::Releasing));
        // All at once: each is far from the others in memory, and so they are waited for together.
        let real: Vec<bool> = decided.iter().map(|pod| self.is_real(*pod)).collect();
        let beyond = self.budgets_exceeded(&decided, &real);
        for (pod, real) in decided.into_iter().zip(real) {
            self.finish_pod(pod, real, decisions);
        }
        for eviction in &mut decisions.evict {
            eviction
                .exceeds
                .extend(beyond.get(&eviction.pod.uid).into_iter().flatten().cloned());
        }
        for &pod_group in &self.timed {
            let pod_group = &self.model.pod_groups()[pod_group];
            if let Some(input) = &pod_group.input {
                decisions.times.push(GroupTimes {
                    group: pod_group.key.clone(),
                    stale_since: input.stale_since,
                    last_start: input.last_start,
                    last_eviction: input.last_eviction,
                });
            }
        }
        decisions.times.sort_by(|left, right| left.group.cmp(&right.group));
        decisions.work = self.work;
        // Now, while few wait for an answer, so that whoever comes next need not.
        self.capacity.begin(self.model);
        self.capacity.update(self.model);
    }

    /// A pod group placed in this cycle that lost a part of it again to a later action is not bound in part: the rest waits with it.
    fn hold_back_parts(&mut self) {
        let decided = self.model.decided().iter().copied();
        let mut placed: Vec<PodId> = decided
            .filter(|pod| self.model.pods()[*pod].state.status == Status::Allocated)
            .collect();
        placed.sort_unstable();
        placed.dedup();
        let mut broken: Vec<PodGroupId> = placed
            .iter()
            .filter_map(|pod| self.model.pods()[*pod].pod_group)
            .collect();
        broken.sort_unstable();
        broken.dedup();
        broken.retain(|pod_group| !self.whole_without_plans(*pod_group));
        for pod in placed {
            let pod_group = self.model.pods()[pod].pod_group;
            if pod_group.is_some_and(|pod_group| broken.binary_search(&pod_group).is_ok()) {
                let plan = self.model.pods()[pod].state.hold.clone();
                self.model.settle(
                    pod,
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
    pub fn whole_without_plans(&self, pod_group: PodGroupId) -> bool {
        let pod_group = &self.model.pod_groups()[pod_group];
        pod_group.satisfied(
            0,
            &pod_group.per_member(|pods| pods.active() - pods.with(Status::Pipelined)),
        )
    }

    /// It was bound before this cycle, so that to take its place is to evict it.
    fn is_real(&self, id: PodId) -> bool {
        let pod = &self.model.pods()[id];
        pod.assumed == Assumed::Bound || pod.input.status != PodStatus::Pending
    }

    fn finish_pod(&mut self, id: PodId, real: bool, decisions: &mut Decisions) {
        let state = self.model.pods()[id].state.clone();
        if state.status == Status::Allocated {
            decisions.bind.extend(self.bind(id));
            self.model.binding(id);
            self.model.assume(id, Assumed::Bound);
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
            self.model.assume(id, Assumed::Evicted);
        } else {
            self.model.settle(id, State::nowhere(Status::Pending));
        }
    }

    /// The disruption budgets that pods are evicted beyond, by the pods' uids.
    fn budgets_exceeded(&self, decided: &[PodId], real: &[bool]) -> BTreeMap<Name, Vec<Name>> {
        if self.model.budgets().is_empty() {
            return BTreeMap::new();
        }
        let evicted = decided.iter().zip(real).filter(|(id, real)| {
            let state = &self.model.pods()[**id].state;
            **real && state.hold.is_some() && matches!(state.status, Status::Pipelined | Status::Releasing)
        });
        let evicted: Vec<&PodInput> = evicted.map(|(id, _)| &*self.model.pods()[*id].input).collect();
        self.model.budgets().exceeded(&evicted)
    }

    fn group_of(&self, id: PodId) -> Option<GroupKey> {
        self.model.pods()[id]
            .pod_group
            .map(|pod_group| self.model.pod_groups()[pod_group].key.clone())
    }

    fn group_names(&self, place: &Place) -> Vec<Name> {
        let node = &self.model.nodes()[place.node];
        let groups = place.extras().groups.iter();
        groups.map(|group| node.groups[*group as usize].name.clone()).collect()
    }

    fn bind(&self, id: PodId) -> Option<Bind> {
        let pod = &self.model.pods()[id];
        let place = pod.state.hold.as_ref()?;
        let (node, shape) = (&self.model.nodes()[place.node], &self.model.shapes()[pod.shape]);
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
            pod: self.model.pods()[id].input.pod.clone(),
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

    fn claim_grants(&self, id: PodId, place: &Place) -> Vec<ClaimGrant> {
        let Some(claims) = &self.model.pods()[id].input.claims else {
            return Vec::new();
        };
        let grant = |used: &Used| ClaimGrant {
            reference: used.reference.map(|at| claims.named[at as usize].reference.clone()),
            claim: self.model.devices().claims[used.claim].key.clone(),
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
        let ledger = self.model.nodes()[place.node].numa.as_ref();
        let named = |ledger: &Ledger| {
            let zone = |share: &ZoneShare| (ledger.input.zones[share.zone].name.clone(), share.amounts.clone());
            place.extras().zones.iter().map(zone).collect()
        };
        ledger.map(named).unwrap_or_default()
    }

    fn pipeline(&self, id: PodId, place: &Place) -> Option<Pipeline> {
        Some(Pipeline {
            pod: self.model.pods()[id].input.pod.clone(),
            group: self.group_of(id)?,
            node: self.model.nodes()[place.node].name.clone(),
            gpu_groups: self.group_names(place),
        })
    }

    fn eviction(&mut self, id: PodId) -> Option<Eviction> {
        let verdict = self.verdicts.remove(&id)?;
        Some(Eviction {
            pod: self.model.pods()[id].input.pod.clone(),
            group: self.group_of(id)?,
            action: verdict.action,
            for_group: verdict.for_group,
            why: verdict.why,
            exceeds: Vec::new(),
        })
    }
}
