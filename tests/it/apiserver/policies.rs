//! The admission policies of `manifests/`: what tenants may not write into pods, whether the operator runs or not. On a real API server, too, where there is one.

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::harness::{Answer, Cluster, on_each};
use crate::polling::eventually;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const OPERATOR: &str = "system:serviceaccount:kai-scheduler:unikai";
const RESERVATION: &str = "system:serviceaccount:kai-resource-reservation:kai-resource-reservation";

/// Puts the policies in force.
async fn install(cluster: &Cluster) {
    for namespace in ["kai-resource-reservation", "kai-scale-adjust"] {
        let object = json!({"metadata": {"name": namespace}});
        cluster.post("/api/v1/namespaces", &object).await;
        for account in ["default", "kai-resource-reservation", "kai-scale-adjust"] {
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
            cluster.post(&path, &json!({"metadata": {"name": account}})).await;
        }
    }
    let files = unikai::cli::manifests::files("unikai:test");
    let (_, text) = files.iter().find(|(name, _)| name.contains("policies")).unwrap();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        let object = Value::deserialize(document).unwrap();
        let path = match object["kind"].as_str().unwrap() {
            "ValidatingAdmissionPolicy" => POLICIES.to_owned(),
            _ => format!("{}bindings", POLICIES.replace("policies", "policy")),
        };
        let answer = cluster.post(&path, &object).await;
        assert!(matches!(answer.code, 201 | 409), "{answer:?}");
    }
    // A real API server takes a moment.
    let tenant = cluster.acting_as("tenant").await;
    let mut probe = pod("probe");
    probe["metadata"]["labels"]["runai-gpu-group"] = json!("g");
    let dry_run = format!("{}?dryRun=All", cluster.core("pods"));
    eventually("the policies are in force", async || {
        (tenant.post(&dry_run, &probe).await.code == 403).then_some(())
    })
    .await;
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "test", "app": "web"}, "annotations": {"gpu-fraction": "0.5", "note": "a"}},
        "spec": {
            "schedulerName": "kai-scheduler", "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "ubuntu"}],
        },
    })
}

#[track_caller]
fn assert_refused(answer: &Answer, words: &str) {
    let (code, reason, message) = answer.refusal();
    assert_eq!((code, reason), (403, "Forbidden"), "{message}");
    assert!(message.contains(words), "{message}");
}

/// A pod that the scheduler has bound, with what that leaves on it.
async fn bound(cluster: &Cluster, name: &str) -> String {
    cluster.post(&cluster.core("pods"), &pod(name)).await.ok();
    let operator = cluster.acting_as(OPERATOR).await;
    let path = cluster.core(&format!("pods/{name}"));
    operator
        .merge(&path, &json!({"metadata": {"labels": {"runai-gpu-group": "g1"}}}))
        .await
        .ok();
    let binding = json!({
        "metadata": {"name": name, "annotations": {"pod-group-name": "pg", "received-resource-type": "Fraction"}},
        "target": {"kind": "Node", "name": "n1"},
    });
    operator.post(&format!("{path}/binding"), &binding).await.ok();
    path
}

#[tokio::test]
async fn labels_that_a_bound_pod_is_charged_by_are_immutable() {
    on_each(async |cluster: &Cluster| {
        install(cluster).await;
        let path = bound(cluster, "a").await;
        let tenant = cluster.acting_as("tenant").await;
        for label in [
            "kai.scheduler/queue",
            "kai.scheduler/node-pool",
            "kai.scheduler/subgroup-name",
            "kai.scheduler/task-priority",
            "kai.scheduler/preemptibility",
            "priorityClassName",
            "project",
            "runai-gpu-group",
            "runai-gpu-group/g1",
        ] {
            let change = json!({"metadata": {"labels": {label: "other"}}});
            assert_refused(&tenant.merge(&path, &change).await, &format!("charged by its labels: {label} cannot"));
            let whole = format!("{path}/status");
            assert_refused(&tenant.merge(&whole, &change).await, &format!("charged by its labels: {label} cannot"));
        }
        for annotation in [
            "pod-group-name",
            "gpu-fraction",
            "gpu-memory",
            "gpu-fraction-num-devices",
            "gpu-fraction-container-name",
            "mps",
            "received-resource-type",
            "runai/shared-gpu-configmap",
            "nvidia.com/mig-none",
            "kai.scheduler/skip-podgrouper",
            "kai.scheduler/numa-placement-predicted",
            "kai.scheduler/numa-placement-observed",
        ] {
            let change = json!({"metadata": {"annotations": {annotation: "1"}}});
            let words = format!("charged by its annotations: {annotation} cannot");
            assert_refused(&tenant.merge(&path, &change).await, &words);
        }
        for removed in [
            json!({"labels": {"kai.scheduler/queue": null}}),
            json!({"labels": {"runai-gpu-group": null}}),
            json!({"labels": null}),
            json!({"annotations": {"gpu-fraction": null}}),
            json!({"annotations": null}),
        ] {
            assert_refused(&tenant.merge(&path, &json!({"metadata": removed})).await, "Delete the pod and create it anew");
        }

        let own = json!({"metadata": {"labels": {"app": "api", "tier": "gold"}, "annotations": {"note": null, "checked": "yes"}}});
        tenant.merge(&path, &own).await.ok();
        let finalizers = json!({"metadata": {"finalizers": ["example.com/f"]}});
        tenant.merge(&path, &finalizers).await.ok();
        tenant.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
        let exporter = cluster.acting_as("system:serviceaccount:kai-scheduler:numa-placement-exporter").await;
        let observed = json!({"metadata": {"annotations": {"kai.scheduler/numa-placement-observed": "{}"}}});
        exporter.merge(&path, &observed).await.ok();
        let operator = cluster.acting_as(OPERATOR).await;
        let moved = json!({"metadata": {"labels": {"kai.scheduler/subgroup-name": "s", "runai-gpu-group": "g2"}}});
        operator.merge(&path, &moved).await.ok();
        tenant.delete(&path).await.ok();
    })
    .await;
}

