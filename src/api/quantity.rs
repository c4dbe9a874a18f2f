//! Kubernetes quantities (`500m`, `64Gi`, `1e3`), exactly: integers of a billionth, no floats.
//!
//! Absent: any notion of which resource an amount belongs to.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Billionths in one.
const NANOS: i128 = 1_000_000_000;
/// Powers of ten: 0 to 18.
const TEN_TO: [u64; 19] = {
    let mut powers = [1; 19];
    let mut at = 1;
    while at < 19 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};
/// The greatest amount that Kubernetes can hold; larger ones are cut down to it.
const MAX: i128 = i64::MAX as i128 * NANOS;

/// An exact amount. Arithmetic saturates at what Kubernetes can hold (2^63 - 1), except for [`Amount::wide_add`] and [`Amount::wide_sub`]; texts are cut
/// down to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    nanos: i128,
}

/// The suffixes that a quantity is written with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of 1000: `500m`, `3`, `2k`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `64Mi`.
    BinarySi,
    /// Scientific: `1e3`.
    DecimalExponent,
}

/// A text that is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity")]
pub struct QuantityError(pub String);

impl Amount {
    /// An amount of 0.
    pub const ZERO: Self = Self { nanos: 0 };

    /// An amount in billionths.
    pub fn from_nanos(nanos: i128) -> Self {
        Self {
            nanos: nanos.clamp(-MAX, MAX),
        }
    }

    /// An amount in whole units.
    pub fn from_units(units: i64) -> Self {
        Self {
            nanos: i128::from(units) * NANOS,
        }
    }

    /// An amount in thousandths.
    pub fn from_milli(milli: i64) -> Self {
        Self {
            nanos: i128::from(milli) * (NANOS / 1000),
        }
    }

    /// Reads a quantity; see [`parse`] for its format as well.
    ///
    /// # Errors
    /// If the text is not a quantity.
    pub fn of(quantity: &Quantity) -> Result<Self, QuantityError> {
        quantity.0.parse()
    }

    /// The amount in whole units, parts of one rounded away from zero.
    pub fn units(self) -> i64 {
        self.scaled(NANOS)
    }

    /// The amount in thousandths, parts of one rounded away from zero; saturates.
    pub fn milli(self) -> i64 {
        self.scaled(NANOS / 1000)
    }

    /// The amount in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// Whether the amount is 0.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is negative.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self {
            nanos: (self.nanos + other.nanos).clamp(-MAX, MAX),
        }
    }

    /// The difference.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            nanos: (self.nanos - other.nanos).clamp(-MAX, MAX),
        }
    }

    /// The sum, also beyond what Kubernetes can hold: for sums from which amounts are subtracted again, which must return to what they were.
    #[must_use]
    pub fn wide_add(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_add(other.nanos),
        }
    }

    /// The difference; undoes [`Amount::wide_add`].
    #[must_use]
    pub fn wide_sub(self, other: Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(other.nanos),
        }
    }

    /// The product with a whole number.
    #[must_use]
    pub fn saturating_mul(self, factor: i64) -> Self {
        Self {
            nanos: self.nanos.saturating_mul(i128::from(factor)).clamp(-MAX, MAX),
        }
    }

    /// The canonical text in a format: the largest suffix that leaves no fraction.
    pub fn format(self, format: Format) -> String {
        let held = Self::from_nanos(self.nanos);
        match format {
            Format::DecimalSi => held.decimal(&["n", "u", "m", "", "k", "M", "G", "T", "P", "E"]),
            Format::DecimalExponent => held.decimal(&["e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18"]),
            Format::BinarySi => held.binary(),
        }
    }

    /// The canonical quantity in a format.
    pub fn to_quantity(self, format: Format) -> Quantity {
        Quantity(self.format(format))
    }

    fn scaled(self, scale: i128) -> i64 {
        // Most amounts fit in 64 bits, whose division is much faster.
        if let (Ok(nanos), Ok(scale)) = (i64::try_from(self.nanos), i64::try_from(scale)) {
            return nanos / scale + if nanos % scale == 0 { 0 } else { nanos.signum() };
        }
        let away = if self.nanos % scale == 0 {
            0
        } else {
            self.nanos.signum()
        };
        let value = self.nanos / scale + away;
        i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
    }

    fn decimal(self, suffixes: &[&str]) -> String {
        if self.nanos == 0 {
            return "0".to_owned();
        }
        let (mut mantissa, mut step) = (self.nanos, 0);
        while mantissa % 1000 == 0 && step + 1 < suffixes.len() {
            mantissa /= 1000;
            step += 1;
        }
        format!("{mantissa}{}", suffixes[step])
    }

    fn binary(self) -> String {
        if self.nanos.abs() < 1024 * NANOS {
            return self.decimal(&["n", "u", "m", ""]);
        }
        let (mut mantissa, mut step) = (self.units(), 0);
        let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        while mantissa % 1024 == 0 && step + 1 < suffixes.len() {
            mantissa /= 1024;
            step += 1;
        }
        format!("{mantissa}{}", suffixes[step])
    }
}

