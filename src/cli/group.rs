//! `unikai group`: prints the pod groups of pods and their owners, and which rule created each. A dry run on files, without a cluster.

mod render;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::output::Format;
use crate::workloads::files::Files;
use crate::workloads::read::read;

/// Arguments of `unikai group`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Manifests of workloads and pods, as YAML or JSON; or scenarios of the form {config, objects, pods}
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Group as KAI does: ignore annotations, versions and wrapper kinds that KAI does not support
    #[arg(long)]
    as_kai: bool,

    /// Output format: text, or one line of JSON per file
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

const EXAMPLES: &str = "\
Examples:
  unikai group job.yaml                    the group that the workload's pods would make; pods that are not in the file
                                           are made up, one or more for each part of the workload, unless they depend
                                           on objects that its operator creates first (as those of a RayJob)
  kubectl get rayclusters,pods -n team \\
      -o yaml | unikai group /dev/stdin    the groups of what runs now";

/// Runs the subcommand. The status is 1 if a file could not be read; the others are grouped all the same.
///
/// # Errors
/// When standard output is gone.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut status = ExitCode::SUCCESS;
    for file in &args.files {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).context("cannot be read");
        let grouped = text.and_then(|text| read(&text, args.as_kai)).map(|scenario| {
            let passes = scenario.passes;
            let mut files = Files::new(scenario);
            for _ in 0..passes {
                files.group_all();
            }
            files
        });
        if grouped.is_err() {
            status = ExitCode::FAILURE;
        }
        match args.output {
            Format::Json => writeln!(out, "{}", render::json(&name, &grouped))?,
            Format::Table => write!(out, "{}", render::table(&name, &grouped))?,
        }
        out.flush()?;
    }
    Ok(status)
}

#[cfg(test)]
mod tests;
