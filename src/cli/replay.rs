//! `unikai replay`: prints what the scheduler decides for a snapshot of a cluster, in one cycle.

mod explain;
mod render;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use jiff::Timestamp;

use super::output::Format;
use super::progress::ProgressLine;
use crate::engine::decision::{Decisions, QueueStanding};
use crate::engine::input::Time;
use crate::mirror::claims::allocation::GivenAllocations;
use crate::scheduler_core::SchedulerCore;
use crate::snapshot::{self, Snapshot};

/// Objects applied between two updates of the progress line.
const PART: usize = 20_000;

/// Arguments of `unikai replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Snapshots from `unikai snapshot` or from KAI's scheduler (`/get-snapshot`): zip files, or the JSON in them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The time of the cycle, such as 2026-01-31T12:00:00Z [default: that of the snapshot, else now]
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,

    /// Also print, for each pod group that waits, the reasons at each level: its queues, the nodes, the domains of a topology
    #[arg(long)]
    explain: bool,

    /// Output format: text, or one line of JSON per file
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// The result of one file.
struct Replayed {
    decisions: Decisions,
    /// For each bind, the allocations of its claims.
    given: Vec<GivenAllocations>,
    /// For each report, the state of the queues; empty unless explanations are requested.
    standings: Vec<Vec<QueueStanding>>,
    /// Engine time in milliseconds, from the model being complete to the decisions being complete.
    cycle_ms: f64,
    /// Milliseconds from the decoded objects to the complete model.
    build_ms: f64,
    /// Objects that could not be used.
    notes: Vec<String>,
}

/// Runs the subcommand. The status is 1 if a file could not be read; the others are decided all the same.
///
/// # Errors
/// When standard output is gone.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut status = ExitCode::SUCCESS;
    let mut progress = ProgressLine::beside_output("snapshots are decided");
    for (done, file) in args.files.iter().enumerate() {
        progress.show(done, args.files.len());
        let name = file.display().to_string();
        let replayed = replay(file, args.now, args.explain);
        if replayed.is_err() {
            status = ExitCode::FAILURE;
        }
        match args.output {
            Format::Json => writeln!(out, "{}", render::json(&name, &replayed))?,
            Format::Table => write!(out, "{}", render::table(&name, &replayed))?,
        }
        out.flush()?;
    }
    Ok(status)
}

fn replay(file: &Path, now: Option<Timestamp>, explain: bool) -> anyhow::Result<Replayed> {
    let Snapshot {
        settings,
        policy,
        changes,
        now: file_now,
        mut notes,
    } = snapshot::read(file)?;
    let now = Time(now.or(file_now).unwrap_or_else(Timestamp::now).as_millisecond());
    let mut core = SchedulerCore::new(settings, policy);
    let start = Instant::now();
    // The objects are kept, as in the operator's stores: dropping them is not part of the measured time.
    let mut line = ProgressLine::new("objects are taken in");
    let mut rejections = Vec::new();
    for (part, some) in changes.chunks(PART).enumerate() {
        line.show(part * PART, changes.len());
        rejections.extend(core.load(some, now));
    }
    drop(line);
    let built = Instant::now();
    let decisions = core.cycle(now, &mut |_| ());
    let done = Instant::now();
    notes.extend(rejections.iter().map(ToString::to_string));
    let reports = decisions.unschedulable.iter().filter(|_| explain);
    let standings = reports.map(|report| core.engine.standing(&report.group)).collect();
    let given = decisions.bind.iter().map(|bind| core.mirror.given(bind)).collect();
    Ok(Replayed {
        decisions,
        given,
        standings,
        cycle_ms: (done - built).as_secs_f64() * 1e3,
        build_ms: (built - start).as_secs_f64() * 1e3,
        notes,
    })
}

#[cfg(test)]
mod tests;
