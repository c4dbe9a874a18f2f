//! `unikai requeue`: evicts the pods of a running pod group, so that it is scheduled again, at its then current position in the queue.
//!
//! The pod group is held meanwhile. Otherwise its first new pod would join those of its gang that still run.

use std::process::ExitCode;

use anyhow::{Context, anyhow, bail, ensure};
use kube::Api;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Client, Connection, Subject, Where};
use super::evict::{self, LOOK, placed};
use super::hold::{Kind, Refused, set};
use super::output::say;
use crate::api::PodGroup;
use crate::operator::shutdown;

/// Arguments of `unikai requeue`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    subject: Subject<Kind>,

    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    how: evict::Evictions,

    #[command(flatten)]
    connection: Connection,
}

/// The reason of this command's holds.
const REASON: &str = "requeued";

const EXAMPLES: &str = "\
Examples:
  unikai requeue podgroup train -n team

It takes the right to patch podgroups.scheduling.run.ai, to get pods and to create pods/eviction in the namespace. Disruption budgets
hold. Controllers make the pods anew; a Job counts an evicted pod as failed, unless its podFailurePolicy ignores DisruptionTarget.";

/// Runs the subcommand.
///
/// # Errors
/// When operator or API server cannot be reached or refuse, or pods are still there after the time for it.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?;
    let (namespace, name) = (args.at.one(&client), args.subject.name.as_str());
    let deadline = Instant::now() + args.how.timeout;
    let (details, pods) = placed(&client, &namespace, name).await?;
    let held = details.workload.held.as_ref();
    // Left by a run that could not release it.
    let left = held.is_some_and(|held| held.queue.is_none() && held.reason.as_deref() == Some(REASON));
    ensure!(
        left || !pods.is_empty(),
        "no pod of podgroup {namespace}/{name} has a node; it is queued already"
    );
    let there = evict::read(client.cluster()?, &namespace, &pods).await?;
    evict::refuse_lone(&there, args.how.force)?;
    // One that is held otherwise stays so.
    if held.is_some() && !left {
        evict_all(&client, &namespace, name, deadline).await?;
        say!("podgroup {namespace}/{name} is held, and waits");
        return Ok(ExitCode::SUCCESS);
    }
    let end = CancellationToken::new();
    tokio::spawn(shutdown::on_signal(end.clone()));
    evict_held(&client, &namespace, name, deadline, &end).await?;
    say!("podgroup {namespace}/{name} is queued again");
    Ok(ExitCode::SUCCESS)
}

/// Evicts the pods while the pod group is held, and releases it then, also if the command is to end before.
async fn evict_held(
    client: &Client,
    namespace: &str,
    name: &str,
    deadline: Instant,
    end: &CancellationToken,
) -> anyhow::Result<()> {
    let api: Api<PodGroup> = Api::namespaced(client.cluster()?.api.clone(), namespace);
    let evicted = end.run_until_cancelled(async {
        set(&api, name, Some(REASON)).await?;
        evict_all(client, namespace, name, deadline).await
    });
    let evicted = evicted.await.unwrap_or_else(|| Err(anyhow!("interrupted")));
    // Without an answer it may be held, too.
    if !evicted.as_ref().is_err_and(anyhow::Error::is::<Refused>) {
        // The pod group of a single pod may have been deleted with it.
        let released = set(&api, name, None).await;
        released.with_context(|| format!("still held: unikai release podgroup {name} -n {namespace}"))?;
    }
    evicted
}

/// Evicts all pods that hold resources on a node, once the scheduler has read the hold.
async fn evict_all(client: &Client, namespace: &str, name: &str, deadline: Instant) -> anyhow::Result<()> {
    loop {
        let (details, pods) = match placed(client, namespace, name).await {
            Ok(found) => found,
            // The pod group was deleted with its pods.
            Err(_) if is_gone(client, namespace, name).await? => return Ok(()),
            Err(error) => return Err(error),
        };
        if details.workload.held.is_some() {
            let there = evict::read(client.cluster()?, namespace, &pods).await?;
            if there.is_empty() {
                return Ok(());
            }
            evict::evict(client.cluster()?, &there, deadline).await?;
        }
        if Instant::now() > deadline {
            bail!("the operator has not seen the hold");
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn is_gone(client: &Client, namespace: &str, name: &str) -> anyhow::Result<bool> {
    let api: Api<PodGroup> = Api::namespaced(client.cluster()?.api.clone(), namespace);
    Ok(api.get_opt(name).await?.is_none())
}

#[cfg(test)]
mod tests;
