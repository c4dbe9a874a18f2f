//! Config → the settings of all components, with flags for unset fields.

mod numa_exporter;

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::SecurityContext;

use super::fields::LONGEST;
use super::{Common, Probe, words};
use crate::api::config::{
    BinderConfig, ConfigSpec, Global, PrometheusConfig, QueueControllerConfig, ResourceReservation, Service,
    WebhooksConfig,
};
use crate::api::syntax;
use crate::components::gpu_operator::Cdi;
use crate::components::pods::{Account, without_privileges};
use crate::components::queues::shown::MetricLabel;
use crate::mirror::policy::{Finding, go_bool};

/// The result of reading a Config. If it has errors, none of it takes effect.
pub struct Reading {
    /// The settings of all components.
    pub common: Common,
    /// Whether scheduling is switched on.
    pub decides: bool,
    /// Whether there is a NUMA exporter, if that is set.
    pub numa_exporter: Option<bool>,
    /// How the Prometheus server is checked, if there is one.
    pub probe: Option<Probe>,
    /// Its errors, by field.
    pub wrong: Vec<Finding>,
    /// Values without effect that the table of fields does not have, and those that the default or a bound replaces, since KAI accepts them.
    pub ignored: Vec<Finding>,
}

impl Reading {
    fn wrong(&mut self, path: impl Into<String>, says: impl Into<String>) {
        self.wrong.push(Finding {
            path: path.into(),
            says: says.into(),
        });
    }

    fn ignored(&mut self, path: impl Into<String>, says: impl Into<String>) {
        self.ignored.push(Finding {
            path: path.into(),
            says: says.into(),
        });
    }

    /// Reads a number of seconds, if it is set. KAI accepts any number, so one that is out of range is not an error: the default or the bound applies.
    fn seconds(&mut self, path: &str, given: Option<i64>, setting: &mut Duration) {
        match given.map(u64::try_from) {
            Some(Ok(seconds)) if seconds > 0 => {
                let given = Duration::from_secs(seconds);
                if given > LONGEST {
                    self.ignored(path, format!("is more than {} seconds, which apply", LONGEST.as_secs()));
                }
                *setting = given.min(LONGEST);
            }
            Some(_) => self.ignored(path, "is not more than 0: the default applies"),
            None => {}
        }
    }

    /// Reads pairs of keys and values. The last value of a key counts.
    fn pairs(&mut self, path: &str, given: Option<&String>) -> Option<BTreeMap<String, String>> {
        let given = given?;
        let mut pairs = BTreeMap::new();
        for pair in given.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some((key, value)) => {
                    pairs.insert(key.to_owned(), value.to_owned());
                }
                None => self.wrong(path, format!("{pair:?} is not of the form KEY=VALUE")),
            }
        }
        Some(pairs)
    }
}

/// Reads a Config; flags apply to unset fields.
pub fn read(flags: &Common, spec: &ConfigSpec) -> Reading {
    let mut reading = Reading {
        common: flags.clone(),
        decides: true,
        numa_exporter: None,
        probe: None,
        wrong: Vec::new(),
        ignored: Vec::new(),
    };
    global(&spec.global.clone().unwrap_or_default(), &mut reading);
    pod_grouper(spec, &mut reading);
    binder(&spec.binder.clone().unwrap_or_default(), &mut reading);
    admission(spec, &mut reading);
    let scheduler = spec.scheduler.as_ref().and_then(|part| part.service.as_ref());
    reading.decides = is_on(scheduler) && reading.common.components.parts.binder;
    queue_controller(&spec.queue_controller.clone().unwrap_or_default(), &mut reading);
    if let Some(controller) = &spec.pod_group_controller {
        let (service, webhooks) = (controller.service.as_ref(), controller.webhooks.as_ref());
        reading.common.components.parts.pod_groups = is_on(service);
        reading.common.admission.scope.pod_groups = validates(service, webhooks);
    }
    node_scale_adjuster(spec, &mut reading);
    let exporter = spec.numa_placement_exporter.clone().unwrap_or_default();
    numa_exporter::read(&exporter, &spec.global.clone().unwrap_or_default(), &mut reading);
    let given = spec.prometheus.clone().unwrap_or_default();
    reading.probe = probe(&given, &mut reading);
    reading.common.prometheus = prometheus(&given, &reading.common);
    reading
}

