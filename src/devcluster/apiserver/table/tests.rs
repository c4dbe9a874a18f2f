//! Rows were seen on a real API server (1.35) for the same objects.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::schema::tests::widget;
use super::{IncludeObject, Printer, age, custom, table};

fn now() -> Timestamp {
    "2026-11-21T21:34:30Z".parse().expect("a time")
}

fn cells(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let table = table(
        Printer::BuiltIn { group, kind },
        &json!({}),
        &[object],
        IncludeObject::None,
        true,
        now(),
    );
    let columns = table["columnDefinitions"].as_array().expect("columns").len();
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(columns, cells.len(), "{kind}");
    cells
        .iter()
        .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))
        .collect()
}

fn container(name: &str, state: Value, ready: bool, restarts: i64) -> Value {
    json!({"name": name, "state": state, "ready": ready, "restartCount": restarts})
}

fn running() -> Value {
    json!({"running": {"startedAt": "2026-11-21T21:00:00Z"}})
}

fn waiting(reason: &str) -> Value {
    json!({"waiting": {"reason": reason}})
}

fn ended(code: i64, reason: &str) -> Value {
    json!({"terminated": {"exitCode": code, "reason": reason}})
}

/// READY, STATUS and RESTARTS of a pod with two containers.
fn pod(spec: Value, status: Value) -> String {
    let mut pod = json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-11-21T21:34:00Z"},
        "spec": {"nodeName": "n", "containers": [{"name": "c"}, {"name": "d"}]}, "status": status,
    });
    for (name, value) in spec.as_object().expect("an object") {
        pod["spec"][name] = value.clone();
    }
    cells("", "Pod", &pod)[1..4].join(" ")
}

