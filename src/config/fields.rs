//! The table of the fields of Config and SchedulingShard: what each affects, when, and which have no effect here. `docs/configuration.md` and the conditions
//! about fields without effect are generated from it.

mod page;

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::api::names::{label, object};
use crate::mirror::policy::Finding;
use page::{ABOVE, BELOW, CONFIG_IS, SHARD_IS};

/// The longest time that a field or a flag may set, a year: an instant plus the longest `Duration` cannot be represented.
pub const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What a field does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The scheduler applies it at once.
    Scheduler,
    /// Components are restarted within the process: nothing is lost, and nothing is scheduled for a second or two.
    Components,
    /// None, and why.
    Nothing(&'static str),
}

/// A field, or all fields below it.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its path; `*` stands for any name.
    pub path: &'static str,
    /// What it does.
    pub effect: Effect,
    /// The flag with the same meaning, if there is one.
    pub flag: &'static str,
    /// The default if neither the field nor the flag is set.
    pub default: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

const fn scheduler(path: &'static str, flag: &'static str, default: &'static str, meaning: &'static str) -> Field {
    Field {
        path,
        effect: Effect::Scheduler,
        flag,
        default,
        meaning,
    }
}

const fn components(path: &'static str, flag: &'static str, default: &'static str, meaning: &'static str) -> Field {
    Field {
        path,
        effect: Effect::Components,
        flag,
        default,
        meaning,
    }
}

const fn nothing(path: &'static str, why: &'static str) -> Field {
    Field {
        path,
        effect: Effect::Nothing(why),
        flag: "",
        default: "",
        meaning: "",
    }
}

const DEPLOYMENT: &str = "unikai has one Deployment, which its manifest configures";
const ADDRESSES: &str = "addresses are those of the flags --http-address and --webhook-address, and of the manifests";
const ONE_CLIENT: &str = "requests to the API server have no client-side rate limit";
const IMAGE: &str =
    "these pods run a command of unikai's own image, which KAI's images do not have: see the flag --reservation-image";
const WEBHOOKS: &str = "the RBAC rules of the manifests name these objects by their default names, as KAI's do";
const PROMETHEUS: &str = "unikai creates no Prometheus";
const NO_CONCURRENCY: &str = "concurrency adapts to the latency of the API server";
const GO: &str = "unikai has no Go runtime";

