//! `unikai dev`: a cluster on this machine with the operator in it, for kubectl; or simulated nodes for a real API server.

pub mod cluster;
pub(super) mod install;

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio_util::sync::CancellationToken;

use self::cluster::LocalCluster;
use crate::cli::output::say;
use crate::devcluster::world::{NodeSpec, Timings, World, WorldHandle, WorldOptions};
use crate::operator::settings::{EmbeddedArgs, Settings};
use crate::operator::shutdown;

/// Arguments of `unikai dev`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    // First, since what it says of flags is said of all before them.
    #[command(flatten)]
    operator: OperatorArgs,

    #[command(flatten)]
    nodes: NodeArgs,

    /// Write the kubeconfig file into this folder, as unikai-dev.kubeconfig [default: a new file in the folder for temporary files]
    #[arg(long, value_name = "FOLDER", conflicts_with = "kubeconfig")]
    kubeconfig_out: Option<PathBuf>,

    /// Run the cluster without operator and CRDs
    #[arg(long, conflicts_with = "kubeconfig")]
    no_operator: bool,

    /// Add simulated nodes to the API server of this kubeconfig instead, until the process ends; without embedded cluster and operator
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Also run workload controllers, garbage collection and a default scheduler, for an API server that has none
    #[arg(long, requires = "kubeconfig")]
    controllers: bool,

    /// Seconds between the Lease renewals of simulated nodes, for clusters with a node lifecycle controller; 0: no renewals
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "kubeconfig")]
    heartbeat: u64,
}

/// The operator's flags, where there is an operator.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
#[command(
    mut_arg("gpu_sharing", |arg| arg.default_value("true")),
    mut_args(|arg| arg.conflicts_with_all(["kubeconfig", "no_operator"]))
)]
struct OperatorArgs {
    #[command(flatten)]
    flags: EmbeddedArgs,
}

/// The simulated nodes.
#[derive(Debug, Clone, clap::Args)]
pub struct NodeArgs {
    /// Nodes with GPUs
    #[arg(long, value_name = "N", default_value_t = 2)]
    gpu_nodes: u32,

    /// GPUs of each node with GPUs
    #[arg(long, value_name = "N", default_value_t = 8)]
    gpus_per_node: u32,

    /// Nodes without GPUs
    #[arg(long, value_name = "N", default_value_t = 2)]
    cpu_nodes: u32,
}

const EXAMPLES: &str = "\
Examples:
  unikai dev                                        then, in another terminal, what it prints
  unikai dev --gpu-nodes 100 --cpu-nodes 0
  unikai dev --queue-labels warn --http-address 127.0.0.1:8080
  unikai dev --kubeconfig ~/.kube/config            simulated nodes and kubelets for a cluster that has none

The flags of the operator are those of `unikai run`, but for these defaults: it serves on free ports of the loopback address, and GPUs may be shared.
Pods run for as long as their command says (`sleep 30`, `true`, `exit 1` in sh -c), or the annotations
unikai.dev/run-seconds and unikai.dev/exit-code; any other container runs until it is deleted.
Ends at SIGINT (Ctrl-C) or SIGTERM and takes away what it made.";

impl Default for NodeArgs {
    /// Two nodes with 8 GPUs, two without.
    fn default() -> Self {
        Self {
            gpu_nodes: 2,
            gpus_per_node: 8,
            cpu_nodes: 2,
        }
    }
}

impl NodeArgs {
    /// The nodes, named `gpu-node-1`… and `cpu-node-1`….
    #[must_use]
    pub fn specs(&self) -> Vec<NodeSpec> {
        let gpu = (1..=self.gpu_nodes).map(|number| NodeSpec::gpu(format!("gpu-node-{number}"), self.gpus_per_node));
        let cpu = (1..=self.cpu_nodes).map(|number| NodeSpec::cpu(format!("cpu-node-{number}")));
        gpu.chain(cpu).collect()
    }

    fn describe(&self) -> String {
        let nodes = u64::from(self.gpu_nodes) + u64::from(self.cpu_nodes);
        let gpus = u64::from(self.gpu_nodes) * u64::from(self.gpus_per_node);
        let plural = |count| if count == 1 { "" } else { "s" };
        format!("{nodes} node{}, {gpus} GPU{}", plural(nodes), plural(gpus))
    }
}

/// The example of the source tree, which exists only where the sources are.
const QUICK_START: &str = "docs/quickstart.yaml";

/// A command that creates a pod of ours without a file.
const SCHEDULED_RUN: &str = r#"kubectl run hello --image=busybox --overrides='{"spec":{"schedulerName":"kai-scheduler"}}' -- sleep 600
  kubectl get pods -o wide -w"#;

