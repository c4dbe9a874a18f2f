//! Events about pods that are not scheduled, or do not run as they should.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::json;
use unikai::api::limits;
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
async fn a_gang_that_lost_a_pod_gets_the_event_stale_job() {
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
async fn pods_that_are_not_scheduled_get_an_event() {
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

/// No webhook looks at what a pod asks of other pods.
#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_set_aside_has_an_event_a_metric_and_a_log_line() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let term = |at: usize| json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": format!("a{at}")}}});
    let terms: Vec<_> = (0..=limits::AFFINITY_TERMS_PER_POD).map(term).collect();
    let mut odd = pod("odd", 1);
    odd["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    // Webhooks, which refuse such a pod, come with the operator.
    lab.create(odd).await.unwrap();
    let operator = lab.replica("one").await;
    let why = "there are more than 64 affinity terms to other pods: set aside until that changes";
    assert_eq!(event(&lab, "Pod", "odd", "SetAside").await, why);
    let counted = async |number: &str| {
        let what = format!("{number} pods are counted as set aside");
        eventually(&what, async || {
            let metrics = operator.get("/metrics").await.map_err(|e| e.to_string())?;
            let of_pods = |line: &&str| line.starts_with("unikai_objects_set_aside{") && line.contains("kind=\"Pod\"");
            let found = metrics.lines().find(of_pods).unwrap_or("none").to_owned();
            found.ends_with(&format!(" {number}")).then_some(()).ok_or(found)
        })
        .await;
    };
    counted("1").await;
    let named = |line: &str| line.contains("more than 64 affinity terms") && line.contains("\"odd\"");
    assert!(operator.log().lines().any(named), "{}", operator.log());

    lab.create(pod("plain", 1)).await.unwrap();
    lab.runs("plain").await;
    let odd = lab.pods().get("odd").await.unwrap();
    assert_eq!(odd.spec.unwrap().node_name, None);
    lab.delete_pod("odd").await;
    counted("0").await;
    operator.assert_no_errors();
}
