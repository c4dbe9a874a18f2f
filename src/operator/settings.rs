//! Settings from flags and environment: parsed strictly, all errors are reported at once, no value is replaced.

mod grouping;
mod metrics;
mod network;
mod sharing;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::api::names::{self, label, object};
use crate::api::syntax::{is_label_key, is_label_word, is_name};
use crate::components;
use crate::components::admission::configurations::Target;
use crate::components::admission::queues::Rules;
use crate::components::admission::{self, FailurePolicy, QueueLabels, Scope, certificates};
use crate::components::leadership::Pools;
use crate::config::Common;
use crate::config::fields::LONGEST;
use crate::config::words::{is_metric_word, wrong_metric_labels};
use crate::engine::decision::Wording;
use crate::engine::policy::DisruptionBudgets;

use super::client::Timeouts;
use super::{http, lease};
use grouping::GroupingArgs;
use metrics::MetricsArgs;
use network::NetworkArgs;
use sharing::SharingArgs;

/// Flags of scheduling.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Scheduling")]
pub struct SchedulingArgs {
    /// Schedule the pods that name this scheduler
    #[arg(long, env = "UNIKAI_SCHEDULER_NAME", value_name = "NAME", default_value = object::SCHEDULER_NAME)]
    pub scheduler_name: String,

    /// Label of pods and workloads that names their queue
    #[arg(long, env = "UNIKAI_QUEUE_LABEL_KEY", value_name = "LABEL", default_value = label::QUEUE)]
    pub queue_label_key: String,

    /// Label of nodes and queues that names their node pool; empty: no node pools
    #[arg(long, env = "UNIKAI_NODE_POOL_LABEL_KEY", value_name = "LABEL", default_value = label::NODE_POOL)]
    pub node_pool_label_key: String,

    /// Schedule this node pool only [default: every node pool that has a SchedulingShard]
    #[arg(long, env = "UNIKAI_NODE_POOL", value_name = "NAME")]
    pub node_pool: Option<String>,

    /// Queue of workloads that name no queue
    #[arg(long, env = "UNIKAI_DEFAULT_QUEUE", value_name = "QUEUE", default_value = object::DEFAULT_QUEUE)]
    pub default_queue: String,

    /// Create the default queue and its parent where they do not exist
    #[arg(long, env = "UNIKAI_CREATE_DEFAULT_QUEUES", value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub create_default_queues: bool,

    /// How evictions treat PodDisruptionBudgets: `prefer` evicts beyond a budget only if reclaim or preempt finds no victims within
    /// budgets; `respect` never evicts beyond a budget; `ignore` ignores budgets, as KAI does
    #[arg(long, env = "UNIKAI_DISRUPTION_BUDGETS", value_name = "MODE", default_value = "prefer", value_parser = disruption_budgets)]
    pub disruption_budgets: DisruptionBudgets,

    /// How long the bind of a pod may wait for its volumes
    #[arg(long, env = "UNIKAI_VOLUME_BINDING_TIMEOUT", value_name = "SECONDS", default_value = "120", value_parser = lease::seconds)]
    pub volume_binding_timeout: Duration,

    /// How often the scheduler's model is compared with one that is built anew; 0: never
    #[arg(long, env = "UNIKAI_SELF_CHECK_INTERVAL", value_name = "SECONDS", default_value = "600", value_parser = lease::seconds)]
    pub self_check_interval: Duration,

    /// Predict how kubelets align pods to NUMA zones, from NodeResourceTopology objects: KAI's plugin `numa`
    #[arg(long, env = "UNIKAI_NUMA", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub numa: bool,

    /// Resources that zones report but kubelets do not align, such as memory where the memory manager is off
    #[arg(long, env = "UNIKAI_NUMA_IGNORE", value_name = "RESOURCE", value_delimiter = ',')]
    pub numa_ignore: Vec<String>,

