//! The pod groups of each leaf queue in sort order: those with pods to place, and possible victims. Kept sorted
//! as pod groups change, so that no action sorts anything. Victims are sorted when a search begins: allocation, which changes a large pod group once for
//! each of its pods, does not need them.
//!
//! The order is that of the model at the last update; an open statement moves nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::engine::input::Time;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::pod_group::{PerMember, PodGroup, PodIds};
use crate::engine::model::resources::{GPUS, Shared, add};

use super::order::{PodGroupOrder, Rules};
use super::{smallest_gpu, wanted};

/// An entry of a queue's sorted pod groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedEntry {
    /// The pod group.
    pub pod_group: PodGroupId,
    /// What its next pods request; of a victim: what its next eviction would release.
    pub amount: Shared,
}

/// Sort keys of pending pod groups by requested amount.
type ByAmount = BTreeMap<Shared, BTreeSet<PodGroupOrder>>;

fn by_amount(waiting: &BTreeMap<PodGroupOrder, SortedEntry>) -> ByAmount {
    let mut by_amount = ByAmount::new();
    for (order, sorted_entry) in waiting {
        by_amount.entry(sorted_entry.amount).or_default().insert(order.clone());
    }
    by_amount
}

/// Pod groups not inserted yet.
#[derive(Debug, Default)]
struct Insertions {
    waiting: Vec<PodGroupId>,
    victims: Vec<PodGroupId>,
}

/// Single insertions are cheaper than a merge of all.
fn is_few(new: usize, there: usize) -> bool {
    new < 16 || new < there / 8
}

/// Pending pod groups and possible victims of a leaf queue.
#[derive(Debug, Default)]
pub struct QueuePodGroups {
    /// Pod groups with pods to place, best first.
    pub waiting: BTreeMap<PodGroupOrder, SortedEntry>,
    /// `waiting` by amount; kept once two pod groups request different amounts, until none waits.
    by_amount: Option<ByAmount>,
    /// Preemptible pod groups with active pods, best first; see [`SortedPodGroups::update_victims`].
    pub victims: BTreeMap<PodGroupOrder, SortedEntry>,
    /// Number of victims by GPUs held.
    sizes: BTreeMap<i64, usize>,
    insertions: Insertions,
}

impl QueuePodGroups {
    /// The sort key of the next pod group whose request is not `amount`, and how many pod groups and amounts were looked at: not more than twice as many as
    /// there are pod groups up to that one.
    #[must_use]
    pub fn next_unlike(&self, after: &PodGroupOrder, amount: &Shared) -> (Option<&PodGroupOrder>, usize) {
        let rest = (Bound::Excluded(after), Bound::Unbounded);
        let Some(by_amount) = &self.by_amount else {
            let next = self.waiting.range::<PodGroupOrder, _>(rest).next();
            let unlike = next.filter(|(_, next)| next.amount != *amount);
            return (unlike.map(|(order, _)| order), 1);
        };
        // Mostly it is one of the next. So all amounts are looked through only after as many pod groups.
        let few = by_amount.len();
        let mut looked_at = 0;
        for (order, next) in self.waiting.range::<PodGroupOrder, _>(rest).take(few) {
            looked_at += 1;
            if next.amount != *amount {
                return (Some(order), looked_at);
            }
        }
        if looked_at < few {
            return (None, looked_at);
        }
        let others = by_amount.iter().filter(|(other, _)| *other != amount);
        let unlike = others
            .filter_map(|(_, set)| set.range::<PodGroupOrder, _>(rest).next())
            .min();
        (unlike, looked_at + few)
    }

    /// Inserts a pending pod group.
    fn enter(&mut self, order: PodGroupOrder, sorted_entry: SortedEntry) {
        let first = self.waiting.first_key_value();
        if self.by_amount.is_none() && first.is_some_and(|(_, other)| other.amount != sorted_entry.amount) {
            self.by_amount = Some(by_amount(&self.waiting));
        }
        if let Some(by_amount) = &mut self.by_amount {
            by_amount.entry(sorted_entry.amount).or_default().insert(order.clone());
        }
        self.waiting.insert(order, sorted_entry);
    }

