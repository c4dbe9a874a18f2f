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
    /// When this was true.
    pub meta: Meta,
    /// How many fit the question in all.
    pub total: usize,
    /// The workloads.
    pub workloads: Vec<Workload>,
    /// The value of `after` for those that follow; absent with the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// How far a workload is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WorkloadState {
    /// No pod of it has a node, and some wait for one.
    #[default]
    Waiting,
    /// Some of its pods have a node, others wait for one.
    PartlyRunning,
    /// All its pods have a node.
    Running,
    /// Its pods leave, and none stays.
    Leaving,
    /// Its pods have ended.
    Finished,
    /// It has no pods.
    Empty,
}

/// How workloads are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WorkloadOrder {
    /// By namespace and name.
    #[default]
    Name,
    /// The first in the lines of their queues first, then those that are in none.
    Line,
    /// Those that wait for the longest time first.
    Age,
}

/// A workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// Its namespace.
    pub namespace: String,
    /// The name of its PodGroup.
    pub name: String,
    /// The queue that it names.
    pub queue: String,
    /// The SchedulingShard that it belongs to.
    pub shard: String,
    /// Its priority.
    pub priority: i64,
    /// Whether it may be evicted for others.
    pub preemptible: bool,
    /// How far it is.
    pub state: WorkloadState,
    /// Its pods.
    pub pods: PodCounts,
    /// What all its pods that can run ask for together.
    pub requested: Amounts,
    /// When its PodGroup was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub created: Option<Timestamp>,
    /// When it last got its first nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub started: Option<Timestamp>,
    /// Why it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Who lets nothing further of it start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Its place in the line of its queue, from 1 on, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
}

/// A hold: nothing is started until it is released. What runs stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// The queue that is held, and with it all in it and below it; absent where the workload itself is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Why, as whoever holds it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The pods of a workload, by what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodCounts {
    /// Pods that have to run together.
    pub min: usize,
    /// Pods that run, or could.
    pub wanted: usize,
    /// Pods that have a node, those too that have not started on it.
    pub running: usize,
    /// Pods that wait for a node.
    pub waiting: usize,
    /// Pods that wait for their scheduling gates.
    pub gated: usize,
    /// Pods that leave.
    pub leaving: usize,
    /// Pods that have ended.
    pub ended: usize,
}

/// Why a workload or a pod waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The kind of the cause, in one word.
    pub cause: String,
    /// The cause, in one sentence.
    pub sentence: String,
}

/// A workload with all that is known of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadDetails {
    /// When this was true.
    pub meta: Meta,
    /// The workload.
    pub workload: Workload,
    /// What the verdict rests on, one sentence each.
    pub evidence: Vec<String>,
    /// Its queue and those above it, from its own up.
    pub queues: Vec<super::Queue>,
    /// Its pods, by name.
    pub pods: Vec<Pod>,
    /// What happened to it, as far as it is known, the oldest first.
    pub timeline: Vec<Moment>,
}

/// What a pod does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodState {
    /// Waits for a node.
    #[default]
    Waiting,
    /// Waits for its scheduling gates.
    Gated,
    /// Has a place as soon as others have left.
    Planned,
    /// Is being bound.
    Binding,
    /// Has a node, and does not run yet.
    Bound,
    /// Runs.
    Running,
    /// Leaves.
    Leaving,
    /// Ended well.
    Succeeded,
    /// Failed.
    Failed,
    /// Not even the API server knows.
    Unknown,
}

/// A pod of a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// What it does.
    pub state: PodState,
    /// Its part of the workload, where that has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_group: Option<String>,
    /// Its node, or the one that it is meant for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What it asks for.
    pub requested: Amounts,
    /// The groups of the shared GPUs that it uses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_groups: Vec<String>,
    /// Why it waits, as its condition PodScheduled says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What happens to a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MomentKind {
    /// Its PodGroup was created.
    Created,
    /// A reason to wait was found, or another than before.
    Waits,
    /// Places for pods were decided.
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

/// What happened at some time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// When.
    #[schemars(schema_with = "schema::date_time")]
    pub at: Timestamp,
    /// What.
    pub kind: MomentKind,
    /// One sentence.
    pub text: String,
}
