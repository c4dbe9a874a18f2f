//! What the metrics page says of work that waits, GPUs, decisions, failed bindings and the configuration.

use std::time::{SystemTime, UNIX_EPOCH};

use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use unikai::api::SchedulingShard;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, gang, pod, queue};
use super::telemetry::scrape;

fn now() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time")
        .as_secs_f64()
}

/// Waits until a metric has these values.
macro_rules! shows {
    ($operator:expr, $name:expr, $labels:expr, $values:expr) => {
        eventually(concat!("the figures of ", $name), async || {
            let values = scrape(&$operator).await.values($name, $labels);
            if values == $values {
                Ok(())
            } else {
                Err(format!("{values:?}"))
            }
        })
        .await
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_show_waiting_pod_groups_by_queue_and_cause_with_the_oldest() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8), NodeSpec::gpu("gpu-2", 8)]).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    let begin = now() - 2.0;
    lab.create(pod("runs", 6)).await.unwrap();
    lab.runs("runs").await;
    lab.apply(&queue("passing", Some("default"))).await;
    let mut elsewhere = pod("elsewhere", 1);
    elsewhere["metadata"]["labels"]["kai.scheduler/queue"] = json!("passing");
    elsewhere["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    lab.create(elsewhere).await.unwrap();
    lab.create(pod("large", 9)).await.unwrap();
    lab.create(gang("train", 3, 8)).await.unwrap();

    let test = ("queue_metadata_name", "test");
    let pending = "unikai_queue_pending_pod_groups";
    shows!(
        operator,
        "unikai_queue_pending_pod_groups",
        &[test, ("cause", "too_large")],
        [1.0]
    );
    shows!(
        operator,
        "unikai_queue_pending_pod_groups",
        &[test, ("cause", "gang_too_large")],
        [1.0]
    );
    shows!(operator, "unikai_queue_pending_pod_groups", &[test], [1.0, 1.0]);
    let passing = ("queue_metadata_name", "passing");
    shows!(operator, "unikai_queue_pending_pod_groups", &[passing], [1.0]);
    let page = scrape(&operator).await;
    assert_eq!(page.values(pending, &[passing, ("cause", "node_selector")]), [1.0]);
    let since = page.values("unikai_queue_waiting_since_timestamp_seconds", &[test]);
    assert!(since.len() == 1 && (begin..now()).contains(&since[0]), "{since:?}");

    // A deleted queue leaves no series; what waits in it counts as waiting in no queue.
    lab.queues()
        .delete("passing", &DeleteParams::default())
        .await
        .expect("deleted");
    shows!(operator, "unikai_queue_pending_pod_groups", &[passing], [0.0; 0]);
    shows!(
        operator,
        "unikai_queue_pending_pod_groups",
        &[("queue_metadata_name", ""), ("cause", "queue_missing")],
        [1.0]
    );
    lab.delete_pod("elsewhere").await;
    shows!(
        operator,
        "unikai_queue_pending_pod_groups",
        &[("queue_metadata_name", "")],
        [0.0; 0]
    );
    eventually("no series is left of the queue", async || {
        let page = scrape(&operator).await;
        let mut series = page
            .samples
            .iter()
            .flat_map(|(name, samples)| samples.iter().map(move |sample| (name, sample)));
        let left = series.find(|(_, (labels, _))| labels.values().any(|value| value == "passing"));
        left.map_or(Ok(()), |(name, _)| Err(name.clone()))
    })
    .await;

    // Capacity becomes free: nothing waits any more, and the waiting time is gone.
    lab.delete_pod("large").await;
    lab.delete_pod("runs").await;
    lab.world.add_node(NodeSpec::gpu("gpu-3", 8)).await.expect("a node");
    lab.running(3).await;
    shows!(operator, "unikai_queue_pending_pod_groups", &[test], [0.0; 0]);
    shows!(
        operator,
        "unikai_queue_waiting_since_timestamp_seconds",
        &[test],
        [0.0; 0]
    );
    let page = scrape(&operator).await;
    assert_eq!(page.values("unikai_queue_placed_pods_total", &[test]), [4.0]);
    let waited = page.values("unikai_queue_waited_seconds_total", &[test]);
    assert!(
        waited.len() == 1 && (0.0..4.0 * (now() - begin)).contains(&waited[0]),
        "{waited:?}"
    );
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_groups_with_only_gated_pods_have_the_cause_gated() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    let mut gated = pod("gated", 1);
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    lab.create(gated).await.unwrap();
    let test = ("queue_metadata_name", "test");
    shows!(
        operator,
        "unikai_queue_pending_pod_groups",
        &[test, ("cause", "gated")],
        [1.0]
    );
    shows!(operator, "unikai_queue_pending_pod_groups", &[test], [1.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn gpus_are_shown_by_availability() {
    let nodes = ["gpu-1", "gpu-2", "gpu-3"].map(|name| NodeSpec::gpu(name, 8));
    let lab = Lab::start(nodes.to_vec()).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    let shard = ("shard", "default");
    let gpus = |state| [shard, ("state", state)];
    shows!(operator, "unikai_gpus", &gpus("free"), [24.0]);
    lab.create(pod("small", 3)).await.unwrap();
    let node = lab.runs("small").await;
    shows!(operator, "unikai_gpus", &gpus("used"), [3.0]);
    shows!(operator, "unikai_gpus", &gpus("fragmented"), [5.0]);
    shows!(operator, "unikai_gpus_free_on_one_node", &[shard], [8.0]);
    let other = ["gpu-1", "gpu-2", "gpu-3"].into_iter().filter(|name| *name != node);
    for name in other {
        lab.patch_node(name, json!({"spec": {"unschedulable": true}})).await;
    }
    shows!(operator, "unikai_gpus", &gpus("unavailable"), [16.0]);
    shows!(operator, "unikai_gpus", &gpus("free"), [0.0]);
    shows!(operator, "unikai_gpus_free_on_one_node", &[shard], [5.0]);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_counted_by_action_and_failed_bindings_by_cause() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    let refuse = Effect::Refuse {
        code: 422,
        retry_after: None,
    };
    lab.server.faults().add(Match::bindings(), refuse, Times::Next(1));
    let mut low = pod("low", 8);
    low["spec"]["priorityClassName"] = json!("train");
    lab.create(low).await.unwrap();
    lab.runs("low").await;
    let page = scrape(&operator).await;
    assert_eq!(
        page.values("unikai_bind_failures_total", &[("cause", "refused")]),
        [1.0]
    );
    let others = page.values("unikai_bind_failures_total", &[]);
    assert_eq!(others.iter().sum::<f64>(), 1.0, "no other cause");
    let mut high = pod("high", 8);
    high["spec"]["priorityClassName"] = json!("build");
    lab.create(high).await.unwrap();
    lab.runs("high").await;
    let page = scrape(&operator).await;
    // The first binding was decided twice.
    let decided = |action| page.values("unikai_decisions_total", &[("action", action)]);
    assert_eq!((decided("allocate"), decided("preempt")), (vec![3.0], vec![1.0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_without_effect_are_counted_until_their_object_is_deleted() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    let findings = |kind, name, finding| [("kind", kind), ("name", name), ("finding", finding)];
    shows!(
        operator,
        "unikai_config_findings",
        &findings("Config", "kai-config", "ignored"),
        [0.0]
    );
    let blue = json!({
        "apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "blue"},
        "spec": {"partitionLabelValue": "blue", "args": {"restrict-node-scheduling": "maybe"}, "goMemLimit": "1Gi"},
    });
    lab.create(blue).await.unwrap();
    shows!(
        operator,
        "unikai_config_findings",
        &findings("SchedulingShard", "blue", "ignored"),
        [1.0]
    );
    shows!(
        operator,
        "unikai_config_findings",
        &findings("SchedulingShard", "blue", "invalid"),
        [1.0]
    );
    let shards: Api<SchedulingShard> = Api::all(lab.client.clone());
    shards.delete("blue", &DeleteParams::default()).await.expect("deleted");
    shows!(operator, "unikai_config_findings", &[("name", "blue")], [0.0; 0]);
}
