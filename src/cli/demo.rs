//! `unikai demo`: the README's example in a cluster on this machine, shown live and explained.

mod screen;
mod story;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};

use self::screen::Screen;
use self::story::Story;
use super::dev::cluster::LocalCluster;
use super::dev::{NodeArgs, install};
use crate::api::Queue;
use crate::api::names::{label, resource};
use crate::cli::output::say;
use crate::devcluster::apiserver::Identity;
use crate::operator::settings::Settings;

/// The README's example.
const EXAMPLE: &str = include_str!("../../docs/quickstart.yaml");

/// The namespace that the example uses.
const NAMESPACE: &str = "team";

/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the table is looked at.
const REFRESH: Duration = Duration::from_millis(100);

/// Arguments of `unikai demo`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// What the cluster looks like at one moment.
struct Snapshot {
    pods: Vec<Pod>,
    queues: Vec<Queue>,
    nodes: Vec<Node>,
}

/// Runs the example to its end.
///
/// # Errors
/// When the cluster does not start, or not all is scheduled in time.
pub async fn run(_args: Args) -> anyhow::Result<ExitCode> {
    say!("Starting a cluster on this machine, with the operator in it …");
    let mut cluster = Box::pin(LocalCluster::start(
        NodeArgs::default().specs(),
        Some(Settings::embedded()),
    ))
    .await?;
    let client = cluster.server().client(&Identity::admin()).await?;
    let shown = tokio::select! {
        shown = show(&client) => shown,
        error = cluster.failed() => Err(error),
    };
    let stopped = cluster.stop().await;
    shown.and(stopped)?;
    say!("\nNow try it yourself: `unikai dev` keeps such a cluster up for kubectl.");
    Ok(ExitCode::SUCCESS)
}

/// Applies the example and shows the table until everything has its place.
async fn show(client: &Client) -> anyhow::Result<()> {
    let mut screen = Screen::default();
    let mut story = Story::default();
    install::yaml(client, EXAMPLE, async |object: &DynamicObject| {
        let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
        say!("applied {kind} {}", object.name_any());
        if kind == "Pod" {
            // One after the other, so that the story is the same each time.
            watch_until(client, &mut screen, &mut story, |seen| seen.pods.iter().all(is_placed)).await?;
        }
        Ok(())
    })
    .await?;
    watch_until(client, &mut screen, &mut story, |seen| {
        let members = seen
            .pods
            .iter()
            .filter(|pod| !pod.owner_references().is_empty())
            .count();
        members >= 2 && seen.pods.iter().all(is_placed) && seen.is_of_one_moment()
    })
    .await?;
    story.tell();
    Ok(())
}

/// Shows the table until `done` says so of the pods.
async fn watch_until(
    client: &Client,
    screen: &mut Screen,
    story: &mut Story,
    done: impl Fn(&Snapshot) -> bool,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let snapshot = Snapshot::take(client).await?;
        story.note(&snapshot);
        screen.draw(&snapshot)?;
        if done(&snapshot) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("not everything was scheduled within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(REFRESH).await;
    }
}

impl Snapshot {
    async fn take(client: &Client) -> kube::Result<Self> {
        let (pods, queues, nodes) = (
            Api::<Pod>::namespaced(client.clone(), NAMESPACE),
            Api::<Queue>::all(client.clone()),
            Api::<Node>::all(client.clone()),
        );
        let all = ListParams::default();
        Ok(Self {
            pods: pods.list(&all).await?.items,
            queues: queues.list(&all).await?.items,
            nodes: nodes.list(&all).await?.items,
        })
    }

    /// Whether the figures of the queues, which are written a little later, are those of the pods.
    fn is_of_one_moment(&self) -> bool {
        self.queues.iter().all(|queue| {
            let name = queue.name_any();
            let own = self.pods.iter().filter(|pod| {
                pod.labels().get(label::QUEUE) == Some(&name) && node(pod).is_some() && phase(pod) != "Succeeded"
            });
            let is_leaf = !self
                .queues
                .iter()
                .any(|other| other.spec.parent_queue.as_ref() == Some(&name));
            let status = queue.status.as_ref();
            let held = status.and_then(|status| status.allocated.get(resource::NVIDIA_GPU));
            let held = held.map_or("0", |held| held.0.as_str());
            !is_leaf || held == own.map(gpus).sum::<u32>().to_string()
        })
    }
}

/// Runs, or has run.
fn is_placed(pod: &Pod) -> bool {
    matches!(phase(pod), "Running" | "Succeeded")
}

fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

/// Why it waits, as the scheduler wrote on it.
fn reason(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    condition.message.as_deref()
}

/// Whole GPUs that the pod asks for.
fn gpus(pod: &Pod) -> u32 {
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let limits = containers
        .iter()
        .filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    limits
        .filter_map(|limits| limits.get(resource::NVIDIA_GPU)?.0.parse::<u32>().ok())
        .sum()
}
