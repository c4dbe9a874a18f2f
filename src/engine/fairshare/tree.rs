//! Jobs waiting for their turn: the lines of leaf queues below a heap of queues per level. The best job is that of the best queue, level by level.
//!
//! A queue's place depends on its own counters and its best job alone, so only the queues above a popped or pushed job move. They are at the top of their
//! heaps when a job is popped, and are put in their place again before the next pop. The lines themselves are read, never changed: the tree remembers how far
//! it got in each, and what was put in line beside.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use crate::engine::model::Model;
use crate::engine::model::class::NodeSet;
use crate::engine::model::gang::Tasks;
use crate::engine::model::ids::{GangId, QueueId};
use crate::engine::model::resources::{Shared, add, plus};

use super::lines::{Lines, Standing};
use super::order::{Contender, JobOrder, QueueOrder, Rules, by_age};

/// A job in line.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its place in its queue.
    pub order: JobOrder,
    /// The gang.
    pub gang: GangId,
    /// What it asks for (pending jobs), or would give next (victims).
    pub amount: Shared,
    /// The pods that are meant, where it was put in line beside.
    pub tasks: Option<Tasks>,
}

/// A job whose turn it is.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The gang.
    pub gang: GangId,
    /// What it asks for, or would give next.
    pub amount: Shared,
    /// The pods that are meant, where it was put in line beside.
    pub tasks: Option<Tasks>,
}

/// Whether jobs are served or robbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Those who wait, best first.
    Serve,
    /// Those who hold something, worst first.
    Rob,
}

/// What to do with a gang found in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// It takes part.
    Take,
    /// It does not.
    Pass,
    /// Neither does any behind it.
    End,
}

/// What the tree looks at.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The cluster.
    pub model: &'a Model,
    /// Its lines.
    pub lines: &'a Lines,
    /// Which gangs take part.
    pub pick: &'a dyn Fn(GangId) -> Pick,
}

/// The tree.
#[derive(Debug)]
pub struct JobTree {
    rules: Rules,
    purpose: Purpose,
    /// How many jobs of each line take part.
    most: usize,
    /// Of jobs in a line that ask for the same, one after the other, only the first is given.
    skim: bool,
    /// By queue.
    leaves: Vec<(QueueId, Leaf)>,
    /// Queues with jobs under each inner queue; `None` is the top. Empty until the first pop.
    levels: BTreeMap<Option<QueueId>, Level>,
    built: bool,
    /// The leaf whose next is still to be found: mostly nobody asks for a second victim.
    due: Option<QueueId>,
    /// Gangs taken from their lines.
    seen: NodeSet,
}

/// How far a line was walked, and who was put in line beside.
#[derive(Debug)]
struct Leaf {
    /// Where the rest of the line begins, or ends when robbing.
    rest: Bound<JobOrder>,
    /// The next of the line.
    next: Option<(JobOrder, Standing)>,
    taken: usize,
    beside: BTreeMap<JobOrder, Turn>,
    /// What victims taken so far hold.
    popped: Shared,
}

/// A queue among its siblings, and what its place goes by.
#[derive(Clone, Copy, Debug)]
struct Seat {
    queue: QueueId,
    /// `None`: it has no job, or queues are not compared by share.
    order: Option<QueueOrder>,
}

/// Sibling queues as a binary heap, best first.
#[derive(Debug, Default)]
struct Level {
    heap: Vec<Seat>,
    /// The first may no longer be the best.
    stale: bool,
}