/// The fields of Config.
const CONFIG: &[Field] = &[
    nothing(
        "spec.namespace",
        "the namespace is that of the flag --namespace, in which the process runs",
    ),
    components(
        "spec.global.schedulerName",
        "--scheduler-name",
        object::SCHEDULER_NAME,
        "Pods with this `spec.schedulerName` are scheduled. Manifests must be rendered with the same flag, see above",
    ),
    components(
        "spec.global.queueLabelKey",
        "--queue-label-key",
        label::QUEUE,
        "The label that names the queue of a workload. Manifests must be rendered with the same flag, see above",
    ),
    components(
        "spec.global.nodePoolLabelKey",
        "--node-pool-label-key",
        label::NODE_POOL,
        "The label that names a node pool; empty: there are no pools. Manifests must be rendered with the same flag, see above",
    ),
    components(
        "spec.global.namespaceLabelSelector",
        "--namespace-label-selector",
        "none",
        "Only pods of namespaces with all of these labels are grouped and reviewed by the webhooks",
    ),
    components(
        "spec.global.podLabelSelector",
        "--pod-label-selector",
        "none",
        "Only pods with all of these labels are grouped and reviewed by the webhooks",
    ),
    nothing("spec.global.replicaCount", DEPLOYMENT),
    components(
        "spec.global.openshift",
        "",
        "false",
        "Containers of reservation pods and of the NUMA exporter get no security context, and those of scaling pods no fixed user, since OpenShift sets these",
    ),
    components(
        "spec.global.securityContext",
        "",
        "user 10000, no privileges, read-only root",
        "The security context of the container of reservation pods. Absent fields keep their defaults",
    ),
    nothing("spec.global.affinity", DEPLOYMENT),
    nothing("spec.global.vpa", DEPLOYMENT),
    components(
        "spec.global.priorityClassName",
        "",
        "none",
        "The priority class of the NUMA exporter's pods. The operator's own is in its manifest",
    ),
    scheduler(
        "spec.global.jsonLog",
        "--log-format",
        "text",
        "Whether log lines are JSON, or text",
    ),
    nothing("spec.global.requireDefaultPodAntiAffinityTerm", DEPLOYMENT),
    nothing("spec.global.nodeSelector", DEPLOYMENT),
    nothing("spec.global.tolerations", DEPLOYMENT),
    components(
        "spec.global.daemonsetsTolerations",
        "",
        "none",
        "Tolerations of the NUMA exporter's pods",
    ),
    components(
        "spec.global.additionalImagePullSecrets",
        "--image-pull-secret",
        "none",
        "Pull secrets of reservation pods, scaling pods and the NUMA exporter's pods, beside those of the flag. They must exist in the namespaces of these pods",
    ),
    components(
        "spec.global.imagesPullSecret",
        "",
        "none",
        "One more pull secret (deprecated)",
    ),
    nothing("spec.*.service.image", DEPLOYMENT),
    nothing("spec.*.service.resources", DEPLOYMENT),
    nothing("spec.*.service.k8sClientConfig", ONE_CLIENT),
    nothing("spec.*.service.affinity", DEPLOYMENT),
    nothing("spec.*.service.podDisruptionBudget", DEPLOYMENT),
    nothing("spec.*.vpa", DEPLOYMENT),
    nothing("spec.*.replicas", DEPLOYMENT),
    nothing("spec.*.controllerService", ADDRESSES),
    components(
        "spec.podGrouper.service.enabled",
        "",
        "true",
        "Whether pods are grouped. Otherwise, pods without a pod group stay pending",
    ),
    components(
        "spec.podGrouper.args.gangScheduleKnative",
        "--knative-gangs",
        "true",
        "Whether the pods of a Knative revision are a gang",
    ),
    components(
        "spec.podGrouper.args.genericKartaFallback",
        "--kartas",
        "true",
        "Whether kinds without a rule are grouped by the Karta that describes them",
    ),
    components(
        "spec.podGrouper.args.defaultPrioritiesConfigMapName",
        "--default-priorities-configmap",
        "none",
        "The ConfigMap with default priority classes and preemptibility by kind of workload",
    ),
    components(
        "spec.podGrouper.args.defaultPrioritiesConfigMapNamespace",
        "--default-priorities-configmap",
        "none",
        "The namespace of that ConfigMap. In another one than the operator's, the right to read it must be granted, see above",
    ),
    nothing("spec.podGrouper.k8sClientConfig", ONE_CLIENT),
    nothing("spec.podGrouper.maxConcurrentReconciles", NO_CONCURRENCY),
    components(
        "spec.binder.service.enabled",
        "",
        "true",
        "Whether pods are bound. If not, the scheduler makes no decisions either",
    ),
    components(
        "spec.binder.plugins.*.enabled",
        "--hami-core",
        "hamicore: false",
        "`hamicore`: whether containers get the limit of GPU memory that HAMi-core enforces. The other steps run where a pod needs them",
    ),
    nothing(
        "spec.binder.plugins.*.priority",
        "the steps of a bind have a fixed order",
    ),
    components(
        "spec.binder.plugins.*.arguments",
        "--volume-binding-timeout, --cdi",
        "120, detected",
        "`volumebinding`: `bindTimeoutSeconds`. `gpusharing`: `cdiEnabled`",
    ),
    nothing("spec.binder.resourceReservation.image", IMAGE),
    components(
        "spec.binder.resourceReservation.allocationTimeout",
        "--reservation-timeout",
        "40",
        "How many seconds a bind waits until the reservation pod reports its GPU",
    ),
    components(
        "spec.binder.resourceReservation.namespace",
        "--reservation-namespace",
        object::RESERVATION_NAMESPACE,
        "The namespace of reservation pods. Its rights: `unikai manifests --gpu-sharing` with the same flag, see above",
    ),
    components(
        "spec.binder.resourceReservation.serviceAccountName",
        "--reservation-service-account",
        object::RESERVATION_SERVICE_ACCOUNT,
        "The service account of reservation pods",
    ),
    components(
        "spec.binder.resourceReservation.appLabel",
        "--reservation-app-label",
        object::RESERVATION_APP,
        "The label `app` of reservation pods",
    ),
    components(
        "spec.binder.resourceReservation.runtimeClassName",
        "--reservation-runtime-class-name",
        "none",
        "The runtime class of reservation pods",
    ),
    components(
        "spec.binder.resourceReservation.reservationPodSecurityContext",
        "",
        "the runtime's seccomp profile",
        "The security context of reservation pods",
    ),
    components(
        "spec.binder.resourceReservation.reservationContainerSecurityContext",
        "",
        "`global.securityContext`",
        "The security context of the container of reservation pods",
    ),
    components(
        "spec.binder.resourceReservation.podResources.requests",
        "",
        "none",
        "Requests of reservation pods; a GPU among them is left out",
    ),
    components(
        "spec.binder.resourceReservation.podResources.limits",
        "",
        "none",
        "Limits of reservation pods; a GPU among them is left out",
    ),
    nothing(
        "spec.binder.resourceReservation.podResources.claims",
        "reservation pods have no claims",
    ),
    nothing("spec.binder.maxConcurrentReconciles", NO_CONCURRENCY),
    components(
        "spec.binder.volumeBindingTimeoutSeconds",
        "--volume-binding-timeout",
        "120",
        "How many seconds a bind may wait for volumes; the argument of `volumebinding` takes precedence",
    ),
    nothing("spec.binder.probePort", ADDRESSES),
    nothing("spec.binder.metricsPort", ADDRESSES),
    components(
        "spec.binder.cdiEnabled",
        "--cdi",
        "detected",
        "Whether containers get GPUs by names of the Container Device Interface (CDI)",
    ),
    components(
        "spec.admission.service.enabled",
        "",
        "true",
        "Whether the webhooks for pods and topologies are registered",
    ),
    components(
        "spec.admission.blockNvidiaVisibleDevices",
        "--block-nvidia-visible-devices",
        "false",
        "Whether NVIDIA_VISIBLE_DEVICES of containers is overridden, ephemeral ones included, so that they cannot choose GPUs",
    ),
    nothing("spec.admission.webhook", ADDRESSES),
    components(
        "spec.admission.gpuSharing",
        "--gpu-sharing",
        "false",
        "Whether pods may request a part of a GPU",
    ),
    components(
        "spec.admission.queueLabelSelector",
        "",
        "false",
        "Whether the webhooks review only pods of namespaces that have the queue label",
    ),
    nothing("spec.admission.validatingWebhookConfigurationName", WEBHOOKS),
    nothing("spec.admission.mutatingWebhookConfigurationName", WEBHOOKS),
    components(
        "spec.admission.gpuFractionRuntimeClassName",
        "--gpu-fraction-runtime-class-name",
        "nvidia",
        "The runtime class that pods get which request a part of a GPU; empty: none is set",
    ),
    components(
        "spec.admission.gpuPodRuntimeClassName",
        "--gpu-fraction-runtime-class-name",
        "nvidia",
        "The old name of `gpuFractionRuntimeClassName`, which takes precedence over it",
    ),
    scheduler(
        "spec.scheduler.service.enabled",
        "",
        "true",
        "Whether pods are scheduled, in all shards. If not, grouping, binds in progress, webhooks and statuses continue",
    ),
    nothing("spec.scheduler.GOGC", GO),
    nothing("spec.scheduler.schedulerService", ADDRESSES),
    components(
        "spec.queueController.service.enabled",
        "",
        "true",
        "Whether the statuses of queues are written; if not, the webhook for queues is not registered either",
    ),
    components(
        "spec.queueController.webhooks.enableValidation",
        "",
        "true",
        "Whether the webhook for queues is registered",
    ),
    nothing("spec.queueController.webhooks.webhookConfigurationNamePrefix", WEBHOOKS),
    components(
        "spec.queueController.metricsNamespace",
        "--metrics-namespace",
        "kai",
        "The prefix of metrics that KAI also has. The alerts, the dashboard and queries of usage in the manifests expect `kai`",
    ),
    components(
        "spec.queueController.queueLabelToMetricLabel",
        "--queue-label-to-metric-label",
        "none",
        "Labels of queues that become labels of their metrics",
    ),
    components(
        "spec.queueController.queueLabelToDefaultMetricValue",
        "--queue-label-to-default-metric-value",
        "none",
        "The values of these labels for queues without them",
    ),
    components(
        "spec.podGroupController.service.enabled",
        "",
        "true",
        "Whether the statuses of pod groups and the conditions of pods are written; if not, the webhook for pod groups is not registered either",
    ),
    nothing("spec.podGroupController.maxConcurrentReconciles", NO_CONCURRENCY),
    components(
        "spec.podGroupController.webhooks.enableValidation",
        "",
        "true",
        "Whether the webhook for pod groups is registered",
    ),
    nothing(
        "spec.podGroupController.webhooks.webhookConfigurationNamePrefix",
        WEBHOOKS,
    ),
    components(
        "spec.nodeScaleAdjuster.service.enabled",
        "--cluster-autoscaling",
        "false",
        "Whether scaling pods are created, by which a cluster autoscaler sees the demand for shared GPUs",
    ),
    nothing("spec.nodeScaleAdjuster.args.scalingPodImage", IMAGE),
    components(
        "spec.nodeScaleAdjuster.args.nodeScaleNamespace",
        "--scale-adjust-namespace",
        object::SCALE_ADJUST_NAMESPACE,
        "The namespace of scaling pods",
    ),
    components(
        "spec.nodeScaleAdjuster.args.nodeScaleServiceAccount",
        "--scale-adjust-service-account",
        object::SCALE_ADJUST_SERVICE_ACCOUNT,
        "The service account of scaling pods",
    ),
    components(
        "spec.nodeScaleAdjuster.args.gpuMemoryToFractionRatio",
        "--gpu-memory-to-fraction-ratio",
        "0.1",
        "The fraction of a GPU that is assumed for a pod that requests GPU memory",
    ),
    components(
        "spec.numaPlacementExporter.service.enabled",
        "",
        "whether a shard has `plugins.numa.enabled: true`",
        "Whether the NUMA exporter runs on nodes, as the DaemonSet `numa-placement-exporter` in the namespace `kai-numa-exporter`; needs `manifests/numa-exporter/`",
    ),
    nothing("spec.numaPlacementExporter.service.image", IMAGE),
    components(
        "spec.numaPlacementExporter.service.resources",
        "",
        "50m, 64Mi; at most 200m, 128Mi",
        "Requests and limits of the exporter's container. If any is set, no defaults are used",
    ),
    nothing(
        "spec.numaPlacementExporter.service.resources.claims",
        "the exporter uses no devices",
    ),
    components(
        "spec.numaPlacementExporter.service.affinity",
        "",
        "none",
        "The affinity of the exporter's pods",
    ),
    nothing(
        "spec.numaPlacementExporter.service.podDisruptionBudget",
        "pods of a DaemonSet are not evicted by drains",
    ),
    components(
        "spec.numaPlacementExporter.nodeSelector",
        "",
        "`feature.node.kubernetes.io/memory-numa: \"true\"`",
        "The nodes that the exporter runs on",
    ),
    components(
        "spec.numaPlacementExporter.tolerations",
        "",
        "none",
        "Tolerations of the exporter's pods, in addition to `global.daemonsetsTolerations`",
    ),
    components(
        "spec.numaPlacementExporter.pollInterval",
        "",
        "1s",
        "The interval between queries of the kubelet",
    ),
    components(
        "spec.numaPlacementExporter.driftResyncInterval",
        "",
        "60s",
        "The interval at which written annotations are compared with those of the pods; 0: never",
    ),
    components(
        "spec.numaPlacementExporter.podResourcesHostPath",
        "",
        "`/var/lib/kubelet/pod-resources`",
        "The directory of the kubelet's socket on nodes",
    ),
    components(
        "spec.numaPlacementExporter.podResourcesSocket",
        "",
        "`kubelet.sock` in that directory",
        "The path of the kubelet's socket, which must be in that directory",
    ),
    components(
        "spec.numaPlacementExporter.sysfsHostPath",
        "",
        "`/sys`",
        "The path of sysfs on nodes",
    ),
    components(
        "spec.prometheus.externalPrometheusUrl",
        "",
        "none",
        "The Prometheus server for shards that use Prometheus and name no server",
    ),
    components(
        "spec.prometheus.enabled",
        "",
        "false",
        "If that URL is absent: whether the server is KAI's, `usage-prometheus` in the operator's namespace",
    ),
    nothing("spec.prometheus.instanceName", PROMETHEUS),
    nothing("spec.prometheus.retentionPeriod", PROMETHEUS),
    nothing("spec.prometheus.sampleInterval", PROMETHEUS),
    nothing("spec.prometheus.enablePersistentStorage", PROMETHEUS),
    nothing("spec.prometheus.storageSize", PROMETHEUS),
    nothing("spec.prometheus.storageClassName", PROMETHEUS),
    nothing("spec.prometheus.serviceMonitor", PROMETHEUS),
    scheduler(
        "spec.prometheus.externalPrometheusHealthProbe.interval",
        "",
        "30",
        "Seconds between two health checks of the server of `externalPrometheusUrl`, which the condition `PrometheusConnected` reports",
    ),
    scheduler(
        "spec.prometheus.externalPrometheusHealthProbe.timeout",
        "",
        "10",
        "The timeout of a check, in seconds",
    ),
    scheduler(
        "spec.prometheus.externalPrometheusHealthProbe.maxRetries",
        "",
        "5",
        "How often a failed check is repeated before the condition is False; the n-th time after n seconds",
    ),
    nothing("spec.prometheus.accountingLabelKey", PROMETHEUS),
    nothing("spec.prometheus.accountingLabelValue", PROMETHEUS),
];