/// The Prometheus server of shards that name none: the external one of Config, else the one that KAI would install.
fn prometheus(given: &PrometheusConfig, common: &Common) -> Option<String> {
    let external = external(given);
    let kais = || {
        let namespace = &common.components.namespace;
        format!("http://usage-prometheus.{namespace}.svc.cluster.local:9090")
    };
    external.or_else(|| given.enabled.unwrap_or_default().then(kais))
}

/// The URL of the external server. Without a scheme it is plain HTTP.
fn external(given: &PrometheusConfig) -> Option<String> {
    let url = given.external_prometheus_url.clone().filter(|url| !url.is_empty())?;
    let whole = url.contains("://");
    Some(if whole { url } else { format!("http://{url}") })
}

/// How the external server is checked.
fn probe(given: &PrometheusConfig, reading: &mut Reading) -> Option<Probe> {
    let path = "spec.prometheus.externalPrometheusHealthProbe";
    let how = given.external_prometheus_health_probe.clone().unwrap_or_default();
    let mut probe = Probe {
        url: String::new(),
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        retries: 5,
    };
    reading.seconds(&format!("{path}.interval"), how.interval, &mut probe.interval);
    reading.seconds(&format!("{path}.timeout"), how.timeout, &mut probe.timeout);
    match how.max_retries.map(u32::try_from) {
        Some(Ok(retries)) => probe.retries = retries,
        Some(Err(_)) => reading.ignored(format!("{path}.maxRetries"), "is less than 0: the default applies"),
        None => {}
    }
    probe.url = external(given)?;
    Some(probe)
}

/// Whether a part is switched on.
#[must_use]
pub fn is_on(service: Option<&Service>) -> bool {
    service.and_then(|service| service.enabled).unwrap_or(true)
}

/// Whether the webhook of a controller is registered. In KAI the controller serves it, so without the controller there is none.
#[must_use]
pub fn validates(service: Option<&Service>, webhooks: Option<&WebhooksConfig>) -> bool {
    let enabled = webhooks.and_then(|webhooks| webhooks.enable_validation);
    is_on(service) && enabled.unwrap_or(true)
}

fn global(given: &Global, reading: &mut Reading) {
    let key = |path: &str, key: Option<&String>, may_be_empty: bool, reading: &mut Reading| {
        let key = key?;
        if syntax::is_label_key(key) || may_be_empty && key.is_empty() {
            return Some(key.clone());
        }
        reading.wrong(path, format!("{key:?} is not a label key, such as example.com/queue"));
        None
    };
    if let Some(name) = &given.scheduler_name {
        if !syntax::is_name(name) {
            reading.wrong(
                "spec.global.schedulerName",
                format!("{name:?} is not a name of Kubernetes"),
            );
        }
        reading.common.components.scheduler_name.clone_from(name);
        reading.common.admission.scheduler_name.clone_from(name);
    }
    if let Some(key) = key(
        "spec.global.queueLabelKey",
        given.queue_label_key.as_ref(),
        false,
        reading,
    ) {
        reading.common.components.queue_label_key.clone_from(&key);
        reading.common.admission.queue_label_key = key;
    }
    let pools = given.node_pool_label_key.as_ref();
    if let Some(key) = key("spec.global.nodePoolLabelKey", pools, true, reading) {
        reading.common.components.pools.key = key;
    }
    let selectors = [
        ("spec.global.namespaceLabelSelector", &given.namespace_label_selector),
        ("spec.global.podLabelSelector", &given.pod_label_selector),
    ];
    for (path, selector) in selectors {
        for (key, value) in selector {
            let right = syntax::is_label_key(key) && (value.is_empty() || syntax::is_label_word(value));
            if !right {
                reading.wrong(path, format!("{key}={value} is not a label"));
            }
        }
    }
    let Common {
        components, admission, ..
    } = &mut reading.common;
    if !given.namespace_label_selector.is_empty() {
        components.namespace_labels.clone_from(&given.namespace_label_selector);
    }
    if !given.pod_label_selector.is_empty() {
        components.pod_labels.clone_from(&given.pod_label_selector);
    }
    admission
        .scope
        .namespace_labels
        .clone_from(&components.namespace_labels);
    admission.scope.pod_labels.clone_from(&components.pod_labels);
    components.scaling.openshift = given.openshift == Some(true);
    if components.scaling.openshift {
        components.sharing.container_security = Some(SecurityContext::default());
    } else if let Some(context) = &given.security_context {
        components.sharing.container_security = Some(with_defaults(context));
    }
    let one_more = given.images_pull_secret.iter().filter(|name| !name.is_empty());
    let secrets = &mut components.sharing.pull_secrets;
    for name in given.additional_image_pull_secrets.iter().chain(one_more) {
        if !secrets.contains(name) {
            secrets.push(name.clone());
        }
    }
    components
        .scaling
        .pull_secrets
        .clone_from(&components.sharing.pull_secrets);
}

