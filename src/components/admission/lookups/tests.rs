//! What is looked up for new pods, against an API server in this process, on virtual time.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::components::tests::lab::{Lab, read, refuse, seconds};
use crate::devcluster::apiserver::{Effect, Match, Times};

/// A pod of `owner` with these labels.
fn pod(owner: &Value, labels: Value) -> Pod {
    let reference = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true,
    }]);
    read(json!({
        "metadata": {"namespace": "team", "name": "train-0", "labels": labels, "ownerReferences": reference},
        "spec": {"schedulerName": "kai-scheduler", "containers": []},
    }))
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_a_pod_is_not_guessed_while_its_owner_cannot_be_read() {
    for fault in [refuse(503), Effect::Hang] {
        let lab = Lab::start(Settings::default(), &["team"]).await;
        for queue in ["default-queue", "research", "own"] {
            lab.stores
                .queues
                .insert(read(json!({"metadata": {"name": queue}, "spec": {}})));
        }
        let containers = json!([{"name": "main", "image": "i"}]);
        let job = lab
            .create(json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"namespace": "team", "name": "train", "labels": {"project": "research"}},
                "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
            }))
            .await;
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": job["metadata"]});
        let lookups = Lookups::new(&lab.context, Arc::clone(&lab.stores));
        let queue_of = async |labels: Value| {
            let found = lookups.workload(&pod(&job, labels)).await;
            found.map(|found| found.queue)
        };
        lab.fault(Match::verb_on("get", "jobs"), fault, Times::Always);
        assert_eq!(queue_of(json!({})).await, None);
        assert_eq!(queue_of(json!({"kai.scheduler/queue": ""})).await, None);
        assert_eq!(
            queue_of(json!({"kai.scheduler/queue": "own"})).await.as_deref(),
            Some("own")
        );
        let mut bare = pod(&job, json!({}));
        bare.metadata.owner_references = None;
        let found = lookups.workload(&bare).await;
        assert_eq!(found.map(|found| found.queue).as_deref(), Some("default-queue"));

        lab.server.faults().clear();
        // A failed read counts for a second.
        sleep(seconds(2)).await;
        assert_eq!(queue_of(json!({})).await.as_deref(), Some("research"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_the_watch_does_not_show_is_read() {
    let lab = Lab::start(Settings::default(), &["plain"]).await;
    let namespace = |queue: &str| {
        let metadata = json!({"name": "team", "labels": {"kai.scheduler/queue": queue}});
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    };
    lab.create(namespace("research")).await;
    let lookups = Lookups::new(&lab.context, Arc::clone(&lab.stores));
    let queue_in = async |namespace: &str| {
        let pod: Pod = read(json!({
            "metadata": {"namespace": namespace, "name": "p"}, "spec": {"schedulerName": "kai-scheduler", "containers": []},
        }));
        lookups.queue(&pod).await
    };
    let found = |queue: &str, source: Source| Some((queue.to_owned(), source));
    assert_eq!(queue_in("team").await, found("research", Source::PodContext));
    assert_eq!(queue_in("plain").await, found("default-queue", Source::Default));
    assert_eq!(queue_in("missing").await, None);
    for fault in [refuse(503), Effect::Hang] {
        lab.fault(Match::verb_on("list", "namespaces"), fault, Times::Always);
        assert_eq!(
            queue_in("team").await,
            None,
            "a guess would outrank the namespace's queue"
        );
        lab.server.faults().clear();
    }
    lab.fault(Match::verb_on("list", "namespaces"), refuse(503), Times::Always);
    lab.stores.namespaces.insert(read(namespace("shown")));
    assert_eq!(queue_in("team").await, found("shown", Source::PodContext));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_read_matters_only_where_nothing_else_names_a_queue() {
    for exactly_as_kai in [false, true] {
        let settings = Settings {
            exactly_as_kai,
            ..Settings::default()
        };
        let lab = Lab::start(settings, &["team"]).await;
        lab.fault(Match::verb_on("list", "namespaces"), Effect::Hang, Times::Always);
        let lookups = Lookups::new(&lab.context, Arc::clone(&lab.stores));
        let queue_of = async |labels: Value| {
            let pod: Pod = read(json!({
                "metadata": {"namespace": "team", "name": "p", "labels": labels},
                "spec": {"schedulerName": "kai-scheduler", "containers": []},
            }));
            lookups.queue(&pod).await
        };
        let found = |queue: &str, source: Source| Some((queue.to_owned(), source));
        let of_label = |queue: &str| json!({"kai.scheduler/queue": queue});
        assert_eq!(queue_of(of_label("own")).await, found("own", Source::Pod));
        assert_eq!(
            queue_of(of_label("default-queue")).await,
            found("default-queue", Source::Default)
        );
        let project = json!({"project": "research"});
        assert_eq!(queue_of(project).await, found("research", Source::PodContext));
        let unnamed = exactly_as_kai.then(|| ("default-queue".to_owned(), Source::Default));
        assert_eq!(queue_of(json!({})).await, unnamed);
    }
}

#[tokio::test(start_paused = true)]
async fn the_queues_are_those_that_the_watch_has_shown_last() {
    let lab = Lab::start(Settings::default(), &["team"]).await;
    let lookups = Lookups::new(&lab.context, Arc::clone(&lab.stores));
    let pod: Pod = read(json!({
        "metadata": {"namespace": "team", "name": "p"}, "spec": {"schedulerName": "kai-scheduler", "containers": []},
    }));
    let queues_after = async |name: &str, parent: Option<&str>| {
        let queue = json!({"metadata": {"name": name}, "spec": {"parentQueue": parent}});
        lab.stores.queues.insert(read(queue));
        let tree = lookups.workload(&pod).await.expect("a queue").tree;
        tree.leaves(None).join(" ")
    };
    assert_eq!(queues_after("default-queue", None).await, "default-queue");
    assert_eq!(queues_after("child", Some("default-queue")).await, "child");
    assert_eq!(queues_after("child", None).await, "child default-queue");
}
