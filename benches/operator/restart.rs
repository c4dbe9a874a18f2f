//! The operator after a restart on a cluster that is full of running pods: when it is ready, what it costs, what it holds in memory.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::OURS;
use crate::cluster::Cluster;
use crate::load::{Latencies, Load};
use crate::process::Process;
use crate::served::{PER_NAMESPACE, metadata, name, namespace, node, pod, pod_group};

/// Pods that change while the operator is watched.
const CHANGED: usize = 5_000;
/// Parallel requests.
const WORKERS: usize = 32;
/// The operator is quiet when it used less than this share of a CPU in this time.
const QUIET: (Duration, f64) = (Duration::from_secs(3), 0.03);

pub async fn measure(nodes: usize, pods: usize) -> anyhow::Result<()> {
    println!("== restart: {nodes} nodes, {pods} running pods with a pod group each");
    let cluster = Cluster::without_controllers().await?;
    for namespace in 0..=pods / PER_NAMESPACE {
        cluster.preload(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(&format!("team-{namespace:03}"), namespace)}),
        )?;
    }
    for number in 0..nodes {
        cluster.preload(node(number))?;
    }
    report("without pods", &cluster, Process::operator(&cluster).await?).await?;
    for number in 0..pods {
        cluster.preload(pod(number, nodes))?;
        cluster.preload(pod_group(number))?;
    }
    let begun = Instant::now();
    let operator = Process::operator(&cluster).await?;
    let ready = begun.elapsed();
    let load = Load::start(cluster.admin.clone());
    let first = load.serial(OURS, "first", 1).await?;
    println!(
        "ready after {:.1} s, a new pod bound after {}",
        ready.as_secs_f64(),
        Latencies::of(first.iter().map(|times| times.bound).collect())
    );
    quiet(&operator).await;
    println!("written after the restart: {:?}", cluster.operator_writes());
    changes(&cluster, &operator, pods).await?;
    report("with pods", &cluster, operator).await
}

/// What the operator costs once it is quiet; ends it.
async fn report(when: &str, cluster: &Cluster, operator: Process) -> anyhow::Result<()> {
    quiet(&operator).await;
    println!(
        "{when}: {} MiB, {} MiB at most, {:.2} CPU s so far",
        operator.memory_mib(),
        operator.peak_memory_mib(),
        operator.cpu_seconds()
    );
    cluster.forget_writes();
    operator.stop().await
}

async fn quiet(operator: &Process) {
    loop {
        let before = operator.cpu_seconds();
        tokio::time::sleep(QUIET.0).await;
        if operator.cpu_seconds() - before < QUIET.1 * QUIET.0.as_secs_f64() {
            return;
        }
    }
}

/// Pods whose status changes in a way that changes nothing for the scheduler, as kubelets do all the time.
async fn changes(cluster: &Cluster, operator: &Process, pods: usize) -> anyhow::Result<()> {
    let (before, changed) = (operator.cpu_seconds(), CHANGED.min(pods));
    stream::iter(0..changed)
        .for_each_concurrent(WORKERS, |number| async move {
            let api: Api<Pod> = Api::namespaced(cluster.admin.clone(), &namespace(number));
            let patch = json!({"status": {"podIP": format!("10.1.{}.{}", number / 250, number % 250)}});
            api.patch_status(&name(number), &PatchParams::default(), &Patch::Merge(patch))
                .await
                .expect("the pod is there");
        })
        .await;
    quiet(operator).await;
    let each = (operator.cpu_seconds() - before) / changed as f64;
    println!("{changed} pods changed: {:.1} µs of CPU for each", each * 1e6);
    Ok(())
}
