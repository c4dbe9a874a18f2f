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

/// What the workload needs to run.
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
    printcolumn = r#"{"name": "Running", "type": "string", "jsonPath": ".status.summary.running", "description": "Pods on nodes, of those that there are or must be"}"#,
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
    /// Whether the workload may be evicted for others; by its priority if absent (below 100: preemptible).
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
    /// Where the pods of the whole group must or should be near one another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
    /// The parts of the workload, as a tree by their parent fields. Only leaves hold pods.
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

/// A demand for nearness, in terms of a Topology object. Levels are named by node label or alias.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyConstraint {
    /// The Topology that the levels belong to; without it the constraint has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// All pods run inside one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_topology_level: Option<String>,
    /// The pods should run inside one domain of this level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_topology_level: Option<String>,
}

/// A part of a workload: a leaf, which holds pods, or an inner node, which holds sub-groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubGroup {
    /// The name, unique in the PodGroup; pods name their leaf in the label kai.scheduler/subgroup-name.
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
    /// Where the pods of this part must or should be near one another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology_constraint: Option<TopologyConstraint>,
}

/// What the workload holds now, and why it waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupStatus {
    /// Aspects of the workload's state.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodGroupCondition>,
    /// What its pods ask for and hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources_status: Option<ResourcesStatus>,
    /// Why it could not be scheduled, per node pool.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub scheduling_conditions: Vec<SchedulingCondition>,
    /// What `kubectl get podgroups` shows. Ours; KAI's definition has no such field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<PodGroupSummary>,
}

/// The workload in a line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupSummary {
    /// Pods that have a node and are not finished, of those that there are, or of the minimum if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<String>,
    /// Pending: no pod has a node. Partial: fewer than the minimum have. Running: the minimum or more have. Finished: all pods have
    /// ended. Empty: no pod is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why pods wait, in a word for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// One aspect of a workload's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupCondition {
    /// Which aspect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Whether it holds: True, False or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// A counter that grows with every transition.
    #[serde(default, rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Option<Time>,
    /// A single word for machines on why it does or does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Resource sums over the pods of the workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourcesStatus {
    /// What its pods hold.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub allocated: QuantityMap,
    /// The same if the workload is non-preemptible, else nothing.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub allocated_non_preemptible: QuantityMap,
    /// What its pods ask for.
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
    /// Whether it holds: True, False or Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// A counter that grows with every transition; the greatest is the newest.
    #[serde(default, rename = "transitionID", skip_serializing_if = "Option::is_none")]
    pub transition_id: Option<String>,
    /// When it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub last_transition_time: Option<Time>,
    /// What stood in the way.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<UnschedulableReason>,
}

/// One thing that stood in the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableReason {
    /// A single word for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<UnschedulableDetails>,
}

/// The numbers behind a reason.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnschedulableDetails {
    /// For reasons that lie in a queue: its amounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_details: Option<QueueDetails>,
}

/// The amounts of the queue that stood in the way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueDetails {
    /// The queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What all workloads of the queue ask for.
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
    /// The part of it held by non-preemptible workloads.
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
    /// What the workload asks for.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub pod_group_requested_resources: QuantityMap,
    /// The same if the workload is non-preemptible, else zeros.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub pod_group_requested_non_preemptible_resources: QuantityMap,
}
