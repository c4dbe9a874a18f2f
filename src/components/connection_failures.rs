//! Failed connections: one log line with address and cause; repeats are counted, and logged with their number at growing intervals.
//!
//! Peers may be hostile, so the table of addresses is bounded: all further ones are counted together.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::connection_causes::{Cause, links};
use super::retry::Backoff;

/// Limit on pairs of address and cause in the table.
const REMEMBERED: usize = 256;
/// Intervals between two lines about the same address and cause.
const AGAIN: Backoff = Backoff {
    first: Duration::from_secs(60),
    longest: Duration::from_secs(60 * 60),
};
/// An entry without a failure for so long is removed.
const QUIET: Duration = Duration::from_secs(2 * 60 * 60);
/// The address under which all further ones are counted.
const OTHERS: &str = "further addresses";

/// Which connections fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Those of clients to the webhooks.
    Webhooks,
    /// Ours to the API server.
    ApiServer,
}

impl Side {
    /// The value of the metric's label.
    fn as_str(self) -> &'static str {
        match self {
            Self::Webhooks => "webhooks",
            Self::ApiServer => "api_server",
        }
    }
}

/// The failures of one side. Clones share them.
#[derive(Clone, Debug)]
pub struct ConnectionFailures {
    side: Side,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    repeats: BTreeMap<(String, Cause), Repeats>,
    /// Failures since a connection last worked; `None` where nothing was logged.
    broken: Option<u64>,
}

#[derive(Debug)]
struct Repeats {
    lines: u32,
    logged: Instant,
    last: Instant,
    /// Since the last line.
    unlogged: u64,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    address: String,
    /// How often it failed since the last line; none for the first.
    repeats: Option<u64>,
}

impl ConnectionFailures {
    /// Without failures.
    #[must_use]
    pub fn of(side: Side) -> Self {
        Self {
            side,
            known: Arc::default(),
        }
    }

    /// Counts a failure and logs it if it is the first of its kind, or has repeated for long enough.
    pub fn failed(&self, address: &str, cause: Cause, why: &str) {
        metrics::counter!("unikai_connection_failures_total", "side" => self.side.as_str(), "cause" => cause.as_str())
            .increment(1);
        let Some(Line { address, repeats }) = self.lock().failed(Instant::now(), address, cause) else {
            return;
        };
        let what = match (self.side, repeats) {
            (Side::Webhooks, None) => "a client's connection to the webhooks failed",
            (Side::Webhooks, Some(_)) => "a client's connections to the webhooks fail again and again",
            (Side::ApiServer, None) => "the connection to the API server failed",
            (Side::ApiServer, Some(_)) => "connections to the API server fail again and again",
        };
        warn!(address, cause = why, repeats, "{what}");
    }

    /// Records that a connection works; logs it if the last line reports a failure.
    pub fn worked(&self, address: &str) {
        if let Some(failures) = self.lock().broken.take() {
            info!(address, failures, "the API server is reached again");
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn failed(&mut self, now: Instant, address: &str, cause: Cause) -> Option<Line> {
        if let Some(failures) = &mut self.broken {
            *failures += 1;
        }
        let mut key = (address.to_owned(), cause);
        if !self.repeats.contains_key(&key) && self.repeats.len() >= REMEMBERED {
            self.repeats
                .retain(|_, repeats| now.saturating_duration_since(repeats.last) < QUIET);
            if self.repeats.len() >= REMEMBERED {
                OTHERS.clone_into(&mut key.0);
            }
        }
        let address = key.0.clone();
        let known = self.repeats.get_mut(&key);
        let known = known.filter(|repeats| now.saturating_duration_since(repeats.last) < QUIET);
        let repeats = if let Some(repeats) = known {
            repeats.last = now;
            repeats.unlogged += 1;
            if now.saturating_duration_since(repeats.logged) < AGAIN.wait(repeats.lines) {
                return None;
            }
            repeats.lines += 1;
            repeats.logged = now;
            Some(std::mem::take(&mut repeats.unlogged))
        } else {
            let first = Repeats {
                lines: 1,
                logged: now,
                last: now,
                unlogged: 0,
            };
            self.repeats.insert(key, first);
            None
        };
        self.broken.get_or_insert(1);
        Some(Line { address, repeats })
    }
}

/// The error of a request whose connection failed. The failure is logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no connection to {address}: {why}")]
pub struct ConnectionFailed {
    /// Host and port.
    pub address: String,
    /// The cause.
    pub why: String,
}

impl ConnectionFailed {
    /// Whether an error was caused by a failed connection, which is logged already.
    #[must_use]
    pub fn is_cause_of(error: &(dyn Error + 'static)) -> bool {
        links(error).any(<dyn Error>::is::<Self>)
    }
}

#[cfg(test)]
mod tests;
