//! The two checks of a queue before placement: its limit, and its quota for non-preemptible pods. Both at every level, from the leaf up.

use crate::engine::decision::{Figures, QueueFigures, ReasonCode};
use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::model::resources::Shared;

use super::wanted_of_queue;

/// A limit or quota that a request would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// Which of the two: `OverLimit` or `NonPreemptibleOverQuota`.
    pub code: ReasonCode,
    /// The queue whose limit or quota it is.
    pub queue: QueueId,
    /// The position of the resource.
    pub resource: usize,
}

/// The first limit that `asked` on top of what is allocated would pass.
#[must_use]
fn over_limit(model: &Model, queue: QueueId, asked: &Shared) -> Option<Exceeded> {
    let code = ReasonCode::OverLimit;
    model
        .over_limit(queue, asked)
        .map(|(queue, resource)| Exceeded { code, queue, resource })
}

/// The first quota that `asked` on top of what is non-preemptible would pass.
#[must_use]
pub fn over_quota(model: &Model, queue: QueueId, asked: &Shared) -> Option<Exceeded> {
    let code = ReasonCode::NonPreemptibleOverQuota;
    model
        .over_quota(queue, asked)
        .map(|(queue, resource)| Exceeded { code, queue, resource })
}

/// Checks limits, and quotas if the pod group is non-preemptible.
#[must_use]
pub fn check(model: &Model, queue: QueueId, preemptible: bool, asked: &Shared) -> Option<Exceeded> {
    over_limit(model, queue, asked).or_else(|| {
        if preemptible {
            None
        } else {
            over_quota(model, queue, asked)
        }
    })
}

/// The message, in KAI's words.
#[must_use]
pub fn message(model: &Model, exceeded: Exceeded, asked: &Shared) -> String {
    let queue = &model.queues()[exceeded.queue];
    let name = queue.input.as_ref().map_or(&queue.name, |input| &input.display);
    let resource = exceeded.resource;
    let show = |amount: Option<i64>| amount.map_or_else(|| "Unlimited".to_owned(), |amount| readable(amount, resource));
    let share = queue.share(resource);
    let (asked, held) = (show(Some(asked[resource])), show(Some(queue.allocated[resource])));
    if exceeded.code == ReasonCode::OverLimit {
        let (what, unit) = [("CPU cores", "cores"), ("memory", "GB"), ("GPUs", "GPUs")][resource];
        let limit = show(share.limit);
        return format!(
            "{name} quota has reached the allowable limit of {what}. Limit is {limit} {unit}, currently {held} {unit} allocated and workload requested {asked} {unit}"
        );
    }
    let (what, unit) = [("CPU cores", "cores"), ("GB memory", "GB"), ("GPUs", "GPUs")][resource];
    let (quota, held) = (show(share.quota), show(Some(queue.non_preemptible[resource])));
    format!(
        "Non-preemptible workload is over quota. Workload requested {asked} {what}, but {name} quota is {quota} {unit}, while {held} {unit} are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )
}

/// The queue's figures that go with the message.
#[must_use]
pub fn figures(model: &Model, exceeded: Exceeded, asked: &Shared, preemptible: bool) -> QueueFigures {
    let queue = &model.queues()[exceeded.queue];
    let some = |amounts: &Shared| -> Figures { amounts.map(Some) };
    let requested = wanted_of_queue(model, queue);
    QueueFigures {
        name: queue.name.clone(),
        requested: some(&requested),
        deserved: [0, 1, 2].map(|resource| queue.share(resource).quota),
        allocated: some(&queue.allocated),
        allocated_non_preemptible: some(&queue.non_preemptible),
        limit: [0, 1, 2].map(|resource| queue.share(resource).limit),
        group_requested: some(asked),
        group_requested_non_preemptible: some(if preemptible { &[0; 3] } else { asked }),
    }
}

/// An amount in cores, GB or GPUs, with at most three decimals.
#[must_use]
pub fn readable(amount: i64, resource: usize) -> String {
    let per_thousandth = [1, 1_000_000, GPU / 1000][resource];
    thousandths(amount / per_thousandth)
}

/// A number of thousandths as a decimal without trailing zeros.
#[must_use]
pub fn thousandths(amount: i64) -> String {
    let (sign, amount) = if amount < 0 { ("-", -amount) } else { ("", amount) };
    let text = format!("{sign}{}.{:03}", amount / 1000, amount % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
