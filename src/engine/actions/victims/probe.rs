//! One probe: the first victims with which the first pods of a gang find places.
//!
//! Victims are gathered one batch after the other. After each, the generator makes candidates of what was gathered; the first that works wins. Counters
//! that change with each batch say what would fit at best, so states and candidates that cannot work are passed over, and only the others are simulated.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::engine::actions::session::Session;
use crate::engine::model::Mark;
use crate::engine::model::gang::Tasks;
use crate::engine::model::ids::{GangId, NodeId, TaskId};
use crate::engine::model::resources::GPUS;
use crate::engine::policy::VictimGenerator;

use super::bounds::{asked_gpus, first_fit};
use super::room::{Room, freed_by, grow};
use super::search::Search;
use super::{Batch, Candidate, node_of};

/// Victims of one probe, gathered so far.
struct Gathered {
    count: usize,
    /// Positions in the search's sequence.
    potential: SmallVec<[usize; 4]>,
    spots: Spots,
    /// Nodes with potential victims, as they came.
    holding: SmallVec<[NodeId; 4]>,
    /// Nodes with recorded victims.
    recorded_on: SmallVec<[NodeId; 4]>,
    /// Gangs with potential victims on several nodes.
    wide: BTreeSet<GangId>,
    tests: SmallVec<[Test; 2]>,
    /// The test that every state must pass, see [`Session::passes`].
    even: Option<Test>,
    needs: SmallVec<[i64; 4]>,
    /// Classes with a selector or affinity that no node among those in question meets yet.
    unmet: Vec<TaskId>,
}

/// What victims free on a node.
#[derive(Clone, Debug, Default)]
pub struct Spot {
    recorded: Room,
    freed: Room,
    /// Positions of the potential batches with a pod here.
    batches: Vec<usize>,
}

/// One per node; lent to a probe and handed back blank, so that a probe costs what it touches.
pub type Spots = Vec<Spot>;

/// A necessary condition: so many pods of a kind must fit.
#[derive(Clone, Copy)]
struct Test {
    table: usize,
    needed: i64,
    /// Pods that fit with the recorded victims gone.
    with_recorded: i64,
    /// Pods that fit with all victims gone.
    with_all: i64,
}

impl Gathered {
    fn at(&self, node: NodeId) -> &Spot {
        &self.spots[node.at()]
    }

    fn at_mut(&mut self, node: NodeId) -> &mut Spot {
        &mut self.spots[node.at()]
    }

    fn both(&self, node: NodeId) -> Room {
        let mut both = self.at(node).recorded;
        grow(&mut both, &self.at(node).freed);
        both
    }

    /// Everything touched is blank again.
    fn hand_back(mut self) -> Spots {
        for node in self.holding.iter().chain(&self.recorded_on) {
            let spot = &mut self.spots[node.at()];
            spot.recorded = [0; 4];
            spot.freed = [0; 4];
            spot.batches.clear();
        }
        self.spots
    }

    fn tests_mut(&mut self) -> impl Iterator<Item = &mut Test> {
        self.tests.iter_mut().chain(&mut self.even)
    }
}

