//! The simulated world, held to the behaviour of real kubelets and controllers, on devcluster and on a real API server.

mod budgets;
mod demo;
mod dev;
mod jobs;
mod newcomer;
mod registration;
mod stage;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, PostParams, PropagationPolicy};
use kube::config::Kubeconfig;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use unikai::devcluster::apiserver::{ApiServer, Identity, Options, RunningServer};
use unikai::devcluster::world::NodeSpec;

use crate::apiserver::harness::own_real_server;
use budgets::{an_eviction_that_does_not_take_place_is_forgotten, budgets_follow_their_pods};
use jobs::{
    a_job_completes, a_job_fails, a_job_ignores_disruptions_if_it_says_so, a_job_is_suspended_resumed_and_expires,
    a_job_of_another_controller_is_left_alone, an_indexed_job_completes, job,
};
use stage::{Stage, client_of, condition, connect, eventually, is_ready, node_of, phase};

/// Each scenario is a test on devcluster; all of them, one after another, are one test on a real API server.
macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        mod on_devcluster {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let (_server, stage) = super::devcluster(stringify!($name)).await;
                super::$name(&stage).await;
                stage.strike().await;
            })+
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn on_a_real_api_server() {
            let Some(kubeconfig) = own_real_server("").await else { return };
            let client = connect(&kubeconfig).await;
            $(
                eprintln!("on a real API server: {}", stringify!($name));
                let stage = Stage::set(client.clone(), stringify!($name)).await;
                $name(&stage).await;
                stage.strike().await;
            )+
        }
    };
}

scenarios! {
    nodes_show_what_they_have,
    a_pod_runs_and_completes,
    a_pod_is_given_its_grace_period,
    over_commitment_is_refused,
    a_pod_waits_for_its_config_map,
    a_pod_that_fits_nowhere_says_why,
    the_pods_of_a_vanished_node_are_replaced,
    a_silenced_kubelet_leaves_its_pods,
    a_deployment_scales_and_rolls,
    a_deployment_recreates,
    a_stateful_set_is_ordered,
    a_stateful_set_is_parallel,
    a_stateful_set_has_volumes,
    a_job_completes,
    an_indexed_job_completes,
    a_job_fails,
    a_job_is_suspended_resumed_and_expires,
    a_job_ignores_disruptions_if_it_says_so,
    a_job_of_another_controller_is_left_alone,
    budgets_follow_their_pods,
    an_eviction_that_does_not_take_place_is_forgotten,
    dependents_follow_their_owner,
    a_foreground_deletion_waits,
    orphans_stay,
    custom_resources_are_collected,
    a_namespace_goes_with_all_in_it,
    a_refused_pod_is_told_of,
}

async fn devcluster(name: &str) -> (RunningServer, Stage) {
    let server = ApiServer::start(Options::default())
        .await
        .expect("the API server starts");
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(&Identity::admin())).expect("a kubeconfig");
    let client = client_of(kubeconfig).await;
    let stage = Stage::set(client, name).await;
    (server, stage)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_world_writes_nothing() {
    let (server, stage) = devcluster("an_idle_world_writes_nothing").await;
    stage.create::<Deployment>(deployment("web", 3)).await;
    start(&stage, 3).await;
    stage
        .until("web", "all replicas", |web: &Deployment| available(web) == 3)
        .await;
    // What is under way ends before what comes after it.
    stage.create::<Pod>(pod("last", json!({}))).await;
    start(&stage, 4).await;
    server.audit().clear();
    stage.pass(24 * 3600);
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let writes: Vec<_> = server.audit().writes();
    assert!(writes.is_empty(), "{writes:?}");
    stage.strike().await;
}

