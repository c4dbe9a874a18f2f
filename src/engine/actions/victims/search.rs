//! The state of one search: its preemptor, the order of its victims, and the checks before the first simulation.

use smallvec::SmallVec;

use crate::engine::actions::capacity::CapacityTables;
use crate::engine::actions::capacity::Kind;
use crate::engine::actions::context::CycleContext;
use crate::engine::actions::cycle::Cycle;
use crate::engine::actions::cycle_log::CycleLog;
use crate::engine::actions::node_scratch::NodeScratch;
use crate::engine::actions::place::{PlacementCaches, Placer};
use crate::engine::actions::turns;
use crate::engine::decision::LOOKS_PER_TEST;
use crate::engine::fairshare::order::Rules;
use crate::engine::fairshare::reclaim::most_taken;
use crate::engine::fairshare::sorted::{SortedPodGroups, active_of, evictable, next_victims, requests};
use crate::engine::fairshare::tree::{OrderEntry, OrderTree, Pick, Purpose, View};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::input::Time;
use crate::engine::model::ids::{PodGroupId, QueueId};
use crate::engine::model::pod_group::PodIds;
use crate::engine::model::resources::Shared;
use crate::engine::model::{Mark, Model};
use crate::engine::placement::rules::refresh_class;
use crate::engine::stage::Observer;

use super::bounds::asked_gpus;
use super::judge::{BudgetReach, Judge, Objection};
use super::rules::EvictingAction;
use super::{Batch, Candidate, Case, Tried, lost};

/// A search for one preemptor.
pub struct SearchState {
    /// Its input.
    pub case: Case,
    /// Candidates that failed.
    pub failed: Tried,
    /// Some pod requests no GPU, so nodes without free GPUs are candidates too.
    pub anywhere: bool,
    /// The victims, in the order in which they are gathered.
    pub sequence: Sequence,
    /// Positions of the capacity tables for the kinds of its pods.
    pub kinds: SmallVec<[usize; 2]>,
    /// For each pod, the position of its kind's table.
    pub kind_of: SmallVec<[usize; 4]>,
    /// Position of the capacity table for the pods' GPUs, if all request the same number and not 0.
    pub even: Option<usize>,
}

/// Victims, the worst first: worst queue, worst pod group in it, its next pods to evict. Gathered as far as needed.
pub struct Sequence {
    /// Victims so far.
    pub batches: Vec<Batch>,
    rest: OrderTree,
    reach: BudgetReach,
    /// The queues from which they are taken, by position.
    donors: Vec<bool>,
    most: usize,
    pod_groups: Vec<PodGroupId>,
}

/// Why victims were not acceptable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Objections {
    /// A disruption budget did.
    pub budget: bool,
    /// Minimum run times did; the first of them ends then.
    pub protected_until: Option<Time>,
}

impl Objections {
    /// Adds an objection.
    pub fn note(&mut self, objection: Objection) {
        match objection {
            Objection::Budget => self.budget = true,
            Objection::ProtectedUntil(until) => {
                self.protected_until = Some(self.protected_until.map_or(until, |first| first.min(until)));
            }
            Objection::Priority | Objection::Other => {}
        }
    }
}

/// Searches victims for one pod group.
pub struct VictimSearch<'a> {
    /// The cluster.
    pub model: &'a mut Model,
    /// The settings and the time.
    pub context: CycleContext<'a>,
    /// Pending pod groups and possible victims of each queue, in order.
    pub sorted: &'a SortedPodGroups,
    /// Free resources per node.
    pub capacity: &'a mut CapacityTables,
    /// See [`NodeScratch`].
    pub node_scratch: &'a mut NodeScratch,
    /// Results of placement attempts that are still valid.
    pub caches: &'a mut PlacementCaches,
    /// Where steps are counted.
    pub log: &'a mut CycleLog,
    /// Steps that the complete search may still take.
    pub steps_left: &'a mut usize,
    /// Is called after each search.
    pub observer: Observer<'a>,
    /// Whether victims are looked for within disruption budgets or beyond them.
    pub reach: BudgetReach,
    /// Why victims were not acceptable so far.
    pub objections: Objections,
    /// The steps of the cycle when the search began.
    begun: u64,
}

impl<'a> VictimSearch<'a> {
    /// A search within disruption budgets.
    pub fn new(cycle: &'a mut Cycle) -> Self {
        cycle.kept.sorted.update_victims(cycle.model);
        Self {
            begun: turns::steps(&cycle.log),
            model: cycle.model,
            context: cycle.context,
            sorted: &cycle.kept.sorted,
            capacity: &mut cycle.kept.capacity,
            node_scratch: &mut cycle.kept.node_scratch,
            caches: &mut cycle.caches,
            log: &mut cycle.log,
            steps_left: &mut cycle.steps_left,
            observer: cycle.observer,
            reach: BudgetReach::Within,
            objections: Objections::default(),
        }
    }

