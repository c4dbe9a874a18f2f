//! Every task of the process, by name. A task that panics, or ends before shutdown, ends the process: a
//! replica that leads without a binder would keep others from leading.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::anyhow;
use futures::FutureExt;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tracing::{Instrument, info_span};

use crate::components::panics;

/// The running tasks.
#[derive(Debug, Default)]
pub struct Supervisor {
    tasks: JoinSet<Ended>,
    running: Vec<(&'static str, AbortHandle)>,
}

/// A task that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub name: &'static str,
    /// How it ended.
    pub outcome: anyhow::Result<()>,
}

impl Ended {
    /// The error with which the process ends, because this task ended before shutdown.
    #[must_use]
    pub fn into_error(self) -> anyhow::Error {
        let name = self.name;
        match self.outcome {
            Ok(()) => anyhow!("{name} ended, and was to go on"),
            Err(error) => error.context(format!("{name} failed")),
        }
    }
}

impl Supervisor {
    /// Starts a task.
    pub fn start<E>(&mut self, name: &'static str, task: impl Future<Output = Result<(), E>> + Send + 'static)
    where
        E: Into<anyhow::Error>,
    {
        let watched = async move {
            let outcome = match AssertUnwindSafe(task).catch_unwind().await {
                Ok(outcome) => outcome.map_err(Into::into),
                Err(panic) => Err(anyhow!("panicked: {}", panics::text(&*panic))),
            };
            Ended { name, outcome }
        };
        let handle = self.tasks.spawn(watched.instrument(info_span!("component", name)));
        self.running.push((name, handle));
    }

    /// Adds a task that runs already.
    pub fn adopt<E>(&mut self, name: &'static str, task: JoinHandle<Result<(), E>>)
    where
        E: Into<anyhow::Error> + Send + 'static,
    {
        self.running.push((name, task.abort_handle()));
        self.tasks.spawn(async move {
            let outcome = match task.await {
                Ok(outcome) => outcome.map_err(Into::into),
                Err(error) if error.is_panic() => Err(anyhow!("panicked: {}", panics::text(&*error.into_panic()))),
                Err(error) => Err(error.into()),
            };
            Ended { name, outcome }
        });
    }

    /// The next task that ends; pending while none does.
    pub async fn next_end(&mut self) -> Ended {
        match self.tasks.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => Ended {
                name: "a task",
                outcome: Err(error.into()),
            },
            None => std::future::pending().await,
        }
    }

    /// Waits until all tasks have ended, or for a timeout; returns those that had not ended, and errors of the others.
    pub async fn drain(&mut self, max_wait: Duration) -> Vec<Ended> {
        let mut failed = Vec::new();
        let all = async {
            while let Some(ended) = self.tasks.join_next().await {
                match ended {
                    Ok(ended) if ended.outcome.is_ok() => {}
                    Ok(ended) => failed.push(ended),
                    Err(error) => failed.push(Ended {
                        name: "a task",
                        outcome: Err(error.into()),
                    }),
                }
            }
        };
        if tokio::time::timeout(max_wait, all).await.is_err() {
            let late = self.running.iter().filter(|(_, handle)| !handle.is_finished());
            failed.extend(late.map(|(name, _)| Ended {
                name,
                outcome: Err(anyhow!("did not finish within {max_wait:?}")),
            }));
        }
        failed
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        for (_, handle) in &self.running {
            handle.abort();
        }
    }
}

#[cfg(test)]
mod tests;
