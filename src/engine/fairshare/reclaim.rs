//! Which queue may reclaim from which: a queue reclaims within its fair share, from branches that hold more than theirs, or more than their quota while it is below its
//! own; and it never ends up better off than those it took from.

use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::model::resources::{GPUS, Shared, add, plus};

use super::sorted::SortedPodGroups;

/// Allocated and non-preemptible amounts of all queues at one moment.
#[derive(Clone, Debug, Default)]
pub struct Holdings(Vec<(Shared, Shared)>);

impl Holdings {
    /// The current amounts.
    #[must_use]
    pub fn now(model: &Model) -> Self {
        let mut held = vec![([0; 3], [0; 3]); model.queues().slots()];
        for (id, queue) in model.queues().iter() {
            held[id.at()] = (queue.allocated, queue.non_preemptible);
        }
        Self(held)
    }

    /// The allocated amount of a queue.
    #[must_use]
    pub fn of(&self, queue: QueueId) -> Shared {
        self.0.get(queue.at()).map_or([0; 3], |(allocated, _)| *allocated)
    }

    fn non_preemptible(&self, queue: QueueId) -> Shared {
        self.0.get(queue.at()).map_or([0; 3], |(_, amount)| *amount)
    }

    fn take(&mut self, model: &Model, leaf: QueueId, amount: &Shared) {
        for queue in model.path_up(leaf) {
            if let Some((allocated, _)) = self.0.get_mut(queue.at()) {
                add(allocated, amount, -1);
            }
        }
    }
}

fn within(amount: &Shared, bound: impl Fn(usize) -> Option<i64>) -> bool {
    (0..3).all(|resource| bound(resource).is_none_or(|bound| amount[resource] <= bound))
}

fn within_quota(model: &Model, queue: QueueId, amount: &Shared) -> bool {
    within(amount, |resource| model.queues()[queue].share(resource).quota)
}

fn within_allocatable(model: &Model, queue: QueueId, amount: &Shared) -> bool {
    within(amount, |resource| model.queues()[queue].allocatable(resource))
}

/// The siblings at which the paths to two leaf queues part: (the first leaf's side, the second's).
#[must_use]
pub fn parting(model: &Model, one: QueueId, other: QueueId) -> Option<(QueueId, QueueId)> {
    let depth = |leaf: QueueId| model.path_up(leaf).count();
    let (ours, theirs) = (depth(one), depth(other));
    let level = ours.min(theirs);
    let mut left = model.path_up(one).skip(ours - level);
    let mut right = model.path_up(other).skip(theirs - level);
    // Upwards until they meet: the last pair before that.
    let pairs = std::iter::from_fn(|| Some((left.next()?, right.next()?)));
    pairs.take_while(|(left, right)| left != right).last()
}

/// Whether a pod group may reclaim at all: its queue stays within its fair share, and non-preemptible work within the quota.
#[must_use]
pub fn may_reclaim(model: &Model, leaf: QueueId, entry: &Shared, preemptible: bool) -> bool {
    let queue = &model.queues()[leaf];
    let after = plus(&queue.allocated, entry);
    (0..3).all(|resource| after[resource] <= queue.fair[resource])
        && (preemptible || within_quota(model, leaf, &plus(&queue.non_preemptible, entry)))
}

/// Whether a victim's queue can be a donor for a pod group at all.
#[must_use]
pub fn may_donate(model: &Model, reclaimer: QueueId, victim: QueueId, entry: &Shared) -> bool {
    let Some((ours, theirs)) = parting(model, reclaimer, victim) else {
        return false;
    };
    let donor = &model.queues()[theirs];
    if !within_quota(model, ours, &plus(&model.queues()[ours].allocated, entry)) {
        return !within_allocatable(model, theirs, &donor.allocated);
    }
    let involved = || {
        (0..3)
            .filter(|&resource| entry[resource] > 0)
            .filter_map(|resource| Some((donor.allocated[resource], donor.share(resource).quota?)))
    };
    involved().any(|(held, quota)| held > quota) || involved().all(|(held, quota)| held >= quota)
}

