//! Turns by key: what has the same key waits for one another, and not for what has another key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

type Turn = tokio::sync::Mutex<()>;

/// See the module. Keys without a turn are forgotten.
#[derive(Debug)]
pub struct KeyedTurns<K>(Mutex<HashMap<K, Weak<Turn>>>);

impl<K> Default for KeyedTurns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Clone + Eq + Hash> KeyedTurns<K> {
    /// Waits for the turn of the key; the next one may have it when the result is dropped.
    pub async fn next(&self, key: &K) -> OwnedMutexGuard<()> {
        self.turn_of(key).lock_owned().await
    }

    fn turn_of(&self, key: &K) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = turns.get(key).and_then(Weak::upgrade) {
            return known;
        }
        // Turns that nobody has or waits for any more.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(key.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_at_a_time_has_the_turn_of_a_key() {
        let turns = KeyedTurns::default();
        let first = turns.next(&"a").await;
        let mut second = Box::pin(turns.next(&"a"));
        assert!((&mut second).now_or_never().is_none(), "the first has it");
        assert!(turns.next(&"b").now_or_never().is_some(), "another key");
        drop(first);
        assert!(second.now_or_never().is_some());
    }

    #[tokio::test]
    async fn keys_whose_turn_nobody_has_are_forgotten() {
        let turns = KeyedTurns::default();
        let held = turns.next(&100).await;
        for number in 0..100 {
            drop(turns.next(&number).await);
        }
        let known = turns.0.lock().unwrap().len();
        assert_eq!(known, 2, "the one that is held, and the last");
        drop(held);
    }
}
