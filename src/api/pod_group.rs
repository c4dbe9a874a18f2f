//! PodGroup (`scheduling.run.ai/v2alpha2`): the pods that belong to one workload, and how many of them must run together.
//!
//! Absent: the interpretation of the sub-group tree, which is the mirror's.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::{self, DurationError};
use super::lenient::{absent_as_default, null_as_default};
use super::{QuantityMap, schema};

/// The workload's queue, priority, minimum and topology constraints.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v2alpha2",
    kind = "PodGroup",
    doc = "The pods of one workload, and how many of them must run together.",
    shortname = "pg",
    namespaced,
    status = "PodGroupStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Running", "type": "string", "jsonPath": ".status.summary.running", "description": "Pods with a node, of all pods or of the minimum if that is more"}"#,
    printcolumn = r#"{"name": "State", "type": "string", "jsonPath": ".status.summary.state", "description": "Pending, Partial, Running, Finished or Empty"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.summary.reason", "description": "Why pods wait, in a word"}"#,
    printcolumn = r#"{"name": "Queue", "type": "string", "jsonPath": ".spec.queue"}"#,
    printcolumn = r#"{"name": "Min", "type": "integer", "jsonPath": ".spec.minMember", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct PodGroupSpec {
    /// How many pods must run together; 1 if absent, 0 = each pod for itself. Not used when there are sub-groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// How many of the sub-groups without a parent must run together; all of them if absent. Excludes minMember.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// The queue that the workload runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The PriorityClass that orders the workload within its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Whether the workload may be evicted for other workloads; if absent, its priority decides (below 100: preemptible).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::preemptibility")]
    pub preemptibility: Option<String>,
    /// Whether pods that cannot be scheduled get the condition PodScheduled=False; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark_unschedulable: Option<bool>,
    /// -1 (also if absent): try again in every cycle. 1: do not try again in a node pool that had no room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_backoff: Option<i32>,
    /// How long after its creation or last eviction the workload may not cause evictions, e.g. 10m; no delay if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::go_duration")]
    pub preemption_delay: Option<String>,
    /// How long a running workload may stay below its minimum before the rest is evicted, e.g. 5m; negative = for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::go_duration")]
    pub staleness_grace_period: Option<String>,
    /// The topology constraint of all pods of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
    /// The sub-groups of the workload, which form a tree by their parent fields. Only leaves have pods.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub sub_groups: Vec<SubGroup>,
}

absent_as_default!(PodGroupSpec);

impl PodGroupSpec {
    /// The preemption delay.
    ///
    /// # Errors
    /// If the text is not a Go duration.
    pub fn preemption_delay(&self) -> Result<Option<SignedDuration>, DurationError> {
        self.preemption_delay.as_deref().map(duration::parse_go).transpose()
    }

    /// The staleness grace period; negative means for ever.
    ///
    /// # Errors
    /// If the text is not a Go duration.
    pub fn staleness_grace_period(&self) -> Result<Option<SignedDuration>, DurationError> {
        self.staleness_grace_period
            .as_deref()
            .map(duration::parse_go)
            .transpose()
    }
}

/// A topology constraint: the level of a Topology within one domain of which pods must or should run. Levels are named by node label or alias.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyConstraint {
    /// The Topology that the levels belong to; without it the constraint has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// The level within one domain of which all pods must run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_topology_level: Option<String>,
    /// The level within one domain of which the pods should run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_topology_level: Option<String>,
}

/// A sub-group of a workload: a leaf, which has pods, or an inner node, which has sub-groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// The name, unique in the PodGroup; pods name their sub-group in the label kai.scheduler/subgroup-name.
    #[schemars(length(min = 1), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// The sub-group above this one; directly below the PodGroup if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub parent: Option<String>,
    /// On a leaf: how many pods must run together; 0 = each for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_member: Option<i32>,
    /// On an inner node: how many of the sub-groups directly below must run together; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub min_sub_group: Option<i32>,
    /// The topology constraint of the pods of this sub-group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
}

/// What the pods of the workload request and hold now, and why they wait.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// Conditions of the workload.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    /// What the pods of the workload request and hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_status: Option<ResourcesStatus>,
    /// Why the workload could not be scheduled, per node pool.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub scheduling_conditions: Vec<SchedulingCondition>,
    /// What `kubectl get podgroups` shows. Ours; KAI's definition has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<PodGroupSummary>,
}

/// The columns of `kubectl get podgroups`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSummary {
    /// Pods that have a node and are not finished, of all pods, or of the minimum if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// Pending: no pod has a node. Partial: fewer than the minimum have. Running: the minimum or more have. Finished: all pods have
    /// ended. Empty: no pod is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why pods wait, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A condition of a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupCondition {
    /// The type of the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The status of the condition: True, False or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// A counter that grows with every transition.
    #[serde(default, rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Option<Time>,
    /// The reason for the status, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Resource sums over the pods of the workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesStatus {
    /// The resources that the pods hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub allocated: QuantityMap,
    /// The same as `allocated` if the workload is non-preemptible, else empty.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub allocated_non_preemptible: QuantityMap,
    /// The resources that the pods request.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub requested: QuantityMap,
}

/// Why the workload could not be scheduled in one node pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingCondition {
    /// Always UnschedulableOnNodePool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// The node pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool: Option<String>,
    /// Deprecated; see reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Deprecated; see reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The status of the condition: True, False or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// A counter that grows with every transition; the greatest is the newest.
    #[serde(default, rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Option<Time>,
    /// The reasons.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<UnschedulableReason>,
}

/// A reason why the workload could not be scheduled.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableReason {
    /// The reason, as one word in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason, as a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The amounts that the reason is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<UnschedulableDetails>,
}

/// The amounts that a reason is based on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableDetails {
    /// The queue's amounts, if the reason is its quota or limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_details: Option<QueueDetails>,
}

/// The amounts of the queue whose quota or limit would be exceeded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueDetails {
    /// The name of the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What all workloads of the queue request.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub queue_requested_resources: QuantityMap,
    /// The queue's quota.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub queue_deserved_resources: QuantityMap,
    /// What all workloads of the queue hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub queue_allocated_resources: QuantityMap,
    /// What the non-preemptible workloads of the queue hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub queue_allocated_non_preemptible_resources: QuantityMap,
    /// The queue's limit.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub queue_resource_limits: QuantityMap,
    /// What the workload requests.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub pod_group_requested_resources: QuantityMap,
    /// The workload's request if it is non-preemptible, else zeros.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub pod_group_requested_non_preemptible_resources: QuantityMap,
}
