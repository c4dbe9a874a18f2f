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

/// The settings of the product in this cluster. Only the object named kai-config has an effect.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kai.scheduler",
    version = "v1",
    kind = "Config",
    doc = "The settings of the product. Only the object named kai-config has an effect.",
    status = "ConfigStatus",
    schema = "disabled",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct ConfigSpec {
    /// The namespace of KAI's components. Accepted and not used: unikai runs in that of the flag --namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Settings that all components share.
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
    /// Scaling pods, by which a cluster autoscaler sees the demand for shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_scale_adjuster: Option<NodeScaleAdjusterConfig>,
    /// The exporter on nodes that reports the NUMA placement of pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_placement_exporter: Option<NumaPlacementExporterConfig>,
    /// The Prometheus server with the usage of queues over time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusConfig>,
}

absent_as_default!(ConfigSpec);

/// Settings that all components share.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Global {
    /// The spec.schedulerName of the pods that are scheduled; kai-scheduler if absent.
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
    /// Whether the platform is OpenShift, which sets security contexts: containers of reservation pods and of the NUMA exporter get none, and those of
    /// scaling pods no fixed user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openshift: Option<bool>,
    /// The security context of the container of reservation pods; absent fields keep their defaults: user 10000, no privileges, read-only root.
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
    /// The PriorityClass of the NUMA exporter's pods.
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
    /// Tolerations of the NUMA exporter's pods.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::opaque_list")]
    pub daemonsets_tolerations: Vec<Toleration>,
    /// Pull secrets of reservation pods, scaling pods and the NUMA exporter's pods, beside those of the flag.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub additional_image_pull_secrets: Vec<String>,
    /// Deprecated: one more pull secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_pull_secret: Option<String>,
}

/// Settings that every component has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Whether the component runs; true if absent, except for nodeScaleAdjuster and numaPlacementExporter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The image. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// Requests and limits. Accepted and not used, except those of the NUMA exporter's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Client-side rate limit of API requests. Accepted and not used: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k8s_client_config: Option<ClientConfig>,
    /// Affinity. Accepted and not used, except that of the NUMA exporter's pods.
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
    /// The amounts that the container requests.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub requests: QuantityMap,
    /// The amounts that the container may not exceed.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "QuantityMap::is_empty"
    )]
    #[schemars(schema_with = "schema::quantity_map")]
    pub limits: QuantityMap,
    /// Resource claims of the pod that the container uses. Accepted and not used.
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
    /// Requests in a burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<i64>,
}

/// A disruption budget.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodDisruptionBudgetConfig {
    /// Whether the PodDisruptionBudget is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// How many replicas may be unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<i32>,
}

/// Grouping of pods into PodGroups.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGrouperConfig {
    /// Settings that every component has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// How pods are grouped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<PodGrouperArgs>,
    /// Client-side rate limit of API requests. Accepted and not used: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k8s_client_config: Option<ClientConfig>,
    /// How many pods are grouped concurrently. Accepted and not used: it follows from the latency of the API server.
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
    /// The namespace of that ConfigMap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_priorities_config_map_namespace: Option<String>,
}

/// Binding of pods, and reservation of shared GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BinderConfig {
    /// Settings that every component has.
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
    /// The reservation pods, which hold shared GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_reservation: Option<ResourceReservation>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// How many pods are bound concurrently. Accepted and not used: it follows from the latency of the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_reconciles: Option<i64>,
    /// How long a bind waits for volumes and devices, in seconds; 120 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_binding_timeout_seconds: Option<i64>,
    /// Port of the health probes. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe_port: Option<i64>,
    /// Port of the metrics. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_port: Option<i64>,
    /// Whether containers get GPUs by names of the Container Device Interface (CDI); detected if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cdi_enabled: Option<bool>,
}

/// Overrides for a step of a bind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BinderPlugin {
    /// Whether the step runs. It counts for hamicore alone, which is off if absent; the other steps run where a pod needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Steps of higher priority run first. Accepted and not used: the order of the steps is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Arguments of the step; those that are absent keep their defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<BTreeMap<String, String>>,
}

/// The reservation pods, which hold shared GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceReservation {
    /// The image of these pods. Accepted and not used: they run unikai's own, see the flag --reservation-image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Image>,
    /// How long a bind waits until the reservation pod reports its GPU, in seconds; 40 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation_timeout: Option<i64>,
    /// The namespace of reservation pods; kai-resource-reservation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The service account of reservation pods; kai-resource-reservation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// The value of the label app on reservation pods; kai-resource-reservation if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_label: Option<String>,
    /// The runtime class of reservation pods; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
    /// The security context of reservation pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub reservation_pod_security_context: Option<PodSecurityContext>,
    /// The security context of the container of reservation pods; global.securityContext if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub reservation_container_security_context: Option<SecurityContext>,
    /// Requests and limits of reservation pods in addition to the GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resources: Option<ResourceRequirements>,
}

