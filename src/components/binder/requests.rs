//! Requests of multi-step binds: repeated until the result is known, with limited concurrency.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::claim_turns::ClaimTurns;
use super::open_binds::OpenBinds;
use super::volume_turns::VolumeTurns;
use crate::components::Context;
use crate::components::gpu_operator::GpuOperator;
use crate::components::retry::{Backoff, Failure, LAGGING, asked_pause, failure};
use crate::components::runtime_classes::RuntimeClasses;

/// Timeout of a request.
pub const TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts per request.
const TRIES: u32 = 5;
/// Backoff between attempts: initial and maximum.
pub const AGAIN: Backoff = Backoff {
    first: Duration::from_millis(50),
    longest: Duration::from_secs(1),
};
/// Number of conflicts after which a conflict is final.
const CONFLICTS: u32 = 3;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    /// What it means.
    pub failure: Failure,
    /// The server's message.
    pub why: String,
}

/// Sends requests.
#[derive(Clone)]
pub struct Caller {
    /// Clients and settings.
    pub context: Context,
    /// How GPUs are named to containers.
    pub gpu_operator: Arc<GpuOperator>,
    /// Which runtime classes there are.
    pub runtime_classes: Arc<RuntimeClasses>,
    /// Turns of writing resource claims.
    pub claim_turns: Arc<ClaimTurns>,
    /// Open binds that wait for volume claims, by namespace and name of the claim.
    pub open_claims: Arc<OpenBinds>,
    /// Turns of writing volume claims.
    pub volume_turns: Arc<VolumeTurns>,
    turns: Arc<Semaphore>,
}

impl Caller {
    /// With a limit on concurrent requests.
    #[must_use]
    pub fn new(context: Context, at_once: usize) -> Self {
        Self {
            gpu_operator: Arc::new(GpuOperator::new(context.reads.clone())),
            runtime_classes: Arc::new(RuntimeClasses::new(context.reads.clone())),
            context,
            claim_turns: Arc::default(),
            open_claims: Arc::default(),
            volume_turns: Arc::default(),
            turns: Arc::new(Semaphore::new(at_once)),
        }
    }

    /// The same, for orders of one term of leadership; once it is over, every request is refused.
    #[must_use]
    pub fn of_term(&self, term: u64) -> Self {
        Self {
            context: self.context.of_term(term),
            ..self.clone()
        }
    }

    /// Sends an idempotent request, repeated while its result is unknown. A conflict with its own earlier attempt
    /// (409 to a creation, 404 to a deletion) is left to the caller.
    ///
    /// # Errors
    /// The final error.
    pub async fn call<T, F>(&self, what: &str, mut request: impl FnMut() -> F) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        for tries in 1.. {
            let turn = self.turns.acquire().await;
            let sent = Instant::now();
            let mut asking = pin!(timeout(TIMEOUT, request()));
            let answer = match timeout(LAGGING, &mut asking).await {
                Ok(answer) => answer,
                Err(_lagging) => {
                    drop(turn);
                    asking.await
                }
            };
            let (error, pause) = match answer {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => {
                    let why = error.to_string();
                    (
                        RequestError {
                            failure: failure(&error),
                            why,
                        },
                        asked_pause(&error),
                    )
                }
                Err(_) => (
                    RequestError {
                        failure: Failure::Unknown,
                        why: format!("no answer after {} s", sent.elapsed().as_secs()),
                    },
                    None,
                ),
            };
            debug!(what, error = error.why, tries, "request failed");
            let again = matches!(error.failure, Failure::Busy | Failure::Unknown);
            if !again || tries >= TRIES || !self.context.is_leading() {
                return Err(error);
            }
            sleep(pause.unwrap_or_else(|| AGAIN.wait(tries))).await;
        }
        unreachable!("the loop ends by returning")
    }

    /// Sends a deletion with the object's uid. 404 counts as success; and so does a lasting conflict, which means that another
    /// object has the name now.
    ///
    /// # Errors
    /// If the object may still exist.
    pub async fn delete<T, F>(&self, what: &str, mut request: impl FnMut() -> F) -> Result<(), RequestError>
    where
        F: Future<Output = Result<T, kube::Error>>,
    {
        for _ in 0..CONFLICTS {
            match self.call(what, &mut request).await {
                Ok(_) => return Ok(()),
                Err(error) => match error.failure {
                    Failure::Gone => return Ok(()),
                    Failure::Conflict => {}
                    Failure::Busy | Failure::Unknown | Failure::Refused => return Err(error),
                },
            }
        }
        Ok(())
    }
}
