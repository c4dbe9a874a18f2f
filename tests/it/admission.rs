//! The webhooks over HTTPS, called by an API server, with the operator's own certificates.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use unikai::api::{PodGroup, Queue};
use unikai::components::admission::QueueLabels;
use unikai::operator::settings::Settings;

mod questions;

use crate::support::{Cluster, eventually, refusal};

const QUEUE: &str = "kai.scheduler/queue";
const SECRET: &str = "unikai-webhook-tls";

fn with(queue_labels: QueueLabels) -> Settings {
    let mut settings = Settings::embedded();
    settings.common.admission.queue_labels = queue_labels;
    settings
}

/// A cluster with an operator and the queues of the quick start.
async fn quick_start(settings: Settings) -> (Cluster, unikai::operator::Running) {
    let cluster = Cluster::start().await;
    let operator = cluster.ready_operator(settings).await;
    let queues: Api<Queue> = Api::all(cluster.admin.clone());
    cluster.queue("default", None).await;
    eventually("the default queue is there", async || {
        queues.get_opt("default-queue").await.unwrap()
    })
    .await;
    cluster.queue("test", Some("default")).await;
    // The webhooks answer by what their watch has shown, and the last queue comes last.
    eventually("the webhooks know the queues", async || {
        let dry_run = PatchParams {
            dry_run: true,
            ..PatchParams::default()
        };
        let below_itself = Patch::Merge(json!({"spec": {"parentQueue": "test"}}));
        match queues.patch("default", &dry_run, &below_itself).await {
            Err(kube::Error::Api(status)) if status.message.contains("cannot be below itself") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    (cluster, operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_shows_the_queue_that_it_runs_in() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    cluster.namespace("labelled", json!({QUEUE: "test"})).await;
    let label = async |namespace: &str, name: &str, metadata| {
        let pod = cluster.pod(namespace, name, metadata).await.unwrap();
        pod.labels().get(QUEUE).cloned()
    };

    assert_eq!(label("team", "bare", json!({})).await.as_deref(), Some("default-queue"));
    assert_eq!(
        label("team", "own", json!({"labels": {QUEUE: "test"}}))
            .await
            .as_deref(),
        Some("test")
    );
    assert_eq!(
        label("team", "project", json!({"labels": {"project": "test"}}))
            .await
            .as_deref(),
        Some("test")
    );
    assert_eq!(
        label("labelled", "by-namespace", json!({})).await.as_deref(),
        Some("test")
    );

    let owner: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "web", "labels": {QUEUE: "test"}},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    }))
    .unwrap();
    let owner = Api::<ReplicaSet>::namespaced(cluster.admin.clone(), "team")
        .create(&PostParams::default(), &owner)
        .await
        .unwrap();
    let reference =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": owner.uid(), "controller": true}]);
    assert_eq!(
        label("team", "owned", json!({"ownerReferences": reference}))
            .await
            .as_deref(),
        Some("test")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_cannot_run_a_pod_is_refused_with_advice() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let named = |queue: &str| json!({"labels": {QUEUE: queue}});
    assert_eq!(
        refusal(cluster.pod("team", "a", named("tset")).await),
        "admission webhook \"admission.kai-scheduler.svc\" denied the request: queue \"tset\" does not exist. Set the label kai.scheduler/queue to one of: default-queue, test; or create the queue"
    );
    assert_eq!(
        refusal(cluster.pod("team", "b", named("default")).await),
        "admission webhook \"admission.kai-scheduler.svc\" denied the request: queue \"default\" is the parent of other queues; workloads run in queues without children. Set the label kai.scheduler/queue to test, or create the queue"
    );

    cluster.queue("tset", Some("default")).await;
    cluster
        .pod("team", "a", named("tset"))
        .await
        .expect("a queue counts from the moment it exists");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_a_known_leaf_queue_causes_no_webhook_call() {
    let (cluster, operator) = quick_start(Settings::embedded()).await;
    let named = |queue: &str| json!({"labels": {QUEUE: queue}});
    cluster.queue("brief", Some("default")).await;
    let told = async |expected: &str| {
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin.clone());
        eventually("the API server is told of the queues", async || {
            let conditions = configurations
                .get("validating-kai-admission")
                .await
                .unwrap()
                .webhooks
                .unwrap()[0]
                .match_conditions
                .clone()
                .unwrap();
            conditions
                .iter()
                .any(|condition| condition.expression.contains(expected))
                .then_some(())
        })
        .await;
    };
    told("in ['brief','default-queue','test']").await;
    Api::<Queue>::all(cluster.admin.clone())
        .delete("brief", &DeleteParams::default())
        .await
        .unwrap();
    told("in ['default-queue','test']").await;
    // An API server applies a new configuration a little after it has stored it.
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let refused = eventually("its pods are asked about again", async || {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        cluster
            .pod("team", &format!("late-{attempt}"), named("brief"))
            .await
            .err()
    })
    .await;
    assert!(
        refused.to_string().contains("queue \"brief\" does not exist"),
        "{refused}"
    );

    operator.shut_down().await.unwrap();
    cluster
        .pod("team", "known", named("test"))
        .await
        .expect("no webhook is needed");
    let refused = refusal(cluster.pod("team", "unknown", named("new")).await);
    assert!(refused.contains("failed calling webhook"), "{refused}");
}

/// Allows these namespaces only; `null`: all.
async fn open_to(cluster: &Cluster, queue: &str, namespaces: serde_json::Value) {
    let patch = json!({"metadata": {"annotations": {"unikai.dev/allowed-namespaces": namespaces}}});
    Api::<Queue>::all(cluster.admin.clone())
        .patch(queue, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_takes_pods_of_the_namespaces_that_it_names() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    cluster.queue("gold", Some("default")).await;
    open_to(&cluster, "gold", json!("research-*, lab")).await;
    for namespace in ["lab", "research-1"] {
        cluster.namespace(namespace, json!({})).await;
    }
    let gold = json!({"labels": {QUEUE: "gold"}});
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let refused = eventually("who is not named is refused", async || {
        let attempt = attempts.fetch_add(1, Ordering::Relaxed);
        cluster
            .pod("team", &format!("closed-{attempt}"), gold.clone())
            .await
            .err()
    })
    .await;
    let words = "Queue gold is not open to namespace team: the annotation unikai.dev/allowed-namespaces does not name it. \
        Ask the queue's administrator, or set the label kai.scheduler/queue to one of: default-queue, test";
    assert!(refused.to_string().contains(words), "{refused}");
    cluster.pod("lab", "a", gold.clone()).await.expect("named");
    cluster
        .pod("research-1", "a", gold.clone())
        .await
        .expect("named by a pattern");
    cluster
        .pod("team", "a", json!({"labels": {QUEUE: "test"}}))
        .await
        .expect("a queue without the annotation is open");

    eventually(
        "the webhook is asked about its pods, and not about those of open queues",
        async || {
            let configurations = Api::<ValidatingWebhookConfiguration>::all(cluster.admin.clone());
            let told = configurations.get("validating-kai-admission").await.unwrap();
            let told = serde_json::to_string(&told.webhooks).unwrap();
            (told.contains("'default-queue'") && !told.contains("'gold'")).then_some(())
        },
    )
    .await;
    let odd = Patch::Merge(json!({"metadata": {"annotations": {"unikai.dev/allowed-namespaces": "Team A"}}}));
    let queues: Api<Queue> = Api::all(cluster.admin.clone());
    let refused = refusal(queues.patch("gold", &PatchParams::default(), &odd).await);
    assert!(refused.contains("\"Team\" can be no namespace"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_bypassed_the_webhook_waits_until_the_queue_allows_its_namespace() {
    let (cluster, _operator) = quick_start(with(QueueLabels::Off)).await;
    cluster.node("n1").await;
    cluster.queue("lab", None).await;
    cluster.queue("gold", Some("lab")).await;
    open_to(&cluster, "lab", json!("research-*")).await;
    cluster
        .pod("team", "a", json!({"labels": {QUEUE: "gold"}}))
        .await
        .unwrap();
    let told = eventually("the pod says why it waits", async || {
        let pod = cluster.pods("team").get("a").await.unwrap();
        let conditions = pod.status?.conditions?;
        conditions.into_iter().find(|c| c.type_ == "PodScheduled")?.message
    })
    .await;
    assert!(
        told.contains("Queue gold is not open to namespace team: the annotation unikai.dev/allowed-namespaces of queue lab above it does not name it"),
        "{told}"
    );
    open_to(&cluster, "lab", json!("research-*, team")).await;
    cluster.bound("team", "a").await;
    open_to(&cluster, "lab", json!("")).await;
    cluster
        .pod("team", "b", json!({"labels": {QUEUE: "gold"}}))
        .await
        .unwrap();
    open_to(&cluster, "lab", json!(null)).await;
    cluster.bound("team", "b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_part_of_a_gpu_is_changed_but_not_removed() {
    let mut settings = Settings::embedded();
    settings.common.admission.gpu_sharing = true;
    let (cluster, _operator) = quick_start(settings).await;
    let half = json!({"annotations": {"gpu-fraction": "0.5"}});
    cluster.pod("team", "shares", half).await.unwrap();
    let pods = cluster.pods("team");
    let change_to = async |fraction: serde_json::Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"gpu-fraction": fraction}}}));
        pods.patch("shares", &PatchParams::default(), &patch).await
    };
    let refused = refusal(change_to(json!(null)).await);
    let says = "the request for a part of a GPU (gpu-fraction, gpu-memory) cannot be removed from a pod";
    assert!(refused.contains(says), "{refused}");
    change_to(json!("0.3")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_enforcement_of_queue_labels_pods_are_admitted() {
    for mode in [QueueLabels::Warn, QueueLabels::Off] {
        let (cluster, _operator) = quick_start(with(mode)).await;
        let lost = cluster
            .pod("team", "lost", json!({"labels": {QUEUE: "tset"}}))
            .await
            .unwrap();
        assert_eq!(lost.labels().get(QUEUE).map(String::as_str), Some("tset"));
        let bare = cluster.pod("team", "bare", json!({})).await.unwrap();
        let expected = (mode == QueueLabels::Warn).then_some("default-queue");
        assert_eq!(bare.labels().get(QUEUE).map(String::as_str), expected, "{mode:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_other_schedulers_and_system_pods_are_never_reviewed() {
    let (cluster, operator) = quick_start(Settings::embedded()).await;
    let nowhere = json!({"labels": {QUEUE: "tset"}});
    cluster
        .pod("kube-system", "a", nowhere.clone())
        .await
        .expect("kube-system is left alone");
    // Without the operator our pods are refused, and all others are admitted.
    drop(operator);
    let foreign = json!({"metadata": {"name": "foreign"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let foreign = serde_json::from_value(foreign).unwrap();
    cluster
        .pods("team")
        .create(&PostParams::default(), &foreign)
        .await
        .expect("pods of others do not depend on us");
    let refused = refusal(cluster.pod("team", "ours", json!({})).await);
    assert!(refused.contains("failed calling webhook"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_pod_groups_and_topologies_are_checked() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let queues: Api<Queue> = Api::all(cluster.admin.clone());
    let empty = serde_json::from_value(json!({"metadata": {"name": "empty"}, "spec": {}})).unwrap();
    assert_eq!(
        refusal(queues.create(&PostParams::default(), &empty).await),
        "admission webhook \"queue-validation.kai.scheduler\" denied the request: resources must be specified"
    );
    let below_itself = Patch::Merge(json!({"spec": {"parentQueue": "test"}}));
    assert_eq!(
        refusal(queues.patch("default", &PatchParams::default(), &below_itself).await),
        "admission webhook \"queue-validation.kai.scheduler\" denied the request: a queue cannot be below itself: default → test → default. Choose another parentQueue"
    );

    let groups: Api<PodGroup> = Api::namespaced(cluster.admin.clone(), "team");
    let twice = json!({"metadata": {"name": "g"}, "spec": {"subGroups": [{"name": "a", "minMember": 1}, {"name": "a", "minMember": 1}]}});
    assert_eq!(
        refusal(
            groups
                .create(&PostParams::default(), &serde_json::from_value(twice).unwrap())
                .await
        ),
        "admission webhook \"podgroup-validation.kai.scheduler\" denied the request: duplicate subgroup name a"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_or_changed_webhook_configurations_are_restored_and_nothing_else_is_written() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let good = mutating.get("mutating-kai-admission").await.unwrap().webhooks;

    let damage = Patch::Merge(json!({"webhooks": [], "metadata": {"annotations": {"theirs": "kept"}}}));
    mutating
        .patch("mutating-kai-admission", &PatchParams::default(), &damage)
        .await
        .unwrap();
    validating
        .delete("kai-queue-validation-v2", &DeleteParams::default())
        .await
        .unwrap();

    eventually("the mutating webhook is back", async || {
        let live = mutating.get("mutating-kai-admission").await.unwrap();
        (live.webhooks == good).then(|| assert_eq!(live.annotations().get("theirs").map(String::as_str), Some("kept")))
    })
    .await;
    eventually("the queue webhook is back", async || {
        validating.get_opt("kai-queue-validation-v2").await.unwrap()
    })
    .await;

    let operator = unikai::devcluster::apiserver::Identity::operator();
    let written = |name: &str| {
        let writes = cluster.server.audit().writes_of(&operator);
        writes.iter().filter(|write| write.name == name).count()
    };
    // Created, repaired. A write is logged once it is answered.
    let repaired = || ["mutating-kai-admission", "kai-queue-validation-v2"].map(written);
    eventually("all writes are logged", async || (repaired() == [2, 2]).then_some(())).await;
    assert_eq!(written("kai-podgroup-validation-v2alpha2"), 1);
    assert_eq!(written(SECRET), 1);
}

/// Creates pods for which the webhooks are called, one after the other, until stopped; returns their number, and what
/// went wrong.
async fn create_pods(cluster: &Cluster, prefix: usize, stop: &AtomicBool) -> (usize, Vec<String>) {
    let mut wrong = Vec::new();
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        match cluster.pod("team", &format!("load-{prefix}-{count}"), json!({})).await {
            Ok(pod) if pod.labels().get(QUEUE).map(String::as_str) == Some("default-queue") => {}
            other => wrong.push(format!("{other:?}")),
        }
        count += 1;
    }
    (count, wrong)
}

/// The numbers in the names of the pairs that a Secret holds: when each was issued.
fn issued(secret: &Secret) -> Vec<i64> {
    let keys = secret.data.iter().flatten().map(|(key, _)| key);
    keys.filter_map(|key| key.strip_suffix(".tls.key")?.parse().ok())
        .collect()
}

/// Makes the pairs of the Secret older, each by so many hours.
async fn age(secrets: &Api<Secret>, hours: &[i64]) {
    let mut secret = secrets.get(SECRET).await.unwrap();
    let issued = issued(&secret);
    assert_eq!(issued.len(), hours.len());
    let data = secret.data.take().unwrap();
    let older = |key: String| {
        let pair = issued
            .iter()
            .zip(hours)
            .find(|(issued, _)| key.starts_with(&format!("{issued}.")));
        pair.map_or(key.clone(), |(issued, hours)| {
            key.replacen(&issued.to_string(), &(issued - hours * 3_600).to_string(), 1)
        })
    };
    secret.data = Some(data.into_iter().map(|(key, value)| (older(key), value)).collect());
    secrets.replace(SECRET, &PostParams::default(), &secret).await.unwrap();
}

/// Waits until the Secret holds so many pairs.
async fn pairs(secrets: &Api<Secret>, count: usize) -> Vec<i64> {
    eventually(&format!("{count} pairs are stored"), async || {
        let issued = issued(&secrets.get_opt(SECRET).await.unwrap()?);
        (issued.len() == count).then_some(issued)
    })
    .await
}

/// Waits until the API server trusts so many authorities of the webhooks for pods.
async fn trusted(cluster: &Cluster, count: usize) {
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(cluster.admin.clone());
    eventually(&format!("{count} authorities are trusted"), async || {
        let mutating = mutating.get("mutating-kai-admission").await.ok()?;
        let validating = validating.get("validating-kai-admission").await.ok()?;
        let mutating = mutating.webhooks?.into_iter().map(|hook| hook.client_config);
        let validating = validating.webhooks?.into_iter().map(|hook| hook.client_config);
        let authorities = |bundle: ByteString| String::from_utf8_lossy(&bundle.0).matches("BEGIN CERTIFICATE").count();
        let mut all = mutating.chain(validating);
        all.all(|config| config.ca_bundle.map(authorities) == Some(count))
            .then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rotation_loss_and_change_of_certificates_affect_no_pod() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), "kai-scheduler");
    let first = pairs(&secrets, 1).await;
    let stop = AtomicBool::new(false);
    let rotate = async {
        // Sixty days pass: a second pair is issued, trusted, and after an hour served; after another the first one goes.
        age(&secrets, &[60 * 24]).await;
        let both = pairs(&secrets, 2).await;
        trusted(&cluster, 2).await;
        age(&secrets, &[1, 1]).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        age(&secrets, &[1, 1]).await;
        let left = pairs(&secrets, 1).await;
        assert!(both.iter().any(|issued| left == [issued - 2 * 3_600]) && left != first);

        secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
        let mended = pairs(&secrets, 2).await;
        assert!(mended.contains(&left[0]), "what is served stays trusted");

        let mut foreign = secrets.get(SECRET).await.unwrap();
        let theirs = [("tls.crt", "theirs"), ("tls.key", "theirs")];
        foreign.data = Some(
            theirs
                .map(|(key, value)| (key.to_owned(), ByteString(value.into())))
                .into(),
        );
        secrets.replace(SECRET, &PostParams::default(), &foreign).await.unwrap();
        let mended = pairs(&secrets, 2).await;
        assert!(mended.contains(&left[0]));
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.store(true, Ordering::Relaxed);
    };
    let load = futures::future::join_all((0..8).map(|prefix| create_pods(&cluster, prefix, &stop)));
    let (load, ()) = tokio::join!(load, rotate);
    let wrong: Vec<_> = load.iter().flat_map(|(_, wrong)| wrong).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let count: usize = load.iter().map(|(count, _)| count).sum();
    assert!(count >= 16, "{count} pods is no load");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_replaced_and_the_webhooks_go_on() {
    let (cluster, _operator) = quick_start(Settings::embedded()).await;
    let secrets: Api<Secret> = Api::namespaced(cluster.admin.clone(), "kai-scheduler");
    let first = pairs(&secrets, 1).await;
    age(&secrets, &[91 * 24]).await;
    eventually("another certificate is stored", async || {
        let issued = issued(&secrets.get(SECRET).await.unwrap());
        (issued.len() == 1 && issued[0] >= first[0]).then_some(())
    })
    .await;
    eventually("pods are labelled", async || {
        cluster.pod("team", "after", json!({})).await.ok()
    })
    .await;
}