    /// Applies the insertions of pending pod groups. `waits` gives a pod group's sort key, and what it requests.
    fn join_waiting(&mut self, waits: impl Fn(PodGroupId) -> Option<(PodGroupOrder, SortedEntry)>) {
        let mut new = std::mem::take(&mut self.insertions.waiting);
        let waiting = new.iter().filter_map(|pod_group| waits(*pod_group));
        if is_few(new.len(), self.waiting.len()) {
            waiting.for_each(|(order, sorted_entry)| self.enter(order, sorted_entry));
        } else {
            let mut waiting: BTreeMap<_, _> = waiting.collect();
            self.waiting.append(&mut waiting);
            let mut amounts = self.waiting.values().map(|sorted_entry| sorted_entry.amount);
            let first = amounts.next();
            let several = self.by_amount.is_some() || amounts.any(|amount| Some(amount) != first);
            self.by_amount = several.then(|| by_amount(&self.waiting));
        }
        new.clear();
        self.insertions.waiting = new;
    }

    /// Applies the insertions of victims. `loses` gives a pod group's sort key, and what it would release next.
    fn join_victims(&mut self, loses: impl Fn(PodGroupId) -> Option<(PodGroupOrder, SortedEntry)>) {
        let mut new = std::mem::take(&mut self.insertions.victims);
        let victims = new.iter().filter_map(|pod_group| loses(*pod_group));
        if is_few(new.len(), self.victims.len()) {
            self.victims.extend(victims);
        } else {
            let mut victims: BTreeMap<_, _> = victims.collect();
            self.victims.append(&mut victims);
        }
        new.clear();
        self.insertions.victims = new;
    }

    /// Removes a victim that held so many GPUs.
    fn leave_victims(&mut self, order: &PodGroupOrder, gpus: i64) {
        self.victims.remove(order);
        if let Some(count) = self.sizes.get_mut(&gpus) {
            *count -= 1;
            if *count == 0 {
                self.sizes.remove(&gpus);
            }
        }
    }

    /// Removes a pending pod group.
    fn leave(&mut self, order: &PodGroupOrder, amount: &Shared) {
        self.waiting.remove(order);
        if self.waiting.is_empty() {
            self.by_amount = None;
        } else if let Some(by_amount) = &mut self.by_amount
            && let Some(set) = by_amount.get_mut(amount)
        {
            set.remove(order);
            if set.is_empty() {
                by_amount.remove(amount);
            }
        }
    }

    /// The most GPUs that one victim holds.
    #[must_use]
    pub fn largest_victim(&self) -> i64 {
        self.sizes.last_key_value().map_or(0, |(gpus, _)| *gpus)
    }
}

/// What is known of a pod group's place in the order.
#[derive(Debug, Default)]
struct Entry {
    queue: Option<QueueId>,
    /// Its sort key, if it is pending or a possible victim.
    order: Option<PodGroupOrder>,
    /// What it requests, if it is pending.
    waiting: Option<Shared>,
    /// It is a possible victim.
    holds: bool,
    /// Its place among the victims, as of the last update of these: queue, sort key, and the GPUs that it holds.
    victim: Option<(QueueId, PodGroupOrder, i64)>,
    /// It is in `changed`.
    changed: bool,
}

/// The pod groups of all leaf queues.
#[derive(Debug, Default)]
pub struct SortedPodGroups {
    sorted: Vec<QueuePodGroups>,
    entries: Vec<Entry>,
    divisor: Option<i64>,
    /// Queues with insertions of pending pod groups.
    awaited: Vec<QueueId>,
    /// Pod groups that changed since the last update of the victims.
    changed: Vec<PodGroupId>,
    /// Buffer of `update`.
    moved: Vec<PodGroupId>,
}

impl SortedPodGroups {
    /// The pod groups of a queue.
    #[must_use]
    pub fn of(&self, queue: QueueId) -> Option<&QueuePodGroups> {
        self.sorted.get(queue.at())
    }

    /// The queue, sort key and request of a pending pod group.
    #[must_use]
    pub fn waiting(&self, pod_group: PodGroupId) -> Option<(QueueId, &PodGroupOrder, Shared)> {
        let entry = self.entries.get(pod_group.at())?;
        Some((entry.queue?, entry.order.as_ref()?, entry.waiting?))
    }

