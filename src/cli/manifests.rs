//! `unikai manifests`: all objects of an installation, to be installed by one `kubectl apply`.
//!
//! Objects are YAML templates beside this file; the CustomResourceDefinitions are generated. Objects that need the operator's certificate or the CRDs
//! first (webhook configurations, queues) are created by the operator.

mod chart;
mod kustomize;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Deserialize as _;

use super::{crds, output};
use crate::api::limits;
use crate::api::names::{label, object};
use crate::components;
use crate::components::fractions::IMAGE;
use crate::components::grouping::readable::OWNERS;
use crate::components::pods::OwnPods;
use crate::kinds::{Condition, Kind};

/// The image where none is given.
pub const DEFAULT_IMAGE: &str = IMAGE;

/// Arguments of `unikai manifests`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Write files into this folder instead of printing them
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Also print the manifests for GPU sharing; with --dir they are always written, into a folder of their own
    #[arg(long)]
    gpu_sharing: bool,

    /// The operator's image
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    image: String,

    /// The operator's --scheduler-name
    #[arg(long, value_name = "NAME", default_value = object::SCHEDULER_NAME)]
    scheduler_name: String,

    /// The operator's --queue-label-key
    #[arg(long, value_name = "LABEL", default_value = label::QUEUE)]
    queue_label_key: String,

    /// The operator's --node-pool-label-key
    #[arg(long, value_name = "LABEL", default_value = label::NODE_POOL)]
    node_pool_label_key: String,

    /// The operator's --reservation-namespace
    #[arg(long, value_name = "NAMESPACE", default_value = object::RESERVATION_NAMESPACE)]
    reservation_namespace: String,

    /// The operator's --reservation-service-account
    #[arg(long, value_name = "NAME", default_value = object::RESERVATION_SERVICE_ACCOUNT)]
    reservation_service_account: String,

    /// The operator's --scale-adjust-namespace
    #[arg(long, value_name = "NAMESPACE", default_value = object::SCALE_ADJUST_NAMESPACE)]
    scale_adjust_namespace: String,

    /// The operator's --scale-adjust-service-account
    #[arg(long, value_name = "NAME", default_value = object::SCALE_ADJUST_SERVICE_ACCOUNT)]
    scale_adjust_service_account: String,
}

impl Args {
    /// The defaults, with this image.
    fn with_image(image: &str) -> Self {
        Self {
            dir: None,
            gpu_sharing: false,
            image: image.to_owned(),
            scheduler_name: object::SCHEDULER_NAME.to_owned(),
            queue_label_key: label::QUEUE.to_owned(),
            node_pool_label_key: label::NODE_POOL.to_owned(),
            reservation_namespace: object::RESERVATION_NAMESPACE.to_owned(),
            reservation_service_account: object::RESERVATION_SERVICE_ACCOUNT.to_owned(),
            scale_adjust_namespace: object::SCALE_ADJUST_NAMESPACE.to_owned(),
            scale_adjust_service_account: object::SCALE_ADJUST_SERVICE_ACCOUNT.to_owned(),
        }
    }

    /// The arguments for an operator with these settings.
    fn for_operator(settings: &components::Settings) -> Self {
        let OwnPods { reservation, scaling } = &settings.own_pods;
        Self {
            scheduler_name: settings.scheduler_name.clone(),
            queue_label_key: settings.queue_label_key.clone(),
            node_pool_label_key: settings.pools.key.clone(),
            reservation_namespace: reservation.namespace.clone(),
            reservation_service_account: reservation.name.clone(),
            scale_adjust_namespace: scaling.namespace.clone(),
            scale_adjust_service_account: scaling.name.clone(),
            ..Self::with_image(DEFAULT_IMAGE)
        }
    }

    /// Flags of the operator that follow from these arguments.
    fn flags(&self) -> String {
        let named = [
            ("scheduler-name", &self.scheduler_name, object::SCHEDULER_NAME),
            ("queue-label-key", &self.queue_label_key, label::QUEUE),
            ("node-pool-label-key", &self.node_pool_label_key, label::NODE_POOL),
            (
                "reservation-namespace",
                &self.reservation_namespace,
                object::RESERVATION_NAMESPACE,
            ),
            (
                "reservation-service-account",
                &self.reservation_service_account,
                object::RESERVATION_SERVICE_ACCOUNT,
            ),
            (
                "scale-adjust-namespace",
                &self.scale_adjust_namespace,
                object::SCALE_ADJUST_NAMESPACE,
            ),
            (
                "scale-adjust-service-account",
                &self.scale_adjust_service_account,
                object::SCALE_ADJUST_SERVICE_ACCOUNT,
            ),
        ];
        let changed = named.iter().filter(|(_, value, usual)| *value != usual);
        changed
            .map(|(flag, value, _)| format!(", {}", quoted(&format!("--{flag}={value}"))))
            .collect()
    }

