//! Pods with volumes: where their claims let them go, and what they are told.

use serde_json::{Value, json};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, pod};

const ZONE: &str = "topology.kubernetes.io/zone";

fn nodes_in_zones() -> Vec<NodeSpec> {
    ["a", "b", "c"]
        .into_iter()
        .map(|zone| NodeSpec::cpu(format!("in-{zone}")).label(ZONE, zone))
        .collect()
}

/// A pod that uses these claims.
fn using(name: &str, claims: &[&str]) -> Value {
    let mut pod = pod(name, 0);
    let volume = |claim: &&str| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    pod["spec"]["volumes"] = claims.iter().map(volume).collect();
    pod
}

fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": TEAM},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    })
}

fn class(name: &str, provisioner: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": mode,
    })
}

/// A volume made by hand, of 20 GiB, for the nodes of one zone.
fn volume(name: &str, class: &str, zone: &str) -> Value {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "20Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            "csi": {"driver": "csi.example", "volumeHandle": name},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_claim_is_told_and_the_pod_runs_once_it_has_a_volume() {
    let lab = Lab::start(nodes_in_zones()).await;
    let operator = lab.replica("one").await;
    lab.create(using("reader", &["data"])).await.unwrap();
    let said = lab.unschedulable("reader").await;
    assert!(said.contains("persistentvolumeclaim \"data\" not found"), "{said}");
    lab.create(class("quick", "csi.example", "Immediate")).await.unwrap();
    lab.create(claim("data", "quick", "10Gi")).await.unwrap();
    lab.runs("reader").await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_goes_to_the_zone_of_its_volume() {
    let lab = Lab::start(nodes_in_zones()).await;
    lab.create(class("by-hand", "kubernetes.io/no-provisioner", "Immediate"))
        .await
        .unwrap();
    lab.create(volume("old", "by-hand", "b")).await.unwrap();
    lab.create(claim("data", "by-hand", "10Gi")).await.unwrap();
    let operator = lab.replica("one").await;
    lab.create(using("reader", &["data"])).await.unwrap();
    assert_eq!(lab.runs("reader").await, "in-b");
    operator.assert_no_errors();
}