/// Admission of pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionConfig {
    /// Settings that every component has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// Whether containers without a GPU get an environment in which no GPU is visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_nvidia_visible_devices: Option<bool>,
    /// Ports of the webhooks' Service. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<AdmissionWebhookConfig>,
    /// Replicas of the deployment. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Whether pods may share GPUs; false if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_sharing: Option<bool>,
    /// Whether the webhooks review only pods of namespaces that have the queue label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_label_selector: Option<bool>,
    /// The name of the validating webhook configuration. Accepted and not used: it is validating-kai-admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validating_webhook_configuration_name: Option<String>,
    /// The name of the mutating webhook configuration. Accepted and not used: it is mutating-kai-admission.
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
    /// Settings that every component has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// Memory setting of the Go runtime. Accepted and not used.
    #[serde(default, rename = "GOGC", skip_serializing_if = "Option::is_none")]
    pub gogc: Option<i64>,
    /// The Service for metrics. Accepted and not used.
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
    /// Settings that every component has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// The Service. Accepted and not used.
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
    /// The prefix of the webhook configuration's name. Accepted and not used: the name is KAI's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_configuration_name_prefix: Option<String>,
}

/// PodGroup status and validation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodGroupControllerConfig {
    /// Settings that every component has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// The Service. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_service: Option<PodGroupControllerServiceConfig>,
    /// How many PodGroups are handled concurrently. Accepted and not used: it follows from the latency of the API server.
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

/// Scaling pods, by which a cluster autoscaler sees the demand for shared GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScaleAdjusterConfig {
    /// Settings that every component has; if enabled is absent, the flag --cluster-autoscaling counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// Vertical autoscaling. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub vpa: Option<Opaque>,
    /// Settings of scaling pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<NodeScaleAdjusterArgs>,
}

/// Settings of scaling pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeScaleAdjusterArgs {
    /// The image of these pods. Accepted and not used: they run unikai's own, see the flag --reservation-image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_pod_image: Option<Image>,
    /// The namespace of scaling pods; kai-scale-adjust if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_scale_namespace: Option<String>,
    /// The service account of scaling pods; kai-scale-adjust if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_scale_service_account: Option<String>,
    /// The fraction of a GPU that is assumed for a pod that requests GPU memory; 0.1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_to_fraction_ratio: Option<f64>,
}

/// The exporter on nodes that reports the NUMA placement of pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaPlacementExporterConfig {
    /// Settings that every component has; if enabled is absent, the exporter runs when a shard enables the numa plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    /// The nodes that the exporter runs on; those labelled feature.node.kubernetes.io/memory-numa=true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Tolerations of the exporter's pods, in addition to the global ones.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::opaque_list")]
    pub tolerations: Vec<Toleration>,
    /// The interval between queries of the kubelet, e.g. 1s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub poll_interval: Option<String>,
    /// The interval at which unchanged annotations are compared with the pods again, e.g. 60s; 0 = never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift_resync_interval: Option<String>,
    /// The directory on the host with the kubelet's pod-resources socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resources_host_path: Option<String>,
    /// The path of the kubelet's pod-resources socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_resources_socket: Option<String>,
    /// The path of sysfs on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysfs_host_path: Option<String>,
}

/// The Prometheus server with the usage of queues over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusConfig {
    /// If externalPrometheusUrl is absent: whether the server is KAI's, usage-prometheus in the operator's namespace. No Prometheus is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The name of the Prometheus object. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_name: Option<String>,
    /// How long Prometheus keeps data. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_period: Option<String>,
    /// The sample interval. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_interval: Option<String>,
    /// Whether Prometheus has a persistent volume. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_persistent_storage: Option<bool>,
    /// The size of the persistent volume. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_size: Option<String>,
    /// The storage class of the persistent volume. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The ServiceMonitors that Prometheus scrapes. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_monitor: Option<ServiceMonitorConfig>,
    /// The URL of the Prometheus server for shards that use Prometheus and name no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_prometheus_url: Option<String>,
    /// The health check of that server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_prometheus_health_probe: Option<PrometheusHealthProbe>,
    /// The label that selects ServiceMonitors. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_label_key: Option<String>,
    /// The value of that label. Accepted and not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounting_label_value: Option<String>,
}

/// The ServiceMonitors that Prometheus scrapes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceMonitorConfig {
    /// Whether ServiceMonitors are created; true if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The scrape interval; 30s if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// How long a scrape may take; 10s if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrape_timeout: Option<String>,
    /// The file with the token that Prometheus sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bearer_token_file: Option<String>,
}

/// The health check of an external Prometheus server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusHealthProbe {
    /// Seconds between checks; 30 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<i64>,
    /// Seconds that a check may take; 10 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// How often a failed check is repeated; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<i64>,
}
/// A resource claim that a container uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerClaim {
    /// The name of the resource claim in the pod's spec.
    pub name: String,
    /// The request of the claim; all requests if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The observed state of the product.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigStatus {
    /// Conditions of the product, e.g. Ready.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
