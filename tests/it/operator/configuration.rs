//! Config and SchedulingShards: created if missing, applied while pods are created, and conditions show whether they are in force.

use k8s_openapi::ClusterResourceScope;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use unikai::api::{Config, SchedulingShard};
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, eventually, pod};

pub const CONFIG: &str = "kai-config";
pub const SHARD: &str = "default";

/// Changes an object, and returns its generation.
pub async fn change<K>(lab: &Lab, name: &str, patch: Value) -> i64
where
    K: kube::Resource<DynamicType = (), Scope = ClusterResourceScope>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug,
{
    let api = Api::<K>::all(lab.client.clone());
    let object = api
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    object.meta().generation.unwrap_or_default()
}

/// Waits until a condition has a status for a generation; returns its message.
pub async fn says(lab: &Lab, kind: &str, aspect: &str, status: &str, generation: i64) -> String {
    eventually(
        &format!("{kind} says {aspect}={status} of generation {generation}"),
        async || {
            let conditions = match kind {
                CONFIG => {
                    let config = Api::<Config>::all(lab.client.clone()).get(CONFIG).await;
                    config
                        .map_err(|error| error.to_string())?
                        .status
                        .unwrap_or_default()
                        .conditions
                }
                shard => {
                    let shard = Api::<SchedulingShard>::all(lab.client.clone()).get(shard).await;
                    shard
                        .map_err(|error| error.to_string())?
                        .status
                        .unwrap_or_default()
                        .conditions
                }
            };
            let found = conditions.iter().find(|condition| {
                condition.r#type == aspect
                    && condition.status == status
                    && condition.observed_generation == Some(generation)
            });
            found
                .map(|condition| condition.message.clone())
                .ok_or_else(|| format!("{conditions:?}"))
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn default_objects_are_created_and_conditions_show_what_is_in_force() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8), NodeSpec::gpu("gpu-2", 8)]).await;
    let operator = lab.replica("one").await;
    for kind in [CONFIG, SHARD] {
        for aspect in ["Deployed", "Available", "DependenciesFulfilled", "Ready"] {
            says(&lab, kind, aspect, "True", 1).await;
        }
    }

    // Packed at first, then spread, without a restart.
    lab.create(pod("first", 1)).await.unwrap();
    let packed = lab.runs("first").await;
    lab.create(pod("second", 1)).await.unwrap();
    assert_eq!(lab.runs("second").await, packed);
    let spread = json!({"spec": {"placementStrategy": {"gpu": "spread", "cpu": "spread"}}});
    let generation = change::<SchedulingShard>(&lab, SHARD, spread).await;
    says(&lab, SHARD, "Deployed", "True", generation).await;
    lab.create(pod("third", 1)).await.unwrap();
    assert_ne!(lab.runs("third").await, packed);

    // A bad shard leaves the last good one in force and says what is wrong.
    let bad = json!({"spec": {"placementStrategy": {"gpu": "binpack"}, "args": {"restrict-node-scheduling": "maybe"}}});
    let bad = change::<SchedulingShard>(&lab, SHARD, bad).await;
    let message = says(&lab, SHARD, "Ready", "False", bad).await;
    assert_eq!(
        message,
        "spec.args.restrict-node-scheduling: \"maybe\" is not true or false"
    );
    says(&lab, SHARD, "Deployed", "True", generation).await;
    lab.create(pod("fourth", 1)).await.unwrap();
    assert_ne!(lab.runs("fourth").await, packed);

    // Another pool's shard is followed, too, and a second one of the same pool is told that it is not.
    for name in ["blue", "second"] {
        let other = json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": name},
            "spec": {"partitionLabelValue": "blue", "goMemLimit": "1Gi"}});
        lab.create(other).await.unwrap();
        let ignored = says(&lab, name, "FieldsIgnored", "True", 1).await;
        assert!(ignored.starts_with("spec.goMemLimit: "), "{ignored}");
        // Of two that were created within one second the first by name counts.
        says(&lab, name, "Ready", if name == "blue" { "True" } else { "False" }, 1).await;
    }
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduling_is_switched_off_and_on_while_other_components_run() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    let switch = |on: bool| json!({"spec": {"scheduler": {"service": {"enabled": on}}}});
    let generation = change::<Config>(&lab, CONFIG, switch(false)).await;
    says(&lab, CONFIG, "Deployed", "True", generation).await;
    lab.create(pod("waits", 1)).await.unwrap();
    // It is grouped, and so the rest goes on; a second later it still has no node.
    eventually("the pod is grouped", async || {
        let pod = lab.pods().get("waits").await.map_err(|error| error.to_string())?;
        let annotations = pod.metadata.annotations.unwrap_or_default();
        let group = annotations.get("pod-group-name").cloned();
        group.ok_or_else(|| format!("{annotations:?}"))
    })
    .await;
    let message = lab.says("waits", "SchedulingSwitchedOff").await;
    assert_eq!(
        message,
        "Scheduling is switched off: spec.scheduler.service.enabled of Config 'kai-config' is false, or the Config or the SchedulingShard is invalid: see their conditions"
    );
    let waits = lab.pods().get("waits").await.unwrap();
    assert_eq!(waits.spec.unwrap().node_name, None);
    let generation = change::<Config>(&lab, CONFIG, switch(true)).await;
    says(&lab, CONFIG, "Deployed", "True", generation).await;
    assert_eq!(lab.runs("waits").await, "gpu-1");
    operator.assert_no_errors();
}

