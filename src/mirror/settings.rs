//! Settings of the mirror.

use super::Shard;
use super::identity::OwnPods;
use crate::api::names::{node_label, object, resource};

/// Settings of a mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Pods with this `spec.schedulerName` are ours to schedule.
    pub scheduler_name: String,
    /// The operator's own pods.
    pub own_pods: OwnPods,
    /// Which nodes, queues and pod groups belong to this shard.
    pub shard: Shard,
    /// Only nodes with one of the two worker labels take part.
    pub restrict_nodes: bool,
    /// Label key of CPU worker nodes.
    pub cpu_worker_label: String,
    /// Label key of GPU worker nodes.
    pub gpu_worker_label: String,
    /// Label key of nodes with multi-instance GPUs.
    pub mig_label: String,
    /// Extended resources that are whole GPUs, of all vendors counted together.
    pub gpu_resources: Vec<String>,
    /// The kubelets' NUMA alignment is predicted, without these resources.
    pub numa: Option<Vec<String>>,
    /// The available amounts of zones are those that agents report, which lag behind; otherwise they are computed from the records of pods.
    pub zones_as_reported: bool,
    /// Pods wait for the ConfigMaps that they need, which are watched.
    pub config_maps: bool,
    /// How bound pods with an unknown pod group are charged; `None`: they do not count, as in KAI.
    pub fallback_queue: Option<FallbackQueue>,
    /// False: queues with a parent hang below one unlimited queue `default`, and no other queue exists.
    pub full_hierarchy: bool,
}

/// Which queue is charged for a bound pod whose pod group is not known: the one that its label names, else its namespace's, else a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackQueue {
    /// The key of the label that names a queue, on pods and namespaces.
    pub label: String,
    /// The queue of those that have none.
    pub default: String,
}

impl Default for Settings {
    /// KAI's defaults.
    fn default() -> Self {
        Self {
            scheduler_name: object::SCHEDULER_NAME.to_owned(),
            own_pods: OwnPods::default(),
            shard: Shard::default(),
            restrict_nodes: false,
            cpu_worker_label: node_label::CPU_WORKER.to_owned(),
            gpu_worker_label: node_label::GPU_WORKER.to_owned(),
            mig_label: node_label::MIG_ENABLED.to_owned(),
            gpu_resources: resource::WHOLE_GPUS.map(ToOwned::to_owned).into(),
            numa: None,
            zones_as_reported: false,
            config_maps: false,
            fallback_queue: None,
            full_hierarchy: true,
        }
    }
}
