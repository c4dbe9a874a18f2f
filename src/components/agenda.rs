//! What is to be written when: each object at most once, the earliest time counts, and never twice at the same time.
//!
//! This is how writes are coalesced: an object that changes again before its time, or while its write is under way, is written
//! once more at most. Pure: no clock, no client; what is to be written is looked up when the time has come.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::time::Instant;

/// Planned and running writes, by the object that they are about.
#[derive(Debug)]
pub struct Agenda<K> {
    planned: BTreeMap<(Instant, u64), K>,
    places: HashMap<K, (Instant, u64)>,
    running: HashSet<K>,
    again: HashMap<K, Instant>,
    sequence: u64,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            planned: BTreeMap::new(),
            places: HashMap::new(),
            running: HashSet::new(),
            again: HashMap::new(),
            sequence: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> Agenda<K> {
    /// Plans a write. While one is under way for the same object, the plan counts from its end.
    pub fn plan(&mut self, key: &K, at: Instant) {
        if self.running.contains(key) {
            let again = self.again.entry(key.clone()).or_insert(at);
            *again = at.min(*again);
            return;
        }
        if let Some(place) = self.places.get(key) {
            if place.0 <= at {
                return;
            }
            self.planned.remove(place);
        }
        self.sequence += 1;
        let place = (at, self.sequence);
        self.planned.insert(place, key.clone());
        self.places.insert(key.clone(), place);
    }

    /// When the next write is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.planned.first_key_value().map(|((at, _), _)| *at)
    }

    /// Starts the next write, if it is due; it ends with [`Agenda::finish`].
    pub fn start(&mut self, now: Instant) -> Option<K> {
        self.next().filter(|at| *at <= now)?;
        let (_, key) = self.planned.pop_first()?;
        self.places.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Starts all writes that are due.
    #[must_use]
    pub fn start_due(&mut self, now: Instant) -> Vec<K> {
        std::iter::from_fn(|| self.start(now)).collect()
    }

    /// A started write has ended, or turned out not to be needed.
    pub fn finish(&mut self, key: &K) {
        self.running.remove(key);
        if let Some(at) = self.again.remove(key) {
            self.plan(key, at);
        }
    }

    /// Forgets everything that is planned; what runs goes on.
    pub fn clear(&mut self) {
        self.planned.clear();
        self.places.clear();
        self.again.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn changes_in_quick_succession_are_one_write() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        agenda.plan(&"a", start + Duration::from_millis(20));
        agenda.plan(&"b", start + Duration::from_millis(10));
        agenda.plan(&"a", start + Duration::from_millis(30));
        agenda.plan(&"b", start);
        assert_eq!(agenda.next(), Some(start));
        assert_eq!(agenda.start_due(start + Duration::from_millis(30)), ["b", "a"]);
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn a_change_during_the_write_is_written_after_it() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        agenda.plan(&"a", start);
        assert_eq!(agenda.start_due(start), ["a"]);
        agenda.plan(&"a", start);
        assert_eq!(agenda.start_due(start), [""; 0]);
        agenda.finish(&"a");
        assert_eq!(agenda.start_due(start), ["a"]);
        agenda.finish(&"a");
        assert_eq!(agenda.next(), None);
    }
}
