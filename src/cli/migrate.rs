//! `unikai migrate`: from KAI to unikai and back, on a cluster whose pods keep running.
//!
//! Only one of the two schedules at any time. `adopt` scales down KAI's Deployments, its operator first as that would scale up the others again,
//! waits until their pods are gone and their Leases free, and only then scales up unikai; `back` does the same in the opposite direction. Queues, pod
//! groups, bind requests, reservation pods and configuration stay as they are: both read the same. Each step reads the current state and does what is
//! missing, and what the way back needs is recorded with the change that requires it, so either can be interrupted at any time and run again.

mod check;
pub(super) mod found;
mod pod_security;
mod policies;
mod steps;
pub(super) mod webhooks;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use kube::Client;

use super::client::{self, Kubeconfig};
use crate::api::names::object;
use crate::cli::output::say;
use found::Found;
use steps::Steps;

/// Timeout of a request.
const REQUEST: Duration = Duration::from_secs(10);

/// Arguments of `unikai migrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Print which Deployments of KAI run, what adopt would do, and which settings have no effect in unikai; changes nothing
    Check(Common),
    /// Stop KAI and start unikai
    Adopt(Steered),
    /// Stop unikai and start KAI again as it was
    Back(Steered),
}

#[derive(Debug, clap::Args)]
struct Common {
    /// The namespace of KAI and unikai
    #[arg(long, value_name = "NAMESPACE", default_value = object::NAMESPACE)]
    namespace: String,

    // Last, since its heading is that of all flags after it.
    #[command(flatten)]
    kubeconfig: Kubeconfig,
}

#[derive(Debug, clap::Args)]
struct Steered {
    /// Print the steps without executing them
    #[arg(long)]
    dry_run: bool,

    /// How long to wait for pods to start or terminate, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 180)]
    timeout: u64,

    // Last, since a heading in it is that of all flags after it.
    #[command(flatten)]
    common: Common,
}

const EXAMPLES: &str = "\
Examples:
  unikai migrate check
  unikai migrate adopt --dry-run
  unikai migrate adopt
  unikai manifests --image IMAGE | kubectl apply -f - if unikai is not installed yet
  unikai migrate back

Both can be run again at any time: completed steps are skipped.";

/// Runs the subcommand.
///
/// # Errors
/// When something is not as expected, a request fails, or what is waited for does not come.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Check(common) => {
            let client = common.client().await?;
            let found = Found::look(&client, &common.namespace).await?;
            check::print(&client, &found).await?;
            say!("\nadopt would do this:");
            let steps = Steps::new(client, found, true, Duration::ZERO);
            if let Err(why) = steps.adopt().await {
                say!("nothing, because {why:#}");
            }
        }
        What::Adopt(steered) => steered.steps().await?.adopt().await?,
        What::Back(steered) => steered.steps().await?.back().await?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Common {
    async fn client(&self) -> anyhow::Result<Client> {
        client::api_server(&self.kubeconfig, REQUEST).await
    }
}

impl Steered {
    async fn steps(&self) -> anyhow::Result<Steps> {
        let client = self.common.client().await?;
        let found = Found::look(&client, &self.common.namespace).await?;
        let max_wait = Duration::from_secs(self.timeout);
        Ok(Steps::new(client, found, self.dry_run, max_wait))
    }
}

/// The answer to a request, with a timeout.
pub(super) async fn within<T>(what: &str, request: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
    let answer = tokio::time::timeout(REQUEST, request);
    let answer = answer
        .await
        .with_context(|| format!("{what}: the API server does not answer"))?;
    answer.with_context(|| what.to_owned())
}

/// The same, where the object or its kind may be missing.
pub(super) async fn if_there<T>(
    what: &str,
    request: impl Future<Output = kube::Result<T>>,
) -> anyhow::Result<Option<T>> {
    let request = async {
        match request.await {
            Ok(answer) => Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    };
    within(what, request).await
}
