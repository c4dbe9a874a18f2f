//! The scheduling policy, typed. Parsed by the caller.

use super::input::Millis;
use crate::api::names::{node_label, object};

/// The scheduling actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Binds pods that fit.
    Allocate,
    /// Moves running pods to other nodes to make room.
    Consolidation,
    /// Evicts pods of queues above their share for a queue below its own.
    Reclaim,
    /// Evicts pods of lower priority in the same queue.
    Preempt,
    /// Evicts the remaining pods of pod groups below their minimum.
    StaleGangEviction,
}

impl ActionKind {
    /// All actions, in the default order.
    pub const ALL: [Self; 5] = [
        Self::Allocate,
        Self::Consolidation,
        Self::Reclaim,
        Self::Preempt,
        Self::StaleGangEviction,
    ];
    /// The names of all actions.
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = Self::ALL[at].as_str();
            at += 1;
        }
        names
    };

    /// The name in configuration, events and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allocate => "allocate",
            Self::Consolidation => "consolidation",
            Self::Reclaim => "reclaim",
            Self::Preempt => "preempt",
            Self::StaleGangEviction => "stalegangeviction",
        }
    }

    /// The action of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

/// Packing or spreading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Fill nodes one after the other.
    #[default]
    Binpack,
    /// Prefer the emptiest node.
    Spread,
}

/// How minimum run times are looked up between two queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResolveMethod {
    /// From the victim's side just below the lowest common ancestor.
    #[default]
    Lca,
    /// From the victim's queue upwards.
    Queue,
}

/// What disruption budgets mean for evictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DisruptionBudgets {
    /// Victims within budgets first. Beyond them only where reclaim or preempt finds no other set, and for stale pod groups.
    #[default]
    Prefer,
    /// No eviction beyond a budget.
    Respect,
    /// Budgets are ignored.
    Ignore,
}

impl DisruptionBudgets {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Prefer, Self::Respect, Self::Ignore];

    /// The name in configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefer => "prefer",
            Self::Respect => "respect",
            Self::Ignore => "ignore",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// Enabled plugins with their arguments, as far as they affect the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plugins {
    /// `proportion`: queues are compared by their shares.
    pub proportion: Option<Proportion>,
    /// `priority`: higher priority first.
    pub priority: bool,
    /// `elastic`: pod groups below their minimum first.
    pub elastic: bool,
    /// `nodeavailability`: nodes on which the pod fits now before those where it must wait.
    pub node_availability: bool,
    /// `gpusharingorder`: nodes with room on a GPU that is shared already first.
    pub gpu_sharing_order: bool,
    /// `gpupack`: the fullest shared GPU first. Without effect beside `gpu_spread`.
    pub gpu_pack: bool,
    /// `gpuspread`: the emptiest shared GPU first.
    pub gpu_spread: bool,
    /// `resourcetype`: CPU pods away from GPU nodes.
    pub resource_type: bool,
    /// `nominatednode`: the nominated node first.
    pub nominated_node: bool,
    /// `podaffinity`: preferred inter-pod affinity.
    pub pod_affinity: bool,
    /// `nodeplacement`: binpack or spread over nodes.
    pub node_placement: Option<NodePlacement>,
    /// `minruntime`: minimum run times.
    pub min_runtime: Option<MinRuntime>,
    /// `devicelocality`: devices of one pod close together, by these attributes (full names, the most important first, at most
    /// [`DEVICE_LOCALITY_MOST`]). Empty: off.
    pub device_locality: Vec<String>,
    /// `topology`: topology constraints of pod groups.
    pub topology: bool,
    /// `podtopologyspread`: pods' own topology spread constraints.
    pub topology_spread: bool,
    /// `sg-nodelocalgreedy`, `sg-multinodegang`: generators of victim sets, in this order.
    pub victim_generators: Vec<VictimGenerator>,
    /// `sg-complete`: any set of victims, where the generators find none. Step limit per cycle: a pod counts one when the room that
    /// a set frees is estimated, and sixteen when the set is simulated. 0: off.
    pub complete_search_steps: usize,
    /// `spare`: drops evictions and moves that no decision needs.
    pub spare: bool,
}

/// Arguments of `proportion`, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proportion {
    /// Weight of historical usage.
    pub k_value: i64,
    /// Factor on a reclaimer's saturation, at least 1,000,000.
    pub saturation_multiplier: i64,
}

impl Default for Proportion {
    fn default() -> Self {
        Self {
            k_value: 1_000_000,
            saturation_multiplier: 1_000_000,
        }
    }
}

/// Arguments of `nodeplacement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodePlacement {
    /// For pods with GPUs.
    pub gpu: Strategy,
    /// For pods without.
    pub cpu: Strategy,
}

/// Arguments of `minruntime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinRuntime {
    /// Default minimum run time before preemption.
    pub preempt: Millis,
    /// Default minimum run time before reclaim.
    pub reclaim: Millis,
    /// How the minimum run time before reclaim is looked up.
    pub resolve: ResolveMethod,
}

