//! The command line, one file per subcommand. Each has its own `Args` and a `run` that returns the exit status; an error is an `anyhow` error that is
//! printed here, once, with its chain of causes.

// Writes to a closed standard output must not panic: see `output`.
#![deny(clippy::print_stdout)]

mod check;
mod client;
mod completion;
pub mod crds;
#[cfg(feature = "devcluster")]
pub mod demo;
#[cfg(feature = "devcluster")]
pub mod dev;
mod docs;
mod download;
mod drain;
mod evict;
mod explain;
pub mod fields;
pub mod group;
mod hold;
mod jobs;
pub mod manifests;
mod migrate;
mod nodes;
pub mod numa_exporter;
pub mod output;
mod page;
mod profile;
mod progress;
mod queues;
mod release;
pub mod replay;
mod requeue;
pub mod reserve;
mod review;
pub mod run;
mod show;
mod simulate;
pub mod snapshot;
mod top;
mod what_if;
mod why_evicted;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::operator::telemetry;

/// A Kubernetes scheduler for AI workloads: gangs, queues with quotas and fair share, shared GPUs, topology.
#[derive(Debug, Parser)]
#[command(name = "unikai", version, max_term_width = 110, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    telemetry: telemetry::Args,

    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  unikai demo                                   a demonstration; needs no cluster
  unikai dev                                    a cluster on this machine with unikai in it, for kubectl
  unikai run --kubeconfig ~/.kube/config \\
      --webhook-url https://192.0.2.7:9443      schedule for a cluster from outside of it
  unikai manifests | kubectl apply -f -         install it into a cluster

`unikai help COMMAND` describes a command.";

/// The subcommands.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run the operator (scheduler, webhooks and controllers) in a cluster, or outside of it with a kubeconfig
    Run(Box<run::Args>),
    /// Run an embedded cluster on this machine, with GPU nodes and the operator, for use with kubectl
    #[cfg(feature = "devcluster")]
    Dev(Box<dev::Args>),
    /// Run a demonstration of the scheduler in an embedded cluster, in four steps
    #[cfg(feature = "devcluster")]
    Demo(demo::Args),
    /// Explain why a pod or pod group waits, or the state of a queue or a node
    Explain(explain::Args),
    /// Show the queue tree: quotas, fair shares, amounts held and workloads that wait
    Queues(queues::Args),
    /// Show nodes and their GPUs
    Nodes(nodes::Args),
    /// Show workloads: their state, why they wait, their position in the queue
    Jobs(jobs::Args),
    /// Show recent evictions: which pods, for which workload, and why
    WhyEvicted(why_evicted::Args),
    /// Show what the scheduler would decide now for workloads that do not exist yet
    WhatIf(what_if::Args),
    /// Hold a pod group: none of its pending pods is placed until it is released; running pods stay
    Hold(hold::Args),
    /// Release a pod group that is held
    Release(release::Args),
    /// Evict the pods of a pod group, and have it scheduled again as a whole
    Requeue(requeue::Args),
    /// Hold a queue and those below it, and optionally evict the pods that run there
    Drain(drain::Args),
    /// Show queues, GPUs and workloads that wait, updated every few seconds
    Top(top::Args),
    /// Show queues, GPUs and workloads in a browser
    Page(page::Args),
    /// Print a shell completion script
    Completion(completion::Args),
    /// Reserve a shared GPU: the command of reservation pods
    Reserve(reserve::Args),
    /// Annotate pods with the NUMA zones that the kubelet allocated to them: the command of the NUMA exporter's pods
    NumaExporter(numa_exporter::Args),
    /// Print the CustomResourceDefinitions as YAML
    Crds(crds::Args),
    /// Print the effect of every field of Config and SchedulingShard
    Fields(fields::Args),
    /// Print or write the generated pages of the documentation
    Docs(docs::Args),
    /// Print the manifests of the operator, as YAML
    Manifests(manifests::Args),
    /// Check the installation in a cluster, and print a remedy for each failure
    Check(check::Args),
    /// Migrate from KAI to unikai, or back, while pods keep running
    Migrate(migrate::Args),
    /// Print what the scheduler decides for a snapshot of a cluster
    Replay(replay::Args),
    /// Fetch a snapshot of the cluster from a running operator, for `unikai replay`
    Snapshot(snapshot::Args),
    /// Record a CPU profile of a running operator, for `go tool pprof`
    Profile(profile::Args),
    /// Print the webhooks' answers to manifests or to admission requests
    Review(review::Args),
    /// Print the pod groups of the pods of workloads
    Group(group::Args),
    /// Simulate the scheduler with a cluster and a stream of workloads, on virtual time
    Simulate(simulate::Args),
}