/// As by an API server that does not know all definitions yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_is_not_served_for_a_moment_at_the_start_holds() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let off = json!({"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": {"name": CONFIG},
        "spec": {"scheduler": {"service": {"enabled": false}}}});
    lab.create(off).await.unwrap();
    let absent = Effect::Refuse {
        code: 404,
        retry_after: None,
    };
    let lists = Match::verb_on("list", "configs");
    let absent = lab.server.faults().add(lists, absent, Times::Next(3));
    lab.create(pod("waits", 1)).await.unwrap();
    let _operator = lab.replica("one").await;
    lab.says("waits", "SchedulingSwitchedOff").await;
    assert_eq!(lab.server.faults().struck(absent), 3);
    let waits = lab.pods().get("waits").await.unwrap();
    assert_eq!(waits.spec.unwrap().node_name, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_under_load_lose_no_bind_and_make_none_twice() {
    let nodes = (0..4).map(|node| NodeSpec::gpu(format!("gpu-{node}"), 8)).collect();
    let lab = Lab::start(nodes).await;
    let operator = lab.replica("one").await;
    let mut generations = (0, 0);
    for turn in 0..8 {
        for member in 0..3 {
            lab.create(pod(&format!("pod-{turn}-{member}"), 1)).await.unwrap();
        }
        if turn % 2 == 0 {
            // The scheduler follows.
            let strategy = if turn % 4 == 0 { "spread" } else { "binpack" };
            let patch = json!({"spec": {"placementStrategy": {"gpu": strategy}}});
            generations.0 = change::<SchedulingShard>(&lab, SHARD, patch).await;
        } else {
            // Components start again.
            let patch = json!({"spec": {"binder": {"volumeBindingTimeoutSeconds": 100 + turn}}});
            generations.1 = change::<Config>(&lab, CONFIG, patch).await;
        }
    }
    lab.running(24).await;
    says(&lab, SHARD, "Available", "True", generations.0).await;
    says(&lab, CONFIG, "Available", "True", generations.1).await;
    lab.assert_safe().await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_names_are_applied_by_all_components() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    let patch = json!({"spec": {
        "global": {"schedulerName": "other"},
        "admission": {"gpuSharing": true},
        "queueController": {"metricsNamespace": "acme"},
    }});
    let generation = change::<Config>(&lab, CONFIG, patch).await;
    says(&lab, CONFIG, "Available", "True", generation).await;
    let mut renamed = pod("renamed", 1);
    renamed["spec"]["schedulerName"] = json!("other");
    lab.create(renamed).await.unwrap();
    assert_eq!(lab.runs("renamed").await, "gpu-1");
    let mut shares = pod("shares", 0);
    shares["spec"]["schedulerName"] = json!("other");
    shares["metadata"]["annotations"] = json!({"gpu-fraction": "0.5"});
    lab.create(shares).await.expect("sharing is admitted now");
    let page = operator.get("/metrics").await.unwrap();
    assert!(page.contains("acme_queue_info") && !page.contains("\nkai_queue_info"));
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_switched_off_and_on_while_the_operator_stays_ready() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    let switch = |on: bool| {
        let validation = json!({"webhooks": {"enableValidation": on}});
        json!({"spec": {"admission": {"service": {"enabled": on}}, "queueController": validation, "podGroupController": validation}})
    };
    let queue = |name: &str| json!({"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": {}});
    for on in [false, true] {
        let generation = change::<Config>(&lab, CONFIG, switch(on)).await;
        let stays_ready = async {
            loop {
                let ready = operator.get("/readyz").await.unwrap();
                assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        // The condition waits until all parts are ready.
        tokio::select! {
            _ = says(&lab, CONFIG, "Deployed", "True", generation) => {}
            () = stays_ready => {}
        }
        // A queue without resources is refused.
        let created = lab.create(queue(&format!("odd-{on}"))).await;
        assert_eq!(created.is_ok(), !on, "{created:?}");
    }
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_its_shard_is_not_scheduled_until_the_shard_exists_again() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    says(&lab, SHARD, "Ready", "True", 1).await;
    let shards: Api<SchedulingShard> = Api::all(lab.client.clone());
    shards.delete(SHARD, &DeleteParams::default()).await.unwrap();
    eventually("the scheduler ends", async || {
        let state = operator.get("/state").await.map_err(|error| error.to_string())?;
        state.contains("\"schedulers\":[]").then_some(()).ok_or(state)
    })
    .await;
    lab.create_after_handover(pod("waits", 1)).await;
    let message = lab.says("waits", "NoShardForNodePool").await;
    assert_eq!(
        message,
        "No SchedulingShard schedules the node pool 'default'; create one without partitionLabelValue or set the label kai.scheduler/node-pool"
    );
    lab.create(json!({"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "again"}}))
        .await
        .unwrap();
    lab.runs("waits").await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_format_of_log_lines_and_the_prometheus_server_follow_config() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 8)]).await;
    let operator = lab.replica("one").await;
    says(&lab, CONFIG, "Ready", "True", 1).await;
    let restarts = "components are restarted";
    let text = json!({"spec": {"global": {"jsonLog": false}}});
    let generation = change::<Config>(&lab, CONFIG, text).await;
    says(&lab, CONFIG, "Deployed", "True", generation).await;
    assert!(!operator.log().contains(restarts), "nothing is started again for that");
    eventually("lines are text", async || {
        let log = operator.log();
        let last = log.lines().last().unwrap_or_default().to_owned();
        (!last.starts_with('{')).then_some(()).ok_or(last)
    })
    .await;
    let json = json!({"spec": {"global": {"jsonLog": null}}});
    change::<Config>(&lab, CONFIG, json).await;

    let server = axum::Router::new().route("/prom/api/v1/status/config", axum::routing::get(|| async { "{}" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, server).await });
    let named = |url: String| {
        let how = json!({"interval": 1, "maxRetries": 0});
        json!({"spec": {"prometheus": {"externalPrometheusUrl": url, "externalPrometheusHealthProbe": how}}})
    };
    let generation = change::<Config>(&lab, CONFIG, named(format!("{address}/prom"))).await;
    says(&lab, CONFIG, "PrometheusConnected", "True", generation).await;
    let generation = change::<Config>(&lab, CONFIG, named(format!("{address}/nothing"))).await;
    let why = says(&lab, CONFIG, "PrometheusConnected", "False", generation).await;
    assert_eq!(why, "Failed to ping external Prometheus: the server says 404 Not Found");
    says(&lab, CONFIG, "Ready", "True", generation).await;
}
