//! Permits shared among namespaces: none holds more than its share, so that slow requests of one tenant leave permits for the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// See the module.
#[derive(Debug)]
pub struct Shares {
    all: Arc<Semaphore>,
    share: u32,
    /// Namespaces that hold permits or wait for some.
    own: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// Permits of a namespace; released when dropped.
#[derive(Debug)]
pub struct Permit {
    _all: OwnedSemaphorePermit,
    _own: (OwnedSemaphorePermit, Arc<Semaphore>),
}

impl Shares {
    /// `total` permits, of which one namespace may hold `share`.
    #[must_use]
    pub fn new(all: u32, share: u32) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all as usize)),
            share: share.min(all),
            own: Mutex::default(),
        }
    }

    /// Waits for permits, at most a whole share. First come, first served, within a namespace and among namespaces that have not used up their
    /// shares.
    pub async fn take(&self, namespace: &str, permits: u32) -> Option<Permit> {
        let permits = permits.min(self.share);
        let semaphore = self.of(namespace);
        let own = Arc::clone(&semaphore).acquire_many_owned(permits).await.ok()?;
        let all = Arc::clone(&self.all).acquire_many_owned(permits).await.ok()?;
        Some(Permit {
            _all: all,
            _own: (own, semaphore),
        })
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = own.get(namespace).and_then(Weak::upgrade) {
            return semaphore;
        }
        // Unused entries are removed before the map would grow.
        if own.len() == own.capacity() {
            own.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.share as usize));
        own.insert(namespace.to_owned(), Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_namespace_gets_its_share_and_leaves_the_rest() {
        let shares = Shares::new(8, 4);
        let held: Vec<_> = (0..4).map(|_| shares.take("loud", 1).now_or_never()).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(shares.take("loud", 1).now_or_never().is_none(), "its share is used up");
        assert!(shares.take("quiet", 1).now_or_never().is_some());
        drop(held);
        let all = shares.take("loud", 100).now_or_never();
        assert!(all.is_some(), "more than a share is a share");
    }

    #[tokio::test]
    async fn namespaces_that_ask_no_more_are_forgotten() {
        let shares = Shares::new(8, 4);
        for number in 0..1_000 {
            assert!(shares.take(&format!("ns-{number}"), 1).await.is_some());
        }
        assert!(shares.own.lock().unwrap().len() < 16);
    }
}
