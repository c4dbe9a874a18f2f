//! The order in which pod groups are tried: the sorted pod groups of leaf queues below a heap of queues per level. The best pod group is that of the
//! best queue, level by level.
//!
//! A queue's position depends only on its own counters and its best pod group, so only the queues above a popped or pushed pod group move. They are at the
//! top of their heaps when a pod group is popped, and are sifted down before the next pop. The sorted pod groups are read, never changed:
//! the tree keeps a position in each queue's pod groups, and the pushed ones.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, QueueId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::pod_group::PodIds;
use crate::engine::model::resources::{Shared, add, plus};

use super::order::{PodGroupOrder, QueueCandidate, QueueOrder, Rules, by_age};
use super::sorted::{SortedEntry, SortedPodGroups};

/// The steps of a pod group that is popped. One that is looked at only, or an amount, is one step.
const STEPS_PER_POP: u64 = 4;

/// A pod group to be pushed.
#[derive(Clone, Debug)]
pub struct OrderEntry {
    /// Its place in its queue.
    pub order: PodGroupOrder,
    /// The pod group.
    pub pod_group: PodGroupId,
    /// What it requests (pending), or would release next (victims).
    pub amount: Shared,
    /// The pods concerned, if it was pushed.
    pub pods: Option<PodIds>,
}

/// The next pod group.
#[derive(Clone, Debug)]
pub struct Popped {
    /// The pod group.
    pub pod_group: PodGroupId,
    /// What it requests, or would release next.
    pub amount: Shared,
    /// The pods concerned, if it was pushed.
    pub pods: Option<PodIds>,
}

/// What the tree orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Pending pod groups, the first to be placed first.
    Pending,
    /// Possible victims, the first to lose pods first.
    Victims,
}

/// Whether a pod group of a queue takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// It takes part.
    Take,
    /// It does not take part.
    Pass,
    /// Neither it nor any after it in the queue's order.
    End,
}

/// Input of the tree.
pub struct View<'a> {
    /// The cluster.
    pub model: &'a Model,
    /// Its sorted pod groups.
    pub sorted: &'a SortedPodGroups,
    /// Which pod groups take part.
    pub pick: &'a mut dyn FnMut(PodGroupId) -> Pick,
}

impl<'a> View<'a> {
    /// A view of a model and its sorted pod groups.
    pub fn of(model: &'a Model, sorted: &'a SortedPodGroups, pick: &'a mut dyn FnMut(PodGroupId) -> Pick) -> Self {
        Self { model, sorted, pick }
    }
}

/// The tree.
#[derive(Debug)]
pub struct OrderTree {
    rules: Rules,
    purpose: Purpose,
    /// Limit on pod groups per queue.
    most: usize,
    /// Of consecutive pod groups of a queue with equal requests only the first is popped.
    skim: bool,
    /// By queue.
    leaves: Vec<(QueueId, Leaf)>,
    /// Queues with pod groups under each inner queue; `None` is the top. Empty until the first pop.
    levels: BTreeMap<Option<QueueId>, Level>,
    built: bool,
    /// The leaf whose next pod group is found only when needed, since a second victim seldom is.
    due: Option<QueueId>,
    /// Pod groups that were popped.
    seen: NodeSet,
    /// See [`OrderTree::steps`].
    steps: u64,
}

/// Position in the sorted pod groups of a queue, and what was pushed.
#[derive(Debug)]
struct Leaf {
    /// Where the remaining pod groups begin; for victims, where they end.
    rest: Bound<PodGroupOrder>,
    /// The next of the sorted pod groups.
    next: Option<(PodGroupOrder, SortedEntry)>,
    taken: usize,
    pushed: BTreeMap<PodGroupOrder, Popped>,
    /// What the victims popped so far hold.
    popped: Shared,
}

/// A queue among its siblings, with its sort key.
#[derive(Clone, Copy, Debug)]
struct QueueEntry {
    queue: QueueId,
    /// `None`: it has no pod group, or queues are not compared by share.
    order: Option<QueueOrder>,
}

