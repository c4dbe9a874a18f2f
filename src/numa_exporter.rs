//! The process on each node with NUMA zones: it reads from the kubelet which devices, CPUs and memory each pod got, and writes into the pod's
//! annotation how much of it is in which zone. The scheduler's plugin `numa` uses the annotation.
//!
//! A watch of the node's pods shows the current annotations, so nothing is written twice, and a pod that is re-created under the same name is
//! recognized. The DaemonSet is created by the operator.

pub mod cpus;
mod known;
pub mod kubelet;
pub mod placement;
mod repeated_error;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use crate::api::names::annotation;
use cpus::Cpus;
use known::{Key, Known};
use repeated_error::RepeatedError;

/// Seconds after which the watch is resumed.
pub const WATCH: u32 = 290;

/// Minimum interval between requests to the kubelet.
pub const POLL_LEAST: Duration = Duration::from_millis(100);

/// The settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node that it runs on.
    pub node: String,
    /// The kubelet's socket.
    pub socket: PathBuf,
    /// Where the host's sysfs is.
    pub sysfs: PathBuf,
    /// Interval of requests to the kubelet.
    pub poll: Duration,
    /// Interval at which annotations are compared with what was written; `None`: never.
    pub resync: Option<Duration>,
}

/// Reads from the kubelet and writes annotations until the end. `requests` has a deadline; `watches` is for the watch.
///
/// # Errors
/// When the node's CPUs cannot be read.
pub async fn run(settings: Settings, requests: Client, watches: Client, end: CancellationToken) -> anyhow::Result<()> {
    let cpus = cpus::read(&settings.sysfs).context("the CPUs of this node's NUMA zones cannot be read")?;
    info!(node = settings.node, cpus = cpus.len(), "NUMA exporter started");
    let of_node = watcher::Config::default()
        .timeout(WATCH)
        .fields(&format!("spec.nodeName={}", settings.node));
    let mut events = watcher(Api::<PartialObjectMeta<Pod>>::all(watches), of_node)
        .default_backoff()
        .boxed();
    let mut polls = interval(settings.poll);
    polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut compared = Instant::now();
    let mut exporter = Exporter {
        settings,
        cpus,
        requests,
        known: Known::default(),
        asking: RepeatedError::new("the kubelet cannot be asked"),
        writing: RepeatedError::new("a pod cannot be annotated"),
        watching: RepeatedError::new("the node's pods cannot be watched"),
    };
    let work = async {
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(event) => {
                        exporter.watching.passed();
                        exporter.known.see(event);
                    }
                    Err(error) => exporter.watching.failed(&error),
                },
                _ = polls.tick() => {
                    if exporter.settings.resync.is_some_and(|every| compared.elapsed() >= every) {
                        compared = Instant::now();
                        exporter.known.forget_written();
                    }
                    exporter.step().await;
                }
            }
        }
    };
    end.run_until_cancelled(work).await;
    Ok(())
}

struct Exporter {
    settings: Settings,
    cpus: Cpus,
    requests: Client,
    known: Known,
    asking: RepeatedError,
    writing: RepeatedError,
    watching: RepeatedError,
}

impl Exporter {
    /// Reads once, and writes differences. Failures are retried in the next step, refused writes later.
    async fn step(&mut self) {
        if !self.known.is_listed() {
            return;
        }
        let listed = match kubelet::list(&self.settings.socket).await {
            Ok(listed) => listed,
            Err(error) => return self.asking.failed(&error),
        };
        self.asking.passed();
        let placements: BTreeMap<Key, String> = listed
            .pod_resources
            .iter()
            .filter_map(|pod| {
                let key = (pod.namespace.clone(), pod.name.clone());
                Some((key, placement::of(pod, &self.cpus)?))
            })
            .collect();
        let mut failed = false;
        for (key, text) in placements {
            let Some(uid) = self.known.differs(&key, &text) else {
                continue;
            };
            match self.write(&key, &uid, &text).await {
                Ok(()) => {
                    debug!(ns = key.0, pod = key.1, "placement written");
                    self.known.wrote(&key, &uid, text);
                }
                // It was deleted, or another pod has its name.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                Err(error) => {
                    // One per step: messages about several pods differ by their names alone.
                    if !failed {
                        self.writing.failed(&error);
                    }
                    failed = true;
                    match &error {
                        kube::Error::Api(status) if concerns_pod(status.code) => self.known.refused(&key, &uid, text),
                        kube::Error::Api(_) => {}
                        // If the API server cannot be reached, the others are not tried.
                        _ => break,
                    }
                }
            }
        }
        // Refused writes that wait are not resolved.
        if !failed && !self.known.any_refused() {
            self.writing.passed();
        }
    }

    async fn write(&self, (namespace, name): &Key, uid: &str, text: &str) -> kube::Result<()> {
        // The answer need not contain the whole pod.
        let pods: Api<PartialObjectMeta<Pod>> = Api::namespaced(self.requests.clone(), namespace);
        let patch = json!({"metadata": {"uid": uid, "annotations": {annotation::NUMA_PLACEMENT_OBSERVED: text}}});
        let patched = pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop)
    }
}

/// Whether an answer may concern one pod alone, as those of policies do, and not all of them: an invalid token (401), a timeout (408) and a limit (429) do not.
fn concerns_pod(code: u16) -> bool {
    (400..500).contains(&code) && !matches!(code, 401 | 408 | 429)
}

#[cfg(test)]
mod tests {
    use super::concerns_pod;

    #[test]
    fn only_refusals_of_one_pod_put_it_off() {
        assert!([400, 403, 413, 422].into_iter().all(concerns_pod));
        assert!(![401, 408, 429, 500, 503].into_iter().any(concerns_pod));
    }
}
