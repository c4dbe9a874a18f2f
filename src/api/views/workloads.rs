//! Workloads: pod groups.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amounts, Meta};
use crate::api::schema;

/// Workloads of the namespaces that the caller may see, by namespace and name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadList {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// How many workloads match the query in all.
    pub total: usize,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The value of `after` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The state of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadState {
    /// No pod has a node, and some wait for one.
    #[default]
    Waiting,
    /// Some pods have a node, others wait for one.
    PartlyRunning,
    /// All pods have a node.
    Running,
    /// All pods are terminating.
    Leaving,
    /// All pods have ended.
    Finished,
    /// There are no pods.
    Empty,
}

/// How workloads are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WorkloadOrder {
    /// By namespace and name.
    #[default]
    Name,
    /// By position in the order of their queues, then those without a position.
    Line,
    /// By the time that they have waited, the longest first.
    Age,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// The namespace.
    pub namespace: String,
    /// The name of the PodGroup.
    pub name: String,
    /// The queue that the workload names.
    pub queue: String,
    /// The SchedulingShard that the workload belongs to.
    pub shard: String,
    /// The priority.
    pub priority: i64,
    /// Whether the workload is preemptible.
    pub preemptible: bool,
    /// The state.
    pub state: WorkloadState,
    /// The numbers of pods.
    pub pods: PodCounts,
    /// The sum of the requests of all pods that have not ended.
    pub requested: Amounts,
    /// When the PodGroup was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub created: Option<Timestamp>,
    /// When pods of the workload last got nodes while none had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub started: Option<Timestamp>,
    /// Why the workload waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The hold by which no further pods of the workload are placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The position among the waiting workloads of its queue, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
}

/// A hold: no pending pods are placed until it is released. Running pods stay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// The queue that is held, with all workloads in it and below it; absent if the workload itself is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The reason that the annotation states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The numbers of a workload's pods, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// The minimum: pods that must run together.
    pub min: usize,
    /// Pods that have not ended and are not terminating.
    pub wanted: usize,
    /// Pods that have a node, whether they have started or not.
    pub running: usize,
    /// Pods that wait for a node.
    pub waiting: usize,
    /// Pods that wait for their scheduling gates.
    pub gated: usize,
    /// Pods that are terminating.
    pub leaving: usize,
    /// Pods that have ended.
    pub ended: usize,
}

/// Why a workload or a pod waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The cause, as one word.
    pub cause: String,
    /// The cause, in one sentence.
    pub sentence: String,
}

/// A workload with its pods, evidence, queues and events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadDetails {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// The workload.
    pub workload: Workload,
    /// The evidence for the verdict, one sentence each.
    pub evidence: Vec<String>,
    /// The workload's queue and its ancestors, from the leaf up.
    pub queues: Vec<super::Queue>,
    /// The pods, by name.
    pub pods: Vec<Pod>,
    /// The events of the workload that this replica has recorded, oldest first.
    pub timeline: Vec<Moment>,
}

/// The state of a pod.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodState {
    /// Waits for a node.
    #[default]
    Waiting,
    /// Waits for its scheduling gates.
    Gated,
    /// Is pipelined: it gets a node as soon as other pods have terminated.
    Planned,
    /// Is being bound.
    Binding,
    /// Has a node, and does not run yet.
    Bound,
    /// Runs.
    Running,
    /// Is terminating.
    Leaving,
    /// Succeeded.
    Succeeded,
    /// Failed.
    Failed,
    /// The API server does not know the state.
    Unknown,
}

/// A pod of a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// The name.
    pub name: String,
    /// The state.
    pub state: PodState,
    /// The sub-group, if the workload has sub-groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group: Option<String>,
    /// The node, or the one that the pod is pipelined for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The request.
    pub requested: Amounts,
    /// The GPU groups of the shared GPUs that the pod uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_groups: Vec<String>,
    /// Why the pod waits, as in its condition PodScheduled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A kind of event of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MomentKind {
    /// The PodGroup was created.
    Created,
    /// The cause of waiting was found, or changed.
    Waits,
    /// Nodes were chosen for pods.
    Decided,
    /// Pods were bound.
    Bound,
    /// A bind failed.
    NotBound,
    /// Pods began to run.
    Running,
    /// Pods were evicted.
    Evicted,
}

/// An event of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// The time.
    #[schemars(schema_with = "schema::date_time")]
    pub at: Timestamp,
    /// The kind of event.
    pub kind: MomentKind,
    /// The description, one sentence.
    pub text: String,
}
