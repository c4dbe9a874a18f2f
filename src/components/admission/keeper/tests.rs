//! What is written for the webhooks, against an API server in this process, on virtual time.

mod certificates;
mod configurations;
mod owners;

use std::io;
use std::sync::{Mutex, PoisonError};

use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::components::tests::lab::{Lab, read, refuse};
use crate::devcluster::apiserver::{Effect, Match, Times};

/// Longer than requests take, shorter than any wait.
const MOMENT: Duration = Duration::from_millis(10);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn minutes(minutes: u64) -> Duration {
    seconds(60 * minutes)
}

/// A client whose requests fail after ten seconds without an answer, as the operator's do.
fn with_deadline(client: Client) -> Client {
    let service = tower::service_fn(move |request| {
        let client = client.clone();
        async move {
            let answer = tokio::time::timeout(seconds(10), client.send(request)).await;
            answer.map_err(tower::BoxError::from)?.map_err(tower::BoxError::from)
        }
    });
    Client::new(service, "default")
}

/// The warnings of this module on this thread.
struct Warnings {
    log: Log,
    _guard: tracing::subscriber::DefaultGuard,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Warnings {
    fn from_now_on() -> Self {
        let log = Log::default();
        let written = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || written.clone())
            .finish();
        Self {
            log,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// How many there were of these words.
    fn of(&self, words: &str) -> usize {
        let log = self.log.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).matches(words).count()
    }
}