fn pod(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        let command = spec.get("command").cloned().unwrap_or(Value::Null);
        let gpus = spec.get("gpus").cloned().unwrap_or(json!("0"));
        let resources = json!({"limits": {"nvidia.com/gpu": gpus}});
        spec["containers"] = json!([{"name": "main", "image": "work", "command": command, "resources": resources}]);
        for key in ["command", "gpus"] {
            spec.as_object_mut().expect("a spec").remove(key);
        }
    }
    json!({"metadata": {"name": name}, "spec": spec})
}

fn deployment(name: &str, replicas: u32) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template(name, json!({}))},
    })
}

fn template(app: &str, spec: Value) -> Value {
    let mut spec = spec;
    if spec.get("containers").is_none() {
        spec["containers"] = json!([{"name": "main", "image": "work:1"}]);
    }
    json!({"metadata": {"labels": {"app": app}}, "spec": spec})
}

fn available(deployment: &Deployment) -> i32 {
    deployment
        .status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

/// Lets pods that have been bound start, until so many are ready.
/// Time passes at its own pace meanwhile: what must still run afterwards needs a long time to run.
async fn start(stage: &Stage, ready: usize) {
    let started = async || {
        stage.pass(1);
        let pods = stage.list::<Pod>().await;
        (pods.iter().filter(|pod| is_ready(pod)).count() == ready).then_some(())
    };
    eventually(&format!("{ready} ready pods"), started).await;
}

async fn nodes_show_what_they_have(stage: &Stage) {
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let gpu = nodes.get(&stage.node("gpu-1")).await.expect("the node");
    let status = gpu.status.clone().expect("a status");
    let allocatable = status.allocatable.expect("allocatable");
    assert_eq!(allocatable["nvidia.com/gpu"].0, "8");
    assert_eq!(
        (allocatable["cpu"].0.as_str(), allocatable["memory"].0.as_str()),
        ("64", "512Gi")
    );
    let labels = gpu.labels();
    for (key, value) in [
        ("kubernetes.io/hostname", stage.node("gpu-1").as_str()),
        ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
        ("nvidia.com/gpu.memory", "81559"),
        ("nvidia.com/gpu.count", "8"),
        ("nvidia.com/gpu.family", "hopper"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    let cpu = nodes.get(&stage.node("cpu-1")).await.expect("the node");
    assert!(!cpu.labels().keys().any(|key| key.starts_with("nvidia.com/")));
    assert!(
        gpu.spec.and_then(|spec| spec.taints).is_none(),
        "a ready node has no taints"
    );
}

async fn a_pod_runs_and_completes(stage: &Stage) {
    stage
        .create::<Pod>(pod(
            "a",
            json!({"restartPolicy": "Never", "command": ["sleep", "1000"]}),
        ))
        .await;
    stage
        .create::<Pod>(pod(
            "b",
            json!({"restartPolicy": "Never", "command": ["sh", "-c", "exit 3"]}),
        ))
        .await;
    stage.until("a", "binding", |pod: &Pod| !node_of(pod).is_empty()).await;
    stage.until("b", "binding", |pod: &Pod| !node_of(pod).is_empty()).await;
    start(stage, 1).await;
    let running: Pod = stage.get("a").await;
    assert_eq!(node_of(&running), stage.node("cpu-1"));
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready"] {
        assert_eq!(condition(&running, kind), Some("True"), "{kind}");
    }
    let status = running.status.expect("a status");
    assert!(status.pod_ip.is_some() && status.start_time.is_some());
    assert!(status.container_statuses.expect("containers")[0].ready);
    stage.pass(1000);
    let done: Pod = stage.until("a", "its end", |pod: &Pod| phase(pod) == "Succeeded").await;
    assert_eq!(condition(&done, "Ready"), Some("False"));
    let failed: Pod = stage.until("b", "its end", |pod: &Pod| phase(pod) == "Failed").await;
    let containers = failed
        .status
        .and_then(|status| status.container_statuses)
        .expect("containers");
    let ended = containers[0]
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref())
        .expect("it has ended");
    assert_eq!(ended.exit_code, 3);
}

async fn a_pod_is_given_its_grace_period(stage: &Stage) {
    stage.create::<Pod>(pod("a", json!({}))).await;
    let mut stubborn = pod("b", json!({"terminationGracePeriodSeconds": 1000}));
    stubborn["metadata"]["annotations"] = json!({"unikai.dev/ignore-sigterm": "true"});
    stage.create::<Pod>(stubborn).await;
    start(stage, 2).await;
    for name in ["a", "b"] {
        stage.delete::<Pod>(name, PropagationPolicy::Background).await;
    }
    stage.until_pods(&["a Running deleting", "b Running deleting"]).await;
    // The kubelet's time runs from when it sees the deletion, so time passes in steps.
    let gone = async |name: &str| stage.find::<Pod>(name).await.is_none().then_some(());
    let first = async || {
        stage.pass(1);
        gone("a").await
    };
    eventually("the pod that heeds SIGTERM to be gone", first).await;
    assert!(stage.find::<Pod>("b").await.is_some(), "it has seconds left");
    stage.pass(1000);
    stage.until_gone::<Pod>("b").await;
}

async fn over_commitment_is_refused(stage: &Stage) {
    let node = stage.node("gpu-1");
    stage
        .create::<Pod>(pod("a", json!({"nodeName": node, "gpus": "8"})))
        .await;
    start(stage, 1).await;
    stage
        .create::<Pod>(pod("b", json!({"nodeName": node, "gpus": "1"})))
        .await;
    let refused: Pod = stage
        .until("b", "its refusal", |pod: &Pod| phase(pod) == "Failed")
        .await;
    let status = refused.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!((stage.world.refused_pods(), stage.world.refused_gpu_pods()), (1, 1));
    stage.delete::<Pod>("a", PropagationPolicy::Background).await;
    stage
        .until("a", "its deletion", |pod: &Pod| {
            pod.metadata.deletion_timestamp.is_some()
        })
        .await;
    let gone = async || {
        stage.pass(1);
        stage.find::<Pod>("a").await.is_none().then_some(())
    };
    eventually("the pod to be gone", gone).await;
    stage
        .create::<Pod>(pod("c", json!({"nodeName": node, "gpus": "8"})))
        .await;
    start(stage, 1).await;
}

async fn a_pod_waits_for_its_config_map(stage: &Stage) {
    let volumes = json!([{"name": "settings", "configMap": {"name": "settings"}}]);
    stage.create::<Pod>(pod("a", json!({"volumes": volumes}))).await;
    let reason = |pod: &Pod| {
        let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
        containers[0].state.as_ref()?.waiting.as_ref()?.reason.clone()
    };
    stage
        .until("a", "it to wait", |pod: &Pod| {
            reason(pod).as_deref() == Some("ContainerCreating")
        })
        .await;
    stage
        .create::<ConfigMap>(json!({"metadata": {"name": "settings"}}))
        .await;
    start(stage, 1).await;
}

async fn a_pod_that_fits_nowhere_says_why(stage: &Stage) {
    stage.create::<Pod>(pod("a", json!({"gpus": "9"}))).await;
    let message = |pod: &Pod| {
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
        scheduled.message.clone().filter(|message| !message.is_empty())
    };
    let told: Pod = stage
        .until("a", "its condition", |pod: &Pod| message(pod).is_some())
        .await;
    assert_eq!(
        message(&told).as_deref(),
        Some("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")
    );
    stage
        .world
        .add_node(NodeSpec::gpu(stage.node("gpu-3"), 16))
        .await
        .expect("the node is added");
    start(stage, 1).await;
    assert_eq!(node_of(&stage.get::<Pod>("a").await), stage.node("gpu-3"));
}

async fn the_pods_of_a_vanished_node_are_replaced(stage: &Stage) {
    stage.create::<Deployment>(deployment("web", 3)).await;
    start(stage, 3).await;
    let before: Vec<Pod> = stage.list().await;
    assert!(before.iter().all(|pod| node_of(pod) == stage.node("cpu-1")));
    stage
        .world
        .remove_node(&stage.node("cpu-1"))
        .await
        .expect("the node is removed");
    let moved = async || {
        stage.pass(1);
        let pods: Vec<Pod> = stage.list().await;
        (pods.len() == 3
            && pods
                .iter()
                .all(|pod| is_ready(pod) && node_of(pod) != stage.node("cpu-1")))
        .then_some(())
    };
    eventually("three pods elsewhere", moved).await;
    let nodes: Api<Node> = Api::all(stage.client.clone());
    assert!(nodes.get_opt(&stage.node("cpu-1")).await.expect("an answer").is_none());
}

async fn a_silenced_kubelet_leaves_its_pods(stage: &Stage) {
    let node = stage.node("cpu-1");
    stage
        .create::<Pod>(pod(
            "a",
            json!({"nodeName": node, "restartPolicy": "Never", "command": ["sleep", "1000"]}),
        ))
        .await;
    start(stage, 1).await;
    stage.world.stop_kubelet(&node).await.expect("the node is silenced");
    let nodes: Api<Node> = Api::all(stage.client.clone());
    let silent = nodes.get(&node).await.expect("the node");
    let taints = silent.spec.and_then(|spec| spec.taints).expect("taints");
    assert!(taints.iter().all(|taint| taint.key == "node.kubernetes.io/unreachable"));
    stage.pass(1000);
    stage.create::<Pod>(pod("b", json!({}))).await;
    start(stage, 2).await;
    assert_ne!(node_of(&stage.get::<Pod>("b").await), node);
    stage
        .world
        .add_node(NodeSpec::cpu(node.clone()))
        .await
        .expect("the node comes back");
    stage.until("a", "its end", |pod: &Pod| phase(pod) == "Succeeded").await;
    let back = nodes.get(&node).await.expect("the node");
    assert!(back.spec.and_then(|spec| spec.taints).unwrap_or_default().is_empty());
}

async fn a_deployment_scales_and_rolls(stage: &Stage) {
    stage.create::<Deployment>(deployment("web", 3)).await;
    start(stage, 3).await;
    stage
        .until("web", "three replicas", |web: &Deployment| available(web) == 3)
        .await;
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 5}})).await;
    start(stage, 5).await;
    stage.patch::<Deployment>("web", json!({"spec": {"replicas": 2}})).await;
    settle(stage, 2).await;

    let image = json!([{"name": "main", "image": "work:2"}]);
    stage
        .patch::<Deployment>("web", json!({"spec": {"template": {"spec": {"containers": image}}}}))
        .await;
    let rolled = async || {
        stage.pass(1);
        let ready = stage.list::<Pod>().await.iter().filter(|pod| is_ready(pod)).count();
        assert!(
            ready >= 2,
            "a quarter of 2, rounded down, may be missing: {ready} are ready"
        );
        let web: Deployment = stage.get("web").await;
        let status = web.status.as_ref()?;
        let seen = status.observed_generation == web.metadata.generation;
        let done = seen && status.updated_replicas == Some(2) && status.replicas == Some(2) && available(&web) == 2;
        done.then_some(web)
    };
    let web = eventually("the rollout", rolled).await;
    assert_eq!(
        web.annotations()
            .get("deployment.kubernetes.io/revision")
            .map(String::as_str),
        Some("2")
    );
    let sets: Vec<ReplicaSet> = stage.list().await;
    let mut replicas: Vec<_> = sets
        .iter()
        .map(|set| set.spec.as_ref().and_then(|spec| spec.replicas))
        .collect();
    replicas.sort_unstable();
    assert_eq!(replicas, [Some(0), Some(2)]);
    let reasons = web.status.and_then(|status| status.conditions).unwrap_or_default();
    let reasons: Vec<_> = reasons
        .iter()
        .filter_map(|condition| condition.reason.as_deref())
        .collect();
    assert_eq!(reasons, ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);

    stage.delete::<Deployment>("web", PropagationPolicy::Background).await;
    settle(stage, 0).await;
    eventually("the replica sets to be gone", async || {
        stage.list::<ReplicaSet>().await.is_empty().then_some(())
    })
    .await;
}

