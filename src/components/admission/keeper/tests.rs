//! What is written for the webhooks, against an API server in this process, on virtual time.

mod certificates;
mod configurations;
mod owners;

use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::components::tests::lab::{Lab, MOMENT, read, refuse, seconds};
use crate::components::tests::recorded::Log;
use crate::devcluster::apiserver::{Effect, Match, Times};

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
        self.log.text().matches(words).count()
    }
}
