//! One probe: gathers victims in their order until the first pods of a pod group can be placed.
//!
//! Victims are gathered batch by batch. After each batch the generator makes candidates, and the first that works is taken. Counters give an upper
//! bound of what would fit, so that candidates which cannot work are skipped, and only the others are simulated.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::engine::actions::capacity::{Capacity, add_capacity, freed_by};
use crate::engine::actions::node_scratch::{NodeScratch, NodeVictims};
use crate::engine::decision::LOOKS_PER_TEST;
use crate::engine::model::Mark;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId};
use crate::engine::model::pod_group::PodIds;
use crate::engine::model::resources::GPUS;
use crate::engine::policy::VictimGenerator;

use super::bounds::{asked_gpus, first_fit};
use super::search::{SearchState, VictimSearch};
use super::{Batch, Candidate, node_of};

/// A victim that is counted as gone is one step, and one more for so many tests.
const TESTS_PER_STEP: usize = 4;

/// Victims of one probe, gathered so far.
struct Gathered {
    count: usize,
    /// Positions in the search's sequence.
    potential: SmallVec<[usize; 4]>,
    node_scratch: NodeScratch,
    /// Nodes with potential victims, in the order in which they were gathered.
    holding: SmallVec<[NodeId; 4]>,
    /// Nodes with recorded victims.
    recorded_on: SmallVec<[NodeId; 4]>,
    /// Pod groups with potential victims on several nodes.
    wide: BTreeSet<PodGroupId>,
    /// The node of the first potential victim of each pod group with several pods.
    first_on: BTreeMap<PodGroupId, Option<NodeId>>,
    tests: SmallVec<[Test; 2]>,
    /// The test that every state must pass, see [`VictimSearch::passes`].
    even: Option<Test>,
    needs: SmallVec<[i64; 4]>,
    /// Classes with a selector or affinity that no node among those in question meets yet.
    unmet: Vec<PodId>,
    /// The GPUs suffice, with further victims as well.
    suffices: bool,
}

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
    fn at(&self, node: NodeId) -> &NodeVictims {
        &self.node_scratch[node.at()]
    }

    fn at_mut(&mut self, node: NodeId) -> &mut NodeVictims {
        &mut self.node_scratch[node.at()]
    }

    fn both(&self, node: NodeId) -> Capacity {
        let mut both = self.at(node).recorded;
        add_capacity(&mut both, &self.at(node).freed);
        both
    }

    /// Returns the scratch memory, with all used entries reset.
    fn hand_back(mut self) -> NodeScratch {
        for node in self.holding.iter().chain(&self.recorded_on) {
            let victims = &mut self.node_scratch[node.at()];
            victims.recorded = [0; 4];
            victims.freed = [0; 4];
            victims.batches.clear();
        }
        self.node_scratch
    }

    /// The steps of so many victims that are counted as gone.
    fn steps_of(&self, pods: usize) -> usize {
        pods * (1 + (self.tests.len() + self.unmet.len()) / TESTS_PER_STEP)
    }

    fn tests_mut(&mut self) -> impl Iterator<Item = &mut Test> {
        self.tests.iter_mut().chain(&mut self.even)
    }
}

