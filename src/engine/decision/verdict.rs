//! Why a pod group waits: the one thing that would have to change, and the evidence.

use std::fmt;

use super::GroupReport;
use crate::engine::input::PodRef;

/// Why a pod group waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The kind of cause.
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
        /// Kinds of causes, each with a stable name for metrics and JSON. docs/pending.md lists them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $($(#[$doc])* $cause),+
        }

        impl Cause {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$cause),+];
            /// All names.
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
    /// A queue above the pod group's does not exist.
    ParentQueueMissing = "parent_queue_missing",
    /// The queue has queues below it and takes no workloads itself.
    QueueNotLeaf = "queue_not_leaf",
    /// A queue's limit, its own or one above it.
    QueueLimit = "queue_limit",
    /// A queue's quota, which non-preemptible workloads may not pass.
    QueueQuota = "queue_quota",
    /// The sub-groups of the pod group contradict each other.
    SubGroups = "sub_groups",
    /// The mirror refuses the pod group, for example in a queue that it may not use.
    Refused = "refused",
    /// The pod group, its queue or one above it is on hold.
    Held = "held",
    /// Pods wait for their scheduling gates to be removed.
    Gated = "gated",
    /// Pods of the gang do not exist yet.
    GangIncomplete = "gang_incomplete",
    /// Reclaim or preempt could evict what holds the resource, but is switched off.
    SwitchedOff = "switched_off",
    /// The queue is at its fair share, so it may take nothing from others.
    FairShare = "fair_share",
    /// The queues that hold the resource are within their quotas and fair shares.
    WithinShares = "within_shares",
    /// Minimum run times protect the pods that hold the resource.
    MinRuntime = "min_runtime",
    /// Disruption budgets protect the pods that hold the resource.
    DisruptionBudget = "disruption_budget",
    /// The pods that hold the resource are non-preemptible.
    NonPreemptible = "non_preemptible",
    /// The pods that hold the resource have the same priority or a higher one.
    Priority = "priority",
    /// The preemption delay of the pod group has not elapsed.
    PreemptionDelay = "preemption_delay",
    /// Pods were evicted for the pod group several times, in vain.
    EvictionsInVain = "evictions_in_vain",
    /// The pod group is pipelined: it waits for releasing pods to terminate.
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
    /// Nodes are excluded for several of these reasons.
    Nodes = "nodes",
    /// There are no nodes at all.
    NoNodes = "no_nodes",
    /// A host port is taken.
    HostPort = "host_port",
    /// Required pod affinity is not satisfied.
    PodAffinity = "pod_affinity",
    /// Pod anti-affinity, of the pod or of existing pods, excludes the nodes.
    PodAntiAffinity = "pod_anti_affinity",
    /// Topology spread constraints.
    TopologySpread = "topology_spread",
    /// A volume or a claim for one.
    Volumes = "volumes",
    /// A resource claim or its devices (dynamic resource allocation).
    Devices = "devices",
    /// Nodes do not offer the requested kind of GPUs: whole, shared, MIG.
    GpuKind = "gpu_kind",
    /// No node has the MIG profile.
    MigProfile = "mig_profile",
    /// The memory of the nodes' GPUs is unknown.
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
    /// No cause was found.
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
    /// The text of the pod group's condition and event.
    #[must_use]
    pub fn text(&self, words: Wording) -> String {
        match words {
            Wording::Plain => self.verdict.to_string(),
            Wording::Kai => self.message.clone(),
        }
    }

    /// The text of the condition and event of each pending pod.
    #[must_use]
    pub fn pod_texts(&self, words: Wording) -> Vec<(PodRef, String)> {
        match words {
            Wording::Plain => {
                let text = self.verdict.to_string();
                let own = |message: &str| text.clone() + node_lines(message);
                self.pods
                    .iter()
                    .map(|(pod, message)| (pod.clone(), own(message)))
                    .collect()
            }
            Wording::Kai => self
                .pods
                .iter()
                .map(|(pod, message)| (pod.clone(), message.to_string()))
                .collect(),
        }
    }
}

/// The lines about single nodes at the end of a pod's message (see [`Policy::detailed_errors`](crate::engine::policy::Policy::detailed_errors)).
fn node_lines(message: &str) -> &str {
    message.find("\n<").and_then(|at| message.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
