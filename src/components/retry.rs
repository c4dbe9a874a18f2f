//! How a failed request is to be taken, and how long to wait before the next try.

use std::time::Duration;

use kube::core::Status;

/// Waits that double from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// No wait is longer.
    pub longest: Duration,
}

impl Backoff {
    /// The wait after that many failures in a row, counted from 1.
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// A request that takes longer than this does not count any more among those that may be under way at once: what hangs, because a
/// webhook of one namespace does not answer, say, must not stand in the way of the rest.
pub const LAGGING: Duration = Duration::from_secs(1);

/// The longest wait that a server may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What a failed request means for whoever sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The object is not there (404).
    Gone,
    /// The object is not as it was assumed to be (409): read it again.
    Conflict,
    /// The server has too much to do (429, 503): come again, not before the time it asks for.
    Busy,
    /// Nobody knows whether the request was carried out (timeout, dropped connection, 5xx): look before trying again.
    Unknown,
    /// The same request will fail again (403, 422 and the like).
    Refused,
}

impl Failure {
    /// The word, for metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Conflict => "conflict",
            Self::Busy => "busy",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
        }
    }
}

/// Sorts an error of the client.
#[must_use]
pub fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => match status.code {
            404 | 410 => Failure::Gone,
            409 => Failure::Conflict,
            // Nothing that waiting a little would change: a disruption budget does not allow an eviction.
            429 if names_budget(status) => Failure::Refused,
            429 | 503 => Failure::Busy,
            500..=599 => Failure::Unknown,
            _ => Failure::Refused,
        },
        _ => Failure::Unknown,
    }
}

/// The wait that the server asks for.
#[must_use]
pub fn asked_pause(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref().map(|details| details.retry_after_seconds)?;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)).min(PAUSE_MAX))
}

/// Whether a disruption budget forbade it.
#[must_use]
pub fn refused_by_budget(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 429 && names_budget(status))
}

fn names_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "DisruptionBudget")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        };
        let waits: Vec<u64> = (1..=8).map(|failures| backoff.wait(failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.wait(u32::MAX).as_secs(), 60);
    }
}
