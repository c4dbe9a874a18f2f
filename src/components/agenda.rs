//! Planned writes: each object at most once, the earliest time counts, and never two writes of an object at the same time.
//!
//! This coalesces writes: an object that changes again before its time, or during its write, is written at most once more. Of the writes that are
//! due, namespaces are served in turn. Pure: no clock, no client; what to write is decided when the write is due.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;

use tokio::time::Instant;

use super::fair::{Fair, InNamespace};

/// When a write is due, and its number.
type Place = (Instant, u64);

/// Planned and running writes, by object.
#[derive(Debug)]
pub struct Agenda<K> {
    planned: BTreeMap<Place, K>,
    /// Of planned writes and of those that are due.
    places: HashMap<K, Place>,
    /// Writes that are due.
    ready: Fair<K>,
    /// Their places.
    ready_places: BTreeSet<Place>,
    running: HashSet<K>,
    again: HashMap<K, Instant>,
    sequence: u64,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            planned: BTreeMap::new(),
            places: HashMap::new(),
            ready: Fair::default(),
            ready_places: BTreeSet::new(),
            running: HashSet::new(),
            again: HashMap::new(),
            sequence: 0,
        }
    }
}

impl<K: InNamespace + Clone + Eq + Hash> Agenda<K> {
    /// Plans a write. If one is running for the same object, the plan counts from its end.
    pub fn plan(&mut self, key: &K, at: Instant) {
        if self.running.contains(key) {
            let again = self.again.entry(key.clone()).or_insert(at);
            *again = at.min(*again);
            return;
        }
        if self.ready.contains(key) {
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
        let ready = self.ready_places.first();
        let first = ready.or_else(|| self.planned.first_key_value().map(|(place, _)| place));
        first.map(|(at, _)| *at)
    }

    /// Starts the next write, if it is due; it ends with [`Agenda::finish`].
    pub fn start(&mut self, now: Instant) -> Option<K> {
        while let Some(due) = self.planned.first_entry().filter(|entry| entry.key().0 <= now) {
            let (place, key) = due.remove_entry();
            self.ready_places.insert(place);
            self.ready.push(key);
        }
        let key = self.ready.pop()?;
        if let Some(place) = self.places.remove(&key) {
            self.ready_places.remove(&place);
        }
        self.running.insert(key.clone());
        Some(key)
    }

    /// Starts all writes that are due.
    #[must_use]
    pub fn start_due(&mut self, now: Instant) -> Vec<K> {
        std::iter::from_fn(|| self.start(now)).collect()
    }

    /// Whether a write of the object is running.
    #[must_use]
    pub fn is_running(&self, key: &K) -> bool {
        self.running.contains(key)
    }

    /// The number of running writes.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// A started write has ended, or was not needed.
    pub fn finish(&mut self, key: &K) {
        self.running.remove(key);
        if let Some(at) = self.again.remove(key) {
            self.plan(key, at);
        }
    }

    /// Removes all plans; running writes continue.
    pub fn clear(&mut self) {
        self.planned.clear();
        self.places.clear();
        self.ready.clear();
        self.ready_places.clear();
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

    impl InNamespace for &str {
        fn namespace(&self) -> &str {
            self.split('/').next().unwrap_or_default()
        }
    }

    #[test]
    fn due_objects_of_namespaces_take_turns() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        for name in ["loud/1", "loud/2", "loud/3"] {
            agenda.plan(&name, start);
        }
        agenda.plan(&"quiet/1", start + Duration::from_millis(1));
        assert_eq!(agenda.start(start), Some("loud/1"));
        let later = start + Duration::from_millis(1);
        agenda.plan(&"loud/2", later);
        assert_eq!(agenda.next(), Some(start));
        assert_eq!(agenda.start_due(later), ["loud/2", "quiet/1", "loud/3"]);
        assert_eq!(agenda.next(), None);
    }

    #[test]
    fn a_backlog_is_as_old_as_the_oldest_write_in_it() {
        let (mut agenda, start) = (Agenda::default(), Instant::now());
        let [second, third] = [10, 20].map(|ms| start + Duration::from_millis(ms));
        agenda.plan(&"a", start);
        agenda.plan(&"b", second);
        assert_eq!(agenda.start(second), Some("a"));
        assert_eq!(agenda.next(), Some(second));
        agenda.plan(&"c", third);
        assert_eq!(agenda.start(third), Some("b"));
        assert_eq!(agenda.next(), Some(third));
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
