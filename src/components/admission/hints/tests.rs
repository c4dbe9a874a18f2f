use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::components::admission::pods::tests::settings;

fn request(object: &Value) -> Request {
    serde_json::from_value(json!({"uid": "u", "namespace": "team", "operation": "CREATE", "object": object})).unwrap()
}

/// The warnings about a pod with these labels and annotations, in a cluster with two PriorityClasses.
fn pod(labels: Value, annotations: Value) -> Vec<String> {
    let pod = json!({"metadata": {"name": "p", "labels": labels, "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}]}});
    of_pod(&request(&pod), &["high".to_owned(), "train".to_owned()], &settings())
}

#[test]
fn misspelt_labels_and_annotations_draw_warnings() {
    let told = |key: &str| pod(json!({key: "team"}), json!({})).join("|");
    assert_eq!(
        told("runai/queue"),
        "label runai/queue does not name a queue here: the label is kai.scheduler/queue"
    );
    assert_eq!(
        told("kai.scheduler/queu"),
        "label kai.scheduler/queu has no effect; is kai.scheduler/queue meant?"
    );
    assert_eq!(
        told("kai.schedluer/queue"),
        "label kai.schedluer/queue has no effect; is kai.scheduler/queue meant?"
    );
    assert_eq!(
        told("gpu-fraction"),
        "label gpu-fraction has no effect: it is an annotation"
    );
    let told = |key: &str| pod(json!({}), json!({key: "1"})).join("|");
    assert_eq!(
        told("gpu-fracton"),
        "annotation gpu-fracton has no effect; is gpu-fraction meant?"
    );
    assert_eq!(
        told("kai.scheduler/queue"),
        "annotation kai.scheduler/queue has no effect: it is a label"
    );
}

#[test]
fn correct_pods_and_unrelated_labels_draw_no_warnings() {
    let right = json!({"kai.scheduler/queue": "team", "runai/queue": "team", "priorityClassName": "high", "app": "web", "user": "u", "team": "t"});
    assert_eq!(
        pod(right, json!({"gpu-memory": "3072", "mps": "true", "note": "a"})),
        [""; 0]
    );
    let foreign = json!({"metadata": {"labels": {"runai/queue": "a"}}, "spec": {"schedulerName": "default-scheduler", "containers": []}});
    assert_eq!(of_pod(&request(&foreign), &[], &settings()), [""; 0]);
}

#[test]
fn missing_priority_classes_draw_warnings_if_classes_are_known() {
    let says = "there is no PriorityClass hgih, so the default one counts; is high meant?";
    assert_eq!(
        pod(json!({"priorityClassName": "hgih"}), json!({})),
        [format!("label priorityClassName: {says}")]
    );
    let group = request(&json!({"metadata": {"name": "g"}, "spec": {"priorityClassName": "hgih"}}));
    let classes = ["high".to_owned(), "train".to_owned()];
    assert_eq!(
        of_pod_group(&group, &classes),
        [format!("spec.priorityClassName: {says}")]
    );
    assert_eq!(of_pod_group(&group, &[]), [""; 0]);
    let far = request(&json!({"metadata": {"name": "g"}, "spec": {"priorityClassName": "x".repeat(500)}}));
    assert!(of_pod_group(&far, &classes)[0].ends_with("xx, so the default one counts"));
}

#[test]
fn refused_values_are_in_the_message() {
    let told = |key: &str, value: &str| pod(json!({}), json!({key: value})).join("|");
    for (value, mib) in [("3Gib", "3072"), ("3Gi", "3072"), ("3GB", "2862"), ("512Mi", "512")] {
        let says =
            format!("annotation gpu-memory: \"{value}\" is not a whole number of MiB above 0; in MiB: \"{mib}\"");
        assert_eq!(told("gpu-memory", value), says);
    }
    assert_eq!(
        told("gpu-fraction", "half"),
        "annotation gpu-fraction: \"half\" is not a decimal number above 0 and below 1, such as 0.5"
    );
    assert_eq!(told("gpu-memory", "3072"), "");
    assert_eq!(told("gpu-fraction", "0.5"), "");
}

fn queue(name: &str, parent: Option<&str>, gpu: Value) -> Queue {
    let free = json!({"quota": -1, "limit": -1});
    serde_json::from_value(json!({"metadata": {"name": name},
        "spec": {"parentQueue": parent, "resources": {"cpu": free, "memory": free, "gpu": gpu}}}))
    .unwrap()
}

/// The warnings about a queue among others.
fn among(own: &Queue, others: &[Queue]) -> Vec<String> {
    let find = |name: &str| {
        let found = others.iter().find(|queue| queue.metadata.name.as_deref() == Some(name));
        found.map(|queue| Arc::new(queue.clone()))
    };
    of_queue(&request(&serde_json::to_value(own).unwrap()), &find, false)
}

#[test]
fn suspicious_amounts_of_queues_draw_warnings() {
    assert_eq!(
        among(&queue("a", None, json!({"quota": 4})), &[]),
        ["queue a: spec.resources.gpu.limit is not set, which means 0: nothing that asks for it runs. -1 is no limit"]
    );
    assert_eq!(
        among(&queue("a", None, json!({"quota": 4, "limit": 2})), &[]),
        ["queue a: the gpu quota (4) is above the limit (2), which counts"]
    );
    assert_eq!(
        among(&queue("a", None, json!({"quota": -1, "limit": 2.5})), &[]),
        ["queue a: the gpu quota (unlimited) is above the limit (2.5), which counts"]
    );
    assert_eq!(among(&queue("a", None, json!({"quota": 4, "limit": -1})), &[]), [""; 0]);
}

#[test]
fn missing_parents_and_quotas_below_those_of_children_draw_warnings() {
    let small = json!({"quota": 5, "limit": -1});
    let own = queue("a", Some("top"), small.clone());
    assert_eq!(
        among(&own, &[]),
        ["queue a: its parent queue top does not exist, and nothing runs in a until it does"]
    );
    let mut top = queue("top", None, json!({"quota": 8, "limit": -1}));
    assert_eq!(among(&own, std::slice::from_ref(&top)), [""; 0]);
    let status = json!({"childQueues": ["a", "b"]});
    top.status = Some(serde_json::from_value(status).unwrap());
    let sibling = queue("b", Some("top"), small);
    let says = ["queue top: the queues below it have gpu quotas of 10 together, itself it has 8"];
    assert_eq!(among(&own, &[top.clone(), own.clone(), sibling.clone()]), says);
    assert_eq!(among(&top, &[own, sibling]), says);
}
