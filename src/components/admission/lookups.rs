//! The facts about the cluster that the rules need: the queues, and the queue that a new pod will run in, as the grouper will see it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tracing::debug;

use super::pods::queue_label::{Source, Tree, Workload};
use crate::api::Queue;
use crate::api::names::annotation;
use crate::components::grouping::owners::{Chain, Owners, is_name};
use crate::components::grouping::rules::{self, Input};
use crate::components::grouping::{Found, Known, skips_grouping};
use crate::components::runtime_classes::RuntimeClasses;
use crate::components::watches::Stores;
use crate::components::{Context, Settings};

/// Time limit for reading the owners of a pod. After it they are unknown: a late answer is worse than a missing label.
const OWNERS_TIMEOUT: Duration = Duration::from_secs(3);
/// Time limit for all reads of a request. API servers wait ten seconds for the webhook, and refuse the pod then.
const TIMEOUT: Duration = Duration::from_secs(6);

/// The API server does not answer.
#[derive(Debug)]
pub struct Unanswered;

/// Answers from the watches' stores, and from the API server where those may be behind.
pub struct Lookups {
    stores: Arc<Stores>,
    reads: Client,
    owners: Owners,
    settings: Arc<Settings>,
    runtime_classes: RuntimeClasses,
}

impl Lookups {
    /// Reads through the context's client.
    #[must_use]
    pub fn new(context: &Context, stores: Arc<Stores>) -> Self {
        Self {
            stores,
            reads: context.reads.clone(),
            owners: Owners::new(context.reads.clone(), context.settings.default_priorities.clone()),
            settings: Arc::clone(&context.settings),
            runtime_classes: RuntimeClasses::new(context.reads.clone()),
        }
    }

    /// A queue, as last seen.
    #[must_use]
    pub fn queue_named(&self, name: &str) -> Option<Arc<Queue>> {
        self.stores.queues.get("", name)
    }

    /// A queue that the watch does not show; perhaps it was created a moment ago.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn read_queue(&self, name: &str) -> Result<Option<Queue>, Unanswered> {
        // No queue has another name.
        if !is_name(name, &['-', '.']) {
            return Ok(None);
        }
        let queues: Api<Queue> = Api::all(self.reads.clone());
        match tokio::time::timeout(TIMEOUT, queues.get_opt(name)).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => {
                debug!(%error, queue = name, "a queue cannot be read");
                Err(Unanswered)
            }
            Err(_elapsed) => Err(Unanswered),
        }
    }

    /// The names of the PriorityClasses, as last seen.
    #[must_use]
    pub fn priority_classes(&self) -> Vec<String> {
        let classes = self.stores.priority_classes.list();
        classes.iter().filter_map(|class| class.metadata.name.clone()).collect()
    }

    /// Whether there is a RuntimeClass of the name.
    pub async fn has_runtime_class(&self, name: &str) -> bool {
        self.runtime_classes.exists(name).await
    }

    /// The queue that a pod will run in. `None` if that is unknown: the pod belongs to a group of another client, its owners cannot be read,
    /// or the API server does not answer.
    pub async fn workload(&self, pod: &Pod) -> Option<Workload> {
        let found = tokio::time::timeout(TIMEOUT, self.look_up(pod)).await;
        found.unwrap_or_else(|_elapsed| {
            debug!("the queue of a new pod cannot be looked up in time");
            None
        })
    }

    async fn look_up(&self, pod: &Pod) -> Option<Workload> {
        let (queue, source) = self.queue(pod).await?;
        let mut tree = tree(&self.stores);
        if !tree.contains(&queue)
            && let Some(found) = self.read_queue(&queue).await.ok()?
        {
            tree.insert(&found);
        }
        Some(Workload { queue, source, tree })
    }

    async fn queue(&self, pod: &Pod) -> Option<(String, Source)> {
        if skips_grouping(pod) {
            return self.queue_of_group(pod);
        }
        let known = Known {
            stores: &self.stores,
            owners: &self.owners,
            settings: &self.settings,
        };
        let walk = async {
            let chain = self.owners.chain(pod).await;
            (chain, known.resolve(pod).await)
        };
        let (chain, found) = match tokio::time::timeout(OWNERS_TIMEOUT, walk).await {
            Ok((Ok(Chain::Owned(chain)), found)) => (chain, found),
            Ok((Ok(Chain::OptedOut), _)) => return self.queue_of_group(pod),
            unread => {
                if let Ok((Err(error), _)) = unread {
                    debug!(%error, "the owners of a new pod cannot be looked up");
                }
                let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
                let labels = pod.metadata.labels.as_ref();
                let own = labels.and_then(|labels| labels.get(&self.settings.queue_label_key));
                // A guess on the pod would precede the project of its owner, which the grouper reads later.
                if !owners.is_empty() && own.is_none_or(String::is_empty) {
                    return None;
                }
                (Vec::new(), known.resolve(&without_owners(pod)).await)
            }
        };
        if let Ok(Found::Skipped) = found {
            return self.queue_of_group(pod);
        }
        let queue_of = |pod: &Pod| {
            let input = Input {
                pod,
                chain: &chain,
                settings: &self.settings,
                cluster: &known,
            };
            // A workload that cannot be grouped yet names its queue all the same.
            rules::group(&input)
                .ok()
                .and_then(|grouped| grouped.group.spec.queue)
                .unwrap_or_else(|| rules::queue(&input))
        };
        let queue = queue_of(pod);
        let source = if queue == self.settings.default_queue {
            Source::Default
        } else if queue_of(&without_label(pod, &self.settings.queue_label_key)) == queue {
            Source::PodContext
        } else {
            Source::Pod
        };
        Some((queue, source))
    }

    fn queue_of_group(&self, pod: &Pod) -> Option<(String, Source)> {
        let group = pod.metadata.annotations.as_ref()?.get(annotation::POD_GROUP_NAME)?;
        let group = self.stores.pod_groups.get(pod.metadata.namespace.as_deref()?, group)?;
        Some((
            group.spec.queue.clone().filter(|queue| !queue.is_empty())?,
            Source::PodContext,
        ))
    }
}

/// The queues that can run pods of every namespace, as last seen.
#[must_use]
pub fn open_leaves(stores: &Stores) -> BTreeSet<String> {
    let tree = tree(stores);
    let open = tree.leaves(None).into_iter().filter(|leaf| tree.is_open(leaf));
    open.map(str::to_owned).collect()
}

/// All queues, as last seen.
fn tree(stores: &Stores) -> Tree {
    stores.queues.list().iter().map(|queue| &**queue).collect()
}

fn without_owners(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    pod.metadata.owner_references = None;
    pod
}

fn without_label(pod: &Pod, key: &str) -> Pod {
    let mut pod = pod.clone();
    if let Some(labels) = &mut pod.metadata.labels {
        labels.remove(key);
    }
    pod
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