/// Lets time pass until exactly so many pods are left, all ready.
async fn settle(stage: &Stage, count: usize) {
    let settled = async || {
        stage.pass(1);
        let pods = stage.list::<Pod>().await;
        (pods.len() == count && pods.iter().all(is_ready)).then_some(())
    };
    eventually(&format!("{count} pods and no more"), settled).await;
}

async fn a_deployment_recreates(stage: &Stage) {
    let mut web = deployment("web", 2);
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    stage.create::<Deployment>(web).await;
    start(stage, 2).await;
    let image = json!([{"name": "main", "image": "work:2"}]);
    stage
        .patch::<Deployment>("web", json!({"spec": {"template": {"spec": {"containers": image}}}}))
        .await;
    let recreated = async || {
        stage.pass(1);
        let pods: Vec<Pod> = stage.list().await;
        let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        let images: std::collections::BTreeSet<_> = pods.iter().filter_map(image).collect();
        assert!(images.len() <= 1, "old and new pods never meet: {images:?}");
        (pods.iter().filter(|pod| is_ready(pod)).count() == 2 && images.contains("work:2")).then_some(())
    };
    eventually("two new pods", recreated).await;
}

fn stateful_set(name: &str, replicas: u32, policy: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": name}}, "template": template(name, json!({})),
        },
    })
}

