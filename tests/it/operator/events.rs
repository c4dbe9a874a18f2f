//! Events about pods that are not scheduled, or do not run as they should.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, TEAM, eventually, pod};

/// Waits for an event of this reason about an object of that kind and name; its message.
async fn event(lab: &Lab, kind: &str, name: &str, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(lab.client.clone(), TEAM);
    eventually(&format!("event {reason} on {kind} {name}"), async || {
        let all = events
            .list(&ListParams::default())
            .await
            .map_err(|e| e.to_string())?
            .items;
        let found = all.iter().find(|event| {
            let about = &event.involved_object;
            event.reason.as_deref() == Some(reason)
                && (about.kind.as_deref(), about.name.as_deref()) == (Some(kind), Some(name))
        });
        let known = || {
            all.iter()
                .map(|event| format!("{:?} {:?}", event.reason, event.message))
                .collect::<Vec<_>>()
        };
        found
            .map(|event| event.message.clone().unwrap_or_default())
            .ok_or_else(|| format!("{:?}", known()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_that_lost_a_pod_is_said_to_be_stale() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    lab.create(json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": TEAM}, "spec": {"minMember": 2, "queue": "test"}}))
        .await
        .unwrap();
    for name in ["train-a", "train-b"] {
        let mut member = pod(name, 1);
        member["metadata"]["annotations"] = json!({"pod-group-name": "train"});
        lab.create(member).await.unwrap();
    }
    lab.running(2).await;
    lab.delete_pod("train-b").await;
    let says = event(&lab, "PodGroup", "train", "StaleJob").await;
    assert_eq!(says, "Job is stale. 1 pods are active, minMember is 2");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_outside_what_is_scheduled_are_told_so() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let scope = ["--pod-label-selector", "tier=batch"];
    let operator = lab.replica_with("one", &scope).await;
    lab.create(pod("outside", 1)).await.unwrap();
    let says = event(&lab, "Pod", "outside", "PodNotMonitored").await;
    assert_eq!(says, "the pod is not scheduled: its labels must include tier=batch");
    let mut inside = pod("inside", 1);
    inside["metadata"]["labels"]["tier"] = json!("batch");
    lab.create(inside).await.unwrap();
    lab.runs("inside").await;
    operator.assert_no_errors();
}
