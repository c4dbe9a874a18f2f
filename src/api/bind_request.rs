//! BindRequest (`scheduling.run.ai/v1alpha2`): records that a pod is to be bound to a node, for binds of several steps.

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lenient::{absent_as_default, null_as_default};
use super::{QuantityMap, schema};

/// The pod, its node, and the devices that it gets.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "scheduling.run.ai",
    version = "v1alpha2",
    kind = "BindRequest",
    doc = "A bind of one pod to one node that needs several steps.",
    namespaced,
    status = "BindRequestStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Node", "type": "string", "jsonPath": ".spec.selectedNode"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct BindRequestSpec {
    /// The name of the pod, in the namespace of this object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_node: Option<String>,
    /// How the pod uses GPUs: Regular, Fraction or MigInstance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_resource_type: Option<String>,
    /// How many GPU devices the pod gets, and how much of each.
    #[serde(default, rename = "receivedGPU", skip_serializing_if = "Option::is_none")]
    pub received_gpu: Option<ReceivedGpu>,
    /// The GPU groups of the shared GPUs that the pod gets, one per device.
    #[serde(
        default,
        rename = "selectedGPUGroups",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub selected_gpu_groups: Vec<String>,
    /// The devices for the pod's resource claims.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_claim_allocations: Vec<ResourceClaimAllocation>,
    /// The devices for extended resources of the pod that the node serves by dynamic resource allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended_resource_claim_allocation: Option<ExtendedResourceClaimAllocation>,
    /// The NUMA zones that the kubelet is expected to use.
    #[serde(
        default,
        rename = "predictedNUMAZones",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub predicted_numa_zones: Vec<NumaZone>,
    /// How often a failed bind is repeated; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
}

absent_as_default!(BindRequestSpec);

/// GPUs given to a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedGpu {
    /// How many devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// The portion of each device, as a decimal number with two places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portion: Option<String>,
}

/// The devices for one of the pod's resource claims.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceClaimAllocation {
    /// The name of the entry in the pod's spec.resourceClaims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::allocation_result")]
    pub allocation: Option<AllocationResult>,
}

/// The resource claim that provides the pod's extended resources.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedResourceClaimAllocation {
    /// The devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::allocation_result")]
    pub allocation: Option<AllocationResult>,
    /// The requests of the claim.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::device_requests")]
    pub device_requests: Vec<DeviceRequest>,
    /// Which request of the claim provides which extended resource of which container.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub container_mappings: Vec<ContainerMapping>,
}

/// A container's extended resource, and the request of the claim that provides it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerMapping {
    /// The container.
    pub container_name: String,
    /// The extended resource.
    pub resource_name: String,
    /// The request of the claim.
    pub request_name: String,
}

/// What the kubelet is expected to allocate from one NUMA zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaZone {
    /// The zone, e.g. node-0.
    pub zone: String,
    /// The amounts that are allocated from the zone.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(schema_with = "schema::quantity_map")]
    pub amount: QuantityMap,
}

/// The progress of the bind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindRequestStatus {
    /// Pending, Succeeded or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Why the bind failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many attempts have failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_attempts: Option<i32>,
}
