//! The string formats that values of custom resources are checked against. Numeric formats (`int32`, …) and unknown ones are not checked,
//! as in the API server.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;

/// A format that limits a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Format {
    Byte,
    Cidr,
    Date,
    DateTime,
    Duration,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Mac,
    Uri,
    Uuid,
}

static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?)*$")
        .expect("constant")
});
static DURATION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$|^[-+]?0$|^\d+ ?(nanosecond|microsecond|millisecond|second|minute|hour|day|week|d|w)s?$")
        .expect("constant")
});
static MAC: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$").expect("constant"));

impl Format {
    /// The format of that name, if it is one that is checked.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "byte" => Self::Byte,
            "cidr" => Self::Cidr,
            "date" => Self::Date,
            "date-time" | "datetime" => Self::DateTime,
            "duration" => Self::Duration,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "mac" => Self::Mac,
            "uri" => Self::Uri,
            "uuid" => Self::Uuid,
            _ => return None,
        })
    }

    /// The name in a schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Byte => "byte",
            Self::Cidr => "cidr",
            Self::Date => "date",
            Self::DateTime => "date-time",
            Self::Duration => "duration",
            Self::Email => "email",
            Self::Hostname => "hostname",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Mac => "mac",
            Self::Uri => "uri",
            Self::Uuid => "uuid",
        }
    }

    /// Whether `text` is of this format.
    pub fn accepts(self, text: &str) -> bool {
        match self {
            Self::Byte => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Date => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            Self::DateTime => text.contains(['T', 't']) && text.parse::<jiff::Timestamp>().is_ok(),
            Self::Duration => DURATION.is_match(text),
            Self::Email => text
                .split_once('@')
                .is_some_and(|(user, host)| !user.is_empty() && HOSTNAME.is_match(host)),
            Self::Hostname => HOSTNAME.is_match(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Mac => MAC.is_match(text),
            Self::Uri => text.starts_with('/') || text.parse::<http::Uri>().is_ok_and(|uri| uri.scheme().is_some()),
            Self::Uuid => uuid::Uuid::try_parse(text).is_ok(),
        }
    }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(bits) = bits.parse::<u8>() else { return false };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32) || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}
