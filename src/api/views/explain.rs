//! Why something is as it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Meta, Verdict};

/// What is explained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// `Pod`, `PodGroup`, `Queue` or `Node`.
    pub kind: String,
    /// Its namespace, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// An explanation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// When this was true.
    pub meta: Meta,
    /// What it is about.
    pub subject: Subject,
    /// Cause and first sentence.
    pub verdict: Verdict,
    /// What that rests on, one sentence each.
    pub evidence: Vec<String>,
    /// Commands that show more or help, with the names filled in.
    pub commands: Vec<String>,
}
