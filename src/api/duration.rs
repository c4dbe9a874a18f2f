//! Durations as texts: Go's (`1h30m`), Go's with days and weeks, and Prometheus' (`1w2d`).

use std::fmt::Write;

use jiff::SignedDuration;

const MICROSECOND: i128 = 1_000;
const MILLISECOND: i128 = 1_000 * MICROSECOND;
const SECOND: i128 = 1_000 * MILLISECOND;
const MINUTE: i128 = 60 * SECOND;
const HOUR: i128 = 60 * MINUTE;
const DAY: i128 = 24 * HOUR;
const WEEK: i128 = 7 * DAY;
const YEAR: i128 = 365 * DAY;

/// The units of a Go duration, in nanoseconds.
const GO_UNITS: &[(&str, i128)] = &[
    ("ns", 1),
    ("us", MICROSECOND),
    ("µs", MICROSECOND),
    ("μs", MICROSECOND),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
];

/// Units that some of the API's durations admit besides Go's.
const CALENDAR_UNITS: &[(&str, i128)] = &[("d", DAY), ("w", WEEK)];

/// The units of a Prometheus duration, in the order they must have.
const PROMETHEUS_UNITS: &[(&str, i128)] = &[
    ("y", YEAR),
    ("w", WEEK),
    ("d", DAY),
    ("h", HOUR),
    ("m", MINUTE),
    ("s", SECOND),
    ("ms", MILLISECOND),
];

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The text does not have the form of a duration.
    #[error("{0:?} is not a duration: write a number and a unit, such as 90s, 10m or 1h30m")]
    Malformed(String),
    /// A unit that this kind of duration does not know.
    #[error("{text:?} is not a duration: unknown unit {unit:?}")]
    UnknownUnit {
        /// The whole text.
        text: String,
        /// The unit.
        unit: String,
    },
    /// Longer than 292 years.
    #[error("{0:?} is too long a duration")]
    TooLong(String),
}

/// Reads a Go duration: a sign, then numbers with the units `ns`, `us`, `ms`, `s`, `m`, `h`.
///
/// # Errors
/// If the text is not a Go duration.
pub fn parse_go(text: &str) -> Result<SignedDuration, DurationError> {
    parse_with(text, |unit| find(GO_UNITS, unit))
}

/// Reads a Go duration that may also use `d` and `w`.
///
/// # Errors
/// If the text is not such a duration.
pub fn parse_extended(text: &str) -> Result<SignedDuration, DurationError> {
    parse_with(text, |unit| find(GO_UNITS, unit).or_else(|| find(CALENDAR_UNITS, unit)))
}

/// Reads a Prometheus duration: whole numbers with the units `y`, `w`, `d`, `h`, `m`, `s`, `ms`, in this order, each at most once.
///
/// # Errors
/// If the text is not a Prometheus duration.
pub fn parse_prometheus(text: &str) -> Result<SignedDuration, DurationError> {
    if text == "0" {
        return Ok(SignedDuration::ZERO);
    }
    let malformed = || DurationError::Malformed(text.to_owned());
    let (mut rest, mut nanos, mut next_unit) = (text, 0_i128, 0);
    while !rest.is_empty() {
        let (number, after) = split_at_not(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_at_not(after, |c| !c.is_ascii_digit());
        if number.is_empty() || unit.is_empty() {
            return Err(malformed());
        }
        let position = PROMETHEUS_UNITS
            .iter()
            .position(|(name, _)| *name == unit)
            .ok_or_else(|| DurationError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
            })?;
        if position < next_unit {
            return Err(malformed());
        }
        let count: i128 = number.parse().map_err(|_| DurationError::TooLong(text.to_owned()))?;
        nanos = nanos.saturating_add(count.saturating_mul(PROMETHEUS_UNITS[position].1));
        next_unit = position + 1;
        rest = after;
    }
    if text.is_empty() {
        Err(malformed())
    } else {
        from_nanos(text, nanos)
    }
}

/// A duration as Go prints it: `1h30m0s`, `1.5s`, `250ms`, `0s`.
pub fn format_go(duration: SignedDuration) -> String {
    let nanos = duration.as_nanos();
    let size = nanos.abs();
    let mut text = String::from(if nanos < 0 { "-" } else { "" });
    match size {
        0 => text.push_str("0s"),
        1..MICROSECOND => push_decimal(&mut text, size, 1, "ns"),
        MICROSECOND..MILLISECOND => push_decimal(&mut text, size, MICROSECOND, "µs"),
        MILLISECOND..SECOND => push_decimal(&mut text, size, MILLISECOND, "ms"),
        _ => {
            if size >= HOUR {
                let _ = write!(text, "{}h", size / HOUR);
            }
            if size >= MINUTE {
                let _ = write!(text, "{}m", size % HOUR / MINUTE);
            }
            push_decimal(&mut text, size % MINUTE, SECOND, "s");
        }
    }
    text
}

fn parse_with(text: &str, unit_nanos: impl Fn(&str) -> Option<i128>) -> Result<SignedDuration, DurationError> {
    let malformed = || DurationError::Malformed(text.to_owned());
    let (sign, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    };
    if unsigned == "0" {
        return Ok(SignedDuration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(malformed());
    }
    let (mut rest, mut nanos) = (unsigned, 0_i128);
    while !rest.is_empty() {
        let (number, after) = split_at_not(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, after) = split_at_not(after, |c| !c.is_ascii_digit() && c != '.');
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') || unit.is_empty() {
            return Err(malformed());
        }
        let scale = unit_nanos(unit).ok_or_else(|| DurationError::UnknownUnit {
            text: text.to_owned(),
            unit: unit.to_owned(),
        })?;
        nanos = nanos
            .saturating_add(amount(whole, fraction, scale).ok_or_else(|| DurationError::TooLong(text.to_owned()))?);
        rest = after;
    }
    from_nanos(text, sign * nanos)
}

/// `whole.fraction` * `scale`, cut to whole nanoseconds; none if too large.
fn amount(whole: &str, fraction: &str, scale: i128) -> Option<i128> {
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut part = 0;
    for digit in fraction.bytes().rev() {
        part = (i128::from(digit - b'0') * scale + part) / 10;
    }
    whole.checked_mul(scale)?.checked_add(part)
}

fn from_nanos(text: &str, nanos: i128) -> Result<SignedDuration, DurationError> {
    let nanos = i64::try_from(nanos).map_err(|_| DurationError::TooLong(text.to_owned()))?;
    Ok(SignedDuration::from_nanos(nanos))
}

fn find(units: &[(&str, i128)], unit: &str) -> Option<i128> {
    units.iter().find(|(name, _)| *name == unit).map(|(_, nanos)| *nanos)
}

/// Splits a text before the first character that `belongs` refuses.
fn split_at_not(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

/// Writes `nanos / scale` with as many decimals as it needs.
fn push_decimal(text: &mut String, nanos: i128, scale: i128, unit: &str) {
    let _ = write!(text, "{}", nanos / scale);
    let (mut rest, mut weight) = (nanos % scale, scale / 10);
    if rest > 0 {
        text.push('.');
    }
    while rest > 0 {
        let _ = write!(text, "{}", rest / weight);
        rest %= weight;
        weight /= 10;
    }
    text.push_str(unit);
}

#[cfg(test)]
mod tests;
