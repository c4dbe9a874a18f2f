//! Quota schedules: a queue's shares by time of day and day of the week.

use jiff::Timestamp;

use super::{Share, Time};
use crate::api::calendar::Calendar;

/// A quota schedule: entries that replace the queue's own shares while they are in force.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// When each of the entries is in force.
    pub calendar: Calendar,
    /// The shares of each entry: cpu, memory and GPUs.
    pub entries: Vec<[Share; 3]>,
}

impl Schedule {
    /// The shares in force, if any entry is, and when that changes.
    #[must_use]
    pub fn at(&self, Time(now): Time) -> (Option<[Share; 3]>, Option<Time>) {
        let in_force = self.calendar.at(Timestamp::from_millisecond(now).unwrap_or_default());
        (
            in_force.period.and_then(|period| self.entries.get(period).copied()),
            in_force.until.map(|until| Time(until.as_millisecond())),
        )
    }
}
