//! What the process still waits for, as a set of named handles. Independent of HTTP.
//!
//! A process that was ready once stays so for its probe: its webhooks answer also while components are restarted or a watch is behind, and without an
//! endpoint every review would fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// The set of parts that must be ready; shared by all components and read by the `/readyz` endpoint.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    parts: Arc<watch::Sender<Parts>>,
}

/// The parts that are not ready.
#[derive(Debug, Default)]
struct Parts {
    /// The reasons, by name.
    waiting: BTreeMap<String, String>,
    /// There was a time without any.
    were_ready: bool,
}

impl Readiness {
    /// Adds a part. It is not ready, for the given reason, until [`Handle::ready`] is called.
    #[must_use]
    pub fn handle(&self, name: impl Into<String>, reason: impl Into<String>) -> Handle {
        let handle = Handle {
            name: name.into(),
            parts: Arc::clone(&self.parts),
        };
        handle.not_ready(reason);
        handle
    }

    /// The parts that are not ready, as (name, reason) in order of name.
    #[must_use]
    pub fn waiting(&self) -> Vec<(String, String)> {
        let parts = self.parts.borrow();
        parts
            .waiting
            .iter()
            .map(|(name, reason)| (name.clone(), reason.clone()))
            .collect()
    }

    /// Whether all parts were ready once, so that the process can answer.
    #[must_use]
    pub fn were_ready(&self) -> bool {
        self.parts.borrow().were_ready
    }

    /// Returns when all parts are ready.
    pub async fn all_ready(&self) {
        self.ready(|_| true).await;
    }

    /// Returns when those parts are ready whose names fit.
    pub async fn ready(&self, fits: impl Fn(&str) -> bool) {
        let waits = |parts: &Parts| parts.waiting.keys().any(|name| fits(name));
        // It cannot fail: the sender lives as long as `self`.
        let _ = self.parts.subscribe().wait_for(|parts| !waits(parts)).await;
    }
}

/// A part that must be ready. Dropping the handle changes nothing: a part that was not ready stays so.
#[derive(Debug)]
pub struct Handle {
    name: String,
    parts: Arc<watch::Sender<Parts>>,
}

impl Handle {
    /// Marks the part as ready.
    pub fn ready(&self) {
        self.parts.send_if_modified(|parts| {
            let waited = parts.waiting.remove(&self.name).is_some();
            parts.were_ready |= parts.waiting.is_empty();
            waited
        });
    }

    /// Marks the part as not (or no longer) ready, with the reason.
    pub fn not_ready(&self, reason: impl Into<String>) {
        self.parts.send_modify(|parts| {
            parts.waiting.insert(self.name.clone(), reason.into());
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
        assert!(!readiness.were_ready());
        queues.ready();
        assert!(readiness.waiting().is_empty() && readiness.were_ready());
        pods.not_ready("watch lost");
        drop(pods);
        assert!(!readiness.waiting().is_empty());
        assert!(readiness.were_ready(), "it can still answer");
    }

    #[tokio::test(start_paused = true)]
    async fn some_parts_may_be_waited_for() {
        use tokio::time::{Duration, timeout};
        let readiness = Readiness::default();
        let (pods, webhooks) = (
            readiness.handle("watch-pods", "first list"),
            readiness.handle("webhooks", "no certificate yet"),
        );
        let ready = async || {
            let listed = readiness.ready(|name| name.starts_with("watch-"));
            timeout(Duration::from_secs(1), listed).await.is_ok()
        };
        webhooks.ready();
        assert!(!ready().await);
        webhooks.not_ready("no certificate yet");
        pods.ready();
        assert!(ready().await);
    }
}
