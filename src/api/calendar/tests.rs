use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn calendar(zone: &str, periods: &[(&str, &str, &str)]) -> Calendar {
    let time = |text: &str| text.parse().expect("a time of day");
    let period = |(on, from, to): &(&str, &str, &str)| Period {
        days: days(on).expect("days"),
        from: time(from),
        to: time(to),
    };
    Calendar {
        zone: TimeZone::get(zone).expect("a time zone"),
        periods: periods.iter().map(period).collect(),
    }
}

fn assert_at(calendar: &Calendar, now: &str, period: Option<usize>, until: Option<&str>) {
    let expected = InForce {
        period,
        until: until.map(at),
    };
    assert_eq!(calendar.at(at(now)), expected, "at {now}");
}

#[test]
fn a_night_ends_on_the_next_day() {
    let nights = calendar("UTC", &[("Mon-Fri", "20:00", "06:00")]);
    // The 13th of January 2025 is a Monday.
    assert_at(&nights, "2025-01-13T05:00:00Z", None, Some("2025-01-13T20:00:00Z"));
    assert_at(&nights, "2025-01-13T20:00:00Z", Some(0), Some("2025-01-14T06:00:00Z"));
    assert_at(&nights, "2025-01-14T05:59:59Z", Some(0), Some("2025-01-14T06:00:00Z"));
    assert_at(&nights, "2025-01-14T06:00:00Z", None, Some("2025-01-14T20:00:00Z"));
    // Friday's night ends on Saturday, and then there is none until Monday.
    assert_at(&nights, "2025-01-18T05:00:00Z", Some(0), Some("2025-01-18T06:00:00Z"));
    assert_at(&nights, "2025-01-18T06:00:00Z", None, Some("2025-01-20T20:00:00Z"));
}

#[test]
fn the_first_matching_period_is_in_force() {
    let both = calendar("UTC", &[("Sat,Sun", "10:00", "12:00"), ("Sat", "00:00", "00:00")]);
    assert_at(&both, "2025-01-17T23:00:00Z", None, Some("2025-01-18T00:00:00Z"));
    assert_at(&both, "2025-01-18T00:00:00Z", Some(1), Some("2025-01-18T10:00:00Z"));
    assert_at(&both, "2025-01-18T11:00:00Z", Some(0), Some("2025-01-18T12:00:00Z"));
    assert_at(&both, "2025-01-18T12:00:00Z", Some(1), Some("2025-01-19T00:00:00Z"));
    let always = calendar("UTC", &[("Mon-Sun", "00:00", "00:00")]);
    assert_at(&always, "2025-01-18T12:00:00Z", Some(0), None);
    assert_at(&calendar("UTC", &[]), "2025-01-18T12:00:00Z", None, None);
}

#[test]
fn daylight_saving_changes_move_the_times_of_periods() {
    // In Berlin on the 30th of March 2025 two o'clock becomes three, on the 26th of October three becomes two.
    let nights = calendar("Europe/Berlin", &[("Mon-Sun", "22:00", "06:00")]);
    assert_at(&nights, "2025-03-29T21:00:00Z", Some(0), Some("2025-03-30T04:00:00Z"));
    assert_at(&nights, "2025-10-25T20:00:00Z", Some(0), Some("2025-10-26T05:00:00Z"));
    // What begins in the hour that is missing begins after it; a period that lies within has not come.
    let missing = calendar("Europe/Berlin", &[("Sun", "02:30", "05:00")]);
    assert_at(&missing, "2025-03-30T00:59:00Z", None, Some("2025-03-30T01:30:00Z"));
    assert_at(&missing, "2025-03-30T01:30:00Z", Some(0), Some("2025-03-30T03:00:00Z"));
    let within = calendar("Europe/Berlin", &[("Sun", "02:15", "03:15")]);
    assert_at(&within, "2025-03-29T12:00:00Z", None, Some("2025-04-06T00:15:00Z"));
    // Of the hour that comes twice the first counts.
    let twice = calendar("Europe/Berlin", &[("Sun", "02:30", "05:00")]);
    assert_at(&twice, "2025-10-26T00:29:00Z", None, Some("2025-10-26T00:30:00Z"));
    assert_at(&twice, "2025-10-26T01:30:00Z", Some(0), Some("2025-10-26T04:00:00Z"));
    let new_york = calendar("America/New_York", &[("Sun", "00:00", "00:00")]);
    assert_at(&new_york, "2025-03-09T05:00:00Z", Some(0), Some("2025-03-10T04:00:00Z"));
    assert_at(&new_york, "2025-11-02T04:00:00Z", Some(0), Some("2025-11-03T05:00:00Z"));
}

#[test]
fn days_are_read() {
    assert_eq!(days("Fri - mon"), Ok([true, false, false, false, true, true, true]));
    assert_eq!(days("Tue,Thu"), Ok([false, true, false, true, false, false, false]));
    assert_eq!(days("Mon-Someday"), Err("Mon-Someday".to_owned()));
    assert_eq!(days(""), Err(String::new()));
}