/// Sibling queues as a binary heap, best first.
#[derive(Debug, Default)]
struct Level {
    heap: Vec<QueueEntry>,
    /// The first may be out of order.
    stale: bool,
}

impl OrderTree {
    /// A tree without queues.
    #[must_use]
    pub fn new(rules: Rules, purpose: Purpose) -> Self {
        Self {
            rules,
            purpose,
            most: usize::MAX,
            skim: false,
            leaves: Vec::new(),
            levels: BTreeMap::new(),
            built: false,
            due: None,
            seen: NodeSet::default(),
            steps: 0,
        }
    }

    /// The steps that the order has taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Limits the pod groups per queue to the first so many.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Pod groups that cannot change which queue comes next are left out.
    #[must_use]
    pub fn skimming(mut self) -> Self {
        self.skim = true;
        self
    }

    /// Adds the queues that meet a condition.
    pub fn add_queues(&mut self, view: &mut View, meets: impl Fn(QueueId) -> bool) {
        for (queue, line) in view.sorted.queues() {
            let empty = match self.purpose {
                Purpose::Pending => line.waiting.is_empty(),
                Purpose::Victims => line.victims.is_empty(),
            };
            if !empty && view.model.queues()[queue].schedulable() && meets(queue) {
                self.leaf_or(queue, || Bound::Unbounded);
                self.advance(view, queue);
            }
        }
    }

    fn place_of(&self, queue: QueueId) -> Option<usize> {
        self.leaves.binary_search_by_key(&queue, |(other, _)| *other).ok()
    }

    fn leaf(&self, queue: QueueId) -> Option<&Leaf> {
        Some(&self.leaves[self.place_of(queue)?].1)
    }

    fn leaf_mut(&mut self, queue: QueueId) -> Option<&mut Leaf> {
        let at = self.place_of(queue)?;
        Some(&mut self.leaves[at].1)
    }

    /// The leaf of a queue; a new one begins at a position.
    fn leaf_or(&mut self, queue: QueueId, from: impl FnOnce() -> Bound<PodGroupOrder>) -> &mut Leaf {
        let found = self.leaves.binary_search_by_key(&queue, |(other, _)| *other);
        let at = found.unwrap_or_else(|at| {
            self.leaves.insert(at, (queue, Leaf::new(from())));
            at
        });
        &mut self.leaves[at].1
    }

    /// Finds the next of the sorted pod groups.
    fn advance(&mut self, view: &mut View, queue: QueueId) {
        let (Some(at), Some(line)) = (self.place_of(queue), view.sorted.of(queue)) else {
            return;
        };
        let leaf = &mut self.leaves[at].1;
        leaf.next = None;
        if leaf.taken >= self.most {
            return;
        }
        let seen = &self.seen;
        let (mut found, mut looked_at) = (None, 0);
        let mut look = |(order, sorted_entry): (&PodGroupOrder, &SortedEntry)| {
            looked_at += 1;
            if seen.has(sorted_entry.pod_group.at()) {
                return false;
            }
            match (view.pick)(sorted_entry.pod_group) {
                Pick::Take => found = Some((order.clone(), *sorted_entry)),
                Pick::Pass => return false,
                Pick::End => {}
            }
            true
        };
        match self.purpose {
            Purpose::Pending => line
                .waiting
                .range((leaf.rest.as_ref(), Bound::Unbounded))
                .any(&mut look),
            Purpose::Victims => line
                .victims
                .range((Bound::Unbounded, leaf.rest.as_ref()))
                .rev()
                .any(&mut look),
        };
        leaf.next = found;
        self.steps += looked_at;
    }

