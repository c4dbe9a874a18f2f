//! Weekly periods in a time zone, and which of several is in force. Pure: instants are arguments.
//!
//! A period begins on each of its days at one time of day and ends at another, on the next day if that is not later. A time that does not exist, as clocks
//! are put forward over it, is later by the length of the gap; of a time that occurs twice, as clocks are put back, the first is used.

use jiff::civil::{DateTime, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// A weekly period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Period {
    /// The days on which it begins, from Monday on.
    pub days: [bool; 7],
    /// When it begins.
    pub from: Time,
    /// When it ends: on the same day if that is later, else on the next.
    pub to: Time,
}

/// Periods, the first match wins, and their time zone.
#[derive(Clone, Debug, PartialEq)]
pub struct Calendar {
    /// The time zone.
    pub zone: TimeZone,
    /// The periods; the first that is in force counts.
    pub periods: Vec<Period>,
}

/// The period in force, and when that changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Index of the period; `None`: none.
    pub period: Option<usize>,
    /// When that changes; `None`: never.
    pub until: Option<Timestamp>,
}

/// Days that are searched ahead: a week, and periods that begin before it and end in it.
const AHEAD: i32 = 9;

impl Calendar {
    /// Which period is in force, and until when.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> InForce {
        let spans = self.spans(now);
        let period = |at: Timestamp| {
            let on = spans.iter().filter(|(_, from, to)| *from <= at && at < *to);
            on.map(|(period, _, _)| *period).min()
        };
        let mut ends: Vec<Timestamp> = spans.iter().flat_map(|(_, from, to)| [*from, *to]).collect();
        // The search ends with the last day.
        let horizon = self.midnight_after(now, AHEAD);
        ends.retain(|at| *at > now && horizon.is_none_or(|horizon| *at < horizon));
        ends.sort_unstable();
        let current = period(now);
        InForce {
            period: current,
            until: ends.into_iter().find(|at| period(*at) != current),
        }
    }

    fn midnight_after(&self, now: Timestamp, days: i32) -> Option<Timestamp> {
        let day = now.to_zoned(self.zone.clone()).date().checked_add(days.days()).ok()?;
        self.zone.to_timestamp(day.to_datetime(Time::midnight())).ok()
    }

    /// When each period begins and ends, from yesterday on.
    fn spans(&self, now: Timestamp) -> Vec<(usize, Timestamp, Timestamp)> {
        let today = now.to_zoned(self.zone.clone()).date();
        let instant = |at: DateTime| self.zone.to_timestamp(at).ok();
        let mut spans = Vec::new();
        for day in -1..AHEAD {
            let Ok(day) = today.checked_add(day.days()) else {
                continue;
            };
            let number = usize::from(day.weekday().to_monday_zero_offset().unsigned_abs());
            for (place, period) in self.periods.iter().enumerate() {
                if !period.days.get(number).copied().unwrap_or_default() {
                    continue;
                }
                let last = if period.to > period.from {
                    Ok(day)
                } else {
                    day.tomorrow()
                };
                let last = last.ok().and_then(|last| instant(last.to_datetime(period.to)));
                if let Some((from, to)) = instant(day.to_datetime(period.from)).zip(last)
                    && from < to
                {
                    spans.push((place, from, to));
                }
            }
        }
        spans
    }
}

/// Reads days such as `Mon-Fri`, `Sat,Sun` or `Fri-Mon`.
///
/// # Errors
/// The part that names no day.
pub fn days(text: &str) -> Result<[bool; 7], String> {
    let mut days = [false; 7];
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Some(first), Some(last)) = (day(first.trim()), day(last.trim())) else {
            return Err(part.to_owned());
        };
        let mut at = first;
        loop {
            if let Some(day) = days.get_mut(usize::from(at.to_monday_zero_offset().unsigned_abs())) {
                *day = true;
            }
            if at == last {
                break;
            }
            at = at.next();
        }
    }
    Ok(days)
}

fn day(text: &str) -> Option<Weekday> {
    let named = |day: &(&str, Weekday)| text.eq_ignore_ascii_case(day.0);
    let days = [
        ("Mon", Weekday::Monday),
        ("Tue", Weekday::Tuesday),
        ("Wed", Weekday::Wednesday),
        ("Thu", Weekday::Thursday),
        ("Fri", Weekday::Friday),
        ("Sat", Weekday::Saturday),
        ("Sun", Weekday::Sunday),
    ];
    days.iter().find(|day| named(day)).map(|(_, day)| *day)
}

#[cfg(test)]
mod tests;
