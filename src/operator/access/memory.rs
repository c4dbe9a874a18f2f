//! A bounded cache of answers that expire.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Lifetime of positive and of negative answers. Negative ones expire soon, so that a newly granted right takes effect.
const YES_FOR: Duration = Duration::from_secs(60);
const NO_FOR: Duration = Duration::from_secs(10);

/// Answers by question, at most `most` of them.
pub struct Memory<K, V> {
    most: usize,
    remembered: Mutex<HashMap<K, (V, Instant)>>,
}

impl<K: Hash + Eq, V: Clone> Memory<K, V> {
    /// Keeps at most so many answers.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            remembered: Mutex::default(),
        }
    }

    /// The answer, if it has not expired.
    pub fn recall(&self, question: &K) -> Option<V> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, until) = remembered.get(question)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    /// Caches an answer, for longer if it is positive.
    pub fn remember(&self, question: K, answer: V, yes: bool) {
        let now = Instant::now();
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= self.most {
            remembered.retain(|_, (_, until)| now < *until);
        }
        if remembered.len() >= self.most {
            // A flood of invalid tokens must not grow the cache. Other callers are only reviewed once more.
            remembered.clear();
        }
        remembered.insert(question, (answer, now + if yes { YES_FOR } else { NO_FOR }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_grows_beyond_its_limit() {
        let memory = Memory::new(2);
        for question in 0..5 {
            memory.remember(question, "yes", true);
            assert_eq!(memory.recall(&question), Some("yes"));
        }
        assert!(memory.remembered.lock().unwrap().len() <= 2);
    }
}
