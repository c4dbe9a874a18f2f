//! Jobs waiting for their turn: at every step all queues of a level are compared anew, from the top down, and then all jobs of the queue that is found.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::fairshare::order::{Contender, JobOrder, Rules, by_age, compare_queues};
use crate::engine::fairshare::tree::{Purpose, schedulable_queue};
use crate::engine::model::Model;
use crate::engine::model::gang::Tasks;
use crate::engine::model::ids::{GangId, QueueId};
use crate::engine::model::resources::{Shared, add, plus};

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

/// All jobs in line, in no order.
#[derive(Debug)]
pub struct JobTree {
    rules: Rules,
    purpose: Purpose,
    jobs: Vec<(QueueId, Job)>,
    /// What victims taken so far hold, by leaf queue.
    popped: BTreeMap<QueueId, Shared>,
}

impl JobTree {
    /// An empty tree.
    #[must_use]
    pub fn new(rules: Rules, purpose: Purpose) -> Self {
        Self {
            rules,
            purpose,
            jobs: Vec::new(),
            popped: BTreeMap::new(),
        }
    }

    /// Puts a job in line; ignored if its queue takes no jobs.
    pub fn push(&mut self, model: &Model, job: Job) {
        self.jobs
            .extend(schedulable_queue(model, job.gang).map(|queue| (queue, job)));
    }

    /// Takes the next job.
    pub fn pop(&mut self, model: &Model) -> Option<Job> {
        let leaf = self.best_leaf(model, None)?;
        let at = self.next_of(leaf)?;
        let (_, job) = self.jobs.swap_remove(at);
        if self.purpose == Purpose::Rob {
            add(self.popped.entry(leaf).or_default(), &job.amount, 1);
        }
        Some(job)
    }

    /// What was taken of a victim in the end.
    pub fn took(&mut self, model: &Model, job: &Job, taken: &Shared) {
        if let Some(queue) = schedulable_queue(model, job.gang)
            && let Some(popped) = self.popped.get_mut(&queue)
        {
            add(popped, &job.amount, -1);
            add(popped, taken, 1);
        }
    }

    /// The leaf whose turn it is, below a queue or of all.
    fn best_leaf(&self, model: &Model, below: Option<QueueId>) -> Option<QueueId> {
        let leaves: BTreeSet<QueueId> = self.jobs.iter().map(|(leaf, _)| *leaf).collect();
        let children: BTreeSet<QueueId> = (leaves.iter())
            .filter_map(|leaf| model.path_up(*leaf).find(|queue| model.queues[*queue].parent == below))
            .collect();
        let best = children
            .into_iter()
            .map(|queue| {
                let leaf = if leaves.contains(&queue) {
                    queue
                } else {
                    self.best_leaf(model, Some(queue))
                        .expect("a queue with leaves below it")
                };
                (queue, leaf)
            })
            .min_by(|left, right| self.compare(model, *left, *right));
        best.map(|(_, leaf)| leaf)
    }

    /// The position of the job whose turn it is in a leaf.
    fn next_of(&self, leaf: QueueId) -> Option<usize> {
        let jobs = self.jobs.iter().enumerate().filter(|(_, (queue, _))| *queue == leaf);
        let place = |(_, (_, job)): &(usize, &(QueueId, Job))| (job.order.clone(), job.gang);
        let next = match self.purpose {
            Purpose::Serve => jobs.min_by_key(place),
            Purpose::Rob => jobs.max_by_key(place),
        };
        next.map(|(at, _)| at)
    }

    /// Which of two siblings is served (or robbed) first, each with the best leaf below it.
    fn compare(&self, model: &Model, left: (QueueId, QueueId), right: (QueueId, QueueId)) -> Ordering {
        let order = if self.rules.shares {
            compare_queues(model, &self.contender(left), &self.contender(right))
        } else {
            by_age(model, left.0, right.0)
        };
        match self.purpose {
            Purpose::Serve => order,
            Purpose::Rob => order.reverse(),
        }
    }

    /// A queue with the job that it would give next.
    fn contender(&self, (queue, leaf): (QueueId, QueueId)) -> Contender {
        let next = self.next_of(leaf).expect("a leaf with jobs");
        let amount = self.jobs[next].1.amount;
        match self.purpose {
            Purpose::Serve => Contender {
                queue,
                job: amount,
                victims: [0; 3],
            },
            Purpose::Rob => Contender {
                queue,
                job: [0; 3],
                victims: plus(&self.popped.get(&leaf).copied().unwrap_or_default(), &amount),
            },
        }
    }
}
