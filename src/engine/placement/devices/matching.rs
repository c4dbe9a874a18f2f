//! A check whether there are enough devices, in polynomial time. Requests that are each possible alone but not together would otherwise cost all combinations of
//! their devices.
//!
//! It counts how often a device can be taken, and the constraints for equal values. Shared counters, the sums of shares of a capacity and the constraints for
//! distinct values are left to the search. Its steps are limited like those of the search, as a pod may have many claims and a node many devices.

use std::cell::Cell;
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
    fn of(
        ways: &[Way],
        left: &Left,
        bound: impl Fn(usize, usize) -> bool,
        have: impl Fn(usize) -> bool,
    ) -> Option<Self> {
        let needs = ways.iter().filter_map(|way| {
            let restricted = bound(way.asked.request, way.asked.option);
            let devices = way.devices.iter().copied().take_while(|_| left.take());
            let devices: Vec<usize> = devices.filter(|at| !restricted || have(*at)).collect();
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

/// Steps that are left for a check.
struct Left(Cell<usize>);

impl Left {
    /// Takes a step, which looks at a device. False if none was left.
    fn take(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    fn is_none(&self) -> bool {
        self.0.get() == 0
    }
}

impl<'a> Search<'a> {
    /// Whether there are enough devices for all requests, as far as that can be said in `most` steps, and the steps taken. If not, the search cannot succeed. To be
    /// called before any device is taken.
    pub(super) fn has_enough(&self, most: usize) -> (bool, usize) {
        let check = Check {
            search: self,
            left: Left(Cell::new(most)),
        };
        let enough = check.has_enough() || check.left.is_none();
        (enough, most - check.left.0.get())
    }
}

/// A check of a search. Once no steps are left, what it says does not count.
struct Check<'s, 'a> {
    search: &'s Search<'a>,
    left: Left,
}

impl<'a> Check<'_, 'a> {
    fn has_enough(&self) -> bool {
        let asks = self.search.asks;
        let requests = |claim: usize| 0..asks[claim].requests.len();
        let claims: Vec<Vec<Vec<Way>>> = (0..asks.len())
            .map(|claim| requests(claim).map(|request| self.ways(claim, request)).collect())
            .collect();
        let mut each = claims.iter().enumerate();
        each.all(|(claim, requests)| self.has_enough_for(claim, requests)) && self.has_enough_together(&claims)
    }

    fn ways(&self, claim: usize, request: usize) -> Vec<Way<'a>> {
        let ways = self.search.options(claim, request).map(|asked| {
            let all = (0..self.search.candidates.len()).take_while(|_| self.left.take());
            Way {
                asked,
                devices: all
                    .filter(|at| self.search.suits(asked, self.search.candidates[*at]))
                    .collect(),
            }
        });
        ways.collect()
    }

    /// For one claim, which can have each device once, but for those given in parts.
    fn has_enough_for(&self, claim: usize, requests: &[Vec<Way>]) -> bool {
        let constraints = self.search.asks[claim].constraints.iter();
        let mut alike = constraints.filter(|constraint| !constraint.distinct);
        self.each_once(requests, |_, _| false, |_| true)
            && alike.all(|constraint| {
                let offers = self.search.candidates.iter().map(|id| self.search.offer(*id));
                let values: Vec<Option<&Attribute>> =
                    offers.map(|offer| offer.attribute(&constraint.attribute)).collect();
                let mut distinct: BTreeSet<Option<&Attribute>> = values.iter().copied().collect();
                // Without a value, for a constraint that applies to no request.
                distinct.insert(None);
                distinct.into_iter().any(|value| {
                    self.each_once(
                        requests,
                        |request, option| self.search.is_about(constraint, claim, request, option),
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
        let needs = requests.iter().map(|ways| Need::of(ways, &self.left, &bound, &have));
        let needs: Option<Vec<Need>> = needs.collect();
        needs.is_some_and(|needs| {
            let count: usize = needs.iter().map(|need| need.count).sum();
            count <= MOST_RESULTS && self.are_enough(&self.exclusive(needs))
        })
    }

    /// For all claims together: each device once, but for those given in parts, and without requests with admin access.
    fn has_enough_together(&self, claims: &[Vec<Vec<Way>>]) -> bool {
        let requests = claims.iter().flatten();
        let taking = requests.filter(|ways| ways.iter().all(|way| !way.asked.wanted.admin));
        let needs: Option<Vec<Need>> = taking
            .map(|ways| Need::of(ways, &self.left, |_, _| false, |_| true))
            .collect();
        needs.is_some_and(|needs| self.are_enough(&self.exclusive(needs)))
    }

    /// What is needed besides devices given in parts, of which each request can have each once, whatever others have.
    fn exclusive(&self, needs: Vec<Need>) -> Vec<Need> {
        let device = |at: &usize| self.search.offer(self.search.candidates[*at]);
        let exclusive = |mut need: Need| {
            let all = need.devices.len();
            need.devices.retain(|at| !device(at).multi);
            need.count = need.count.saturating_sub(all - need.devices.len());
            need
        };
        needs.into_iter().map(exclusive).collect()
    }

    /// Whether all needs can be met with each of the devices taken once: the maximum matching, by augmenting paths.
    fn are_enough(&self, needs: &[Need]) -> bool {
        let devices = self.search.candidates.len();
        let mut owners: Vec<Option<usize>> = vec![None; devices];
        needs.iter().enumerate().all(|(need, wanted)| {
            (0..wanted.count).all(|_| {
                let mut seen = vec![false; devices];
                self.give_one(needs, need, &mut owners, &mut seen)
            })
        })
    }

    /// Gives a need one more device. If another need has it, that one gets one more first.
    fn give_one(&self, needs: &[Need], need: usize, owners: &mut [Option<usize>], seen: &mut [bool]) -> bool {
        for &device in needs[need].devices.iter().take_while(|_| self.left.take()) {
            if seen[device] || owners[device] == Some(need) {
                continue;
            }
            seen[device] = true;
            let free = match owners[device] {
                None => true,
                Some(owner) => self.give_one(needs, owner, owners, seen),
            };
            if free {
                owners[device] = Some(need);
                return true;
            }
        }
        false
    }
}
