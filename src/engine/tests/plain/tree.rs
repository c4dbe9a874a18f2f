//! Pod groups waiting for their turn: at every step all queues of a level are compared anew, from the top down, and then all pod groups of the queue that is found.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::fairshare::order::{PodGroupOrder, QueueCandidate, Rules, by_age, compare_queues};
use crate::engine::fairshare::tree::{Purpose, schedulable_queue};
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, QueueId};
use crate::engine::model::pod_group::PodIds;
use crate::engine::model::resources::{Shared, add, plus};

/// A pod group to be popped in its turn.
#[derive(Clone, Debug)]
pub struct OrderEntry {
    /// Its place in its queue.
    pub order: PodGroupOrder,
    /// The pod group.
    pub pod_group: PodGroupId,
    /// What it asks for (pending pod groups), or would give next (victims).
    pub amount: Shared,
    /// The pods that are meant, where not simply the pod group's next ones.
    pub pods: Option<PodIds>,
}

/// All pod groups, in no order.
#[derive(Debug)]
pub struct OrderTree {
    rules: Rules,
    purpose: Purpose,
    pod_groups: Vec<(QueueId, OrderEntry)>,
    /// What victims taken so far hold, by leaf queue.
    popped: BTreeMap<QueueId, Shared>,
}

impl OrderTree {
    /// An empty tree.
    #[must_use]
    pub fn new(rules: Rules, purpose: Purpose) -> Self {
        Self {
            rules,
            purpose,
            pod_groups: Vec::new(),
            popped: BTreeMap::new(),
        }
    }

    /// Pushes a pod group; ignored if its queue takes no pod groups.
    pub fn push(&mut self, model: &Model, entry: OrderEntry) {
        self.pod_groups
            .extend(schedulable_queue(model, entry.pod_group).map(|queue| (queue, entry)));
    }

    /// Takes the next pod group.
    pub fn pop(&mut self, model: &Model) -> Option<OrderEntry> {
        let leaf = self.best_leaf(model, None)?;
        let at = self.next_of(leaf)?;
        let (_, entry) = self.pod_groups.swap_remove(at);
        if self.purpose == Purpose::Victims {
            add(self.popped.entry(leaf).or_default(), &entry.amount, 1);
        }
        Some(entry)
    }

    /// What was taken of a victim in the end.
    pub fn took(&mut self, model: &Model, entry: &OrderEntry, taken: &Shared) {
        if let Some(queue) = schedulable_queue(model, entry.pod_group)
            && let Some(popped) = self.popped.get_mut(&queue)
        {
            add(popped, &entry.amount, -1);
            add(popped, taken, 1);
        }
    }

    /// The leaf whose turn it is, below a queue or of all.
    fn best_leaf(&self, model: &Model, below: Option<QueueId>) -> Option<QueueId> {
        let leaves: BTreeSet<QueueId> = self.pod_groups.iter().map(|(leaf, _)| *leaf).collect();
        let children: BTreeSet<QueueId> = (leaves.iter())
            .filter_map(|leaf| {
                model
                    .path_up(*leaf)
                    .find(|queue| model.queues()[*queue].parent == below)
            })
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

    /// The position of the pod group whose turn it is in a leaf.
    fn next_of(&self, leaf: QueueId) -> Option<usize> {
        let pod_groups = self
            .pod_groups
            .iter()
            .enumerate()
            .filter(|(_, (queue, _))| *queue == leaf);
        let place = |(_, (_, entry)): &(usize, &(QueueId, OrderEntry))| (entry.order.clone(), entry.pod_group);
        let next = match self.purpose {
            Purpose::Pending => pod_groups.min_by_key(place),
            Purpose::Victims => pod_groups.max_by_key(place),
        };
        next.map(|(at, _)| at)
    }

    /// Which of two siblings comes first (or loses pods first), each with the best leaf below it.
    fn compare(&self, model: &Model, left: (QueueId, QueueId), right: (QueueId, QueueId)) -> Ordering {
        let order = if self.rules.shares {
            compare_queues(model, &self.candidate(left), &self.candidate(right))
        } else {
            by_age(model, left.0, right.0)
        };
        match self.purpose {
            Purpose::Pending => order,
            Purpose::Victims => order.reverse(),
        }
    }

    /// A queue with the pod group that it would give next.
    fn candidate(&self, (queue, leaf): (QueueId, QueueId)) -> QueueCandidate {
        let next = self.next_of(leaf).expect("a leaf with jobs");
        let amount = self.pod_groups[next].1.amount;
        match self.purpose {
            Purpose::Pending => QueueCandidate {
                queue,
                entry: amount,
                victims: [0; 3],
            },
            Purpose::Victims => QueueCandidate {
                queue,
                entry: [0; 3],
                victims: plus(&self.popped.get(&leaf).copied().unwrap_or_default(), &amount),
            },
        }
    }
}
