//! What the operator's HTTP API answers under `/api/v1/`: one type for each answer, from which its OpenAPI document is made.
//!
//! Fields are only ever added to a version. Times are RFC 3339. Absent: access control, and the sources of the figures.

mod evictions;
mod explain;
mod nodes;
mod queues;
mod what_if;
mod workloads;

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema;

pub use evictions::{Eviction, EvictionList, QueueSide};
pub use explain::{Explanation, Subject};
pub use nodes::{GpuMap, GpuUser, Node, NodeGpus, NodeList, NodeOnMap, NodeResource, NodeState, SharedGpu};
pub use queues::{InForce, Queue, QueueHistory, QueueList, QueueSample};
pub use what_if::{WhatIf, WhatIfAsked, WouldBind, WouldEvict, WouldWait};
pub use workloads::{
    Held, Moment, MomentKind, Pod, PodCounts, PodState, Verdict, Workload, WorkloadDetails, WorkloadList,
    WorkloadOrder, WorkloadState,
};

/// Maximum age of a list when it is answered: each replica caches what it has read.
pub const OLDEST: Duration = Duration::from_secs(10);

/// Amounts of the resources that queues share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Amounts {
    /// GPUs; portions of shared GPUs are fractions.
    pub gpu: f64,
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
}

/// Amounts of the resources that queues share; null is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// GPUs.
    pub gpu: Option<f64>,
    /// Cores.
    pub cpu: Option<f64>,
    /// Bytes.
    pub memory: Option<f64>,
}

impl Amounts {
    /// From milli-cores, bytes and millionths of GPUs.
    #[must_use]
    pub fn of([cpu, memory, gpu]: [i64; 3]) -> Self {
        Self {
            gpu: gpu as f64 / 1e6,
            cpu: cpu as f64 / 1e3,
            memory: memory as f64,
        }
    }
}

impl Bounds {
    /// From milli-cores, bytes and millionths of GPUs, where `None` is unlimited.
    #[must_use]
    pub fn of([cpu, memory, gpu]: [Option<i64>; 3]) -> Self {
        Self {
            gpu: gpu.map(|gpu| gpu as f64 / 1e6),
            cpu: cpu.map(|cpu| cpu as f64 / 1e3),
            memory: memory.map(|memory| memory as f64),
        }
    }
}

/// The time of an answer's figures, and whether this replica schedules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// When the figures were read.
    #[schemars(schema_with = "schema::date_time")]
    pub as_of: Timestamp,
    /// Whether this replica schedules. A replica that does not has no past evictions, and not all verdicts of the last cycle.
    pub leads: bool,
    /// The replica that schedules, by the holder's name in the Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// How many namespaces were left out, because checking the caller's access to all of them would take too many requests; 0 for callers who may list in all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub namespaces_left_out: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// An error. The HTTP status is its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The error as a sentence, with what would have to change.
    pub error: String,
}