    /// Pushes a pod group; ignored if its queue takes no pod groups.
    pub fn push(&mut self, view: &mut View, entry: OrderEntry) {
        let Some(queue) = schedulable_queue(view.model, entry.pod_group) else {
            return;
        };
        if self.built {
            self.freshen(view.model, None);
        }
        let leaf = self.leaf_or(queue, || Bound::Excluded(entry.order.clone()));
        let turn = Popped {
            pod_group: entry.pod_group,
            amount: entry.amount,
            pods: entry.pods,
        };
        leaf.pushed.insert(entry.order, turn);
        if self.built {
            self.moved(view.model, queue);
        }
    }

    /// Keeps the current position of a pod group that was not popped yet, although its order is about to change.
    pub fn keep_position(&mut self, view: &mut View, pod_group: PodGroupId) {
        if self.seen.has(pod_group.at()) || (view.pick)(pod_group) != Pick::Take {
            return;
        }
        let Some((queue, order, amount)) = view.sorted.waiting(pod_group) else {
            return;
        };
        let Some(leaf) = self.leaf_mut(queue) else {
            return;
        };
        let turn = Popped {
            pod_group,
            amount,
            pods: None,
        };
        leaf.pushed.insert(order.clone(), turn);
        self.seen.add(pod_group.at());
        self.advance(view, queue);
    }

    /// Recomputes the order of all queues, because counters changed of queues to which no popped pod group belongs.
    pub fn recount(&mut self) {
        self.built = false;
    }

    /// Takes the next pod group.
    pub fn pop(&mut self, view: &mut View) -> Option<Popped> {
        let model = view.model;
        if let Some(due) = self.due.take() {
            self.advance(view, due);
        }
        if !self.built {
            if let Some(only) = self.only_leaf() {
                return self.take(view, only);
            }
            self.build(model);
        }
        self.freshen(model, None);
        let mut at = self.levels.get(&None)?.heap.first()?.queue;
        while let Some(level) = self.levels.get(&Some(at)) {
            at = level.heap.first()?.queue;
        }
        let turn = self.take(view, at)?;
        let mut gone = !self.leaf(at)?.filled();
        for queue in model.path_up(at) {
            let parent = model.queues()[queue].parent;
            let Some(level) = self.levels.get_mut(&parent) else {
                break;
            };
            if gone {
                level.heap.swap_remove(0);
                gone = level.heap.is_empty();
                if gone {
                    self.levels.remove(&parent);
                } else {
                    self.sift_down(model, parent, 0);
                }
            } else {
                level.stale = true;
            }
        }
        Some(turn)
    }

    /// The leaf that has all pod groups, so that there is nothing to compare.
    fn only_leaf(&self) -> Option<QueueId> {
        let mut filled = self.leaves.iter().filter(|(_, leaf)| leaf.filled());
        let (queue, _) = filled.next()?;
        filled.next().is_none().then_some(*queue)
    }

    /// Takes the first of a leaf, from the sorted pod groups or from those pushed.
    fn take(&mut self, view: &mut View, queue: QueueId) -> Option<Popped> {
        let turn = self.first_of(view, queue)?;
        self.steps += STEPS_PER_POP;
        if self.purpose == Purpose::Victims {
            add(&mut self.leaf_mut(queue)?.popped, &turn.amount, 1);
        }
        Some(turn)
    }

    fn first_of(&mut self, view: &mut View, queue: QueueId) -> Option<Popped> {
        let purpose = self.purpose;
        let at = self.place_of(queue)?;
        let leaf = &mut self.leaves[at].1;
        if leaf.line_first(purpose) {
            let (order, SortedEntry { pod_group, amount }) = leaf.next.take()?;
            leaf.taken += 1;
            if self.skim {
                self.steps += leaf.skim(view.sorted, queue, &order, &amount) as u64;
            } else {
                leaf.rest = Bound::Excluded(order);
            }
            self.seen.add(pod_group.at());
            if self.purpose == Purpose::Victims && !self.built {
                self.due = Some(queue);
            } else {
                self.advance(view, queue);
            }
            let pods = None;
            return Some(Popped {
                pod_group,
                amount,
                pods,
            });
        }
        let (_, turn) = match self.purpose {
            Purpose::Pending => leaf.pushed.pop_first()?,
            Purpose::Victims => leaf.pushed.pop_last()?,
        };
        Some(turn)
    }

