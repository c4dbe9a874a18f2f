use serde_json::json;

use super::*;

fn queue(schedule: Option<&str>) -> Queue {
    let annotations = schedule.map(|schedule| json!({"unikai.dev/quota-schedule": schedule}));
    serde_json::from_value(json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue",
        "metadata": {"name": "q", "annotations": annotations}, "spec": {"resources": {"gpu": {"quota": 2}}}}))
    .expect("a queue")
}

const NIGHTS: &str = "entries: [{name: nights, from: '20:00', to: '06:00', gpu: {quota: 16}}]";

/// The quota of GPUs, the next change, and the conditions, each as status, reason, message and the hour of its last change.
fn at(schedule: Option<&str>, now: &str, conditions: &mut Vec<QueueCondition>) -> (f64, String, Vec<String>) {
    let now: Timestamp = now.parse().expect("an instant");
    let scheduled = Scheduled::of(&queue(schedule), now);
    scheduled.update(conditions, now);
    let quota = scheduled.resources.gpu.and_then(|gpu| gpu.quota).unwrap_or_default();
    let until = scheduled.until.map(|until| until.to_string()).unwrap_or_default();
    let text = |condition: &QueueCondition| {
        let changed = condition.last_transition_time.as_ref().map(|time| time.0.to_string());
        format!(
            "{} {} {}: {} ({})",
            condition.r#type,
            condition.status,
            condition.reason.clone().unwrap_or_default(),
            condition.message.clone().unwrap_or_default(),
            changed.unwrap_or_default()
        )
    };
    (quota, until, conditions.iter().map(text).collect())
}

#[test]
fn the_status_says_which_entry_is_in_force_until_when() {
    let conditions = &mut vec![QueueCondition {
        r#type: "Orphan".to_owned(),
        status: "False".to_owned(),
        ..QueueCondition::default()
    }];
    let (quota, until, said) = at(Some(NIGHTS), "2025-01-13T12:00:00Z", conditions);
    assert_eq!((quota, &*until), (2.0, "2025-01-13T20:00:00Z"));
    assert_eq!(
        said[1],
        "QuotaSchedule False NoEntryInForce: no entry is in force until 2025-01-13T20:00:00Z; what the queue says itself holds (2025-01-13T12:00:00Z)"
    );
    let (_, _, same) = at(Some(NIGHTS), "2025-01-13T13:00:00Z", conditions);
    assert_eq!(same, said);
    let (quota, until, said) = at(Some(NIGHTS), "2025-01-13T21:00:00Z", conditions);
    assert_eq!((quota, &*until), (16.0, "2025-01-14T06:00:00Z"));
    assert_eq!(
        said[1],
        "QuotaSchedule True EntryInForce: entry nights is in force until 2025-01-14T06:00:00Z (2025-01-13T21:00:00Z)"
    );
    let (quota, until, said) = at(Some("entries: []"), "2025-01-13T22:00:00Z", conditions);
    assert_eq!((quota, &*until), (2.0, ""));
    assert_eq!(
        said[1],
        "QuotaSchedule False Invalid: annotation unikai.dev/quota-schedule: it has 0 entries; there may be 1 to 32; what the queue says itself holds at all times (2025-01-13T22:00:00Z)"
    );
    let (_, _, said) = at(None, "2025-01-13T23:00:00Z", conditions);
    assert_eq!(said.len(), 1);
}
