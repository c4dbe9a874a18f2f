//! Config (`kai.scheduler/v1`): the settings of the product, one object per cluster.
//!
//! Every field that KAI's manifests can hold is here, so that they apply without loss; those that only shape deployments which
//! this product does not have are accepted and not used, and embedded core types among them stay uninterpreted JSON.
//! Absent: the defaults, which belong to the readers and are never written back.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext, Toleration};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::lenient::{absent_as_default, null_as_default};
use super::{Opaque, QuantityMap, schema};

/// How the product behaves in this cluster. Only the object named kai-config is acted upon.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1",
    kind = "Config",
    doc = "The settings of the product. Only the object named kai-config is acted upon.",
    status = "ConfigStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ConfigSpec {
    /// The product's own namespace; kai-scheduler if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// What all parts share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global: Option<Global>,
    /// Grouping of pods into PodGroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_grouper: Option<PodGrouperConfig>,
    /// Binding of pods, and reservation of shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binder: Option<BinderConfig>,
    /// Admission of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<AdmissionConfig>,
    /// The schedulers of all shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SchedulerConfig>,
    /// Queue status, validation and metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_controller: Option<QueueControllerConfig>,
    /// PodGroup status and validation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_group_controller: Option<PodGroupControllerConfig>,
    /// Scaling pods, which tell cluster autoscalers of demand for shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_scale_adjuster: Option<NodeScaleAdjusterConfig>,
    /// The agent on nodes that reports NUMA placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_placement_exporter: Option<NumaPlacementExporterConfig>,
    /// Where usage over time is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusConfig>,
}

absent_as_default!(ConfigSpec);

/// What all parts share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Global {
    /// Pods with this spec.schedulerName are ours; kai-scheduler if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// The label that names a workload's queue; kai.scheduler/queue if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_label_key: Option<String>,
    /// The label that assigns nodes, queues and PodGroups to shards; kai.scheduler/node-pool if absent, empty = one shard for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_pool_label_key: Option<String>,
    /// Only pods of namespaces with these labels are handled.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub namespace_label_selector: BTreeMap<String, String>,
    /// Only pods with these labels are handled.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub pod_label_selector: BTreeMap<String, String>,
    /// How many replicas each deployment has. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica_count: Option<i32>,
    /// Whether the platform is OpenShift. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openshift: Option<bool>,
    /// The security context of containers; reservation pods inherit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub security_context: Option<SecurityContext>,
    /// Affinity of deployments. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub affinity: Option<Opaque>,
    /// Vertical autoscaling of deployments. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// PriorityClass of deployments. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Whether log lines are JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub json_log: Option<bool>,
    /// Whether replicas must run on different nodes. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require_default_pod_anti_affinity_term: Option<bool>,
    /// Node selector of deployments. Accepted and not used.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub node_selector: BTreeMap<String, String>,
    /// Tolerations of deployments. Accepted and not used.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::opaque_list")]
    pub tolerations: Vec<Toleration>,
    /// Tolerations of the agent on nodes.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::opaque_list")]
    pub daemonsets_tolerations: Vec<Toleration>,
    /// Pull secrets of the pods that the product creates.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub additional_image_pull_secrets: Vec<String>,
    /// Deprecated: one more pull secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_pull_secret: Option<String>,
}

/// What each part has in common.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Whether the part runs; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The image. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Requests and limits. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Rate limit of API requests; the largest of all parts holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k8s_client_config: Option<ClientConfig>,
    /// Affinity of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub affinity: Option<Opaque>,
    /// Disruption budget of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_disruption_budget: Option<PodDisruptionBudgetConfig>,
}

/// An image, as parts of its reference.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// The registry and path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The last part of the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Always, IfNotPresent or Never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_policy: Option<String>,
}

/// Requests and limits of a container.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What is reserved.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub requests: QuantityMap,
    /// What may be used.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub limits: QuantityMap,
    /// Resource claims of the pod that the container uses.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub claims: Vec<ContainerClaim>,
}

/// Client-side rate limit of API requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClientConfig {
    /// Requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qps: Option<i64>,
    /// Requests at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<i64>,
}

/// A disruption budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetConfig {
    /// Whether there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many replicas may be away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i32>,
}

/// Grouping of pods into PodGroups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGrouperConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// How pods are grouped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<PodGrouperArgs>,
    /// Rate limit of API requests; the largest of all parts holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k8s_client_config: Option<ClientConfig>,
    /// How many pods are grouped at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// How pods are grouped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGrouperArgs {
    /// Whether the pods of a Knative revision form one gang; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_schedule_knative: Option<bool>,
    /// Whether kinds without a rule of their own are grouped by Karta objects; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generic_karta_fallback: Option<bool>,
    /// A ConfigMap with default priority classes per kind of workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_priorities_config_map_name: Option<String>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_priorities_config_map_namespace: Option<String>,
}

/// Binding of pods, and reservation of shared GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BinderConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// Steps of a bind, by name.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub plugins: BTreeMap<String, BinderPlugin>,
    /// The pods that hold shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_reservation: Option<ResourceReservation>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many pods are bound at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// How long a bind waits for volumes and devices, in seconds; 120 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_binding_timeout_seconds: Option<i64>,
    /// Port of the health probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<i64>,
    /// Port of the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_port: Option<i64>,
    /// Whether GPUs are named in the form of the Container Device Interface; detected if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cdi_enabled: Option<bool>,
}

