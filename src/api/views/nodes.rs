//! Nodes and their GPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Meta;

/// Nodes, in order of name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// The time of the figures, and the replica that answered.
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
    /// The name.
    pub name: String,
    /// The SchedulingShard that the node belongs to.
    pub shard: String,
    /// Whether the node is ready.
    pub ready: bool,
    /// Whether the node is cordoned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// The node's GPUs; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<NodeGpus>,
    /// Cores.
    pub cpu: NodeResource,
    /// Bytes.
    pub memory: NodeResource,
    /// Pods on the node, of all schedulers.
    pub pods: usize,
}

/// The nodes with GPUs, in order of name, with the fields that the GPU map needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuMap {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// How many nodes have no GPUs and are left out.
    pub without_gpus: usize,
    /// The nodes.
    pub nodes: Vec<NodeOnMap>,
}

/// A node with GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeOnMap {
    /// The name.
    pub name: String,
    /// Whether the node takes pods.
    #[serde(default, skip_serializing_if = "NodeState::is_ready")]
    pub state: NodeState,
    /// How many GPUs the node has.
    pub total: f64,
    /// How many GPUs are free as a whole.
    pub free: f64,
    /// The part in use of each shared GPU, from 0 to 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<f64>,
}

/// Whether a node takes pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum NodeState {
    /// The node takes pods.
    #[default]
    Ready,
    /// The node is not ready.
    NotReady,
    /// The node is cordoned.
    Cordoned,
}

impl NodeState {
    fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

/// An amount of a resource, and how much of it is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeResource {
    /// The allocatable amount.
    pub total: f64,
    /// The free amount.
    pub free: f64,
}

/// The GPUs of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeGpus {
    /// How many GPUs the node has.
    pub total: f64,
    /// How many GPUs are free as a whole.
    pub free: f64,
    /// How many will be free as a whole after terminating pods have ended and pipelined pods are bound.
    pub free_later: f64,
    /// MiB of memory per GPU; absent if the node has no label with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<i64>,
    /// The shared GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<SharedGpu>,
    /// Pods that use whole GPUs or MIG instances, of the namespaces that the caller may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<GpuUser>,
    /// GPUs used by pods that the caller may not see.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub used_by_others: f64,
}

/// A shared GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedGpu {
    /// The GPU group.
    pub group: String,
    /// The part that is in use, from 0 to 1.
    pub used: f64,
    /// Pods that use the GPU, of the namespaces that the caller may see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<GpuUser>,
    /// The part that is used by pods that the caller may not see.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub used_by_others: f64,
}

/// A pod that uses GPUs of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GpuUser {
    /// The pod's namespace.
    pub namespace: String,
    /// The name.
    pub pod: String,
    /// The pod's pod group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The pod group's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// How many GPUs the pod uses, or the portion of a shared GPU.
    pub gpus: f64,
    /// Whether the pod is terminating.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

fn is_zero(amount: &f64) -> bool {
    *amount == 0.0
}