    /// Keep pods pending until the ConfigMaps that they require exist: KAI's check `ConfigMap`. Needs manifests/config-maps/
    #[arg(long, env = "UNIKAI_CONFIG_MAPS", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub config_maps: bool,

    /// Further extended resources that are whole GPUs, in addition to nvidia.com/gpu and amd.com/gpu; queues count their sum
    #[arg(
        long = "gpu-resource",
        env = "UNIKAI_GPU_RESOURCES",
        value_name = "RESOURCE",
        value_delimiter = ','
    )]
    pub gpu_resources: Vec<String>,

    /// Wording of conditions and events about workloads that wait and evicted pods: `plain` names the cause in the first sentence, `kai` uses
    /// KAI's messages
    #[arg(long, env = "UNIKAI_MESSAGES", value_name = "WORDS", default_value = "plain", value_parser = words)]
    pub messages: Wording,

    /// In conditions and events of pods, list the reasons of each node (at most 50) after the number of nodes by reason
    #[arg(long, env = "UNIKAI_DETAILED_FIT_ERRORS", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub detailed_fit_errors: bool,
}

/// Flags of the webhooks.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Admission")]
pub struct AdmissionArgs {
    /// Address of the webhooks' HTTPS server
    #[arg(
        long,
        env = "UNIKAI_WEBHOOK_ADDRESS",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9443"
    )]
    pub webhook_address: SocketAddr,

    /// URL at which the API server reaches the webhooks, such as `https://192.0.2.7:9443`, when unikai runs outside of the cluster
    /// [default: the Service `unikai` in our namespace]
    #[arg(long, env = "UNIKAI_WEBHOOK_URL", value_name = "URL")]
    pub webhook_url: Option<http_types::Uri>,

    /// What to do about the queues of pods: `enforce` labels every pod with its queue and refuses pods whose queue does not
    /// exist or has children, `warn` warns instead of refusing, `off` leaves pods alone and explains while they wait
    #[arg(long, env = "UNIKAI_QUEUE_LABELS", value_name = "MODE", default_value = "enforce")]
    pub queue_labels: QueueLabels,

    /// What the API server does with requests that match a webhook while no webhook answers
    #[arg(
        long,
        env = "UNIKAI_WEBHOOK_FAILURE_POLICY",
        value_name = "POLICY",
        default_value = "fail"
    )]
    pub webhook_failure_policy: FailurePolicy,

    /// Serve the webhooks only to clients with a certificate of an authority in this file (PEM, read at the start); the API server needs
    /// to be configured with such a certificate
    #[arg(long, env = "UNIKAI_WEBHOOK_CLIENT_CA", value_name = "FILE", value_parser = authorities)]
    pub webhook_client_ca: Option<String>,

    /// Prevent containers, ephemeral ones included, from choosing GPUs with NVIDIA_VISIBLE_DEVICES
    #[arg(long, env = "UNIKAI_BLOCK_NVIDIA_VISIBLE_DEVICES", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub block_nvidia_visible_devices: bool,

    /// Warn if the quotas of queues exceed that of their parent, and refuse queues whose parent does not exist
    #[arg(long, env = "UNIKAI_VALIDATE_QUEUE_QUOTAS", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub validate_queue_quotas: bool,

    /// Refuse to delete queues that have children or workloads, instead of warning
    #[arg(long, env = "UNIKAI_PROTECT_QUEUES", value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub protect_queues: bool,
}

use ::http as http_types;

/// All flags of the operator.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Args {
    /// Scheduling.
    #[command(flatten)]
    pub scheduling: SchedulingArgs,
    /// Grouping.
    #[command(flatten)]
    pub grouping: GroupingArgs,
    /// Shared GPUs.
    #[command(flatten)]
    pub sharing: SharingArgs,
    /// The webhooks.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Metrics.
    #[command(flatten)]
    pub metrics: MetricsArgs,
    /// The HTTP server.
    #[command(flatten)]
    pub http: http::Args,
    /// The connections to the API server.
    #[command(flatten)]
    pub network: NetworkArgs,
    /// Leader election.
    #[command(flatten)]
    pub lease: lease::Args,
}

