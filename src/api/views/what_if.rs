//! What would happen if given workloads were created.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Meta, Verdict};

/// The request: pods that do not exist yet, each of which names its pod group in the annotation `pod-group-name`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhatIfAsked {
    /// Pods, as manifests.
    pub pods: Vec<serde_json::Map<String, serde_json::Value>>,
    /// The pod groups of these pods, as manifests.
    #[serde(default)]
    pub pod_groups: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// What the scheduler would decide now if the pods of the request were created. Nothing is written, and nothing is reserved for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// Whether all pods of the request would be bound, at once or after evictions.
    pub runs: bool,
    /// Pods of the request that would be bound, with their nodes.
    pub binds: Vec<WouldBind>,
    /// Pods that would be evicted for them, of the namespaces that the caller may see.
    pub evicts: Vec<WouldEvict>,
    /// How many pods would be evicted in namespaces that the caller may not see.
    pub evicts_others: usize,
    /// Workloads of the request with pods that would wait, with the reason.
    pub waits: Vec<WouldWait>,
    /// Manifests or fields that were ignored, with the reason.
    pub notes: Vec<String>,
}

/// A pod that would be bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldBind {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub pod: String,
    /// The node; absent where the caller may not list nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether the pod would be bound only after evicted pods have terminated.
    pub after_evictions: bool,
}

/// A pod that would be evicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldEvict {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub pod: String,
    /// The pod's pod group.
    pub workload: String,
    /// The action that would decide the eviction.
    pub action: String,
    /// The reason, as a sentence.
    pub message: String,
}

/// A workload with pods that would wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldWait {
    /// The namespace.
    pub namespace: String,
    /// The name of its PodGroup.
    pub workload: String,
    /// The cause, and its sentence.
    pub verdict: Verdict,
    /// The evidence, one sentence each.
    pub evidence: Vec<String>,
}