    /// Whether it has taken too many steps, and ends without a result.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        turns::exceeds_limit(turns::steps(self.log) - self.begun, self.context.policy)
    }

    /// Counts steps without a test of a node or a simulation.
    pub(super) fn count_steps(&mut self, steps: usize) {
        self.log.search_steps += steps as u64;
    }

    /// A placer on the same state.
    pub fn placer(&mut self) -> Placer<'_> {
        Placer {
            model: self.model,
            context: self.context,
            caches: self.caches,
            log: self.log,
        }
    }

    /// The rules for victims.
    #[must_use]
    pub fn judge(&self) -> Judge<'_> {
        Judge {
            model: self.model,
            context: self.context,
        }
    }

    /// Rolls back all changes since a mark.
    pub fn rollback(&mut self, mark: Mark) {
        self.model.rollback(mark);
        self.caches.rolled_back(mark);
    }

    /// The batches that lost a pod.
    pub(super) fn needed(&self, candidate: Candidate) -> Vec<Batch> {
        let lost = |batch: &Batch| batch.pods.iter().any(|pod| lost(self.model, *pod));
        candidate.batches.into_iter().filter(lost).collect()
    }

    /// Succeeds if the pod group meets its minimum and has more active pods than before; else rolls back.
    pub(super) fn complete(&mut self, case: &Case, before: usize, mark: Mark) -> Option<Mark> {
        let pod_group = &self.model.pod_groups()[case.pod_group];
        if pod_group.satisfied(0, &pod_group.active()) && self.active_used(case.pod_group) > before {
            return Some(mark);
        }
        self.rollback(mark);
        None
    }

    pub(in crate::engine) fn active_used(&self, pod_group: PodGroupId) -> usize {
        self.model.pod_groups()[pod_group]
            .pod_sets()
            .map(|(_, pods)| pods.active_used())
            .sum()
    }

    /// Prepares a search; `None` if there is no victim, or if no set of victims can help.
    pub fn begin(&mut self, case: Case) -> Option<SearchState> {
        let Case {
            action,
            pod_group,
            queue,
            ..
        } = case;
        let chunk = &case.chunk;
        let entry = wanted(self.model, chunk, smallest_gpu(self.model));
        let donors = self.donors(action, queue, &entry);
        self.capacity.update(self.model);
        if action.is_between_queues() && self.beyond_reach(&case, &entry, &donors) {
            return None;
        }
        let sequence = self.sequence(&case, donors)?;
        self.capacity.drop_if_many();
        let tables = self.capacity.tables();
        let mut kinds = SmallVec::new();
        let mut kind_of = SmallVec::with_capacity(chunk.len());
        let mut anywhere = false;
        let mut sizes: SmallVec<[i64; 2]> = SmallVec::new();
        for &id in chunk {
            let pod = &self.model.pods()[id];
            let (class, shape) = (pod.class, pod.shape);
            refresh_class(self.model, class);
            let table = self.capacity.table(self.model, Kind::Pods(class, shape));
            if !kinds.contains(&table) {
                kinds.push(table);
                sizes.push(asked_gpus(self.model, id));
            }
            kind_of.push(table);
        }
        for pod in &self.model.pod_groups()[pod_group].pods {
            anywhere |= self.model.shapes()[self.model.pods()[*pod].shape].cpu_only;
        }
        sizes.dedup();
        let even = match *sizes {
            [size] if size > 0 => Some(self.capacity.table(self.model, Kind::Gpus(size))),
            _ => None,
        };
        let filled = self.capacity.tables() - tables;
        self.count_steps(filled * self.model.by_name().len() / LOOKS_PER_TEST);
        Some(SearchState {
            case,
            failed: Tried::default(),
            anywhere,
            sequence,
            kinds,
            kind_of,
            even,
        })
    }

    /// Whether all victims that the rules of reclaim allow together free too few GPUs.
    fn beyond_reach(&self, case: &Case, claim: &Shared, donors: &[bool]) -> bool {
        let asked: i64 = case.chunk.iter().map(|pod| asked_gpus(self.model, *pod)).sum();
        let lacking = asked - self.capacity.sum;
        if lacking <= 0 {
            return false;
        }
        let donates = |queue: QueueId| donors.get(queue.at()).copied().unwrap_or(false);
        most_taken(self.model, self.sorted, case.queue, claim, donates).is_some_and(|most| most < lacking)
    }

    /// The queues from which victims may be taken, by position.
    fn donors(&self, action: EvictingAction, queue: QueueId, entry: &Shared) -> Vec<bool> {
        let mut donors = vec![false; self.model.queues().slots()];
        for (theirs, line) in self.sorted.queues() {
            donors[theirs.at()] = !line.victims.is_empty() && action.takes_from(self.model, queue, theirs, entry);
        }
        donors
    }

    /// The sequence of possible victims, the worst first; `None` if there are none.
    fn sequence(&mut self, case: &Case, donors: Vec<bool>) -> Option<Sequence> {
        let mut sequence = Sequence {
            batches: Vec::new(),
            rest: OrderTree::new(self.context.rules, Purpose::Victims),
            reach: BudgetReach::Within,
            donors,
            most: case.action.most_victims(self.context.policy),
            pod_groups: Vec::new(),
        };
        self.line_up_victims(case, &mut sequence, BudgetReach::Within);
        self.next_batch(case, &mut sequence).then_some(sequence)
    }

    /// Builds the order tree from which victims are gathered.
    fn line_up_victims(&mut self, case: &Case, sequence: &mut Sequence, reach: BudgetReach) {
        sequence.reach = reach;
        sequence.rest = OrderTree::new(self.context.rules, Purpose::Victims);
        let judge = Judge {
            model: self.model,
            context: self.context,
        };
        let mut pick = |victim| pick_victim(judge, case, victim, reach, &mut self.objections);
        let donors = &sequence.donors;
        let mut view = View::of(judge.model, self.sorted, &mut pick);
        sequence.rest.add_queues(&mut view, |theirs| donors[theirs.at()]);
        self.log.search_steps += sequence.rest.steps();
    }

    /// Gathers the next batch; batches that exceed disruption budgets come last. False if there are none left.
    fn next_batch(&mut self, case: &Case, sequence: &mut Sequence) -> bool {
        if sequence.reach == BudgetReach::Within && self.step(case, sequence) {
            return true;
        }
        if self.reach == BudgetReach::Within {
            return false;
        }
        if sequence.reach == BudgetReach::Within {
            self.line_up_victims(case, sequence, BudgetReach::Beyond);
        }
        self.step(case, sequence)
    }

    /// Gathers the next batch within the sequence's present reach.
    fn step(&mut self, case: &Case, sequence: &mut Sequence) -> bool {
        let (judge, reach) = (
            Judge {
                model: self.model,
                context: self.context,
            },
            sequence.reach,
        );
        let mut pick = |victim| pick_victim(judge, case, victim, reach, &mut self.objections);
        let mut view = View::of(judge.model, self.sorted, &mut pick);
        let before = sequence.rest.steps();
        let found = sequence.step(&mut view, self.context.rules);
        self.log.search_steps += sequence.rest.steps() - before;
        found
    }

    /// Makes sure that a search's sequence has a batch at a position; false if there are not so many.
    pub fn gathered(&mut self, search: &mut SearchState, at: usize) -> bool {
        while search.sequence.batches.len() <= at {
            if !self.next_batch(&search.case, &mut search.sequence) {
                return false;
            }
        }
        true
    }
}

