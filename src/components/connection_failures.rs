//! Failed connections: one log line with address and cause; repeats are counted, and logged with their number at growing intervals.
//!
//! Peers may be hostile, so the table of addresses is bounded: all further ones are counted together.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::{AlertDescription, Error as Tls};
use tokio::time::Instant;
use tracing::{info, warn};

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

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The port is closed.
    Refused,
    /// There is no route to the host.
    Unreachable,
    /// The host name cannot be resolved.
    Name,
    /// The peer does not use TLS.
    NotTls,
    /// One side rejects the certificate of the other, or there is none.
    Certificate,
    /// The two sides have no version or cipher of TLS in common, or one breaks the protocol.
    Protocol,
    /// The peer closed it.
    Closed,
    /// It timed out.
    Silent,
    /// Something else.
    Other,
}

impl Cause {
    /// All values of the metric's label.
    pub const NAMES: [&'static str; 9] = [
        Self::Refused.as_str(),
        Self::Unreachable.as_str(),
        Self::Name.as_str(),
        Self::NotTls.as_str(),
        Self::Certificate.as_str(),
        Self::Protocol.as_str(),
        Self::Closed.as_str(),
        Self::Silent.as_str(),
        Self::Other.as_str(),
    ];

    /// The value of the metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Name => "name",
            Self::NotTls => "not_tls",
            Self::Certificate => "certificate",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::Other => "other",
        }
    }

    /// The cause of an error, with a sentence about it.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> (Self, String) {
        let mut last = error;
        for link in links(error) {
            last = link;
            if let Some(tls) = link.downcast_ref::<Tls>() {
                return of_tls(tls);
            }
            if let Some(error) = link
                .downcast_ref::<io::Error>()
                .filter(|error| error.get_ref().is_none())
            {
                return (of_io(error.kind()), error.to_string());
            }
            if link.to_string() == "dns error" {
                let why = link.source().map_or_else(|| link.to_string(), ToString::to_string);
                return (Self::Name, why);
            }
        }
        // Errors of the library that have only a kind and a text.
        let kind = links(error).find_map(|link| link.downcast_ref::<io::Error>().map(io::Error::kind));
        let of_hyper = links(error).any(|link| {
            let error = link.downcast_ref::<hyper::Error>();
            error.is_some_and(|error| error.is_incomplete_message() || error.is_canceled() || error.is_closed())
        });
        let cause = match kind {
            _ if of_hyper => Self::Closed,
            Some(kind) => of_io(kind),
            None => Self::Other,
        };
        (cause, last.to_string())
    }
}

fn of_io(kind: io::ErrorKind) -> Cause {
    match kind {
        io::ErrorKind::ConnectionRefused => Cause::Refused,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Cause::Unreachable,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => Cause::Closed,
        io::ErrorKind::TimedOut => Cause::Silent,
        _ => Cause::Other,
    }
}

fn of_tls(error: &Tls) -> (Cause, String) {
    match error {
        Tls::InvalidMessage(_) => (Cause::NotTls, format!("what came is no TLS ({error})")),
        Tls::AlertReceived(
            alert @ (AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired),
        ) => (
            Cause::Certificate,
            format!("the other side does not accept our certificate ({alert:?})"),
        ),
        Tls::InvalidCertificate(why) => (
            Cause::Certificate,
            format!("the certificate of the other side is not accepted ({why:?})"),
        ),
        Tls::NoCertificatesPresented => (Cause::Certificate, "the other side shows no certificate".to_owned()),
        _ => (Cause::Protocol, error.to_string()),
    }
}

/// The error and its sources, down to the first cause. An [`io::Error`] does not list the error that it wraps as a source, so that is added.
pub fn links<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let below = |link: &'a (dyn Error + 'static)| {
        let wrapped = link.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        match wrapped {
            Some(inner) => Some(inner as &(dyn Error + 'static)),
            None => link.source(),
        }
    };
    std::iter::successors(Some(error), move |&link| below(link)).take(20)
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
