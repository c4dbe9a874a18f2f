//! One turn for each user: requests of the same user wait for one another, and not for those of others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module.
#[derive(Default)]
pub struct UserTurns {
    /// Those that a request has or waits for.
    by_user: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl UserTurns {
    /// Waits for a turn of the user. `None` does not occur: the semaphore stays open.
    pub async fn take(&self, user: &str) -> Option<OwnedSemaphorePermit> {
        self.of(user).acquire_owned().await.ok()
    }

    fn of(&self, user: &str) -> Arc<Semaphore> {
        let mut by_user = self.by_user.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = by_user.get(user).and_then(Weak::upgrade) {
            return turn;
        }
        by_user.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(1));
        by_user.insert(user.to_owned(), Arc::downgrade(&turn));
        turn
    }
}
