//! Metrics of jobs that have ended.

use tracing::error;

use super::attempt::{Ending, Report};

/// Counts a job by its ending.
pub fn count(kind: &'static str, ending: &Ending) {
    metrics::counter!("unikai_binder_jobs_total", "kind" => kind, "ending" => ending.word()).increment(1);
}

/// Counts a bind that failed, by its cause. Without an answer of the API server the cause is unknown.
pub fn count_failure(report: &Report) {
    if matches!(report.ending, Ending::Failed(_)) && report.tried {
        let cause = if report.cause.is_empty() {
            "unknown"
        } else {
            report.cause
        };
        metrics::counter!("unikai_bind_failures_total", "cause" => cause).increment(1);
    }
}

/// Records how long the request took that bound a pod.
pub fn record_latency(report: &Report) {
    if let (Ending::Done, Some(latency)) = (&report.ending, report.answers.last()) {
        metrics::histogram!("kai_task_bind_latency_milliseconds").record(latency.as_secs_f64() * 1e3);
    }
}

/// Reports a job that panicked as failed.
#[must_use]
pub fn faulty(panic: &str) -> Report {
    metrics::counter!("unikai_object_panics_total", "component" => "binder").increment(1);
    error!(panic, "a job of the binder panicked");
    Report {
        cause: "fault",
        ..Report::new(Ending::Failed(format!("a fault of the scheduler: {panic}")))
    }
}
