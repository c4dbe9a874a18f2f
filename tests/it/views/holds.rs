//! Holds, requeues and drains, as users run them, against the cluster of `unikai dev`.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use unikai::api::{PodGroup, Queue};
use unikai::devcluster::apiserver::{Effect, Identity, Match, Times};

use super::commands::{self, Stage, pod};
use crate::support::{Cluster, create, eventually};

/// A job of so many pods at once with a GPU each.
fn job(name: &str, pods: u32) -> Value {
    let labels = json!({"kai.scheduler/queue": "team"});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 100, "template": {
            "metadata": {"labels": labels},
            "spec": {"schedulerName": "kai-scheduler", "restartPolicy": "Never",
                "containers": [{"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        }},
    })
}

/// A cluster on which a job `train` with two pods runs: the uids of these, and the name of their pod group.
async fn training() -> (Stage, Vec<String>, String) {
    let stage = Stage::start().await;
    create(&stage.admin, job("train", 2)).await.unwrap();
    let pods = stage.running(2).await;
    let group = stage.group_name("train").await;
    (stage, pods, group)
}

impl Stage {
    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), "default");
        pods.list(&ListParams::default()).await.unwrap().items
    }

    /// The uids of the pods that run and are to stay, once there are so many.
    async fn running(&self, wanted: usize) -> Vec<String> {
        eventually(&format!("{wanted} pods run"), async || {
            let pods = self.pods().await;
            let runs = |pod: &&Pod| {
                pod.metadata.deletion_timestamp.is_none()
                    && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
            };
            let mut uids: Vec<_> = pods
                .iter()
                .filter(runs)
                .filter_map(|pod| pod.metadata.uid.clone())
                .collect();
            uids.sort();
            (uids.len() == wanted).then_some(uids)
        })
        .await
    }

    /// The pod group of the workload of that name.
    async fn group(&self, of: &str) -> PodGroup {
        let groups: Api<PodGroup> = Api::namespaced(self.admin.clone(), "default");
        eventually(&format!("{of} has a pod group"), async || {
            let all = groups.list(&ListParams::default()).await.ok()?;
            let begin = format!("pg-{of}-");
            all.items.into_iter().find(|group| {
                group
                    .metadata
                    .name
                    .as_deref()
                    .is_some_and(|name| name.starts_with(&begin))
            })
        })
        .await
    }

    async fn group_name(&self, of: &str) -> String {
        self.group(of).await.metadata.name.unwrap()
    }

    /// The hold that the pod group's annotation states.
    async fn hold(&self, of: &str) -> Option<String> {
        let annotations = self.group(of).await.metadata.annotations;
        annotations.unwrap_or_default().remove("unikai.dev/hold")
    }

    /// STATE and REASON of the pod group, as kubectl shows them.
    async fn shown_as(&self, of: &str, wanted: (&str, Option<&str>)) {
        eventually(&format!("{of} is shown as {wanted:?}"), async || {
            let summary = self.group(of).await.status?.summary?;
            ((summary.state.as_deref()?, summary.reason.as_deref()) == wanted).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_group_is_held_and_released() {
    let stage = Box::pin(Stage::start()).await;
    create(&stage.admin, job("train", 1)).await.unwrap();
    let before = stage.running(1).await;
    create(&stage.admin, pod("wide", 2, "train")).await.unwrap();
    let wide = stage.group_name("wide").await;
    let said = stage.says(&format!("hold podgroup {wide} --reason data.is.late")).await;
    assert_eq!(said, format!("podgroup default/{wide} is held\n"));
    let said = eventually("the hold is explained", async || {
        let said = stage.says("explain pod wide").await;
        said.contains("is held").then_some(said)
    })
    .await;
    let says =
        format!("PodGroup {wide} is held (data.is.late); release it: unikai release podgroup {wide} -n default.");
    assert_eq!(said.lines().next(), Some(&*says));
    assert!(
        said.contains(&format!("\nunikai release podgroup {wide} -n default\n")),
        "{said}"
    );
    stage.shown_as("wide", ("Held", Some("held"))).await;
    let jobs = stage.says("jobs -o wide").await;
    let line = jobs.lines().find(|line| line.contains(&wide)).unwrap();
    assert!(line.contains(" Held ") && line.contains(" held "), "{jobs}");
    eventually("the condition of the pod says so", async || {
        let pods = stage.pods().await;
        let wide = pods
            .into_iter()
            .find(|pod| pod.metadata.name.as_deref() == Some("wide"))?;
        let conditions = wide.status?.conditions?;
        let said = conditions
            .into_iter()
            .find(|condition| condition.type_ == "PodScheduled")?;
        (said.reason.as_deref() == Some("Held") && said.message?.starts_with(says.trim_end_matches('.'))).then_some(())
    })
    .await;

    // What runs stays, and room is not taken while the hold lasts.
    let train = stage.group_name("train").await;
    let said = stage.says(&format!("hold podgroup {train}")).await;
    assert!(said.starts_with(&format!("podgroup default/{train} is held")), "{said}");
    stage.shown_as("train", ("Running,Held", None)).await;
    assert_eq!(stage.running(1).await, before);
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(stage.admin.clone(), "default");
    jobs.delete("train", &kube::api::DeleteParams::background())
        .await
        .unwrap();
    stage.running(0).await;
    let document: Value = serde_json::from_str(&stage.says("jobs -o json").await).unwrap();
    assert!(document["workloads"].to_string().contains("data.is.late"), "{document}");
    stage.running(0).await;
    let said = stage.says(&format!("release podgroup {wide}")).await;
    assert_eq!(said, format!("podgroup default/{wide} is released\n"));
    stage.running(1).await;
    let (well, said) = stage.run("release podgroup nobody").await;
    assert!(
        !well && said == "error: there is no podgroup nobody in the namespace default\n",
        "{said}"
    );
    let (well, said) = stage.run("hold podgroup nobody").await;
    assert!(!well && said.starts_with("error: PodGroup nobody: "), "{said}");
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_group_is_requeued_as_a_whole() {
    let (stage, before, train) = Box::pin(training()).await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all", "namespace": "default"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"kai.scheduler/queue": "team"}}}});
    create(&stage.admin, budget).await.unwrap();
    let (well, said) = stage.run(&format!("requeue podgroup {train} --timeout 3s")).await;
    assert!(
        !well && said.contains("would violate the pod's disruption budget") && !said.contains(" is evicted"),
        "{said}"
    );
    assert_eq!(stage.running(2).await, before);
    assert_eq!(stage.hold("train").await, None, "it is released all the same");
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::namespaced(stage.admin.clone(), "default");
    budgets
        .delete("all", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    let said = stage.says(&format!("requeue podgroup {train}")).await;
    assert_eq!(said.matches(" is evicted\n").count(), 2, "{said}");
    assert!(
        said.ends_with(&format!("podgroup default/{train} is queued again\n")),
        "{said}"
    );
    let after = stage.running(2).await;
    assert!(after.iter().all(|uid| !before.contains(uid)), "{before:?} {after:?}");
    assert_eq!(stage.hold("train").await, None);

    // A pod without a controller is not evicted by accident.
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::namespaced(stage.admin.clone(), "default");
    jobs.delete("train", &kube::api::DeleteParams::background())
        .await
        .unwrap();
    stage.running(0).await;
    create(&stage.admin, pod("lone", 1, "train")).await.unwrap();
    stage.running(1).await;
    let lone = stage.group_name("lone").await;
    let (well, said) = eventually("its pod is seen", async || {
        let (well, said) = stage.run(&format!("requeue podgroup {lone}")).await;
        (!said.contains("has a node")).then_some((well, said))
    })
    .await;
    assert!(!well, "{said}");
    assert_eq!(
        said,
        "error: these pods have no controller that creates them again: default/lone; --force evicts them nevertheless\n"
    );
    assert_eq!(stage.running(1).await.len(), 1);
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requeue_without_answers_leaves_no_pod_group_held_for_good() {
    let (stage, before, train) = Box::pin(training()).await;
    let requeue = format!("requeue podgroup {train}");
    let patches = Match {
        subresource: Some(String::new()),
        user: Some(Identity::admin().user),
        ..Match::verb_on("patch", "podgroups")
    };
    let faults = stage.cluster.server().faults();
    let once = |effect| faults.add(patches.clone(), effect, Times::Next(1));

    // The hold takes effect although the answer is lost, so it is released.
    for effect in [Effect::DropAfter, Effect::FailAfter { code: 504 }] {
        once(effect);
        let (well, said) = stage.run(&requeue).await;
        assert!(!well && !said.contains("still held"), "{said}");
        assert_eq!(stage.hold("train").await, None);
    }
    // One that is refused has no effect, so there is nothing to release.
    let refusal = Effect::Refuse {
        code: 403,
        retry_after: None,
    };
    let refused = faults.add(patches.clone(), refusal, Times::Always);
    let (well, said) = stage.run(&requeue).await;
    assert!(!well && said.contains(&format!("PodGroup {train}: ")), "{said}");
    assert_eq!(faults.struck(refused), 1, "{said}");
    faults.remove(refused);
    assert_eq!(stage.running(2).await, before);

    // The release fails, too: the next run recognises the hold as its own.
    once(Effect::DropAfter);
    once(Effect::Drop);
    let (well, said) = stage.run(&requeue).await;
    let hint = format!("still held: unikai release podgroup {train} -n default");
    assert!(!well && said.contains(&hint), "{said}");
    assert_eq!(stage.hold("train").await.as_deref(), Some("requeued"));
    stage.shown_as("train", ("Running,Held", None)).await;
    let said = stage.says(&requeue).await;
    assert!(
        said.ends_with(&format!("podgroup default/{train} is queued again\n")),
        "{said}"
    );
    assert_eq!(stage.hold("train").await, None);
    let after = stage.running(2).await;
    assert!(after.iter().all(|uid| !before.contains(uid)), "{before:?} {after:?}");
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_drained_with_those_below_it_and_resumed() {
    let stage = Box::pin(Stage::start()).await;
    create(&stage.admin, job("train", 2)).await.unwrap();
    let before = stage.running(2).await;
    let said = stage.says("drain queue lab --reason service").await;
    assert_eq!(said, "queue lab is held: nothing is started in it and below it\n");
    create(&stage.admin, job("late", 1)).await.unwrap();
    let late = stage.group_name("late").await;
    let said = eventually("the hold is explained", async || {
        let (well, said) = stage.run(&format!("explain podgroup {late}")).await;
        (well && said.contains("is held")).then_some(said)
    })
    .await;
    let says =
        "Queue lab (above queue team) is held (service) and starts nothing; resume it: unikai drain queue lab --undo.";
    assert_eq!(said.lines().next(), Some(says));
    assert_eq!(stage.running(2).await, before, "what runs stays");
    let queues = stage.says("queues").await;
    assert!(
        queues.ends_with("Queue lab is held (service) and starts nothing; resume it: unikai drain queue lab --undo\n"),
        "{queues}"
    );
    let said = stage.says("explain queue team").await;
    assert!(
        said.starts_with(
            "Queue team is held with queue lab above it (service): nothing is started in it, what runs stays.\n"
        ),
        "{said}"
    );
    let queue: Queue = Api::all(stage.admin.clone()).get("lab").await.unwrap();
    assert_eq!(queue.metadata.annotations.unwrap()["unikai.dev/hold"], "service");
    let said = stage.says(&format!("release podgroup {late}")).await;
    let but = "it still waits, since queue lab is held: unikai drain queue lab --undo";
    assert_eq!(said, format!("podgroup default/{late} is released; {but}\n"));

    let said = stage.says("drain queue lab --policy hold-and-evict").await;
    assert!(said.ends_with("queue lab is empty\n"), "{said}");
    assert_eq!(said.matches(" is evicted\n").count(), 2, "{said}");
    stage.running(0).await;
    let said = stage.says("drain queue lab --undo").await;
    assert_eq!(said, "queue lab starts workloads again\n");
    stage.running(2).await;
    let (well, said) = stage.run("drain queue nobody --undo").await;
    assert!(!well && said == "error: there is no queue nobody\n", "{said}");
    stage.cluster.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn patching_pod_groups_of_a_namespace_allows_holding_only_those() {
    let cluster = Cluster::start().await;
    cluster.namespace("other", json!({})).await;
    cluster.queue("q", None).await;
    for namespace in ["team", "other"] {
        let group = json!({"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
            "metadata": {"name": "train", "namespace": namespace}, "spec": {"queue": "q", "minMember": 1}});
        create(&cluster.admin, group).await.unwrap();
    }
    let params = PostParams::default();
    let role: Role = serde_json::from_value(json!({"metadata": {"name": "tenant"},
        "rules": [{"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups"], "verbs": ["patch"]}]}))
    .unwrap();
    Api::namespaced(cluster.admin.clone(), "team")
        .create(&params, &role)
        .await
        .unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({"metadata": {"name": "tenant"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "team", "name": "tenant"}]}))
    .unwrap();
    Api::namespaced(cluster.admin.clone(), "team")
        .create(&params, &binding)
        .await
        .unwrap();
    let tenant = Identity::service_account("team", "tenant");
    cluster.server.rbac().hold(&tenant);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kubeconfig"), cluster.server.kubeconfig(&tenant)).unwrap();
    let run = async |words: &str| commands::run(words, folder.path()).await;
    let (well, said) = run("hold podgroup train -n team").await;
    assert!(well && said == "podgroup team/train is held\n", "{said}");
    let (well, said) = run("hold podgroup train -n other").await;
    assert!(
        !well && said.contains("podgroups") && said.contains("forbidden"),
        "{said}"
    );
    let (well, said) = run("drain queue q --url http://127.0.0.1:1 --token t").await;
    assert!(!well && said.contains("queues") && said.contains("forbidden"), "{said}");
    // Without the right to list queues there is no hint about them.
    let (well, said) = run("release podgroup train -n team").await;
    assert!(well && said == "podgroup team/train is released\n", "{said}");
}