impl VictimSearch<'_> {
    /// Tries to place the first `count` pods. On success the changes stay in the model, after the mark, and the batches that were tried are returned.
    pub fn probe(
        &mut self,
        search: &mut SearchState,
        generator: VictimGenerator,
        count: usize,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        let mut gathered = self.gathered_for(search, count, recorded);
        let found = self.gather_until(search, generator, &mut gathered, recorded);
        *self.node_scratch = gathered.hand_back();
        found
    }

    fn gather_until(
        &mut self,
        search: &mut SearchState,
        generator: VictimGenerator,
        gathered: &mut Gathered,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        let taken: BTreeSet<PodId> = recorded.iter().flat_map(|batch| batch.pods.iter().copied()).collect();
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
                if self.is_cut_off() || !self.gathered(search, at) {
                    return None;
                }
                at += 1;
                let batch = &search.sequence.batches[at - 1];
                if !batch.pods.iter().any(|pod| taken.contains(pod)) {
                    break;
                }
            }
            self.count_steps(gathered.steps_of(search.sequence.batches[at - 1].pods.len()));
            self.add_batch(search, gathered, at - 1);
        }
    }

    fn gathered_for(&mut self, search: &SearchState, count: usize, recorded: &[Batch]) -> Gathered {
        let mut node_scratch = std::mem::take(self.node_scratch);
        node_scratch.resize(self.model.nodes().slots(), NodeVictims::default());
        let of_kind = |table: usize| search.kind_of[..count].iter().filter(|kind| **kind == table).count() as i64;
        let test = |table: usize, needed: i64| Test {
            table,
            needed,
            with_recorded: self.capacity.fitting(table),
            with_all: 0,
        };
        let needs = search.case.chunk[..count]
            .iter()
            .map(|pod| asked_gpus(self.model, *pod));
        let mut gathered = Gathered {
            count,
            potential: SmallVec::new(),
            node_scratch,
            holding: SmallVec::new(),
            recorded_on: SmallVec::new(),
            wide: BTreeSet::new(),
            first_on: BTreeMap::new(),
            tests: search.kinds.iter().map(|table| test(*table, of_kind(*table))).collect(),
            even: search.even.map(|table| test(table, count as i64)),
            needs: needs.collect(),
            unmet: Vec::new(),
            suffices: false,
        };
        for &pod in recorded.iter().flat_map(|batch| &batch.pods) {
            if let Some(node) = node_of(self.model, pod) {
                if gathered.at(node).recorded == [0; 4] {
                    gathered.recorded_on.push(node);
                }
                add_capacity(&mut gathered.at_mut(node).recorded, &freed_by(self.model, pod));
            }
        }
        let nodes = std::mem::take(&mut gathered.recorded_on);
        for &node in &nodes {
            let freed = gathered.at(node).recorded;
            for test in gathered.tests_mut() {
                test.with_recorded += self.capacity.gain(self.model, test.table, node, &freed);
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
    fn unmet_selectors(&mut self, search: &SearchState, gathered: &Gathered) -> Vec<PodId> {
        let (mut unmet, mut looked_at): (Vec<PodId>, usize) = (Vec::new(), 0);
        let class = |pod: PodId| self.model.pods()[pod].class;
        for &pod in &search.case.chunk[..gathered.count] {
            let constraints = &self.model.classes()[class(pod)].constraints;
            let free = constraints.selector.is_empty() && constraints.required.is_none();
            if free || unmet.iter().any(|other| class(*other) == class(pod)) {
                continue;
            }
            let mut nodes = self.model.by_name().iter().inspect(|_| looked_at += 1);
            let in_question = |node: NodeId| {
                search.anywhere || self.capacity.some.has(node.at()) || gathered.recorded_on.contains(&node)
            };
            if !nodes.any(|node| in_question(*node) && constraints.selects(&self.model.nodes()[*node])) {
                unmet.push(pod);
            }
        }
        self.count_steps(looked_at / LOOKS_PER_TEST);
        unmet
    }

    fn add_batch(&self, search: &SearchState, gathered: &mut Gathered, at: usize) {
        let batch = &search.sequence.batches[at];
        gathered.potential.push(at);
        for &pod in &batch.pods {
            let Some(node) = node_of(self.model, pod) else {
                continue;
            };
            if gathered.at(node).batches.is_empty() {
                gathered.holding.push(node);
                let selects = |pod: &PodId| {
                    let class = self.model.pods()[*pod].class;
                    self.model.classes()[class]
                        .constraints
                        .selects(&self.model.nodes()[node])
                };
                gathered.unmet.retain(|pod| !selects(pod));
            }
            if gathered.at(node).batches.last() != Some(&at) {
                gathered.at_mut(node).batches.push(at);
            }
            let before = gathered.both(node);
            add_capacity(&mut gathered.at_mut(node).freed, &freed_by(self.model, pod));
            let after = gathered.both(node);
            for test in gathered.tests.iter_mut().chain(&mut gathered.even) {
                let gain = |freed| self.capacity.gain(self.model, test.table, node, freed);
                test.with_all += gain(&after) - gain(&before);
            }
        }
        if self.model.pod_groups()[batch.pod_group].pods.len() > 1 {
            self.note_nodes(gathered, batch);
        }
    }

    /// Notes whether the gathered batches of a pod group are on several nodes.
    fn note_nodes(&self, gathered: &mut Gathered, batch: &Batch) {
        let mut nodes = batch.pods.iter().map(|pod| node_of(self.model, *pod));
        let first = gathered.first_on.entry(batch.pod_group);
        let first = *first.or_insert_with(|| nodes.next().flatten());
        if nodes.any(|node| node != first) {
            gathered.wide.insert(batch.pod_group);
        }
    }

    /// Whether the pods could fit with all gathered victims gone, by the counters and node affinity alone.
    fn passes(&mut self, gathered: &mut Gathered) -> bool {
        if !gathered.unmet.is_empty() {
            return false;
        }
        if let Some(test) = &gathered.even {
            return test.with_all >= test.needed;
        }
        if gathered.suffices || gathered.needs.iter().all(|need| *need <= 0) {
            return true;
        }
        let free = |node: &NodeId| self.capacity.of(*node)[GPUS] + gathered.both(*node)[GPUS];
        let free: Vec<i64> = self.model.by_name().iter().map(free).collect();
        self.count_steps(free.len() / LOOKS_PER_TEST);
        gathered.suffices = first_fit(&gathered.needs, free);
        gathered.suffices
    }

    /// Candidates with all gathered victims on one node, each pod group as a whole.
    fn empty_one_node(
        &mut self,
        search: &mut SearchState,
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
        let pod_group = search.sequence.batches[last].pod_group;
        let pods = &self.model.pod_groups()[pod_group].pods;
        let mut nodes: SmallVec<[NodeId; 4]> = pods.iter().filter_map(|pod| node_of(self.model, *pod)).collect();
        if nodes.len() > 1 {
            nodes.sort_by_key(|node| self.model.nodes()[*node].rank);
            nodes.dedup();
        }
        for node in nodes {
            let here = &gathered.at(node).batches;
            if here.is_empty() {
                continue;
            }
            self.count_steps(here.len());
            let mut pod_groups: SmallVec<[PodGroupId; 8]> = SmallVec::with_capacity(here.len());
            for &at in here {
                let pod_group = search.sequence.batches[at].pod_group;
                if !pod_groups.contains(&pod_group) {
                    pod_groups.push(pod_group);
                }
            }
            let all_here =
                gathered.wide.is_empty() || pod_groups.iter().all(|pod_group| !gathered.wide.contains(pod_group));
            if all_here && !self.enough_on(gathered, &[node]) {
                continue;
            }
            let potential = if all_here { &**here } else { &*gathered.potential };
            let candidate = whole_pod_groups(search, potential, recorded, &pod_groups);
            if let Some(found) = self.attempt(search, gathered.count, candidate) {
                return Some(found);
            }
        }
        None
    }

    /// Whether enough pods could fit with the recorded victims gone, and all gathered ones on these nodes.
    fn enough_on(&self, gathered: &Gathered, nodes: &[NodeId]) -> bool {
        gathered.tests.iter().all(|test| {
            let gain = |room: &Capacity, node: NodeId| self.capacity.gain(self.model, test.table, node, room);
            let more = nodes
                .iter()
                .map(|&node| gain(&gathered.both(node), node) - gain(&gathered.at(node).recorded, node));
            test.with_recorded + more.sum::<i64>() >= test.needed
        })
    }

    /// Candidates with all gathered victims on several nodes: the smallest number of nodes that suffices first.
    fn empty_several_nodes(
        &mut self,
        search: &mut SearchState,
        gathered: &Gathered,
        recorded: &[Batch],
    ) -> Option<(Mark, Candidate)> {
        if gathered.potential.is_empty() {
            let candidate = Candidate {
                batches: recorded.to_vec(),
            };
            return self.attempt(search, gathered.count, candidate);
        }
        let others = if search.anywhere { self.model.by_name().len() } else { 0 };
        self.count_steps(gathered.holding.len() + others / LOOKS_PER_TEST);
        let free = |node: NodeId| self.capacity.of(node)[GPUS] + gathered.at(node).recorded[GPUS];
        let capacity = |node: NodeId| free(node) + gathered.at(node).freed[GPUS];
        let open = |node: NodeId| search.anywhere || self.capacity.some.has(node.at());
        let everything = if search.anywhere {
            self.model
                .by_name()
                .iter()
                .map(|node| self.capacity.of(*node)[GPUS])
                .sum()
        } else {
            self.capacity.sum
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
            self.count_steps(length);
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

    fn attempt(&mut self, search: &mut SearchState, count: usize, candidate: Candidate) -> Option<(Mark, Candidate)> {
        if candidate.batches.is_empty() || self.is_cut_off() {
            return None;
        }
        if search.failed.has(count, &candidate) {
            self.log.work.candidates_repeated += 1;
            self.count_steps(candidate.batches.len());
            return None;
        }
        if let Some(mark) = self.simulate(&search.case, search.anywhere, count, &candidate) {
            return Some((mark, candidate));
        }
        search.failed.add(count, &candidate);
        None
    }
}

/// All victims of some pod groups gathered so far, one batch per pod group, and the recorded ones of others.
fn whole_pod_groups(
    search: &SearchState,
    potential: &[usize],
    recorded: &[Batch],
    pod_groups: &[PodGroupId],
) -> Candidate {
    let others = recorded.iter().filter(|batch| !pod_groups.contains(&batch.pod_group));
    let mut batches: Vec<Batch> = others.cloned().collect();
    let potential = potential.iter().map(|at| &search.sequence.batches[*at]);
    let mut found: SmallVec<[(PodGroupId, PodIds); 2]> = SmallVec::with_capacity(pod_groups.len());
    for batch in potential.filter(|batch| pod_groups.contains(&batch.pod_group)) {
        match found.iter_mut().find(|(pod_group, _)| *pod_group == batch.pod_group) {
            Some((_, pods)) => pods.extend_from_slice(&batch.pods),
            None => found.push((batch.pod_group, batch.pods.clone())),
        }
    }
    for (pod_group, potential) in found {
        let known = recorded
            .iter()
            .filter(|batch| batch.pod_group == pod_group)
            .flat_map(|batch| &batch.pods);
        let pods = known.copied().chain(potential).collect();
        batches.push(Batch { pod_group, pods });
    }
    Candidate { batches }
}

/// The recorded victims, and every batch with a pod on one of the nodes.
fn on_nodes(search: &SearchState, gathered: &Gathered, recorded: &[Batch], nodes: &[NodeId]) -> Candidate {
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
