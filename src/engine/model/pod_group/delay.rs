//! Until when no pods are evicted for a pod group: its preemption delay, and a delay after evictions in vain.
//!
//! Workloads that can evict each other would do so for ever. The rules of reclaim, preempt and consolidation exclude this in most cases, and nothing excludes it in all:
//! shares, priorities, limits and the places on nodes act together. So where pods are evicted for a pod group again although the last evictions for it
//! did not help, the next ones are delayed more and more. KAI has no such limit.

use std::fmt;

use crate::engine::input::{Millis, Time};

use super::PodGroup;

/// Evictions in vain that cause no delay yet.
const WITHOUT_DELAY: u32 = 2;

/// The delay after the next one; each further one doubles it.
const FIRST: Millis = 10_000;

/// The longest delay.
const LONGEST: Millis = 600_000;

/// So many doublings exceed the longest delay.
const MOST_DOUBLINGS: u32 = 20;

/// The count starts anew if nothing was evicted for so long.
const FORGOTTEN: Millis = 3 * LONGEST;

/// Evictions for a pod group, and whether they helped it.
#[derive(Clone, Copy, Debug, Default)]
pub struct EvictionsFor {
    /// When the last ones were decided.
    last: Option<Time>,
    /// How many pods of the pod group had a place then, those included for which others had to go first.
    places: usize,
    /// A pod of the pod group was bound since.
    bound: bool,
    /// A pod of the pod group was evicted since, other than for a queue whose turn it was.
    evicted: bool,
    /// One of them did not happen.
    failed: bool,
    /// How often new ones were decided although the last ones had not helped.
    in_vain: u32,
}

impl EvictionsFor {
    /// Records that a pod of the pod group is bound.
    pub fn bound(&mut self) {
        self.bound = true;
    }

    /// Records that a pod of the pod group is evicted, other than for a queue whose turn it is.
    pub fn evicted(&mut self) {
        self.evicted = true;
    }

    /// Records that an eviction for the pod group did not happen.
    pub fn failed(&mut self) {
        self.failed = true;
    }

    /// Records that pods are to be evicted for the pod group, of which so many pods have a place then. The last evictions were in vain if they happened, and
    /// it got no place since or lost one. While victims terminate nothing is bound, but more pods have a place.
    pub fn decided(&mut self, now: Time, places: usize) {
        let known = self
            .last
            .filter(|last| now.0.abs_diff(last.0) <= FORGOTTEN.unsigned_abs());
        let helped = !self.evicted && (self.bound || places > self.places);
        let in_vain = match known {
            Some(_) if !self.failed && !helped => self.in_vain.saturating_add(1),
            Some(_) => self.in_vain,
            None => 0,
        };
        *self = Self {
            last: Some(now),
            places,
            in_vain,
            ..Self::default()
        };
    }

    /// The delay that follows.
    fn delay(&self) -> Option<Delay> {
        let doublings = self.in_vain.checked_sub(WITHOUT_DELAY + 1)?.min(MOST_DOUBLINGS);
        let delay = (FIRST << doublings).min(LONGEST);
        Some(Delay {
            until: Time(self.last?.0.saturating_add(delay)),
            cause: DelayCause::InVain(self.in_vain),
        })
    }
}

/// No pods are evicted for a pod group for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delay {
    /// Its end.
    pub until: Time,
    /// Why.
    pub cause: DelayCause,
}

/// Why no pods are evicted for a pod group for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DelayCause {
    /// Its preemption delay, from its creation or its last eviction on.
    PreemptionDelay(Millis),
    /// Evictions for it were in vain so many times.
    InVain(u32),
}

impl fmt::Display for DelayCause {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::PreemptionDelay(_) => f.write_str("preemptionDelay"),
            Self::InVain(times) => write!(f, "evictions for it were in vain {times} times"),
        }
    }
}

impl PodGroup {
    /// The delay during which it may not trigger evictions, unless it has passed.
    #[must_use]
    pub fn delay(&self, now: Time) -> Option<Delay> {
        let delay = self.preemption_delay().max(self.evictions_for.delay());
        delay.filter(|delay| delay.until > now)
    }

    fn preemption_delay(&self) -> Option<Delay> {
        let input = self.input.as_ref()?;
        let delay = input.preemption_delay.filter(|delay| *delay > 0)?;
        let from = input.created.max(input.last_eviction.unwrap_or(input.created));
        Some(Delay {
            until: Time(from.0.saturating_add(delay)),
            cause: DelayCause::PreemptionDelay(delay),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_in_vain_delay_the_next_ones_more_and_more() {
        let mut history = EvictionsFor::default();
        let mut now = 0;
        let mut seconds = Vec::new();
        for _ in 0..12 {
            history.decided(Time(now), 1);
            let delay = history.delay().map_or(0, |delay| delay.until.0 - now);
            seconds.push(delay / 1000);
            now += delay;
        }
        assert_eq!(seconds, [0, 0, 0, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
    }

    #[test]
    fn evictions_help_if_a_pod_is_bound_and_none_is_evicted() {
        let mut history = EvictionsFor::default();
        for _ in 0..100 {
            history.decided(Time(0), 1);
            history.bound();
        }
        assert_eq!(history.delay(), None);
        for _ in 0..3 {
            history.bound();
            history.evicted();
            history.decided(Time(0), 1);
        }
        assert!(history.delay().is_some(), "it lost its place each time");
    }

    #[test]
    fn evictions_help_if_more_pods_have_a_place() {
        let mut history = EvictionsFor::default();
        for places in 0..100 {
            history.decided(Time(0), places);
        }
        assert_eq!(history.delay(), None);
        for places in [1, 2, 2, 1] {
            history.decided(Time(0), places);
        }
        assert!(history.delay().is_some(), "it had as many before");
    }

    #[test]
    fn evictions_in_vain_are_forgotten_after_a_while() {
        let mut history = EvictionsFor::default();
        for _ in 0..5 {
            history.decided(Time(0), 1);
        }
        history.decided(Time(FORGOTTEN + 1), 1);
        assert_eq!(history.delay(), None);
    }

    #[test]
    fn the_delay_never_gets_shorter() {
        let mut history = EvictionsFor::default();
        let mut longest = 0;
        for times in 0..200 {
            history.decided(Time(0), 1);
            let delay = history.delay().map_or(0, |delay| delay.until.0);
            assert!(delay >= longest, "{delay} ms after {times} times");
            longest = delay;
        }
    }

    #[test]
    fn no_number_of_evictions_overflows() {
        let mut history = EvictionsFor {
            in_vain: u32::MAX,
            last: Some(Time(i64::MAX)),
            ..EvictionsFor::default()
        };
        history.decided(Time(i64::MAX), 1);
        assert_eq!(history.delay().map(|delay| delay.until), Some(Time(i64::MAX)));
    }
}