async fn a_stateful_set_is_ordered(stage: &Stage) {
    stage.create::<StatefulSet>(stateful_set("db", 2, "OrderedReady")).await;
    stage
        .until("db-0", "binding", |pod: &Pod| !node_of(pod).is_empty())
        .await;
    stage.until_pods(&["db-0 Pending"]).await;
    start(stage, 2).await;
    stage.until_pods(&["db-0 Running", "db-1 Running"]).await;
    let first: Pod = stage.get("db-0").await;
    assert_eq!(
        first
            .labels()
            .get("statefulset.kubernetes.io/pod-name")
            .map(String::as_str),
        Some("db-0")
    );

    let image = json!([{"name": "main", "image": "work:2"}]);
    stage
        .patch::<StatefulSet>("db", json!({"spec": {"template": {"spec": {"containers": image}}}}))
        .await;
    let updated = async || {
        stage.pass(1);
        let db: StatefulSet = stage.get("db").await;
        let status = db.status.clone()?;
        let seen = status.observed_generation == db.metadata.generation;
        let done = seen && status.updated_replicas == Some(2) && status.ready_replicas == Some(2);
        (done && status.current_revision == status.update_revision).then_some(())
    };
    eventually("the update", updated).await;

    stage.patch::<StatefulSet>("db", json!({"spec": {"replicas": 1}})).await;
    settle(stage, 1).await;
    stage.until_pods(&["db-0 Running"]).await;
}

