//! Queue (`scheduling.run.ai/v2`): a share of the cluster. Queues form a tree; workloads run in its leaves.
//!
//! Absent: what an amount means to the scheduler. The numbers here keep the units of the API (GPUs, millicores, megabytes).

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::{self, DurationError};
use super::lenient::{absent_as_default, null_as_default};
use super::{QuantityMap, schema};

/// The queue's parent, priority, and quota and limit of each resource.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2",
    kind = "Queue",
    doc = "A share of the cluster. Queues form a tree; workloads run in its leaves.",
    status = "QueueStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "GPUs", "type": "string", "jsonPath": ".status.summary.gpus", "description": "GPUs held, of the quota; of the fair share where there is no quota"}"#,
    printcolumn = r#"{"name": "Fair", "type": "string", "jsonPath": ".status.summary.fairShare", "description": "The fair share of GPUs"}"#,
    printcolumn = r#"{"name": "Quota", "type": "string", "jsonPath": ".status.summary.quota", "description": "The quota of GPUs"}"#,
    printcolumn = r#"{"name": "Limit", "type": "string", "jsonPath": ".status.summary.limit", "description": "The limit of GPUs"}"#,
    printcolumn = r#"{"name": "Waiting", "type": "integer", "jsonPath": ".status.summary.waiting", "description": "Pod groups with pods that wait"}"#,
    printcolumn = r#"{"name": "Held", "type": "string", "jsonPath": ".metadata.annotations.unikai\\.dev/hold", "description": "Why the queue and those below it are held, or true"}"#,
    printcolumn = r#"{"name": "Priority", "type": "string", "jsonPath": ".spec.priority"}"#,
    printcolumn = r#"{"name": "Parent", "type": "string", "jsonPath": ".spec.parentQueue"}"#,
    printcolumn = r#"{"name": "Children", "type": "string", "jsonPath": ".status.childQueues"}"#,
    printcolumn = r#"{"name": "DisplayName", "type": "string", "jsonPath": ".spec.displayName"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct QueueSpec {
    /// Name shown in messages and metrics; the object's name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The queue above this one; a top-level queue if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_queue: Option<String>,
    /// Queues of higher priority are served first and reclaimed from last; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// How long a workload runs before workloads of the same queue may preempt it, e.g. 10m; inherited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::go_duration")]
    pub preempt_min_runtime: Option<String>,
    /// How long a workload runs before other queues may reclaim its resources, e.g. 1h30m; inherited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::go_duration")]
    pub reclaim_min_runtime: Option<String>,
    /// The queue's share of each resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<QueueResources>,
}

absent_as_default!(QueueSpec);

impl QueueSpec {
    /// The minimum runtime before preemption.
    ///
    /// # Errors
    /// If the text is not a Go duration.
    pub fn preempt_min_runtime(&self) -> Result<Option<SignedDuration>, DurationError> {
        self.preempt_min_runtime.as_deref().map(duration::parse_go).transpose()
    }

    /// The minimum runtime before reclaim.
    ///
    /// # Errors
    /// If the text is not a Go duration.
    pub fn reclaim_min_runtime(&self) -> Result<Option<SignedDuration>, DurationError> {
        self.reclaim_min_runtime.as_deref().map(duration::parse_go).transpose()
    }
}

/// The three resources that queues divide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueResources {
    /// GPUs; fractions are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<QueueResource>,
    /// CPU in millicores (1000 = one core).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<QueueResource>,
    /// Memory in megabytes of 10^6 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<QueueResource>,
}

/// A queue's share of one resource; -1 means unlimited, an absent number means 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueResource {
    /// The guaranteed amount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
    /// The weight by which surplus is divided among queues; 0 gets none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_quota_weight: Option<f64>,
    /// The limit. 0 or absent: no workload that requests the resource may run; -1: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// What the workloads of the queue request and hold now.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Conditions of the queue.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<QueueCondition>,
    /// The children of this queue.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub child_queues: Vec<String>,
    /// What the workloads of this queue and of the queues below it hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub allocated: QuantityMap,
    /// The part of `allocated` that non-preemptible workloads hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub allocated_non_preemptible: QuantityMap,
    /// What the workloads of this queue and of the queues below it request.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub requested: QuantityMap,
    /// What `kubectl get queues` shows. Ours; KAI's definition has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<QueueSummary>,
}

/// The columns of `kubectl get queues`: amounts of GPUs, as numbers or `unlimited`, and how many pod groups wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSummary {
    /// GPUs that the queue and those below it hold, of the quota; of the fair share where there is no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<String>,
    /// The fair share of GPUs. Written some seconds after it changed, or with the next change of the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_share: Option<String>,
    /// The quota of GPUs that is in force now, by the queue's schedule if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    /// The limit of GPUs that is in force now, by the queue's schedule if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Pod groups of the queue and those below it with pods that wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<i32>,
}

/// A condition of a queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCondition {
    /// The type of the condition, e.g. `Orphan`.
    pub r#type: String,
    /// The status of the condition: True, False or Unknown.
    pub status: String,
    /// When the condition was last updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_probe_time: Option<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Option<Time>,
    /// The reason for the status, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason for the status, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
