//! Why connections fail, as their errors say. Pure.

use std::error::Error;
use std::io;

use rustls::{AlertDescription, Error as Tls};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_found_in_wrapped_errors() {
        let wrapped = |tls: Tls| io::Error::other(io::Error::new(io::ErrorKind::InvalidData, tls));
        let unknown = Tls::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        for (error, cause, why) in [
            (
                wrapped(unknown),
                Cause::Certificate,
                "the certificate of the other side is not accepted (UnknownIssuer)",
            ),
            (
                wrapped(Tls::AlertReceived(AlertDescription::UnknownCA)),
                Cause::Certificate,
                "the other side does not accept our certificate (UnknownCA)",
            ),
            (
                wrapped(Tls::InvalidMessage(rustls::InvalidMessage::InvalidContentType)),
                Cause::NotTls,
                "what came is no TLS (received corrupt message of type InvalidContentType)",
            ),
            (
                io::Error::from(io::ErrorKind::ConnectionRefused),
                Cause::Refused,
                "connection refused",
            ),
            (
                io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof"),
                Cause::Closed,
                "tls handshake eof",
            ),
        ] {
            assert_eq!(Cause::of(&error), (cause, why.to_owned()));
        }
    }
}