/// The security context with the default of each absent field, so that one which sets only the user does not give the container more rights.
fn with_defaults(given: &SecurityContext) -> SecurityContext {
    let default = without_privileges();
    let mut capabilities = given.capabilities.clone().unwrap_or_default();
    if capabilities.drop.as_ref().is_none_or(Vec::is_empty) {
        capabilities.drop = default.capabilities.and_then(|default| default.drop);
    }
    SecurityContext {
        allow_privilege_escalation: given.allow_privilege_escalation.or(default.allow_privilege_escalation),
        run_as_non_root: given.run_as_non_root.or(default.run_as_non_root),
        run_as_user: given.run_as_user.or(default.run_as_user),
        read_only_root_filesystem: given.read_only_root_filesystem.or(default.read_only_root_filesystem),
        capabilities: Some(capabilities),
        ..given.clone()
    }
}

fn pod_grouper(spec: &ConfigSpec, reading: &mut Reading) {
    let Some(grouper) = &spec.pod_grouper else { return };
    let components = &mut reading.common.components;
    components.parts.grouper = is_on(grouper.service.as_ref());
    let args = grouper.args.clone().unwrap_or_default();
    components.knative_gangs = args.gang_schedule_knative.unwrap_or(components.knative_gangs);
    components.kartas = args.generic_karta_fallback.unwrap_or(components.kartas);
    let text = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (name, namespace) = (
        text(args.default_priorities_config_map_name),
        text(args.default_priorities_config_map_namespace),
    );
    let path = "spec.podGrouper.args.defaultPrioritiesConfigMap";
    match (namespace, name) {
        (Some(namespace), Some(name)) => components.default_priorities = Some((namespace, name)),
        (Some(_), None) => reading.ignored(format!("{path}Namespace"), "has no effect without the name"),
        (None, Some(_)) => reading.ignored(format!("{path}Name"), "has no effect without the namespace"),
        (None, None) => {}
    }
}

fn binder(given: &BinderConfig, reading: &mut Reading) {
    reading.common.components.parts.binder = is_on(given.service.as_ref());
    let mut timeout = reading.common.components.volume_binding_timeout;
    let path = "spec.binder.volumeBindingTimeoutSeconds";
    reading.seconds(path, given.volume_binding_timeout_seconds, &mut timeout);
    let mut cdi = given.cdi_enabled;
    let mut hami_core = reading.common.components.sharing.hami_core;
    for (name, plugin) in &given.plugins {
        let path = format!("spec.binder.plugins.{name}");
        let known = ["volumebinding", "dynamicresources", "gpusharing", "hamicore"].contains(&name.as_str());
        if !known && plugin.enabled != Some(false) {
            reading.wrong(
                &path,
                "is not a step of a bind; there are volumebinding, dynamicresources, gpusharing, hamicore",
            );
            continue;
        }
        match (name.as_str(), plugin.enabled) {
            ("hamicore", enabled) => hami_core = enabled.unwrap_or(hami_core),
            (_, Some(false)) if known => {
                reading.ignored(
                    format!("{path}.enabled"),
                    "this step is always taken where a pod needs it",
                );
            }
            _ => {}
        }
        for (argument, text) in plugin.arguments.iter().flatten() {
            let path = format!("{path}.arguments.{argument}");
            match (name.as_str(), argument.as_str()) {
                ("volumebinding", "bindTimeoutSeconds") => match text.parse() {
                    Ok(seconds) => reading.seconds(&path, Some(seconds), &mut timeout),
                    Err(_) => reading.wrong(path, format!("{text:?} is not a whole number")),
                },
                ("gpusharing", "cdiEnabled") => match go_bool(text) {
                    Some(on) => cdi = Some(on),
                    None => reading.wrong(path, format!("{text:?} is not true or false")),
                },
                _ => reading.ignored(path, "this step has no such argument"),
            }
        }
    }
    reading.common.components.volume_binding_timeout = timeout;
    reading.common.components.sharing.hami_core = hami_core;
    reading.common.admission.hami_core = hami_core;
    if let Some(on) = cdi {
        reading.common.components.sharing.cdi = if on { Cdi::True } else { Cdi::False };
    }
    reservation(&given.resource_reservation.clone().unwrap_or_default(), reading);
}

