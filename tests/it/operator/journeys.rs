//! What a user of KAI does on the first day, step by step.

use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use super::lab::{Lab, QUICK_LEASE, TEAM, eventually, gang, pod};

fn two_gpu_nodes() -> Vec<NodeSpec> {
    vec![
        NodeSpec::gpu("gpu-1", 8),
        NodeSpec::gpu("gpu-2", 8),
        NodeSpec::cpu("cpu-1"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_on_the_nodes_that_fit_them() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let operator = lab.replica("one").await;
    lab.create(pod("cpu-only-pod", 0)).await.unwrap();
    lab.create(pod("gpu-pod", 1)).await.unwrap();
    assert_eq!(
        lab.runs("cpu-only-pod").await,
        "cpu-1",
        "a pod without GPUs keeps off the GPU nodes"
    );
    assert!(lab.runs("gpu-pod").await.starts_with("gpu-"));
    lab.assert_safe().await;

    eventually("the queue shows what its pods hold", async || {
        let queue = lab.queues().get("test").await.map_err(|e| e.to_string())?;
        let allocated = queue.status.map(|s| s.allocated).unwrap_or_default();
        let gpus = allocated.get("nvidia.com/gpu").map(|q| q.0.clone());
        (gpus.as_deref() == Some("1"))
            .then_some(())
            .ok_or_else(|| format!("{allocated:?}"))
    })
    .await;
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_a_queue_runs_in_the_default_queue_and_shows_it() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let _operator = lab.replica("one").await;
    let mut nameless = pod("nameless", 0);
    nameless["metadata"]["labels"] = json!({});
    let created = lab.create(nameless).await.unwrap();
    assert_eq!(created.metadata.labels.unwrap()["kai.scheduler/queue"], "default-queue");
    lab.runs("nameless").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_queue_is_refused_with_advice() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let _operator = lab.replica("one").await;
    for (queue, says) in [
        ("nosuch", "does not exist"),
        ("default", "is the parent of other queues"),
    ] {
        let mut wrong = pod("wrong", 0);
        wrong["metadata"]["labels"] = json!({"kai.scheduler/queue": queue});
        let error = lab.create(wrong).await.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("test"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_enforcement_a_wrong_queue_is_explained() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let _operator = lab.replica_with("one", &["--queue-labels", "off"]).await;
    let mut wrong = pod("wrong", 0);
    wrong["metadata"]["labels"] = json!({"kai.scheduler/queue": "nosuch"});
    lab.create(wrong).await.unwrap();
    assert!(lab.unschedulable("wrong").await.contains("Queue nosuch does not exist"));
    eventually("an event says so too", async || {
        let events = Api::<Event>::namespaced(lab.client.clone(), TEAM)
            .list(&ListParams::default())
            .await;
        let events = events.map_err(|e| e.to_string())?;
        let found = events.iter().find(|e| {
            e.involved_object.name.as_deref() == Some("wrong") && e.reason.as_deref() == Some("Unschedulable")
        });
        found
            .map(|_| ())
            .ok_or_else(|| format!("{} events", events.items.len()))
    })
    .await;
    // The queue is created later: the pod must not wait for anything else.
    lab.apply(&super::lab::queue("nosuch", Some("default"))).await;
    lab.runs("wrong").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_sub_group_is_reported_on_the_pod() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let _operator = lab.replica("one").await;
    let mut lost = pod("lost", 0);
    lost["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!("workers");
    lab.create(lost).await.unwrap();
    let why = lab.unschedulable("lost").await;
    assert!(
        why.starts_with("Pod references subgroup \"workers\", which does not exist in PodGroup team/"),
        "{why}"
    );
    let corrected = json!({"metadata": {"labels": {"kai.scheduler/subgroup-name": null}}});
    let patch = Patch::Merge(corrected);
    lab.pods().patch("lost", &PatchParams::default(), &patch).await.unwrap();
    lab.runs("lost").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_that_is_respected_keeps_a_pod_until_it_allows_its_eviction() {
    let lab = Lab::start(vec![NodeSpec::gpu("gpu-1", 1)]).await;
    let operator = lab.replica_with("one", &["--disruption-budgets", "respect"]).await;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keeps", "namespace": TEAM},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}},
    });
    lab.create(budget).await.unwrap();
    let mut kept = pod("kept", 1);
    kept["metadata"]["labels"]["app"] = json!("kept");
    lab.create(kept).await.unwrap();
    lab.runs("kept").await;

    let mut urgent = pod("urgent", 1);
    urgent["metadata"]["labels"]["priorityClassName"] = json!("build");
    lab.create(urgent).await.unwrap();
    lab.unschedulable("urgent").await;
    let evictions = || {
        lab.server
            .audit()
            .writes()
            .into_iter()
            .filter(|write| write.subresource == "eviction")
            .count()
    };
    assert_eq!(evictions(), 0, "nothing is asked for that would be refused");

    let budgets = Api::<PodDisruptionBudget>::namespaced(lab.client.clone(), TEAM);
    let none = Patch::Merge(json!({"spec": {"minAvailable": 0}}));
    let patched = budgets.patch("keeps", &PatchParams::default(), &none).await;
    patched.expect("the budget is changed");
    lab.runs("urgent").await;
    assert_eq!(evictions(), 1);
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_starts_whole_or_waits_whole_and_says_why() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let operator = lab.replica("one").await;
    lab.create(pod("blocker", 1)).await.unwrap();
    lab.runs("blocker").await;
    lab.create(gang("train", 2, 8)).await.unwrap();
    let waiting = eventually("both pods exist", async || {
        let pods: Vec<_> = lab
            .all_pods()
            .await
            .into_iter()
            .filter_map(|p| p.metadata.name)
            .collect();
        let members: Vec<_> = pods.into_iter().filter(|p| p.starts_with("train-")).collect();
        (members.len() == 2)
            .then_some(members.clone())
            .ok_or_else(|| format!("{members:?}"))
    })
    .await;
    for member in &waiting {
        let why = lab.unschedulable(member).await;
        assert!(why.contains("GPU"), "{why}");
    }
    lab.running(1).await;

    lab.delete_pod("blocker").await;
    for member in &waiting {
        lab.runs(member).await;
    }
    lab.assert_safe().await;
    operator.assert_no_errors();
}

/// Bindings cannot name the sub-groups of pods. The first process does not get to write them, and the second one finds the pods without.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_of_sub_groups_stays_while_its_pods_do_not_name_them_yet() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let mut first = lab.replica_with("one", QUICK_LEASE).await;
    let labels = Match {
        subresource: Some(String::new()),
        user: Some(first.identity.user.clone()),
        ..Match::verb_on("patch", "pods")
    };
    let refused = Effect::Refuse {
        code: 503,
        retry_after: None,
    };
    let refused = lab.server.faults().add(labels, refused, Times::Always);
    let mut job = gang("train", 3, 1);
    job["metadata"]["annotations"] =
        json!({"kai.scheduler/segment-size": "1", "kai.scheduler/staleness-grace-period": "0s"});
    job["spec"]["completionMode"] = json!("Indexed");
    lab.create(job).await.unwrap();
    lab.running(3).await;
    eventually("the labels are refused", async || {
        (lab.server.faults().struck(refused) > 0).then_some(())
    })
    .await;
    first.kill();

    let second = lab.replica_with("two", QUICK_LEASE).await;
    second.leads().await;
    lab.create_after_handover(pod("other", 1)).await;
    lab.runs("other").await;
    lab.server.faults().remove(refused);
    eventually("the pods name their sub-groups", async || {
        let pods = lab.all_pods().await;
        let labels = pods.iter().filter_map(|pod| pod.metadata.labels.as_ref());
        let named = labels.filter_map(|labels| labels.get("kai.scheduler/subgroup-name"));
        let mut named: Vec<_> = named.cloned().collect();
        named.sort();
        let wanted = ["segment-0", "segment-1", "segment-2"];
        (named == wanted).then_some(()).ok_or_else(|| format!("{named:?}"))
    })
    .await;
    lab.running(4).await;
    let mut writes = lab.writes_of(&first);
    writes.extend(lab.writes_of(&second));
    writes.retain(|write| write.starts_with("delete pods/") || write.contains("pods/eviction"));
    assert_eq!(writes, Vec::<String>::new());
    second.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_cluster_gets_no_writes() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let operator = lab.replica("one").await;
    operator.leads().await;
    lab.create(pod("lone", 1)).await.unwrap();
    lab.runs("lone").await;
    // Let what is off the critical path settle: two looks a second apart that show the same number of writes.
    let mut before = usize::MAX;
    eventually("writes settle", async || {
        let now = lab.writes_of(&operator).len();
        let settled = now == before;
        before = now;
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        settled.then_some(()).ok_or_else(|| format!("{now} writes"))
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let writes = lab.writes_of(&operator);
    assert_eq!(writes.len(), before, "{writes:#?}");
    let binding = writes.iter().filter(|w| w.contains("pods/binding")).count();
    assert_eq!(binding, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_deleted_queues_wait_with_the_reason() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let operator = lab.replica("one").await;
    lab.create(pod("runs", 1)).await.unwrap();
    lab.runs("runs").await;
    lab.create(pod("waits", 9)).await.unwrap();
    assert!(lab.unschedulable("waits").await.contains("GPU"));

    let says = async |words: &str| {
        eventually(words, async || {
            let why = lab.unschedulable("waits").await;
            if why.contains(words) { Ok(()) } else { Err(why) }
        })
        .await;
    };
    for (queue, words) in [
        ("default", "Queue test's parent default does not exist"),
        ("test", "Queue test does not exist;"),
    ] {
        let deleted = lab.queues().delete(queue, &DeleteParams::default()).await;
        deleted.expect("it may go");
        says(words).await;
    }
    for name in ["default", "test"] {
        let parent = (name == "test").then_some("default");
        lab.apply(&super::lab::queue(name, parent)).await;
    }
    says("GPU").await;
    assert_eq!(super::lab::phase(&lab.pods().get("runs").await.unwrap()), "Running");
    operator.assert_no_errors();
}

#[tokio::test(flavor = "multi_thread")]
async fn protected_queues_in_use_cannot_be_deleted() {
    let lab = Lab::start(two_gpu_nodes()).await;
    let _operator = lab.replica_with("one", &["--protect-queues"]).await;
    let deletion = async || lab.queues().delete("default", &DeleteParams::default()).await;
    eventually("the queue's status names its child", async || {
        let queue = lab.queues().get("default").await.map_err(|e| e.to_string())?;
        let children = queue.status.map(|s| s.child_queues).unwrap_or_default();
        if children == ["test"] {
            Ok(())
        } else {
            Err(format!("{children:?}"))
        }
    })
    .await;
    let refused = deletion().await.unwrap_err().to_string();
    assert!(
        refused.contains("cannot delete queue default: it has child queues [test]"),
        "{refused}"
    );
}