    /// All queues, also those without pod groups.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &QueuePodGroups)> {
        let numbered = self.sorted.iter().enumerate();
        numbered.map(|(at, line)| (QueueId::of(at), line))
    }

    /// Clears the order: the rules of order changed.
    pub fn clear(&mut self, model: &mut Model) {
        *self = Self::default();
        model.all_moved();
    }

    /// Moves every changed pod group to its place among those that wait.
    pub fn update(&mut self, model: &mut Model, rules: Rules, now: Time) {
        let divisor = smallest_gpu(model);
        if self.divisor != divisor {
            self.divisor = divisor;
            model.all_moved();
        }
        let mut moved = std::mem::take(&mut self.moved);
        model.take_moved(&mut moved);
        for &pod_group in &moved {
            self.put(model, rules, pod_group, now);
        }
        for queue in self.awaited.drain(..) {
            let entries = &self.entries;
            let waits = |pod_group: PodGroupId| {
                let entry = &entries[pod_group.at()];
                let amount = entry.waiting?;
                Some((entry.order.clone()?, SortedEntry { pod_group, amount }))
            };
            self.sorted[queue.at()].join_waiting(waits);
        }
        self.moved = moved;
    }

    /// Moves every changed pod group to its place among the victims. To be done before these are read, while no statement is open.
    pub fn update_victims(&mut self, model: &Model) {
        let mut awaited = BTreeSet::new();
        for pod_group in std::mem::take(&mut self.changed) {
            let entry = &mut self.entries[pod_group.at()];
            entry.changed = false;
            if let Some((queue, order, gpus)) = entry.victim.take() {
                self.sorted[queue.at()].leave_victims(&order, gpus);
            }
            let (true, Some(queue), Some(order)) = (entry.holds, entry.queue, &entry.order) else {
                continue;
            };
            let held = evictable(model, &model.pod_groups()[pod_group]).map(|pod| model.accepted(pod)[GPUS]);
            let gpus = held.sum();
            entry.victim = Some((queue, order.clone(), gpus));
            let line = &mut self.sorted[queue.at()];
            line.insertions.victims.push(pod_group);
            *line.sizes.entry(gpus).or_insert(0) += 1;
            awaited.insert(queue);
        }
        for queue in awaited {
            let entries = &self.entries;
            let loses = |pod_group: PodGroupId| {
                let (_, order, _) = entries[pod_group.at()].victim.as_ref()?;
                let amount = next_loss(model, pod_group);
                Some((order.clone(), SortedEntry { pod_group, amount }))
            };
            self.sorted[queue.at()].join_victims(loses);
        }
    }

    /// Whether a fresh sort of all pod groups gives the same order.
    #[cfg(test)]
    #[must_use]
    pub fn is_true(&mut self, model: &mut Model, rules: Rules, now: Time) -> bool {
        self.update(model, rules, now);
        self.update_victims(model);
        let mut anew = Self::default();
        model.all_moved();
        anew.update(model, rules, now);
        anew.update_victims(model);
        let empty = QueuePodGroups::default();
        let queues = self.sorted.len().max(anew.sorted.len());
        (0..queues).map(QueueId::of).all(|queue| {
            let (ours, fresh) = (self.of(queue).unwrap_or(&empty), anew.of(queue).unwrap_or(&empty));
            (&ours.waiting, &ours.victims, &ours.sizes) == (&fresh.waiting, &fresh.victims, &fresh.sizes)
        })
    }

    /// Removes a pod group and queues its insertion.
    fn put(&mut self, model: &Model, rules: Rules, id: PodGroupId, now: Time) {
        // Capacity is reserved ahead, so that no update pays for moving all entries.
        if self.entries.capacity() == 0 {
            self.entries.reserve(model.pod_groups().slots() * 3 / 2);
        }
        if self.entries.len() <= id.at() {
            self.entries.resize_with(id.at() + 1, Entry::default);
        }
        let fresh = if model.pod_groups().contains(id) {
            entry(model, rules, id, now)
        } else {
            Entry::default()
        };
        let known = &mut self.entries[id.at()];
        let old = std::mem::replace(known, fresh);
        known.victim = old.victim;
        known.changed = true;
        if !old.changed {
            self.changed.push(id);
        }
        if let (Some(queue), Some(order), Some(amount)) = (old.queue, &old.order, &old.waiting) {
            self.sorted[queue.at()].leave(order, amount);
        }
        let fresh = &self.entries[id.at()];
        let Some(queue) = fresh.queue else { return };
        if self.sorted.len() <= queue.at() {
            self.sorted.resize_with(queue.at() + 1, QueuePodGroups::default);
        }
        if fresh.waiting.is_none() {
            return;
        }
        let line = &mut self.sorted[queue.at()];
        if line.insertions.waiting.is_empty() {
            self.awaited.push(queue);
        }
        line.insertions.waiting.push(id);
    }
}