    fn values(&self) -> Values {
        Values::from([
            ("NAMESPACE", object::NAMESPACE.to_owned()),
            ("SCHEDULER_NAME", self.scheduler_name.clone()),
            ("QUEUE_LABEL_KEY", self.queue_label_key.clone()),
            ("NODE_POOL_LABEL_KEY", self.node_pool_label_key.clone()),
            ("RESERVATION_NAMESPACE", self.reservation_namespace.clone()),
            ("RESERVATION_ACCOUNT", self.reservation_service_account.clone()),
            ("SCALING_NAMESPACE", self.scale_adjust_namespace.clone()),
            ("SCALING_ACCOUNT", self.scale_adjust_service_account.clone()),
            ("IMAGE", quoted(&self.image)),
            ("PULL_POLICY", "IfNotPresent".to_owned()),
            ("PRIORITY_CLASS", "system-cluster-critical".to_owned()),
            // One is the default. An upgrade with `kubectl apply` must not undo what was set by `kubectl scale`.
            ("REPLICAS", String::new()),
            ("LOG_FORMAT", "json".to_owned()),
            ("FLAGS", self.flags()),
            ("AFFINITY", indented(8, AFFINITY)),
            ("RESOURCES", indented(10, RESOURCES)),
            ("POD", String::new()),
            ("MOUNTS", String::new()),
            ("ENV", String::new()),
        ])
    }
}

/// Values of the placeholders `${NAME}` in the templates.
type Values = BTreeMap<&'static str, String>;

/// Replicas prefer different nodes.
const AFFINITY: &str = "\
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
  - weight: 100
    podAffinityTerm:
      topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels:
          app.kubernetes.io/name: unikai";

/// The resource requests and limits of the operator's container.
const RESOURCES: &str = "\
requests:
  cpu: 250m
  memory: 256Mi
limits:
  memory: 2Gi";

