//! A bounded cache of answers that expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lifetime of positive and of negative answers. Negative ones expire soon, so that a newly granted right takes effect.
const POSITIVE_FOR: Duration = Duration::from_secs(60);
const NEGATIVE_FOR: Duration = Duration::from_secs(10);

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

    /// Caches an answer, for longer if it is positive.
    pub fn insert(&self, key: K, answer: V, positive: bool) {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= self.most {
            entries.retain(|_, (_, until)| now < *until);
        }
        if entries.len() >= self.most {
            // A flood of invalid tokens must not grow the cache. Other callers are only reviewed once more.
            entries.clear();
        }
        entries.insert(key, (answer, now + if positive { POSITIVE_FOR } else { NEGATIVE_FOR }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_grows_beyond_its_limit() {
        let cache = Cache::new(2);
        for key in 0..5 {
            cache.insert(key, "yes", true);
            assert_eq!(cache.get(&key), Some("yes"));
        }
        assert!(cache.entries.lock().unwrap().len() <= 2);
    }
}