impl Session<'_> {
    /// Tries to place the first `count` pods. On success the changes stay in the model from the mark on. Answers with the batches that were tried.
    pub fn probe(
        &mut self,
        search: &mut Search,
        generator: VictimGenerator,
        count: usize,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        let mut gathered = self.gathered_for(search, count, recorded);
        let found = self.gather_until(search, generator, &mut gathered, recorded);
        *self.spots = gathered.hand_back();
        found
    }

    fn gather_until(
        &mut self,
        search: &mut Search,
        generator: VictimGenerator,
        gathered: &mut Gathered,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        let taken: BTreeSet<TaskId> = recorded.iter().flat_map(|batch| batch.tasks.iter().copied()).collect();
        let mut at = 0;
        loop {
            if gathered.tests.iter().all(|test| test.with_all >= test.needed) && self.passes(gathered) {
                let found = match generator {
                    VictimGenerator::NodeLocalGreedy => self.empty_one_node(search, gathered, recorded),
                    VictimGenerator::MultiNodeGang => self.empty_several_nodes(search, gathered, recorded),
                };
                if found.is_some() {
                    return found;
                }
            }
            loop {
                if !self.gathered(search, at) {
                    return None;
                }
                at += 1;
                let batch = &search.sequence.batches[at - 1];
                if !batch.tasks.iter().any(|task| taken.contains(task)) {
                    break;
                }
            }
            self.add_batch(search, gathered, at - 1);
        }
    }

    fn gathered_for(&mut self, search: &Search, count: usize, recorded: &[Batch]) -> Gathered {
        let mut spots = std::mem::take(self.spots);
        spots.resize(self.model.nodes.slots(), Spot::default());
        let of_kind = |table: usize| search.kind_of[..count].iter().filter(|kind| **kind == table).count() as i64;
        let test = |table: usize, needed: i64| Test {
            table,
            needed,
            with_recorded: self.rooms.fitting(table),
            with_all: 0,
        };
        let needs = search.case.chunk[..count]
            .iter()
            .map(|task| asked_gpus(self.model, *task));
        let mut gathered = Gathered {
            count,
            potential: SmallVec::new(),
            spots,
            holding: SmallVec::new(),
            recorded_on: SmallVec::new(),
            wide: BTreeSet::new(),
            tests: search.kinds.iter().map(|table| test(*table, of_kind(*table))).collect(),
            even: search.even.map(|table| test(table, count as i64)),
            needs: needs.collect(),
            unmet: Vec::new(),
        };
        for &task in recorded.iter().flat_map(|batch| &batch.tasks) {
            if let Some(node) = node_of(self.model, task) {
                if gathered.at(node).recorded == [0; 4] {
                    gathered.recorded_on.push(node);
                }
                grow(&mut gathered.at_mut(node).recorded, &freed_by(self.model, task));
            }
        }
        let nodes = std::mem::take(&mut gathered.recorded_on);
        for &node in &nodes {
            let freed = gathered.at(node).recorded;
            for test in gathered.tests_mut() {
                test.with_recorded += self.rooms.gain(self.model, test.table, node, &freed);
            }
        }
        gathered.recorded_on = nodes;
        for test in gathered.tests_mut() {
            test.with_all = test.with_recorded;
        }
        gathered.unmet = self.unmet_selectors(search, &gathered);
        gathered
    }

    /// Pods whose node selector or affinity no node in question meets; one of each class.
    fn unmet_selectors(&self, search: &Search, gathered: &Gathered) -> Vec<TaskId> {
        let mut unmet: Vec<TaskId> = Vec::new();
        let class = |task: TaskId| self.model.tasks[task].class;
        for &task in &search.case.chunk[..gathered.count] {
            let constraints = &self.model.classes[class(task)].constraints;
            let free = constraints.selector.is_empty() && constraints.required.is_none();
            if free || unmet.iter().any(|other| class(*other) == class(task)) {
                continue;
            }
            let mut nodes = self.model.by_name.iter();
            let in_question = |node: NodeId| {
                search.anywhere || self.rooms.some.has(node.at()) || gathered.recorded_on.contains(&node)
            };
            if !nodes.any(|node| in_question(*node) && constraints.selects(&self.model.nodes[*node])) {
                unmet.push(task);
            }
        }
        unmet
    }

    fn add_batch(&self, search: &Search, gathered: &mut Gathered, at: usize) {
        let batch = &search.sequence.batches[at];
        gathered.potential.push(at);
        for &task in &batch.tasks {
            let Some(node) = node_of(self.model, task) else {
                continue;
            };
            if gathered.at(node).batches.is_empty() {
                gathered.holding.push(node);
                let selects = |task: &TaskId| {
                    let class = self.model.tasks[*task].class;
                    self.model.classes[class].constraints.selects(&self.model.nodes[node])
                };
                gathered.unmet.retain(|task| !selects(task));
            }
            if gathered.at(node).batches.last() != Some(&at) {
                gathered.at_mut(node).batches.push(at);
            }
            let before = gathered.both(node);
            grow(&mut gathered.at_mut(node).freed, &freed_by(self.model, task));
            let after = gathered.both(node);
            for test in gathered.tests.iter_mut().chain(&mut gathered.even) {
                let gain = |freed| self.rooms.gain(self.model, test.table, node, freed);
                test.with_all += gain(&after) - gain(&before);
            }
        }
        let mut nodes = search.sequence.batches[at]
            .tasks
            .iter()
            .map(|task| node_of(self.model, *task));
        let first = nodes.next().flatten();
        if nodes.any(|node| node != first) || self.spread_over_nodes(search, gathered, batch.gang) {
            gathered.wide.insert(batch.gang);
        }
    }

    /// A gang with several batches may have them on several nodes.
    fn spread_over_nodes(&self, search: &Search, gathered: &Gathered, gang: GangId) -> bool {
        let gangs_tasks = &self.model.gangs[gang].tasks;
        if gangs_tasks.len() == 1 {
            return false;
        }
        let theirs = gathered.potential.iter().map(|at| &search.sequence.batches[*at]);
        let mut tasks = theirs.filter(|batch| batch.gang == gang).flat_map(|batch| &batch.tasks);
        let first = tasks.next().and_then(|task| node_of(self.model, *task));
        tasks.any(|task| node_of(self.model, *task) != first)
    }

    /// Whether the pods could find room with all victims so far gone, if only GPUs and node affinity counted.
    fn passes(&self, gathered: &Gathered) -> bool {
        if !gathered.unmet.is_empty() {
            return false;
        }
        if let Some(test) = &gathered.even {
            return test.with_all >= test.needed;
        }
        gathered.needs.iter().all(|need| *need <= 0) || {
            let free = |node: &NodeId| self.rooms.of(*node)[GPUS] + gathered.both(*node)[GPUS];
            first_fit(&gathered.needs, self.model.by_name.iter().map(free).collect())
        }
    }

    /// Candidates that empty one node of the victims gathered, each gang whole.
    fn empty_one_node(
        &mut self,
        search: &mut Search,
        gathered: &Gathered,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        let Some(&last) = gathered.potential.last() else {
            if recorded.is_empty() {
                return None;
            }
            let candidate = Candidate {
                batches: recorded.to_vec(),
            };
            return self.attempt(search, gathered.count, candidate);
        };
        let gang = search.sequence.batches[last].gang;
        let tasks = &self.model.gangs[gang].tasks;
        let mut nodes: SmallVec<[NodeId; 4]> = tasks.iter().filter_map(|task| node_of(self.model, *task)).collect();
        if nodes.len() > 1 {
            nodes.sort_by_key(|node| self.model.nodes[*node].rank);
            nodes.dedup();
        }
        for node in nodes {
            let here = &gathered.at(node).batches;
            if here.is_empty() {
                continue;
            }
            let mut gangs: SmallVec<[GangId; 8]> = SmallVec::with_capacity(here.len());
            for &at in here {
                let gang = search.sequence.batches[at].gang;
                if !gangs.contains(&gang) {
                    gangs.push(gang);
                }
            }
            let all_here = gathered.wide.is_empty() || gangs.iter().all(|gang| !gathered.wide.contains(gang));
            if all_here && !self.enough_on(gathered, &[node]) {
                continue;
            }
            let potential = if all_here { &**here } else { &*gathered.potential };
            let candidate = whole_gangs(search, potential, recorded, &gangs);
            if let Some(found) = self.attempt(search, gathered.count, candidate) {
                return Some(found);
            }
        }
        None
    }

    /// What would fit with the recorded victims gone, and all others on these nodes.
    fn enough_on(&self, gathered: &Gathered, nodes: &[NodeId]) -> bool {
        gathered.tests.iter().all(|test| {
            let gain = |room: &Room, node: NodeId| self.rooms.gain(self.model, test.table, node, room);
            let more = nodes
                .iter()
                .map(|&node| gain(&gathered.both(node), node) - gain(&gathered.at(node).recorded, node));
            test.with_recorded + more.sum::<i64>() >= test.needed
        })
    }

    /// Candidates that empty the smallest nodes that suffice, then more.
    fn empty_several_nodes(
        &mut self,
        search: &mut Search,
        gathered: &Gathered,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        if gathered.potential.is_empty() {
            let candidate = Candidate {
                batches: recorded.to_vec(),
            };
            return self.attempt(search, gathered.count, candidate);
        }
        let free = |node: NodeId| self.rooms.of(node)[GPUS] + gathered.at(node).recorded[GPUS];
        let capacity = |node: NodeId| free(node) + gathered.at(node).freed[GPUS];
        let open = |node: NodeId| search.anywhere || self.rooms.some.has(node.at());
        let everything = if search.anywhere {
            self.model.by_name.iter().map(|node| self.rooms.of(*node)[GPUS]).sum()
        } else {
            self.rooms.sum
        };
        let counted = |node: &NodeId| open(*node) || gathered.at(*node).recorded != [0; 4];
        let by_recorded = gathered.recorded_on.iter().map(|node| {
            let own = gathered.at(*node).recorded[GPUS];
            if open(*node) { own } else { free(*node) }
        });
        let held = gathered
            .holding
            .iter()
            .filter(|node| counted(node))
            .map(|node| free(*node));
        let baseline: i64 = everything + by_recorded.sum::<i64>() - held.sum::<i64>();
        let smallest = gathered.needs.iter().copied().min().unwrap_or(0);
        let demand: i64 = gathered.needs.iter().sum();
        let mut nodes: Vec<(i64, NodeId)> = gathered.holding.iter().map(|node| (capacity(*node), *node)).collect();
        nodes.retain(|(capacity, _)| smallest <= 0 || *capacity >= smallest);
        nodes.sort_by_key(|(capacity, _)| *capacity);
        let remaining = (demand - baseline).max(0);
        let (mut sum, mut least) = (0, 0);
        while sum < remaining {
            sum += nodes.get(least)?.0;
            least += 1;
        }
        let nodes: Vec<NodeId> = nodes.into_iter().map(|(_, node)| node).collect();
        let mut lengths = vec![least];
        let mut more = 1;
        while least + more < nodes.len() {
            lengths.push(least + more);
            more = 2 * more + 1;
        }
        lengths.push(nodes.len());
        lengths.dedup();
        for length in lengths {
            if gathered.wide.is_empty() && !self.enough_on(gathered, &nodes[..length]) {
                continue;
            }
            let candidate = on_nodes(search, gathered, recorded, &nodes[..length]);
            if let Some(found) = self.attempt(search, gathered.count, candidate) {
                return Some(found);
            }
        }
        None
    }

    fn attempt(&mut self, search: &mut Search, count: usize, candidate: Candidate) -> Option<(Mark, Candidate)> {
        if candidate.batches.is_empty() {
            return None;
        }
        if search.failed.has(count, &candidate) {
            self.work.candidates_repeated += 1;
            return None;
        }
        if let Some(mark) = self.simulate(&search.case, search.anywhere, count, &candidate) {
            return Some((mark, candidate));
        }
        search.failed.add(count, &candidate);
        None
    }
}

