//! Turns of writing resource claims. Binds of pods that share a claim, such as those of a gang, would else read the same version of it at the same time, and
//! all writes but one would conflict, again and again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::components::watches::Key;

/// The turn of writing one claim.
type Turn = tokio::sync::Mutex<()>;

/// The turns of all claims that are being written. By name: a claim is written only if its uid is the one that was read.
#[derive(Default)]
pub struct ClaimTurns(Mutex<HashMap<Key, Weak<Turn>>>);

impl ClaimTurns {
    /// Waits until no other bind of this process writes the claim; the next one may when the result is dropped.
    pub async fn next(&self, claim: &Key) -> OwnedMutexGuard<()> {
        self.turn_of(claim).lock_owned().await
    }

    fn turn_of(&self, claim: &Key) -> Arc<Turn> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = turns.get(claim).and_then(Weak::upgrade) {
            return known;
        }
        // Turns that nobody waits for any more.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(claim.clone(), Arc::downgrade(&turn));
        turn
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn claim(name: &str) -> Key {
        Key {
            namespace: "team".to_owned(),
            name: name.to_owned(),
        }
    }

    #[tokio::test]
    async fn a_claim_is_written_by_one_bind_at_a_time() {
        let (turns, a) = (ClaimTurns::default(), claim("a"));
        let first = turns.next(&a).await;
        let mut second = Box::pin(turns.next(&a));
        assert!((&mut second).now_or_never().is_none(), "it is being written");
        assert!(turns.next(&claim("b")).now_or_never().is_some(), "another claim");
        drop(first);
        assert!(second.now_or_never().is_some());
    }

    #[tokio::test]
    async fn claims_that_nobody_writes_are_forgotten() {
        let turns = ClaimTurns::default();
        let held = turns.next(&claim("held")).await;
        for number in 0..100 {
            drop(turns.next(&claim(&number.to_string())).await);
        }
        assert_eq!(turns.0.lock().unwrap().len(), 2, "the one that is held, and the last");
        drop(held);
    }
}
