use serde_json::{Value, json};

use super::*;

/// GPUS, FAIR, QUOTA, LIMIT and WAITING of a queue.
fn line(allocated: Value, gpu: Value, fair: Option<i64>) -> String {
    let status = QueueStatus {
        allocated: serde_json::from_value(allocated).unwrap(),
        ..QueueStatus::default()
    };
    let resources = serde_json::from_value(json!({"gpu": gpu})).unwrap();
    let summary = summary(&status, &resources, fair, Amount::from_units(3));
    let cells = [summary.gpus, summary.fair_share, summary.quota, summary.limit];
    let waiting = summary.waiting.unwrap();
    format!(
        "{} {waiting}",
        cells.map(|cell| cell.unwrap_or_else(|| "-".to_owned())).join(" ")
    )
}

#[test]
fn what_a_queue_holds_is_of_its_quota_else_of_its_fair_share() {
    let held = json!({"cpu": "4", "nvidia.com/gpu": "13500m", "amd.com/gpu": "1"});
    let quota = json!({"quota": 16, "limit": -1});
    assert_eq!(
        line(held.clone(), quota, Some(15_333_333)),
        "14.5/16 15.33 16 unlimited 3"
    );
    let weight = json!({"overQuotaWeight": 1, "limit": 20.5});
    assert_eq!(line(held.clone(), weight, Some(16_000_000)), "14.5/16 16 0 20.5 3");
    let unlimited = json!({"quota": -1, "limit": -1});
    assert_eq!(
        line(held, unlimited, Some(16_000_000)),
        "14.5/16 16 unlimited unlimited 3"
    );
}

#[test]
fn a_limit_that_is_not_set_is_none_at_all() {
    assert_eq!(line(json!({}), json!({"quota": 8}), None), "0/8 - 8 0 3");
    assert_eq!(line(json!({}), Value::Null, None), "0 - 0 0 3");
    assert_eq!(
        line(json!({}), json!({"quota": 1e300}), None),
        "0/1000000000 - 1000000000 0 3"
    );
}

#[test]
fn a_fair_share_that_is_not_known_yet_stays() {
    let status = QueueStatus {
        summary: Some(QueueSummary {
            fair_share: Some("7".to_owned()),
            ..QueueSummary::default()
        }),
        ..QueueStatus::default()
    };
    let again = summary(&status, &QueueResources::default(), None, Amount::default());
    assert_eq!(
        (again.gpus.as_deref(), again.fair_share.as_deref()),
        (Some("0/7"), Some("7"))
    );
}