#[tokio::test]
async fn before_the_binding_labels_may_change_except_gpu_groups() {
    on_each(async |cluster: &Cluster| {
        install(cluster).await;
        let tenant = cluster.acting_as("tenant").await;
        let words = "only the scheduler says which GPU a pod shares: remove the labels runai-gpu-group";
        for label in ["runai-gpu-group", "runai-gpu-group/g1"] {
            let mut named = pod("named");
            named["metadata"]["labels"][label] = json!("g1");
            assert_refused(&tenant.post(&cluster.core("pods"), &named).await, words);
        }
        tenant.post(&cluster.core("pods"), &pod("a")).await.ok();
        let path = cluster.core("pods/a");
        let group = |value: Value| json!({"metadata": {"labels": {"runai-gpu-group": value}}});
        assert_refused(&tenant.merge(&path, &group(json!("g1"))).await, words);
        let asked = json!({"metadata": {"labels": {"kai.scheduler/queue": "other"}, "annotations": {"gpu-fraction": "0.25", "pod-group-name": "pg"}}});
        tenant.merge(&path, &asked).await.ok();
        let operator = cluster.acting_as(OPERATOR).await;
        operator.merge(&path, &group(json!("g1"))).await.ok();
        assert_refused(&tenant.merge(&path, &group(Value::Null)).await, words);

        let mut many = pod("many");
        for n in 0..600 {
            many["metadata"]["labels"][format!("l{n}")] = json!("v");
        }
        assert_refused(&tenant.post(&cluster.core("pods"), &many).await, "a pod has at most 512 labels");

        let mut placed = pod("placed");
        placed["spec"]["nodeName"] = json!("n1");
        assert_refused(&tenant.post(&cluster.core("pods"), &placed).await, "is given its node by the scheduler");
    })
    .await;
}

#[tokio::test]
async fn pods_of_other_schedulers_are_not_restricted() {
    on_each(async |cluster: &Cluster| {
        install(cluster).await;
        let tenant = cluster.acting_as("tenant").await;
        let mut other = pod("other");
        other["spec"]["schedulerName"] = json!("default-scheduler");
        other["spec"]["nodeName"] = json!("n1");
        other["metadata"]["labels"]["runai-gpu-group"] = json!("g1");
        tenant.post(&cluster.core("pods"), &other).await.ok();
        let change = json!({"metadata": {"labels": {"runai-gpu-group": null, "kai.scheduler/queue": "x"}, "annotations": {"gpu-fraction": "0.1"}}});
        tenant.merge(&cluster.core("pods/other"), &change).await.ok();
    })
    .await;
}

