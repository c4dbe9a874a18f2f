//! Queues.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Amounts, Bounds, Held, Meta};
use crate::api::schema;

/// All queues.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QueueList {
    /// When this was true.
    pub meta: Meta,
    /// Each queue right after its parent or that one's other children, siblings by name.
    pub queues: Vec<Queue>,
}

/// A queue. Its figures include the queues below it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// What it is called in messages, where that is not its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The queue above it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How many queues are above it.
    pub depth: usize,
    /// The SchedulingShard that it belongs to.
    pub shard: String,
    /// What is wrong with it, so that nothing can run in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The queue, this one or one above it, that is held, so that nothing is started in this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Among its siblings, higher goes first.
    pub priority: i64,
    /// What it deserves.
    pub quota: Bounds,
    /// The most that it may hold.
    pub limit: Bounds,
    /// Its weight in sharing what is over.
    pub weight: Amounts,
    /// Its fair share at present.
    pub fair_share: Amounts,
    /// What its pods hold, those too that are about to be bound.
    pub allocated: Amounts,
    /// The part of that which belongs to non-preemptible workloads.
    pub non_preemptible: Amounts,
    /// What its pods hold or wait for.
    pub requested: Amounts,
    /// What it used over time, as parts of the cluster; null where that is not summed up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_over_time: Option<Amounts>,
    /// Workloads of which some pod waits.
    pub waiting: usize,
    /// Workloads of which some pod holds something.
    pub running: usize,
    /// What of its quota schedule is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<InForce>,
}

/// What of a queue's quota schedule is in force.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InForce {
    /// The entry; absent while the queue goes by its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::date_time")]
    pub until: Option<Timestamp>,
}

/// What a queue held of late, and what it was entitled to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueHistory {
    /// When this was true.
    pub meta: Meta,
    /// The queue.
    pub queue: String,
    /// Seconds from one sample to the next. Where there are more, this replica did not schedule the queue.
    pub every_seconds: u64,
    /// The oldest first. They are in the memory of the replica that schedules the queue.
    pub samples: Vec<QueueSample>,
}

/// A queue at some time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueSample {
    /// When.
    #[schemars(schema_with = "schema::date_time")]
    pub at: Timestamp,
    /// Its fair share.
    pub fair_share: Amounts,
    /// What its pods held.
    pub allocated: Amounts,
    /// What its pods held or waited for.
    pub requested: Amounts,
}
