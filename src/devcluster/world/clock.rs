//! The simulated clock: run times of pods, grace periods, back-offs and deadlines use it.
//!
//! It follows tokio's clock (and so `tokio::time::pause` and `advance`) or whatever instant a driver publishes. Retries of
//! failed requests are not here: they wait in real time, because the API server they talk to does.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;

/// A source of the current instant that can be waited on. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Tokio { base: Instant, at_base: Timestamp },
    Driven(watch::Receiver<Timestamp>),
}

/// Moves the clocks made by [`Clock::manual`].
#[derive(Debug)]
pub struct ClockDriver(watch::Sender<Timestamp>);

impl Clock {
    /// The wall clock now, carried forward by tokio's clock.
    pub fn tokio() -> Self {
        Self(Source::Tokio {
            base: Instant::now(),
            at_base: crate::clock::now(),
        })
    }

    /// A clock that stays at `start` until its driver moves it.
    pub fn manual(start: Timestamp) -> (Self, ClockDriver) {
        let (sender, receiver) = watch::channel(start);
        (Self::following(receiver), ClockDriver(sender))
    }

    /// A clock that shows the newest instant published on `times`.
    fn following(times: watch::Receiver<Timestamp>) -> Self {
        Self(Source::Driven(times))
    }

    /// The current instant.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Tokio { base, at_base } => later(*at_base, base.elapsed()),
            Source::Driven(times) => *times.borrow(),
        }
    }

    /// Waits until [`Clock::now`] is at or past `at`. Waits for ever when the driver is gone before that.
    pub async fn sleep_until(&self, at: Timestamp) {
        match &self.0 {
            Source::Tokio { base, at_base } => {
                let after = Duration::try_from(at.duration_since(*at_base)).unwrap_or(Duration::ZERO);
                match base.checked_add(after) {
                    Some(instant) => tokio::time::sleep_until(instant).await,
                    None => std::future::pending().await,
                }
            }
            Source::Driven(times) => {
                if times.clone().wait_for(|now| *now >= at).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

impl ClockDriver {
    /// Moves the clock forward by `step`.
    pub fn advance(&self, step: Duration) {
        self.0.send_modify(|now| *now = later(*now, step));
    }
}

/// `at` plus `step`, held at the last representable instant.
pub(super) fn later(at: Timestamp, step: Duration) -> Timestamp {
    SignedDuration::try_from(step)
        .ok()
        .and_then(|step| at.checked_add(step).ok())
        .unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
