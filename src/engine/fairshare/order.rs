//! Which of two sibling queues is served first, and which of two jobs of a queue.

use std::cmp::Ordering;

use crate::engine::input::{GPU, Name, Time};
use crate::engine::model::Model;
use crate::engine::model::gang::{Gang, Stage};
use crate::engine::model::ids::QueueId;
use crate::engine::model::resources::{GPUS, Shared, plus};
use crate::engine::policy::{Plugin, Policy};

/// A queue in a comparison: what its best job asks for, and what its victims so far would give back.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// The queue.
    pub queue: QueueId,
    /// The job's requirement.
    pub job: Shared,
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

/// Largest share over the three resources that `amount` is of what the queue may have.
fn dominant(model: &Model, queue: QueueId, amount: &Shared) -> Ratio {
    let queue = &model.queues[queue];
    let mut most: Ratio = (0, 1);
    for resource in 0..3 {
        let amount = i128::from(amount[resource]);
        let ratio = match queue.allocatable(resource).unwrap_or(model.total[resource]) {
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

/// Which queue is served first; `Less` = left. Never equal for two different queues.
#[must_use]
pub fn compare_queues(model: &Model, left: &Contender, right: &Contender) -> Ordering {
    let with_job = |one: &Contender| plus(&model.queues[one.queue].allocated, &one.job);
    let (left_with, right_with) = (with_job(left), with_job(right));
    let over = |one: &Contender| {
        let queue = &model.queues[one.queue];
        (0..3).all(|resource| queue.fair[resource] < queue.allocated[resource])
    };
    let fed =
        |one: &Contender, amount: &Shared| !within(amount, |resource| model.queues[one.queue].share(resource).quota);
    let priority = |one: &Contender| model.queues[one.queue].input.as_ref().map_or(0, |input| input.priority);
    let violates = |one: &Contender, amount: &Shared| {
        let queue = &model.queues[one.queue];
        (0..3).any(|resource| queue.allocatable(resource) == Some(0) && amount[resource] > 0)
    };
    let after = |one: &Contender, amount: &Shared| {
        let mut rest = *amount;
        crate::engine::model::resources::add(&mut rest, &one.victims, -1);
        dominant(model, one.queue, &rest)
    };
    let held = |one: &Contender| dominant(model, one.queue, &model.queues[one.queue].allocated);
    (over(left).cmp(&over(right)))
        .then_with(|| fed(left, &left_with).cmp(&fed(right, &right_with)))
        .then_with(|| priority(right).cmp(&priority(left)))
        .then_with(|| violates(left, &left_with).cmp(&violates(right, &right_with)))
        .then_with(|| compare_ratios(after(left, &left_with), after(right, &right_with)))
        .then_with(|| compare_ratios(held(left), held(right)))
        .then_with(|| by_allocatable(model, left.queue, right.queue))
        .then_with(|| by_age(model, left.queue, right.queue))
}

/// The queue that may have less in something and more in nothing goes first.
fn by_allocatable(model: &Model, left: QueueId, right: QueueId) -> Ordering {
    let (left, right) = (&model.queues[left], &model.queues[right]);
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
        let queue = &model.queues[id];
        (queue.input.as_ref().map_or(Time(0), |input| input.created), &queue.name)
    };
    key(left).cmp(&key(right))
}

/// A job's place among the jobs of its queue; smaller is served first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobOrder {
    /// Negated priority.
    pub priority: i64,
    /// How far the gang is.
    pub stage: Stage,
    /// Age.
    pub created: Time,
    /// Name, then namespace.
    pub name: (Name, Name),
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
        let has = |test: fn(&Plugin) -> bool| policy.plugins.iter().any(test);
        Self {
            shares: has(|plugin| matches!(plugin, Plugin::Proportion { .. })),
            priority: has(|plugin| matches!(plugin, Plugin::Priority)),
            elastic: has(|plugin| matches!(plugin, Plugin::Elastic)),
        }
    }

    /// A job's place, with that stage.
    #[must_use]
    pub fn job(&self, gang: &Gang, stage: Stage) -> JobOrder {
        let (priority, created) = gang
            .input
            .as_ref()
            .map_or((0, Time(0)), |input| (input.priority, input.created));
        JobOrder {
            priority: if self.priority { -priority } else { 0 },
            stage: if self.elastic { stage } else { Stage::Exact },
            created,
            name: (gang.key.name.clone(), gang.key.namespace.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
