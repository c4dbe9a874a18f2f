//! Parses pods without the fields that are never read: commands, values of variables, probes, field managers, images, sources of token volumes, most conditions. They are most of
//! the text, and are skipped instead of being built and dropped.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::api::lenient::null_as_default;
use crate::mirror::trim::reads_condition;

/// A pod; see the module.
///
/// # Errors
/// Those of the decoder.
pub fn read(text: &str) -> serde_json::Result<core::Pod> {
    let Pod { metadata, spec, status } = serde_json::from_str(text)?;
    Ok(core::Pod {
        metadata: metadata.unwrap_or_default().into(),
        spec: spec.map(Into::into),
        status: status.map(Into::into),
    })
}

/// Defines a type with some fields of another, into which it is converted with defaults for the others.
macro_rules! part {
    ($part:ident of $whole:path { $($(#[$attribute:meta])* $field:ident: $type:ty,)* }) => {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct $part {
            $($(#[$attribute])* $field: $type,)*
        }

        impl From<$part> for $whole {
            fn from(part: $part) -> Self {
                Self { $($field: part.$field,)* ..Self::default() }
            }
        }
    };
}

#[derive(Deserialize)]
struct Pod {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    status: Option<Status>,
}

part!(Metadata of ObjectMeta {
    annotations: Option<BTreeMap<String, String>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    name: Option<String>,
    namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    resource_version: Option<String>,
    uid: Option<String>,
});

part!(Spec of core::PodSpec {
    affinity: Option<core::Affinity>,
    #[serde(deserialize_with = "list::<_, Container, _>")]
    containers: Vec<core::Container>,
    #[serde(deserialize_with = "optional::<_, EphemeralContainer, _>")]
    ephemeral_containers: Option<Vec<core::EphemeralContainer>>,
    host_network: Option<bool>,
    #[serde(deserialize_with = "optional::<_, Container, _>")]
    init_containers: Option<Vec<core::Container>>,
    node_name: Option<String>,
    node_selector: Option<BTreeMap<String, String>>,
    overhead: Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
    priority: Option<i32>,
    priority_class_name: Option<String>,
    resource_claims: Option<Vec<core::PodResourceClaim>>,
    resources: Option<core::ResourceRequirements>,
    restart_policy: Option<String>,
    scheduler_name: Option<String>,
    scheduling_gates: Option<Vec<core::PodSchedulingGate>>,
    service_account_name: Option<String>,
    tolerations: Option<Vec<core::Toleration>>,
    topology_spread_constraints: Option<Vec<core::TopologySpreadConstraint>>,
    #[serde(deserialize_with = "optional::<_, Volume, _>")]
    volumes: Option<Vec<core::Volume>>,
});

part!(Container of core::Container {
    #[serde(deserialize_with = "optional::<_, Variable, _>")]
    env: Option<Vec<core::EnvVar>>,
    env_from: Option<Vec<core::EnvFromSource>>,
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    ports: Option<Vec<core::ContainerPort>>,
    resources: Option<core::ResourceRequirements>,
    restart_policy: Option<String>,
    #[serde(deserialize_with = "optional::<_, Mount, _>")]
    volume_mounts: Option<Vec<core::VolumeMount>>,
});

part!(EphemeralContainer of core::EphemeralContainer {
    #[serde(deserialize_with = "optional::<_, Variable, _>")]
    env: Option<Vec<core::EnvVar>>,
    env_from: Option<Vec<core::EnvFromSource>>,
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    #[serde(deserialize_with = "optional::<_, Mount, _>")]
    volume_mounts: Option<Vec<core::VolumeMount>>,
});

part!(Variable of core::EnvVar {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    value_from: Option<core::EnvVarSource>,
});

part!(Mount of core::VolumeMount {
    #[serde(deserialize_with = "null_as_default")]
    name: String,
});

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Projected {
    default_mode: Option<i32>,
    #[serde(deserialize_with = "optional::<_, Projection, _>")]
    sources: Option<Vec<core::VolumeProjection>>,
}

part!(Projection of core::VolumeProjection {
    config_map: Option<core::ConfigMapProjection>,
});

part!(ContainerStatus of core::ContainerStatus {
    allocated_resources: Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>,
    last_state: Option<core::ContainerState>,
    #[serde(deserialize_with = "null_as_default")]
    name: String,
    resources: Option<core::ResourceRequirements>,
    state: Option<core::ContainerState>,
});

part!(Status of core::PodStatus {
    #[serde(deserialize_with = "conditions")]
    conditions: Option<Vec<core::PodCondition>>,
    #[serde(deserialize_with = "optional::<_, ContainerStatus, _>")]
    container_statuses: Option<Vec<core::ContainerStatus>>,
    #[serde(deserialize_with = "optional::<_, ContainerStatus, _>")]
    init_container_statuses: Option<Vec<core::ContainerStatus>>,
    message: Option<String>,
    nominated_node_name: Option<String>,
    phase: Option<String>,
    qos_class: Option<String>,
    reason: Option<String>,
    resource_claim_statuses: Option<Vec<core::PodResourceClaimStatus>>,
});

/// A volume. Every pod has a projected one with its token; of projected volumes only the ConfigMaps are read.
struct Volume(core::Volume);

impl<'de> Deserialize<'de> for Volume {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(default, deserialize_with = "null_as_default")]
            name: String,
            projected: Option<Projected>,
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        let Named { name, projected } = serde_json::from_str(text).map_err(D::Error::custom)?;
        let Some(projected) = projected else {
            return serde_json::from_str(text).map(Self).map_err(D::Error::custom);
        };
        Ok(Self(core::Volume {
            name,
            projected: Some(core::ProjectedVolumeSource {
                default_mode: projected.default_mode,
                sources: projected.sources,
            }),
            ..core::Volume::default()
        }))
    }
}

impl From<Volume> for core::Volume {
    fn from(volume: Volume) -> Self {
        volume.0
    }
}

/// Parses the conditions that are read, and skips the others.
fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<core::PodCondition>>, D::Error> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default, rename = "type", deserialize_with = "null_as_default")]
        type_: String,
    }
    let Some(all) = Option::<Vec<&RawValue>>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let mut read = Vec::new();
    for text in all {
        let named: Named = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        if reads_condition(&named.type_) {
            read.push(serde_json::from_str(text.get()).map_err(D::Error::custom)?);
        }
    }
    Ok(Some(read))
}

/// Parses a list of such parts into a list of the other type; `null` is `None`.
fn optional<'de, D, P, W>(deserializer: D) -> Result<Option<Vec<W>>, D::Error>
where
    D: Deserializer<'de>,
    P: Deserialize<'de> + Into<W>,
{
    let parts = Option::<Vec<P>>::deserialize(deserializer)?;
    Ok(parts.map(|parts| parts.into_iter().map(Into::into).collect()))
}

/// The same; `null` is an empty list.
fn list<'de, D, P, W>(deserializer: D) -> Result<Vec<W>, D::Error>
where
    D: Deserializer<'de>,
    P: Deserialize<'de> + Into<W>,
{
    optional::<D, P, W>(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests;