/// The operator's settings, validated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Defaults for fields that Config and shards do not set.
    pub common: Common,
    /// Of leader election.
    pub lease: lease::Params,
    /// Timeouts of the API server's answers.
    pub timeouts: Timeouts,
    /// Where to serve health, metrics and state.
    pub http_address: SocketAddr,
    /// Whether metrics are served only to authorized clients.
    pub protect_metrics: bool,
    /// Whether missing default queues are created.
    pub create_default_queues: bool,
}

/// All invalid settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid(pub Vec<String>);

impl std::error::Error for Invalid {}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.join("\n       "))
    }
}

/// A free port of the loopback address.
const FREE: &str = "127.0.0.1:0";

/// All flags, for an operator in the process that embeds it, with an embedded cluster: by default it serves on free ports of the
/// loopback address.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
#[command(
    mut_arg("http_address", |arg| arg.default_value(FREE)),
    mut_arg("webhook_address", |arg| arg.default_value(FREE))
)]
pub struct EmbeddedArgs {
    #[command(flatten)]
    args: Args,
}

impl Settings {
    /// Those of an embedded operator to which no flags are given.
    #[must_use]
    pub fn embedded() -> Self {
        /// The flags.
        #[derive(clap::Parser)]
        struct Defaults {
            #[command(flatten)]
            args: EmbeddedArgs,
        }
        let args = <Defaults as clap::Parser>::parse_from(["unikai"]).args;
        Self::try_from(args).expect("the defaults are valid")
    }
}

impl TryFrom<EmbeddedArgs> for Settings {
    type Error = Invalid;

    fn try_from(EmbeddedArgs { args }: EmbeddedArgs) -> Result<Self, Invalid> {
        let registered_by_port = args.admission.webhook_url.is_none();
        let mut settings = Self::try_from(args)?;
        if registered_by_port {
            settings.common.admission.target = None;
        }
        Ok(settings)
    }
}

impl TryFrom<Args> for Settings {
    type Error = Invalid;

