//! Quota schedules: quotas and limits of a queue by time of day and day of the week, in an annotation of the queue.
//!
//! ```yaml
//! metadata:
//!   annotations:
//!     unikai.dev/quota-schedule: |
//!       timeZone: Europe/Berlin
//!       entries:
//!       - {name: nights, days: Mon-Fri, from: "20:00", to: "06:00", gpu: {quota: 16, limit: -1}}
//!       - {name: weekend, days: "Sat,Sun", gpu: {overQuotaWeight: 4}}
//! ```
//!
//! The first entry in force counts; the queue's own spec provides its unset fields, and applies while no entry is in force.

use jiff::Timestamp;
use jiff::civil::Time;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::Queue;
use super::calendar::{Calendar, InForce, Period, days};
use super::limits;
use super::names::annotation;
use super::queue::{QueueResource, QueueResources};

/// A queue's schedule: its entries and when each is in force.
#[derive(Clone, Debug, PartialEq)]
pub struct QuotaSchedule {
    /// When each entry is in force.
    pub calendar: Calendar,
    /// The entries.
    pub entries: Vec<Entry>,
}

/// The quotas and limits of an entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The entry's name.
    pub name: String,
    resources: QueueResources,
}

/// An annotation as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    time_zone: Option<String>,
    entries: Vec<WrittenEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenEntry {
    name: String,
    days: Option<String>,
    from: Option<String>,
    to: Option<String>,
    #[serde(default)]
    gpu: WrittenResource,
    #[serde(default)]
    cpu: WrittenResource,
    #[serde(default)]
    memory: WrittenResource,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenResource {
    quota: Option<f64>,
    limit: Option<f64>,
    over_quota_weight: Option<f64>,
}

impl QuotaSchedule {
    /// The queue's annotation; `None` if it has none.
    #[must_use]
    pub fn of(queue: &Queue) -> Option<Result<Self, String>> {
        let annotations = queue.metadata.annotations.as_ref()?;
        annotations
            .get(annotation::QUOTA_SCHEDULE)
            .map(|text| Self::parse(text))
    }

    /// Reads an annotation.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let most = limits::QUOTA_SCHEDULE_BYTES;
        if text.len() > most {
            return Err(format!("it has {} bytes; {most} are read", text.len()));
        }
        let written: Written = serde_yaml_ng::from_str(text).map_err(|error| error.to_string())?;
        let most = limits::QUOTA_SCHEDULE_ENTRIES;
        if written.entries.is_empty() || written.entries.len() > most {
            return Err(format!(
                "it has {} entries; there may be 1 to {most}",
                written.entries.len()
            ));
        }
        let zone = written.time_zone.as_deref().unwrap_or("UTC");
        let zone = TimeZone::get(zone)
            .map_err(|_| format!("timeZone: {zone:?} is not a time zone, such as Europe/Berlin or UTC"))?;
        let (mut periods, mut entries): (Vec<Period>, Vec<Entry>) = (Vec::new(), Vec::new());
        for entry in written.entries {
            let (period, entry) = read(entry)?;
            if entries.iter().any(|other| other.name == entry.name) {
                return Err(format!("two entries are called {:?}", entry.name));
            }
            periods.push(period);
            entries.push(entry);
        }
        let calendar = Calendar { zone, periods };
        Ok(Self { calendar, entries })
    }

    /// The entry that is in force, and the time until which it is.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> (Option<&Entry>, Option<Timestamp>) {
        let InForce { period, until } = self.calendar.at(now);
        (period.and_then(|period| self.entries.get(period)), until)
    }
}

impl Entry {
    /// The queue's resources while this entry is in force.
    #[must_use]
    pub fn over(&self, own: QueueResources) -> QueueResources {
        let over = |own: Option<QueueResource>, given: Option<QueueResource>| {
            let Some(given) = given else { return own };
            let own = own.unwrap_or_default();
            Some(QueueResource {
                quota: given.quota.or(own.quota),
                limit: given.limit.or(own.limit),
                over_quota_weight: given.over_quota_weight.or(own.over_quota_weight),
            })
        };
        QueueResources {
            gpu: over(own.gpu, self.resources.gpu),
            cpu: over(own.cpu, self.resources.cpu),
            memory: over(own.memory, self.resources.memory),
        }
    }
}

fn read(written: WrittenEntry) -> Result<(Period, Entry), String> {
    let name = written.name;
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(plain) {
        return Err(format!(
            "an entry's name has 1 to 63 letters, digits, dots and dashes; {name:?} is none"
        ));
    }
    let time = |field: &str, text: Option<String>| {
        let Some(text) = text else { return Ok(Time::midnight()) };
        let shaped = matches!(text.len(), 5 | 8) && text.as_bytes().get(2) == Some(&b':');
        let read = if text == "24:00" {
            Ok(Time::midnight())
        } else {
            text.parse()
        };
        read.ok()
            .filter(|_| shaped)
            .ok_or_else(|| format!("entry {name}: {field}: {text:?} is not a time of day, such as \"20:00\""))
    };
    let period = Period {
        days: match written.days {
            None => [true; 7],
            Some(text) => days(&text)
                .map_err(|part| format!("entry {name}: days: {part:?} names no days, such as Mon-Fri or Sat,Sun"))?,
        },
        from: time("from", written.from)?,
        to: time("to", written.to)?,
    };
    let resources = QueueResources {
        gpu: resource(&name, "gpu", written.gpu)?,
        cpu: resource(&name, "cpu", written.cpu)?,
        memory: resource(&name, "memory", written.memory)?,
    };
    if resources == QueueResources::default() {
        return Err(format!("entry {name}: it changes nothing; give it gpu, cpu or memory"));
    }
    Ok((period, Entry { name, resources }))
}

/// `None`: unset.
fn resource(entry: &str, field: &str, written: WrittenResource) -> Result<Option<QueueResource>, String> {
    let all = [
        ("quota", written.quota, true),
        ("limit", written.limit, true),
        ("overQuotaWeight", written.over_quota_weight, false),
    ];
    for (name, value, may_be_unlimited) in all {
        let right = |value: f64| value.is_finite() && (value >= 0.0 || may_be_unlimited && value == -1.0);
        if let Some(value) = value.filter(|value| !right(*value)) {
            let expected = if may_be_unlimited { ", or -1 for no bound" } else { "" };
            return Err(format!(
                "entry {entry}: {field}.{name}: {value} is no amount of 0 or more{expected}"
            ));
        }
    }
    let given = QueueResource {
        quota: written.quota,
        limit: written.limit,
        over_quota_weight: written.over_quota_weight,
    };
    Ok(Some(given).filter(|given| *given != QueueResource::default()))
}

#[cfg(test)]
mod tests;
