//! `unikai run`: the operator, for the cluster that this process is in or that a kubeconfig names.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::operator::Operator;
use crate::operator::settings::{self, Settings};
use crate::operator::shutdown;

/// Arguments of `unikai run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[group(skip)]
pub struct Args {
    /// The kubeconfig file [default: the service account of the pod that this process runs in]
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig to use [default: its current one]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    context: Option<String>,

    #[command(flatten)]
    operator: settings::Args,
}

const EXAMPLES: &str = "\
Examples:
  unikai run                                            in a pod, as `unikai manifests` sets it up
  unikai run --kubeconfig unikai.kubeconfig \\
      --webhook-url https://192.0.2.7:9443              outside; the API server must reach that address

Outside, the kubeconfig must authenticate as the service account of the manifests in the operator's namespace,
system:serviceaccount:kai-scheduler:unikai: the admission policies refuse what other users write into pods.
`kubectl create token -n kai-scheduler unikai` prints a token of it.

Every flag can be given by the environment variable that is named beside it.
Ends at SIGTERM or SIGINT: finishes what is under way and hands over to another replica, if there is one.";

/// Runs the operator until a signal or a failure.
///
/// # Errors
/// When the cluster's configuration cannot be read, a setting makes no sense, or a component failed.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let settings = Settings::try_from(args.operator)?;
    let config = cluster(args.kubeconfig, args.context).await?;
    let running = Operator::start(&config, settings).await?;
    let told = shutdown::on_signal(running.shutdown_token());
    tokio::select! {
        ended = running.ended() => ended?,
        never = told => { never.context("cannot listen to signals")?; }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn cluster(kubeconfig: Option<PathBuf>, context: Option<String>) -> anyhow::Result<kube::Config> {
    let Some(path) = kubeconfig.filter(|path| !path.as_os_str().is_empty()) else {
        return kube::Config::incluster()
            .context("this process does not run in a cluster; name one with --kubeconfig FILE, or try `unikai dev`");
    };
    let about = || format!("--kubeconfig {}", path.display());
    let kubeconfig = Kubeconfig::read_from(&path).with_context(about)?;
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(about)
}