/// Upper bound of the GPUs that a pod group can reclaim from all donors; `None` if a donor exceeds its bounds in another resource, so there is no bound.
///
/// A donor gives bundle after bundle as long as it is over its share, or over its quota while the reclaimer's side stays within its own. So it gives
/// less than what it is over, and one bundle more.
#[must_use]
pub fn most_taken(
    model: &Model,
    sorted: &SortedPodGroups,
    reclaimer: QueueId,
    entry: &Shared,
    donates: impl Fn(QueueId) -> bool,
) -> Option<i64> {
    let mut largest: SmallVec<[((QueueId, QueueId), i64); 4]> = SmallVec::new();
    for (leaf, line) in sorted.queues().filter(|(leaf, _)| donates(*leaf)) {
        largest.push((parting(model, reclaimer, leaf)?, line.largest_victim()));
    }
    // The largest bundle of each branch comes first.
    largest.sort_unstable_by_key(|(branch, bundle)| (*branch, Reverse(*bundle)));
    largest.dedup_by_key(|(branch, _)| *branch);
    let mut sum: i64 = 0;
    for ((ours, theirs), bundle) in largest {
        let donor = &model.queues()[theirs];
        let guaranteed = within_quota(model, ours, &plus(&model.queues()[ours].allocated, entry));
        let bound = |resource| {
            let quota = donor.share(resource).quota.filter(|_| guaranteed);
            donor.allocatable(resource).into_iter().chain(quota).min()
        };
        let over = |resource: usize| bound(resource).map_or(0, |bound| donor.allocated[resource] - bound);
        if (0..3).any(|resource| resource != GPUS && over(resource) > 0) {
            return None;
        }
        if over(GPUS) > 0 {
            sum = sum.saturating_add(over(GPUS) - 1).saturating_add(bundle);
        }
    }
    Some(sum)
}

/// Amounts that victims release, in order. Mostly one.
pub type Bundles = SmallVec<[Shared; 1]>;

/// What a set of victims takes from one leaf queue, as bundles in order.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The leaf queue.
    pub leaf: QueueId,
    /// Bundles, in order.
    pub bundles: Bundles,
}

/// A pod group that reclaims.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// Its leaf queue.
    pub leaf: QueueId,
    /// What it asks for.
    pub entry: Shared,
    /// Whether it is preemptible.
    pub preemptible: bool,
    /// Factor on its saturation, in millionths.
    pub multiplier: i64,
}

/// Whether the reclaimer may take these losses. `held`: what queues held before.
#[must_use]
pub fn legitimate(model: &Model, held: &Holdings, claim: &Claim, losses: &[Loss]) -> bool {
    let mut rest = held.clone();
    for loss in losses {
        let Some((ours, theirs)) = parting(model, claim.leaf, loss.leaf) else {
            return false;
        };
        let guaranteed = within_quota(model, ours, &plus(&held.of(ours), &claim.entry));
        for bundle in &loss.bundles {
            let left = rest.of(theirs);
            let over_share = !within_allocatable(model, theirs, &left);
            let over_quota = guaranteed && !within_quota(model, theirs, &left);
            if !over_share && !over_quota {
                return false;
            }
            rest.take(model, loss.leaf, bundle);
        }
    }
    let exchange = Exchange {
        model,
        claim,
        losses,
        held,
        rest: &rest,
    };
    let mut path = model.path_up(claim.leaf);
    path.all(|queue| exchange.stays_inside(queue)) && losses.iter().all(|loss| exchange.is_final(loss.leaf))
}

/// A reclaim: what queues held before, and what is left to them without what the reclaimer gets.
struct Exchange<'a> {
    model: &'a Model,
    claim: &'a Claim,
    losses: &'a [Loss],
    held: &'a Holdings,
    rest: &'a Holdings,
}