    fn try_from(args: Args) -> Result<Self, Invalid> {
        let wrong = problems(&args);
        if !wrong.is_empty() {
            return Err(Invalid(wrong));
        }
        let Args {
            scheduling,
            grouping,
            sharing,
            admission,
            metrics,
            http,
            network,
            lease,
        } = args;
        let target = match &admission.webhook_url {
            Some(url) => Target::Url(url.to_string().trim_end_matches('/').to_owned()),
            None => Target::Service {
                name: object::OPERATOR.to_owned(),
                namespace: lease.namespace.clone(),
            },
        };
        let components = components::Settings {
            namespace: lease.namespace.clone(),
            scheduler_name: scheduling.scheduler_name.clone(),
            queue_label_key: scheduling.queue_label_key.clone(),
            pools: Pools {
                key: scheduling.node_pool_label_key,
                ..Pools::default()
            },
            default_queue: scheduling.default_queue,
            disruption_budgets: scheduling.disruption_budgets,
            volume_binding_timeout: scheduling.volume_binding_timeout,
            self_check_interval: scheduling.self_check_interval,
            watch_timeout: network.watch_timeout,
            background_delay: network.background_delay,
            numa: scheduling.numa.then(|| resource_names(&scheduling.numa_ignore)),
            config_maps: scheduling.config_maps,
            gpu_resources: scheduling.gpu_resources.clone(),
            detailed_fit_errors: scheduling.detailed_fit_errors,
            messages: scheduling.messages,
            queue_metric_labels: metrics.queue_labels(),
            own_pods: sharing.own_pods(),
            scaling: sharing.scaling(),
            sharing: sharing.clone().settings(),
            ..grouping.settings()
        };
        let admission = admission::Settings {
            namespace: lease.namespace.clone(),
            scope: Scope {
                pod_labels: components.pod_labels.clone(),
                namespace_labels: components.namespace_labels.clone(),
                ..Scope::default()
            },
            scheduler_name: scheduling.scheduler_name,
            queue_label_key: scheduling.queue_label_key,
            queue_labels: admission.queue_labels,
            gpu_sharing: sharing.gpu_sharing,
            gpu_resources: {
                let usual = names::resource::WHOLE_GPUS.map(ToOwned::to_owned);
                [usual.as_slice(), &scheduling.gpu_resources].concat()
            },
            gpu_fraction_runtime_class: sharing.gpu_fraction_runtime_class_name,
            block_nvidia_visible_devices: admission.block_nvidia_visible_devices,
            hami_core: sharing.hami_core,
            queue_rules: Rules {
                quotas: admission.validate_queue_quotas,
                protect: admission.protect_queues,
            },
            failure_policy: admission.webhook_failure_policy,
            client_authorities: admission.webhook_client_ca,
            address: admission.webhook_address,
            target: Some(target),
        };
        Ok(Self {
            common: Common {
                components,
                admission,
                metrics_namespace: metrics.metrics_namespace,
                only_pool: scheduling.node_pool.filter(|pool| !pool.is_empty()),
                prometheus: None,
            },
            lease: lease::Params {
                identity: lease.identity.unwrap_or_else(lease::identity),
                namespace: lease.namespace,
                name: lease.lease_name,
                duration: lease.lease_duration,
                renew_deadline: lease.lease_renew_deadline,
                retry_period: lease.lease_retry_period,
            },
            timeouts: network.timeouts(),
            http_address: http.http_address,
            protect_metrics: http.protect_metrics,
            create_default_queues: scheduling.create_default_queues,
        })
    }
}

