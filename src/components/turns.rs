//! Turns for writes that nobody waits for (pod groups, statuses, events), which all components share.
//!
//! A component asks for one turn at a time, when something is due, and decides what to write only once it has the turn. So what is
//! written is never older than the turn, what has become needless meanwhile is not written at all, and however much one component
//! has to write, the others' next write comes after a few of its own. None has all turns at once: writes of one kind may hang (a
//! webhook that does not answer, say), and the others' are to go on. Bindings do not take turns.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep_until;
use tokio_util::sync::PollSemaphore;

/// Turns that one component may have at once, of [`BACKGROUND_WRITES`](super::BACKGROUND_WRITES).
const OWN_MAX: usize = super::BACKGROUND_WRITES - 2;

/// The right to have one write under way; given back when dropped.
#[derive(Debug)]
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

/// One component's place in the row.
#[derive(Debug)]
pub struct Turns {
    own: PollSemaphore,
    shared: PollSemaphore,
    /// Of its own, while it waits for one of the shared.
    held: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// A place among those who share these permits.
    #[must_use]
    pub fn new(shared: &Arc<Semaphore>) -> Self {
        Self {
            own: PollSemaphore::new(Arc::new(Semaphore::new(OWN_MAX))),
            shared: PollSemaphore::new(Arc::clone(shared)),
            held: None,
        }
    }

    /// Waits until that time (for ever, if nothing is due), then for a turn. May be dropped and called again at will: the place in
    /// the row stays.
    pub async fn due(&mut self, at: Option<Instant>) -> Turn {
        match at {
            Some(at) => sleep_until(at.into()).await,
            None => pending().await,
        }
        if self.held.is_none() {
            self.held = poll_fn(|context| self.own.poll_acquire(context)).await;
        }
        let shared = poll_fn(|context| self.shared.poll_acquire(context)).await;
        match (self.held.take(), shared) {
            (Some(own), Some(shared)) => Turn {
                _own: own,
                _shared: shared,
            },
            // Nobody closes them.
            (None, _) | (_, None) => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn whoever_asks_is_next_however_many_another_has_to_write() {
        let shared = Arc::new(Semaphore::new(1));
        let (mut busy, mut other) = (Turns::new(&shared), Turns::new(&shared));
        let now = Some(Instant::now());
        let held = busy.due(now).await;
        // Asked again and again, as in a loop whose other branches come first.
        assert!(timeout(SOON, other.due(now)).await.is_err());
        assert!(timeout(SOON, busy.due(now)).await.is_err());
        assert!(timeout(SOON, other.due(now)).await.is_err());
        drop(held);
        let held = timeout(SOON, other.due(now)).await.unwrap();
        drop(held);
        assert!(timeout(SOON, busy.due(now)).await.is_ok());
    }

    #[tokio::test]
    async fn one_whose_writes_hang_leaves_turns_to_the_others() {
        let shared = Arc::new(Semaphore::new(crate::components::BACKGROUND_WRITES));
        let (mut hangs, mut other) = (Turns::new(&shared), Turns::new(&shared));
        let now = Some(Instant::now());
        let mut held = Vec::new();
        while let Ok(turn) = timeout(SOON, hangs.due(now)).await {
            held.push(turn);
        }
        assert_eq!(held.len(), OWN_MAX);
        assert!(timeout(SOON, other.due(now)).await.is_ok());
        held.pop();
        assert!(timeout(SOON, hangs.due(now)).await.is_ok());
    }

    #[tokio::test]
    async fn nothing_due_takes_no_turn() {
        let shared = Arc::new(Semaphore::new(1));
        let mut turns = Turns::new(&shared);
        assert!(timeout(SOON, turns.due(None)).await.is_err());
        let later = Instant::now() + Duration::from_secs(60);
        assert!(timeout(SOON, turns.due(Some(later))).await.is_err());
        assert_eq!(shared.available_permits(), 1);
    }
}
