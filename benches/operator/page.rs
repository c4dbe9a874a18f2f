//! What the page costs in a large cluster: the size of what is served, and the operator's CPU time for one viewer.
//!
//! The viewer sends the same requests as the page, as often as the page does: each view in turn, with the entity tags of the last responses.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use unikai::devcluster::apiserver::Identity;

use crate::cluster::Cluster;
use crate::process::Process;

/// From one reading to the next.
const EVERY: Duration = Duration::from_secs(10);
/// How often each view is read.
const READINGS: usize = 6;
/// How long to wait before, without changes.
const SETTLE: Duration = Duration::from_secs(30);
/// Parallel requests that create.
const WORKERS: usize = 32;

/// The views, and what each reads.
const VIEWS: &[(&str, &[&str])] = &[
    (
        "queues",
        &["queues", "queue-history?queue=default", "explain/queues/default"],
    ),
    ("nodes", &["gpu-map", "nodes/node-0000"]),
    ("workloads", &["workloads?waiting=true&order=line&limit=200"]),
    ("evictions", &["evictions?limit=200"]),
];

/// The page's own files, as a browser without any of them asks for them.
const FILES: &[&str] = &[
    "/",
    "/page/style.css",
    "/page/icon.svg",
    "/page/answers.js",
    "/page/api.js",
    "/page/chart.js",
    "/page/dom.js",
    "/page/evictions.js",
    "/page/format.js",
    "/page/keys.js",
    "/page/main.js",
    "/page/map.js",
    "/page/nodes.js",
    "/page/queues.js",
    "/page/session.js",
    "/page/what_if.js",
    "/page/workload.js",
    "/page/workloads.js",
];

/// Fills a cluster with workloads, of which four fifths run, and looks at it. With `keep`, it stays until Ctrl-C, for a browser.
pub async fn measure(cluster: Cluster, workloads: usize, keep: bool) -> anyhow::Result<()> {
    let operator = Process::operator(&cluster).await?;
    let began = Instant::now();
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), "load");
    stream::iter(0..workloads)
        .map(|number| create(&pods, number))
        .buffer_unordered(WORKERS)
        .try_collect::<Vec<()>>()
        .await?;
    println!(
        "{workloads} workloads were created in {:.0} s",
        began.elapsed().as_secs_f64()
    );
    let viewer = Viewer {
        port: operator.http,
        token: cluster
            .token(&Identity::admin())
            .context("needs the embedded API server")?,
    };
    println!("http://127.0.0.1:{}/#token={}", viewer.port, viewer.token);
    tokio::time::sleep(SETTLE).await;

    let mut sent = 0;
    for path in FILES {
        sent += viewer.ask(path, None).await?.bytes;
    }
    println!("the page's own files: {} KiB", sent >> 10);
    let before = operator.cpu_seconds();
    tokio::time::sleep(EVERY * 3).await;
    let idle = (operator.cpu_seconds() - before) / (EVERY * 3).as_secs_f64() * 100.0;
    println!("nobody looks: {idle:.2} % of a core");
    for (view, paths) in VIEWS {
        look(&viewer, &operator, view, paths, idle).await?;
    }
    if keep {
        println!("it stays until Ctrl-C");
        tokio::signal::ctrl_c().await?;
    }
    operator.stop().await
}

async fn look(viewer: &Viewer, operator: &Process, view: &str, paths: &[&str], idle: f64) -> anyhow::Result<()> {
    let mut tags: HashMap<&str, String> = HashMap::new();
    let (mut first, mut later, mut longest) = (0, 0, Duration::ZERO);
    let (cpu, began) = (operator.cpu_seconds(), Instant::now());
    for reading in 0..READINGS {
        for path in paths {
            let asked = Instant::now();
            let answer = viewer
                .ask(&format!("/api/v1/{path}"), tags.get(path).map(String::as_str))
                .await?;
            longest = longest.max(asked.elapsed());
            if reading == 0 {
                first += answer.bytes;
            } else {
                later += answer.bytes;
            }
            tags.extend(answer.tag.map(|tag| (*path, tag)));
        }
        tokio::time::sleep(EVERY).await;
    }
    let used = (operator.cpu_seconds() - cpu) / began.elapsed().as_secs_f64() * 100.0;
    println!(
        "{view:<10} {} KiB at first, {} KiB a reading later; {:.0} ms at most for an answer; {:.2} % of a core for the viewer",
        first >> 10,
        (later / (READINGS - 1)) >> 10,
        longest.as_secs_f64() * 1e3,
        used - idle
    );
    Ok(())
}

/// A pod that runs on any node, or one that waits because no node has its label.
async fn create(pods: &Api<Pod>, number: usize) -> anyhow::Result<()> {
    let waits = number.is_multiple_of(5);
    let gpus = if waits { 8 } else { [8, 8, 4, 2][number % 4] };
    let mut pod: Value = json!({
        "metadata": {"name": format!("train-{number:05}"), "labels": {"kai.scheduler/queue": "test"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "pause", "resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}],
        },
    });
    if waits {
        pod["spec"]["nodeSelector"] = json!({"disk": format!("ssd-{}", number % 7)});
    }
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    Ok(())
}

struct Viewer {
    port: u16,
    token: String,
}

struct Sent {
    bytes: usize,
    tag: Option<String>,
}

impl Viewer {
    async fn ask(&self, path: &str, tag: Option<&str>) -> anyhow::Result<Sent> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let known = tag.map_or_else(String::new, |tag| format!("If-None-Match: {tag}\r\n"));
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nX-Unikai-Token: {}\r\nAccept-Encoding: gzip\r\n{known}Connection: close\r\n\r\n",
            self.token
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let head = String::from_utf8_lossy(answer.get(..1_024).unwrap_or(&answer)).to_lowercase();
        if !head.starts_with("http/1.1 200") && !head.starts_with("http/1.1 304") {
            bail!("{path}: {}", head.lines().next().unwrap_or_default());
        }
        let tag = head.lines().find_map(|line| line.strip_prefix("etag: "));
        Ok(Sent {
            bytes: answer.len(),
            tag: tag.map(|tag| tag.trim().replace("w/", "W/")),
        })
    }
}
