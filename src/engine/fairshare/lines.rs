//! Who stands in line, per leaf queue: gangs with pods to place, and gangs that hold something a victim could give. Kept in order while gangs change, so that
//! no action sorts anything.
//!
//! The lines show the model as it was when they were last brought up to date; what-if work in between does not move anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::engine::input::Time;
use crate::engine::model::Model;
use crate::engine::model::gang::{Gang, PerMember, Tasks};
use crate::engine::model::ids::{GangId, QueueId, TaskId};
use crate::engine::model::resources::{GPUS, Shared, add};

use super::order::{JobOrder, Rules};
use super::{smallest_gpu, wanted};

/// A gang in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The gang.
    pub gang: GangId,
    /// What its next pods ask for; of a victim: what it would give next.
    pub amount: Shared,
}

/// Who waits, by what is asked for.
type ByAmount = BTreeMap<Shared, BTreeSet<JobOrder>>;

fn by_amount(waiting: &BTreeMap<JobOrder, Standing>) -> ByAmount {
    let mut by_amount = ByAmount::new();
    for (order, standing) in waiting {
        by_amount.entry(standing.amount).or_default().insert(order.clone());
    }
    by_amount
}

/// Those who come to stand in the two lines of a queue.
#[derive(Debug, Default)]
struct Arrivals {
    waiting: Vec<GangId>,
    victims: Vec<GangId>,
}

/// So few of them are new that going through all would take longer.
fn is_few(new: usize, there: usize) -> bool {
    new < 16 || new < there / 8
}

/// The two lines of a leaf queue.
#[derive(Debug, Default)]
pub struct Line {
    /// Gangs with pods to place, best first.
    pub waiting: BTreeMap<JobOrder, Standing>,
    /// The same by amount, from when the first asked for something else than the others until nobody waits.
    by_amount: Option<ByAmount>,
    /// Preemptible gangs with active pods, best first.
    pub victims: BTreeMap<JobOrder, Standing>,
    /// How many victims hold how many GPUs.
    sizes: BTreeMap<i64, usize>,
    arrivals: Arrivals,
}

impl Line {
    /// Where the next gang in the line is that asks for something else than `amount`.
    #[must_use]
    pub fn next_unlike(&self, after: &JobOrder, amount: &Shared) -> Option<&JobOrder> {
        let rest = (Bound::Excluded(after), Bound::Unbounded);
        let Some(by_amount) = &self.by_amount else {
            let (order, next) = self.waiting.range::<JobOrder, _>(rest).next()?;
            return (next.amount != *amount).then_some(order);
        };
        let others = by_amount.iter().filter(|(other, _)| *other != amount);
        others
            .filter_map(|(_, set)| set.range::<JobOrder, _>(rest).next())
            .min()
    }

    /// A gang waits.
    fn enter(&mut self, order: JobOrder, standing: Standing) {
        let first = self.waiting.first_key_value();
        if self.by_amount.is_none() && first.is_some_and(|(_, other)| other.amount != standing.amount) {
            self.by_amount = Some(by_amount(&self.waiting));
        }
        if let Some(by_amount) = &mut self.by_amount {
            by_amount.entry(standing.amount).or_default().insert(order.clone());
        }
        self.waiting.insert(order, standing);
    }

