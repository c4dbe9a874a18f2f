//! Nodes and their GPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Meta;

/// Nodes, in order of name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// When this was true.
    pub meta: Meta,
    /// How many nodes there are in all.
    pub total: usize,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The value of `after` for the nodes that follow; absent with the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// The SchedulingShard that it belongs to.
    pub shard: String,
    /// Whether its kubelet is well.
    pub ready: bool,
    /// Whether it takes no new pods.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Its GPUs; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<NodeGpus>,
    /// Cores.
    pub cpu: NodeResource,
    /// Bytes.
    pub memory: NodeResource,
    /// Pods on it, of all schedulers.
    pub pods: usize,
}

/// The nodes that have GPUs, in order of name, with what a picture of them takes and no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuMap {
    /// When this was true.
    pub meta: Meta,
    /// How many nodes have no GPUs. They are left out.
    pub without_gpus: usize,
    /// The nodes.
    pub nodes: Vec<NodeOnMap>,
}

/// A node with GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOnMap {
    /// Its name.
    pub name: String,
    /// Whether it takes pods.
    #[serde(default, skip_serializing_if = "NodeState::is_ready")]
    pub state: NodeState,
    /// How many GPUs it has.
    pub total: f64,
    /// How many no pod uses, not even a part of.
    pub free: f64,
    /// How much is in use of each that pods share, 1 being all of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<f64>,
}

/// Whether a node takes pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    /// It does.
    #[default]
    Ready,
    /// Its kubelet is not well.
    NotReady,
    /// It was told to take none.
    Cordoned,
}

impl NodeState {
    fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

/// How much there is, and how much of it is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeResource {
    /// What pods may use.
    pub total: f64,
    /// What none uses.
    pub free: f64,
}

/// The GPUs of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGpus {
    /// How many there are.
    pub total: f64,
    /// How many no pod uses, not even a part of.
    pub free: f64,
    /// How many will be free once pods that leave have left, and those that are meant for the node have come.
    pub free_later: f64,
    /// MiB of each; absent if the node does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<i64>,
    /// Those that pods share.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedGpu>,
    /// Pods that use whole GPUs or MIG instances; of those namespaces alone that the caller may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<GpuUser>,
    /// GPUs used by pods that the caller may not see.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub used_by_others: f64,
}

/// A GPU that pods share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedGpu {
    /// Its group.
    pub group: String,
    /// How much of it is in use, 1 being all of it.
    pub used: f64,
    /// Who uses it; of those namespaces alone that the caller may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<GpuUser>,
    /// How much of it is used by pods that the caller may not see.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub used_by_others: f64,
}

/// A pod that uses GPUs of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuUser {
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its pod group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The queue of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How many GPUs, or how much of a shared one.
    pub gpus: f64,
    /// Whether it is leaving.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

fn is_zero(amount: &f64) -> bool {
    *amount == 0.0
}
