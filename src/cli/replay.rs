//! `unikai replay`: prints what the scheduler decides for a snapshot of a cluster, in one cycle.

mod explain;
mod render;
mod snapshot;

use std::io::Write;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Instant;

use jiff::Timestamp;

use super::output::Format;
use crate::engine::Engine;
use crate::engine::decision::{Decisions, QueueStanding};
use crate::engine::input::{Counts, Event, Time};
use crate::mirror::claims::allocation::Given;
use crate::mirror::{Mirror, PackedChange, PackedObject};
use snapshot::Snapshot;

/// Arguments of `unikai replay`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Snapshots as KAI's scheduler hands them out (`/get-snapshot`): zip files, or the JSON in them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The instant to decide at, as 2026-01-31T12:00:00Z; else the one that the file names, else this moment
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,

    /// Also print, for each pod group that waits, what holds it up at each level: its queues, the nodes, the domains of a topology
    #[arg(long)]
    explain: bool,

    /// How to print the decisions: for people, or one line of JSON per file
    #[arg(short, long, value_enum, default_value_t = Format::Table)]
    output: Format,
}

/// How many changes are read in one go.
const BATCH: usize = 64;
/// How many batches may wait for the engine.
const BATCHES: usize = 64;

/// What became of one file.
struct Replayed {
    decisions: Decisions,
    /// For each bind of the decisions, what its claims are given.
    given: Vec<Given>,
    /// For each report of the decisions, where the queues stand; empty unless it is to be explained.
    standings: Vec<Vec<QueueStanding>>,
    /// Engine time in milliseconds, from the model being complete to the decisions being complete.
    cycle_ms: f64,
    /// Milliseconds from the decoded objects to the complete model.
    build_ms: f64,
    /// What could not be used.
    notes: Vec<String>,
}

/// Runs the subcommand. The status is 1 if a file could not be read; the others are decided all the same.
///
/// # Errors
/// When standard output is gone.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let mut status = ExitCode::SUCCESS;
    for file in &args.files {
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

/// What the engine's thread has come to.
struct Decided {
    engine: Engine,
    decisions: Decisions,
    /// When the model was complete.
    built: Instant,
    /// When the decisions were.
    done: Instant,
}

fn replay(file: &Path, now: Option<Timestamp>, explain: bool) -> anyhow::Result<Replayed> {
    let (begin, begun) = mpsc::sync_channel(1);
    let (sender, batches) = mpsc::sync_channel(BATCHES);
    // Before there is anything to do: making a thread, and ways to it, is no part of the model. It ends if nothing comes.
    let deciding = thread::spawn(move || decide(&begun, &batches));
    let Snapshot {
        settings,
        policy,
        changes,
        now: file_now,
        mut notes,
    } = snapshot::read(file)?;
    let now = Time(now.or(file_now).unwrap_or_else(Timestamp::now).as_millisecond());
    let counts = count(&changes);
    let start = Instant::now();
    // Nobody takes these only if the engine has panicked; that is told below.
    let _ = begin.send((Engine::new(policy), counts, now));
    let mut mirror = Mirror::new(settings);
    mirror.reserve(&counts);
    // The objects stay, as in the operator's stores: taking them apart is no part of the model.
    for batch in changes.chunks(BATCH) {
        let mut events = Vec::with_capacity(batch.len());
        for change in batch {
            let output = mirror.apply(change);
            notes.extend(output.rejections.iter().map(ToString::to_string));
            events.extend(output.events);
        }
        let _ = sender.send(events);
    }
    drop(sender);
    let decided = deciding.join().unwrap_or_else(|panic| resume_unwind(panic));
    let Decided {
        engine,
        decisions,
        built,
        done,
    } = decided.expect("the engine was handed over");
    let reports = decisions.unschedulable.iter().filter(|_| explain);
    let standings = reports.map(|report| engine.standing(&report.group)).collect();
    let given = decisions.bind.iter().map(|bind| mirror.given(bind)).collect();
    Ok(Replayed {
        decisions,
        given,
        standings,
        cycle_ms: (done - built).as_secs_f64() * 1e3,
        build_ms: (built - start).as_secs_f64() * 1e3,
        notes,
    })
}

/// The engine's thread, as in the operator: takes in what has been read while more is read, and decides when all is there. `None` if it is handed no engine.
fn decide(begun: &Receiver<(Engine, Counts, Time)>, batches: &Receiver<Vec<Event>>) -> Option<Decided> {
    let (mut engine, counts, now) = begun.recv().ok()?;
    engine.reserve(&counts);
    batches.iter().flatten().for_each(|event| engine.apply(event, now));
    let built = Instant::now();
    let decisions = engine.cycle(now);
    Some(Decided {
        engine,
        decisions,
        built,
        done: Instant::now(),
    })
}

fn count(changes: &[PackedChange]) -> Counts {
    let mut counts = Counts::default();
    for change in changes {
        match change {
            PackedChange::Applied(PackedObject::Node(_)) => counts.nodes += 1,
            PackedChange::Applied(PackedObject::PodGroup(_)) => counts.groups += 1,
            PackedChange::Applied(PackedObject::Pod(_)) => counts.pods += 1,
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests;