#[tokio::test]
async fn only_the_operator_creates_reservation_pods() {
    on_each(async |cluster: &Cluster| {
        install(cluster).await;
        let tenant = cluster.acting_as("tenant").await;
        let pods = "/api/v1/namespaces/kai-resource-reservation/pods";
        let name = format!("gpu-reservation-{}", uuid::Uuid::new_v4().simple());
        let mut reservation = json!({
            "metadata": {"name": name, "labels": {"app": "kai-resource-reservation", "runai-gpu-group": "g1"}},
            "spec": {
                "automountServiceAccountToken": false, "serviceAccountName": "kai-resource-reservation",
                "nodeName": "n1", "containers": [{"name": "main", "image": "ubuntu"}],
            },
        });
        assert_refused(
            &tenant.post(pods, &reservation).await,
            "only the operator makes pods with this service account",
        );
        let account = reservation["spec"]
            .as_object_mut()
            .unwrap()
            .remove("serviceAccountName")
            .unwrap();
        assert_refused(
            &tenant.post(pods, &reservation).await,
            "only the operator writes these labels of pods here: ",
        );
        reservation["spec"]["serviceAccountName"] = account;
        cluster.acting_as(OPERATOR).await.post(pods, &reservation).await.ok();

        let path = format!("{pods}/{name}");
        let device = json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": "GPU-1"}}});
        assert_refused(
            &tenant.merge(&path, &device).await,
            "only the pod itself writes down which GPU it holds",
        );
        let group = json!({"metadata": {"labels": {"runai-gpu-group": "g2"}}});
        assert_refused(
            &tenant.merge(&path, &group).await,
            "only the operator writes these labels",
        );
        let own = cluster.acting_as(RESERVATION).await;
        assert_refused(&own.merge(&path, &group).await, "only the operator writes these labels");
        own.merge(&path, &device).await.ok();
        tenant
            .merge(&path, &json!({"metadata": {"annotations": {"note": "seen"}}}))
            .await
            .ok();
        cluster.delete(&path).await.ok();
    })
    .await;
}

/// The container of such a pod reports nothing; fake-gpu-operator does, under a service account of its own.
#[tokio::test]
async fn the_gpu_of_a_reservation_pod_for_fake_gpus_is_reported_once_by_another_user() {
    on_each(async |cluster: &Cluster| {
        install(cluster).await;
        let pods = "/api/v1/namespaces/kai-resource-reservation/pods";
        let name = format!("gpu-reservation-{}", uuid::Uuid::new_v4().simple());
        let device = |device: Value| json!({"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": device}}});
        let mut reservation = json!({
            "metadata": {"name": name, "labels": {"app": "kai-resource-reservation", "runai-gpu-group": "g1"}},
            "spec": {
                "automountServiceAccountToken": false, "serviceAccountName": "kai-resource-reservation", "nodeName": "n1",
                "containers": [{"name": "main", "image": "ubuntu", "args": ["reserve", "--fake-gpu"]}],
            },
        });
        let operator = cluster.acting_as(OPERATOR).await;
        operator.post(pods, &reservation).await.ok();

        let words = "only the pod itself writes down which GPU it holds";
        let path = format!("{pods}/{name}");
        let fakes = cluster.acting_as("system:serviceaccount:gpu-operator:status-updater").await;
        fakes.merge(&path, &device(json!("GPU-1"))).await.ok();
        for other in [json!("GPU-2"), Value::Null] {
            assert_refused(&fakes.merge(&path, &device(other)).await, words);
        }
        cluster.delete(&path).await.ok();

        // A pod that this user creates names no GPU, whatever its arguments.
        reservation["metadata"] = device(json!("GPU-1"))["metadata"].clone();
        reservation["metadata"]["name"] = json!(format!("{name}-own"));
        reservation["spec"]
            .as_object_mut()
            .unwrap()
            .remove("serviceAccountName");
        assert_refused(&fakes.post(pods, &reservation).await, words);
    })
    .await;
}

#[tokio::test]
async fn a_claim_keeps_its_protection_while_pods_hold_it() {
    on_each(async |cluster: &Cluster| {
        install(cluster).await;
        let claims = cluster.group("resource.k8s.io/v1", "resourceclaims");
        let protection = "resource.kubernetes.io/delete-protection";
        let claim = json!({
            "metadata": {"name": "data", "finalizers": [protection, "example.com/other"]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
        });
        cluster.post(&claims, &claim).await.ok();
        let path = format!("{claims}/data");
        let device = json!({"request": "gpu", "driver": "d", "pool": "p", "device": "card-1"});
        let held = json!({"status": {
            "allocation": {"devices": {"results": [device]}},
            "reservedFor": [{"resource": "pods", "name": "a", "uid": "1"}],
        }});
        cluster.merge(&format!("{path}/status"), &held).await.ok();

        let tenant = cluster.acting_as("tenant").await;
        let bare = json!({"metadata": {"finalizers": ["example.com/other"]}});
        for user in [&tenant, cluster] {
            assert_refused(&user.merge(&path, &bare).await, "is reserved for pods");
        }
        let other = json!({"metadata": {"finalizers": [protection], "labels": {"a": "b"}}});
        tenant.merge(&path, &other).await.ok();

        let free = json!({"status": {"allocation": null, "reservedFor": null}});
        cluster.merge(&format!("{path}/status"), &free).await.ok();
        tenant
            .merge(&path, &json!({"metadata": {"finalizers": null}}))
            .await
            .ok();
    })
    .await;
}