impl JobTree {
    /// An empty tree, to be given lines.
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
        }
    }

    /// Only so many jobs of each line take part, the best ones.
    #[must_use]
    pub fn at_most(mut self, most: usize) -> Self {
        self.most = most;
        self
    }

    /// Jobs of a line that cannot change anybody's turn are left out.
    #[must_use]
    pub fn skimming(mut self) -> Self {
        self.skim = true;
        self
    }

    /// Adds the lines of the queues that meet a condition.
    pub fn add_lines(&mut self, view: View, meets: impl Fn(QueueId) -> bool) {
        for (queue, line) in view.lines.queues() {
            let empty = match self.purpose {
                Purpose::Serve => line.waiting.is_empty(),
                Purpose::Rob => line.victims.is_empty(),
            };
            if !empty && open(view.model, queue) && meets(queue) {
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

    /// The leaf of a queue; a new one walks its line from a place on.
    fn leaf_or(&mut self, queue: QueueId, from: impl FnOnce() -> Bound<JobOrder>) -> &mut Leaf {
        let found = self.leaves.binary_search_by_key(&queue, |(other, _)| *other);
        let at = found.unwrap_or_else(|at| {
            self.leaves.insert(at, (queue, Leaf::new(from())));
            at
        });
        &mut self.leaves[at].1
    }

    /// Finds the next of a line.
    fn advance(&mut self, view: View, queue: QueueId) {
        let (Some(at), Some(line)) = (self.place_of(queue), view.lines.of(queue)) else {
            return;
        };
        let leaf = &mut self.leaves[at].1;
        leaf.next = None;
        if leaf.taken >= self.most {
            return;
        }
        let seen = &self.seen;
        let mut found = None;
        let mut look = |(order, standing): (&JobOrder, &Standing)| {
            if seen.has(standing.gang.at()) {
                return false;
            }
            match (view.pick)(standing.gang) {
                Pick::Take => found = Some((order.clone(), *standing)),
                Pick::Pass => return false,
                Pick::End => {}
            }
            true
        };
        match self.purpose {
            Purpose::Serve => line
                .waiting
                .range((leaf.rest.as_ref(), Bound::Unbounded))
                .any(&mut look),
            Purpose::Rob => line
                .victims
                .range((Bound::Unbounded, leaf.rest.as_ref()))
                .rev()
                .any(&mut look),
        };
        leaf.next = found;
    }

    /// Puts a job in line beside; ignored if its queue takes no jobs.
    pub fn push(&mut self, view: View, job: Job) {
        let Some(queue) = schedulable_queue(view.model, job.gang) else {
            return;
        };
        if self.built {
            self.freshen(view.model, None);
        }
        let leaf = self.leaf_or(queue, || Bound::Excluded(job.order.clone()));
        let turn = Turn {
            gang: job.gang,
            amount: job.amount,
            tasks: job.tasks,
        };
        leaf.beside.insert(job.order, turn);
        if self.built {
            self.moved(view.model, queue);
        }
    }

    /// A gang that is still in its line stays where it is there, whatever becomes of it.
    pub fn hold(&mut self, view: View, gang: GangId) {
        if self.seen.has(gang.at()) || (view.pick)(gang) != Pick::Take {
            return;
        }
        let Some((queue, order, amount)) = view.lines.waiting(gang) else {
            return;
        };
        let Some(leaf) = self.leaf_mut(queue) else {
            return;
        };
        let turn = Turn {
            gang,
            amount,
            tasks: None,
        };
        leaf.beside.insert(order.clone(), turn);
        self.seen.add(gang.at());
        self.advance(view, queue);
    }

    /// Counters of queues changed that no popped job belongs to: all are compared anew.
    pub fn recount(&mut self) {
        self.built = false;
    }

    /// Takes the next job.
    pub fn pop(&mut self, view: View) -> Option<Turn> {
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
            let parent = model.queues[queue].parent;
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

    /// The leaf that has all jobs, so that there is nothing to compare.
    fn only_leaf(&self) -> Option<QueueId> {
        let mut filled = self.leaves.iter().filter(|(_, leaf)| leaf.filled());
        let (queue, _) = filled.next()?;
        filled.next().is_none().then_some(*queue)
    }

    /// Takes the first of a leaf, from its line or from beside.
    fn take(&mut self, view: View, queue: QueueId) -> Option<Turn> {
        let turn = self.first_of(view, queue)?;
        if self.purpose == Purpose::Rob {
            add(&mut self.leaf_mut(queue)?.popped, &turn.amount, 1);
        }
        Some(turn)
    }

    fn first_of(&mut self, view: View, queue: QueueId) -> Option<Turn> {
        let purpose = self.purpose;
        let at = self.place_of(queue)?;
        let leaf = &mut self.leaves[at].1;
        if leaf.line_first(purpose) {
            let (order, Standing { gang, amount }) = leaf.next.take()?;
            leaf.taken += 1;
            if self.skim {
                leaf.skim(view.lines, queue, &order, &amount);
            } else {
                leaf.rest = Bound::Excluded(order);
            }
            self.seen.add(gang.at());
            if self.purpose == Purpose::Rob && !self.built {
                self.due = Some(queue);
            } else {
                self.advance(view, queue);
            }
            let tasks = None;
            return Some(Turn { gang, amount, tasks });
        }
        let (_, turn) = match self.purpose {
            Purpose::Serve => leaf.beside.pop_first()?,
            Purpose::Rob => leaf.beside.pop_last()?,
        };
        Some(turn)
    }

    /// Builds all levels, from the bottom up.
    fn build(&mut self, model: &Model) {
        self.levels.clear();
        self.built = true;
        let mut members: BTreeMap<(usize, Option<QueueId>), Vec<QueueId>> = BTreeMap::new();
        for (leaf, _) in self.leaves.iter().filter(|(_, leaf)| leaf.filled()) {
            let depth = model.path_up(*leaf).count();
            for (above, queue) in model.path_up(*leaf).enumerate() {
                let siblings = members
                    .entry((depth - 1 - above, model.queues[queue].parent))
                    .or_default();
                if !siblings.contains(&queue) {
                    siblings.push(queue);
                }
            }
        }
        for ((_, parent), mut siblings) in members.into_iter().rev() {
            siblings.sort_by(|left, right| model.queues[*left].name.cmp(&model.queues[*right].name));
            self.levels.insert(parent, Level::default());
            for queue in siblings {
                self.enter(model, parent, queue);
            }
        }
    }

    fn enter(&mut self, model: &Model, parent: Option<QueueId>, queue: QueueId) {
        let seat = self.seat(model, queue);
        let level = self.levels.entry(parent).or_default();
        level.heap.push(seat);
        let position = level.heap.len() - 1;
        self.sift_up(model, parent, position);
    }

    /// A queue got another job: it and all above it find their places, or enter.
    fn moved(&mut self, model: &Model, leaf: QueueId) {
        let path: Vec<QueueId> = model.path_up(leaf).collect();
        for queue in path {
            let parent = model.queues[queue].parent;
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

    /// Makes the first of a level the best again, after the first of the level below it.
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

    /// Whether one position of a level is served (or robbed) before another.
    fn precedes(&self, model: &Model, parent: Option<QueueId>, one: usize, other: usize) -> bool {
        let heap = &self.levels[&parent].heap;
        let (left, right) = (&heap[one], &heap[other]);
        let order = match (&left.order, &right.order) {
            (Some(left), Some(right)) => left.compare(right, model),
            _ if self.rules.shares => return false,
            _ => by_age(model, left.queue, right.queue),
        };
        match self.purpose {
            Purpose::Serve => order == Ordering::Less,
            Purpose::Rob => order == Ordering::Greater,
        }
    }

    /// Judges the queue at a position anew.
    fn judge(&mut self, model: &Model, parent: Option<QueueId>, position: usize) {
        let seat = self.levels.get(&parent).and_then(|level| level.heap.get(position));
        if let Some(seat) = seat.map(|seat| self.seat(model, seat.queue))
            && let Some(level) = self.levels.get_mut(&parent)
        {
            level.heap[position] = seat;
        }
    }

    fn seat(&self, model: &Model, queue: QueueId) -> Seat {
        let contender = self.rules.shares.then(|| self.contender(queue)).flatten();
        Seat {
            queue,
            order: contender.map(|contender| QueueOrder::of(model, &contender)),
        }
    }

    /// A queue with the job that it would give next.
    fn contender(&self, queue: QueueId) -> Option<Contender> {
        let mut at = queue;
        while let Some(level) = self.levels.get(&Some(at)) {
            at = level.heap.first()?.queue;
        }
        let leaf = self.leaf(at)?;
        let next = leaf.first_amount(self.purpose)?;
        Some(match self.purpose {
            Purpose::Serve => Contender {
                queue,
                job: next,
                victims: [0; 3],
            },
            Purpose::Rob => Contender {
                queue,
                job: [0; 3],
                victims: plus(&leaf.popped, &next),
            },
        })
    }
}

impl Leaf {
    fn new(rest: Bound<JobOrder>) -> Self {
        Self {
            rest,
            next: None,
            taken: 0,
            beside: BTreeMap::new(),
            popped: [0; 3],
        }
    }

    /// Has jobs.
    fn filled(&self) -> bool {
        self.next.is_some() || !self.beside.is_empty()
    }

    /// Whether the line's next comes before who was put in line beside.
    fn line_first(&self, purpose: Purpose) -> bool {
        let Some((order, _)) = &self.next else { return false };
        match purpose {
            Purpose::Serve => self.beside.first_key_value().is_none_or(|(other, _)| order <= other),
            Purpose::Rob => self.beside.last_key_value().is_none_or(|(other, _)| order >= other),
        }
    }

    fn first_amount(&self, purpose: Purpose) -> Option<Shared> {
        if self.line_first(purpose) {
            return self.next.as_ref().map(|(_, standing)| standing.amount);
        }
        let beside = match purpose {
            Purpose::Serve => self.beside.first_key_value(),
            Purpose::Rob => self.beside.last_key_value(),
        };
        beside.map(|(_, turn)| turn.amount)
    }

    /// Passes over those who ask for the same as the one just taken: they would be taken next, one after the other, and nothing else would move.
    fn skim(&mut self, lines: &Lines, queue: QueueId, after: &JobOrder, amount: &Shared) {
        let unlike = lines.of(queue).and_then(|line| line.next_unlike(after, amount));
        let beside = self.beside.first_key_value().map(|(order, _)| order);
        let stop = match (unlike, beside) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        // Nobody unlike is left: the rest of the line would only be drained.
        self.rest = match stop {
            Some(order) => Bound::Included(order.clone()),
            None => {
                self.taken = usize::MAX;
                return;
            }
        };
    }
}

/// The leaf queue in which a gang's pods are scheduled, if there is one.
#[must_use]
pub fn schedulable_queue(model: &Model, gang: GangId) -> Option<QueueId> {
    model.gangs[gang].queue.filter(|queue| open(model, *queue))
}

/// Takes jobs.
fn open(model: &Model, id: QueueId) -> bool {
    let queue = &model.queues[id];
    queue.valid && queue.leaf()
}