impl FromStr for Amount {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).map(|(amount, _)| amount)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.format(Format::DecimalSi))
    }
}

/// Reads a quantity and the format it is written in. What is finer than a billionth is rounded away from zero.
///
/// # Errors
/// If the text is not a quantity.
pub fn parse(text: &str) -> Result<(Amount, Format), QuantityError> {
    let error = || QuantityError(text.to_owned());
    let (negative, unsigned) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned
        .bytes()
        .position(|byte| !byte.is_ascii_digit() && byte != b'.')
        .unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return Err(error());
    }
    let Suffix { format, ten_to, two_to } = Suffix::read(suffix).ok_or_else(error)?;
    let nanos = magnitude(whole, fraction, ten_to, two_to);
    Ok((
        Amount {
            nanos: if negative { -nanos } else { nanos },
        },
        format,
    ))
}

/// A suffix as a factor 10^`ten_to` * 2^`two_to`.
struct Suffix {
    format: Format,
    ten_to: i32,
    two_to: u32,
}

impl Suffix {
    fn read(suffix: &str) -> Option<Self> {
        let decimal = |ten_to| {
            Some(Self {
                format: Format::DecimalSi,
                ten_to,
                two_to: 0,
            })
        };
        let binary = |two_to| {
            Some(Self {
                format: Format::BinarySi,
                ten_to: 0,
                two_to,
            })
        };
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => binary(10),
            "Mi" => binary(20),
            "Gi" => binary(30),
            "Ti" => binary(40),
            "Pi" => binary(50),
            "Ei" => binary(60),
            _ => Self::read_exponent(suffix),
        }
    }

    fn read_exponent(suffix: &str) -> Option<Self> {
        let exponent = suffix.strip_prefix(['e', 'E'])?;
        let (sign, digits) = match exponent.as_bytes().first()? {
            b'-' => (-1, &exponent[1..]),
            b'+' => (1, &exponent[1..]),
            _ => (1, exponent),
        };
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        // With a larger exponent the amount is the greatest or the smallest possible, whatever its digits.
        let size = digits.parse::<i32>().unwrap_or(i32::MAX).min(100_000);
        Some(Self {
            format: Format::DecimalExponent,
            ten_to: sign * size,
            two_to: 0,
        })
    }
}

/// `whole.fraction` * 10^`ten_to` * 2^`two_to` in billionths, rounded up, at most [`MAX`].
fn magnitude(whole: &str, fraction: &str, ten_to: i32, two_to: u32) -> i128 {
    // Nearly all quantities are a few digits and a suffix: exact, far below the limits.
    if fraction.is_empty() && whole.len() <= 9 && (-9..=9).contains(&ten_to) && two_to <= 40 {
        let units = whole
            .bytes()
            .fold(0, |units, digit| units * 10 + i128::from(digit - b'0'));
        return ((units * i128::from(TEN_TO[(ten_to + 9) as usize])) << two_to).min(MAX);
    }
    let point = i64::try_from(whole.len())
        .unwrap_or(i64::MAX)
        .saturating_add(i64::from(ten_to));
    let digit = |index: i64| -> i128 {
        let Ok(index) = usize::try_from(index) else { return 0 };
        let bytes = if index < whole.len() {
            whole.as_bytes().get(index)
        } else {
            fraction.as_bytes().get(index - whole.len())
        };
        bytes.map_or(0, |byte| i128::from(byte - b'0'))
    };
    let end = i64::try_from(whole.len() + fraction.len()).unwrap_or(i64::MAX);

    let limit = i128::from(i64::MAX) >> two_to;
    let mut units: i128 = 0;
    for index in 0..point {
        if index >= end && units == 0 {
            break;
        }
        units = units * 10 + digit(index);
        if units > limit {
            return MAX;
        }
    }

    // Digits behind the point, last first: each division is exact or leaves a remainder that rounds the whole up.
    let unit = NANOS << two_to;
    let (mut nanos, mut inexact) = (0, false);
    for index in (point..end).rev() {
        if index < 0 && nanos == 0 {
            break;
        }
        let sum = digit(index) * unit + nanos;
        nanos = sum / 10;
        inexact |= sum % 10 != 0;
    }
    ((units << two_to) * NANOS + nanos + i128::from(inexact)).min(MAX)
}

#[cfg(test)]
mod tests;
