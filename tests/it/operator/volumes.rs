//! Pods with volumes: allowed nodes, and messages.

use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, ListParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{Effect, Identity, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, eventually, pod};

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

pub fn claim(name: &str, class: &str, size: &str) -> Value {
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

/// A volume made by hand, of 20 GiB, for all nodes or those of one zone.
pub fn volume(name: &str, class: &str, zone: Option<&str>) -> Value {
    let term = |zone| json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    let affinity = zone.map(|zone| json!({"required": {"nodeSelectorTerms": [term(zone)]}}));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "20Gi"},
            "nodeAffinity": affinity,
            "csi": {"driver": "csi.example", "volumeHandle": name},
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_claim_is_reported_and_the_pod_runs_once_it_has_a_volume() {
    let lab = Lab::start(nodes_in_zones()).await;
    let operator = lab.replica("one").await;
    lab.create(using("reader", &["data"])).await.unwrap();
    let said = lab.unschedulable("reader").await;
    assert!(said.contains("PersistentVolumeClaim \"data\" not found"), "{said}");
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
    lab.create(volume("old", "by-hand", Some("b"))).await.unwrap();
    lab.create(claim("data", "by-hand", "10Gi")).await.unwrap();
    let operator = lab.replica("one").await;
    lab.create(using("reader", &["data"])).await.unwrap();
    assert_eq!(lab.runs("reader").await, "in-b");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_gets_its_volume_after_a_write_that_hangs() {
    let lab = Lab::start(nodes_in_zones()).await;
    let late = class("late", "csi.example", "WaitForFirstConsumer");
    lab.create(late).await.unwrap();
    let operator = lab.replica_with("one", &["--request-timeout", "2"]).await;
    let written = Match {
        user: Some(operator.identity.user.clone()),
        ..Match::verb_on("patch", "persistentvolumeclaims")
    };
    let hangs = lab.server.faults().add(written, Effect::Hang, Times::Next(1));
    lab.create(claim("data", "late", "10Gi")).await.unwrap();
    lab.create(using("reader", &["data"])).await.unwrap();
    lab.create(pod("plain", 0)).await.unwrap();
    lab.runs("plain").await;
    lab.runs("reader").await;
    assert_eq!(lab.server.faults().struck(hangs), 1);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_gets_its_volume_where_there_is_room() {
    let lab = Lab::start(nodes_in_zones()).await;
    lab.create(class("late", "csi.example", "WaitForFirstConsumer"))
        .await
        .unwrap();
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example"},
        "spec": {"storageCapacity": true},
    });
    lab.create(driver).await.unwrap();
    for (zone, free) in [("a", "5Gi"), ("b", "25Gi"), ("c", "1Gi")] {
        let room = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
            "metadata": {"name": format!("room-{zone}"), "namespace": TEAM},
            "storageClassName": "late", "capacity": free, "nodeTopology": {"matchLabels": {ZONE: zone}},
        });
        lab.create(room).await.unwrap();
    }
    let operator = lab.replica("one").await;
    lab.create(claim("data", "late", "10Gi")).await.unwrap();
    lab.create(using("reader", &["data"])).await.unwrap();
    assert_eq!(lab.runs("reader").await, "in-b");
    lab.nothing_left().await;
    let steps = [
        "create bindrequests/",
        "patch persistentvolumeclaims/",
        "create pods/binding",
        "delete bindrequests/",
    ];
    let writes = lab.writes_of(&operator);
    let writes: Vec<_> = writes
        .iter()
        .filter_map(|write| steps.iter().find(|step| write.starts_with(**step)))
        .collect();
    assert!(writes.into_iter().eq(&steps), "each step once, and in their order");

    lab.create(claim("more", "late", "100Gi")).await.unwrap();
    lab.create(using("greedy", &["more"])).await.unwrap();
    let said = lab.unschedulable("greedy").await;
    assert!(
        said.contains("3 have too little free storage of class late for claim more"),
        "{said}"
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_share_the_volumes_that_exist() {
    let lab = Lab::start(nodes_in_zones()).await;
    lab.create(class("by-hand", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"))
        .await
        .unwrap();
    lab.create(volume("one", "by-hand", Some("a"))).await.unwrap();
    lab.create(volume("two", "by-hand", Some("c"))).await.unwrap();
    let operator = lab.replica("one").await;
    for name in ["first", "second", "third"] {
        lab.create(claim(name, "by-hand", "10Gi")).await.unwrap();
        lab.create(using(name, &[name])).await.unwrap();
    }
    lab.running(2).await;
    let pods = lab.all_pods().await;
    let mut nodes: Vec<_> = pods
        .iter()
        .filter_map(|pod| pod.spec.as_ref()?.node_name.clone())
        .collect();
    nodes.sort();
    assert_eq!(nodes, ["in-a", "in-c"]);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_binding_times_out_and_is_retried() {
    let lab = Lab::start(nodes_in_zones()).await;
    lab.create(class("late", "csi.example", "WaitForFirstConsumer"))
        .await
        .unwrap();
    lab.create(class("by-hand", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"))
        .await
        .unwrap();
    lab.create(volume("old", "by-hand", Some("b"))).await.unwrap();
    // Neither the controller that binds volumes nor the provisioner gets anything done.
    for verb in ["create", "patch"] {
        let by_controllers = Match {
            subresource: Some(String::new()),
            user: Some(Identity::admin().user),
            ..Match::verb_on(verb, "persistentvolumes")
        };
        let refuse = Effect::Refuse {
            code: 500,
            retry_after: None,
        };
        lab.server.faults().add(by_controllers, refuse, Times::Always);
    }
    let operator = lab.replica_with("one", &["--volume-binding-timeout", "1"]).await;
    for (name, class) in [("new", "late"), ("known", "by-hand")] {
        lab.create(claim(name, class, "10Gi")).await.unwrap();
    }
    lab.create(using("reader", &["new", "known"])).await.unwrap();
    eventually("an event says what was waited for", async || {
        let api: Api<Event> = Api::namespaced(lab.client.clone(), TEAM);
        let events = api.list(&ListParams::default()).await.map_err(|e| e.to_string())?;
        let errors = events
            .items
            .into_iter()
            .filter(|event| event.reason.as_deref() == Some("BindingError"));
        // Others say when it is tried again.
        let mut messages = errors.filter_map(|event| event.message);
        let waited = messages.any(|message| message.contains("timed out waiting for PVC"));
        waited.then_some(()).ok_or_else(|| "no event".to_owned())
    })
    .await;
    eventually("claim and volume are free again", async || {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(lab.client.clone(), TEAM);
        let claim = claims.get("new").await.map_err(|e| e.to_string())?;
        let volumes: Api<PersistentVolume> = Api::all(lab.client.clone());
        let volume = volumes.get("old").await.map_err(|e| e.to_string())?;
        let held = (
            claim.annotations().get("volume.kubernetes.io/selected-node").cloned(),
            volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone()),
            volume
                .annotations()
                .get("pv.kubernetes.io/bound-by-controller")
                .cloned(),
        );
        (held == (None, None, None))
            .then_some(())
            .ok_or_else(|| format!("{held:?}"))
    })
    .await;
    lab.server.faults().clear();
    assert_eq!(lab.runs("reader").await, "in-b");
    lab.nothing_left().await;
    let volumes: Api<PersistentVolume> = Api::all(lab.client.clone());
    let all = volumes.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(
        all.len(),
        2,
        "{:?}",
        all.iter().map(|volume| volume.meta().name.clone()).collect::<Vec<_>>()
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_wait_for_missing_config_maps_if_configured() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    lab.apply(include_str!("../../../manifests/config-maps/rbac.yaml"))
        .await;
    let operator = lab.replica_with("one", &["--config-maps"]).await;
    let mut needy = pod("needy", 0);
    needy["spec"]["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "settings"}}]);
    lab.create(needy).await.unwrap();
    let says = lab.unschedulable("needy").await;
    assert!(says.contains("Missing required configmaps: [settings]"), "{says}");
    let settings = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": TEAM}, "data": {"a": "b"},
    });
    lab.create(settings).await.unwrap();
    assert_eq!(lab.runs("needy").await, "cpu-1");
    operator.assert_no_errors();
}
