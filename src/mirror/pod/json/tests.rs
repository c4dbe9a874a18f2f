use serde_json::{Value, json};

use super::*;
use crate::mirror::Entry as _;

/// The pod as it is kept, by way of all of its fields, and by way of those that are read.
fn both(pod: &Value) -> (core::Pod, core::Pod) {
    let text = pod.to_string();
    let mut whole: core::Pod = serde_json::from_str(&text).unwrap();
    whole.metadata.managed_fields = None;
    let mut part = read(&text).unwrap();
    whole.trim();
    part.trim();
    (whole, part)
}

#[test]
fn the_reduced_parser_reads_pods_like_the_full_one() {
    let variable = json!({"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}});
    let probe = json!({"httpGet": {"port": 80}, "periodSeconds": 5});
    let container = json!({
        "name": "main", "image": "i", "command": ["c"], "args": ["a"], "livenessProbe": probe, "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
        "env": [variable, {"name": "B", "value": "1"}], "envFrom": [{"configMapRef": {"name": "n"}}], "ports": [{"containerPort": 1, "hostPort": 2}],
        "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}}, "volumeMounts": [{"name": "v", "mountPath": "/v"}], "restartPolicy": "Always"});
    let status = json!({"name": "main", "image": "i", "imageID": "x", "ready": true, "restartCount": 1, "state": {"running": {}},
        "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "2"}}});
    let volumes = json!([
                {"name": "v", "persistentVolumeClaim": {"claimName": "p"}}, {"name": "w", "emptyDir": {"medium": "Memory"}},
                {"name": "m", "configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}},
                {"name": "kube-api-access-x", "projected": {"defaultMode": 420, "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "optional": true, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}]);
    let conditions = json!([
                {"type": "Initialized", "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "True", "observedGeneration": 2, "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:01Z"}]);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "generateName": "p-", "generation": 3, "resourceVersion": "7", "selfLink": null,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30, "finalizers": ["f"],
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "managedFields": [{"manager": "m", "fieldsV1": {"f:x": {}}}],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "w", "controller": true}]},
        "spec": {
            "activeDeadlineSeconds": 60, "affinity": {"nodeAffinity": {}}, "containers": [container], "initContainers": [container],
            "ephemeralContainers": [{"name": "debug", "image": "i", "envFrom": [{"configMapRef": {"name": "o"}}]}], "hostNetwork": true, "hostPID": true,
            "nodeName": "n", "nodeSelector": {"k": "v"}, "overhead": {"cpu": "1"}, "priority": 5, "priorityClassName": "train", "preemptionPolicy": "Never",
            "resourceClaims": [{"name": "c"}], "resources": {"requests": {"cpu": "4"}}, "restartPolicy": "Never", "runtimeClassName": "nvidia",
            "schedulerName": "kai-scheduler", "schedulingGates": [{"name": "g"}, {"name": "h"}], "serviceAccountName": "default", "serviceAccount": "default",
            "terminationGracePeriodSeconds": 30, "tolerations": [{"operator": "Exists"}], "dnsPolicy": "ClusterFirst", "securityContext": {"fsGroup": 1},
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
            "volumes": volumes},
        "status": {
            "phase": "Running", "qosClass": "Burstable", "reason": "r", "message": "m", "nominatedNodeName": "n", "startTime": "2026-01-01T00:00:00Z",
            "podIP": "10.0.0.1", "conditions": conditions, "containerStatuses": [status], "initContainerStatuses": [status],
            "resourceClaimStatuses": [{"name": "c", "resourceClaimName": "d"}], "resize": "Proposed",
            "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []}},
    });
    let (whole, part) = both(&pod);
    assert_eq!(part, whole);
}

#[test]
fn absent_and_null_fields_are_none() {
    for pod in [
        json!({}),
        json!({"metadata": null, "spec": null, "status": null}),
        json!({"metadata": {"name": "p", "labels": null}, "spec": {"containers": null, "initContainers": null, "volumes": null}, "status": {}}),
        json!({"spec": {"containers": [{"name": null, "env": [{"name": null}], "volumeMounts": [{"name": null}]}], "ephemeralContainers": [{"name": null}]}}),
        json!({"spec": {"volumes": [{"name": null, "projected": {"sources": null}}, {"name": "v", "projected": null}, {}]},
            "status": {"conditions": null, "containerStatuses": [{"name": null, "state": null, "lastState": null}]}}),
        json!({"status": {"conditions": [{"type": null, "status": null}, {"type": "Ready", "status": null}]}}),
        json!({"status": {"conditions": []}}),
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "env": null, "resources": {}}], "nodeName": null}}),
    ] {
        let (whole, part) = both(&pod);
        assert_eq!(part, whole, "{pod}");
    }
    for wrong in [
        r#"{"spec": {"containers": "all of them"}}"#,
        r#"{"spec": {"volumes": [7]}}"#,
        r#"{"spec": {"volumes": [{"name": "v", "projected": 7}]}}"#,
        r#"{"status": {"conditions": [7]}}"#,
        r#"{"status": {"conditions": [{"type": "Ready", "lastTransitionTime": "yesterday"}]}}"#,
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
