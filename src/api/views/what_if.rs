//! What would happen to workloads that are not there yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Meta, Verdict};

/// What is asked: pods that are not there, each of which names its pod group in the annotation `pod-group-name`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhatIfAsked {
    /// Pods, as manifests.
    pub pods: Vec<serde_json::Map<String, serde_json::Value>>,
    /// Their pod groups, as manifests.
    #[serde(default)]
    pub pod_groups: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// What the scheduler would do now if the pods in question were created. Nothing is written, and nothing is held for them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// When this was true.
    pub meta: Meta,
    /// Whether all pods in question would be bound, at once or after evictions.
    pub runs: bool,
    /// Pods in question that would be bound, and where.
    pub binds: Vec<WouldBind>,
    /// Pods that would be evicted for them; of those namespaces alone that the caller may see.
    pub evicts: Vec<WouldEvict>,
    /// How many more would be evicted, which the caller may not see.
    pub evicts_others: usize,
    /// Workloads in question of which pods would wait, and why.
    pub waits: Vec<WouldWait>,
    /// What of the manifests could not be used.
    pub notes: Vec<String>,
}

/// A pod that would be bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldBind {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its node; absent where the caller may not list nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Only after pods that would be evicted have left.
    pub after_evictions: bool,
}

/// A pod that would be evicted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldEvict {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its pod group.
    pub workload: String,
    /// The action that would decide it.
    pub action: String,
    /// Why, in words.
    pub message: String,
}

/// A workload of which pods would wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WouldWait {
    /// Its namespace.
    pub namespace: String,
    /// The name of its PodGroup.
    pub workload: String,
    /// Why.
    pub verdict: Verdict,
    /// What that rests on, one sentence each.
    pub evidence: Vec<String>,
}
