//! NodeResourceTopology (`topology.node.k8s.io/v1alpha2`): the NUMA zones of a node, as an agent on it reports them. Another product's CRD: read only, and only the fields
//! that placement needs.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::lenient::null_as_default;

/// The zones of the node of the same name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeResourceTopology {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The kubelet's policies, as older agents write them.
    #[serde(deserialize_with = "null_as_default")]
    pub topology_policies: Vec<String>,
    /// Its zones.
    #[serde(deserialize_with = "null_as_default")]
    pub zones: Vec<Zone>,
    /// Further attributes, among them the kubelet's policy and scope.
    #[serde(deserialize_with = "null_as_default")]
    pub attributes: Vec<Attribute>,
}

/// A zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Zone {
    /// Its name, such as `node-0`.
    pub name: String,
    /// `Node` for a NUMA zone.
    #[serde(rename = "type")]
    pub kind: String,
    /// The resources of the zone.
    #[serde(deserialize_with = "null_as_default")]
    pub resources: Vec<ZoneResource>,
}

/// An amount of a resource in a zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ZoneResource {
    /// The resource.
    pub name: String,
    /// The amount that pods may use.
    pub allocatable: Quantity,
    /// The free amount that the agent reported last.
    pub available: Quantity,
}

/// A named attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl kube::Resource for NodeResourceTopology {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "NodeResourceTopology".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "topology.node.k8s.io".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1alpha2".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "noderesourcetopologies".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
