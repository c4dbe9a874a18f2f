//! Topology (`kai.scheduler/v1alpha1`): domains of nodes at several levels, such as block and rack, as a list of node labels from coarse to fine.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient::null_as_default;
use super::schema;

/// The levels of the topology.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1alpha1",
    kind = "Topology",
    plural = "topologies",
    doc = "Domains of nodes at several levels, by node labels.",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// The levels, from coarse to fine. Node labels are immutable; aliases may change.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-list-type" = "atomic", "x-kubernetes-validations" = schema::topology_rules()))]
    pub levels: Vec<TopologyLevel>,
}

/// One level: nodes with equal values of the label are in the same domain.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The node label whose values are the names of the domains.
    #[schemars(schema_with = "schema::label_name")]
    pub node_label: String,
    /// A short name that workloads may use for the level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_name")]
    pub alias: Option<String>,
}
