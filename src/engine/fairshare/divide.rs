//! Division of a resource among sibling queues: quotas first, then what is left by weight, band by band of queue priority, in whole units; then the
//! units that rounding left over. Exact integers throughout.

use std::cmp::{Ordering, Reverse};

use crate::engine::input::{GPU, Name, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::model::resources::{GPUS, Shared};

use super::wanted_of_queue;

/// Parts in which usage is counted (billionths), reduced to millionths for the arithmetic.
const USAGE: i128 = 1_000;
const MILLION: i128 = 1_000_000;

/// A queue's input to and result of the division of one resource.
#[derive(Clone, Debug)]
pub struct QueueDemand {
    /// Quota; `None` = unlimited.
    pub quota: Option<i64>,
    /// Limit; `None` = none.
    pub limit: Option<i64>,
    /// Over-quota weight in millionths.
    pub weight: i64,
    /// Amount that its pods hold or request while pending.
    pub request: i64,
    /// Queue priority: queues of equal priority form a band.
    pub priority: i64,
    /// Creation time; ties are broken by it, then by name.
    pub created: Time,
    /// Queue name.
    pub name: Name,
    /// Historical usage in billionths.
    pub usage: i64,
    /// Fair share: the result.
    pub fair: i64,
}

impl QueueDemand {
    /// Request, capped by the limit.
    fn want(&self) -> i64 {
        self.limit.map_or(self.request, |limit| limit.min(self.request))
    }
}

/// Divides `total` among siblings in units of `unit`, with `k` (millionths) as the weight of historical usage. Returns what is left.
pub fn divide(total: i64, unit: i64, k: i64, demands: &mut [QueueDemand]) -> i64 {
    let mut left = total;
    for demand in &mut *demands {
        demand.fair = demand.quota.unwrap_or(total).min(demand.want());
        left -= demand.fair;
    }
    if left <= 0 {
        return left;
    }
    over_quota(left, unit, k, demands)
}

/// Divides what the quotas leave by over-quota weight.
pub fn over_quota(mut left: i64, unit: i64, k: i64, demands: &mut [QueueDemand]) -> i64 {
    let mut bands: Vec<i64> = demands.iter().map(|demand| demand.priority).collect();
    bands.sort_unstable_by_key(|band| Reverse(*band));
    bands.dedup();
    let mut notes = vec![None; demands.len()];
    for &band in &bands {
        left = rounds(left, unit, k, band, demands, &mut notes);
    }
    for &band in &bands {
        let mut by_remainder: Vec<usize> = (0..demands.len())
            .filter(|&at| demands[at].priority == band && notes[at].is_some())
            .collect();
        by_remainder.sort_by(|&one, &other| {
            let fraction = |at: usize| -> Fraction { notes[at].expect("only noted ones are here") };
            (fraction(other).cmp(fraction(one)))
                .then_with(|| demands[one].created.cmp(&demands[other].created))
                .then_with(|| demands[one].name.cmp(&demands[other].name))
        });
        for at in by_remainder {
            let unmet = demands[at].want() - demands[at].fair;
            let granted = unit.min(left).min(unmet).max(0);
            demands[at].fair += granted;
            left -= granted;
        }
    }
    left
}

/// A fraction of a unit.
#[derive(Clone, Copy, Debug)]
struct Fraction {
    over: i128,
    under: i128,
}

impl Fraction {
    /// Compares two fractions that are not negative, without products, which may not fit: by whole parts, then by the reciprocals of what is left.
    fn cmp(self, other: Self) -> Ordering {
        let whole = (self.over / self.under).cmp(&(other.over / other.under));
        let (left, right) = (self.over % self.under, other.over % other.under);
        whole.then_with(|| {
            if left == 0 || right == 0 {
                return left.cmp(&right);
            }
            let reciprocal = |over: i128, under: i128| Self {
                over: under,
                under: over,
            };
            reciprocal(right, other.under).cmp(reciprocal(left, self.under))
        })
    }
}

/// By how many bits the weights of these queues are shifted to the right, so that no product of the sum of the weights, `factor` and an amount
/// overflows. 0 for all but enormous weights.
fn weight_shift<'q>(factor: i128, amount: i64, queues: impl Iterator<Item = &'q QueueDemand>) -> u32 {
    // At least a million, so that a deduction for usage that saturates exceeds every portion.
    let (mut weights, mut largest) = (0_u128, MILLION.max(i128::from(amount)));
    for queue in queues {
        weights += u128::from(queue.weight.unsigned_abs());
        largest = largest.max(i128::from(queue.want() - queue.fair));
    }
    let bits = |number: u128| u128::BITS - number.leading_zeros();
    let room = (i128::BITS - 2).saturating_sub(bits(factor.unsigned_abs()) + bits(largest.unsigned_abs()));
    bits(weights).saturating_sub(room)
}