/// All victims of some gangs gathered so far, one batch per gang, and the recorded ones of others.
fn whole_gangs(search: &Search, potential: &[usize], recorded: &[Batch], gangs: &[GangId]) -> Candidate {
    let others = recorded.iter().filter(|batch| !gangs.contains(&batch.gang));
    let mut batches: Vec<Batch> = others.cloned().collect();
    let potential = potential.iter().map(|at| &search.sequence.batches[*at]);
    let mut found: SmallVec<[(GangId, Tasks); 2]> = SmallVec::with_capacity(gangs.len());
    for batch in potential.filter(|batch| gangs.contains(&batch.gang)) {
        match found.iter_mut().find(|(gang, _)| *gang == batch.gang) {
            Some((_, tasks)) => tasks.extend_from_slice(&batch.tasks),
            None => found.push((batch.gang, batch.tasks.clone())),
        }
    }
    for (gang, potential) in found {
        let known = recorded
            .iter()
            .filter(|batch| batch.gang == gang)
            .flat_map(|batch| &batch.tasks);
        let tasks = known.copied().chain(potential).collect();
        batches.push(Batch { gang, tasks });
    }
    Candidate { batches }
}

/// The recorded victims, and every batch with a pod on one of the nodes.
fn on_nodes(search: &Search, gathered: &Gathered, recorded: &[Batch], nodes: &[NodeId]) -> Candidate {
    let mut picked: Vec<usize> = nodes
        .iter()
        .flat_map(|node| &gathered.at(*node).batches)
        .copied()
        .collect();
    picked.sort_unstable();
    picked.dedup();
    let mut batches = recorded.to_vec();
    batches.extend(picked.into_iter().map(|at| search.sequence.batches[at].clone()));
    Candidate { batches }
}
