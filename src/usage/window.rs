//! Windows of usage: which part of the past counts.

use jiff::Timestamp;

use crate::engine::input::{Millis, Time};

/// Which part of the past counts.
#[derive(Clone, Debug, PartialEq)]
pub enum Window {
    /// The last so many milliseconds.
    Sliding(Millis),
    /// The time since the last of these instants: `start`, and those at whole multiples of `size` after it.
    Tumbling {
        /// The length; above 0.
        size: Millis,
        /// The first instant.
        start: Time,
    },
    /// The time since the last instant of the expression.
    Cron(Cron),
}

impl Window {
    /// The start of the window that ends now. A reset that is due at this very instant has not happened yet.
    #[must_use]
    pub fn start(&self, now: Time) -> Time {
        match self {
            Self::Sliding(size) => Time(now.0.saturating_sub(*size)),
            Self::Tumbling { start, .. } if now <= *start => now,
            Self::Tumbling { size, start } => {
                let size = (*size).max(1);
                let past = now.0.saturating_sub(start.0).saturating_sub(1);
                Time(start.0.saturating_add(past / size * size))
            }
            Self::Cron(cron) => cron.last_before(now),
        }
    }

    /// The first reset that is not before now; `None`: there is none, or none was found.
    #[must_use]
    pub fn next_reset(&self, now: Time) -> Option<Time> {
        match self {
            Self::Sliding(_) => None,
            Self::Tumbling { start, .. } if now <= *start => Some(*start),
            Self::Tumbling { size, .. } => Some(Time(self.start(now).0.saturating_add((*size).max(1)))),
            Self::Cron(cron) => cron.next_after(Time(now.0.saturating_sub(1))),
        }
    }
}

/// A cron expression of five fields, with a time zone after them; UTC without one.
#[derive(Clone, Debug)]
pub struct Cron {
    text: String,
    crontab: cronexpr::Crontab,
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// How far back and ahead instants are searched: instants of an expression are at most 40 years apart (leap days on a Sunday around a century that has none).
const FURTHEST: Millis = 41 * 366 * 86_400_000;
/// How far ahead the library searches, at least.
const SEARCHED: Millis = 4 * 365 * 86_400_000;

impl Cron {
    /// Parses an expression such as `0 0 * * 1` or `0 0 * * 1 Europe/Berlin`.
    ///
    /// # Errors
    /// If it does not parse.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = cronexpr::ParseOptions::default();
        options.fallback_timezone_option = cronexpr::FallbackTimezoneOption::UTC;
        let wrong = || {
            format!(
                "{text:?} is not a cron expression of five fields, such as `0 0 * * 1` for every Monday at midnight"
            )
        };
        let crontab = cronexpr::parse_crontab_with(text, options).map_err(|_| wrong())?;
        let cron = Self {
            text: text.to_owned(),
            crontab,
        };
        match cron.next_after(Time(0)) {
            Some(_) => Ok(cron),
            None => Err(format!("the cron expression {text:?} names no instant")),
        }
    }

    fn next_after(&self, instant: Time) -> Option<Time> {
        let next_soon = |after: i64| {
            let after = Timestamp::from_millisecond(after).ok()?;
            let next = self.crontab.find_next(after).ok()?;
            Some(Time(next.timestamp().as_millisecond()))
        };
        let searches = 0..=FURTHEST / SEARCHED;
        searches
            .map(|number| instant.0.saturating_add(number * SEARCHED))
            .find_map(next_soon)
    }