async fn a_stateful_set_is_parallel(stage: &Stage) {
    stage.create::<StatefulSet>(stateful_set("db", 3, "Parallel")).await;
    stage
        .until_pods(&["db-0 Pending", "db-1 Pending", "db-2 Pending"])
        .await;
    start(stage, 3).await;
    stage
        .until("db", "its status", |db: &StatefulSet| {
            db.status.as_ref().and_then(|s| s.ready_replicas) == Some(3)
        })
        .await;
}

async fn a_stateful_set_has_volumes(stage: &Stage) {
    let classes: Api<StorageClass> = Api::all(stage.client.clone());
    let class = json!({"metadata": {"name": stage.ns}, "provisioner": "example.com/disks"});
    let class: StorageClass = serde_json::from_value(class).expect("a class");
    classes
        .create(&PostParams::default(), &class)
        .await
        .expect("the class is created");
    let mut db = stateful_set("db", 2, "Parallel");
    db["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": stage.ns, "resources": {"requests": {"storage": "1Gi"}},
    }}]);
    stage.create::<StatefulSet>(db).await;
    start(stage, 2).await;
    let is_bound = |claim: &PersistentVolumeClaim| {
        let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Bound")
    };
    let first = stage.until("data-db-0", "its volume", is_bound).await;
    stage.until("data-db-1", "its volume", is_bound).await;
    assert_eq!(first.labels().get("app").map(String::as_str), Some("db"));

    stage.delete::<Pod>("db-0", PropagationPolicy::Background).await;
    start(stage, 2).await;
    let pod: Pod = stage.get("db-0").await;
    let volumes = pod.spec.and_then(|spec| spec.volumes).unwrap_or_default();
    let of_claim = |volume: &Volume| Some((volume.name.clone(), volume.persistent_volume_claim.clone()?.claim_name));
    let named: Vec<_> = volumes.iter().filter_map(of_claim).collect();
    assert_eq!(named, [("data".to_owned(), "data-db-0".to_owned())]);
    let same: PersistentVolumeClaim = stage.get("data-db-0").await;
    assert_eq!(same.uid(), first.uid(), "the next pod has the volume of the one before");
    classes
        .delete(&stage.ns, &DeleteParams::default())
        .await
        .expect("the class is deleted");
}