/// The service account of a kind of the operator's own pods: its namespace and its name, where they are set.
fn account(flags: Account, given: [(String, &Option<String>); 2], reading: &mut Reading) -> Account {
    let [namespace, name] = given.map(|(path, name)| {
        let name = name.clone().filter(|name| !name.is_empty())?;
        if !syntax::is_name(&name) {
            reading.wrong(path, format!("{name:?} is not a name of Kubernetes"));
        }
        Some(name)
    });
    Account {
        namespace: namespace.unwrap_or(flags.namespace),
        name: name.unwrap_or(flags.name),
    }
}

fn reservation(given: &ResourceReservation, reading: &mut Reading) {
    let mut max_wait = reading.common.components.sharing.max_wait;
    let path = "spec.binder.resourceReservation";
    reading.seconds(
        &format!("{path}.allocationTimeout"),
        given.allocation_timeout,
        &mut max_wait,
    );
    if let Some(class) = &given.runtime_class_name
        && !class.is_empty()
        && !syntax::is_name(class)
    {
        reading.wrong(
            format!("{path}.runtimeClassName"),
            format!("{class:?} is not a name of Kubernetes"),
        );
    }
    if let Some(app) = given.app_label.clone().filter(|app| !app.is_empty()) {
        if !syntax::is_label_word(&app) {
            reading.wrong(format!("{path}.appLabel"), format!("{app:?} is not a label value"));
        }
        reading.common.components.sharing.app_label = app;
    }
    let names = [
        (format!("{path}.namespace"), &given.namespace),
        (format!("{path}.serviceAccountName"), &given.service_account_name),
    ];
    let own = reading.common.components.own_pods.reservation.clone();
    reading.common.components.own_pods.reservation = account(own, names, reading);
    let sharing = &mut reading.common.components.sharing;
    sharing.max_wait = max_wait;
    if let Some(class) = &given.runtime_class_name {
        sharing.runtime_class = Some(class.clone()).filter(|class| !class.is_empty());
    }
    if given.reservation_pod_security_context.is_some() {
        sharing.pod_security.clone_from(&given.reservation_pod_security_context);
    }
    if given.reservation_container_security_context.is_some() {
        sharing
            .container_security
            .clone_from(&given.reservation_container_security_context);
    }
    if let Some(resources) = &given.pod_resources {
        sharing.requests = resources
            .requests
            .iter()
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect();
        sharing.limits = resources
            .limits
            .iter()
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect();
    }
}

fn admission(spec: &ConfigSpec, reading: &mut Reading) {
    let Some(given) = &spec.admission else { return };
    // The deprecated name applies where the other is not set.
    let named = [
        ("gpuFractionRuntimeClassName", &given.gpu_fraction_runtime_class_name),
        ("gpuPodRuntimeClassName", &given.gpu_pod_runtime_class_name),
    ];
    let mut named = named
        .into_iter()
        .filter_map(|(field, class)| Some((field, class.clone()?)));
    if let Some((field, class)) = named.next() {
        if !class.is_empty() && !syntax::is_name(&class) {
            reading.wrong(
                format!("spec.admission.{field}"),
                format!("{class:?} is not a name of Kubernetes"),
            );
        }
        reading.common.admission.gpu_fraction_runtime_class = class;
    }
    let admission = &mut reading.common.admission;
    admission.gpu_sharing = given.gpu_sharing.unwrap_or(admission.gpu_sharing);
    let block = given.block_nvidia_visible_devices;
    admission.block_nvidia_visible_devices = block.unwrap_or(admission.block_nvidia_visible_devices);
    admission.scope.pods = is_on(given.service.as_ref());
    admission.scope.namespaces_with_queue = given.queue_label_selector.unwrap_or_default();
}

