use serde_json::{Value, json};

use k8s_openapi::api::core::v1::Pod;

use super::*;
use crate::api::PodGroup;

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train-7", "namespace": "team", "uid": "5a1d7c3e-0000-4000-8000-000000000007", "resourceVersion": "42",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"kai.scheduler/queue": "test"}, "annotations": {"note": "\u{1F600}\n\"x\""}},
        "spec": {"schedulerName": "kai-scheduler", "nodeName": "n1", "tolerations": [], "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": "1"}}, "ports": [{"containerPort": 80}]}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m", "optional": true}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

#[test]
fn an_object_is_read_as_it_was() {
    let mut pod: Pod = serde_json::from_value(pod()).unwrap();
    let json = Compact::json(&mut pod).unwrap();
    assert_eq!(pod.metadata.resource_version.as_deref(), Some("42"));
    let compact = Compact::<Pod>::of(&json);
    assert!(compact.is(&json));
    pod.metadata.resource_version = None;
    assert_eq!(compact.object().as_ref(), Some(&pod), "all but the resource version");
    pod.metadata.labels = None;
    assert!(!compact.is(&Compact::json(&mut pod).unwrap()));
    let mut empty = Pod::default();
    assert_eq!(Compact::of(&Compact::json(&mut empty).unwrap()).object(), Some(empty));
    let mut group: PodGroup = serde_json::from_value(json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "team"},
        "spec": {"minMember": 2, "queue": "test", "subGroups": [{"name": "a", "minMember": 1}], "topologyConstraint": {"topology": "t"}},
        "status": {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "nodePool": "default", "transitionID": "1", "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "r", "message": "m"}]},
    }))
    .unwrap();
    assert_eq!(Compact::of(&Compact::json(&mut group).unwrap()).object(), Some(group));
}

#[test]
fn common_text_of_pods_takes_no_memory_per_pod() {
    let mut pod: Pod = serde_json::from_value(pod()).unwrap();
    let json = Compact::json(&mut pod).unwrap();
    let compact = Compact::<Pod>::of(&json);
    assert!(
        compact.text.len() * 2 < json.len(),
        "{} of {}",
        compact.text.len(),
        json.len()
    );
}