fn owned(name: &str, owner: &ConfigMap) -> Value {
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "blockOwnerDeletion": true,
    });
    json!({"metadata": {"name": name, "ownerReferences": [reference]}})
}

async fn dependents_follow_their_owner(stage: &Stage) {
    let a: ConfigMap = stage.create(json!({"metadata": {"name": "a"}})).await;
    let other: ConfigMap = stage.create(json!({"metadata": {"name": "other"}})).await;
    let b: ConfigMap = stage.create(owned("b", &a)).await;
    stage.create::<ConfigMap>(owned("c", &b)).await;
    let mut shared = owned("shared", &a);
    let second = owned("x", &other)["metadata"]["ownerReferences"][0].clone();
    shared["metadata"]["ownerReferences"]
        .as_array_mut()
        .expect("references")
        .push(second);
    stage.create::<ConfigMap>(shared).await;
    stage.delete::<ConfigMap>("a", PropagationPolicy::Background).await;
    stage.until_gone::<ConfigMap>("b").await;
    stage.until_gone::<ConfigMap>("c").await;
    let kept = |map: &ConfigMap| map.owner_references().len() == 1;
    stage.until("shared", "its lost owner to be forgotten", kept).await;
    let mut stray = owned("stray", &a);
    stray["metadata"]["ownerReferences"][0]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    stage.create::<ConfigMap>(stray).await;
    stage.until_gone::<ConfigMap>("stray").await;
}

async fn a_foreground_deletion_waits(stage: &Stage) {
    let a: ConfigMap = stage.create(json!({"metadata": {"name": "a"}})).await;
    let mut held = owned("b", &a);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    stage.create::<ConfigMap>(held).await;
    stage.delete::<ConfigMap>("a", PropagationPolicy::Foreground).await;
    let deleting = |map: &ConfigMap| map.metadata.deletion_timestamp.is_some();
    stage.until("b", "the deletion of its dependent", deleting).await;
    assert!(
        stage.find::<ConfigMap>("a").await.is_some_and(|a| deleting(&a)),
        "the owner waits"
    );
    stage
        .patch::<ConfigMap>("b", json!({"metadata": {"finalizers": null}}))
        .await;
    stage.until_gone::<ConfigMap>("a").await;
    assert!(stage.find::<ConfigMap>("b").await.is_none());
}

