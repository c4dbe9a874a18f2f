//! Explanations of pods, pod groups, queues and nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Meta, Verdict};

/// The object that is explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `Pod`, `PodGroup`, `Queue` or `Node`.
    pub kind: String,
    /// The namespace; absent for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// An explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The time of the figures, and the replica that answered.
    pub meta: Meta,
    /// The object that is explained.
    pub subject: Subject,
    /// The cause, and its sentence.
    pub verdict: Verdict,
    /// The evidence, one sentence each.
    pub evidence: Vec<String>,
    /// Commands that show more or that help, with the names filled in.
    pub commands: Vec<String>,
}
