//! The whole operator as its own process, on 100 nodes with simulated kubelets: how fast pods are bound, what is written for
//! each, and what an idle operator costs.
//!
//! `cargo bench --bench operator`                                on the embedded API server
//! `KUBEBUILDER_ASSETS=… cargo bench --bench operator`           then also on a real etcd and kube-apiserver, with kube-scheduler
//!                                                               beside the operator if that folder holds it
//! `cargo bench --bench operator -- 200 20`                      200 pods on 20 nodes
//! `cargo bench --bench operator -- restart 10000 100000`        a restart on 10,000 nodes with 100,000 running pods
//! `cargo bench --bench operator -- page 10000 5000`             what the page costs on 10,000 nodes with 5,000 workloads;
//!                                                               `page keep` leaves all up afterwards, for a browser
//! `UNIKAI=target/earlier/unikai cargo bench --bench operator`    the same with another binary, such as an earlier one
//!
//! Everything shares this machine, so compare figures of one run. Created → bound counts from before the request that creates
//! the pod (admission webhooks included) to the watch event that shows its node.

mod cluster;
#[path = "../../tests/it/free_port.rs"]
mod free_port;
mod load;
mod page;
mod process;
#[path = "../../tests/it/real_server.rs"]
mod real_server;
mod restart;
mod served;

use std::time::Duration;

use cluster::Cluster;
use load::{Latencies, Load};
use process::Process;

const OURS: &str = "kai-scheduler";
const KUBE: &str = "default-scheduler";
/// Pods created one after another on the idle cluster, by each scheduler.
const SERIAL: usize = 100;
/// How long the idle operator is watched.
const IDLE: Duration = Duration::from_secs(10);

/// As in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let is = |word: &str| std::env::args().any(|argument| argument == word);
    let two = |or: [usize; 2]| [0, 1].map(|at| numbers.get(at).copied().unwrap_or(or[at]));
    if is("restart") {
        let [nodes, pods] = two([1_000, 1_000]);
        return restart::measure(nodes, pods).await;
    }
    if is("page") {
        let [nodes, workloads] = two([10_000, 5_000]);
        return page::measure(Cluster::embedded(nodes).await?, workloads, is("keep")).await;
    }
    let pods = numbers.first().copied().unwrap_or(1_000);
    let nodes = numbers.get(1).copied().unwrap_or(100);
    println!("== embedded API server, {nodes} nodes");
    measure(Cluster::embedded(nodes).await?, pods, None).await?;
    match real_server::assets() {
        None => println!("== no real API server: KUBEBUILDER_ASSETS is not set"),
        Some(assets) => {
            println!("== kube-apiserver and etcd, {nodes} nodes");
            let cluster = Cluster::real(&assets, nodes).await?;
            let beside = assets.join("kube-scheduler");
            measure(cluster, pods, beside.exists().then_some(beside)).await?;
        }
    }
    Ok(())
}

async fn measure(cluster: Cluster, pods: usize, beside: Option<std::path::PathBuf>) -> anyhow::Result<()> {
    let operator = Process::operator(&cluster).await?;
    let kube_scheduler = match &beside {
        Some(binary) => Some(Process::kube_scheduler(binary, &cluster)?),
        None => None,
    };
    let load = Load::start(cluster.admin.clone());
    // Both schedulers are warm, and out of their start-up, before anything is measured.
    load.serial(OURS, "warm-up", 5).await?;
    if kube_scheduler.is_some() {
        load.serial(KUBE, "warm-up-kube", 5).await?;
    }
    load.clean().await?;

    for gpus in [0, 1] {
        let count = if gpus == 0 { pods } else { pods * 4 / 5 };
        burst(&cluster, &load, &operator, OURS, count, gpus).await?;
        if let Some(process) = &kube_scheduler {
            burst(&cluster, &load, process, KUBE, count, gpus).await?;
        }
    }
    one_by_one(&load, kube_scheduler.is_some()).await?;
    idle(&cluster, &operator).await?;
    operator.stop().await
}

async fn burst(
    cluster: &Cluster,
    load: &Load,
    process: &Process,
    scheduler: &str,
    pods: usize,
    gpus: usize,
) -> anyhow::Result<()> {
    cluster.forget_writes();
    let cpu = process.cpu_seconds();
    let name = format!("{}-gpu{gpus}", &scheduler[..3]);
    let burst = load.burst(scheduler, &name, pods, gpus).await?;
    let cpu = process.cpu_seconds() - cpu;
    println!(
        "{scheduler:<18} {} of {pods} pods of {gpus} GPUs bound: {:.0} pods/s (created at {:.0}/s), created → bound {}; {cpu:.2} CPU s, {} MiB at most",
        burst.bound,
        burst.bound as f64 / burst.until_bound.as_secs_f64(),
        pods as f64 / burst.until_created.as_secs_f64(),
        burst.latencies,
        process.peak_memory_mib(),
    );
    if scheduler == OURS {
        // Statuses and events may trail the bindings.
        tokio::time::sleep(Duration::from_secs(3)).await;
        for (what, writes) in cluster.operator_writes() {
            println!("    {what:<40} {writes:>6}  {:.3} per pod", writes as f64 / pods as f64);
        }
    }
    load.clean().await
}

/// Alternates between the schedulers, pod by pod, so that both see the same machine.
async fn one_by_one(load: &Load, beside: bool) -> anyhow::Result<()> {
    let (mut ours, mut kube) = (Vec::new(), Vec::new());
    for i in 0..SERIAL {
        ours.extend(load.serial(OURS, &format!("one-{i}"), 1).await?);
        if beside {
            kube.extend(load.serial(KUBE, &format!("one-kube-{i}"), 1).await?);
        }
    }
    for (scheduler, times) in [(OURS, ours), (KUBE, kube)] {
        if !times.is_empty() {
            println!(
                "{scheduler:<18} {} pods one by one: created → bound {}, of which the creation {}",
                times.len(),
                Latencies::of(times.iter().map(|t| t.bound).collect()),
                Latencies::of(times.iter().map(|t| t.created).collect()),
            );
        }
    }
    load.clean().await
}

async fn idle(cluster: &Cluster, operator: &Process) -> anyhow::Result<()> {
    tokio::time::sleep(Duration::from_secs(3)).await;
    cluster.forget_writes();
    let cpu = operator.cpu_seconds();
    tokio::time::sleep(IDLE).await;
    println!(
        "{OURS:<18} idle for {} s: {:.2} CPU s, writes: {:?}",
        IDLE.as_secs(),
        operator.cpu_seconds() - cpu,
        cluster.operator_writes(),
    );
    Ok(())
}
