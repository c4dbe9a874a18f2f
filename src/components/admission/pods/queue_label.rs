//! Every pod of our scheduler shows the queue it runs in, and names one that can run it.
//!
//! ```yaml
//! metadata: {}                                      # → labels: {kai.scheduler/queue: default-queue}
//! metadata: {labels: {kai.scheduler/queue: tset}}   # → refused: queue "tset" does not exist. Set the label … to one of: test
//! ```

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;

use crate::components::admission::review::Verdict;
use crate::components::admission::{QueueLabels, Settings};

/// How many queues a sentence names.
const SUGGESTIONS_MAX: usize = 5;

/// The queues of the cluster, each with its parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    parents: BTreeMap<String, Option<String>>,
}

impl FromIterator<(String, Option<String>)> for Tree {
    fn from_iter<I: IntoIterator<Item = (String, Option<String>)>>(queues: I) -> Self {
        let parent = |parent: Option<String>| parent.filter(|parent| !parent.is_empty());
        Self {
            parents: queues.into_iter().map(|(name, above)| (name, parent(above))).collect(),
        }
    }
}

impl Tree {
    /// Adds a queue, or moves it.
    pub fn insert(&mut self, name: String, parent: Option<String>) {
        self.parents.insert(name, parent.filter(|parent| !parent.is_empty()));
    }

    /// Whether the queue exists.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.parents.contains_key(name)
    }

    /// The queue above, if there is one.
    #[must_use]
    pub fn parent(&self, name: &str) -> Option<&str> {
        self.parents.get(name)?.as_deref()
    }

    /// The leaves below a queue, or of the whole tree, in order of name.
    #[must_use]
    pub fn leaves(&self, below: Option<&str>) -> Vec<&str> {
        let is_leaf = |name: &&String| !self.is_parent(name);
        let is_below = |name: &&String| below.is_none_or(|top| self.is_below(name, top));
        self.parents
            .keys()
            .filter(is_leaf)
            .filter(is_below)
            .map(String::as_str)
            .collect()
    }

    fn is_parent(&self, name: &str) -> bool {
        self.parents.values().any(|parent| parent.as_deref() == Some(name))
    }

    fn is_below(&self, name: &str, top: &str) -> bool {
        let above = std::iter::successors(self.parent(name), |above| self.parent(above));
        above.take(self.parents.len()).any(|above| above == top)
    }
}

/// What the cluster says about a pod's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The queue that the pod will run in.
    pub queue: String,
    /// Who names it.
    pub source: Source,
    /// All queues.
    pub tree: Tree,
}

/// Who names a pod's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The pod's own label.
    Pod,
    /// The workload that the pod belongs to, its project, or its namespace.
    Surroundings,
    /// It is the default, named or not.
    Default,
}

/// Writes the queue into the pod, unless it names one.
pub fn mutate(pod: &mut Pod, workload: &Workload, settings: &Settings) {
    if settings.queue_labels == QueueLabels::Off {
        return;
    }
    let label = pod
        .metadata
        .labels
        .get_or_insert_default()
        .entry(settings.queue_label_key.clone())
        .or_default();
    if label.is_empty() {
        label.clone_from(&workload.queue);
    }
}

/// Objects to a queue that cannot run the pod.
#[must_use]
pub fn validate(workload: &Workload, settings: &Settings) -> Verdict {
    match (objection(workload, &settings.queue_label_key), settings.queue_labels) {
        (None, _) | (Some(_), QueueLabels::Off) => Verdict::allow(),
        (Some(message), QueueLabels::Warn) => Verdict::allow().warn([message]),
        (Some(message), QueueLabels::Enforce) => Verdict::deny(message),
    }
}

fn objection(workload: &Workload, key: &str) -> Option<String> {
    let Workload { queue, source, tree } = workload;
    let exists = tree.contains(queue);
    if exists && !tree.is_parent(queue) {
        return None;
    }
    let named = match source {
        Source::Pod => format!("queue \"{queue}\""),
        Source::Surroundings => format!("queue \"{queue}\", which the pod's workload, project or namespace names,"),
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
    let named = leaves
        .iter()
        .take(SUGGESTIONS_MAX)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    match leaves.len() {
        0 => format!("There is no queue to run in: create one, and name it in the label {key}"),
        1 => format!("Set the label {key} to {named}, or create the queue"),
        n if n <= SUGGESTIONS_MAX => format!("Set the label {key} to one of: {named}; or create the queue"),
        n => format!(
            "Set the label {key} to one of: {named}, and {} more (kubectl get queues); or create the queue",
            n - SUGGESTIONS_MAX
        ),
    }
}
