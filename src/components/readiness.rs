//! What the process still waits for before it is ready, as a set of named handles. Knows nothing of HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// The set of things that must be ready; shared by all components and read by the `/readyz` endpoint.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Readiness {
    /// Adds something to wait for. It counts as not ready, for the reason given, until [`Handle::ready`] is called.
    #[must_use]
    pub fn handle(&self, name: impl Into<String>, reason: impl Into<String>) -> Handle {
        let handle = Handle {
            name: name.into(),
            waiting: Arc::clone(&self.waiting),
        };
        handle.not_ready(reason);
        handle
    }

    /// What is not ready yet, as (name, reason) in order of name; empty when everything is.
    #[must_use]
    pub fn waiting(&self) -> Vec<(String, String)> {
        let waiting = self.waiting.borrow();
        waiting
            .iter()
            .map(|(name, reason)| (name.clone(), reason.clone()))
            .collect()
    }

    /// Returns as soon as nothing is waited for.
    pub async fn all_ready(&self) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.waiting.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

/// One thing that must be ready. Dropping it changes nothing: what was never ready stays so.
#[derive(Debug)]
pub struct Handle {
    name: String,
    waiting: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Handle {
    /// It is ready.
    pub fn ready(&self) {
        self.waiting
            .send_if_modified(|waiting| waiting.remove(&self.name).is_some());
    }

    /// It is not (or no longer) ready, and why.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.waiting.send_modify(|waiting| {
            waiting.insert(self.name.clone(), reason.into());
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_the_last_handle_is() {
        let readiness = Readiness::default();
        let (pods, queues) = (
            readiness.handle("pods", "first list"),
            readiness.handle("queues", "CRD not installed"),
        );
        pods.ready();
        assert_eq!(
            readiness.waiting(),
            [("queues".to_owned(), "CRD not installed".to_owned())]
        );
        queues.ready();
        assert!(readiness.waiting().is_empty());
        pods.not_ready("watch lost");
        drop(pods);
        assert!(!readiness.waiting().is_empty());
    }
}