/// The fields of SchedulingShard.
const SHARD: &[Field] = &[
    scheduler(
        "spec.partitionLabelValue",
        "--node-pool",
        "none",
        "The node pool that the shard schedules; empty: nodes without a node-pool label. With the flag, the process schedules only this pool",
    ),
    scheduler(
        "spec.placementStrategy.gpu",
        "",
        "binpack",
        "`binpack` or `spread`, for pods with GPUs. With another value, as in KAI, nodes are packed and the GPUs of a node are spread",
    ),
    scheduler(
        "spec.placementStrategy.cpu",
        "",
        "binpack",
        "`binpack` or `spread`, for pods without GPUs; another value counts as `binpack`",
    ),
    scheduler(
        "spec.kValue",
        "",
        "1",
        "How strongly past usage lowers the fair share of a queue",
    ),
    scheduler(
        "spec.minRuntime.preemptMinRuntime",
        "",
        "0s",
        "How long workloads run before workloads of their own queue may preempt them",
    ),
    scheduler(
        "spec.minRuntime.reclaimMinRuntime",
        "",
        "0s",
        "How long workloads run before other queues may reclaim their resources",
    ),
    scheduler(
        "spec.queueDepthPerAction",
        "",
        "all",
        "How many pending workloads of each queue an action considers; 0 or less: all",
    ),
    scheduler(
        "spec.usageDBConfig.clientType",
        "",
        "builtin",
        "Where the usage of queues is counted: `builtin`, in the operator, or `prometheus`, by a server. See [fairness over time](fairness-over-time.md)",
    ),
    scheduler(
        "spec.usageDBConfig.connectionString",
        "",
        "that of Config",
        "The URL of the Prometheus server",
    ),
    scheduler(
        "spec.usageDBConfig.connectionStringEnvVar",
        "",
        "none",
        "The environment variable of the operator that holds the URL instead",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.windowSize",
        "",
        "1w",
        "How far back usage counts, or the length of a tumbling window",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.windowType",
        "",
        "sliding",
        "`sliding`: a window that ends now; `tumbling`: windows one after the other; `cron`: windows that begin when a cron expression matches",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.tumblingWindowStartTime",
        "",
        "none",
        "When the first tumbling window began",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.cronString",
        "",
        "none",
        "When a cron window begins: five fields, and a time zone if it is not UTC",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.halfLifePeriod",
        "",
        "none",
        "The time after which usage has half the weight",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.fetchInterval",
        "",
        "1m",
        "The interval at which the scheduler gets the usage of queues",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.stalenessPeriod",
        "",
        "5m",
        "After twice this time without an answer, usage counts as 0; at least the fetch interval",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.waitTimeout",
        "",
        "1m",
        "How long a new leader waits for the first usage data",
    ),
    scheduler(
        "spec.usageDBConfig.usageParams.extraParams",
        "",
        "those of KAI",
        "For Prometheus: `usageQueryTimeout`, `queryResolution`, and the metrics `gpuAllocationMetric`, `gpuCapacityMetric` and so on for `cpu` and `memory`",
    ),
    scheduler(
        "spec.usageDBConfig.extraParams",
        "",
        "those of KAI",
        "The same for parameters that are not among `usageParams.extraParams`",
    ),
    scheduler(
        "spec.plugins",
        "--numa, --numa-ignore",
        "see below",
        "Plugins that are switched on or off, their arguments, and the order of `sg-nodelocalgreedy` and `sg-multinodegang`",
    ),
    scheduler(
        "spec.actions",
        "",
        "all",
        "Actions that are switched on or off, and their order",
    ),
    scheduler(
        "spec.args",
        "--detailed-fit-errors",
        "see below",
        "Flags of KAI's scheduler, without their dashes",
    ),
    nothing(
        "spec.scenarioSearchBudgets",
        "the search for victims is limited by a number of steps, not by time",
    ),
    nothing("spec.goMemLimitRatio", GO),
    nothing("spec.goMemLimit", GO),
];

