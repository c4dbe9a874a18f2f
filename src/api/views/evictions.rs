//! Evictions of late.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amounts, Bounds, Meta};
use crate::api::schema;

/// The last evictions that this replica decided in the namespaces that the caller may see, the latest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvictionList {
    /// When this was true.
    pub meta: Meta,
    /// Since when evictions are remembered: the begin of the process, or the oldest that there is room for.
    #[schemars(schema_with = "schema::date_time")]
    pub since: Timestamp,
    /// The evictions.
    pub evictions: Vec<Eviction>,
}

/// A pod that had to leave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Eviction {
    /// When it was decided.
    #[schemars(schema_with = "schema::date_time")]
    pub at: Timestamp,
    /// The pod's namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its pod group.
    pub workload: String,
    /// The queue of that, where it was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The node that it was on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The action that decided it: `reclaim`, `preempt`, `consolidation`, `stalegangeviction`.
    pub action: String,
    /// Whose place it made, as `namespace/name` of the pod group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted_for: Option<String>,
    /// Why, in words.
    pub message: String,
    /// Disruption budgets of its namespace that did not allow it and were overruled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overruled_budgets: Vec<String>,
    /// The queue that lost it, and the one that won, where one took back what it may have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sides: Vec<QueueSide>,
}

/// A queue's figures before an eviction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSide {
    /// Its name in messages.
    pub queue: String,
    /// What it held.
    pub allocated: Amounts,
    /// What it deserves.
    pub quota: Bounds,
    /// Its fair share.
    pub fair_share: Amounts,
    /// Its priority.
    pub priority: i64,
}