    /// The last instant before now; now if there is none. The search halves the time in which it may be, as there may be many instants in a short time.
    fn last_before(&self, now: Time) -> Time {
        let next = |after: i64| self.next_after(Time(after)).filter(|next| *next < now);
        let Some(mut last) = next(now.0.saturating_sub(FURTHEST)) else {
            return now;
        };
        // From there on until now there is none.
        let mut none_after = now.0;
        while none_after - last.0 > 1 {
            let middle = last.0 + (none_after - last.0) / 2;
            match next(middle) {
                Some(later) => last = later,
                None => none_after = middle,
            }
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::Target;
    use fastrand::Rng;

    fn at(text: &str) -> Time {
        let timestamp: Timestamp = text.parse().expect("an instant");
        Time(timestamp.as_millisecond())
    }

    #[test]
    fn resets_are_the_last_before_now() {
        for (cron, now, start) in [
            ("0 * * * *", "2025-01-15T14:30:00Z", "2025-01-15T14:00:00Z"),
            ("0 * * * *", "2025-01-15T14:00:00Z", "2025-01-15T13:00:00Z"),
            ("0 */6 * * *", "2025-01-15T10:00:00Z", "2025-01-15T06:00:00Z"),
            ("0 */6 * * *", "2025-01-15T12:00:00Z", "2025-01-15T06:00:00Z"),
            ("0 12 * * 1", "2025-01-15T15:00:00Z", "2025-01-13T12:00:00Z"),
            ("0 0 1 * *", "2025-03-31T23:00:00Z", "2025-03-01T00:00:00Z"),
            ("*/15 * * * *", "2025-01-15T14:37:00Z", "2025-01-15T14:30:00Z"),
            ("*/15 * * * *", "2025-01-15T14:45:00Z", "2025-01-15T14:30:00Z"),
            ("0 0 29 2 *", "2027-12-31T00:00:00Z", "2024-02-29T00:00:00Z"),
            ("* * * 2 *", "2026-01-15T00:00:00Z", "2025-02-28T23:59:00Z"),
            ("0 0 30 8 */7", "2020-08-29T00:00:00Z", "2015-08-30T00:00:00Z"),
            ("0 0 29 2 */7", "2026-01-15T00:00:00Z", "2004-02-29T00:00:00Z"),
            (
                "0 0 * * 1 Europe/Berlin",
                "2025-07-15T00:00:00Z",
                "2025-07-13T22:00:00Z",
            ),
        ] {
            let window = Window::Cron(Cron::parse(cron).expect(cron));
            assert_eq!(window.start(at(now)), at(start), "{cron} at {now}");
        }
        for (size, first, now, start) in [
            (
                3_600,
                "2025-01-01T10:00:00Z",
                "2025-01-01T12:30:00Z",
                "2025-01-01T12:00:00Z",
            ),
            (
                3_600,
                "2025-01-01T10:00:00Z",
                "2025-01-01T13:00:00Z",
                "2025-01-01T12:00:00Z",
            ),
            (
                3_600,
                "2025-01-01T10:00:00Z",
                "2025-01-01T13:00:01Z",
                "2025-01-01T13:00:00Z",
            ),
            (
                3_600,
                "2025-01-01T10:15:30Z",
                "2025-01-01T12:45:30Z",
                "2025-01-01T12:15:30Z",
            ),
            (
                604_800,
                "2025-01-01T00:00:00Z",
                "2025-01-18T12:00:00Z",
                "2025-01-15T00:00:00Z",
            ),
            (
                3_600,
                "2025-01-02T00:00:00Z",
                "2025-01-01T12:00:00Z",
                "2025-01-01T12:00:00Z",
            ),
            (
                3_600,
                "2025-01-02T00:00:00Z",
                "2025-01-02T00:00:00Z",
                "2025-01-02T00:00:00Z",
            ),
        ] {
            let (size, first) = (size * 1_000, at(first));
            let window = Window::Tumbling { size, start: first };
            assert_eq!(window.start(at(now)), at(start), "{size} from {first:?} at {now}");
            let next = window.next_reset(at(now)).expect("tumbling windows have resets");
            assert!(
                next >= at(now) && window.start(Time(next.0 + 1)) == next,
                "{size} from {first:?} at {now}"
            );
        }
    }

    #[test]
    fn invalid_cron_expressions_are_refused() {
        for text in ["", "0 0 * *", "61 * * * *", "every monday", "0 0 31 2 *"] {
            assert!(Cron::parse(text).is_err(), "{text}");
        }
    }

    /// An expression of five fields and perhaps a time zone, most of them valid.
    fn expression(random: &mut Rng) -> String {
        let fields = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
        let mut text = String::new();
        for (number, (least, most)) in fields.into_iter().enumerate() {
            let (a, b) = (random.u8(least..=most), random.u8(least..=most));
            let (from, to, step) = (a.min(b), a.max(b), random.u8(1..=most));
            text += &match (random.u8(..10), number) {
                (0..=3, _) => "*".to_owned(),
                (4, _) => format!("*/{step}"),
                (5, _) => format!("{from}-{to}"),
                (6, _) => format!("{from}-{to}/{step}"),
                (7, 2) => ["L", "15W", "LW"][random.usize(..3)].to_owned(),
                (7, 3) => ["JAN", "FEB,OCT", "MAR-NOV"][random.usize(..3)].to_owned(),
                (7, 4) => ["SUN", "MON-FRI", "5#2", "5L"][random.usize(..4)].to_owned(),
                (7, _) => format!("{from},{to}"),
                _ => from.to_string(),
            };
            text.push(' ');
        }
        let zones = ["", "UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"];
        text + zones[random.usize(..zones.len())]
    }

    #[test]
    fn fuzz_cron_expressions() {
        let target = Target {
            name: "cron",
            rounds: 200,
            words: &[
                "*",
                "0",
                "59",
                "23",
                "31",
                "12",
                "7",
                "-",
                "/",
                ",",
                " ",
                "L",
                "W",
                "#",
                "?",
                "MON",
                "FEB",
                "Europe/Berlin",
                "UTC",
                "@daily",
            ],
        };
        let instants = [
            "1970-01-01T00:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-10-25T00:30:00Z",
            "2096-02-29T12:00:00Z",
        ];
        target.made_texts(expression, |text| {
            let cron = match Cron::parse(text) {
                Ok(cron) => cron,
                Err(error) => {
                    assert!(!error.is_empty());
                    return false;
                }
            };
            let window = Window::Cron(cron);
            for now in instants.map(at) {
                let (start, next) = (window.start(now), window.next_reset(now));
                assert!(start <= now, "{start:?} is the start of the window at {now:?}");
                if let Some(next) = next {
                    assert!(next >= now, "{next:?} is the next reset at {now:?}");
                    assert_eq!(
                        window.start(Time(next.0 + 1)),
                        next,
                        "what is next at {now:?} is a start"
                    );
                }
                if start < now {
                    assert_eq!(window.next_reset(start), Some(start), "the start at {now:?} is a reset");
                    assert_eq!(window.next_reset(Time(start.0 + 1)), next, "there is none between");
                }
            }
            true
        });
    }
}
