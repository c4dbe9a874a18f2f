//! What tests of components have in common.

#[cfg(feature = "devcluster")]
pub mod lab;
mod panics;

use super::*;
use leadership::Terms;

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
