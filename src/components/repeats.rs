//! When events about what lasts are repeated: after one, two, four minutes and so on, up to a quarter of an hour. Pure.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tokio::time::Instant;

use crate::components::bus::REPEATS;

/// Events to repeat, with their times.
#[derive(Debug)]
pub struct Repeats<K> {
    due: BTreeSet<(Instant, K)>,
    /// When each is due, and how often it was sent.
    entries: HashMap<K, (Instant, u32)>,
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self {
            due: BTreeSet::new(),
            entries: HashMap::new(),
        }
    }
}

impl<K: Clone + Ord + Hash> Repeats<K> {
    /// An event was sent for the first time, or with another message.
    pub fn begin(&mut self, key: &K, now: Instant) {
        self.plan(key, 1, now);
    }

    fn plan(&mut self, key: &K, times: u32, now: Instant) {
        let at = now + REPEATS.wait(times);
        if let Some((before, _)) = self.entries.insert(key.clone(), (at, times)) {
            self.due.remove(&(before, key.clone()));
        }
        self.due.insert((at, key.clone()));
    }

    /// The event is no longer repeated.
    pub fn end(&mut self, key: &K) {
        if let Some((at, _)) = self.entries.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }

    /// When the next is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// One that is due; its next time is planned.
    pub fn take(&mut self, now: Instant) -> Option<K> {
        let (at, key) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.due.remove(&(at, key.clone()));
        let times = self.entries.get(&key).map_or(0, |(_, times)| *times);
        self.plan(&key, times + 1, now);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_interval_doubles_up_to_15_minutes_and_restarts_with_another_message() {
        let (mut repeats, start) = (Repeats::default(), Instant::now());
        let minutes = |repeats: &mut Repeats<&'static str>, from: u64, to: u64| -> Vec<u64> {
            (from..to)
                .filter(|minute| repeats.take(start + Duration::from_secs(60 * minute)).is_some())
                .collect()
        };
        repeats.begin(&"pod", start);
        assert_eq!(minutes(&mut repeats, 0, 60), [1, 3, 7, 15, 30, 45]);
        repeats.begin(&"pod", start + Duration::from_secs(3_600));
        assert_eq!(minutes(&mut repeats, 60, 64), [61, 63]);
        repeats.end(&"pod");
        assert_eq!((repeats.next(), repeats.entries.len()), (None, 0));
    }
}
