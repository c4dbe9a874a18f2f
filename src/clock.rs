//! The time of day. Components and operator read it here, so that the simulation of the whole world can have one of its own;
//! for durations they use tokio's `Instant`, whose clock can be paused.

use std::time::SystemTime;

use jiff::Timestamp;

/// The time of day.
#[must_use]
pub fn now() -> Timestamp {
    #[cfg(feature = "devcluster")]
    if let Some(now) = simulated::now() {
        return now;
    }
    Timestamp::now()
}

/// The time of day, for spans.
#[must_use]
pub fn system_time() -> SystemTime {
    now().into()
}

/// Whether time is simulated on this thread.
#[must_use]
pub fn is_simulated() -> bool {
    #[cfg(feature = "devcluster")]
    return simulated::now().is_some();
    #[cfg(not(feature = "devcluster"))]
    false
}

#[cfg(feature = "devcluster")]
pub use simulated::simulate;

/// The time of day of a simulation, which runs on one thread: tokio's clock shows how long it has run.
#[cfg(feature = "devcluster")]
mod simulated {
    use std::cell::Cell;

    use jiff::Timestamp;
    use tokio::time::Instant;

    thread_local! {
        static BEGAN: Cell<Option<(Instant, Timestamp)>> = const { Cell::new(None) };
    }

    /// From now on the time of day on this thread is `start` plus what passes on tokio's clock; with `None` it is the system's again.
    pub fn simulate(start: Option<Timestamp>) {
        BEGAN.set(start.map(|start| (Instant::now(), start)));
    }

    pub(super) fn now() -> Option<Timestamp> {
        BEGAN.get().map(|(began, start)| start + began.elapsed())
    }
}