    /// The arrivals take their places; many at once are sorted first. `waits` and `loses` tell where a gang belongs, and what it asks for or would lose next.
    fn join(
        &mut self,
        waits: impl Fn(GangId) -> Option<(JobOrder, Standing)>,
        loses: impl Fn(GangId) -> Option<(JobOrder, Standing)>,
    ) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let waiting = arrivals.waiting.iter().filter_map(|gang| waits(*gang));
        let victims = arrivals.victims.iter().filter_map(|gang| loses(*gang));
        if is_few(arrivals.waiting.len(), self.waiting.len()) {
            waiting.for_each(|(order, standing)| self.enter(order, standing));
        } else {
            let mut waiting: BTreeMap<_, _> = waiting.collect();
            self.waiting.append(&mut waiting);
            let mut amounts = self.waiting.values().map(|standing| standing.amount);
            let first = amounts.next();
            let several = self.by_amount.is_some() || amounts.any(|amount| Some(amount) != first);
            self.by_amount = several.then(|| by_amount(&self.waiting));
        }
        if is_few(arrivals.victims.len(), self.victims.len()) {
            self.victims.extend(victims);
        } else {
            let mut victims: BTreeMap<_, _> = victims.collect();
            self.victims.append(&mut victims);
        }
        // Their room is kept for those who come next.
        arrivals.waiting.clear();
        arrivals.victims.clear();
        self.arrivals = arrivals;
    }

    /// A gang waits no more.
    fn leave(&mut self, order: &JobOrder, amount: &Shared) {
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

/// Where a gang stands.
#[derive(Debug, Default)]
struct Entry {
    queue: Option<QueueId>,
    /// Its place in the lines, if it stands in any.
    order: Option<JobOrder>,
    /// What it asks for, if it waits.
    waiting: Option<Shared>,
    /// How many GPUs it holds, if it may be a victim.
    victim: Option<i64>,
}

/// All lines.
#[derive(Debug, Default)]
pub struct Lines {
    lines: Vec<Line>,
    entries: Vec<Entry>,
    divisor: Option<i64>,
    /// Queues whose lines have arrivals.
    awaited: Vec<QueueId>,
}

impl Lines {
    /// The lines of a queue.
    #[must_use]
    pub fn of(&self, queue: QueueId) -> Option<&Line> {
        self.lines.get(queue.at())
    }

    /// Where a gang waits, and what it asks for.
    #[must_use]
    pub fn waiting(&self, gang: GangId) -> Option<(QueueId, &JobOrder, Shared)> {
        let entry = self.entries.get(gang.at())?;
        Some((entry.queue?, entry.order.as_ref()?, entry.waiting?))
    }

    /// All queues with lines, empty ones too.
    pub fn queues(&self) -> impl Iterator<Item = (QueueId, &Line)> {
        let numbered = self.lines.iter().enumerate();
        numbered.map(|(at, line)| (QueueId::of(at), line))
    }

    /// Starts anew, because the rules changed.
    pub fn clear(&mut self, model: &mut Model) {
        *self = Self::default();
        model.moved = model.gangs.ids().collect();
    }

    /// Puts every gang that changed where it belongs.
    pub fn update(&mut self, model: &mut Model, rules: Rules, now: Time) {
        let divisor = smallest_gpu(model);
        if self.divisor != divisor {
            self.divisor = divisor;
            model.moved = model.gangs.ids().collect();
        }
        let mut moved = std::mem::take(&mut model.moved);
        if moved.len() > 1 {
            // One run for each kind of event that told of them, mostly.
            moved.sort();
            moved.dedup();
        }
        for &gang in &moved {
            self.put(model, rules, gang, now);
        }
        for queue in self.awaited.drain(..) {
            let entries = &self.entries;
            let waits = |gang: GangId| {
                let entry = &entries[gang.at()];
                let amount = entry.waiting?;
                Some((entry.order.clone()?, Standing { gang, amount }))
            };
            let loses = |gang: GangId| {
                let amount = next_loss(model, gang);
                Some((entries[gang.at()].order.clone()?, Standing { gang, amount }))
            };
            self.lines[queue.at()].join(waits, loses);
        }
        moved.clear();
        model.moved = moved;
    }

    /// Takes a gang out of the lines where it stood; where it is to stand it arrives.
    fn put(&mut self, model: &Model, rules: Rules, id: GangId, now: Time) {
        // There is always room for a while: whoever comes next must not wait until all entries are moved.
        if self.entries.capacity() == 0 {
            self.entries.reserve(model.gangs.slots() * 3 / 2);
        }
        if self.entries.len() <= id.at() {
            self.entries.resize_with(id.at() + 1, Entry::default);
        }
        let fresh = if model.gangs.contains(id) {
            entry(model, rules, id, now)
        } else {
            Entry::default()
        };
        let old = std::mem::replace(&mut self.entries[id.at()], fresh);
        if let Some(line) = old.queue.and_then(|queue| self.lines.get_mut(queue.at())) {
            leave(line, old);
        }
        let fresh = &self.entries[id.at()];
        let Some(queue) = fresh.queue else { return };
        if self.lines.len() <= queue.at() {
            self.lines.resize_with(queue.at() + 1, Line::default);
        }
        if fresh.waiting.is_none() && fresh.victim.is_none() {
            return;
        }
        let line = &mut self.lines[queue.at()];
        if line.arrivals.waiting.is_empty() && line.arrivals.victims.is_empty() {
            self.awaited.push(queue);
        }
        if fresh.waiting.is_some() {
            line.arrivals.waiting.push(id);
        }
        if let Some(gpus) = fresh.victim {
            line.arrivals.victims.push(id);
            *line.sizes.entry(gpus).or_insert(0) += 1;
        }
    }
}

/// What a gang loses next.
fn next_loss(model: &Model, gang: GangId) -> Shared {
    let gang = &model.gangs[gang];
    if let [only] = *gang.tasks {
        return requests(model, &[only]);
    }
    let tasks: Vec<TaskId> = evictable(model, gang).collect();
    requests(model, &next_victims(model, gang, &tasks))
}

fn leave(line: &mut Line, old: Entry) {
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

fn entry(model: &Model, rules: Rules, id: GangId, now: Time) -> Entry {
    let gang = &model.gangs[id];
    let (Some(queue), Some(input)) = (gang.queue, &gang.input) else {
        return Entry::default();
    };
    let active = gang.active();
    let holds = input.preemptible && active.iter().any(|count| *count > 0);
    let victim = holds.then(|| evictable(model, gang).map(|task| model.accepted(task)[GPUS]).sum());
    let mut waiting = None;
    if gang.waits() && !input.left_alone() && gang.broken.is_none() && gang.ready() {
        let tasks = model.next_chunk(id, now);
        if !tasks.is_empty() {
            waiting = Some(wanted(model, &tasks, smallest_gpu(model)));
        }
    }
    let stands = waiting.is_some() || victim.is_some();
    Entry {
        queue: Some(queue),
        order: stands.then(|| rules.job(gang, gang.stage(&active))),
        waiting,
        victim,
    }
}

/// Pods of a gang that eviction would remove from somewhere.
pub fn evictable<'a>(model: &'a Model, gang: &'a Gang) -> impl Iterator<Item = TaskId> + 'a {
    gang.tasks.iter().copied().filter(|task| {
        let task = &model.tasks[*task];
        task.member.is_some() && task.state.status.active_allocated()
    })
}

/// What pods hold, as far as their requests say it.
#[must_use]
pub fn requests(model: &Model, tasks: &[TaskId]) -> Shared {
    let mut sum = [0; 3];
    for task in tasks {
        add(&mut sum, &model.shapes[model.tasks[*task].shape].quota, 1);
    }
    sum
}

/// How many of these pods each member of the gang has.
#[must_use]
pub fn active_of(model: &Model, gang: &Gang, tasks: &[TaskId]) -> PerMember {
    let mut active = PerMember::from_elem(0, gang.tree.len());
    for task in tasks {
        if let Some(member) = model.tasks[*task].member {
            active[member as usize] += 1;
        }
    }
    active
}

/// The pods that a gang of which these are left can best do without: what it loses next. Its queue is robbed by that much, not by all that the gang holds.
/// A pod whose eviction was refused a moment ago goes after its like.
#[must_use]
pub fn next_victims(model: &Model, gang: &Gang, tasks: &[TaskId]) -> Tasks {
    if let [only] = *tasks {
        return Tasks::from_slice(&[only]);
    }
    let mut left = tasks.to_vec();
    left.sort_unstable();
    let pods_of = |member| -> Tasks {
        let pods = gang.pods(member).map(|pods| &*pods.tasks).unwrap_or_default();
        let here = pods.iter().copied();
        let mut here: Tasks = here.filter(|task| left.binary_search(task).is_ok()).collect();
        if model.refused(here.iter().copied()) {
            here.sort_by_key(|task| model.tasks[*task].retry_at.is_none());
        }
        here
    };
    gang.evict_chunk(&active_of(model, gang, tasks), &pods_of)
}

#[cfg(test)]
mod tests;
