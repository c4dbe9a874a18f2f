use serde_json::{Value, json};

use super::*;
use crate::components::bus::GroupKey;
use crate::engine::input::Time;

fn group(mut value: Value) -> PodGroup {
    value
        .as_object_mut()
        .unwrap()
        .entry("metadata")
        .or_insert_with(|| json!({}));
    serde_json::from_value(value).unwrap()
}

fn merged(existing: Value, desired: Value) -> PodGroup {
    merge(Some(&group(existing)), &group(desired), &Settings::default())
}

#[test]
fn the_queue_and_fields_set_by_administrators_are_kept() {
    let existing = json!({"spec": {"queue": "q1", "markUnschedulable": false, "schedulingBackoff": 1, "minMember": 9}});
    let spec = merged(
        existing,
        json!({"spec": {"queue": "q2", "minMember": 4, "preemptibility": "preemptible"}}),
    )
    .spec;
    assert_eq!(spec.queue.as_deref(), Some("q1"));
    assert_eq!(
        (spec.mark_unschedulable, spec.scheduling_backoff),
        (Some(false), Some(1))
    );
    assert_eq!(
        (spec.min_member, spec.preemptibility.as_deref()),
        (Some(4), Some("preemptible"))
    );
}

#[test]
fn a_topology_set_by_others_is_kept_unless_the_workload_names_one() {
    let check = |existing: [&str; 3], desired: [&str; 3], expected: [&str; 3]| {
        let spec = |names: [&str; 3]| {
            let [topology, required, preferred] = names.map(|name| (!name.is_empty()).then_some(name));
            let levels =
                json!({"topology": topology, "requiredTopologyLevel": required, "preferredTopologyLevel": preferred});
            json!({"spec": {"topologyConstraint": levels}})
        };
        let constraint = merged(spec(existing), spec(desired)).spec.topology_constraint.unwrap();
        let text = |name: Option<String>| name.unwrap_or_default();
        let found = [
            constraint.topology,
            constraint.required_topology_level,
            constraint.preferred_topology_level,
        ]
        .map(text);
        assert_eq!(found, expected, "{existing:?} and {desired:?}");
    };
    check(["ext", "zone", "rack"], ["", "", ""], ["ext", "zone", "rack"]);
    check(["ext", "zone", "rack"], ["", "", "node"], ["ext", "zone", "rack"]);
    check(
        ["ext", "zone", "rack"],
        ["mine", "rack", "node"],
        ["mine", "rack", "node"],
    );
    check(["", "", ""], ["mine", "rack", "node"], ["mine", "rack", "node"]);
}

#[test]
fn labels_and_annotations_are_added_and_replaced_never_removed() {
    let existing = json!({"metadata": {
        "labels": {"kai.scheduler/queue": "q1", "a": "1", "mine": "x"},
        "annotations": {"kai.scheduler/last-start-timestamp": "t"},
        "resourceVersion": "7",
    }});
    let desired = json!({"metadata": {
        "labels": {"kai.scheduler/queue": "q2", "kai.scheduler/node-pool": "np", "a": "2", "b": "3"},
        "annotations": {"c": "4"},
    }});
    let meta = merged(existing, desired).metadata;
    let text = |map: Option<BTreeMap<String, String>>| format!("{:?}", map.unwrap());
    assert_eq!(
        text(meta.labels),
        r#"{"a": "2", "b": "3", "kai.scheduler/queue": "q1", "mine": "x"}"#
    );
    assert_eq!(
        text(meta.annotations),
        r#"{"c": "4", "kai.scheduler/last-start-timestamp": "t"}"#
    );
    assert_eq!(meta.resource_version.as_deref(), Some("7"));
}

#[test]
fn a_hold_of_the_workload_applies_only_when_the_pod_group_is_created() {
    let held = json!({"metadata": {"annotations": {"unikai.dev/hold": "true"}}});
    let hold = |group: PodGroup| group.metadata.annotations.unwrap_or_default().remove("unikai.dev/hold");
    let new = merge(None, &group(held.clone()), &Settings::default());
    assert_eq!(hold(new).as_deref(), Some("true"));
    assert_eq!(hold(merged(json!({}), held.clone())), None, "it was released");
    let own = json!({"metadata": {"annotations": {"unikai.dev/hold": "by hand"}}});
    assert_eq!(hold(merged(own.clone(), held)).as_deref(), Some("by hand"));
    assert_eq!(hold(merged(own, json!({}))).as_deref(), Some("by hand"));
}

#[test]
fn a_group_whose_pods_run_does_not_become_non_preemptible() {
    let class = json!({"metadata": {"name": "high"}, "value": 100});
    let mut classes = Classes::default();
    classes.put(&serde_json::from_value(class).unwrap());
    let becomes = |before: Value, after: Value| {
        let (before, mut group) = (group(json!({"spec": before})), group(json!({"spec": after})));
        let ignored = stay_preemptible(&mut group, &before, &classes);
        assert_eq!(ignored, group.spec == before.spec);
        ignored
    };
    let says = |says: &str| json!({"preemptibility": says, "priorityClassName": "high"});
    assert!(becomes(says("preemptible"), says("non-preemptible")));
    assert!(becomes(says("preemptible"), json!({"priorityClassName": "high"})));
    assert!(becomes(
        json!({"priorityClassName": "train"}),
        json!({"priorityClassName": "high"})
    ));
    assert!(!becomes(says("non-preemptible"), says("preemptible")));
    assert!(!becomes(json!({"priorityClassName": "train"}), says("preemptible")));
}

#[test]
fn merging_twice_changes_nothing() {
    let desired = group(json!({
        "metadata": {"name": "g", "labels": {"a": "1"}, "annotations": {"b": "2"}},
        "spec": {"queue": "q", "minMember": 2, "topologyConstraint": {"topology": "net"}},
    }));
    let once = merge(None, &desired, &Settings::default());
    assert_eq!(merge(Some(&once), &desired, &Settings::default()), once);
}

#[test]
fn timestamps_are_set_and_removed() {
    let key = GroupKey::new("ns", "g");
    let mut group = group(json!({"metadata": {"annotations": {"kai.scheduler/stale-podgroup-timestamp": "t"}}}));
    let times = Times {
        group: key,
        stale_since: None,
        last_start: Some(Time(1_700_000_000_123)),
        last_eviction: None,
    };
    set_times(&mut group, &times);
    let annotations = format!("{:?}", group.metadata.annotations.unwrap());
    assert_eq!(
        annotations,
        r#"{"kai.scheduler/last-start-timestamp": "2023-11-14T22:13:20Z"}"#
    );
}