/// Overrides for a step of a bind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BinderPlugin {
    /// Whether the step is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Steps of higher priority are taken first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Arguments of the step; replace its defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// The pods that hold shared GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReservation {
    /// Their image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// How long to wait for the pod to report its GPU, in seconds; 40 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_timeout: Option<i64>,
    /// Their namespace; kai-resource-reservation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Their service account; kai-resource-reservation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The value of their label app; kai-resource-reservation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_label: Option<String>,
    /// Their runtime class; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// Their security context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub reservation_pod_security_context: Option<PodSecurityContext>,
    /// The security context of their container; that of global if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub reservation_container_security_context: Option<SecurityContext>,
    /// Their requests and limits beside the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resources: Option<ResourceRequirements>,
}

/// Admission of pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// Whether containers that got no GPU are kept from seeing any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_nvidia_visible_devices: Option<bool>,
    /// Ports of the webhooks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<AdmissionWebhookConfig>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Whether pods may share GPUs; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_sharing: Option<bool>,
    /// Whether only namespaces with the queue label are handled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_label_selector: Option<bool>,
    /// The name of the validating webhook configuration; validating-kai-admission if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validating_webhook_configuration_name: Option<String>,
    /// The name of the mutating webhook configuration; mutating-kai-admission if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutating_webhook_configuration_name: Option<String>,
    /// The runtime class given to pods that share a GPU; nvidia if absent, empty = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_fraction_runtime_class_name: Option<String>,
    /// Deprecated name of gpuFractionRuntimeClassName.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_pod_runtime_class_name: Option<String>,
}

/// Ports of the admission webhooks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionWebhookConfig {
    /// Port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// Port of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i64>,
    /// Port of the health probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<i64>,
    /// Port of the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_port: Option<i64>,
}

/// The schedulers of all shards.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// Memory tuning of another implementation. Accepted and not used.
    #[serde(default, rename = "GOGC", skip_serializing_if = "Option::is_none")]
    pub gogc: Option<i64>,
    /// The Service for metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_service: Option<SchedulerServiceConfig>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// The Service for the schedulers' metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerServiceConfig {
    /// The Service's type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#type: Option<String>,
    /// Port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// Port of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i64>,
}

/// Queue status, validation and metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueControllerConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// The Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_service: Option<QueueControllerServiceConfig>,
    /// Validation of Queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<WebhooksConfig>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The prefix of metric names; kai if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_namespace: Option<String>,
    /// Labels of queues that become labels of their metrics: label=metriclabel, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_label_to_metric_label: Option<String>,
    /// Values for queues without such a label: label=value, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_label_to_default_metric_value: Option<String>,
}

/// The Service of the queue controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueControllerServiceConfig {
    /// Port of the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<PortMapping>,
    /// Port of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<PortMapping>,
}

/// A port of a Service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The port's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Port of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
    /// Port of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_port: Option<i64>,
}

/// Validation of a kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhooksConfig {
    /// Whether objects are validated; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_validation: Option<bool>,
    /// The prefix of the webhook configuration's name; the API version follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_configuration_name_prefix: Option<String>,
}

/// PodGroup status and validation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupControllerConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// The Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_service: Option<PodGroupControllerServiceConfig>,
    /// How many PodGroups are handled at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// Validation of PodGroups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<WebhooksConfig>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// The Service of the PodGroup controller.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupControllerServiceConfig {
    /// Port of the webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<PortMapping>,
}

/// Scaling pods, which tell cluster autoscalers of demand for shared GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScaleAdjusterConfig {
    /// What each part has in common.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// What scaling pods are like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<NodeScaleAdjusterArgs>,
}

/// What scaling pods are like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScaleAdjusterArgs {
    /// Their image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_pod_image: Option<Image>,
    /// Their namespace; kai-scale-adjust if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_scale_namespace: Option<String>,
    /// Their service account; kai-scale-adjust if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_scale_service_account: Option<String>,
    /// The part of a GPU assumed for a pod that asks for GPU memory; 0.1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_to_fraction_ratio: Option<f64>,
}

/// The agent on nodes that reports NUMA placement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaPlacementExporterConfig {
    /// What each part has in common; if enabled is absent, the agent runs when a shard enables the numa plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The nodes it runs on; those labelled feature.node.kubernetes.io/memory-numa=true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Its tolerations, beside the global ones for agents.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::opaque_list")]
    pub tolerations: Vec<Toleration>,
    /// How often the kubelet is asked, e.g. 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<String>,
    /// How often unchanged annotations are compared again, e.g. 60s; 0 = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_resync_interval: Option<String>,
    /// The folder of the kubelet's pod-resources socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resources_host_path: Option<String>,
    /// The socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resources_socket: Option<String>,
    /// Where the host's sysfs is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysfs_host_path: Option<String>,
}

/// Where usage over time is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusConfig {
    /// Whether to create a Prometheus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Its name; prometheus if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// How long it keeps data; 2w if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_period: Option<String>,
    /// How often it samples. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_interval: Option<String>,
    /// Whether it stores data persistently; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_persistent_storage: Option<bool>,
    /// How much; 50Gi if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_size: Option<String>,
    /// In which storage class; standard if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// What it scrapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitorConfig>,
    /// An existing server to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_prometheus_url: Option<String>,
    /// How that server is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_prometheus_health_probe: Option<PrometheusHealthProbe>,
    /// The label that selects ServiceMonitors; kai.scheduler/accounting if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_label_key: Option<String>,
    /// Its value; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_label_value: Option<String>,
}

/// What the Prometheus scrapes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorConfig {
    /// Whether ServiceMonitors are created; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How often it scrapes; 30s if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// How long a scrape may take; 10s if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrape_timeout: Option<String>,
    /// The token that it presents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<String>,
}

/// How an external server is checked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusHealthProbe {
    /// Seconds between checks; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<i64>,
    /// Seconds that a check may take; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Attempts per check; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
}
/// A resource claim that a container uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerClaim {
    /// The pod's resource claim.
    pub name: String,
    /// The request of the claim; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// How the product fares.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// Aspects of the product's state, e.g. Ready.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
