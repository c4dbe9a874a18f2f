//! Ages as kubectl users read them: two units at most, coarser the older.

use jiff::Timestamp;
use serde_json::Value;

/// `2m5s`, `3h`, `12d`; seconds are rounded down.
pub(super) fn duration(seconds: i64) -> String {
    let two = |large: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit}{small}{small_unit}"),
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / (24 * 365));
    match hours {
        _ if seconds < -1 => "<invalid>".to_owned(),
        _ if seconds < 0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        _ if minutes < 180 => format!("{minutes}m"),
        ..8 => two(hours, 'h', minutes % 60, 'm'),
        8..48 => format!("{hours}h"),
        48..192 => two(days, 'd', hours % 24, 'h'),
        192..17_520 => format!("{days}d"),
        17_520..70_080 => two(years, 'y', days % 365, 'd'),
        _ => format!("{years}y"),
    }
}

/// The time since an RFC 3339 instant; `<unknown>` when there is none.
pub(super) fn since(instant: Option<&Value>, now: Timestamp) -> String {
    match instant.and_then(Value::as_str).map(str::parse::<Timestamp>) {
        Some(Ok(instant)) => duration(now.duration_since(instant).as_secs()),
        Some(Err(_)) => "<invalid>".to_owned(),
        None => "<unknown>".to_owned(),
    }
}

/// The age of an object.
pub(super) fn of(object: &Value, now: Timestamp) -> Value {
    Value::from(since(object.pointer("/metadata/creationTimestamp"), now))
}
