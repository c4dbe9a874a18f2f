//! `unikai release`: ends what `unikai hold` began.

use std::process::ExitCode;

use anyhow::bail;
use kube::Api;

use super::client::Cluster;
use super::hold::{PodGroups, set};
use super::output::say;
use crate::api::Queue;
use crate::api::queue_access::QueueAccess;

/// Arguments of `unikai release`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    groups: PodGroups,
}

/// Runs the subcommand.
///
/// # Errors
/// When the API server cannot be reached or refuses.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let cluster = Cluster::open(&args.groups.kubeconfig).await?;
    let (api, namespace) = args.groups.api(&cluster);
    // Only for a hint, which is left out without the right to list queues.
    let queues: Api<Queue> = Api::all(cluster.api.clone());
    let mut access = QueueAccess::default();
    for queue in queues
        .list(&kube::api::ListParams::default())
        .await
        .into_iter()
        .flatten()
    {
        access.put_queue(&queue);
    }
    for name in &args.groups.names {
        let Some(group) = set(&api, name, None).await? else {
            bail!("there is no podgroup {name} in the namespace {namespace}");
        };
        let queue = group.spec.queue.unwrap_or_default();
        let still = access.held_by(&queue);
        let still = still.map_or_else(String::new, |(held, _)| {
            format!("; it still waits, since queue {held} is held: unikai drain queue {held} --undo")
        });
        say!("podgroup {namespace}/{name} is released{still}");
    }
    Ok(ExitCode::SUCCESS)
}