/// The rows of a kind.
#[must_use]
pub fn rows(kind: &str) -> &'static [Field] {
    if kind == "Config" { CONFIG } else { SHARD }
}

/// The row that a field of a kind belongs to: the one with the longest matching path.
#[must_use]
pub fn row(kind: &str, path: &[&str]) -> Option<&'static Field> {
    let fits = |row: &&Field| {
        let mut of_row = row.path.split('.');
        let mut of_path = path.iter();
        of_row.all(|part| of_path.next().is_some_and(|given| part == "*" || part == *given))
    };
    rows(kind).iter().filter(fits).max_by_key(|row| {
        let parts = row.path.split('.');
        parts.map(|part| if part == "*" { 1 } else { 2 }).sum::<usize>()
    })
}

/// The fields of an object that are set and have no effect.
#[must_use]
pub fn ignored<S: Serialize>(kind: &str, spec: Option<&S>) -> Vec<Finding> {
    let mut found = Vec::new();
    let spec = spec.and_then(|spec| serde_json::to_value(spec).ok());
    if let Some(spec) = spec {
        look(kind, &spec, &mut vec!["spec"], &mut found);
    }
    found
}

fn look<'v>(kind: &str, value: &'v Value, path: &mut Vec<&'v str>, found: &mut Vec<Finding>) {
    let row = row(kind, path);
    if let Some(Field {
        effect: Effect::Nothing(why),
        ..
    }) = row
    {
        found.push(Finding {
            path: path.join("."),
            says: (*why).to_owned(),
        });
        return;
    }
    let deeper = rows(kind).iter().any(|row| row.path.split('.').count() > path.len());
    if let (Value::Object(fields), true) = (value, deeper) {
        for (name, field) in fields {
            path.push(name);
            look(kind, field, path, found);
            path.pop();
        }
    }
}

