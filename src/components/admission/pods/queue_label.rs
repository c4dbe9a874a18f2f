//! Every pod of our scheduler has the label of its queue, unless no label can have the queue's name, and the queue must be able to run it.
//!
//! ```yaml
//! metadata: {}                                      # → labels: {kai.scheduler/queue: default-queue}
//! metadata: {labels: {kai.scheduler/queue: tset}}   # → refused: queue "tset" does not exist. Set the label … to one of: test
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::api::Queue;
use crate::api::queue_access::{QueueAccess, not_open};
use crate::api::syntax::is_label_word;
use crate::components::admission::review::Verdict;
use crate::components::admission::{QueueLabels, Settings};

/// Limit on queues in a message.
const SUGGESTIONS_MAX: usize = 5;

/// The queues of the cluster, each with its parent, and who may submit to them. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(Arc<QueueAccess>);

impl<'a> FromIterator<&'a Queue> for Tree {
    fn from_iter<I: IntoIterator<Item = &'a Queue>>(queues: I) -> Self {
        let mut access = QueueAccess::default();
        queues.into_iter().for_each(|queue| access.put_queue(queue));
        Self(Arc::new(access))
    }
}

impl Tree {
    /// Adds or changes a queue.
    pub fn insert(&mut self, queue: &Queue) {
        Arc::make_mut(&mut self.0).put_queue(queue);
    }

    /// Whether the queue exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The leaves below a queue, or of the whole tree, in order of name.
    #[must_use]
    pub fn leaves(&self, below: Option<&str>) -> Vec<&str> {
        let parents: BTreeSet<&str> = self.0.names().filter_map(|name| self.0.parent(name)).collect();
        let is_below = |name: &&str| below.is_none_or(|top| *name != top && self.0.is_within(name, top));
        let leaves = self.0.names().filter(|name| !parents.contains(name));
        leaves.filter(is_below).collect()
    }

    /// Whether all namespaces may submit to the queue.
    #[must_use]
    pub fn is_open(&self, name: &str) -> bool {
        self.0.is_open(name)
    }

    fn is_parent(&self, name: &str) -> bool {
        self.0.names().any(|other| self.0.parent(other) == Some(name))
    }
}

/// The queue of a pod, and all queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The queue that the pod will run in.
    pub queue: String,
    /// Where it is named.
    pub source: Source,
    /// All queues.
    pub tree: Tree,
}

/// Where a pod's queue is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The pod's own label.
    Pod,
    /// The workload that the pod belongs to, its project, or its namespace.
    PodContext,
    /// It is the default queue, named or not.
    Default,
}

/// Adds the queue label to the pod, unless it has one. A queue's name may be longer than a label's value: the API server would refuse the pod, which runs
/// in the queue of its group without the label, too.
pub fn mutate(pod: &mut Pod, queue: &str, settings: &Settings) {
    if settings.queue_labels == QueueLabels::Off || !is_label_word(queue) {
        return;
    }
    let label = pod
        .metadata
        .labels
        .get_or_insert_default()
        .entry(settings.queue_label_key.clone())
        .or_default();
    if label.is_empty() {
        queue.clone_into(label);
    }
}

/// Refuses a queue that cannot run the pod, or that its namespace may not use. The latter is refused even if the former only draws a warning.
#[must_use]
pub fn validate(workload: &Workload, namespace: &str, settings: &Settings) -> Verdict {
    let key = &settings.queue_label_key;
    if settings.queue_labels == QueueLabels::Off {
        return Verdict::allow();
    }
    if let Some(message) = closed(workload, namespace, key) {
        return Verdict::deny(message);
    }
    match (objection(workload, key), settings.queue_labels) {
        (None, _) => Verdict::allow(),
        (Some(message), QueueLabels::Warn) => Verdict::allow().warn([message]),
        (Some(message), _) => Verdict::deny(message),
    }
}

fn closed(workload: &Workload, namespace: &str, key: &str) -> Option<String> {
    let Tree(access) = &workload.tree;
    let closed_by = access.closed_by(&workload.queue, namespace)?;
    let open: Vec<_> = workload.tree.leaves(None);
    let open: Vec<_> = open
        .into_iter()
        .filter(|leaf| access.closed_by(leaf, namespace).is_none())
        .collect();
    let instead = match named(&open) {
        Some(names) => format!(", or set the label {key} to {names}"),
        None => String::new(),
    };
    let why = not_open(&workload.queue, closed_by, namespace);
    Some(format!("{why}. Ask the queue's administrator{instead}"))
}

fn objection(workload: &Workload, key: &str) -> Option<String> {
    let Workload { queue, source, tree } = workload;
    let exists = tree.contains(queue);
    if exists && !tree.is_parent(queue) {
        return None;
    }
    let named = match source {
        Source::Pod => format!("queue \"{queue}\""),
        Source::PodContext => format!("queue \"{queue}\", which the pod's workload, project or namespace names,"),
        Source::Default => format!("queue \"{queue}\", where pods run that name none,"),
    };
    let (wrong, leaves) = if exists {
        (
            "is the parent of other queues; workloads run in queues without children",
            tree.leaves(Some(queue)),
        )
    } else {
        ("does not exist", tree.leaves(None))
    };
    Some(format!("{named} {wrong}. {}", advice(&leaves, key)))
}

fn advice(leaves: &[&str], key: &str) -> String {
    match (leaves.len(), named(leaves)) {
        (_, None) => format!("There is no queue to run in: create one, and name it in the label {key}"),
        (1, Some(named)) => format!("Set the label {key} to {named}, or create the queue"),
        (_, Some(named)) => format!("Set the label {key} to {named}; or create the queue"),
    }
}

/// Some queues of several, to choose from.
fn named(leaves: &[&str]) -> Option<String> {
    let some = leaves
        .iter()
        .take(SUGGESTIONS_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match leaves.len() {
        0 => None,
        1 => Some(some),
        n if n <= SUGGESTIONS_MAX => Some(format!("one of: {some}")),
        n => Some(format!(
            "one of: {some}, and {} more (kubectl get queues)",
            n - SUGGESTIONS_MAX
        )),
    }
}
