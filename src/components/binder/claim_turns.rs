//! Turns of writing resource claims. Binds of pods that share a claim, such as those of a gang, would else read the same version of it at the same time, and
//! all writes but one would conflict, again and again. And no claim is taken from a pod while that is being bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::components::watches::Key;

/// The turn of writing one claim.
type Turn = tokio::sync::Mutex<()>;

/// The turns of all claims that are being written. By name: a claim is written only if its uid is the one that was read.
#[derive(Default)]
pub struct ClaimTurns(Mutex<State>);

#[derive(Default)]
struct State {
    turns: HashMap<Key, Weak<Turn>>,
    /// Releases that were given up, and until when each may take effect.
    unsettled: HashMap<Key, Instant>,
    /// Open binds with claims, by the uid of the pod.
    binding: HashMap<Arc<str>, usize>,
}

/// An open bind with claims.
pub struct Binding {
    turns: Arc<ClaimTurns>,
    uid: Arc<str>,
}

impl Drop for Binding {
    fn drop(&mut self) {
        let mut state = self.turns.state();
        if let Some(open) = state.binding.get_mut(&self.uid) {
            *open -= 1;
            if *open == 0 {
                state.binding.remove(&self.uid);
            }
        }
    }
}

impl ClaimTurns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing else in this process writes the claim; the next one may when the result is dropped.
    pub async fn next(&self, claim: &Key) -> OwnedMutexGuard<()> {
        self.turn_of(claim).lock_owned().await
    }

    fn turn_of(&self, claim: &Key) -> Arc<Turn> {
        let turns = &mut self.state().turns;
        if let Some(known) = turns.get(claim).and_then(Weak::upgrade) {
            return known;
        }
        // Turns that nobody waits for any more.
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::default();
        turns.insert(claim.clone(), Arc::downgrade(&turn));
        turn
    }

    /// A bind of a pod with claims begins; it ends when the result is dropped.
    #[must_use]
    pub fn bind(self: &Arc<Self>, uid: &Arc<str>) -> Binding {
        *self.state().binding.entry(Arc::clone(uid)).or_default() += 1;
        Binding {
            turns: Arc::clone(self),
            uid: Arc::clone(uid),
        }
    }

    /// Whether a bind of the pod is open.
    #[must_use]
    pub fn is_binding(&self, uid: &str) -> bool {
        self.state().binding.contains_key(uid)
    }

    /// A release of the claim was given up. Until that time it may take effect.
    pub fn not_settled(&self, claim: Key, until: Instant) {
        let now = Instant::now();
        let unsettled = &mut self.state().unsettled;
        unsettled.retain(|_, until| *until > now);
        unsettled.insert(claim, until);
    }

    /// Until when a release of the claim that was given up may take effect.
    #[must_use]
    pub fn unsettled_until(&self, claim: &Key) -> Option<Instant> {
        self.state().unsettled.get(claim).copied()
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
        assert_eq!(turns.state().turns.len(), 2, "the one that is held, and the last");
        drop(held);
    }

    #[tokio::test]
    async fn a_pod_is_being_bound_until_all_its_binds_have_ended() {
        let (turns, uid) = (Arc::<ClaimTurns>::default(), Arc::from("u1"));
        let (first, second) = (turns.bind(&uid), turns.bind(&uid));
        drop(first);
        assert!(turns.is_binding("u1") && !turns.is_binding("u2"));
        drop(second);
        assert!(!turns.is_binding("u1"));
    }
}