    /// Builds all levels, from the bottom up.
    fn build(&mut self, model: &Model) {
        self.levels.clear();
        self.built = true;
        let mut members: BTreeMap<(usize, Option<QueueId>), Vec<QueueId>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (leaf, _) in self.leaves.iter().filter(|(_, leaf)| leaf.filled()) {
            self.steps += 1;
            let depth = model.path_up(*leaf).count();
            for (above, queue) in model.path_up(*leaf).enumerate() {
                // Then all above it have been, too.
                if !seen.insert(queue) {
                    break;
                }
                let place = (depth - 1 - above, model.queues()[queue].parent);
                members.entry(place).or_default().push(queue);
            }
        }
        for ((_, parent), mut siblings) in members.into_iter().rev() {
            siblings.sort_by(|left, right| model.queues()[*left].name.cmp(&model.queues()[*right].name));
            self.levels.insert(parent, Level::default());
            for queue in siblings {
                self.enter(model, parent, queue);
            }
        }
    }

    fn enter(&mut self, model: &Model, parent: Option<QueueId>, queue: QueueId) {
        let queue_entry = self.queue_entry(model, queue);
        let level = self.levels.entry(parent).or_default();
        level.heap.push(queue_entry);
        let position = level.heap.len() - 1;
        self.sift_up(model, parent, position);
    }

    /// Moves or inserts a queue and all above it, because its next pod group changed.
    fn moved(&mut self, model: &Model, leaf: QueueId) {
        let path: Vec<QueueId> = model.path_up(leaf).collect();
        for queue in path {
            let parent = model.queues()[queue].parent;
            let position = self
                .levels
                .get(&parent)
                .and_then(|level| level.heap.iter().position(|other| other.queue == queue));
            match position {
                None => self.enter(model, parent, queue),
                Some(position) => {
                    self.judge(model, parent, position);
                    self.sift_up(model, parent, position);
                    self.sift_down(model, parent, position);
                }
            }
        }
    }

    /// Restores the heap order of a level whose first may be out of order, the level below it first.
    fn freshen(&mut self, model: &Model, parent: Option<QueueId>) {
        let Some(level) = self.levels.get_mut(&parent) else {
            return;
        };
        if std::mem::take(&mut level.stale)
            && let Some(&first) = level.heap.first()
        {
            self.freshen(model, Some(first.queue));
            self.judge(model, parent, 0);
            self.sift_down(model, parent, 0);
        }
    }

    fn sift_up(&mut self, model: &Model, parent: Option<QueueId>, mut position: usize) {
        while position > 0 {
            let above = (position - 1) / 2;
            if !self.precedes(model, parent, position, above) {
                break;
            }
            self.swap(parent, position, above);
            position = above;
        }
    }

    fn sift_down(&mut self, model: &Model, parent: Option<QueueId>, mut position: usize) {
        loop {
            let count = self.levels.get(&parent).map_or(0, |level| level.heap.len());
            let below = (2 * position + 1..count.min(2 * position + 3)).reduce(|left, right| {
                if self.precedes(model, parent, right, left) {
                    right
                } else {
                    left
                }
            });
            match below {
                Some(below) if self.precedes(model, parent, below, position) => {
                    self.swap(parent, below, position);
                    position = below;
                }
                Some(_) | None => return,
            }
        }
    }

    fn swap(&mut self, parent: Option<QueueId>, one: usize, other: usize) {
        if let Some(level) = self.levels.get_mut(&parent) {
            level.heap.swap(one, other);
        }
    }

    /// Whether one position of a level comes before another.
    fn precedes(&self, model: &Model, parent: Option<QueueId>, one: usize, other: usize) -> bool {
        let heap = &self.levels[&parent].heap;
        let (left, right) = (&heap[one], &heap[other]);
        let order = match (&left.order, &right.order) {
            (Some(left), Some(right)) => left.compare(right, model),
            _ if self.rules.shares => return false,
            _ => by_age(model, left.queue, right.queue),
        };
        match self.purpose {
            Purpose::Pending => order == Ordering::Less,
            Purpose::Victims => order == Ordering::Greater,
        }
    }

