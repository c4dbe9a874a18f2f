//! Recent evictions.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amounts, Bounds, Meta};
use crate::api::schema;

/// The last evictions that this replica decided in the namespaces that the caller may see, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvictionList {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// Since when evictions are kept: the start of the process, or the oldest eviction within the limit.
    #[schemars(schema_with = "schema::date_time")]
    pub since: Timestamp,
    /// The evictions.
    pub evictions: Vec<Eviction>,
}

/// A pod that was evicted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// When the eviction was decided.
    #[schemars(schema_with = "schema::date_time")]
    pub at: Timestamp,
    /// The pod's namespace.
    pub namespace: String,
    /// The name.
    pub pod: String,
    /// The pod's pod group.
    pub workload: String,
    /// The pod group's queue, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The node from which the pod was evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The action that decided the eviction: `reclaim`, `preempt`, `consolidation`, `stalegangeviction`.
    pub action: String,
    /// The pod group for which the pod was evicted, as `namespace/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_for: Option<String>,
    /// The reason, as a sentence.
    pub message: String,
    /// PodDisruptionBudgets of the pod's namespace that did not allow the eviction and were overruled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruled_budgets: Vec<String>,
    /// For reclaim: the victim's queue and the reclaimer's queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<QueueSide>,
}

/// A queue's figures before an eviction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSide {
    /// The queue's name in messages.
    pub queue: String,
    /// What the queue held.
    pub allocated: Amounts,
    /// The quota.
    pub quota: Bounds,
    /// The fair share.
    pub fair_share: Amounts,
    /// The priority.
    pub priority: i64,
}
