//! Turns for writes that nobody waits for (pod groups, statuses, events), which all components share.
//!
//! A component asks for one turn at a time, when something is due, and decides what to write only once it has the turn. So what is
//! written is never older than the turn, what has become needless meanwhile is not written at all, and however much one component
//! has to write, the others' next write comes after a few of its own. Bindings do not take turns.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep_until;
use tokio_util::sync::PollSemaphore;

/// The right to have one write under way; given back when dropped.
pub type Turn = OwnedSemaphorePermit;

/// One component's place in the row.
#[derive(Debug)]
pub struct Turns(PollSemaphore);

impl Turns {
    /// A place among those who share these permits.
    #[must_use]
    pub fn new(shared: &Arc<Semaphore>) -> Self {
        Self(PollSemaphore::new(Arc::clone(shared)))
    }

    /// Waits until that time (for ever, if nothing is due), then for a turn. May be dropped and called again at will: the place in
    /// the row stays.
    pub async fn due(&mut self, at: Option<Instant>) -> Turn {
        match at {
            Some(at) => sleep_until(at.into()).await,
            None => pending().await,
        }
        match poll_fn(|context| self.0.poll_acquire(context)).await {
            Some(turn) => turn,
            // Nobody closes it.
            None => pending().await,
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
    async fn nothing_due_takes_no_turn() {
        let shared = Arc::new(Semaphore::new(1));
        let mut turns = Turns::new(&shared);
        assert!(timeout(SOON, turns.due(None)).await.is_err());
        let later = Instant::now() + Duration::from_secs(60);
        assert!(timeout(SOON, turns.due(Some(later))).await.is_err());
        assert_eq!(shared.available_permits(), 1);
    }
}
