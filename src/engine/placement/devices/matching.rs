//! A check whether there are enough devices, in polynomial time. Requests that are each possible alone but not together would otherwise cost all combinations of
//! their devices.
//!
//! It counts how often a device can be taken, and the constraints for equal values. Shared counters, the sums of shares of a capacity and the constraints for
//! distinct values are left to the search.

use std::collections::BTreeSet;

use super::{MOST_RESULTS, RequestOption, Search};
use crate::engine::input::devices::Attribute;

/// One way to meet a request, and the candidates that suit, by position.
struct Way<'a> {
    asked: RequestOption<'a>,
    devices: Vec<usize>,
}

/// The least that a request takes: so many of these candidates.
struct Need {
    count: usize,
    devices: Vec<usize>,
}

impl Need {
    /// `None` if there is no way to meet the request. The ways of `bound` (request, option) take only devices that `have` a value.
    fn of(ways: &[Way], bound: impl Fn(usize, usize) -> bool, have: impl Fn(usize) -> bool) -> Option<Self> {
        let needs = ways.iter().filter_map(|way| {
            let restricted = bound(way.asked.request, way.asked.option);
            let devices = way.devices.iter().copied().filter(|at| !restricted || have(*at));
            let devices: Vec<usize> = devices.collect();
            let count = way.asked.wanted.count.unwrap_or(1);
            (devices.len() >= count).then_some(Self { count, devices })
        });
        needs.reduce(Self::either)
    }

    fn either(mut self, other: Self) -> Self {
        self.count = self.count.min(other.count);
        self.devices.extend(other.devices);
        self.devices.sort_unstable();
        self.devices.dedup();
        self
    }
}

impl<'a> Search<'a> {
    /// Whether there are enough devices for all requests. If not, the search cannot succeed. To be called before any device is taken.
    pub(super) fn has_enough(&self) -> bool {
        let requests = |claim: usize| 0..self.asks[claim].requests.len();
        let claims: Vec<Vec<Vec<Way>>> = (0..self.asks.len())
            .map(|claim| requests(claim).map(|request| self.ways(claim, request)).collect())
            .collect();
        let mut each = claims.iter().enumerate();
        each.all(|(claim, requests)| self.has_enough_for(claim, requests)) && self.has_enough_together(&claims)
    }

    fn ways(&self, claim: usize, request: usize) -> Vec<Way<'a>> {
        let ways = self.options(claim, request).map(|asked| {
            let suits = |at: &usize| self.suits(asked, self.candidates[*at]);
            Way {
                asked,
                devices: (0..self.candidates.len()).filter(suits).collect(),
            }
        });
        ways.collect()
    }

    /// For one claim, which can have each device once.
    fn has_enough_for(&self, claim: usize, requests: &[Vec<Way>]) -> bool {
        let mut alike = self.asks[claim]
            .constraints
            .iter()
            .filter(|constraint| !constraint.distinct);
        self.each_once(requests, |_, _| false, |_| true)
            && alike.all(|constraint| {
                let offers = self.candidates.iter().map(|id| self.offer(*id));
                let values: Vec<Option<&Attribute>> =
                    offers.map(|offer| offer.attribute(&constraint.attribute)).collect();
                let mut distinct: BTreeSet<Option<&Attribute>> = values.iter().copied().collect();
                // Without a value, for a constraint that applies to no request.
                distinct.insert(None);
                distinct.into_iter().any(|value| {
                    self.each_once(
                        requests,
                        |request, option| self.is_about(constraint, claim, request, option),
                        |at| values[at] == value,
                    )
                })
            })
    }

    fn each_once(
        &self,
        requests: &[Vec<Way>],
        bound: impl Fn(usize, usize) -> bool,
        have: impl Fn(usize) -> bool,
    ) -> bool {
        let needs: Option<Vec<Need>> = requests.iter().map(|ways| Need::of(ways, &bound, &have)).collect();
        needs.is_some_and(|needs| {
            let count: usize = needs.iter().map(|need| need.count).sum();
            count <= MOST_RESULTS && are_enough(&needs, self.candidates.len())
        })
    }

    /// For all claims together: each device once, but for those given in parts, and without requests with admin access.
    fn has_enough_together(&self, claims: &[Vec<Vec<Way>>]) -> bool {
        let requests = claims.iter().flatten();
        let taking = requests.filter(|ways| ways.iter().all(|way| !way.asked.wanted.admin));
        let needs: Option<Vec<Need>> = taking
            .map(|ways| {
                let mut need = Need::of(ways, |_, _| false, |_| true)?;
                let all = need.devices.len();
                need.devices.retain(|at| !self.offer(self.candidates[*at]).multi);
                need.count = need.count.saturating_sub(all - need.devices.len());
                Some(need)
            })
            .collect();
        needs.is_some_and(|needs| are_enough(&needs, self.candidates.len()))
    }
}

/// Whether all needs can be met with each of the devices taken once: the maximum matching, by augmenting paths.
fn are_enough(needs: &[Need], devices: usize) -> bool {
    let mut owners: Vec<Option<usize>> = vec![None; devices];
    needs.iter().enumerate().all(|(need, wanted)| {
        (0..wanted.count).all(|_| {
            let mut seen = vec![false; devices];
            give_one(needs, need, &mut owners, &mut seen)
        })
    })
}

/// Gives a need one more device. If another need has it, that one gets one more first.
fn give_one(needs: &[Need], need: usize, owners: &mut [Option<usize>], seen: &mut [bool]) -> bool {
    for &device in &needs[need].devices {
        if seen[device] || owners[device] == Some(need) {
            continue;
        }
        seen[device] = true;
        let free = match owners[device] {
            None => true,
            Some(owner) => give_one(needs, owner, owners, seen),
        };
        if free {
            owners[device] = Some(need);
            return true;
        }
    }
    false
}
