//! Why a pod group waits: the one thing that would have to change, and the evidence.

use std::fmt;

use super::GroupReport;
use crate::engine::input::PodRef;

/// Why a pod group waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What kind of cause.
    pub cause: Cause,
    /// The binding constraint in one sentence, without its full stop: what would have to change, with names and figures.
    pub sentence: String,
    /// Further evidence, most important first: sentences without their full stops.
    pub evidence: Vec<String>,
}

impl Verdict {
    /// A verdict without further evidence.
    #[must_use]
    pub fn new(cause: Cause, sentence: impl Into<String>) -> Self {
        Self {
            cause,
            sentence: sentence.into(),
            evidence: Vec::new(),
        }
    }
}

/// All of it as one text. The first sentence ends with the first `". "`, or with the text.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        for sentence in &self.evidence {
            write!(f, ". {sentence}")?;
        }
        Ok(())
    }
}

/// Makes the enum of causes, their names and the list of all of them.
macro_rules! causes {
    ($($(#[$doc:meta])* $cause:ident = $word:literal,)+) => {
        /// Kinds of causes, each with a word for metrics and JSON that stays the same. docs/pending.md lists them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])* $cause),+
        }

        impl Cause {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$cause),+];
            /// The words of all of them.
            pub const WORDS: &[&str] = &[$($word),+];

            /// Its name.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$cause => $word),+
                }
            }
        }
    };
}

causes! {
    /// The queue that the pod group names does not exist.
    QueueMissing = "queue_missing",
    /// A queue above its own does not exist.
    ParentQueueMissing = "parent_queue_missing",
    /// The queue has queues below it and takes no workloads itself.
    QueueNotLeaf = "queue_not_leaf",
    /// A queue's limit, its own or one above it.
    QueueLimit = "queue_limit",
    /// A queue's quota, which non-preemptible workloads may not pass.
    QueueQuota = "queue_quota",
    /// The sub-groups of the pod group contradict each other.
    SubGroups = "sub_groups",
    /// The pod group may not be placed at all for a reason that stands on it.
    Refused = "refused",
    /// Somebody holds the pod group, or a queue that it is in.
    Held = "held",
    /// Pods wait for their scheduling gates to be removed.
    Gated = "gated",
    /// Pods of the gang do not exist yet.
    GangIncomplete = "gang_incomplete",
    /// The queue is at its fair share, so it may take nothing from others.
    FairShare = "fair_share",
    /// Those who hold what is asked for may keep it: they are within their quotas and fair shares.
    WithinShares = "within_shares",
    /// Those who hold what is asked for run no longer than their minimum run time yet.
    MinRuntime = "min_runtime",
    /// A disruption budget keeps those who hold what is asked for.
    DisruptionBudget = "disruption_budget",
    /// Those who hold what is asked for cannot be evicted.
    NonPreemptible = "non_preemptible",
    /// Those who hold what is asked for have the same priority or a higher one.
    Priority = "priority",
    /// The pod group may not have others evicted yet.
    PreemptionDelay = "preemption_delay",
    /// It has a place as soon as what is leaving it has left.
    Leaving = "leaving",
    /// Too little is free, and no other cause is known.
    Resources = "resources",
    /// Enough is free, but not on one node.
    Fragmented = "fragmented",
    /// The pod asks for more than any node has.
    TooLarge = "too_large",
    /// The gang asks for more than all nodes have.
    GangTooLarge = "gang_too_large",
    /// Some pods of the gang fit, not all.
    Gang = "gang",
    /// Nodes lack the labels of the node selector.
    NodeSelector = "node_selector",
    /// Nodes do not match the node affinity.
    NodeAffinity = "node_affinity",
    /// Nodes have taints that the pod does not tolerate.
    Taints = "taints",
    /// Nodes are cordoned.
    Cordoned = "cordoned",
    /// Nodes are not ready.
    NotReady = "not_ready",
    /// Nodes are out for several of these reasons.
    Nodes = "nodes",
    /// There are no nodes at all.
    NoNodes = "no_nodes",
    /// A host port is taken.
    HostPort = "host_port",
    /// Pods that the pod wants to be near are not there.
    PodAffinity = "pod_affinity",
    /// Pods that the pod must not be near, or that do not want it near, are there.
    PodAntiAffinity = "pod_anti_affinity",
    /// Topology spread constraints.
    TopologySpread = "topology_spread",
    /// A volume or a claim for one.
    Volumes = "volumes",
    /// A resource claim or its devices (dynamic resource allocation).
    Devices = "devices",
    /// The kind of GPU request does not go with the nodes: whole, shared, MIG.
    GpuKind = "gpu_kind",
    /// No node has the MIG profile.
    MigProfile = "mig_profile",
    /// Nodes do not say how much memory their GPUs have.
    GpuMemoryUnknown = "gpu_memory_unknown",
    /// GPUs could not be reserved for sharing.
    GpuSharing = "gpu_sharing",
    /// Nodes run as many pods as they may.
    PodSlots = "pod_slots",
    /// The kubelet could not align the pod to NUMA zones.
    Numa = "numa",
    /// Nodes are kept for other kinds of pods.
    WorkerNodes = "worker_nodes",
    /// The topology that the pod group names does not exist.
    TopologyMissing = "topology_missing",
    /// The topology does not have the level.
    TopologyLevelMissing = "topology_level_missing",
    /// Nodes lack the label of the topology's level.
    TopologyLabelMissing = "topology_label_missing",
    /// No domain of the topology has room for all pods.
    TopologyDomain = "topology_domain",
    /// An object that the pod needs, such as a ConfigMap, does not exist.
    ObjectMissing = "object_missing",
    /// A bind failed and is tried again later.
    BindRetry = "bind_retry",
    /// Nothing was found out.
    Unknown = "unknown",
}

/// The text of conditions and events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wording {
    /// The verdict.
    #[default]
    Plain,
    /// KAI's.
    Kai,
}

impl Wording {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Kai];

    /// Its name in settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Kai => "kai",
        }
    }

    /// By its name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|words| words.as_str() == word)
    }
}

impl GroupReport {
    /// What the pod group's condition and event say.
    #[must_use]
    pub fn text(&self, words: Wording) -> String {
        match words {
            Wording::Plain => self.verdict.to_string(),
            Wording::Kai => self.message.clone(),
        }
    }

    /// What the condition and the event of each pending pod say. Empty if pods are not to be marked.
    #[must_use]
    pub fn pod_texts(&self, words: Wording) -> Vec<(PodRef, String)> {
        match words {
            Wording::Plain => {
                let text = self.verdict.to_string();
                self.pods.iter().map(|(pod, _)| (pod.clone(), text.clone())).collect()
            }
            Wording::Kai => self.pods.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
