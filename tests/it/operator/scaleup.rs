//! Scaling pods show missing shared GPUs to a cluster autoscaler.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::json;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, pod};

/// The scaling pods: for which pod each stands, and whether it is said to be unschedulable.
async fn scaling_pods(lab: &Lab) -> Vec<(String, bool)> {
    let api: Api<Pod> = Api::namespaced(lab.client.clone(), "kai-scale-adjust");
    let all = api.list(&ListParams::default()).await.expect("pods").items;
    let told = |pod: &Pod| {
        let conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        conditions
            .iter()
            .any(|told| told.type_ == "PodScheduled" && told.reason.as_deref() == Some("Unschedulable"))
    };
    all.iter()
        .map(|pod| (pod.labels()["shared-gpu-pod-name"].clone(), told(pod)))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_pods_lead_to_a_node_and_the_pods_run_there() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab
        .replica_with("one", &["--gpu-sharing", "--cluster-autoscaling"])
        .await;
    lab.create(pod("whole", 1)).await.unwrap();
    lab.runs("whole").await;
    for name in ["first", "second"] {
        let mut sharer = pod(name, 0);
        sharer["metadata"]["annotations"] = json!({"gpu-fraction": "0.4"});
        lab.create(sharer).await.unwrap();
    }
    eventually("one scaling pod stands for both", async || {
        let there = scaling_pods(&lab).await;
        (there == [("first".to_owned(), true)])
            .then_some(())
            .ok_or_else(|| format!("{there:?}"))
    })
    .await;
    // As a cluster autoscaler does.
    lab.world.add_node(NodeSpec::gpu("gpu-2", 1)).await.unwrap();
    assert_eq!(lab.runs("first").await, "gpu-2");
    assert_eq!(lab.runs("second").await, "gpu-2");
    eventually("the scaling pod has gone", async || {
        let there = scaling_pods(&lab).await;
        there.is_empty().then_some(()).ok_or_else(|| format!("{there:?}"))
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_pods_are_created_and_deleted_after_writes_that_hang() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let flags = ["--gpu-sharing", "--cluster-autoscaling", "--request-timeout", "2"];
    let operator = lab.replica_with("one", &flags).await;
    let faults = lab.server.faults();
    let hangs = ["create", "delete"].map(|verb| {
        let of_scaling_pods = Match {
            namespace: Some("kai-scale-adjust".to_owned()),
            user: Some(operator.identity.user.clone()),
            ..Match::verb_on(verb, "pods")
        };
        faults.add(of_scaling_pods, Effect::Hang, Times::Next(1))
    });
    lab.create(pod("whole", 1)).await.unwrap();
    lab.runs("whole").await;
    let mut sharer = pod("sharer", 0);
    sharer["metadata"]["annotations"] = json!({"gpu-fraction": "0.4"});
    lab.create(sharer).await.unwrap();
    lab.create(pod("plain", 0)).await.unwrap();
    lab.runs("plain").await;
    eventually("a scaling pod is there", async || {
        let there = scaling_pods(&lab).await;
        (there.len() == 1).then_some(()).ok_or_else(|| format!("{there:?}"))
    })
    .await;
    lab.delete_pod("whole").await;
    lab.runs("sharer").await;
    eventually("the scaling pod has gone", async || {
        let there = scaling_pods(&lab).await;
        there.is_empty().then_some(()).ok_or_else(|| format!("{there:?}"))
    })
    .await;
    assert_eq!(hangs.map(|rule| faults.struck(rule)), [1, 1]);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn scaling_pods_are_deleted_once_they_are_switched_off() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let mut operator = lab
        .replica_with("one", &["--gpu-sharing", "--cluster-autoscaling"])
        .await;
    lab.create(pod("whole", 1)).await.unwrap();
    lab.runs("whole").await;
    let mut sharer = pod("sharer", 0);
    sharer["metadata"]["annotations"] = json!({"gpu-fraction": "0.4"});
    lab.create(sharer).await.unwrap();
    eventually("a scaling pod is there", async || {
        let there = scaling_pods(&lab).await;
        (there.len() == 1).then_some(()).ok_or_else(|| format!("{there:?}"))
    })
    .await;
    operator.signal("TERM");
    operator.ends_well().await;

    let operator = lab.replica_with("two", &["--gpu-sharing"]).await;
    eventually("the scaling pod has gone", async || {
        let there = scaling_pods(&lab).await;
        there.is_empty().then_some(()).ok_or_else(|| format!("{there:?}"))
    })
    .await;
    operator.assert_no_errors();
}