#[test]
fn pods_have_the_status_column_of_kubectl() {
    let (none, ready) = (json!({}), json!([{"type": "Ready", "status": "True"}]));
    let crashed = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-11-21T21:10:00Z"}});
    let mut again = container("c", running(), true, 3);
    again["lastState"] = crashed;
    let cases = [
        (none.clone(), json!({"phase": "Pending"}), "0/2 Pending 0"),
        (
            none.clone(),
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            "0/2 SchedulingGated 0",
        ),
        (
            none.clone(),
            json!({"phase": "Pending", "containerStatuses": [container("c", waiting("ContainerCreating"), false, 0), container("d", waiting("ContainerCreating"), false, 0)]}),
            "0/2 ContainerCreating 0",
        ),
        (
            none.clone(),
            json!({"phase": "Running", "containerStatuses": [container("c", running(), true, 0), container("d", running(), true, 0)]}),
            "2/2 Running 0",
        ),
        (
            none.clone(),
            json!({"phase": "Running", "containerStatuses": [again, container("d", running(), false, 2)]}),
            "1/2 Running 5 (24m ago)",
        ),
        (
            none.clone(),
            json!({"phase": "Running", "containerStatuses": [container("c", waiting("CrashLoopBackOff"), false, 3), container("d", running(), true, 0)]}),
            "1/2 CrashLoopBackOff 3",
        ),
        (
            none.clone(),
            json!({"phase": "Succeeded", "containerStatuses": [container("c", ended(0, "Completed"), false, 0), container("d", ended(0, "Completed"), false, 0)]}),
            "0/2 Completed 0",
        ),
        (
            none.clone(),
            json!({"phase": "Failed", "containerStatuses": [container("c", ended(1, "Error"), false, 0)]}),
            "0/2 Error 0",
        ),
        (
            none.clone(),
            json!({"phase": "Failed", "containerStatuses": [container("c", ended(3, ""), false, 0)]}),
            "0/2 ExitCode:3 0",
        ),
        (
            none.clone(),
            json!({"phase": "Failed", "containerStatuses": [container("c", json!({"terminated": {"exitCode": 137, "signal": 9}}), false, 0)]}),
            "0/2 Signal:9 0",
        ),
        (
            none.clone(),
            json!({"phase": "Failed", "reason": "Evicted"}),
            "0/2 Evicted 0",
        ),
        (
            none.clone(),
            json!({"phase": "Running", "containerStatuses": [container("c", ended(0, "Completed"), false, 0), container("d", running(), true, 0)]}),
            "1/2 NotReady 0",
        ),
        (
            none.clone(),
            json!({"phase": "Running", "conditions": ready, "containerStatuses": [container("c", ended(0, "Completed"), false, 0), container("d", running(), true, 0)]}),
            "1/2 Running 0",
        ),
        (
            json!({"initContainers": [{"name": "i1"}, {"name": "i2"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [container("i1", ended(0, "Completed"), false, 0), container("i2", running(), false, 2)]}),
            "0/2 Init:1/2 2",
        ),
        (
            json!({"initContainers": [{"name": "i1"}, {"name": "i2"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [container("i1", ended(2, ""), false, 0), container("i2", waiting("PodInitializing"), false, 0)]}),
            "0/2 Init:ExitCode:2 0",
        ),
        (
            json!({"initContainers": [{"name": "i1"}]}),
            json!({"phase": "Pending", "initContainerStatuses": [container("i1", waiting("CrashLoopBackOff"), false, 4)]}),
            "0/2 Init:CrashLoopBackOff 4",
        ),
    ];
    for (spec, status, expected) in cases {
        assert_eq!(pod(spec, status.clone()), expected, "{status}");
    }
}

#[test]
fn sidecars_count_as_containers() {
    let mut sidecar = container("i1", running(), true, 1);
    sidecar["started"] = json!(true);
    let spec = json!({"initContainers": [{"name": "i1", "restartPolicy": "Always"}, {"name": "i2"}]});
    let status = json!({
        "phase": "Running", "initContainerStatuses": [sidecar, container("i2", ended(0, "Completed"), false, 0)],
        "containerStatuses": [container("c", running(), true, 0), container("d", running(), true, 0)],
    });
    assert_eq!(pod(spec, status), "3/3 Running 1");
}

#[test]
fn deleted_pods_terminate_unless_they_have_ended() {
    let pod = |phase: &str| {
        let deleted = json!({"name": "p", "deletionTimestamp": "2026-11-21T21:34:00Z"});
        let pod = json!({"metadata": deleted, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": phase}});
        cells("", "Pod", &pod)[2].clone()
    };
    assert_eq!(
        (pod("Running"), pod("Succeeded")),
        ("Terminating".to_owned(), "Succeeded".to_owned())
    );
}

#[test]
fn other_kinds() {
    let made = "2026-11-21T21:32:25Z";
    let template = json!({"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}});
    let metadata = json!({"name": "n", "namespace": "default", "creationTimestamp": made});
    let cases = [
        ("", "Namespace", json!({"status": {"phase": "Active"}}), "n|Active|2m5s"),
        (
            "",
            "Service",
            json!({"spec": {"type": "ClusterIP", "clusterIP": "10.200.0.1", "ports": [{"port": 443, "protocol": "TCP"}]}}),
            "n|ClusterIP|10.200.0.1|<none>|443/TCP|2m5s|<none>",
        ),
        ("", "ConfigMap", json!({"data": {"a": "b"}}), "n|1|2m5s"),
        (
            "",
            "Node",
            json!({"spec": {"unschedulable": true}, "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kubeletVersion": "v1"},
                   "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}),
            "n|Ready,SchedulingDisabled|<none>|2m5s|v1|10.0.0.1|<none>|<unknown>|<unknown>|<unknown>",
        ),
        (
            "",
            "Event",
            json!({"lastTimestamp": made, "type": "Normal", "reason": "Bound", "involvedObject": {"kind": "Pod", "name": "p"}, "message": "done\n",
                   "source": {"component": "kai-scheduler"}, "count": 2}),
            "2m5s|Normal|Bound|pod/p||kai-scheduler|done|<unknown>|2|n",
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 2, "template": template, "selector": {"matchLabels": {"a": "b"}}}, "status": {"readyReplicas": 1, "updatedReplicas": 2}}),
            "n|1/2|2|0|2m5s|a,b|x,y|a=b",
        ),
        (
            "batch",
            "Job",
            json!({"spec": {"completions": 3, "template": template}, "status": {"succeeded": 1, "startTime": made}}),
            "n|Running|1/3|2m5s|2m5s|a,b|x,y|<none>",
        ),
        (
            "coordination.k8s.io",
            "Lease",
            json!({"spec": {"holderIdentity": "me"}}),
            "n|me|2m5s",
        ),
        (
            "scheduling.k8s.io",
            "PriorityClass",
            json!({"value": 100}),
            "n|100|false|2m5s|PreemptLowerPriority",
        ),
        (
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            json!({}),
            "n|2026-11-21T21:32:25Z",
        ),
        (
            "policy",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": "50%"}}),
            "n|50%|N/A|0|2m5s",
        ),
        (
            "rbac.authorization.k8s.io",
            "ClusterRoleBinding",
            json!({"roleRef": {"kind": "ClusterRole", "name": "admin"}, "subjects": [{"kind": "Group", "name": "g"}, {"kind": "ServiceAccount", "namespace": "a", "name": "b"}]}),
            "n|ClusterRole/admin|2m5s||g|a/b",
        ),
    ];
    for (group, kind, mut object, expected) in cases {
        object["metadata"] = metadata.clone();
        assert_eq!(cells(group, kind, &object).join("|"), expected, "{kind}");
    }
}

#[test]
fn every_kind_fills_its_columns_even_for_an_empty_object() {
    for kind in super::kinds::all() {
        cells(kind.0, kind.1, &json!({"metadata": {"name": "n"}}));
    }
}

#[test]
fn custom_columns_take_the_first_value_of_their_type() {
    let crd = widget();
    let columns = &crd.versions[0].columns;
    let object = json!({
        "metadata": {"name": "u"},
        "spec": {"count": 4, "items": [{"name": "x"}, {"name": "y"}], "when": "2026-11-21T21:32:25Z", "free": {"a": 1}, "flag": true,
                 "name": "ab", "tags": ["t", "u"], "ratio": 0.5},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    });
    let shown = table(
        Printer::Custom(columns),
        &json!({"resourceVersion": "1"}),
        &[&object],
        IncludeObject::Metadata,
        true,
        now(),
    );
    assert_eq!(
        shown["rows"][0]["cells"],
        json!([
            "u",
            4,
            "x",
            "2m5s",
            "True",
            "{\"a\":1}",
            true,
            null,
            "[\"t\",\"u\"]",
            0.5
        ])
    );
    assert_eq!(
        shown["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "u"}})
    );
    assert_eq!(
        shown["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.count"
    );
    let later = table(
        Printer::Custom(columns),
        &json!({}),
        &[&object],
        IncludeObject::Object,
        false,
        now(),
    );
    assert_eq!(
        (&later["columnDefinitions"], &later["rows"][0]["object"]),
        (&json!([]), &object)
    );
}

#[test]
fn json_paths() {
    let object = json!({"a": {"b.c": 1, "d": [10, 20, 30]}, "list": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]});
    for (path, expected) in [
        (".a['b.c']", Some(json!(1))),
        (".a.b\\.c", Some(json!(1))),
        (".a.d[1]", Some(json!(20))),
        (".a.d[-1]", Some(json!(30))),
        (".a.d[*]", Some(json!(10))),
        (".list[?(@.k==\"y\")].v", Some(json!(2))),
        (".list[?(@.v==2)].k", Some(json!("y"))),
        (".list[?(@.k=='z')].v", None),
        (".nope.x", None),
        ("nonsense", None),
        (".a[", None),
    ] {
        assert_eq!(custom::first(&object, path).cloned(), expected, "{path}");
    }
}

#[test]
fn ages() {
    for (seconds, expected) in [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (599, "9m59s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (10_860, "3h1m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (176_400, "2d1h"),
        (691_200, "8d"),
        (63_072_000, "2y"),
        (63_158_400, "2y1d"),
        (252_288_000, "8y"),
    ] {
        assert_eq!(age::duration(seconds), expected, "{seconds}");
    }
}
