//! What the process still waits for before it is ready, as a set of named handles. Independent of HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// The set of parts that must be ready; shared by all components and read by the `/readyz` endpoint.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    waiting: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Readiness {
    /// Adds a part. It is not ready, for the given reason, until [`Handle::ready`] is called.
    #[must_use]
    pub fn handle(&self, name: impl Into<String>, reason: impl Into<String>) -> Handle {
        let handle = Handle {
            name: name.into(),
            waiting: Arc::clone(&self.waiting),
        };
        handle.not_ready(reason);
        handle
    }

    /// The parts that are not ready, as (name, reason) in order of name.
    #[must_use]
    pub fn waiting(&self) -> Vec<(String, String)> {
        let waiting = self.waiting.borrow();
        waiting
            .iter()
            .map(|(name, reason)| (name.clone(), reason.clone()))
            .collect()
    }

    /// Returns when all parts are ready.
    pub async fn all_ready(&self) {
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.waiting.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

/// A part that must be ready. Dropping the handle changes nothing: a part that was not ready stays so.
#[derive(Debug)]
pub struct Handle {
    name: String,
    waiting: Arc<watch::Sender<BTreeMap<String, String>>>,
}

impl Handle {
    /// Marks the part as ready.
    pub fn ready(&self) {
        self.waiting
            .send_if_modified(|waiting| waiting.remove(&self.name).is_some());
    }

    /// Marks the part as not (or no longer) ready, with the reason.
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
