//! The API server and the cluster misbehave; the operator carries on.

use std::time::Duration;

use serde_json::json;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, pod};

fn gpu_nodes(count: usize) -> Vec<NodeSpec> {
    (0..count).map(|i| NodeSpec::gpu(format!("gpu-{i}"), 8)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_and_expired_watches_lose_nothing() {
    let lab = Lab::start(gpu_nodes(4)).await;
    let operator = lab.replica("one").await;
    for round in 0..6 {
        lab.create(pod(&format!("before-{round}"), 1)).await.unwrap();
        match round % 2 {
            0 => lab.server.faults().drop_watches(None),
            _ => lab.server.faults().expire_watches(None),
        }
        lab.create(pod(&format!("after-{round}"), 1)).await.unwrap();
    }
    lab.running(12).await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_slow_and_unanswered_bindings_succeed_eventually() {
    let lab = Lab::start(gpu_nodes(8)).await;
    let operator = lab.replica("one").await;
    let chance = |seed| Times::Chance { probability: 0.2, seed };
    let faults = lab.server.faults();
    let refuse = |code| Effect::Refuse {
        code,
        retry_after: None,
    };
    for (seed, code) in [409, 429, 500, 503].into_iter().enumerate() {
        faults.add(Match::bindings(), refuse(code), chance(seed as u64));
    }
    for i in 0..64 {
        lab.create(pod(&format!("load-{i}"), 1)).await.unwrap();
    }
    lab.running(64).await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_took_effect_but_answered_500_is_not_repeated_elsewhere() {
    let lab = Lab::start(gpu_nodes(2)).await;
    let operator = lab.replica("one").await;
    lab.server
        .faults()
        .add(Match::bindings(), Effect::FailAfter { code: 500 }, Times::Next(4));
    for i in 0..16 {
        lab.create(pod(&format!("load-{i}"), 1)).await.unwrap();
    }
    lab.running(16).await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_node_gets_no_pods() {
    let lab = Lab::start(gpu_nodes(2)).await;
    let operator = lab.replica("one").await;
    lab.create(pod("first", 8)).await.unwrap();
    let node = lab.runs("first").await;
    lab.world.remove_node(&node).await.unwrap();
    lab.create(pod("second", 8)).await.unwrap();
    let other = lab.runs("second").await;
    assert_ne!(other, node);
    lab.create(pod("third", 8)).await.unwrap();
    assert!(lab.unschedulable("third").await.contains("GPU"));
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_node_takes_pods_again_when_it_is_uncordoned() {
    let lab = Lab::start(gpu_nodes(1)).await;
    // Before the operator starts: of a pod and a node that change at the same time it may see the pod first.
    lab.patch_node("gpu-0", json!({"spec": {"unschedulable": true}})).await;
    let operator = lab.replica("one").await;
    lab.create(pod("patient", 1)).await.unwrap();
    assert!(lab.unschedulable("patient").await.contains("1 is cordoned"));
    lab.patch_node("gpu-0", json!({"spec": {"unschedulable": null}})).await;
    lab.runs("patient").await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_deleted_while_it_is_being_bound_leaves_nothing_behind() {
    let lab = Lab::start(gpu_nodes(1)).await;
    let operator = lab.replica("one").await;
    lab.server.faults().add(
        Match::bindings(),
        Effect::Delay(Duration::from_millis(500)),
        Times::Next(1),
    );
    lab.create(pod("brief", 8)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    lab.delete_pod("brief").await;
    lab.create(pod("next", 8)).await.unwrap();
    lab.runs("next").await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_malformed_object_does_not_affect_others() {
    let lab = Lab::start(gpu_nodes(1)).await;
    // Objects from before our CRDs, whose schema let anything in.
    lab.loosen_schema("podgroups.scheduling.run.ai").await;
    lab.create(json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "odd", "namespace": "team"},
        "spec": {"queue": "test", "minMember": "three", "preemptionDelay": "not a duration", "subGroups": {"a": 1}},
    }))
    .await
    .unwrap();
    let mut wild = pod("wild", 1);
    wild["metadata"]["annotations"] = json!({"gpu-fraction": "NaN", "gpu-fraction-num-devices": "-1", "user": "\u{0}"});
    wild["metadata"]["labels"]["kai.scheduler/task-priority"] = json!("high");
    lab.create(wild).await.unwrap();
    let operator = lab.replica("one").await;
    lab.create(pod("good", 1)).await.unwrap();
    lab.runs("good").await;
    eventually("the operator is still ready", async || {
        let ready = operator.get("/readyz").await.map_err(|e| e.to_string())?;
        ready.starts_with("HTTP/1.1 200").then_some(()).ok_or(ready)
    })
    .await;
}
