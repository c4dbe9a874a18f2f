//! Hundreds of pods are created and deleted: the writes that this costs, and whether the statuses are right in the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;
use unikai::api::{PodGroup, Queue};
use unikai::devcluster::world::NodeSpec;

use super::bench::{self, Bench, pod};
use super::counts;

/// Pods at the same time.
const PODS: usize = 80;

async fn nodes() -> Bench {
    let bench = Bench::start((0..4).map(|n| NodeSpec::gpu(format!("n{n}"), 32)).collect()).await;
    bench.until_synced().await;
    bench
}

async fn create(bench: &Bench, pods: Vec<Pod>) {
    futures::future::join_all(pods.iter().map(|pod| bench.create(pod))).await;
}

async fn all_run(bench: &Bench) {
    bench
        .until_list("all pods run", "default", |pods: &[Pod]| {
            pods.iter().filter(|pod| bench::phase(pod) == "Running").count() == PODS
        })
        .await;
    bench.until_quiet().await;
}

/// Whether the statuses of all queues and groups show exactly the GPUs of their pods.
async fn statuses_are_right(bench: &Bench, gpus: usize) {
    let held = |amounts: &unikai::api::QuantityMap| {
        amounts
            .get("nvidia.com/gpu")
            .map_or("0".to_owned(), |gpus| gpus.0.clone())
    };
    for name in ["test", "default"] {
        let status = bench.get::<Queue>("", name).await.status.unwrap_or_default();
        let (allocated, requested) = (held(&status.allocated), held(&status.requested));
        assert_eq!(
            (allocated, requested),
            (gpus.to_string(), gpus.to_string()),
            "queue {name}"
        );
    }
    let of_groups: RefCell<BTreeMap<String, usize>> = RefCell::default();
    bench
        .until_list("every pod names its group", "default", |pods: &[Pod]| {
            let named = |pod: &Pod| pod.metadata.annotations.as_ref()?.get("pod-group-name").cloned();
            let groups: Vec<_> = pods.iter().filter_map(named).collect();
            let mut counts = of_groups.borrow_mut();
            counts.clear();
            groups
                .iter()
                .for_each(|group| *counts.entry(group.clone()).or_default() += 1);
            groups.len() == pods.len()
        })
        .await;
    for (name, pods) in of_groups.into_inner() {
        let group: PodGroup = bench.get("default", &name).await;
        let sums = group
            .status
            .and_then(|status| status.resources_status)
            .unwrap_or_default();
        assert_eq!(held(&sums.allocated), pods.to_string(), "{name}");
        assert_eq!(held(&sums.requested), pods.to_string(), "{name}");
    }
}

/// What was written, without the statuses of queues, for each pod; those keep their distance in time.
fn writes_per_pod(bench: &Bench, since: Instant) -> f64 {
    let mut counts = counts(bench);
    let queues = counts.remove("patch queues/status").unwrap_or_default();
    let most = 2 * (since.elapsed().as_secs() as usize + 2);
    assert!(queues <= most, "{queues} writes of two queues in {:?}", since.elapsed());
    let all: usize = counts.values().sum();
    println!("{all} writes for {PODS} pods: {counts:?}");
    all as f64 / PODS as f64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_pod_costs_five_writes_from_creation_to_deletion() {
    let bench = nodes().await;
    for round in 0..2 {
        bench.server.audit().clear();
        let begin = Instant::now();
        let name = |n: usize| format!("p{round}-{n}");
        create(
            &bench,
            (0..PODS)
                .map(|n| pod(&name(n), json!({"nvidia.com/gpu": "1"})))
                .collect(),
        )
        .await;
        all_run(&bench).await;
        let per_pod = writes_per_pod(&bench, begin);
        assert!(per_pod <= 5.0, "{per_pod} writes for each pod");
        statuses_are_right(&bench, PODS).await;
        for n in 0..PODS {
            bench.delete::<Pod>("default", &name(n)).await;
        }
        bench
            .until_list("all pods are gone", "default", |pods: &[Pod]| pods.is_empty())
            .await;
        bench.until_quiet().await;
        statuses_are_right(&bench, 0).await;
    }
    bench.server.audit().clear();
    bench.until_quiet().await;
    assert_eq!(bench.writes(), [], "at rest nothing is written");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_gangs_cost_half_as_many_writes() {
    const SIZE: usize = 10;
    let bench = nodes().await;
    let mut owners: Vec<OwnerReference> = Vec::new();
    for job in 0..PODS / SIZE {
        let minimum = json!({"kai.scheduler/batch-min-member": SIZE.to_string()});
        owners.push(bench.create_job(&format!("train{job}"), minimum).await);
    }
    bench.server.audit().clear();
    let begin = Instant::now();
    let member = |n: usize| {
        let mut member = pod(&format!("t{n}"), json!({"nvidia.com/gpu": "1"}));
        member.metadata.owner_references = Some(vec![owners[n / SIZE].clone()]);
        member
    };
    create(&bench, (0..PODS).map(member).collect()).await;
    all_run(&bench).await;
    let per_pod = writes_per_pod(&bench, begin);
    assert!(per_pod <= 2.5, "{per_pod} writes for each pod");
    statuses_are_right(&bench, PODS).await;
    bench.stop().await;
}
