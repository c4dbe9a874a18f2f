//! Jobs waiting for their turn: a heap of jobs per leaf queue, a heap of queues per level. The best job is that of the best queue, level by level.
//!
//! A queue's place depends on its own counters and its best job alone, so only the queues above a popped or pushed job move. They are at the top of their
//! heaps when a job is popped, and are put in their place again before the next pop.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::model::Model;
use crate::engine::model::gang::Tasks;
use crate::engine::model::ids::{GangId, QueueId};
use crate::engine::model::resources::{Shared, add, plus};

use crate::engine::fairshare::order::{Contender, JobOrder, Rules, by_age, compare_queues};

/// A job in line.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its place in its queue.
    pub order: JobOrder,
    /// The gang.
    pub gang: GangId,
    /// What it asks for (pending jobs), or would give next (victims).
    pub amount: Shared,
    /// The pods that are meant, where not simply the gang's next ones.
    pub tasks: Option<Tasks>,
}

/// Whether jobs are served or robbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Best first.
    Serve,
    /// Worst first.
    Rob,
}

/// The tree.
#[derive(Debug)]
pub struct JobTree {
    rules: Rules,
    purpose: Purpose,
    leaves: BTreeMap<QueueId, Leaf>,
    /// Queues with jobs under each inner queue; `None` is the top. Empty until the first pop.
    levels: BTreeMap<Option<QueueId>, Level>,
    built: bool,
}

/// Jobs of a leaf queue, best first.
#[derive(Debug, Default)]
struct Leaf {
    jobs: BTreeMap<(JobOrder, GangId), Job>,
    /// What victims taken so far hold.
    popped: Shared,
}

/// Sibling queues as a binary heap, best first.
#[derive(Debug, Default)]
struct Level {
    heap: Vec<QueueId>,
    /// The first may no longer be the best.
    stale: bool,
}

impl JobTree {
    /// An empty tree.
    #[must_use]
    pub fn new(rules: Rules, purpose: Purpose) -> Self {
        Self {
            rules,
            purpose,
            leaves: BTreeMap::new(),
            levels: BTreeMap::new(),
            built: false,
        }
    }

    /// Puts a job in line; ignored if its queue takes no jobs.
    pub fn push(&mut self, model: &Model, job: Job) {
        let Some(queue) = schedulable_queue(model, job.gang) else {
            return;
        };
        if self.built {
            self.freshen(model, None);
        }
        let leaf = self.leaves.entry(queue).or_default();
        leaf.jobs.insert((job.order.clone(), job.gang), job);
        if self.built {
            self.moved(model, queue);
        }
    }

    /// Takes the next job.
    pub fn pop(&mut self, model: &Model) -> Option<Job> {
        if !self.built {
            self.build(model);
        }
        self.freshen(model, None);
        let mut at = *self.levels.get(&None)?.heap.first()?;
        while let Some(level) = self.levels.get(&Some(at)) {
            at = *level.heap.first()?;
        }
        let leaf = self.leaves.get_mut(&at)?;
        let (_, job) = match self.purpose {
            Purpose::Serve => leaf.jobs.pop_first()?,
            Purpose::Rob => leaf.jobs.pop_last()?,
        };
        if self.purpose == Purpose::Rob {
            add(&mut leaf.popped, &job.amount, 1);
        }
        let mut gone = leaf.jobs.is_empty();
        let path: Vec<QueueId> = model.path_up(at).collect();
        for queue in path {
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
        Some(job)
    }

    /// What was taken of a victim in the end.
    pub fn took(&mut self, model: &Model, job: &Job, taken: &Shared) {
        if let Some(queue) = schedulable_queue(model, job.gang)
            && let Some(leaf) = self.leaves.get_mut(&queue)
        {
            add(&mut leaf.popped, &job.amount, -1);
            add(&mut leaf.popped, taken, 1);
        }
    }

    /// Builds all levels, from the bottom up.
    fn build(&mut self, model: &Model) {
        self.levels.clear();
        self.built = true;
        let mut members: BTreeMap<(usize, Option<QueueId>), Vec<QueueId>> = BTreeMap::new();
        for (leaf, _) in self.leaves.iter().filter(|(_, leaf)| !leaf.jobs.is_empty()) {
            let path: Vec<QueueId> = model.path_up(*leaf).collect();
            for (height, queue) in path.iter().rev().enumerate() {
                let siblings = members.entry((height, model.queues[*queue].parent)).or_default();
                if !siblings.contains(queue) {
                    siblings.push(*queue);
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
        let level = self.levels.entry(parent).or_default();
        level.heap.push(queue);
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
                .and_then(|level| level.heap.iter().position(|other| *other == queue));
            match position {
                None => self.enter(model, parent, queue),
                Some(position) => {
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
            self.freshen(model, Some(first));
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
        let (Some(left), Some(right)) = (self.contender(heap[one]), self.contender(heap[other])) else {
            return false;
        };
        let order = if self.rules.shares {
            compare_queues(model, &left, &right)
        } else {
            by_age(model, left.queue, right.queue)
        };
        match self.purpose {
            Purpose::Serve => order == Ordering::Less,
            Purpose::Rob => order == Ordering::Greater,
        }
    }

    /// A queue with the job that it would give next.
    fn contender(&self, queue: QueueId) -> Option<Contender> {
        let mut at = queue;
        while let Some(level) = self.levels.get(&Some(at)) {
            at = *level.heap.first()?;
        }
        let leaf = self.leaves.get(&at)?;
        Some(match self.purpose {
            Purpose::Serve => Contender {
                queue,
                job: leaf.jobs.first_key_value()?.1.amount,
                victims: [0; 3],
            },
            Purpose::Rob => {
                let next = leaf.jobs.last_key_value()?.1.amount;
                Contender {
                    queue,
                    job: [0; 3],
                    victims: plus(&leaf.popped, &next),
                }
            }
        })
    }
}
