//! The settings that decisions depend on, typed. Parsing them is the caller's.

use super::input::Millis;

/// The scheduling actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ActionKind {
    /// Places what fits.
    Allocate,
    /// Moves pods together to make room.
    Consolidation,
    /// Takes back what other queues hold beyond their share.
    Reclaim,
    /// Evicts lower priority within a queue.
    Preempt,
    /// Evicts what is left of broken gangs.
    StaleGangEviction,
}

impl ActionKind {
    /// The name in configuration, events and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
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
        [
            Self::Allocate,
            Self::Consolidation,
            Self::Reclaim,
            Self::Preempt,
            Self::StaleGangEviction,
        ]
        .into_iter()
        .find(|action| action.as_str() == name)
    }
}

/// Whether pods gather on few nodes or spread out.
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
    /// Victims within budgets first. Beyond them only where reclaim or preempt finds no other set, and for what is left of broken gangs.
    #[default]
    Prefer,
    /// No eviction beyond a budget.
    Respect,
    /// Nothing.
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

/// A plugin that is switched on, with its arguments. Order matters where several have a say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// Node affinity, taints, ports and the like.
    Predicates,
    /// Queues: shares, limits, quotas, order. `k_value` and `saturation_multiplier` in millionths.
    Proportion {
        /// Weight of historical usage.
        k_value: i64,
        /// Factor on a reclaimer's saturation, at least 1,000,000.
        saturation_multiplier: i64,
    },
    /// Higher priority first.
    Priority,
    /// Below-minimum gangs first.
    Elastic,
    /// Kubeflow masters first.
    Kubeflow,
    /// Ray heads first.
    Ray,
    /// Nodes on which the pod fits now before those where it must wait.
    NodeAvailability,
    /// Shared GPUs: join used devices first.
    GpuSharingOrder,
    /// Shared GPUs: fullest device first.
    GpuPack,
    /// Shared GPUs: emptiest device first.
    GpuSpread,
    /// CPU pods away from GPU nodes.
    ResourceType,
    /// Order of sub-groups.
    SubGroupOrder,
    /// Task priority label.
    TaskOrder,
    /// The nominated node first.
    NominatedNode,
    /// Dynamic resource allocation.
    DynamicResources,
    /// Inter-pod affinity.
    PodAffinity,
    /// Binpack or spread over nodes.
    NodePlacement {
        /// For pods with GPUs.
        gpu: Strategy,
        /// For pods without.
        cpu: Strategy,
    },
    /// Minimum run times.
    MinRuntime {
        /// Default before preemption.
        preempt: Millis,
        /// Default before reclaim.
        reclaim: Millis,
        /// How to look it up for reclaim.
        resolve: ResolveMethod,
    },
    /// Devices of one pod close together: by these attributes of devices, the most important first.
    DeviceLocality {
        /// Full names. Those after the third do not count.
        attributes: Vec<String>,
    },
    /// Topology constraints.
    Topology,
    /// Pods' own topology spread constraints.
    TopologySpread,
    /// Node-local victim sets.
    NodeLocalGreedy,
    /// Growing victim sets for gangs over several nodes.
    MultiNodeGang,
    /// Any set of victims, where the two above find none. `steps` bounds the work of a cycle.
    Complete {
        /// A pod counts one in a look at how much room a set of victims frees, and sixteen when the set is tried out.
        steps: usize,
    },
    /// No eviction or move goes out that can be left out without something decided being lost.
    Spare,
}

/// What Kubernetes defines about where a device sits in a machine.
pub const DEVICE_LOCALITY: [&str; 2] = ["resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"];
/// Attributes that [`Plugin::DeviceLocality`] heeds at most: each doubles the sets that are tried.
pub const DEVICE_LOCALITY_MOST: usize = 3;

/// Steps of [`Plugin::Complete`] in a cycle: a hundred or two small sets tried out, in a few milliseconds. A cycle may follow every event, and what
/// cannot be helped is looked through in each.
pub const COMPLETE_STEPS: usize = 8_192;

/// Everything that steers the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What runs, in order.
    pub actions: Vec<ActionKind>,
    /// Plugins, in order.
    pub plugins: Vec<Plugin>,
    /// Per action: how many pending groups of each queue are looked at. Absent = all.
    pub queue_depth: Vec<(ActionKind, usize)>,
    /// The whole queue tree takes part; false: two levels under one root.
    pub full_hierarchy: bool,
    /// Reclaim may move victims elsewhere.
    pub consolidating_reclaim: bool,
    /// Consolidation for one pod group looks at no more than so many other groups, and one, from the worst on, as KAI does; 0 = no consolidation at all,
    /// `None` = no bound.
    pub max_consolidation_victims: Option<usize>,
    /// What disruption budgets mean.
    pub disruption_budgets: DisruptionBudgets,
    /// How long a broken gang is left alone; `None` = for ever.
    pub staleness_grace: Option<Millis>,
    /// How long after the end of its grace period a pod counts as stuck.
    pub stuck_after: Millis,
    /// CPU pods only on nodes with `cpu_worker_label`, GPU pods only on nodes with `gpu_worker_label`.
    pub restrict_nodes: bool,
    /// What storage drivers have left is kept on the books, so that evictions can free some.
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
            actions: vec![
                ActionKind::Allocate,
                ActionKind::Consolidation,
                ActionKind::Reclaim,
                ActionKind::Preempt,
                ActionKind::StaleGangEviction,
            ],
            plugins: vec![
                Plugin::Predicates,
                Plugin::Proportion {
                    k_value: 1_000_000,
                    saturation_multiplier: 1_000_000,
                },
                Plugin::Priority,
                Plugin::Elastic,
                Plugin::Kubeflow,
                Plugin::Ray,
                Plugin::NodeAvailability,
                Plugin::GpuSharingOrder,
                Plugin::GpuPack,
                Plugin::ResourceType,
                Plugin::PodAffinity,
                Plugin::SubGroupOrder,
                Plugin::TaskOrder,
                Plugin::NominatedNode,
                Plugin::DynamicResources,
                Plugin::NodePlacement {
                    gpu: Strategy::Binpack,
                    cpu: Strategy::Binpack,
                },
                Plugin::MinRuntime {
                    preempt: 0,
                    reclaim: 0,
                    resolve: ResolveMethod::Lca,
                },
                Plugin::DeviceLocality {
                    attributes: DEVICE_LOCALITY.map(str::to_owned).into(),
                },
                Plugin::Topology,
                Plugin::TopologySpread,
                Plugin::NodeLocalGreedy,
                Plugin::MultiNodeGang,
                Plugin::Complete { steps: COMPLETE_STEPS },
                Plugin::Spare,
            ],
            queue_depth: Vec::new(),
            full_hierarchy: true,
            consolidating_reclaim: true,
            max_consolidation_victims: Some(16),
            disruption_budgets: DisruptionBudgets::Prefer,
            staleness_grace: Some(60_000),
            stuck_after: 120_000,
            restrict_nodes: false,
            csi_storage: false,
            cpu_worker_label: "node-role.kubernetes.io/cpu-worker".to_owned(),
            gpu_worker_label: "node-role.kubernetes.io/gpu-worker".to_owned(),
            node_pool: "default".to_owned(),
            detailed_errors: false,
        }
    }
}