fn queue_controller(given: &QueueControllerConfig, reading: &mut Reading) {
    reading.common.components.parts.queues = is_on(given.service.as_ref());
    reading.common.admission.scope.queues = validates(given.service.as_ref(), given.webhooks.as_ref());
    metrics_namespace(given.metrics_namespace.as_deref(), reading);
    let path = "spec.queueController.queueLabelToMetricLabel";
    let shown = reading.pairs(path, given.queue_label_to_metric_label.as_ref());
    let defaults = reading.pairs(
        "spec.queueController.queueLabelToDefaultMetricValue",
        given.queue_label_to_default_metric_value.as_ref(),
    );
    let before = &reading.common.components.queue_metric_labels;
    let shown = shown.unwrap_or_else(|| {
        let before = before.iter();
        before
            .map(|label| (label.label.clone(), label.shown_as.clone()))
            .collect()
    });
    let defaults = defaults.unwrap_or_else(|| {
        let before = before.iter();
        before
            .map(|label| (label.label.clone(), label.default.clone()))
            .collect()
    });
    let label = |(label, shown_as): (String, String)| MetricLabel {
        default: defaults.get(&label).cloned().unwrap_or_default(),
        label,
        shown_as,
    };
    let labels: Vec<_> = shown.into_iter().map(label).collect();
    for wrong in words::wrong_metric_labels(&labels) {
        reading.wrong(path, wrong);
    }
    reading.common.components.queue_metric_labels = labels;
}

/// The prefix of metrics. An empty one is not an error, since KAI accepts it.
fn metrics_namespace(given: Option<&str>, reading: &mut Reading) {
    let path = "spec.queueController.metricsNamespace";
    match given {
        Some("") => reading.ignored(path, "is empty: the default applies"),
        Some(prefix) if words::is_metric_word(prefix) => prefix.clone_into(&mut reading.common.metrics_namespace),
        Some(prefix) => reading.wrong(path, format!("{prefix:?} is not a name of Prometheus")),
        None => {}
    }
}

fn node_scale_adjuster(spec: &ConfigSpec, reading: &mut Reading) {
    let Some(adjuster) = &spec.node_scale_adjuster else {
        return;
    };
    let scaling = &mut reading.common.components.scaling;
    let enabled = adjuster.service.as_ref().and_then(|service| service.enabled);
    scaling.on = enabled.unwrap_or(scaling.on);
    let args = adjuster.args.clone().unwrap_or_default();
    let path = "spec.nodeScaleAdjuster.args";
    let names = [
        (format!("{path}.nodeScaleNamespace"), &args.node_scale_namespace),
        (
            format!("{path}.nodeScaleServiceAccount"),
            &args.node_scale_service_account,
        ),
    ];
    let own = reading.common.components.own_pods.scaling.clone();
    reading.common.components.own_pods.scaling = account(own, names, reading);
    let scaling = &mut reading.common.components.scaling;
    let ratio = adjuster
        .args
        .as_ref()
        .and_then(|args| args.gpu_memory_to_fraction_ratio);
    if let Some(ratio) = ratio {
        if ratio > 0.0 && ratio <= 1.0 {
            #[expect(clippy::cast_possible_truncation, reason = "at most 100")]
            let hundredths = (ratio * 100.0).round() as i64;
            scaling.memory_hundredths = hundredths.max(1);
        } else {
            reading.ignored(
                "spec.nodeScaleAdjuster.args.gpuMemoryToFractionRatio",
                "is not more than 0 and at most 1: the default applies",
            );
        }
    }
}
