//! What tests of components have in common.

#[cfg(feature = "devcluster")]
pub mod lab;
mod panics;
pub mod recorded;

use jiff::Timestamp;

use super::*;
use leadership::Terms;

/// A simulated time of day on this thread, until it is dropped.
pub struct TimeOfDay(());

impl TimeOfDay {
    pub fn simulated(start: Timestamp) -> Self {
        crate::clock::simulate(Some(start));
        Self(())
    }
}

impl Drop for TimeOfDay {
    fn drop(&mut self) {
        crate::clock::simulate(None);
    }
}

/// The context of a process that leads nothing, and whose API server refuses every request.
pub fn idle_context() -> Context {
    let refused = leadership::refused();
    Context {
        reads: refused.clone(),
        watches: refused.clone(),
        writes: refused.clone(),
        settings: Arc::new(Settings::default()),
        refused,
        leading: tokio::sync::watch::channel(Terms::default()).1,
        scope: Scope::Cluster,
        only_term: None,
        shutdown: CancellationToken::new(),
        readiness: Readiness::default(),
        background: Background::new(Settings::default().background_delay),
        figures: Figures::default(),
        heartbeat: Heartbeat::default(),
        history: History::default(),
    }
}
