//! `unikai simulate`: what the scheduler would do with a cluster and a stream of jobs, on virtual time.

mod charts;
mod shares;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use jiff::SignedDuration;

use super::output::Format;
use super::progress::ProgressLine;
use crate::api::duration;
use crate::cli::output::say;
use crate::simulate::{Scenario, jobs, openb, run as simulate};

/// Arguments of `unikai simulate`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,

    /// Nodes, queues, workloads and the spec of a SchedulingShard, as YAML
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,

    /// Nodes of the openb trace (`sn, cpu_milli, memory_mib, gpu, model`), in addition to those of the scenario
    #[arg(long, value_name = "CSV")]
    openb_nodes: Option<PathBuf>,

    /// Pods of the openb trace; each is a job
    #[arg(long, value_name = "CSV")]
    openb_pods: Option<PathBuf>,

    /// Table of jobs: the output of `sacct --parsable2`, or tables like those of Philly and Helios
    #[arg(long, value_name = "CSV")]
    jobs: Option<PathBuf>,

    /// Stop at this virtual time, such as 7d [default: when all jobs have ended]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_extended)]
    until: Option<SignedDuration>,

    /// Output format: text, or JSON with all figures over time
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,

    /// Draw charts into this folder, as SVG and PNG; the image's binary draws SVG only
    #[arg(long, value_name = "DIR")]
    charts: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  unikai simulate docs/examples/two-teams.yaml --charts charts
  unikai simulate --openb-nodes openb_node_list_gpu_node.csv --openb-pods openb_pod_list_default.csv";

/// What else is simulated.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// Divide resources among queues, and print each queue's fair share
    Shares(shares::Args),
}

/// Runs the subcommand.
///
/// # Errors
/// When a file cannot be read or written, or makes no sense, or standard output is gone.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(What::Shares(args)) = args.what {
        return shares::run(&args);
    }
    ensure!(
        args.scenario.is_some() || args.openb_nodes.is_some(),
        "there are no nodes: name a SCENARIO, or nodes of a trace with --openb-nodes"
    );
    let mut scenario = read(args.scenario.as_deref(), Scenario::read)?.unwrap_or_default();
    if let Some(until) = args.until {
        scenario.until = Some(i64::try_from(until.as_millis()).unwrap_or(i64::MAX).max(0));
    }
    let machines = read(args.openb_nodes.as_deref(), openb::nodes)?.unwrap_or_default();
    let mut more = read(args.openb_pods.as_deref(), openb::pods)?.unwrap_or_default();
    more.extend(read(args.jobs.as_deref(), jobs::read)?.unwrap_or_default());
    let mut line = ProgressLine::new("jobs have ended");
    let report = simulate(&scenario, machines, more, &mut |ended, of| line.show(ended, of))?;
    drop(line);
    match args.output {
        Format::Json => say!("{}", serde_json::to_string(&report)?),
        Format::Table => say!("{}", text::table(&report).trim_end()),
    }
    if let Some(folder) = &args.charts {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        charts::draw(&report, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read<T>(path: Option<&Path>, read: impl Fn(&str) -> anyhow::Result<T>) -> anyhow::Result<Option<T>> {
    let Some(path) = path else { return Ok(None) };
    let name = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(name)?;
    read(&text).with_context(name).map(Some)
}

#[cfg(test)]
mod tests;