impl Command {
    /// The log level without a flag: `info` for services, `warn` for tools.
    fn log_level(&self) -> &'static str {
        match self {
            Command::Run(_) | Command::Reserve(_) | Command::NumaExporter(_) => "info",
            #[cfg(feature = "devcluster")]
            Command::Dev(_) | Command::Demo(_) => "warn",
            Command::Crds(_) | Command::Fields(_) | Command::Docs(_) | Command::Manifests(_) => "warn",
            Command::Replay(_) | Command::Review(_) | Command::Group(_) | Command::Simulate(_) => "warn",
            Command::Snapshot(_) | Command::Profile(_) | Command::Migrate(_) | Command::Check(_) => "warn",
            Command::Explain(_) | Command::Queues(_) | Command::Nodes(_) | Command::Jobs(_) => "warn",
            Command::Hold(_) | Command::Release(_) | Command::Requeue(_) | Command::Drain(_) => "warn",
            Command::WhyEvicted(_)
            | Command::WhatIf(_)
            | Command::Top(_)
            | Command::Completion(_)
            | Command::Page(_) => "warn",
        }
    }
}

/// Parses the arguments and runs the chosen subcommand. The status is 2 for arguments that do not parse and 1 for a
/// subcommand that failed.
pub fn main() -> ExitCode {
    let matches = Cli::command()
        .bin_name(called(std::env::args_os().next()))
        .get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    use_small_pages();
    match start(cli) {
        Ok(status) => status,
        Err(error) if output::nobody_reads(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command's name in its help: kubectl runs it as a plugin if the binary is called `kubectl-unikai`.
fn called(program: Option<OsString>) -> &'static str {
    let plugin = program.is_some_and(|program| Path::new(&program).file_stem() == Some(OsStr::new("kubectl-unikai")));
    if plugin { "kubectl unikai" } else { "unikai" }
}

/// Disables transparent huge pages for this process. If the host has none free, the first access to one blocks a thread for milliseconds, longer than a
/// cycle; small pages were not slower with 24,000 pods. An error of the kernel is ignored.
pub fn use_small_pages() {
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_thp_disable(true);
}

fn start(cli: Cli) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let _telemetry = telemetry::start(&cli.telemetry, cli.command.log_level())?;
    match cli.command {
        Command::Run(args) => runtime.block_on(Box::pin(run::run(*args))),
        #[cfg(feature = "devcluster")]
        Command::Dev(args) => runtime.block_on(Box::pin(dev::run(*args))),
        #[cfg(feature = "devcluster")]
        Command::Demo(args) => runtime.block_on(Box::pin(demo::run(args))),
        Command::Reserve(args) => runtime.block_on(Box::pin(reserve::run(args))),
        Command::NumaExporter(args) => runtime.block_on(Box::pin(numa_exporter::run(args))),
        Command::Explain(args) => runtime.block_on(Box::pin(explain::run(args))),
        Command::Queues(args) => runtime.block_on(Box::pin(queues::run(args))),
        Command::Nodes(args) => runtime.block_on(Box::pin(nodes::run(args))),
        Command::Jobs(args) => runtime.block_on(Box::pin(jobs::run(args))),
        Command::WhyEvicted(args) => runtime.block_on(Box::pin(why_evicted::run(args))),
        Command::WhatIf(args) => runtime.block_on(Box::pin(what_if::run(args))),
        Command::Hold(args) => runtime.block_on(Box::pin(hold::run(args))),
        Command::Release(args) => runtime.block_on(Box::pin(release::run(args))),
        Command::Requeue(args) => runtime.block_on(Box::pin(requeue::run(args))),
        Command::Drain(args) => runtime.block_on(Box::pin(drain::run(args))),
        Command::Top(args) => runtime.block_on(Box::pin(top::run(args))),
        Command::Page(args) => runtime.block_on(Box::pin(page::run(args))),
        Command::Completion(args) => completion::run(args, Cli::command()),
        Command::Crds(args) => crds::run(args),
        Command::Fields(args) => fields::run(&args),
        Command::Docs(args) => docs::run(&args, Cli::command()),
        Command::Manifests(args) => manifests::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Check(args) => runtime.block_on(Box::pin(check::run(args))),
        Command::Migrate(args) => runtime.block_on(Box::pin(migrate::run(args))),
        Command::Snapshot(args) => runtime.block_on(Box::pin(snapshot::run(args))),
        Command::Profile(args) => runtime.block_on(Box::pin(profile::run(args))),
        Command::Review(args) => review::run(args),
        Command::Group(args) => group::run(args),
        Command::Simulate(args) => simulate::run(args),
    }
}

#[cfg(test)]
mod tests;
