//! Tables of jobs from the accounting of batch systems, one row per job, with named columns: the output of Slurm's `sacct --parsable2`, and tables like
//! those of Philly and Helios, with commas or bars between the columns.

use anyhow::{bail, ensure};
use csv::StringRecord;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::{Columns, cell, number, rows};
use crate::engine::input::Millis;
use crate::simulate::scenario::{Job, PRIORITY, Shape};

const NAME: &[&str] = &["jobid", "job_id", "id", "name", "job_name"];
const QUEUE: &[&str] = &["account", "vc", "queue", "group", "user"];
const SUBMITTED: &[&str] = &["submit", "submit_time", "submitted_time", "arrival_time"];
const BEGUN: &[&str] = &["start", "start_time"];
const ENDED: &[&str] = &["end", "end_time", "finished_time"];
const SECONDS: &[&str] = &["elapsedraw", "duration", "run_time", "runtime"];
const NODES: &[&str] = &["nnodes", "node_num", "num_nodes", "allocnodes"];
const GPUS: &[&str] = &["gpu_num", "num_gpus", "gpus", "num_gpu", "used_gpus"];
const CPUS: &[&str] = &["ncpus", "cpu_num", "num_cpus", "alloccpus"];
/// Limit on the nodes of a job, each of which is a pod.
const PODS_MAX: f64 = 1e6;
const TRACKED: &[&str] = &["alloctres", "reqtres"];

/// Reads a table of jobs. Jobs that never ran and steps of jobs are left out. The first job arrives at 0.
///
/// # Errors
/// If it is not such a table.
pub fn read(text: &str) -> anyhow::Result<Vec<Job>> {
    let header = text.lines().next().unwrap_or_default();
    let delimiter = if header.contains('|') { b'|' } else { b',' };
    let mut jobs = rows(text, delimiter, job)?;
    let first = jobs.iter().map(|job| job.arrives).min().unwrap_or_default();
    jobs.iter_mut()
        .for_each(|job| job.arrives = job.arrives.saturating_sub(first));
    Ok(jobs)
}

fn job(columns: &Columns, row: &StringRecord) -> anyhow::Result<Option<Job>> {
    let name = cell(row, Some(columns.one(NAME)?));
    let text = |names: &[&str]| cell(row, columns.any(names));
    if name.is_empty() || name.contains('.') {
        return Ok(None);
    }
    let runs = match text(SECONDS) {
        "" => match (instant(text(BEGUN)), instant(text(ENDED))) {
            (Some(begun), Some(ended)) => ended.saturating_sub(begun),
            _ => return Ok(None),
        },
        seconds => (number(seconds)? * 1e3) as Millis,
    };
    if runs <= 0 {
        return Ok(None);
    }
    let Some(arrives) = instant(cell(row, Some(columns.one(SUBMITTED)?))) else {
        bail!("{:?} is not a time", text(SUBMITTED));
    };
    let count = |names: &[&str], tracked: &str| -> anyhow::Result<f64> {
        match text(names) {
            "" => Ok(trackable(text(TRACKED), tracked).unwrap_or_default()),
            found => number(found),
        }
    };
    let pods = count(NODES, "node")?.max(1.0);
    ensure!(pods <= PODS_MAX, "{pods} nodes are more than {PODS_MAX}");
    let pods = pods as usize;
    let each = |all: f64| ((all * 1e3 / pods as f64).round() as i64).max(0);
    let gpu = each(count(GPUS, "gres/gpu")?);
    let queue = text(QUEUE).to_ascii_lowercase();
    Ok(Some(Job {
        name: name.to_owned(),
        queue: if queue.is_empty() { "default".to_owned() } else { queue },
        arrives,
        pods,
        min: pods,
        shape: Shape {
            cpu: each(count(CPUS, "cpu")?),
            memory: trackable(text(TRACKED), "mem").map_or(0, |memory| memory as i64 / pods as i64),
            // More than one GPU is rounded up to whole GPUs.
            gpu: if gpu > 1_000 {
                (gpu.saturating_add(999)) / 1_000 * 1_000
            } else {
                gpu
            },
            models: Vec::new(),
        },
        priority: PRIORITY,
        runs: Some(runs),
        checkpoint: None,
    }))
}

/// A value in Slurm's list of a job's resources, such as `cpu=4,mem=16G,node=1,gres/gpu=2`.
fn trackable(list: &str, name: &str) -> Option<f64> {
    let value = list.split(',').find_map(|entry| {
        let (key, value) = entry.split_once('=')?;
        (key == name).then_some(value)
    })?;
    let digits = value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let factor = match value.strip_prefix(digits).unwrap_or_default() {
        "K" => 1024.0,
        "M" => 1024.0 * 1024.0,
        "G" => 1024.0 * 1024.0 * 1024.0,
        "T" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    };
    let amount = digits.parse::<f64>().ok().filter(|amount| *amount >= 0.0);
    Some(amount? * factor)
}

/// Seconds, or a date and time; UTC unless it has another zone.
fn instant(text: &str) -> Option<Millis> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some((seconds * 1e3) as Millis);
    }
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return Some(timestamp.as_millisecond());
    }
    let civil: DateTime = text.replacen(' ', "T", 1).parse().ok()?;
    Some(civil.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}
