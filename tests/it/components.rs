//! The components together on the embedded cluster: the writes per pod, and behaviour while the API server is
//! faulty. Everything is asserted on the objects and the audit log of the API server.

mod bench;
mod churn;
mod hostile;
mod workloads;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::json;
use unikai::api::{PodGroup, Queue};
use unikai::devcluster::apiserver::{Effect, Match, Times};
use unikai::devcluster::world::NodeSpec;

use bench::{Bench, pod};

/// Everything the operator wrote, as `verb resource/subresource`, with how often.
fn counts(bench: &Bench) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for write in bench.writes() {
        let slash = if write.subresource.is_empty() { "" } else { "/" };
        let what = format!("{} {}{slash}{}", write.verb, write.resource, write.subresource);
        *counts.entry(what).or_default() += 1;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_pod_is_bound_with_one_write_and_explained_with_few() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    bench
        .create(&pod("plain", json!({"nvidia.com/gpu": "2", "cpu": "1"})))
        .await;
    let bound: Pod = bench
        .until("the pod runs", "default", "plain", |pod: &Pod| {
            bench::phase(pod) == "Running"
        })
        .await;
    let annotations = bound.metadata.annotations.unwrap_or_default();
    let uid = bound.metadata.uid.unwrap();
    assert_eq!(annotations["received-resource-type"], "Regular");
    assert_eq!(annotations["pod-group-name"], format!("pg-plain-{uid}"));

    let group = format!("pg-plain-{uid}");
    let group: PodGroup = bench
        .until(
            "the pod group shows what it holds",
            "default",
            &group,
            |group: &PodGroup| {
                group
                    .status
                    .as_ref()
                    .and_then(|status| status.resources_status.as_ref())
                    .is_some_and(|resources| {
                        resources
                            .allocated
                            .get("nvidia.com/gpu")
                            .is_some_and(|gpus| gpus.0 == "2")
                    })
            },
        )
        .await;
    assert_eq!(group.spec.queue.as_deref(), Some("test"));
    assert_eq!(group.spec.priority_class_name.as_deref(), Some("train"));
    for queue in ["test", "default"] {
        bench
            .until("the queue shows what it holds", "", queue, |queue: &Queue| {
                queue
                    .status
                    .as_ref()
                    .is_some_and(|status| status.allocated.get("nvidia.com/gpu").is_some_and(|gpus| gpus.0 == "2"))
            })
            .await;
    }
    bench.until_quiet().await;
    let counts = counts(&bench);
    assert_eq!(counts["create pods/binding"], 1, "{counts:?}");
    assert_eq!(counts["create podgroups"], 1, "{counts:?}");
    assert_eq!(
        counts.get("patch pods"),
        None,
        "the binding carries the annotations: {counts:?}"
    );
    assert_eq!(counts.get("patch pods/status"), None, "{counts:?}");
    assert!(counts["patch podgroups/status"] <= 2, "{counts:?}");
    assert_eq!(counts["create events"], 1, "{counts:?}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_survive_refusals_lost_answers_and_conflicts() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8), NodeSpec::gpu("n2", 8)]).await;
    let faults = bench.server.faults();
    let effects = [
        Effect::DropAfter,
        Effect::Drop,
        Effect::FailAfter { code: 500 },
        Effect::Refuse {
            code: 409,
            retry_after: None,
        },
        Effect::Refuse {
            code: 429,
            retry_after: Some(1),
        },
        Effect::Refuse {
            code: 503,
            retry_after: None,
        },
    ];
    for effect in effects {
        faults.add(Match::bindings(), effect, Times::Next(2));
    }
    for n in 0..12 {
        bench
            .create(&pod(&format!("p{n}"), json!({"nvidia.com/gpu": "1"})))
            .await;
    }
    for n in 0..12 {
        let name = format!("p{n}");
        bench
            .until("the pod runs", "default", &name, |pod: &Pod| {
                bench::phase(pod) == "Running"
            })
            .await;
    }
    let succeeded = bench
        .writes()
        .into_iter()
        .filter(|write| write.subresource == "binding" && write.code == 201);
    let mut names: Vec<_> = succeeded.map(|write| write.name).collect();
    names.sort();
    let unique = names.len();
    names.dedup();
    assert_eq!(names.len(), unique, "no pod is bound twice");
    assert_eq!(bench.world.refused_gpu_pods(), 0);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_does_not_fit_says_why_and_runs_when_room_appears() {
    let bench = Bench::start(vec![NodeSpec::gpu("small", 2)]).await;
    bench.create(&pod("big", json!({"nvidia.com/gpu": "8"}))).await;
    let waiting: Pod = bench
        .until("the pod says why it waits", "default", "big", |pod: &Pod| {
            bench::condition(pod, "PodScheduled")
                .is_some_and(|condition| condition.reason.as_deref() == Some("Unschedulable"))
        })
        .await;
    let message = bench::condition(&waiting, "PodScheduled").unwrap().message.unwrap();
    assert!(message.contains("no node has more than"), "{message}");
    let group = format!("pg-big-{}", waiting.metadata.uid.as_deref().unwrap());
    let told: PodGroup = bench
        .until(
            "the pod group says why it waits",
            "default",
            &group,
            |group: &PodGroup| {
                group
                    .status
                    .as_ref()
                    .is_some_and(|status| !status.scheduling_conditions.is_empty())
            },
        )
        .await;
    let status = told.status.unwrap();
    assert_eq!(status.scheduling_conditions[0].transition_id.as_deref(), Some("1"));
    assert_eq!(status.scheduling_conditions[0].node_pool.as_deref(), Some("default"));
    bench
        .until_list("an event says so", "default", |events: &[Event]| {
            events.iter().any(|event| {
                event.involved_object.kind.as_deref() == Some("Pod") && event.reason.as_deref() == Some("Unschedulable")
            })
        })
        .await;
    bench
        .until("the pod names its group", "default", "big", |pod: &Pod| {
            pod.metadata
                .annotations
                .as_ref()
                .is_some_and(|all| all.get("pod-group-name").is_some_and(|name| *name == group))
        })
        .await;

    bench.world.add_node(NodeSpec::gpu("large", 8)).await.unwrap();
    let pod: Pod = bench
        .until("the pod runs", "default", "big", |pod: &Pod| {
            bench::phase(pod) == "Running"
        })
        .await;
    assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("large"));
    bench
        .until("the condition is gone", "default", &group, |group: &PodGroup| {
            group
                .status
                .as_ref()
                .is_some_and(|status| status.scheduling_conditions.is_empty())
        })
        .await;
    bench.until_quiet().await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_whose_queue_does_not_exist_gets_the_reason() {
    let bench = Bench::start(vec![NodeSpec::cpu("n1")]).await;
    let mut lost = pod("lost", json!({"cpu": "1"}));
    lost.metadata
        .labels
        .get_or_insert_default()
        .insert("kai.scheduler/queue".to_owned(), "nowhere".to_owned());
    bench.create(&lost).await;
    let told: Pod = bench
        .until("the pod says why it waits", "default", "lost", |pod: &Pod| {
            bench::condition(pod, "PodScheduled").is_some_and(|condition| condition.status == "False")
        })
        .await;
    let message = bench::condition(&told, "PodScheduled").unwrap().message.unwrap();
    assert!(message.contains("Queue nowhere does not exist"), "{message}");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_of_a_job_start_together_or_not_at_all() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    let job = bench
        .create_job("train", json!({"kai.scheduler/batch-min-member": "2"}))
        .await;
    for n in 0..2 {
        let mut member = pod(&format!("train-{n}"), json!({"nvidia.com/gpu": "8"}));
        member.metadata.owner_references = Some(vec![job.clone()]);
        bench.create(&member).await;
    }
    let group = format!("pg-train-{}", job.uid);
    let waits: PodGroup = bench
        .until("the group says why it waits", "default", &group, |group: &PodGroup| {
            group
                .status
                .as_ref()
                .is_some_and(|status| !status.scheduling_conditions.is_empty())
        })
        .await;
    assert_eq!(waits.spec.min_member, Some(2));
    for n in 0..2 {
        assert_eq!(
            bench::phase(&bench.get::<Pod>("default", &format!("train-{n}")).await),
            "Pending"
        );
    }
    bench.world.add_node(NodeSpec::gpu("n2", 8)).await.unwrap();
    for n in 0..2 {
        bench
            .until("it runs", "default", &format!("train-{n}"), |pod: &Pod| {
                bench::phase(pod) == "Running"
            })
            .await;
    }
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_writes_nothing_and_a_new_leader_starts_at_once() {
    let mut bench = Bench::start_following(vec![NodeSpec::gpu("n1", 8)]).await;
    bench.create(&pod("early", json!({"nvidia.com/gpu": "1"}))).await;
    bench.create(&pod("stuck", json!({"nvidia.com/gpu": "16"}))).await;
    bench.until_synced().await;
    bench.until_quiet().await;
    assert_eq!(counts(&bench), BTreeMap::new());
    bench.lead();
    bench
        .until("it runs", "default", "early", |pod: &Pod| {
            bench::phase(pod) == "Running"
        })
        .await;
    bench
        .until("the other says why it waits", "default", "stuck", |pod: &Pod| {
            bench::condition(pod, "PodScheduled").is_some()
        })
        .await;
    bench.until_quiet().await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_and_expired_watches_lose_nothing() {
    let bench = Bench::start(vec![NodeSpec::gpu("n1", 8)]).await;
    bench.create(&pod("before", json!({"nvidia.com/gpu": "4"}))).await;
    bench
        .until("it runs", "default", "before", |pod: &Pod| {
            bench::phase(pod) == "Running"
        })
        .await;
    bench.server.faults().expire_watches(None);
    bench.delete::<Pod>("default", "before").await;
    bench.create(&pod("after", json!({"nvidia.com/gpu": "8"}))).await;
    bench.server.faults().drop_watches(None);
    bench
        .until("it runs", "default", "after", |pod: &Pod| {
            bench::phase(pod) == "Running"
        })
        .await;
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_costs_one_binding_for_each_pod_and_few_writes_beside() {
    const PODS: usize = 120;
    let bench = Bench::start((0..4).map(|n| NodeSpec::gpu(format!("n{n}"), 32)).collect()).await;
    bench.until_synced().await;
    let creates = (0..PODS).map(|n| {
        let bench = &bench;
        async move {
            bench
                .create(&pod(&format!("p{n}"), json!({"nvidia.com/gpu": "1"})))
                .await
        }
    });
    futures::future::join_all(creates).await;
    bench
        .until_list("all pods run", "default", |pods: &[Pod]| {
            pods.iter().filter(|pod| bench::phase(pod) == "Running").count() == PODS
        })
        .await;
    bench.until_quiet().await;
    let counts = counts(&bench);
    println!("writes for {PODS} pods: {counts:?}");
    assert_eq!(counts["create pods/binding"], PODS, "{counts:?}");
    assert_eq!(counts["create podgroups"], PODS, "{counts:?}");
    assert!(counts["create events"] <= PODS, "{counts:?}");
    assert!(counts["patch podgroups/status"] <= 2 * PODS, "{counts:?}");
    assert!(counts["patch queues/status"] <= 40, "{counts:?}");
    assert_eq!(counts.get("patch pods"), None, "{counts:?}");
    assert_eq!(counts.get("patch pods/status"), None, "{counts:?}");
    assert_eq!(bench.world.refused_gpu_pods(), 0);
    bench.stop().await;
}
