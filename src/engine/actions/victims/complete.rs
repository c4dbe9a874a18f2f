//! The complete search. Where both generators fail, all sets of victims are searched, so that no pod group waits although some set would help.
//!
//! First prefixes of the victim order are tried, then sets by size, the worst victims first. Sets that free too little are skipped; the others are
//! simulated like the generators' candidates. From a set that works, victims are removed as long as it works. The number of steps per cycle is
//! limited: in a large cluster the search is incomplete, in a small one it proves that no set helps.

use crate::engine::actions::capacity::{Capacity, add_capacity, freed_by};
use crate::engine::actions::spare::Sparer;
use crate::engine::fairshare::sorted::active_of;
use crate::engine::model::Mark;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::pod_group::PodGroup;

use super::search::{SearchState, VictimSearch};
use super::{Batch, Candidate, Tried, lost, node_of};

/// Steps per pod of a simulated set. A pod of an estimated set costs one step.
const SIMULATED: usize = 16;

/// Positions in a search's sequence, ascending.
pub(in crate::engine) type Set = Vec<usize>;

impl VictimSearch<'_> {
    /// Searches the sets of victims. The answer's changes are in the model, after the mark.
    pub fn look_through(&mut self, search: &mut SearchState) -> Option<(Mark, Vec<Batch>)> {
        let set = self.smallest_set(search)?;
        self.evict_set(search, &set)
    }

    /// Evicts a set that works. The changes are in the model, after the mark.
    pub(in crate::engine) fn evict_set(&mut self, search: &SearchState, set: &[usize]) -> Option<(Mark, Vec<Batch>)> {
        let mark = self.works(search, set)?;
        let victims = self.needed(candidate(search, set));
        Some((mark, victims))
    }

    /// A set of victims that works, and of which none can be left out.
    pub(in crate::engine) fn smallest_set(&mut self, search: &mut SearchState) -> Option<Set> {
        let mut all = 0;
        while *self.steps_left > 0 && self.gathered(search, all) {
            self.spend(search.sequence.batches[all].pods.len());
            all += 1;
        }
        // The order of victims matters for reclaim, and the generators list pod groups in another order: what failed there may work here.
        if search
            .sequence
            .batches
            .iter()
            .any(|batch| batch.pod_group != search.sequence.batches[0].pod_group)
        {
            search.failed = Tried::default();
        }
        let found = self
            .some_prefix(search, all)
            .or_else(|| (1..=all).find_map(|size| self.some_set(search, &mut Vec::with_capacity(size), size, all)))?;
        // The set works already; trimming it gets a full step limit of its own.
        let left = std::mem::replace(self.steps_left, self.context.policy.plugins.complete_search_steps);
        let set = self.trimmed(search, found);
        *self.steps_left = left;
        Some(set)
    }

    /// Counts steps; false if there are too few left.
    fn spend(&mut self, steps: usize) -> bool {
        let enough = steps <= *self.steps_left;
        *self.steps_left = self.steps_left.saturating_sub(steps);
        enough
    }

    /// The first prefix of the sequence that works, by growing lengths.
    fn some_prefix(&mut self, search: &mut SearchState, all: usize) -> Option<Set> {
        let beginning = |length: usize| -> Set { (0..length).collect() };
        let (mut least, mut most) = (1, all + 1);
        while least < most {
            let middle = usize::midpoint(least, most);
            if self.has_space(search, &beginning(middle.min(all))) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        let mut length = least;
        while length <= all {
            let set = beginning(length);
            if self.try_out(search, &set) {
                return Some(set);
            }
            // The last prefix is the whole sequence.
            let next = length + (length - least).max(1);
            length = if length < all { next.min(all) } else { next };
        }
        None
    }

    /// The first set that works among those that add `more` victims after the last chosen one.
    fn some_set(&mut self, search: &mut SearchState, chosen: &mut Set, more: usize, all: usize) -> Option<Set> {
        let next = chosen.last().map_or(0, |last| last + 1);
        if *self.steps_left == 0 || next + more > all {
            return None;
        }
        if more == 0 {
            return self.try_out(search, chosen).then(|| chosen.clone());
        }
        let at_most: Set = chosen.iter().copied().chain(next..all).collect();
        if !self.has_space(search, &at_most) {
            return None;
        }
        for at in next..=all - more {
            chosen.push(at);
            let found = self.some_set(search, chosen, more - 1, all);
            chosen.pop();
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Removes victims from a set that works until none can be left out. Larger parts are removed first.
    fn trimmed(&mut self, search: &mut SearchState, mut set: Set) -> Set {
        let mut width = set.len().div_ceil(2);
        loop {
            let before = set.len();
            let mut end = set.len();
            while end > 0 {
                let start = end.saturating_sub(width);
                let fewer: Set = set[..start].iter().chain(&set[end..]).copied().collect();
                if self.has_space(search, &fewer)
                    && self.spend(SIMULATED * pods_of(search, &fewer))
                    && let Some(mark) = self.works(search, &fewer)
                {
                    self.rollback(mark);
                    set = fewer;
                }
                end = start;
            }
            if width == 1 && set.len() == before {
                return set;
            }
            width = (width / 2).max(1);
        }
    }

    /// Whether a set works. False without a simulation if it failed before or the steps are used up.
    fn try_out(&mut self, search: &mut SearchState, set: &Set) -> bool {
        let count = search.case.chunk.len();
        let tried = candidate(search, set);
        let affordable = !self.is_cut_off()
            && !search.failed.has(count, &tried)
            && self.has_space(search, set)
            && self.spend(SIMULATED * pods_of(search, set));
        if !affordable {
            return false;
        }
        if let Some(mark) = self.works(search, set) {
            self.rollback(mark);
            return true;
        }
        search.failed.add(count, &tried);
        false
    }

    /// Evicts a set and places the pod group. `None`: it does not work, and the model is unchanged.
    pub(in crate::engine) fn works(&mut self, search: &SearchState, set: &[usize]) -> Option<Mark> {
        if set.is_empty() || !self.leaves_gangs_whole(search, set) {
            return None;
        }
        let pod_group = search.case.pod_group;
        let before = self.active_used(pod_group);
        let count = search.case.chunk.len();
        let entry = &self.model.pod_groups()[pod_group];
        let runs = entry.satisfied(0, &entry.active());
        let mark = self.simulate(&search.case, search.anywhere, count, &candidate(search, set))?;
        let mark = self.complete(&search.case, before, mark)?;
        if runs && self.displaced(mark) > count {
            self.rollback(mark);
            return None;
        }
        Some(mark)
    }

    /// How many pods are evicted or moved once all that can stay do. A running pod group gets no surplus pods if more than these would be displaced.
    fn displaced(&mut self, mark: Mark) -> usize {
        Sparer {
            model: self.model,
            context: self.context,
            taken: &self.log.taken,
        }
        .spare_since(mark, true);
        let mut changed: Vec<PodId> = self.model.changed_since(mark).collect();
        changed.sort_unstable();
        changed.dedup();
        let displaced = |pod: &PodId| lost(self.model, *pod) && self.model.pods()[*pod].state.hold.is_some();
        changed.into_iter().filter(displaced).count()
    }

    /// Whether no pod group is left below its minimum, except by the batches in which its victims are gathered anyway.
    fn leaves_gangs_whole(&self, search: &SearchState, set: &[usize]) -> bool {
        let batches = &search.sequence.batches;
        set.iter().all(|&at| {
            let pod_group = batches[at].pod_group;
            let mut of_pod_group = (0..at).filter(|earlier| batches[*earlier].pod_group == pod_group);
            of_pod_group.all(|earlier| set.binary_search(&earlier).is_ok()) || {
                let taken = set.iter().filter(|other| batches[**other].pod_group == pod_group);
                let pods: Vec<PodId> = taken.flat_map(|other| batches[*other].pods.iter().copied()).collect();
                let entry: &PodGroup = &self.model.pod_groups()[pod_group];
                let lost = active_of(self.model, entry, &pods);
                let left: Vec<usize> = entry.active().iter().zip(lost).map(|(all, lost)| all - lost).collect();
                entry.satisfied(0, &left)
            }
        })
    }

    /// Whether the pods could fit with these victims gone, by the capacity tables. False if the steps are used up.
    fn has_space(&mut self, search: &SearchState, set: &[usize]) -> bool {
        if !self.spend(pods_of(search, set)) {
            return false;
        }
        let mut freed: Vec<(NodeId, Capacity)> = Vec::new();
        for &pod in set.iter().flat_map(|at| &search.sequence.batches[*at].pods) {
            if let Some(node) = node_of(self.model, pod) {
                freed.push((node, freed_by(self.model, pod)));
            }
        }
        freed.sort_unstable_by_key(|(node, _)| *node);
        freed.dedup_by(|(node, room), (kept, sum)| {
            let same = node == kept;
            if same {
                add_capacity(sum, room);
            }
            same
        });
        search.kinds.iter().all(|&table| {
            let needed = search.kind_of.iter().filter(|kind| **kind == table).count() as i64;
            let gains = freed
                .iter()
                .map(|(node, room)| self.capacity.gain(self.model, table, *node, room));
            self.capacity.fitting(table) + gains.sum::<i64>() >= needed
        })
    }
}

/// Number of victims of a set and of pods to place.
fn pods_of(search: &SearchState, set: &[usize]) -> usize {
    let victims = set.iter().map(|at| search.sequence.batches[*at].pods.len());
    victims.sum::<usize>() + search.case.chunk.len()
}

fn candidate(search: &SearchState, set: &[usize]) -> Candidate {
    Candidate {
        batches: set.iter().map(|at| search.sequence.batches[*at].clone()).collect(),
    }
}
