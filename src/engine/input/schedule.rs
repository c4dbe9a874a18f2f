//! What a queue may have by time of day and day of the week.

use jiff::Timestamp;

use super::{Share, Time};
use crate::api::calendar::Calendar;

/// What a queue may have at some times instead of what it may have at all others.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// When each of the entries is in force.
    pub calendar: Calendar,
    /// What the queue may have then: cpu, memory and GPUs.
    pub entries: Vec<[Share; 3]>,
}

impl Schedule {
    /// What is in force, if an entry is, and until when that is so.
    #[must_use]
    pub fn at(&self, Time(now): Time) -> (Option<[Share; 3]>, Option<Time>) {
        let in_force = self.calendar.at(Timestamp::from_millisecond(now).unwrap_or_default());
        (
            in_force.period.and_then(|period| self.entries.get(period).copied()),
            in_force.until.map(|until| Time(until.as_millisecond())),
        )
    }
}