/// The text of `docs/configuration.md`.
#[must_use]
pub fn document() -> String {
    let mut text = ABOVE.to_owned();
    for (kind, about) in [("Config", CONFIG_IS), ("SchedulingShard", SHARD_IS)] {
        let _ = write!(
            text,
            "\n## {kind}\n\n{about}\n\n| field | flag | default | follows | meaning |\n|---|---|---|---|---|\n"
        );
        let used = rows(kind).iter().filter_map(|row| match row.effect {
            Effect::Scheduler => Some((row, "at once")),
            Effect::Components => Some((row, "components are restarted")),
            Effect::Nothing(_) => None,
        });
        for (row, follows) in used {
            let flags: Vec<_> = row.flag.split(", ").filter(|flag| !flag.is_empty()).collect();
            let flags: Vec<_> = flags.iter().map(|flag| format!("`{flag}`")).collect();
            let (path, flags) = (row.path, flags.join(", "));
            let _ = writeln!(
                text,
                "| `{path}` | {flags} | {} | {follows} | {} |",
                row.default, row.meaning
            );
        }
        text.push_str("\nWithout effect here, and named in the condition `FieldsIgnored` where they are given:\n\n");
        for row in rows(kind) {
            if let Effect::Nothing(why) = row.effect {
                let _ = writeln!(text, "- `{}`: {why}", row.path);
            }
        }
        if kind == "SchedulingShard" {
            text.push_str(BELOW);
        }
    }
    text
}
