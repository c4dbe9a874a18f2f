use serde_json::json;

use super::*;
use crate::api::{PodGroup, Queue, Topology};

#[test]
fn missing_null_and_unknown_fields_are_read_as_absent() {
    let group: PodGroup = decode(json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"subGroups": null, "minMember": null, "backoffLimit": 6, "parallelism": 2},
        "status": {"phase": "Running", "schedulingConditions": null},
    }))
    .unwrap();
    assert_eq!(group.spec, Default::default());
    assert_eq!(group.status, Some(Default::default()));

    let queue: Queue =
        decode(json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}})).unwrap();
    assert_eq!(queue.spec, Default::default());
}

#[test]
fn a_malformed_duration_does_not_hide_the_rest() {
    let queue: Queue = decode(json!({
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": "q"},
        "spec": {"preemptMinRuntime": "5 minutes", "reclaimMinRuntime": "5m", "priority": 7},
    }))
    .unwrap();
    assert!(queue.spec.preempt_min_runtime().is_err());
    assert_eq!(
        queue.spec.reclaim_min_runtime(),
        Ok(Some(jiff::SignedDuration::from_mins(5)))
    );
    assert_eq!(queue.spec.priority, Some(7));
}

#[test]
fn a_rejection_names_the_object_and_the_reason() {
    let rejection = decode::<PodGroup>(json!({
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"namespace": "team", "name": "g"},
        "spec": {"minMember": 99_999_999_999_i64},
    }))
    .unwrap_err();
    assert_eq!(
        rejection.to_string(),
        "PodGroup team/g cannot be read: invalid value: integer `99999999999`, expected i32"
    );
    let rejection = decode::<Topology>(json!({"metadata": {"name": "t"}, "spec": 5})).unwrap_err();
    assert_eq!(rejection.object(), "t");
}

#[test]
fn a_malformed_object_does_not_affect_others_in_a_list() {
    let list: kube::core::ObjectList<Guarded<Queue>> = serde_json::from_value(json!({
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "QueueList",
        "metadata": {},
        "items": [
            {"metadata": {"name": "bad"}, "spec": {"priority": "high"}},
            {"metadata": {"name": "good"}, "spec": {"priority": 5}},
        ],
    }))
    .unwrap();
    let read: Vec<_> = list.items.into_iter().map(unguard).collect();
    assert_eq!(read[0].as_ref().unwrap_err().name, "bad");
    assert_eq!(read[1].as_ref().unwrap().spec.priority, Some(5));
}
