//! The facts about the cluster that the rules need: the queues, and the queue that a new pod will run in, as the grouper will see it.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::debug;

use super::pods::queue_label::{Source, Tree, Workload};
use crate::api::names::annotation;
use crate::api::{PodGroup, Queue};
use crate::components::grouping::defaults::Defaults;
use crate::components::grouping::karta::Karta;
use crate::components::grouping::owners::{Chain, Owners, is_name};
use crate::components::grouping::rules::{self, Cluster, Input, KindName, Reference, RuleError};
use crate::components::grouping::workload::Workload as Owner;
use crate::components::grouping::{Found, Known, skips_grouping};
use crate::components::pods::named_queue;
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
    /// All queues, as of the last change that was seen.
    tree: Mutex<(watch::Receiver<()>, Tree)>,
}

impl Lookups {
    /// Reads through the context's client.
    #[must_use]
    pub fn new(context: &Context, stores: Arc<Stores>) -> Self {
        let mut changes = stores.queues.changes();
        // They may be listed already.
        changes.mark_changed();
        Self {
            tree: Mutex::new((changes, Tree::default())),
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

    /// The queue that a pod will run in, and all queues. `None` if that is unknown, as for [`Self::queue`].
    pub async fn workload(&self, pod: &Pod) -> Option<Workload> {
        in_time(async {
            let (queue, source) = self.look_up(pod).await?;
            let mut tree = self.tree();
            if !tree.contains(&queue)
                && let Some(found) = self.read_queue(&queue).await.ok()?
            {
                tree.insert(&found);
            }
            Some(Workload { queue, source, tree })
        })
        .await
    }

    /// The queue that a pod will run in, and where it is named. `None` if that is unknown: the pod belongs to a group of another client, its owners or its
    /// namespace cannot be read, or the API server does not answer.
    pub async fn queue(&self, pod: &Pod) -> Option<(String, Source)> {
        in_time(self.look_up(pod)).await
    }

    async fn look_up(&self, pod: &Pod) -> Option<(String, Source)> {
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
                let own = named_queue(pod.metadata.labels.as_ref(), &self.settings.queue_label_key);
                // A guess on the pod would precede the project of its owner, which the grouper reads later.
                if !owners.is_empty() && own.is_none() {
                    return None;
                }
                (Vec::new(), known.resolve(&without_owners(pod)).await)
            }
        };
        if let Ok(Found::Skipped) = found {
            return self.queue_of_group(pod);
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let is_shown = self.stores.namespaces.contains("", namespace);
        let mut cluster = WithNamespace {
            known,
            queue: known.namespace_queue(namespace),
            was_asked: Cell::new(false),
        };
        let mut queue = self.queue_of(pod, &chain, &cluster);
        // Where the pod or its workload names a queue, the namespace does not count, and need not be read.
        if cluster.was_asked.get() && !is_shown {
            cluster.queue = self.namespace_queue(namespace).await.ok()?;
            queue = self.queue_of(pod, &chain, &cluster);
        }
        let key = &self.settings.queue_label_key;
        let labels = pod.metadata.labels.as_ref();
        let is_labelled = labels.is_some_and(|labels| labels.contains_key(key));
        let source = if queue == self.settings.default_queue {
            Source::Default
        } else if is_labelled && self.queue_of(&without_label(pod, key), &chain, &cluster) != queue {
            Source::Pod
        } else {
            Source::PodContext
        };
        Some((queue, source))
    }

    /// The queue of a pod with these owners.
    fn queue_of(&self, pod: &Pod, chain: &[Arc<Owner>], cluster: &WithNamespace<'_>) -> String {
        let input = Input {
            pod,
            chain,
            settings: &self.settings,
            cluster,
        };
        // A workload that cannot be grouped yet names its queue all the same.
        rules::group(&input)
            .ok()
            .and_then(|grouped| grouped.group.spec.queue)
            .unwrap_or_else(|| rules::queue(&input))
    }

    /// The queue that a namespace names which the watch does not show. Pods are created only in namespaces that exist.
    ///
    /// # Errors
    /// If the API server does not answer.
    async fn namespace_queue(&self, name: &str) -> Result<Option<String>, Unanswered> {
        // No namespace has another name, and this one becomes part of a selector.
        if !is_name(name, &['-']) {
            return Err(Unanswered);
        }
        let namespaces: Api<Namespace> = Api::all(self.reads.clone());
        // There is no right to get one.
        let of_name = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        let found = match namespaces.list_metadata(&of_name).await {
            Ok(found) => found.items.into_iter().next(),
            Err(error) => {
                debug!(%error, ns = name, "a namespace cannot be read");
                None
            }
        };
        let labels = found.ok_or(Unanswered)?.metadata.labels;
        Ok(named_queue(labels.as_ref(), &self.settings.queue_label_key).cloned())
    }

    fn queue_of_group(&self, pod: &Pod) -> Option<(String, Source)> {
        let group = pod.metadata.annotations.as_ref()?.get(annotation::POD_GROUP_NAME)?;
        let group = self.stores.pod_groups.get(pod.metadata.namespace.as_deref()?, group)?;
        Some((
            group.spec.queue.clone().filter(|queue| !queue.is_empty())?,
            Source::PodContext,
        ))
    }

    /// All queues, as last seen.
    fn tree(&self) -> Tree {
        let mut known = self.tree.lock().unwrap_or_else(PoisonError::into_inner);
        let (changes, tree) = &mut *known;
        if changes.has_changed().unwrap_or(true) {
            changes.mark_unchanged();
            *tree = all_queues(&self.stores);
        }
        tree.clone()
    }
}

/// What is found in time.
fn in_time<T>(look_up: impl Future<Output = Option<T>>) -> impl Future<Output = Option<T>> {
    tokio::time::timeout(TIMEOUT, look_up).map(|found| {
        found.unwrap_or_else(|_elapsed| {
            debug!("the queue of a new pod cannot be looked up in time");
            None
        })
    })
}

/// The cluster as the grouper will see it, with the namespace of the pod, which the watch may not show yet.
struct WithNamespace<'a> {
    known: Known<'a>,
    /// The queue that the namespace names.
    queue: Option<String>,
    /// The rules have read that.
    was_asked: Cell<bool>,
}

impl Cluster for WithNamespace<'_> {
    fn has_priority_class(&self, name: &str) -> bool {
        self.known.has_priority_class(name)
    }

    fn pod_group(&self, namespace: &str, name: &str) -> Option<Arc<PodGroup>> {
        self.known.pod_group(namespace, name)
    }

    fn namespace_queue(&self, _: &str) -> Option<String> {
        self.was_asked.set(true);
        self.queue.clone()
    }

    fn pods(&self, namespace: &str, labels: &[(&str, &str)]) -> Vec<Arc<Pod>> {
        self.known.pods(namespace, labels)
    }

    fn object(&self, wanted: &Reference) -> Result<Arc<Owner>, RuleError> {
        self.known.object(wanted)
    }

    fn kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        self.known.kartas(kind)
    }

    fn defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        self.known.defaults()
    }
}

/// The queues that can run pods of every namespace, as last seen.
#[must_use]
pub fn open_leaves(stores: &Stores) -> BTreeSet<String> {
    let tree = all_queues(stores);
    let open = tree.leaves(None).into_iter().filter(|leaf| tree.is_open(leaf));
    open.map(str::to_owned).collect()
}

/// All queues, as last seen.
fn all_queues(stores: &Stores) -> Tree {
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
