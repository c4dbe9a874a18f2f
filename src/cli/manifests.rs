//! `unikai manifests`: all that a cluster needs to run the operator, such that one `kubectl apply` installs it.
//!
//! What is YAML by nature is written as YAML, beside this file; the CustomResourceDefinitions are generated. Absent: what the
//! operator makes itself, because it needs its certificate or the CRDs first (webhook configurations, queues).

use std::path::PathBuf;
use std::process::ExitCode;

use super::{crds, output};
use crate::components::fractions::IMAGE;
use crate::components::grouping::readable::OWNERS;

/// The image that the manifests name where no other is asked for.
pub const DEFAULT_IMAGE: &str = IMAGE;

/// Arguments of `unikai manifests`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write files into this folder instead of printing them
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,

    /// The operator's image
    #[arg(long, value_name = "IMAGE", default_value = DEFAULT_IMAGE)]
    image: String,
}

/// Runs the subcommand.
///
/// # Errors
/// When the files cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    output::emit(&files(&args.image), args.dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The files of `manifests/`: names and contents, in the order of their names, which is the order to apply them in.
pub fn files(image: &str) -> Vec<(String, String)> {
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
        file(
            "30-rbac.yaml",
            &include_str!("manifests/rbac.yaml").replace("${OWNERS}", &owners()),
        ),
        file(
            "40-operator.yaml",
            &include_str!("manifests/operator.yaml").replace("${IMAGE}", &quoted(image)),
        ),
    ]);
    files
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

/// A text as YAML, in quotes if it needs them.
fn quoted(text: &str) -> String {
    serde_yaml_ng::to_string(text)
        .expect("a text is YAML")
        .trim_end()
        .to_owned()
}