/// A generator of victim sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimGenerator {
    /// All victims on one node.
    NodeLocalGreedy,
    /// Growing sets, for pod groups over several nodes.
    MultiNodeGang,
}

/// Device attributes that Kubernetes defines for locality.
pub const DEVICE_LOCALITY: [&str; 2] = ["resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"];
/// Attributes that [`Plugins::device_locality`] takes at most: each doubles the sets that are tried.
pub const DEVICE_LOCALITY_MOST: usize = 3;

/// Default of [`Plugins::complete_search_steps`]: one or two hundred small sets simulated, in a few milliseconds. A cycle may follow every event, and
/// searches without a solution repeat in each.
pub const COMPLETE_SEARCH_STEPS: usize = 8_192;

/// Default of [`Policy::max_steps_without_result`]: about a twentieth of a second. Pods that fit wait for the end of the cycle.
const MAX_STEPS_WITHOUT_RESULT: u64 = 500_000;
/// Default of [`Policy::max_steps_per_search`]: about a second. KAI cuts its first generator off after 30 s, in which it tries fewer sets.
const MAX_STEPS_PER_SEARCH: u64 = 10_000_000;

/// The engine's settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Actions, in order.
    pub actions: Vec<ActionKind>,
    /// Plugins.
    pub plugins: Plugins,
    /// Per action: how many pending groups of each queue are looked at. Absent = all.
    pub queue_depth: Vec<(ActionKind, usize)>,
    /// The whole queue tree takes part; false: two levels under one root.
    pub full_hierarchy: bool,
    /// Reclaim may move victims elsewhere.
    pub consolidating_reclaim: bool,
    /// Consolidation for one pod group considers at most this many other pod groups, and one, from the end of the order, as KAI does; 0 = no consolidation,
    /// `None` = no limit.
    pub max_consolidation_victims: Option<usize>,
    /// Step limit of successive searches for victims that find nothing, in an action of a cycle; pod groups without a search then are first in the next cycle.
    /// A node that is tested for a pod counts one, a pod that is evicted or placed in a simulation 32, a pod group that is put in order 4, a victim that is
    /// counted as gone about one, and four nodes of which only the free resources are looked at one.
    pub max_steps_without_result: u64,
    /// Step limit of a single search, which finds nothing then.
    pub max_steps_per_search: u64,
    /// How disruption budgets are treated.
    pub disruption_budgets: DisruptionBudgets,
    /// How long a pod group may stay below its minimum before it is evicted; `None` = for ever.
    pub staleness_grace: Option<Millis>,
    /// How long after the end of its grace period a pod counts as stuck.
    pub stuck_after: Millis,
    /// CPU pods only on nodes with `cpu_worker_label`, GPU pods only on nodes with `gpu_worker_label`.
    pub restrict_nodes: bool,
    /// The capacity that storage drivers report is counted down by placements, so that evictions can free some.
    pub csi_storage: bool,
    /// Label key of CPU nodes.
    pub cpu_worker_label: String,
    /// Label key of GPU nodes.
    pub gpu_worker_label: String,
    /// The node pool's name in messages under back-off.
    pub node_pool: String,
    /// Messages list each node.
    pub detailed_errors: bool,
}

impl Default for Policy {
    /// KAI's defaults, with preferences among pods and their own spreading on.
    fn default() -> Self {
        Self {
            actions: ActionKind::ALL.to_vec(),
            plugins: Plugins {
                proportion: Some(Proportion::default()),
                priority: true,
                elastic: true,
                node_availability: true,
                gpu_sharing_order: true,
                gpu_pack: true,
                gpu_spread: false,
                resource_type: true,
                nominated_node: true,
                pod_affinity: true,
                node_placement: Some(NodePlacement::default()),
                min_runtime: Some(MinRuntime::default()),
                device_locality: DEVICE_LOCALITY.map(str::to_owned).into(),
                topology: true,
                topology_spread: true,
                victim_generators: vec![VictimGenerator::NodeLocalGreedy, VictimGenerator::MultiNodeGang],
                complete_search_steps: COMPLETE_SEARCH_STEPS,
                spare: true,
            },
            queue_depth: Vec::new(),
            full_hierarchy: true,
            consolidating_reclaim: true,
            max_consolidation_victims: Some(16),
            max_steps_without_result: MAX_STEPS_WITHOUT_RESULT,
            max_steps_per_search: MAX_STEPS_PER_SEARCH,
            disruption_budgets: DisruptionBudgets::Prefer,
            staleness_grace: Some(60_000),
            stuck_after: 120_000,
            restrict_nodes: false,
            csi_storage: false,
            cpu_worker_label: node_label::CPU_WORKER.to_owned(),
            gpu_worker_label: node_label::GPU_WORKER.to_owned(),
            node_pool: object::DEFAULT_NODE_POOL.to_owned(),
            detailed_errors: false,
        }
    }
}
