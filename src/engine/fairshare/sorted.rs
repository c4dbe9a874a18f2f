//! The pod groups of each leaf queue in sort order: those with pods to place, and possible victims. Kept sorted
//! as pod groups change, so that no action sorts anything.
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
    /// Preemptible pod groups with active pods, best first.
    pub victims: BTreeMap<PodGroupOrder, SortedEntry>,
    /// Number of victims by GPUs held.
    sizes: BTreeMap<i64, usize>,
    insertions: Insertions,
}

impl QueuePodGroups {
    /// The sort key of the next pod group whose request is not `amount`.
    #[must_use]
    pub fn next_unlike(&self, after: &PodGroupOrder, amount: &Shared) -> Option<&PodGroupOrder> {
        let rest = (Bound::Excluded(after), Bound::Unbounded);
        let Some(by_amount) = &self.by_amount else {
            let (order, next) = self.waiting.range::<PodGroupOrder, _>(rest).next()?;
            return (next.amount != *amount).then_some(order);
        };
        let others = by_amount.iter().filter(|(other, _)| *other != amount);
        others
            .filter_map(|(_, set)| set.range::<PodGroupOrder, _>(rest).next())
            .min()
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

    /// Applies the insertions. `waits` and `loses` give a pod group's sort key, and what it requests or would release next.
    fn join(
        &mut self,
        waits: impl Fn(PodGroupId) -> Option<(PodGroupOrder, SortedEntry)>,
        loses: impl Fn(PodGroupId) -> Option<(PodGroupOrder, SortedEntry)>,
    ) {
        let mut insertions = std::mem::take(&mut self.insertions);
        let waiting = insertions.waiting.iter().filter_map(|pod_group| waits(*pod_group));
        let victims = insertions.victims.iter().filter_map(|pod_group| loses(*pod_group));
        if is_few(insertions.waiting.len(), self.waiting.len()) {
            waiting.for_each(|(order, sorted_entry)| self.enter(order, sorted_entry));
        } else {
            let mut waiting: BTreeMap<_, _> = waiting.collect();
            self.waiting.append(&mut waiting);
            let mut amounts = self.waiting.values().map(|sorted_entry| sorted_entry.amount);
            let first = amounts.next();
            let several = self.by_amount.is_some() || amounts.any(|amount| Some(amount) != first);
            self.by_amount = several.then(|| by_amount(&self.waiting));
        }
        if is_few(insertions.victims.len(), self.victims.len()) {
            self.victims.extend(victims);
        } else {
            let mut victims: BTreeMap<_, _> = victims.collect();
            self.victims.append(&mut victims);
        }
        insertions.waiting.clear();
        insertions.victims.clear();
        self.insertions = insertions;
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
    /// GPUs that it holds, if it is a possible victim.
    victim: Option<i64>,
}

/// The pod groups of all leaf queues.
#[derive(Debug, Default)]
pub struct SortedPodGroups {
    sorted: Vec<QueuePodGroups>,
    entries: Vec<Entry>,
    divisor: Option<i64>,
    /// Queues with insertions.
    awaited: Vec<QueueId>,
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

    /// Moves every changed pod group to its place.
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
            let loses = |pod_group: PodGroupId| {
                let amount = next_loss(model, pod_group);
                Some((
                    entries[pod_group.at()].order.clone()?,
                    SortedEntry { pod_group, amount },
                ))
            };
            self.sorted[queue.at()].join(waits, loses);
        }
        self.moved = moved;
    }

    /// Whether a fresh sort of all pod groups gives the same order.
    #[cfg(test)]
    #[must_use]
    pub fn is_true(&mut self, model: &mut Model, rules: Rules, now: Time) -> bool {
        self.update(model, rules, now);
        let mut anew = Self::default();
        model.all_moved();
        anew.update(model, rules, now);
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
        let old = std::mem::replace(&mut self.entries[id.at()], fresh);
        if let Some(line) = old.queue.and_then(|queue| self.sorted.get_mut(queue.at())) {
            leave(line, old);
        }
        let fresh = &self.entries[id.at()];
        let Some(queue) = fresh.queue else { return };
        if self.sorted.len() <= queue.at() {
            self.sorted.resize_with(queue.at() + 1, QueuePodGroups::default);
        }
        if fresh.waiting.is_none() && fresh.victim.is_none() {
            return;
        }
        let line = &mut self.sorted[queue.at()];
        if line.insertions.waiting.is_empty() && line.insertions.victims.is_empty() {
            self.awaited.push(queue);
        }
        if fresh.waiting.is_some() {
            line.insertions.waiting.push(id);
        }
        if let Some(gpus) = fresh.victim {
            line.insertions.victims.push(id);
            *line.sizes.entry(gpus).or_insert(0) += 1;
        }
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

fn leave(line: &mut QueuePodGroups, old: Entry) {
    let Some(order) = old.order else { return };
    if let Some(amount) = old.waiting {
        line.leave(&order, &amount);
    }
    if let Some(gpus) = old.victim {
        line.victims.remove(&order);
        if let Some(count) = line.sizes.get_mut(&gpus) {
            *count -= 1;
            if *count == 0 {
                line.sizes.remove(&gpus);
            }
        }
    }
}

fn entry(model: &Model, rules: Rules, id: PodGroupId, now: Time) -> Entry {
    let pod_group = &model.pod_groups()[id];
    let (Some(queue), Some(input)) = (pod_group.queue, &pod_group.input) else {
        return Entry::default();
    };
    let active = pod_group.active();
    let holds = input.preemptible && active.iter().any(|count| *count > 0);
    let victim = holds.then(|| evictable(model, pod_group).map(|pod| model.accepted(pod)[GPUS]).sum());
    let mut waiting = None;
    if pod_group.waits() && !pod_group.is_excluded() && pod_group.broken.is_none() && pod_group.ready() {
        let pods = model.next_chunk(id, now);
        if !pods.is_empty() {
            waiting = Some(wanted(model, &pods, smallest_gpu(model)));
        }
    }
    let stands = waiting.is_some() || victim.is_some();
    Entry {
        queue: Some(queue),
        order: stands.then(|| rules.pod_group(pod_group, pod_group.stage(&active))),
        waiting,
        victim,
    }
}

/// Pods of a pod group that can be evicted: those on a known node. The eviction of others frees nothing.
pub fn evictable<'a>(model: &'a Model, pod_group: &'a PodGroup) -> impl Iterator<Item = PodId> + 'a {
    pod_group.pods.iter().copied().filter(|id| {
        let pod = &model.pods()[*id];
        let is_known = |node| model.nodes()[node].input.is_some();
        pod.member.is_some() && pod.state.status.active_allocated() && model.node_of(*id).is_some_and(is_known)
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
    let mut active = PerMember::from_elem(0, pod_group.tree.len());
    for pod in pods {
        if let Some(member) = model.pods()[*pod].member {
            active[member as usize] += 1;
        }
    }
    active
}

/// The pods to evict next from a pod group of which these are left. The queue loses only their requests, not all that the pod group holds.
/// A pod whose eviction was refused recently goes last in its pod set.
#[must_use]
pub fn next_victims(model: &Model, pod_group: &PodGroup, pods: &[PodId]) -> PodIds {
    if let [only] = *pods {
        return PodIds::from_slice(&[only]);
    }
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