/// What a pod group's next eviction would release.
fn next_loss(model: &Model, pod_group: PodGroupId) -> Shared {
    let pod_group = &model.pod_groups()[pod_group];
    if let [only] = *pod_group.pods {
        return requests(model, &[only]);
    }
    let pods: Vec<PodId> = evictable(model, pod_group).collect();
    requests(model, &next_victims(model, pod_group, &pods))
}

fn entry(model: &Model, rules: Rules, id: PodGroupId, now: Time) -> Entry {
    let pod_group = &model.pod_groups()[id];
    let (Some(queue), Some(input)) = (pod_group.queue, &pod_group.input) else {
        return Entry::default();
    };
    let active = pod_group.active();
    let holds = input.preemptible && active.iter().any(|count| *count > 0);
    let mut waiting = None;
    if pod_group.waits() && !pod_group.is_excluded() && pod_group.broken.is_none() && pod_group.ready() {
        let pods = model.next_chunk(id, now);
        if !pods.is_empty() {
            waiting = Some(wanted(model, &pods, smallest_gpu(model)));
        }
    }
    let stands = waiting.is_some() || holds;
    Entry {
        queue: Some(queue),
        order: stands.then(|| rules.pod_group(pod_group, pod_group.stage(&active))),
        waiting,
        holds,
        ..Entry::default()
    }
}

/// Pods of a pod group that can be evicted, by pod set and in its order: those on a known node. The eviction of others frees nothing.
pub fn evictable<'a>(model: &'a Model, pod_group: &'a PodGroup) -> impl Iterator<Item = PodId> + 'a {
    let pods = pod_group.pod_sets().flat_map(|(_, set)| set.pods.iter().copied());
    pods.filter(|id| {
        let is_known = |node| model.nodes()[node].input.is_some();
        model.pods()[*id].state.status.active_allocated() && model.node_of(*id).is_some_and(is_known)
    })
}

/// Sum of what pods request.
#[must_use]
pub fn requests(model: &Model, pods: &[PodId]) -> Shared {
    let mut sum = [0; 3];
    for pod in pods {
        add(&mut sum, &model.shapes()[model.pods()[*pod].shape].quota, 1);
    }
    sum
}

/// How many of these pods each member of the pod group has.
#[must_use]
pub fn active_of(model: &Model, pod_group: &PodGroup, pods: &[PodId]) -> PerMember {
    if pod_group.only_pod_set().is_some() {
        return PerMember::from_slice(&[0, pods.len()]);
    }
    let mut active = PerMember::from_elem(0, pod_group.tree.len());
    for pod in pods {
        if let Some(member) = model.pods()[*pod].member {
            active[member as usize] += 1;
        }
    }
    active
}

/// The pods to evict next from a pod group of which these are left, in the order of [`evictable`]. The queue loses only their requests, not all that the pod
/// group holds. A pod whose eviction was refused recently goes last in its pod set.
#[must_use]
pub fn next_victims(model: &Model, pod_group: &PodGroup, pods: &[PodId]) -> PodIds {
    let next = match (pods, pod_group.only_pod_set()) {
        ([only], _) => return PodIds::from_slice(&[*only]),
        // Of a large pod group one pod after the other is taken: without a look at all others.
        ([.., last], Some(set)) if model.nothing_refused() && pods.len() > set.min => PodIds::from_slice(&[*last]),
        _ => return next_of_all(model, pod_group, pods),
    };
    debug_assert_eq!(next, next_of_all(model, pod_group, pods));
    next
}

fn next_of_all(model: &Model, pod_group: &PodGroup, pods: &[PodId]) -> PodIds {
    let mut left = pods.to_vec();
    left.sort_unstable();
    let pods_of = |member| -> PodIds {
        let pods = pod_group.pods(member).map(|pods| &*pods.pods).unwrap_or_default();
        let here = pods.iter().copied();
        let mut here: PodIds = here.filter(|pod| left.binary_search(pod).is_ok()).collect();
        if model.refused(here.iter().copied()) {
            here.sort_by_key(|pod| model.pods()[*pod].retry_at.is_none());
        }
        here
    };
    pod_group.evict_chunk(&active_of(model, pod_group, pods), &pods_of)
}

#[cfg(test)]
mod tests;
