//! Schedules as tenants' administrators may write them.

use fastrand::Rng;
use jiff::{SignedDuration, Timestamp};

use crate::api::limits;
use crate::api::quota_schedule::QuotaSchedule;
use crate::fuzz::Target;

#[rustfmt::skip]
const WORDS: &[&str] = &[
    "timeZone", "entries", "name", "days", "from", "to", "gpu", "cpu", "memory", "quota", "limit", "overQuotaWeight", ": ", ", ", "- ", "{", "}",
    "\n", "\"20:00\"", "\"24:00\"", "\"23:59:59\"", "\"00:00\"", "Mon-Sun", "Sat,Sun", "Fri-Mon", "Europe/Berlin", "UTC", "America/Sao_Paulo",
    "Pacific/Apia", "-1", "1e9", "&a", "*a", "!!str",
];

/// One of the texts.
fn one<'t>(random: &mut Rng, texts: &[&'t str]) -> &'t str {
    random.choice(texts).copied().unwrap_or_default()
}

/// A schedule of some entries, most of them valid.
fn schedule(random: &mut Rng) -> String {
    const DAYS: &[&str] = &["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
    const TIMES: &[&str] = &["00:00", "01:59", "02:00", "02:30", "03:00", "23:59:59", "24:00"];
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/Sao_Paulo",
        "America/St_Johns",
        "Pacific/Apia",
        "Asia/Kathmandu",
    ];
    let mut text = format!("timeZone: {}\nentries:\n", one(random, &zones));
    for number in 0..random.usize(1..=4) {
        let mut entry = vec![format!("name: e{number}")];
        let (first, last) = (one(random, DAYS), one(random, DAYS));
        match random.u8(..4) {
            0 => entry.push(format!("days: {first}-{last}")),
            1 if first != last => entry.push(format!("days: \"{first},{last}\"")),
            2 => entry.push(format!("days: {first}")),
            _ => {}
        }
        if random.u8(..3) > 0 {
            for key in ["from", "to"] {
                let time = if random.bool() {
                    one(random, TIMES).to_owned()
                } else {
                    format!("{:02}:{:02}", random.u8(..24), random.u8(..60))
                };
                let time = if key == "from" && time == "24:00" {
                    "00:00".to_owned()
                } else {
                    time
                };
                entry.push(format!("{key}: \"{time}\""));
            }
        }
        for resource in ["gpu", "cpu", "memory"] {
            let field = one(random, &["quota", "limit", "overQuotaWeight"]);
            entry.push(format!(
                "{resource}: {{{field}: {}}}",
                one(random, &["0", "1", "2.5", "64", "1e3"])
            ));
        }
        text += &format!("- {{{}}}\n", entry.join(", "));
    }
    text
}

#[test]
fn fuzz_schedules_of_quotas() {
    let instants = [
        "2026-03-29T00:59:59Z",
        "2026-10-25T01:30:00Z",
        "1900-01-01T00:00:00Z",
        "9999-12-30T22:00:00Z",
    ];
    let instants = instants.map(|text| text.parse::<Timestamp>().expect("an instant"));
    let target = Target {
        name: "quota-schedule",
        rounds: 300,
        words: WORDS,
    };
    target.made_texts(schedule, |text| match QuotaSchedule::parse(text) {
        Err(error) => {
            assert!(!error.is_empty());
            false
        }
        Ok(schedule) => {
            assert!(text.len() <= limits::QUOTA_SCHEDULE_BYTES);
            assert!((1..=limits::QUOTA_SCHEDULE_ENTRIES).contains(&schedule.entries.len()));
            for now in instants {
                let (entry, until) = schedule.at(now);
                let name = entry.map(|entry| &*entry.name);
                let Some(until) = until else { continue };
                assert!(until > now, "{until} is not after {now}");
                let just_before = until - SignedDuration::from_nanos(1);
                let before = schedule.at(just_before).0.map(|entry| &*entry.name);
                assert_eq!(before, name, "until {until}");
                let then = schedule.at(until).0.map(|entry| &*entry.name);
                assert_ne!(then, name, "at {until}");
            }
            true
        }
    });
}