/// Runs the subcommand.
///
/// # Errors
/// When the files cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut all = files_of(&args);
    if args.dir.is_some() {
        all.push(kustomize::base(&all));
        all.extend(folders(&args));
    } else if args.gpu_sharing {
        all.extend(gpu_sharing_of(&args));
    }
    output::emit(&all, args.dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The files of `manifests/`: names and contents, in the order of their names, which is the order to apply them in.
pub fn files(image: &str) -> Vec<(String, String)> {
    files_of(&Args::with_image(image))
}

/// The files of `manifests/` and `manifests/gpu-sharing/` for an operator with these settings.
pub fn files_with(settings: &components::Settings) -> Vec<(String, String)> {
    let args = Args::for_operator(settings);
    let mut files = files_of(&args);
    files.extend(gpu_sharing_of(&args));
    files
}

fn files_of(args: &Args) -> Vec<(String, String)> {
    let values = args.values();
    let namespaces = (
        "00-namespaces.yaml".to_owned(),
        fill(include_str!("manifests/namespaces.yaml"), &values),
    );
    let definitions = crds::files()
        .into_iter()
        .map(|(name, text)| (format!("10-{name}"), text));
    let templates = TEMPLATES
        .iter()
        .map(|(name, text)| ((*name).to_owned(), fill(text, &values)));
    std::iter::once(namespaces)
        .chain(definitions)
        .chain(templates)
        .collect()
}

/// What is installed in the operator's namespace and in the cluster, beside namespaces and CustomResourceDefinitions.
const TEMPLATES: [(&str, &str); 6] = [
    (
        "20-priority-classes.yaml",
        include_str!("manifests/priority-classes.yaml"),
    ),
    ("22-critical-pods.yaml", include_str!("manifests/critical-pods.yaml")),
    ("25-flow-control.yaml", include_str!("manifests/flow-control.yaml")),
    ("30-rbac.yaml", include_str!("manifests/rbac.yaml")),
    ("35-admission-policies.yaml", include_str!("manifests/policies.yaml")),
    ("40-operator.yaml", include_str!("manifests/operator.yaml")),
];

const GPU_SHARING: &str = include_str!("manifests/gpu-sharing.yaml");
const CONFIG_MAPS: &str = include_str!("manifests/config-maps.yaml");
const NUMA_EXPORTER: &str = include_str!("manifests/numa-exporter.yaml");
const KAI_SERVICES: &str = include_str!("manifests/kai-services.yaml");
const DISRUPTION_BUDGET: &str = include_str!("manifests/disruption-budget.yaml");
const MONITORING: [(&str, &str); 3] = [
    ("alerts.yaml", include_str!("manifests/monitoring/alerts.yaml")),
    ("dashboard.yaml", include_str!("manifests/monitoring/dashboard.yaml")),
    (
        "service-monitor.yaml",
        include_str!("manifests/monitoring/service-monitor.yaml"),
    ),
];

/// The files of `manifests/gpu-sharing/`, applied for GPU sharing.
pub fn gpu_sharing() -> Vec<(String, String)> {
    gpu_sharing_of(&Args::with_image(DEFAULT_IMAGE))
}

fn gpu_sharing_of(args: &Args) -> Vec<(String, String)> {
    let text = fill(GPU_SHARING, &args.values());
    vec![("gpu-sharing/gpu-sharing.yaml".to_owned(), text)]
}

/// The files of `manifests/numa-exporter/`, applied for the NUMA exporter.
pub fn numa_exporter() -> Vec<(String, String)> {
    let values = Args::with_image(DEFAULT_IMAGE).values();
    vec![(
        "numa-exporter/numa-exporter.yaml".to_owned(),
        fill(NUMA_EXPORTER, &values),
    )]
}

/// The files of all folders below `manifests/`: optional objects, `Kustomization` files, and the chart.
fn folders(args: &Args) -> Vec<(String, String)> {
    let values = args.values();
    let network_policy = include_str!("manifests/network-policy.yaml");
    let mut templates = vec![
        ("config-maps/rbac.yaml".to_owned(), CONFIG_MAPS),
        ("gpu-sharing/gpu-sharing.yaml".to_owned(), GPU_SHARING),
        ("kai-services/services.yaml".to_owned(), KAI_SERVICES),
        ("network-policy/network-policy.yaml".to_owned(), network_policy),
        ("numa-exporter/numa-exporter.yaml".to_owned(), NUMA_EXPORTER),
        ("two-replicas/disruption-budget.yaml".to_owned(), DISRUPTION_BUDGET),
    ];
    templates.extend(MONITORING.map(|(name, text)| (format!("monitoring/{name}"), text)));
    let mut files: Vec<_> = templates
        .into_iter()
        .map(|(name, text)| (name, fill(text, &values)))
        .collect();
    files.extend(kustomize::components(&files));
    files.extend(chart::files());
    files
}

/// Replaces the placeholders of a template.
fn fill(template: &str, values: &Values) -> String {
    let namespace = &values["NAMESPACE"];
    let derived = [
        ("WATCHED", watched()),
        ("OWNERS", owners()),
        ("LABELS", limits::LABELS_PER_POD.to_string()),
        ("ANNOTATIONS", limits::ANNOTATIONS_PER_POD.to_string()),
        (
            "OPERATOR",
            format!("system:serviceaccount:{namespace}:{}", object::OPERATOR),
        ),
    ];
    let mut text = template.to_owned();
    for (name, value) in values
        .iter()
        .map(|(name, value)| (*name, value))
        .chain(derived.iter().map(|(name, value)| (*name, value)))
    {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    text
}

/// Lines of a block below a key, indented, from the end of the key's line on.
fn indented(spaces: usize, block: &str) -> String {
    block
        .lines()
        .map(|line| format!("\n{}{line}", " ".repeat(spaces)))
        .collect()
}

/// A rule of a role about resources of one API group.
fn rule(group: &str, plurals: &[&str], verbs: &str) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    let resources = plurals.join(", ");
    format!("- apiGroups: [{group}]\n  resources: [{resources}]\n  verbs: [{verbs}]\n")
}

/// The rules of the role that reads the owners of pods.
fn owners() -> String {
    let rules = OWNERS.iter().map(|(group, plurals)| rule(group, plurals, "get"));
    rules.collect()
}

/// The rights to list and watch the watched kinds, one rule for each API group.
fn watched() -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in Kind::ALL {
        // These are written in a template: the right to list ConfigMaps is the right to read them.
        if kind.condition() == Condition::WithConfigMaps {
            continue;
        }
        match groups.iter_mut().find(|(group, _)| *group == kind.group()) {
            Some((_, plurals)) => plurals.push(kind.plural()),
            None => groups.push((kind.group(), vec![kind.plural()])),
        }
    }
    groups.sort_unstable();
    let rules = groups
        .iter()
        .map(|(group, plurals)| rule(group, plurals, "list, watch"));
    rules.collect()
}

/// A text as YAML, in quotes if it needs them.
fn quoted(text: &str) -> String {
    serde_yaml_ng::to_string(text)
        .expect("a text is YAML")
        .trim_end()
        .to_owned()
}

/// The PriorityClasses of the manifests.
#[must_use]
pub fn priority_classes() -> Vec<String> {
    let documents = serde_yaml_ng::Deserializer::from_str(include_str!("manifests/priority-classes.yaml"));
    let classes = documents.filter_map(|document| serde_json::Value::deserialize(document).ok());
    classes
        .filter_map(|class| class["metadata"]["name"].as_str().map(ToOwned::to_owned))
        .collect()
}