impl Exchange<'_> {
    /// One queue of the reclaiming branch against its siblings that lost something.
    fn stays_inside(&self, queue: QueueId) -> bool {
        let Self {
            model,
            claim,
            losses,
            rest,
            ..
        } = *self;
        if !claim.preemptible && !within_quota(model, queue, &plus(&rest.non_preemptible(queue), &claim.entry)) {
            return false;
        }
        let after = plus(&rest.of(queue), &claim.entry);
        // Siblings, and which resources each lost.
        let mut lost: SmallVec<[(QueueId, [bool; 3]); 4]> = SmallVec::new();
        for loss in losses {
            let sibling = model
                .path_up(loss.leaf)
                .find(|at| *at != queue && model.queues()[*at].parent == model.queues()[queue].parent);
            let Some(sibling) = sibling.filter(|_| !model.path_up(loss.leaf).any(|at| at == queue)) else {
                continue;
            };
            let any = |resource: usize| loss.bundles.iter().any(|bundle| bundle[resource] > 0);
            lost.push((sibling, [any(0), any(1), any(2)]));
        }
        lost.iter().all(|&(sibling, involved)| {
            let mut resources = (0..3).filter(|&resource| involved[resource] || claim.entry[resource] > 0);
            resources.all(|resource| {
                let (ours, theirs) = (&model.queues()[queue], &model.queues()[sibling]);
                let (amount, fair) = (i128::from(after[resource]), i128::from(ours.fair[resource]));
                let (their_amount, their_fair) = (
                    i128::from(rest.of(sibling)[resource]),
                    i128::from(theirs.fair[resource]),
                );
                let over = amount > fair;
                // multiplier · amount / fair ≥ their amount / their fair
                let not_less =
                    fair == 0 || i128::from(claim.multiplier) * amount * their_fair >= 1_000_000 * their_amount * fair;
                !(over && their_fair > 0 && not_less)
            })
        })
    }

    /// Whether a donor that falls below its quota finds the difference elsewhere if the reclaimer's side is above its own: otherwise it takes it back from
    /// there, and the two take turns for ever. This fails only where the quotas exceed the capacity. KAI has no such rule.
    fn is_final(&self, donor: QueueId) -> bool {
        let Some((ours, theirs)) = parting(self.model, self.claim.leaf, donor) else {
            return false;
        };
        let queues = self.model.queues();
        let (before, left) = (self.held.of(theirs), self.rest.of(theirs));
        let after = plus(&self.rest.of(ours), &self.claim.entry);
        let settled = |resource: usize| {
            let over = (queues[ours].share(resource).quota).is_some_and(|quota| after[resource] > quota);
            let fair = queues[theirs].fair[resource];
            let due = queues[theirs]
                .share(resource)
                .quota
                .map_or(fair, |quota| quota.min(fair));
            let falls = before[resource] >= due && left[resource] < due;
            !(over && falls) || due - left[resource] <= self.elsewhere(ours, theirs, resource)
        };
        !within_quota(self.model, theirs, &left) || (0..3).all(settled)
    }

    /// How much of a resource is idle, or held above their fair shares by others than these two and the queues above them.
    fn elsewhere(&self, ours: QueueId, theirs: QueueId, resource: usize) -> i64 {
        let queues = self.model.queues();
        let top = self.model.top_queues();
        let held: i64 = top.iter().map(|queue| self.rest.of(*queue)[resource]).sum();
        let idle = self.model.total()[resource] - held - self.claim.entry[resource];
        let siblings = |queue: QueueId| queues[queue].parent.map_or(&top, |parent| &queues[parent].children);
        let over = |queue: &QueueId| (self.rest.of(*queue)[resource] - queues[*queue].fair[resource]).max(0);
        let levels = self.model.path_up(theirs);
        let others = levels.flat_map(|at| {
            siblings(at)
                .iter()
                .filter(move |queue| **queue != at && **queue != ours)
        });
        others.map(over).fold(idle.max(0), i64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
