//! Evictions on request: by the eviction API and with the caller's rights, so that disruption budgets are respected, until the pods are gone.

use std::time::Duration;

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::time::{Instant, sleep};

use super::client::{Client, Cluster};
use super::output::say;
use crate::api::views::{PodState, WorkloadDetails};
use crate::components::pods;

/// Interval of polling.
pub const LOOK: Duration = Duration::from_millis(500);
/// Delay before an eviction that a budget refused is retried.
const AGAIN: Duration = Duration::from_secs(2);
/// Concurrent evictions.
const AT_ONCE: usize = 8;

/// How pods are evicted.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Evictions {
    /// Also evict pods without a controller, which are not created again
    #[arg(long)]
    pub force: bool,

    /// How long to wait for disruption budgets and for pods to terminate
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = max_wait)]
    pub timeout: Duration,
}

fn max_wait(text: &str) -> Result<Duration, String> {
    let parsed = crate::api::duration::parse_go(text).map_err(|error| error.to_string())?;
    Duration::try_from(parsed).map_err(|_| "below nothing".to_owned())
}

/// A workload and its pods that hold resources on a node, as the operator reports them.
///
/// # Errors
/// When the operator cannot be reached or refuses.
pub async fn placed(client: &Client, namespace: &str, name: &str) -> anyhow::Result<(WorkloadDetails, Vec<String>)> {
    let details: WorkloadDetails = client.get(&format!("/workloads/{namespace}/{name}")).await?;
    let has_place = |state: PodState| {
        matches!(
            state,
            PodState::Binding | PodState::Bound | PodState::Running | PodState::Leaving | PodState::Unknown
        )
    };
    let pods = details.pods.iter().filter(|pod| has_place(pod.state));
    let pods = pods.map(|pod| pod.name.clone()).collect();
    Ok((details, pods))
}

/// The pods of these names that exist.
///
/// # Errors
/// When the API server cannot be reached or refuses.
pub async fn read(cluster: &Cluster, namespace: &str, names: &[String]) -> anyhow::Result<Vec<Pod>> {
    let api: Api<Pod> = Api::namespaced(cluster.api.clone(), namespace);
    let reads = names.iter().map(|name| api.get_opt(name));
    let read: Vec<Option<Pod>> = futures::stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

/// Refuses pods without a controller, which nothing creates again, unless `force` is set.
///
/// # Errors
/// When there are such pods.
pub fn refuse_lone(pods: &[Pod], force: bool) -> anyhow::Result<()> {
    let controlled = |pod: &&Pod| {
        let owners = pod.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| owner.controller == Some(true))
    };
    let lone: Vec<String> = pods.iter().filter(|pod| !controlled(pod)).map(named).take(5).collect();
    if !lone.is_empty() && !force {
        bail!(
            "these pods have no controller that creates them again: {}; --force evicts them nevertheless",
            lone.join(", ")
        );
    }
    Ok(())
}

fn named(pod: &Pod) -> String {
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

/// Evicts pods, and waits until they are gone.
///
/// # Errors
/// When the API server refuses, or some still exist at the deadline.
pub async fn evict(cluster: &Cluster, pods: &[Pod], deadline: Instant) -> anyhow::Result<()> {
    let evictions = pods.iter().map(|pod| evict_one(cluster, pod, deadline));
    futures::stream::iter(evictions)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn evict_one(cluster: &Cluster, pod: &Pod, deadline: Instant) -> anyhow::Result<()> {
    let (own, uid) = (named(pod), pod.metadata.uid.clone());
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let api: Api<Pod> = Api::namespaced(cluster.api.clone(), namespace);
    let pod_ref = pods::pod_ref(pod);
    let mut told = false;
    while pod.metadata.deletion_timestamp.is_none() {
        match pods::evict(&api, &pod_ref).await {
            Ok(()) => {
                say!("pod {own} is evicted");
                break;
            }
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 429 => {
                if Instant::now() + AGAIN > deadline {
                    bail!("pod {own}: {}", status.message);
                }
                if !std::mem::replace(&mut told, true) {
                    say!("pod {own} stays for now: {}", status.message);
                }
                sleep(AGAIN).await;
            }
            Err(kube::Error::Api(status)) => bail!("pod {own}: {}", status.message),
            Err(error) => return Err(error).with_context(|| format!("pod {own}: the API server cannot be asked")),
        }
    }
    loop {
        let found = api.get_opt(name).await.with_context(|| format!("pod {own}"))?;
        if found.is_none_or(|found| found.metadata.uid != uid) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("pod {own} is evicted and has not ended yet");
        }
        sleep(LOOK).await;
    }
}
