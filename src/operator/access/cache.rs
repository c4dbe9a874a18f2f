//! A bounded cache of answers that expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lifetime of positive and of negative answers. Negative ones expire soon, so that a newly granted right takes effect.
const POSITIVE_FOR: Duration = Duration::from_secs(60);
const NEGATIVE_FOR: Duration = Duration::from_secs(10);
/// A full cache drops this part of its answers at once, so that not every insertion looks through all of them.
const DROPPED: usize = 8;

/// Answers by key, at most `most` of them.
pub struct Cache<K, V> {
    most: usize,
    entries: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Hash + Eq, V: Clone> Cache<K, V> {
    /// Keeps at most so many answers.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            entries: Mutex::default(),
        }
    }

    /// The answer, if it has not expired.
    pub fn get(&self, key: &K) -> Option<V> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, until) = entries.get(key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    /// Whether there is an answer, also an expired one.
    pub fn has(&self, key: &K) -> bool {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.contains_key(key)
    }

    /// Caches an answer, for longer if it is positive. A full cache drops those that have expired, or else those that expire first.
    pub fn insert(&self, key: K, answer: V, positive: bool) {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= self.most {
            let mut ends: Vec<Instant> = entries.values().map(|(_, until)| *until).collect();
            ends.sort_unstable();
            let mut dropped = self.most.div_ceil(DROPPED);
            let last = ends.get(dropped - 1).copied().unwrap_or(now);
            entries.retain(|_, (_, until)| {
                let goes = dropped > 0 && *until <= last;
                dropped -= usize::from(goes);
                !goes
            });
        }
        entries.insert(key, (answer, now + if positive { POSITIVE_FOR } else { NEGATIVE_FOR }));
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Which of the keys have an answer.
    fn known(cache: &Cache<u32, &str>, keys: impl Iterator<Item = u32>) -> Vec<u32> {
        keys.filter(|key| cache.get(key).is_some()).collect()
    }

    #[test]
    fn it_never_grows_beyond_its_limit() {
        let cache = Cache::new(2);
        for key in 0..5 {
            cache.insert(key, "yes", true);
            assert_eq!(cache.get(&key), Some("yes"));
        }
        assert!(cache.entries.lock().unwrap().len() <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_drops_what_has_expired() {
        let cache = Cache::new(8);
        for key in 0..8 {
            cache.insert(key, "answer", key >= 4);
        }
        advance(NEGATIVE_FOR).await;
        cache.insert(8, "answer", true);
        assert_eq!(known(&cache, 0..9), [4, 5, 6, 7, 8]);
        assert_eq!(cache.entries.lock().unwrap().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_drops_the_oldest_answers_and_keeps_the_others() {
        let cache = Cache::new(16);
        for key in 0..17 {
            cache.insert(key, "yes", true);
            advance(SECOND).await;
        }
        assert_eq!(known(&cache, 0..17), Vec::from_iter(2..17));
    }
}
