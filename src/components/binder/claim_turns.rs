//! Turns of writing resource claims. Binds of pods that share a claim, such as those of a gang, would else read the same version of it at the same time, and
//! all writes but one would conflict, again and again. And no claim is taken from a pod while that is being bound.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use super::open_binds::{Open, OpenBinds};
use crate::components::keyed_turns::KeyedTurns;
use crate::components::watches::Key;

/// How long a bind waits for its turn of writing a resource claim or volume claim. After that it writes without one, since what another bind sent may hang.
pub const TURN: Duration = Duration::from_secs(30);

/// The turns of all claims that are being written. By name: a claim is written only if its uid is the one that was read.
#[derive(Default)]
pub struct ClaimTurns {
    turns: KeyedTurns<Key>,
    /// Releases that were given up, and until when each may take effect.
    unsettled: Mutex<HashMap<Key, Instant>>,
    /// Open binds with claims, by the uid of the pod.
    binding: Arc<OpenBinds>,
}

impl ClaimTurns {
    fn unsettled(&self) -> MutexGuard<'_, HashMap<Key, Instant>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing else in this process writes the claim; the next one may when the result is dropped.
    pub async fn next(&self, claim: &Key) -> OwnedMutexGuard<()> {
        self.turns.next(claim).await
    }

    /// A bind of a pod with claims begins; it ends when the result is dropped.
    #[must_use]
    pub fn bind(&self, uid: &Arc<str>) -> Open {
        self.binding.begin([Arc::clone(uid)])
    }

    /// Whether a bind of the pod is open.
    #[must_use]
    pub fn is_binding(&self, uid: &str) -> bool {
        self.binding.has(uid)
    }

    /// A release of the claim was given up. Until that time it may take effect.
    pub fn not_settled(&self, claim: Key, until: Instant) {
        let now = Instant::now();
        let mut unsettled = self.unsettled();
        unsettled.retain(|_, until| *until > now);
        unsettled.insert(claim, until);
    }

    /// Until when a release of the claim that was given up may take effect.
    #[must_use]
    pub fn unsettled_until(&self, claim: &Key) -> Option<Instant> {
        self.unsettled().get(claim).copied()
    }
}
