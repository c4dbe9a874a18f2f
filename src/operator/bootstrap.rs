//! Objects that the operator creates itself because they need the CRDs first: the default queues. Only the leader does, once
//! each time it begins to lead or its components are restarted, and existing ones are never changed.

use std::time::Duration;

use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::Queue;
use crate::api::names::object;
use crate::api::queue::{QueueResource, QueueResources, QueueSpec};
use crate::components::Context;
use crate::components::leadership::Scope;

/// Delay before a failed creation is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Creates the default queues whenever this process begins to lead, until shutdown.
///
/// # Errors
/// None; the signature is that of a component.
pub async fn run(context: Context, default_queue: String) -> anyhow::Result<()> {
    let mut leading = context.leading.clone();
    let shutdown: CancellationToken = context.shutdown.clone();
    let work = async {
        while leading
            .wait_for(|terms| terms.of(&Scope::Cluster).is_some())
            .await
            .is_ok()
        {
            for queue in queues(&default_queue) {
                create(&context, &queue).await;
            }
            if leading
                .wait_for(|terms| terms.of(&Scope::Cluster).is_none())
                .await
                .is_err()
            {
                break;
            }
        }
    };
    shutdown.run_until_cancelled(work).await;
    shutdown.cancelled().await;
    Ok(())
}

/// Creates the queue unless it exists; retries until it exists or leadership is lost.
async fn create(context: &Context, queue: &Queue) {
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let mut told = false;
    while context.is_leading() {
        match try_create(&context.reads, &context.writes, name, queue).await {
            Ok(true) => return info!(queue = name, "default queue created"),
            Ok(false) => return,
            Err(kube::Error::Api(status)) if status.code == 404 && !told => {
                told = true;
                warn!("the API server does not serve queues; install the CRDs with `unikai crds | kubectl apply -f -`");
            }
            Err(error) if !told => {
                told = true;
                warn!(%error, queue = name, "the default queue cannot be created; trying again");
            }
            Err(_) => {}
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether it was created; false: it existed.
async fn try_create(reads: &Client, writes: &Client, name: &str, queue: &Queue) -> kube::Result<bool> {
    if Api::<Queue>::all(reads.clone()).get_opt(name).await?.is_some() {
        return Ok(false);
    }
    match Api::<Queue>::all(writes.clone())
        .create(&PostParams::default(), queue)
        .await
    {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

/// The queues of a new cluster: no quota, no limit.
fn queues(default_queue: &str) -> [Queue; 2] {
    let share = QueueResource {
        quota: Some(0.0),
        over_quota_weight: Some(1.0),
        limit: Some(-1.0),
    };
    let queue = |name: &str, parent: Option<&str>| Queue {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: QueueSpec {
            parent_queue: parent.map(str::to_owned),
            resources: Some(QueueResources {
                gpu: Some(share),
                cpu: Some(share),
                memory: Some(share),
            }),
            ..QueueSpec::default()
        },
        status: None,
    };
    [
        queue(object::DEFAULT_PARENT_QUEUE, None),
        queue(default_queue, Some(object::DEFAULT_PARENT_QUEUE)),
    ]
}