async fn orphans_stay(stage: &Stage) {
    let a: ConfigMap = stage.create(json!({"metadata": {"name": "a"}})).await;
    stage.create::<ConfigMap>(owned("b", &a)).await;
    // The collector must have seen what it is to free.
    let probe: ConfigMap = stage.create(json!({"metadata": {"name": "probe"}})).await;
    stage.create::<ConfigMap>(owned("probed", &probe)).await;
    stage.delete::<ConfigMap>("probe", PropagationPolicy::Background).await;
    stage.until_gone::<ConfigMap>("probed").await;
    stage.delete::<ConfigMap>("a", PropagationPolicy::Orphan).await;
    stage.until_gone::<ConfigMap>("a").await;
    assert!(stage.get::<ConfigMap>("b").await.owner_references().is_empty());
}

async fn custom_resources_are_collected(stage: &Stage) {
    let group = format!("{}.example.com", stage.ns);
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }))
    .expect("a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .expect("the definition is created");
    let gvk = kube::core::GroupVersionKind::gvk(&group, "v1", "Widget");
    let widgets: Api<DynamicObject> = Api::namespaced_with(
        stage.client.clone(),
        &stage.ns,
        &kube::core::ApiResource::from_gvk(&gvk),
    );
    let owner: ConfigMap = stage.create(json!({"metadata": {"name": "owner"}})).await;
    let mut widget = owned("widget", &owner);
    widget["apiVersion"] = json!(format!("{group}/v1"));
    widget["kind"] = json!("Widget");
    let widget: DynamicObject = serde_json::from_value(widget).expect("a widget");
    eventually("the kind to be served", async || {
        widgets.create(&PostParams::default(), &widget).await.ok()
    })
    .await;
    stage.delete::<ConfigMap>("owner", PropagationPolicy::Background).await;
    eventually("the widget to be gone", async || {
        widgets
            .get_opt("widget")
            .await
            .expect("an answer")
            .is_none()
            .then_some(())
    })
    .await;
    definitions
        .delete(&definition.name_any(), &DeleteParams::default())
        .await
        .expect("the definition is deleted");
}

async fn a_namespace_goes_with_all_in_it(stage: &Stage) {
    stage.create::<Deployment>(deployment("web", 2)).await;
    stage.create::<Job>(job("work", "sleep 1000", json!({}))).await;
    stage
        .create::<ConfigMap>(json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}))
        .await;
    start(stage, 3).await;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces
        .delete(&stage.ns, &DeleteParams::default())
        .await
        .expect("the namespace is deleted");
    let emptied = async || {
        stage.pass(1);
        stage.list::<Pod>().await.is_empty().then_some(())
    };
    eventually("the pods to be gone", emptied).await;
    eventually("the job to be gone", async || {
        stage.list::<Job>().await.is_empty().then_some(())
    })
    .await;
    assert!(
        namespaces.get_opt(&stage.ns).await.expect("an answer").is_some(),
        "something is left in it"
    );
    stage
        .patch::<ConfigMap>("held", json!({"metadata": {"finalizers": null}}))
        .await;
    eventually("the namespace to be gone", async || {
        namespaces
            .get_opt(&stage.ns)
            .await
            .expect("an answer")
            .is_none()
            .then_some(())
    })
    .await;
}

async fn a_refused_pod_is_told_of(stage: &Stage) {
    // A pod that names a priority class which does not exist is refused at admission.
    let mut web = deployment("web", 2);
    web["spec"]["template"] = template("web", json!({"priorityClassName": "no-such-class"}));
    stage.create::<Deployment>(web).await;
    let told = async || {
        let events: Vec<Event> = stage.list().await;
        events
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("FailedCreate"))
    };
    let event = eventually("an event", told).await;
    assert_eq!(event.involved_object.kind.as_deref(), Some("ReplicaSet"));
    assert!(event.message.unwrap_or_default().contains("no-such-class"));
    let failing = |set: &ReplicaSet| {
        let conditions = set.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .any(|condition| condition.type_ == "ReplicaFailure")
    };
    eventually("its condition", async || {
        stage.list::<ReplicaSet>().await.iter().any(failing).then_some(())
    })
    .await;
}