    /// Recomputes the sort key of the queue at a position.
    fn judge(&mut self, model: &Model, parent: Option<QueueId>, position: usize) {
        let queue_entry = self.levels.get(&parent).and_then(|level| level.heap.get(position));
        if let Some(queue_entry) = queue_entry.map(|queue_entry| self.queue_entry(model, queue_entry.queue))
            && let Some(level) = self.levels.get_mut(&parent)
        {
            level.heap[position] = queue_entry;
        }
    }

    fn queue_entry(&self, model: &Model, queue: QueueId) -> QueueEntry {
        let candidate = self.rules.shares.then(|| self.candidate(queue)).flatten();
        QueueEntry {
            queue,
            order: candidate.map(|candidate| QueueOrder::of(model, &candidate)),
        }
    }

    /// A queue with its next pod group.
    fn candidate(&self, queue: QueueId) -> Option<QueueCandidate> {
        let mut at = queue;
        while let Some(level) = self.levels.get(&Some(at)) {
            at = level.heap.first()?.queue;
        }
        let leaf = self.leaf(at)?;
        let next = leaf.first_amount(self.purpose)?;
        Some(match self.purpose {
            Purpose::Pending => QueueCandidate {
                queue,
                entry: next,
                victims: [0; 3],
            },
            Purpose::Victims => QueueCandidate {
                queue,
                entry: [0; 3],
                victims: plus(&leaf.popped, &next),
            },
        })
    }
}

impl Leaf {
    fn new(rest: Bound<PodGroupOrder>) -> Self {
        Self {
            rest,
            next: None,
            taken: 0,
            pushed: BTreeMap::new(),
            popped: [0; 3],
        }
    }

    /// Whether it has pod groups.
    fn filled(&self) -> bool {
        self.next.is_some() || !self.pushed.is_empty()
    }

    /// Whether the next of the sorted pod groups comes before what was pushed.
    fn line_first(&self, purpose: Purpose) -> bool {
        let Some((order, _)) = &self.next else { return false };
        match purpose {
            Purpose::Pending => self.pushed.first_key_value().is_none_or(|(other, _)| order <= other),
            Purpose::Victims => self.pushed.last_key_value().is_none_or(|(other, _)| order >= other),
        }
    }

    fn first_amount(&self, purpose: Purpose) -> Option<Shared> {
        if self.line_first(purpose) {
            return self.next.as_ref().map(|(_, sorted_entry)| sorted_entry.amount);
        }
        let pushed = match purpose {
            Purpose::Pending => self.pushed.first_key_value(),
            Purpose::Victims => self.pushed.last_key_value(),
        };
        pushed.map(|(_, turn)| turn.amount)
    }

    /// Skips the pod groups that request the same as the one just popped: they would be popped next, and no queue would move. Returns the steps.
    fn skim(&mut self, sorted: &SortedPodGroups, queue: QueueId, after: &PodGroupOrder, amount: &Shared) -> usize {
        let line = sorted.of(queue);
        let (unlike, looked_at) = line.map_or((None, 0), |line| line.next_unlike(after, amount));
        let pushed = self.pushed.first_key_value().map(|(order, _)| order);
        let stop = match (unlike, pushed) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // All that are left request the same.
        self.rest = match stop {
            Some(order) => Bound::Included(order.clone()),
            None => {
                self.taken = usize::MAX;
                return looked_at;
            }
        };
        looked_at
    }
}

/// The leaf queue in which a pod group's pods are scheduled, if there is one.
#[must_use]
pub fn schedulable_queue(model: &Model, pod_group: PodGroupId) -> Option<QueueId> {
    let queue = model.pod_groups()[pod_group].queue;
    queue.filter(|queue| model.queues()[*queue].schedulable())
}
