//! A CPU profile of this process, recorded on request: which functions ran, and who called them, in the format that `go tool pprof` reads.
//!
//! While a profile is recorded, a timer interrupts the process 99 times per second of CPU time, and the stack of the thread that runs is recorded. The signal
//! handler neither allocates nor waits, and unwinds with its own copy of the unwind tables. Stacks are kept in a table of fixed size,
//! beyond it in a temporary file; names of functions are looked up after the recording. One profile is recorded at a time, since the process has one such timer.

mod format;

use std::io::Write;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use rpprof::ProfilerGuardBuilder;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

/// Seconds of a profile without a parameter.
pub const SECONDS: u64 = 30;
/// The most seconds of a profile.
pub const SECONDS_MAX: u64 = 60;
/// Samples per second of CPU time. Not 100, which would coincide with timers that run every ten milliseconds.
const FREQUENCY: i32 = 99;
/// A folder for temporary files in a container without `/tmp`.
const SHARED_MEMORY: &str = "/dev/shm";

/// The turn to record a profile, of the whole process.
static TURN: Semaphore = Semaphore::const_new(1);

/// Records for the seconds that the request names. A request whose client leaves ends the recording.
pub async fn profile(seconds: Option<&str>) -> Response {
    let seconds = seconds.map_or(Ok(SECONDS), str::parse);
    let Some(seconds) = seconds.ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds)) else {
        let why = format!("seconds: not a whole number from 1 to {SECONDS_MAX}\n");
        return (StatusCode::BAD_REQUEST, why).into_response();
    };
    let Ok(turn) = TURN.try_acquire() else {
        return (StatusCode::TOO_MANY_REQUESTS, "another profile is being recorded\n").into_response();
    };
    // Whoever waits for the end of the recording learns from the other end of the channel whether the profile is still wanted.
    let (end, ended) = mpsc::channel();
    let mut recording = spawn_blocking(move || {
        let recorded = record(&ended);
        drop(turn);
        recorded
    });
    let recorded = match timeout(Duration::from_secs(seconds), &mut recording).await {
        Ok(failed) => failed,
        Err(_) => {
            // An error: the recording has ended by itself, and says why.
            let _ = end.send(());
            recording.await
        }
    };
    match recorded.map_err(anyhow::Error::from).flatten() {
        Ok(profile) => {
            let headers = [
                (header::CONTENT_TYPE, "application/octet-stream"),
                (header::CONTENT_DISPOSITION, "attachment; filename=profile.pb.gz"),
            ];
            (headers, profile).into_response()
        }
        Err(error) => {
            warn!(error = format!("{error:#}"), "no CPU profile was recorded");
            (StatusCode::SERVICE_UNAVAILABLE, format!("{error:#}\n")).into_response()
        }
    }
}

/// Records until `ended`, and returns the compressed profile.
fn record(ended: &mpsc::Receiver<()>) -> anyhow::Result<Vec<u8>> {
    use_folder_for_temporary_files()?;
    let guard = ProfilerGuardBuilder::default().frequency(FREQUENCY).build()?;
    ended.recv().context("the client left")?;
    let report = guard.report().build_unresolved()?;
    // Ends the interruptions.
    drop(guard);
    let stacks = report.data.iter().map(|(stack, samples)| format::Stack {
        thread: String::from_utf8_lossy(&stack.thread_name[..stack.thread_name_length]).into_owned(),
        addresses: stack.frames.iter().map(|frame| frame.ip).collect(),
        samples: i64::try_from(*samples).unwrap_or_default(),
    });
    let time = format::Time {
        began: report.timing.start_time,
        lasted: report.timing.duration,
        period: Duration::from_secs(1) / FREQUENCY.unsigned_abs(),
    };
    let profile = format::profile(stacks, &time);
    info!(
        samples = report.total_samples(),
        missed = report.missed_samples,
        stacks = report.unique_stacks(),
        "a CPU profile was recorded"
    );
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    compressed.write_all(&profile.encode_to_vec())?;
    Ok(compressed.finish()?)
}

/// Has temporary files written to where they can be: the image has no folder for them.
fn use_folder_for_temporary_files() -> anyhow::Result<()> {
    let usual = tempfile::env::temp_dir();
    if tempfile::tempfile_in(&usual).is_ok() {
        return Ok(());
    }
    tempfile::tempfile_in(SHARED_MEMORY).with_context(|| {
        let usual = usual.display();
        format!("a profile needs a temporary file, and neither {usual} nor {SHARED_MEMORY} can be written")
    })?;
    // An error: it has been done before.
    let _ = tempfile::env::override_temp_dir(Path::new(SHARED_MEMORY));
    Ok(())
}

#[cfg(test)]
mod tests;