/// Divides in rounds among the queues of one priority.
fn rounds(
    mut left: i64,
    unit: i64,
    k: i64,
    band: i64,
    demands: &mut [QueueDemand],
    notes: &mut [Option<Fraction>],
) -> i64 {
    loop {
        let pot = i128::from(left);
        let open = |demand: &QueueDemand| demand.priority == band && demand.want() > demand.fair;
        let factor = MILLION + i128::from(k);
        let shift = weight_shift(factor, left.max(unit), demands.iter().filter(|demand| open(demand)));
        let weight = |demand: &QueueDemand| i128::from(demand.weight) >> shift;
        let weights: i128 = demands.iter().filter(|demand| open(demand)).map(weight).sum();
        if weights == 0 {
            return left;
        }
        let portion = |demand: &QueueDemand| -> i128 {
            let normal = weight(demand) * factor;
            if demand.usage == 0 {
                return normal;
            }
            let used = i128::from(k) * (i128::from(demand.usage) / USAGE);
            (normal - used.saturating_mul(weights) / MILLION).max(0)
        };
        let portions: Vec<i128> = demands
            .iter()
            .map(|demand| if open(demand) { portion(demand) } else { 0 })
            .collect();
        let sum: i128 = portions.iter().sum();
        if sum == 0 {
            return left;
        }
        let mut again = false;
        for (at, demand) in demands.iter_mut().enumerate() {
            if portions[at] == 0 || demand.weight == 0 {
                continue;
            }
            let need = demand.want() - demand.fair;
            // part = pot * portion / sum, kept as a fraction.
            let offered = pot * portions[at];
            let granted = if i128::from(need) * sum <= offered {
                again |= i128::from(need) * sum < offered;
                notes[at] = None;
                need
            } else {
                let units = offered / (sum * i128::from(unit));
                let rest = offered - units * sum * i128::from(unit);
                notes[at] = (rest > 0).then_some(Fraction {
                    over: rest,
                    under: sum * i128::from(unit),
                });
                i64::try_from(units).unwrap_or(i64::MAX) * unit
            };
            demand.fair += granted;
            left -= granted;
            if left == 0 {
                return 0;
            }
        }
        if !again || left <= 0 {
            return left;
        }
    }
}

/// Computes every queue's fair share, from the cluster's total down.
pub fn divide_tree(model: &mut Model, k: i64) {
    let all: Vec<_> = model.queues().ids().collect();
    for id in all {
        model.set_fair_share(id, [0; 3]);
    }
    let mut waiting = vec![(model.top_queues(), model.total())];
    while let Some((siblings, total)) = waiting.pop() {
        divide_level(model, &siblings, total, k);
        for id in siblings {
            let queue = &model.queues()[id];
            if !queue.children.is_empty() {
                waiting.push((queue.children.clone(), queue.fair));
            }
        }
    }
}

fn divide_level(model: &mut Model, siblings: &[QueueId], total: Shared, k: i64) {
    for (resource, &total) in total.iter().enumerate() {
        let mut demands: Vec<QueueDemand> = siblings.iter().filter_map(|&id| demand(model, id, resource)).collect();
        let unit = if resource == GPUS { GPU } else { 1 };
        divide(total, unit, k, &mut demands);
        for (&id, demand) in siblings.iter().zip(&demands) {
            let mut fair = model.queues()[id].fair;
            fair[resource] = demand.fair;
            model.set_fair_share(id, fair);
        }
    }
}

fn demand(model: &Model, id: QueueId, resource: usize) -> Option<QueueDemand> {
    let queue = &model.queues()[id];
    let input = queue.input.as_ref()?;
    let share = queue.share(resource);
    Some(QueueDemand {
        quota: share.quota,
        limit: share.limit,
        weight: share.weight,
        request: wanted_of_queue(model, queue)[resource],
        priority: input.priority,
        created: input.created,
        name: queue.name.clone(),
        usage: queue.usage[resource],
        fair: 0,
    })
}

#[cfg(test)]
mod tests;
