//! Queues.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amounts, Bounds, Held, Meta};
use crate::api::schema;

/// All queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// The queues, each after its parent, children of the same parent by name.
    pub queues: Vec<Queue>,
}

/// A queue. Its figures include the queues below it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// The name.
    pub name: String,
    /// The display name, if it differs from the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The parent queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How many ancestors the queue has.
    pub depth: usize,
    /// The SchedulingShard that the queue belongs to.
    pub shard: String,
    /// The error in the queue's definition for which nothing can run in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The hold on this queue or an ancestor, by which no pending pods in this queue are placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The priority: queues of higher priority are served before others with the same parent.
    pub priority: i64,
    /// The quota that is in force.
    pub quota: Bounds,
    /// The limit that is in force.
    pub limit: Bounds,
    /// The over-quota weight.
    pub weight: Amounts,
    /// The fair share of the last cycle.
    pub fair_share: Amounts,
    /// What the queue's pods hold, pods that are being bound included.
    pub allocated: Amounts,
    /// The part of `allocated` that non-preemptible workloads hold.
    pub non_preemptible: Amounts,
    /// What the queue's pods hold or wait for.
    pub requested: Amounts,
    /// The usage over time, as a share of the cluster; null where usage is not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_over_time: Option<Amounts>,
    /// How many workloads have a pod that waits.
    pub waiting: usize,
    /// How many workloads have a pod that holds resources.
    pub running: usize,
    /// The entry of the quota schedule that is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<InForce>,
}

/// The entry of a queue's quota schedule that is in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    /// The entry's name; absent while the queue's spec applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// The time until which the entry is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub until: Option<Timestamp>,
}

/// The history of what a queue held, and of its fair share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueHistory {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// The queue.
    pub queue: String,
    /// Seconds between samples. In longer gaps this replica did not schedule the queue.
    pub every_seconds: u64,
    /// The samples, oldest first. They are in the memory of the replica that schedules the queue.
    pub samples: Vec<QueueSample>,
}

/// A sample of a queue's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSample {
    /// The time of the sample.
    #[schemars(schema_with = "schema::date_time")]
    pub at: Timestamp,
    /// The fair share.
    pub fair_share: Amounts,
    /// What the queue's pods held.
    pub allocated: Amounts,
    /// What the queue's pods held or waited for.
    pub requested: Amounts,
}