/// Runs until a signal or a failure, and cleans up.
///
/// # Errors
/// When something cannot be started, or fails later.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let end = CancellationToken::new();
    let told = tokio::spawn(shutdown::on_signal(end.clone()));
    let outcome = match &args.kubeconfig {
        Some(kubeconfig) => lend_nodes(&args, kubeconfig, &end).await,
        None => run_cluster(&args, &end).await,
    };
    told.abort();
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn run_cluster(args: &Args, end: &CancellationToken) -> anyhow::Result<()> {
    let settings = if args.no_operator {
        None
    } else {
        Some(Settings::try_from(args.operator.flags.clone())?)
    };
    let starting = Box::pin(LocalCluster::start(args.nodes.specs(), settings));
    let Some(started) = end.run_until_cancelled(starting).await else {
        return Ok(());
    };
    let mut cluster = started?;
    let outcome = match KubeconfigFile::write(args.kubeconfig_out.as_deref(), &cluster.kubeconfig()) {
        Ok(file) => {
            greet(args, &file.path, cluster.operator_url().as_deref())?;
            tokio::select! {
                () = end.cancelled() => Ok(()),
                error = cluster.failed() => Err(error),
            }
        }
        Err(error) => Err(error),
    };
    let stopped = cluster.stop().await;
    outcome.and(stopped)
}

/// Simulates nodes for another API server.
async fn lend_nodes(args: &Args, kubeconfig: &Path, end: &CancellationToken) -> anyhow::Result<()> {
    let about = || format!("--kubeconfig {}", kubeconfig.display());
    let file = Kubeconfig::read_from(kubeconfig).with_context(about)?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .with_context(about)?;
    let client = kube::Client::try_from(config).with_context(about)?;
    let options = WorldOptions {
        nodes: args.nodes.specs(),
        controllers: args.controllers,
        timings: Timings {
            heartbeat: Some(args.heartbeat)
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            ..Timings::default()
        },
        ..WorldOptions::default()
    };
    let started = World::start(client, options).await.map_err(|error| match error {
        kube::Error::Api(status) => anyhow!("{}", status.message),
        error => error.into(),
    });
    let mut world = started.context("the simulated nodes cannot be registered")?;
    say!(
        "The cluster has simulated nodes ({}) until Ctrl-C ends them.",
        args.nodes.describe()
    );
    let outcome = tokio::select! {
        () = end.cancelled() => Ok(()),
        reason = world.wait() => Err(anyhow!(reason)),
    };
    let left = take_nodes_away(world).await;
    outcome.and(left)
}

async fn take_nodes_away(world: WorldHandle) -> anyhow::Result<()> {
    let removed = world.remove_all_nodes(Duration::from_secs(10)).await;
    world.shutdown().await;
    removed.context("the simulated nodes could not all be taken away")
}

/// Prints what was started and which commands come next.
fn greet(args: &Args, kubeconfig: &Path, operator: Option<&str>) -> anyhow::Result<()> {
    let (with, mut next) = match operator {
        None => (
            "without an operator",
            "kubectl run hello --image=busybox -- sleep 600".to_owned(),
        ),
        Some(_) if Path::new(QUICK_START).exists() => (
            "with the operator in it",
            "kubectl apply -f docs/quickstart.yaml\n  kubectl get pods -n team -o wide -w".to_owned(),
        ),
        Some(_) => ("with the operator in it", SCHEDULED_RUN.to_owned()),
    };
    let mut addresses = String::new();
    if let Some(url) = operator {
        let unikai = this_program(std::env::var_os("PATH"));
        next += &format!("\n  {unikai} jobs -A\n  {unikai} queues\n  {unikai} top");
        addresses = format!("The operator serves HTTP at {url}, such as {url}/metrics and {url}/readyz.\n");
    }
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "A cluster ({}) runs on this machine, {with}. In another terminal:\n\n  \
         export KUBECONFIG={}\n  kubectl get nodes\n  {next}\n\n{addresses}Ctrl-C ends it.",
        args.nodes.describe(),
        kubeconfig.display(),
    )?;
    Ok(out.flush()?)
}

/// The command that runs this program: its name, if it is in the search path.
fn this_program(search_path: Option<OsString>) -> String {
    let Ok(own) = std::env::current_exe() else {
        return "unikai".to_owned();
    };
    let is_own = |folder: PathBuf| folder.join("unikai").canonicalize().is_ok_and(|found| found == own);
    if search_path.is_some_and(|folders| std::env::split_paths(&folders).any(is_own)) {
        "unikai".to_owned()
    } else {
        own.display().to_string()
    }
}

/// A kubeconfig file that only its owner can read. It is deleted when this value is dropped.
struct KubeconfigFile {
    path: PathBuf,
}

impl KubeconfigFile {
    fn write(folder: Option<&Path>, content: &str) -> anyhow::Result<Self> {
        let path = match folder {
            Some(folder) => {
                fs::create_dir_all(folder).with_context(|| format!("--kubeconfig-out {}", folder.display()))?;
                // An absolute path, since it is printed to be used in other terminals.
                folder.canonicalize()?.join("unikai-dev.kubeconfig")
            }
            None => std::env::temp_dir().join(format!("unikai-dev-{}.kubeconfig", std::process::id())),
        };
        let about = || path.display().to_string();
        // An existing file is replaced, so that nothing is written through another user's link.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error).with_context(about),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .with_context(about)?;
        file.write_all(content.as_bytes()).with_context(about)?;
        Ok(Self { path })
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests;
