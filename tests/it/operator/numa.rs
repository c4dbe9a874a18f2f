//! Nodes with NodeResourceTopology objects, and kubelets that refuse pods which do not fit in the zones.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use unikai::api::NodeResourceTopology;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, pod};

/// The kind as the agents' projects define it, without the parts that are not used here.
const KIND: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: noderesourcetopologies.topology.node.k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: topology.node.k8s.io
  names: {kind: NodeResourceTopology, plural: noderesourcetopologies, singular: noderesourcetopology}
  scope: Cluster
  versions:
  - name: v1alpha2
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Two zones of 16 cores each.
fn zones(node: &str, policy: &str) -> Value {
    let zone = |at: u8| {
        json!({"name": format!("node-{at}"), "type": "Node", "resources": [
            {"name": "cpu", "capacity": "16", "allocatable": "16", "available": "16"},
        ]})
    };
    json!({
        "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": node},
        "attributes": [{"name": "topologyManagerPolicy", "value": policy}],
        "zones": [zone(0), zone(1)],
    })
}

/// A Guaranteed pod with so many cores.
fn cores(name: &str, cores: u32) -> Value {
    let mut pod = pod(name, 0);
    let amounts = json!({"cpu": cores.to_string(), "memory": "1Gi"});
    pod["spec"]["containers"][0]["resources"] = json!({"requests": amounts, "limits": amounts});
    pod
}

/// The zones that a pod is expected to use, once that is written on it.
async fn predicted(lab: &Lab, name: &str) -> String {
    eventually(&format!("{name} says which zones it uses"), async || {
        let pod: Pod = lab.pods().get(name).await.map_err(|error| error.to_string())?;
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let zones = annotations.get("kai.scheduler/numa-placement-predicted").cloned();
        zones.ok_or_else(|| format!("{annotations:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_bound_to_nodes_where_they_fit_one_zone() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    lab.apply(KIND).await;
    lab.create(zones("cpu-1", "single-numa-node")).await.unwrap();
    let operator = lab.replica_with("one", &["--numa"]).await;
    lab.create(cores("first", 12)).await.unwrap();
    assert_eq!(lab.runs("first").await, "cpu-1");
    assert_eq!(
        predicted(&lab, "first").await,
        r#"[{"zone":"node-0","amount":{"cpu":"12"}}]"#
    );
    lab.create(cores("second", 10)).await.unwrap();
    assert_eq!(lab.runs("second").await, "cpu-1");
    assert_eq!(
        predicted(&lab, "second").await,
        r#"[{"zone":"node-1","amount":{"cpu":"10"}}]"#
    );

    // Ten cores are free, but no zone has more than six.
    lab.create(cores("third", 8)).await.unwrap();
    let says = lab.unschedulable("third").await;
    assert!(says.contains("cannot align the pod to NUMA zones"), "{says}");
    lab.delete_pod("second").await;
    assert_eq!(lab.runs("third").await, "cpu-1");
    assert_eq!(
        predicted(&lab, "third").await,
        r#"[{"zone":"node-1","amount":{"cpu":"8"}}]"#
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kind_may_be_installed_later_and_policies_may_change() {
    let lab = Lab::start(vec![NodeSpec::cpu("cpu-1")]).await;
    let operator = lab.replica_with("one", &["--numa", "--numa-ignore=memory"]).await;
    lab.apply(KIND).await;
    lab.create(zones("cpu-1", "single-numa-node")).await.unwrap();
    eventually("the operator has seen the zones", async || {
        let state = operator.get("/state").await.map_err(|error| error.to_string())?;
        let seen = state.contains(r#""nodeResourceTopologies":1"#);
        seen.then_some(()).ok_or(state)
    })
    .await;
    lab.create(cores("wide", 20)).await.unwrap();
    let says = lab.unschedulable("wide").await;
    assert!(says.contains("cannot align the pod to NUMA zones"), "{says}");
    let api: Api<NodeResourceTopology> = Api::all(lab.client.clone());
    let relaxed = json!({"attributes": [{"name": "topologyManagerPolicy", "value": "best-effort"}]});
    let patched = api
        .patch("cpu-1", &PatchParams::default(), &Patch::Merge(relaxed))
        .await;
    patched.expect("the zones are patched");
    assert_eq!(lab.runs("wide").await, "cpu-1");
    assert_eq!(
        predicted(&lab, "wide").await,
        r#"[{"zone":"node-0","amount":{"cpu":"16"}},{"zone":"node-1","amount":{"cpu":"4"}}]"#
    );
    operator.assert_no_errors();
}
