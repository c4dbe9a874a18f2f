//! `unikai drain`: holds a queue and those below it, so that nothing is started there any more, and evicts what runs there if requested.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{anyhow, bail};
use kube::Api;
use tokio::time::{Instant, sleep};

use super::client::{Client, Connection, Subject, is_forbidden};
use super::evict::{self, LOOK, placed};
use super::hold::{reason, set};
use super::output::say;
use crate::api::Queue;
use crate::api::views::{OLDEST, QueueList, Workload, WorkloadList};

/// Arguments of `unikai drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    subject: Subject<Kind>,

    /// What to do with running pods
    #[arg(long, value_enum, default_value_t)]
    policy: Policy,

    /// The reason, which is shown for workloads that wait
    #[arg(long, value_name = "TEXT", default_value = "true", hide_default_value = true, value_parser = reason)]
    reason: String,

    /// Release the queue, so that it starts workloads again
    #[arg(long, conflicts_with_all = ["policy", "reason"])]
    undo: bool,

    #[command(flatten)]
    how: evict::Evictions,

    #[command(flatten)]
    connection: Connection,
}

const EXAMPLES: &str = "\
Examples:
  unikai drain queue team --reason 'the rack is serviced on Monday'
  unikai drain queue team --policy hold-and-evict
  unikai drain queue team --undo

It takes the right to patch queues.scheduling.run.ai; to evict, also to see the workloads, to get pods and to create
pods/eviction in their namespaces. With the right to list queues it also tells whether workloads in other namespaces
still run there. Disruption budgets hold.";

/// What can be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A queue
    #[value(alias = "queues")]
    Queue,
}

/// What to do with running pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Policy {
    /// Running pods stay
    #[default]
    Hold,
    /// Running pods are evicted
    HoldAndEvict,
}

/// Runs the subcommand.
///
/// # Errors
/// When operator or API server cannot be reached or refuse, or pods are still there after the time for it.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = Client::open(&args.connection).await?;
    let (queues, name): (Api<Queue>, _) = (Api::all(client.cluster()?.api.clone()), args.subject.name.as_str());
    if args.undo {
        if set(&queues, name, None).await?.is_none() {
            bail!("there is no queue {name}");
        }
        say!("queue {name} starts workloads again");
        return Ok(ExitCode::SUCCESS);
    }
    set(&queues, name, Some(&args.reason)).await?;
    say!("queue {name} is held: nothing is started in it and below it");
    if args.policy == Policy::HoldAndEvict {
        evict_all(&client, name, args.how, OLDEST + LOOK).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Evicts the pods of the queue and the queues below it, until none is left. Each replica caches its lists, for up to `oldest`: until then they may lack a
/// pod that was started just before the hold.
async fn evict_all(client: &Client, queue: &str, how: evict::Evictions, oldest: Duration) -> anyhow::Result<()> {
    // A shorter timeout would end before it can be seen that nothing runs.
    let (deadline, mut trouble) = (Instant::now() + how.timeout.max(oldest + LOOK), None);
    let recent = Instant::now() + oldest;
    loop {
        let is_recent = Instant::now() >= recent;
        let list: WorkloadList = client.list(&format!("/workloads?queue={queue}")).await?;
        let runs = |workload: &&Workload| workload.pods.running + workload.pods.leaving > 0;
        let running: Vec<&Workload> = list.workloads.iter().filter(runs).collect();
        let noted = list.workloads.iter().all(|workload| workload.held.is_some());
        if noted && is_recent && running.is_empty() {
            break;
        }
        if is_recent && Instant::now() > deadline {
            let over = || match running.len() {
                0 => anyhow!("timeout: the operator has not seen the hold of queue {queue}"),
                still => anyhow!("timeout: {still} workloads of queue {queue} still run"),
            };
            return Err(trouble.unwrap_or_else(over));
        }
        if noted {
            let mut pods = Vec::new();
            for workload in running {
                match placed(client, &workload.namespace, &workload.name).await {
                    Ok((_, names)) => {
                        pods.extend(evict::read(client.cluster()?, &workload.namespace, &names).await?);
                    }
                    // It may be gone since.
                    Err(error) => trouble = Some(error),
                }
            }
            evict::refuse_lone(&pods, how.force)?;
            evict::evict(client.cluster()?, &pods, deadline).await?;
        }
        sleep(LOOK).await;
    }
    let all: QueueList = match client.get("/queues").await {
        Err(error) if is_forbidden(&error) => {
            say!("queue {queue} is empty as far as you may see: you may not list queues");
            return Ok(());
        }
        all => all?,
    };
    let hidden = all.queues.iter().find(|known| known.name == queue);
    match hidden.map_or(0, |queue| queue.running) {
        0 => say!("queue {queue} is empty"),
        hidden => bail!("{hidden} workloads of namespaces that you may not see still run in queue {queue}"),
    }
    Ok(())
}

#[cfg(test)]
mod tests;
