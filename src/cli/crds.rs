//! `unikai crds`: prints the CustomResourceDefinitions, or writes one file each.

use std::path::PathBuf;
use std::process::ExitCode;

use super::output;
use crate::api::crds;

/// Arguments of `unikai crds`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write one file per CustomResourceDefinition into this folder instead of printing them
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Runs the subcommand.
///
/// # Errors
/// When the files cannot be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    output::emit(&files(), args.dir.as_deref())?;
    Ok(ExitCode::SUCCESS)
}

/// The files of `crds/`: names and contents, in the order of their names.
pub fn files() -> Vec<(String, String)> {
    crds::all()
        .iter()
        .map(|crd| {
            (
                format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural),
                crds::to_yaml(crd),
            )
        })
        .collect()
}
