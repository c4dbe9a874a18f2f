use proptest::prelude::*;

use super::*;

fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

#[test]
fn go_durations() {
    for (text, expected) in [
        ("0", SignedDuration::ZERO),
        ("-0", SignedDuration::ZERO),
        ("0s", SignedDuration::ZERO),
        ("1h30m", seconds(5400)),
        ("90m30.5s", SignedDuration::from_millis(5_430_500)),
        ("-1s", seconds(-1)),
        ("+5m", seconds(300)),
        ("1.5h", seconds(5400)),
        (".5m", seconds(30)),
        ("5.s", seconds(5)),
        ("1s1s", seconds(2)),
        ("250ms", SignedDuration::from_millis(250)),
        ("3us", SignedDuration::from_micros(3)),
        ("3µs", SignedDuration::from_micros(3)),
        ("3μs", SignedDuration::from_micros(3)),
        ("7ns", SignedDuration::from_nanos(7)),
        ("0.9ns", SignedDuration::ZERO),
    ] {
        assert_eq!(parse_go(text), Ok(expected), "{text}");
    }
}

#[test]
fn invalid_go_durations_are_errors_with_the_reason() {
    for (text, message) in [
        (
            "",
            r#""" is not a duration: write a number and a unit, such as 90s, 10m or 1h30m"#,
        ),
        ("5 minutes", r#""5 minutes" is not a duration: unknown unit " minutes""#),
        (
            "10",
            r#""10" is not a duration: write a number and a unit, such as 90s, 10m or 1h30m"#,
        ),
        (
            "m",
            r#""m" is not a duration: write a number and a unit, such as 90s, 10m or 1h30m"#,
        ),
        (
            "1..5s",
            r#""1..5s" is not a duration: write a number and a unit, such as 90s, 10m or 1h30m"#,
        ),
        (
            "--1s",
            r#""--1s" is not a duration: write a number and a unit, such as 90s, 10m or 1h30m"#,
        ),
        ("1d", r#""1d" is not a duration: unknown unit "d""#),
        ("9999999999h", r#""9999999999h" is too long a duration"#),
        (
            "99999999999999999999999999999999999999999999h",
            r#""99999999999999999999999999999999999999999999h" is too long a duration"#,
        ),
    ] {
        assert_eq!(
            parse_go(text).map_err(|error| error.to_string()),
            Err(message.to_owned())
        );
    }
}

#[test]
fn days_and_weeks_are_read_in_extended_durations() {
    assert_eq!(parse_extended("1d12h"), Ok(seconds(36 * 3600)));
    assert_eq!(parse_extended("1w"), Ok(seconds(7 * 86_400)));
    assert_eq!(parse_extended("0.5d"), Ok(seconds(43_200)));
}

#[test]
fn prometheus_durations() {
    for (text, expected) in [
        ("0", 0),
        ("1w", 604_800),
        ("7d", 604_800),
        ("168h", 604_800),
        ("1d12h", 129_600),
        ("1y2w", 32_745_600),
    ] {
        assert_eq!(parse_prometheus(text), Ok(seconds(expected)), "{text}");
    }
    assert_eq!(parse_prometheus("1s500ms"), Ok(SignedDuration::from_millis(1500)));
    for text in [
        "",
        "1.5h",
        "-1h",
        "1h1h",
        "1m1h",
        "5",
        "h",
        "1µs",
        "99999999999y",
        "999999999999999999999999999999999999999999y",
    ] {
        assert!(parse_prometheus(text).is_err(), "{text}");
    }
}

#[test]
fn printed_as_go_prints() {
    for (nanos, text) in [
        (0, "0s"),
        (7, "7ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (1_500_000_000, "1.5s"),
        (60_000_000_000, "1m0s"),
        (3_600_000_000_000, "1h0m0s"),
        (5_430_500_000_000, "1h30m30.5s"),
        (-1_000_000_000, "-1s"),
        (i64::MAX, "2562047h47m16.854775807s"),
    ] {
        assert_eq!(format_go(SignedDuration::from_nanos(nanos)), text);
    }
}

proptest! {
    #[test]
    fn printed_text_reads_as_the_same_duration(nanos in -i64::MAX..=i64::MAX) {
        let duration = SignedDuration::from_nanos(nanos);
        prop_assert_eq!(parse_go(&format_go(duration)), Ok(duration));
    }

    #[test]
    fn no_text_panics(text in "[-+0-9.hmsuµndwy]{0,40}|\\PC*") {
        let _ = (parse_go(&text), parse_extended(&text), parse_prometheus(&text));
    }
}