/// All problems, each with the flag's name.
fn problems(args: &Args) -> Vec<String> {
    let Args {
        scheduling,
        sharing,
        admission,
        metrics,
        network,
        lease,
        ..
    } = args;
    let mut wrong = Vec::new();
    let mut check = |right: bool, message: String| {
        if !right {
            wrong.push(message);
        }
    };
    for (flag, name) in [
        ("--scheduler-name", &scheduling.scheduler_name),
        ("--default-queue", &scheduling.default_queue),
        ("--reservation-namespace", &sharing.reservation_namespace),
        ("--reservation-service-account", &sharing.reservation_service_account),
        ("--scale-adjust-namespace", &sharing.scale_adjust_namespace),
        ("--scale-adjust-service-account", &sharing.scale_adjust_service_account),
        ("--namespace", &lease.namespace),
        ("--lease-name", &lease.lease_name),
    ] {
        check(
            is_name(name),
            format!("{flag} {name:?}: not a name of Kubernetes (lower-case letters, digits, '-' and '.', at most 253)"),
        );
    }
    let keys = [
        ("--queue-label-key", &scheduling.queue_label_key),
        ("--node-pool-label-key", &scheduling.node_pool_label_key),
    ];
    for (flag, key) in keys {
        let optional = flag == "--node-pool-label-key" && key.is_empty();
        check(
            optional || is_label_key(key),
            format!("{flag} {key:?}: not a label key, such as example.com/queue"),
        );
    }
    check(
        scheduling.numa || scheduling.numa_ignore.is_empty(),
        "--numa-ignore: has no effect without --numa".to_owned(),
    );
    for resource in &scheduling.gpu_resources {
        let right = resource.contains('/')
            && is_label_key(resource)
            && !resource.starts_with(names::resource::NVIDIA_MIG_PREFIX);
        check(
            right,
            format!("--gpu-resource {resource:?}: not the name of an extended resource, such as gpu.intel.com/xe"),
        );
    }
    if let Some(pool) = scheduling.node_pool.as_deref().filter(|pool| !pool.is_empty()) {
        check(is_label_word(pool), format!("--node-pool {pool:?}: not a label value"));
        let keyed = !scheduling.node_pool_label_key.is_empty();
        check(keyed, "--node-pool: needs --node-pool-label-key".to_owned());
    }
    if let Some(url) = &admission.webhook_url {
        let right = url.scheme_str() == Some("https") && url.host().is_some() && matches!(url.path(), "" | "/");
        check(right, format!("--webhook-url {url}: not of the form https://HOST:PORT"));
    }
    check(
        is_metric_word(&metrics.metrics_namespace),
        format!(
            "--metrics-namespace {:?}: not a name of Prometheus",
            metrics.metrics_namespace
        ),
    );
    for problem in wrong_metric_labels(&metrics.queue_labels()) {
        check(false, format!("--queue-label-to-metric-label {problem}"));
    }
    for (flag, class) in [
        (
            "--gpu-fraction-runtime-class-name",
            &sharing.gpu_fraction_runtime_class_name,
        ),
        (
            "--reservation-runtime-class-name",
            &sharing.reservation_runtime_class_name,
        ),
    ] {
        check(
            class.is_empty() || is_name(class),
            format!("{flag} {class:?}: not a name of Kubernetes"),
        );
    }
    for secret in &sharing.image_pull_secrets {
        check(
            is_name(secret),
            format!("--image-pull-secret {secret:?}: not a name of Kubernetes"),
        );
    }
    let app = &sharing.reservation_app_label;
    check(
        is_label_word(app),
        format!("--reservation-app-label {app:?}: not a label value"),
    );
    check(
        !sharing.reservation_timeout.is_zero(),
        "--reservation-timeout: must be more than 0".to_owned(),
    );
    check(
        !network.request_timeout.is_zero(),
        "--request-timeout: must be more than 0".to_owned(),
    );
    for (flag, span) in [
        ("--volume-binding-timeout", scheduling.volume_binding_timeout),
        ("--self-check-interval", scheduling.self_check_interval),
        ("--reservation-timeout", sharing.reservation_timeout),
        ("--request-timeout", network.request_timeout),
        ("--background-delay", network.background_delay),
        // The other two are less than this.
        ("--lease-duration", lease.lease_duration),
    ] {
        let longest = LONGEST.as_secs();
        check(span <= LONGEST, format!("{flag}: must be at most {longest} seconds"));
    }
    let (duration, deadline, retry) = (
        lease.lease_duration,
        lease.lease_renew_deadline,
        lease.lease_retry_period,
    );
    check(
        deadline < duration,
        format!("--lease-renew-deadline {deadline:?}: must be less than --lease-duration {duration:?}"),
    );
    check(
        retry < deadline,
        format!("--lease-retry-period {retry:?}: must be less than --lease-renew-deadline {deadline:?}"),
    );
    check(!retry.is_zero(), "--lease-retry-period: must be more than 0".to_owned());
    if let Some(identity) = &lease.identity {
        check(!identity.is_empty(), "--identity: must not be empty".to_owned());
    }
    wrong
}

/// The authorities in a file, as PEM.
fn authorities(path: &str) -> Result<String, String> {
    let pem = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    certificates::authorities(&pem).map_err(|error| error.to_string())?;
    Ok(pem)
}

fn disruption_budgets(mode: &str) -> Result<DisruptionBudgets, String> {
    DisruptionBudgets::parse(mode).ok_or_else(|| {
        let modes = DisruptionBudgets::ALL.map(DisruptionBudgets::as_str);
        format!("not one of {}", modes.join(", "))
    })
}

fn words(word: &str) -> Result<Wording, String> {
    Wording::parse(word).ok_or_else(|| format!("not one of {}", Wording::ALL.map(Wording::as_str).join(", ")))
}

/// Names as given, without the blanks around them.
fn resource_names(given: &[String]) -> Vec<String> {
    let names = given.iter().map(|name| name.trim()).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