/// Whether a pod group may be a victim; objections are recorded.
fn pick_victim(judge: Judge, case: &Case, victim: PodGroupId, reach: BudgetReach, objections: &mut Objections) -> Pick {
    match judge.eligible(case, victim, reach) {
        Ok(()) => Pick::Take,
        // Victims are in order of priority: those that follow have no less.
        Err(Objection::Priority) if judge.context.rules.priority => Pick::End,
        Err(objection) => {
            objections.note(objection);
            Pick::Pass
        }
    }
}

impl Sequence {
    /// Gathers the next batch. False if there are none left.
    fn step(&mut self, view: &mut View, rules: Rules) -> bool {
        let model = view.model;
        loop {
            let Some(entry) = self.rest.pop(view) else { return false };
            let pod_group = &model.pod_groups()[entry.pod_group];
            if entry.pods.is_none() {
                if self.pod_groups.len() >= self.most {
                    continue;
                }
                if self.most < usize::MAX {
                    self.pod_groups.push(entry.pod_group);
                }
            }
            let mut pods = entry.pods.unwrap_or_else(|| evictable(model, pod_group).collect());
            let chunk = next_victims(model, pod_group, &pods);
            if chunk.len() < pods.len() {
                match *chunk {
                    [only] if pods.last() == Some(&only) => drop(pods.pop()),
                    _ => pods.retain(|pod| !chunk.contains(pod)),
                }
                self.rest.push(view, victim_entry(model, rules, entry.pod_group, pods));
            }
            if !chunk.is_empty() {
                self.batches.push(Batch {
                    pod_group: entry.pod_group,
                    pods: chunk,
                });
                return true;
            }
        }
    }
}

fn victim_entry(model: &Model, rules: Rules, pod_group: PodGroupId, pods: PodIds) -> OrderEntry {
    let entry = &model.pod_groups()[pod_group];
    let stage = entry.stage(&active_of(model, entry, &pods));
    OrderEntry {
        order: rules.pod_group(entry, stage),
        pod_group,
        amount: requests(model, &next_victims(model, entry, &pods)),
        pods: Some(pods),
    }
}
