//! What the operator's HTTP API answers under `/api/v1/`: one type for each answer, from which its OpenAPI document is made.
//!
//! Fields are only ever added to a version. Times are RFC 3339. Absent: who may see what, and where the figures come from.

mod evictions;
mod explain;
mod nodes;
mod queues;
mod what_if;
mod workloads;

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

/// Amounts of what queues share: cores, bytes, GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Amounts {
    /// GPUs; parts of shared ones count as parts.
    pub gpu: f64,
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: f64,
}

/// Amounts of what queues share, where null is unlimited: cores, bytes, GPUs.
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
    /// Of milli-cores, bytes and millionths of GPUs.
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
    /// Of milli-cores, bytes and millionths of GPUs, where nothing is no bound.
    #[must_use]
    pub fn of([cpu, memory, gpu]: [Option<i64>; 3]) -> Self {
        Self {
            gpu: gpu.map(|gpu| gpu as f64 / 1e6),
            cpu: cpu.map(|cpu| cpu as f64 / 1e3),
            memory: memory.map(|memory| memory as f64),
        }
    }
}

/// When an answer was true, and how much of it this replica knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Meta {
    /// When the figures were read.
    #[schemars(schema_with = "schema::date_time")]
    pub as_of: Timestamp,
    /// Whether this replica schedules. One that does not knows neither the verdicts of the last cycle in full nor past evictions.
    pub leads: bool,
    /// Who schedules, by the holder's name in the Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// Namespaces that were left out since too many would have had to be asked about; 0 for those who may list in all.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub namespaces_left_out: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Why there is no answer. The HTTP status says of what kind it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// A sentence, with what would have to change.
    pub error: String,
}
