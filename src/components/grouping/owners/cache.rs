//! A cache of objects with expiry, by namespace: no namespace evicts entries of another, or uses more memory than its share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::api::limits;

/// Time to live of an entry.
const TTL: Duration = Duration::from_secs(30);
/// Time to live after a failed read or an invalid object, so that a burst of pods costs one read.
const FAILED_TTL: Duration = Duration::from_secs(1);
/// Minimum size of an entry.
const MIN_ENTRY_BYTES: usize = 1_024;

/// A cache slot.
pub type Slot<T> = Arc<OnceCell<T>>;

/// See the module.
pub struct NamespaceCache<K, T>(Mutex<Namespaces<K, T>>);

struct Namespaces<K, T> {
    namespaces: HashMap<String, Namespace<K, T>>,
    swept: Instant,
}

struct Namespace<K, T> {
    entries: HashMap<K, Entry<T>>,
    bytes: usize,
}

struct Entry<T> {
    since: Instant,
    slot: Slot<T>,
    bytes: usize,
}

impl<K, T> Default for NamespaceCache<K, T> {
    fn default() -> Self {
        Self(Mutex::new(Namespaces {
            namespaces: HashMap::new(),
            swept: Instant::now(),
        }))
    }
}

impl<K, T> Default for Namespace<K, T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<K: Eq + Hash, T> Namespace<K, T> {
    fn put(&mut self, key: K, entry: Entry<T>) {
        self.bytes += entry.bytes;
        if let Some(earlier) = self.entries.insert(key, entry) {
            self.bytes -= earlier.bytes;
        }
        self.keep_within_bounds();
    }

    fn take(&mut self, key: &K) -> bool {
        let taken = self.entries.remove(key);
        self.bytes -= taken.as_ref().map_or(0, |entry| entry.bytes);
        taken.is_some()
    }

    fn retain(&mut self, keep: impl Fn(&Entry<T>) -> bool) {
        self.entries.retain(|_, entry| keep(entry));
        self.bytes = self.entries.values().map(|entry| entry.bytes).sum();
    }

    /// Clears the namespace's entries when they exceed its share.
    fn keep_within_bounds(&mut self) {
        if self.bytes > limits::OWNERS_BYTES_PER_NAMESPACE {
            *self = Self::default();
        }
    }
}

impl<K: Clone + Eq + Hash, T> NamespaceCache<K, T> {
    /// The slot of an object, empty if new.
    pub fn slot(&self, namespace: &str, key: &K) -> Slot<T> {
        let now = Instant::now();
        let mut cache = self.lock();
        cache.sweep(now);
        let entry = cache
            .namespaces
            .get(namespace)
            .and_then(|entries| entries.entries.get(key));
        if let Some(entry) = entry.filter(|entry| now.duration_since(entry.since) < TTL) {
            return Arc::clone(&entry.slot);
        }
        let slot = Slot::default();
        let entry = Entry {
            since: now,
            slot: Arc::clone(&slot),
            bytes: MIN_ENTRY_BYTES,
        };
        let entries = cache.namespaces.entry(namespace.to_owned()).or_default();
        entries.put(key.clone(), entry);
        slot
    }

    /// Records the size of an entry.
    pub fn add_size(&self, namespace: &str, key: &K, bytes: usize) {
        let mut cache = self.lock();
        let Some(entries) = cache.namespaces.get_mut(namespace) else {
            return;
        };
        if let Some(entry) = entries.entries.get_mut(key) {
            entries.bytes += bytes;
            entry.bytes += bytes;
        }
        entries.keep_within_bounds();
    }

    /// Whether the entry of an object is not older, if there is one.
    pub fn is_since(&self, namespace: &str, key: &K, time: Instant) -> bool {
        let cache = self.lock();
        let entries = cache.namespaces.get(namespace);
        let entry = entries.and_then(|entries| entries.entries.get(key));
        entry.is_none_or(|entry| entry.since >= time)
    }

    /// Whether no entry of a namespace is older.
    pub fn are_all_since(&self, namespace: &str, time: Instant) -> bool {
        let cache = self.lock();
        let entries = cache.namespaces.get(namespace);
        entries.is_none_or(|entries| entries.entries.values().all(|entry| entry.since >= time))
    }

    /// Invalidates an object, unless it was just read. Returns whether it will be read again.
    pub fn invalidate(&self, namespace: &str, key: &K) -> bool {
        let mut cache = self.lock();
        let Some(entries) = cache.namespaces.get_mut(namespace) else {
            return false;
        };
        let is_old = |entry: &Entry<T>| entry.since.elapsed() >= FAILED_TTL;
        entries.entries.get(key).is_some_and(is_old) && entries.take(key)
    }

    /// Invalidates all objects of a namespace, except those that were just read. Returns whether there were any.
    pub fn invalidate_all(&self, namespace: &str) -> bool {
        let mut cache = self.lock();
        let Some(entries) = cache.namespaces.get_mut(namespace) else {
            return false;
        };
        let before = entries.entries.len();
        entries.retain(|entry| entry.since.elapsed() < FAILED_TTL);
        entries.entries.len() < before
    }

    fn lock(&self) -> MutexGuard<'_, Namespaces<K, T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, T> Namespaces<K, T> {
    /// Removes expired entries, at intervals, so that not every insertion of a burst scans all.
    fn sweep(&mut self, now: Instant) {
        if now.duration_since(self.swept) < TTL {
            return;
        }
        self.swept = now;
        self.namespaces.retain(|_, entries| {
            entries.retain(|entry| now.duration_since(entry.since) < TTL);
            !entries.entries.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_drops_owners_of_the_namespace_that_exceeds_its_share() {
        let cache = NamespaceCache::<u64, u64>::default();
        let fill = |namespace: &str, key: u64| cache.slot(namespace, &key).set(key).is_ok();
        assert!(fill("quiet", 1) && fill("loud", 1));
        let many = limits::OWNERS_BYTES_PER_NAMESPACE / limits::OWNER_BYTES;
        for key in 2..=(many as u64 + 1) {
            assert!(fill("loud", key));
            cache.add_size("loud", &key, limits::OWNER_BYTES);
        }
        assert_eq!(cache.slot("loud", &1).get(), None);
        assert_eq!(cache.slot("quiet", &1).get(), Some(&1));
    }

    #[test]
    fn small_entries_are_limited_in_number() {
        let cache = NamespaceCache::<u64, u64>::default();
        let many = limits::OWNERS_BYTES_PER_NAMESPACE / MIN_ENTRY_BYTES;
        for key in 0..3 * many as u64 {
            let _ = cache.slot("loud", &key);
        }
        assert!(cache.lock().namespaces["loud"].entries.len() <= many);
    }
}
