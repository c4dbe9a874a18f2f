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
use crate::components::tests::recorded::Warnings;
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
