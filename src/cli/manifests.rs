//! `unikai manifests`: all that a cluster needs to run the operator, such that one `kubectl apply` installs it.
//!
//! What is YAML by nature is written as YAML, beside this file; the CustomResourceDefinitions are generated. Absent: what the
//! operator makes itself, because it needs its certificate or the CRDs first (webhook configurations, queues).

use std::path::PathBuf;
use std::process::ExitCode;

use super::{crds, output};
use crate::api::limits;
use crate::api::names::{label, object};
use crate::components::fractions::IMAGE;
use crate::components::grouping::readable::OWNERS;
use crate::kinds::{Condition, Kind};

/// The image that the manifests name where no other is asked for.
pub const DEFAULT_IMAGE: &str = IMAGE;

/// Arguments of `unikai manifests`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Write files into this folder instead of printing them
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// Print what GPU sharing needs, too; as files it always is, in a folder of its own
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
        }
    }

    /// What the operator must be told of these.
    fn flags(&self) -> String {
        let named = [
            ("scheduler-name", &self.scheduler_name, object::SCHEDULER_NAME),
            ("queue-label-key", &self.queue_label_key, label::QUEUE),
            ("node-pool-label-key", &self.node_pool_label_key, label::NODE_POOL),
        ];
        let changed = named.iter().filter(|(_, value, usual)| *value != usual);
        changed
            .map(|(flag, value, _)| format!(", {}", quoted(&format!("--{flag}={value}"))))
            .collect()
    }
}

/// Runs the subcommand.
///
/// # Errors
/// When the files cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut all = files_of(&args);
    if args.gpu_sharing || args.dir.is_some() {
        all.extend(gpu_sharing());
    }
    output::emit(&all, args.dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The files of `manifests/`: names and contents, in the order of their names, which is the order to apply them in.
pub fn files(image: &str) -> Vec<(String, String)> {
    files_of(&Args::with_image(image))
}

fn files_of(args: &Args) -> Vec<(String, String)> {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let mut files = vec![file("00-namespaces.yaml", include_str!("manifests/namespaces.yaml"))];
    files.extend(
        crds::files()
            .into_iter()
            .map(|(name, text)| (format!("10-{name}"), text)),
    );
    files.extend([
        file(
            "20-priority-classes.yaml",
            include_str!("manifests/priority-classes.yaml"),
        ),
        file("25-flow-control.yaml", include_str!("manifests/flow-control.yaml")),
        file(
            "30-rbac.yaml",
            &include_str!("manifests/rbac.yaml")
                .replace("${WATCHED}", &watched())
                .replace("${OWNERS}", &owners()),
        ),
        file("35-admission-policies.yaml", &policies(args)),
        file(
            "40-operator.yaml",
            &include_str!("manifests/operator.yaml")
                .replace("${IMAGE}", &quoted(&args.image))
                .replace("${FLAGS}", &args.flags()),
        ),
    ]);
    files
}

/// The files of `manifests/gpu-sharing/`, which whoever shares GPUs applies, too.
pub fn gpu_sharing() -> Vec<(String, String)> {
    let text = include_str!("manifests/gpu-sharing.yaml");
    vec![("gpu-sharing/gpu-sharing.yaml".to_owned(), text.to_owned())]
}

/// The admission policies.
fn policies(args: &Args) -> String {
    let operator = format!("system:serviceaccount:{}:{}", object::NAMESPACE, object::OPERATOR);
    include_str!("manifests/policies.yaml")
        .replace("${SCHEDULER_NAME}", &args.scheduler_name)
        .replace("${QUEUE_LABEL_KEY}", &args.queue_label_key)
        .replace("${NODE_POOL_LABEL_KEY}", &args.node_pool_label_key)
        .replace("${LABELS}", &limits::LABELS_PER_POD.to_string())
        .replace("${ANNOTATIONS}", &limits::ANNOTATIONS_PER_POD.to_string())
        .replace("${NAMESPACE}", object::NAMESPACE)
        .replace("${OPERATOR}", &operator)
}

/// The rules of the role that reads the owners of pods.
fn owners() -> String {
    let rule = |(group, plurals): &(&str, &[&str])| {
        let group = if group.is_empty() { "\"\"" } else { group };
        format!(
            "- apiGroups: [{group}]\n  resources: [{}]\n  verbs: [get]\n",
            plurals.join(", ")
        )
    };
    OWNERS.iter().map(rule).collect()
}

/// The rights to list and watch what is watched, one rule for each API group.
fn watched() -> String {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for kind in Kind::ALL {
        // These are given apart: the right to list ConfigMaps is the right to read them.
        if kind.condition() == Condition::WithConfigMaps {
            continue;
        }
        match groups.iter_mut().find(|(group, _)| *group == kind.group()) {
            Some((_, plurals)) => plurals.push(kind.plural()),
            None => groups.push((kind.group(), vec![kind.plural()])),
        }
    }
    groups.sort_unstable();
    let rule = |(group, plurals): &(&str, Vec<&str>)| {
        format!(
            "- apiGroups: [{}]\n  resources: [{}]\n  verbs: [list, watch]\n",
            if group.is_empty() { "\"\"" } else { group },
            plurals.join(", ")
        )
    };
    groups.iter().map(rule).collect()
}

/// A text as YAML, in quotes if it needs them.
fn quoted(text: &str) -> String {
    serde_yaml_ng::to_string(text)
        .expect("a text is YAML")
        .trim_end()
        .to_owned()
}
