//! Kubernetes' standard condition, as Config and SchedulingShard report their state.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition, e.g. `Ready`.
    #[schemars(length(max = 316))]
    #[schemars(regex(
        pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
    ))]
    pub r#type: String,
    /// The status of the condition: True, False or Unknown.
    #[schemars(schema_with = "crate::api::schema::condition_status")]
    pub status: String,
    /// The reason for the status, as one word in CamelCase.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// The reason for the status, as a sentence.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When the status last changed.
    #[schemars(schema_with = "crate::api::schema::date_time")]
    pub last_transition_time: Time,
    /// The generation of the object that the condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::api::schema::generation")]
    pub observed_generation: Option<i64>,
}
