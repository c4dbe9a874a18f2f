//! Checks whether the Prometheus server that Config names answers, at the interval in Config. The leader writes the result into a condition.

use std::time::Duration;

use anyhow::anyhow;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::rounds::InForce;
use crate::components::usage::Endpoint;
use crate::config::Probe;

/// Limit on the characters of a reported error.
const REPORTED_MAX: usize = 300;

/// Whether the server answers, or why not; `None`: Config names none, or it has not been checked yet.
pub type Answers = Option<Result<(), String>>;

/// Checks until the channel of the configuration is closed.
///
/// # Errors
/// None; the signature is that of a task of the operator.
pub async fn run(mut in_force: watch::Receiver<InForce>, results: watch::Sender<Answers>) -> anyhow::Result<()> {
    loop {
        let probe = wanted(&in_force.borrow_and_update());
        tokio::select! {
            changed = in_force.wait_for(|now| wanted(now) != probe) => if changed.is_err() {
                return Ok(());
            },
            () = keep_checking(probe.as_ref(), &results) => {}
        }
    }
}

fn wanted(in_force: &InForce) -> Option<Probe> {
    in_force.as_ref().and_then(|(_, resolved)| resolved.probe.clone())
}

async fn keep_checking(probe: Option<&Probe>, results: &watch::Sender<Answers>) {
    publish(results, None);
    let Some(probe) = probe else {
        return std::future::pending().await;
    };
    loop {
        let answers = check(probe).await;
        let answers = answers.map_err(|error| format!("{error:#}").chars().take(REPORTED_MAX).collect());
        publish(results, Some(answers));
        sleep(probe.interval).await;
    }
}

fn publish(results: &watch::Sender<Answers>, answers: Answers) {
    results.send_if_modified(|before| {
        let changed = *before != answers;
        *before = answers;
        changed
    });
}

async fn check(probe: &Probe) -> anyhow::Result<()> {
    let server = Endpoint::new(&probe.url)?;
    let mut retries = 0;
    loop {
        let answer = timeout(probe.timeout, server.ping()).await;
        let answer = answer.unwrap_or_else(|_| Err(anyhow!("no answer within {:?}", probe.timeout)));
        if answer.is_ok() || retries >= probe.retries {
            return answer;
        }
        retries += 1;
        sleep(Duration::from_secs(retries.into())).await;
    }
}
