//! The report for people.

use std::fmt::Write;

use crate::cli::show::{add_line, escaped};
use crate::simulate::{Report, Times};

/// Queues in the list; a trace can have thousands.
const QUEUES: usize = 40;

/// The report as tables.
pub fn table(report: &Report) -> String {
    let mut text = String::new();
    let jobs = report.jobs;
    let _ = writeln!(
        text,
        "simulated {}: {} jobs began, {} are done, {} never began",
        span(report.seconds),
        jobs.started,
        jobs.done,
        jobs.waiting
    );
    let _ = writeln!(
        text,
        "GPUs: {}, allocated {:.1} %, of the free ones {:.1} % are on nodes where a job of the mix does not fit",
        report.gpus,
        report.allocated_share * 100.0,
        report.fragmentation * 100.0
    );
    let evictions: Vec<String> = report
        .evictions
        .iter()
        .map(|(action, count)| format!("{action} {count}"))
        .collect();
    let evictions = if evictions.is_empty() {
        "none".to_owned()
    } else {
        evictions.join(", ")
    };
    let _ = writeln!(
        text,
        "evictions: {evictions}; work lost: {:.1} GPU-hours",
        report.lost_gpu_hours
    );
    for problem in &report.problems {
        add_line(&mut text, &format!("not usable: {problem}"));
    }
    for (job, why) in &report.reasons {
        add_line(
            &mut text,
            &format!("waits: {job}: {}", why.lines().next().unwrap_or_default()),
        );
    }
    times(&mut text, "wait until the start", &report.wait);
    times(&mut text, "from submission to completion", &report.completion);
    let _ = writeln!(
        text,
        "\n{:24} {:>12} {:>12} {:>12}",
        "queue (GPUs)", "allocated", "fair share", "distance"
    );
    for queue in report.queues.iter().take(QUEUES) {
        let _ = writeln!(
            text,
            "{:24} {:>12.2} {:>12.2} {:>12.2}",
            escaped(&queue.name),
            queue.mean_allocated,
            queue.mean_fair_share,
            queue.mean_distance
        );
    }
    if report.queues.len() > QUEUES {
        let _ = writeln!(text, "and {} more queues", report.queues.len() - QUEUES);
    }
    text
}

fn times(text: &mut String, title: &str, all: &[Times]) {
    if all.is_empty() {
        return;
    }
    let title = format!("{title}, by GPUs");
    let _ = writeln!(
        text,
        "\n{title:32} {:>8} {:>10} {:>10} {:>10} {:>10}",
        "jobs", "mean", "p50", "p90", "p99"
    );
    for times in all {
        let [mean, p50, p90, p99] = [times.mean, times.p50, times.p90, times.p99].map(span);
        let _ = writeln!(
            text,
            "{:32} {:>8} {mean:>10} {p50:>10} {p90:>10} {p99:>10}",
            times.size, times.jobs
        );
    }
}

/// Seconds in the largest units that they fill.
fn span(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.1}s"),
        120.0..7_200.0 => format!("{:.1}m", seconds / 60.0),
        7_200.0..172_800.0 => format!("{:.1}h", seconds / 3_600.0),
        _ => format!("{:.1}d", seconds / 86_400.0),
    }
}
