//! Recent decisions, in memory: evictions with their causes, and what happened to pod groups. Bounded; the oldest are dropped first.
//!
//! Written by the schedulers, read by the HTTP API. It is lost with the process: lasting state is in the API server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::api::views::{Eviction, Moment};
use crate::clock;
use crate::engine::input::GroupKey;

/// Evictions kept: half a kilobyte each.
const EVICTIONS: usize = 2_000;
/// Moments of pod groups kept: a quarter of a kilobyte each.
const MOMENTS: usize = 40_000;

/// See the module. Clones share it.
#[derive(Clone, Debug)]
pub struct History(Arc<Mutex<Entries>>);

#[derive(Debug)]
struct Entries {
    evictions: VecDeque<Eviction>,
    /// Since when the evictions are complete.
    since: Timestamp,
    moments: VecDeque<(GroupKey, Moment)>,
}

impl Default for History {
    /// Starts now.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Entries {
            evictions: VecDeque::new(),
            since: clock::now(),
            moments: VecDeque::new(),
        })))
    }
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds entries, in order of time.
    pub fn add(&self, evictions: Vec<Eviction>, moments: Vec<(GroupKey, Moment)>) {
        let mut entries = self.lock();
        entries.evictions.extend(evictions);
        while entries.evictions.len() > EVICTIONS {
            if let Some(oldest) = entries.evictions.pop_front() {
                entries.since = oldest.at;
            }
        }
        entries.moments.extend(moments);
        while entries.moments.len() > MOMENTS {
            entries.moments.pop_front();
        }
    }

    /// The matching evictions, the latest first, and since when they are complete.
    #[must_use]
    pub fn evictions(&self, fits: impl Fn(&Eviction) -> bool, most: usize) -> (Timestamp, Vec<Eviction>) {
        let entries = self.lock();
        let latest = entries.evictions.iter().rev();
        let found = latest.filter(|eviction| fits(eviction)).take(most).cloned().collect();
        (entries.since, found)
    }

    /// What happened to a pod group, the oldest first.
    #[must_use]
    pub fn moments(&self, group: &GroupKey) -> Vec<Moment> {
        let entries = self.lock();
        let of_group = entries.moments.iter().filter(|(of, _)| of == group);
        of_group.map(|(_, moment)| moment.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::views::MomentKind;

    #[test]
    fn the_oldest_entries_are_dropped_first_and_the_start_of_the_history_is_known() {
        let history = History::default();
        let at = |second: usize| Timestamp::from_second(second as i64).unwrap();
        let eviction = |number: usize| Eviction {
            at: at(number),
            namespace: "team".to_owned(),
            pod: format!("p{number}"),
            workload: "w".to_owned(),
            queue: None,
            node: None,
            action: "reclaim".to_owned(),
            evicted_for: None,
            message: String::new(),
            overruled_budgets: Vec::new(),
            sides: Vec::new(),
        };
        let moment = |number: usize| {
            let moment = Moment {
                at: at(number),
                kind: MomentKind::Decided,
                text: format!("{number}"),
            };
            (GroupKey::new("team", ["even", "odd"][number & 1]), moment)
        };
        history.add(
            (0..EVICTIONS + 5).map(eviction).collect(),
            (0..MOMENTS + 4).map(moment).collect(),
        );
        let (since, latest) = history.evictions(|eviction| eviction.pod != "p3", 2);
        assert_eq!(since, at(4));
        let names: Vec<_> = latest.iter().map(|eviction| eviction.pod.clone()).collect();
        assert_eq!(names, [format!("p{}", EVICTIONS + 4), format!("p{}", EVICTIONS + 3)]);
        let odd = history.moments(&GroupKey::new("team", "odd"));
        assert_eq!((odd.len(), &*odd[0].text), (MOMENTS / 2, "5"));
    }
}
