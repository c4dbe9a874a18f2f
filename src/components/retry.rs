//! Classes of failed requests, and how long to wait before a retry.

use std::time::Duration;

use kube::core::Status;

use super::connection_causes::Cause;

/// Waits that double from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// Wait after the first failure.
    pub first: Duration,
    /// The longest wait.
    pub longest: Duration,
}

/// The longest wait before what a scheduler decided and failed is tried again.
pub const LONGEST: Duration = Duration::from_mins(5);

impl Backoff {
    /// The wait after so many consecutive failures, counted from 1.
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// A request that takes longer than this no longer counts against the limit of concurrent requests, so that requests that hang, for example in a
/// webhook of one namespace, do not block the rest.
pub const LAGGING: Duration = Duration::from_secs(1);

/// How long after it was sent a request that was not answered may take effect.
pub const LATE: Duration = Duration::from_secs(10);

/// Upper bound of the wait that a server may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Classes of failed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The object does not exist (404).
    Gone,
    /// The object differs from what was assumed (409): read it again.
    Conflict,
    /// The server is overloaded (429, 503), or does not listen: retry after the time that it asks for.
    Busy,
    /// The request may have been carried out (timeout, dropped connection, 5xx): read before a retry.
    Unknown,
    /// A retry would fail as well (403, 422 and the like).
    Refused,
}

impl Failure {
    /// The value of the metric's label.
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

/// Classifies an error of the client.
#[must_use]
pub fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => match status.code {
            404 | 410 => Failure::Gone,
            409 => Failure::Conflict,
            // A short wait would change nothing: a disruption budget does not allow the eviction.
            429 if names_budget(status) => Failure::Refused,
            429 | 503 => Failure::Busy,
            500..=599 => Failure::Unknown,
            _ => Failure::Refused,
        },
        error if Cause::of(error).0 == Cause::Refused => Failure::Busy,
        _ => Failure::Unknown,
    }
}

/// Whether the API server has not answered, or another server in its place (502, 504): what was sent may still take effect.
#[must_use]
pub fn is_unanswered(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 502 | 504),
        _ => failure(error) == Failure::Unknown,
    }
}

/// The wait that the server asks for.
#[must_use]
pub fn asked_pause(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    let seconds = status.details.as_ref().map(|details| details.retry_after_seconds)?;
    (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)).min(PAUSE_MAX))
}

/// Whether a disruption budget forbade the eviction.
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
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        };
        let waits: Vec<u64> = (1..=8).map(|failures| backoff.wait(failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.wait(u32::MAX).as_secs(), 60);
    }

    #[test]
    fn codes_and_causes_say_whether_to_ask_again() {
        let answer = |code: u16, cause: Option<&str>| {
            let causes: Vec<_> = cause
                .iter()
                .map(|reason| serde_json::json!({"reason": reason}))
                .collect();
            let status = serde_json::json!({"status": "Failure", "code": code, "details": {"causes": causes}});
            kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))
        };
        let budget = Some("DisruptionBudget");
        for (code, cause, expected) in [
            (404, None, Failure::Gone),
            (410, None, Failure::Gone),
            (409, None, Failure::Conflict),
            (429, None, Failure::Busy),
            (503, None, Failure::Busy),
            (500, None, Failure::Unknown),
            (504, None, Failure::Unknown),
            (403, None, Failure::Refused),
            (422, None, Failure::Refused),
            (429, budget, Failure::Refused),
        ] {
            let error = answer(code, cause);
            assert_eq!(failure(&error), expected, "{code} {cause:?}");
            assert_eq!(refused_by_budget(&error), cause.is_some(), "{code} {cause:?}");
            assert_eq!(is_unanswered(&error), code == 504, "{code} {cause:?}");
        }
    }

    #[test]
    fn a_request_that_found_no_server_was_not_carried_out() {
        use std::io::{Error, ErrorKind};
        for (kind, expected) in [
            (ErrorKind::ConnectionRefused, (Failure::Busy, false)),
            (ErrorKind::ConnectionReset, (Failure::Unknown, true)),
        ] {
            let error = kube::Error::Service(Error::other(Error::from(kind)).into());
            assert_eq!((failure(&error), is_unanswered(&error)), expected, "{kind}");
        }
    }
}
