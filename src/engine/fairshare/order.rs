//! Which of two sibling queues comes first, and which of two pod groups of a queue.

use std::cmp::{Ordering, Reverse};

use crate::engine::input::{GPU, GroupKey, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::model::pod_group::{PodGroup, Stage};
use crate::engine::model::resources::{GPUS, Shared, add, plus};
use crate::engine::policy::Policy;

/// A queue in a comparison: what its best pod group requests, and what the victims chosen so far would release.
#[derive(Clone, Copy, Debug)]
pub struct QueueCandidate {
    /// The queue.
    pub queue: QueueId,
    /// What the pod group requests.
    pub entry: Shared,
    /// What victims hold.
    pub victims: Shared,
}

/// A share as a fraction; larger is worse.
type Ratio = (i128, i128);

fn compare_ratios(left: Ratio, right: Ratio) -> Ordering {
    (left.0 * right.1).cmp(&(right.0 * left.1))
}

fn within(amount: &Shared, of: impl Fn(usize) -> Option<i64>) -> bool {
    (0..3).all(|resource| of(resource).is_none_or(|bound| amount[resource] <= bound))
}

/// Dominant share: the largest share of the queue's allocatable amount that `amount` takes, over the three resources.
fn dominant(model: &Model, queue: QueueId, amount: &Shared) -> Ratio {
    let queue = &model.queues()[queue];
    let mut most: Ratio = (0, 1);
    for resource in 0..3 {
        let amount = i128::from(amount[resource]);
        let ratio = match queue.allocatable(resource).unwrap_or(model.total()[resource]) {
            0 if resource == GPUS => (amount * 1000, i128::from(GPU)),
            0 => (amount * 1000, 1),
            may => (amount, i128::from(may)),
        };
        if ratio.1 > 0 && compare_ratios(ratio, most) == Ordering::Greater {
            most = ratio;
        }
    }
    most
}

/// Sort key of a queue with its best pod group.
#[derive(Clone, Copy, Debug)]
pub struct QueueOrder {
    queue: QueueId,
    /// More is allocated than its fair share, in all three resources.
    over: bool,
    /// With the pod group it would exceed its quota of some resource.
    over_quota_with_pod_group: bool,
    priority: i64,
    /// With the pod group it would hold a resource of which its allocatable amount is 0.
    violates: bool,
    /// The dominant share with the pod group, without the victims so far.
    after: Ratio,
    /// The dominant share now.
    held: Ratio,
}

impl QueueOrder {
    /// The key of a queue, from the current model.
    #[must_use]
    pub fn of(model: &Model, one: &QueueCandidate) -> Self {
        let queue = &model.queues()[one.queue];
        let with_job = plus(&queue.allocated, &one.entry);
        let mut rest = with_job;
        add(&mut rest, &one.victims, -1);
        Self {
            queue: one.queue,
            over: (0..3).all(|resource| queue.fair[resource] < queue.allocated[resource]),
            over_quota_with_pod_group: !within(&with_job, |resource| queue.share(resource).quota),
            priority: queue.input.as_ref().map_or(0, |input| input.priority),
            violates: (0..3).any(|resource| queue.allocatable(resource) == Some(0) && with_job[resource] > 0),
            after: dominant(model, one.queue, &rest),
            held: dominant(model, one.queue, &queue.allocated),
        }
    }

    /// Which queue comes first; `Less` = this one. Never equal for two different queues.
    #[must_use]
    pub fn compare(&self, other: &Self, model: &Model) -> Ordering {
        let flags = |one: &Self| {
            (
                one.over,
                one.over_quota_with_pod_group,
                Reverse(one.priority),
                one.violates,
            )
        };
        flags(self)
            .cmp(&flags(other))
            .then_with(|| compare_ratios(self.after, other.after))
            .then_with(|| compare_ratios(self.held, other.held))
            .then_with(|| by_allocatable(model, self.queue, other.queue))
            .then_with(|| by_age(model, self.queue, other.queue))
    }
}

/// Which queue comes first; `Less` = left. Never equal for two different queues.
#[must_use]
pub fn compare_queues(model: &Model, left: &QueueCandidate, right: &QueueCandidate) -> Ordering {
    QueueOrder::of(model, left).compare(&QueueOrder::of(model, right), model)
}

/// The queue with a smaller allocatable amount of some resource and a larger one of none goes first.
fn by_allocatable(model: &Model, left: QueueId, right: QueueId) -> Ordering {
    let (left, right) = (&model.queues()[left], &model.queues()[right]);
    let (mut less, mut more) = (false, false);
    for resource in 0..3 {
        match (left.allocatable(resource), right.allocatable(resource)) {
            (None, None) => {}
            (None, Some(_)) => more = true,
            (Some(_), None) => less = true,
            (Some(one), Some(other)) => {
                less |= one < other;
                more |= one > other;
            }
        }
    }
    match (less, more) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (true, true) | (false, false) => Ordering::Equal,
    }
}

/// Age, then name.
#[must_use]
pub fn by_age(model: &Model, left: QueueId, right: QueueId) -> Ordering {
    let key = |id: QueueId| {
        let queue = &model.queues()[id];
        (queue.input.as_ref().map_or(Time(0), |input| input.created), &queue.name)
    };
    key(left).cmp(&key(right))
}

/// A pod group's sort key among the pod groups of its queue; the smallest comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodGroupOrder {
    /// Negated priority.
    pub priority: i64,
    /// Whether it is below, at or above its minimum.
    pub stage: Stage,
    /// Age.
    pub created: Time,
    /// Name, then namespace.
    pub key: GroupKey,
}

/// Which rules of order are switched on.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Queues are compared by share.
    pub shares: bool,
    /// Higher priority first.
    pub priority: bool,
    /// Below the minimum first.
    pub elastic: bool,
}

impl Rules {
    /// Those of a policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let plugins = &policy.plugins;
        Self {
            shares: plugins.proportion.is_some(),
            priority: plugins.priority,
            elastic: plugins.elastic,
        }
    }

    /// The sort key of a pod group at a stage.
    #[must_use]
    pub fn pod_group(&self, pod_group: &PodGroup, stage: Stage) -> PodGroupOrder {
        let (priority, created) = pod_group
            .input
            .as_ref()
            .map_or((0, Time(0)), |input| (input.priority, input.created));
        PodGroupOrder {
            priority: if self.priority { -priority } else { 0 },
            stage: if self.elastic { stage } else { Stage::Exact },
            created,
            key: pod_group.key.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
