//! Turns of expensive requests: one runs at a time, with a pause after it that is a multiple of its time, so that however many clients there are they take a
//! bounded part of one CPU, or of the scheduler's thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout};

use super::super::access::refusal;

/// How many requests may wait for their turn or for their answer: of one user, so that others find a place, and in all. The last places are kept for users
/// without one.
const WAITING_OF_USER: usize = 4;
const WAITING: usize = 64;
const KEPT: usize = 16;
/// How the names of service accounts begin. The namespace and the name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// How long a request waits for its turn, and then for its answer.
const LONGEST: Duration = Duration::from_secs(5);

/// The pause after a request.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// As a multiple of the request's time.
    pub times: u32,
    /// The longest one.
    pub at_most: Duration,
}

/// Admits one request at a time, and the next only after a pause.
pub struct Turns {
    permit: Arc<Semaphore>,
    not_before: Arc<Mutex<Instant>>,
    pause: Pause,
    /// The number of requests with a place, by user. All service accounts of a namespace are one user, as whoever may create one may create many.
    places: Mutex<HashMap<String, usize>>,
}

/// A turn. The pause begins at its end.
struct Turn {
    began: Instant,
    pause: Pause,
    not_before: Arc<Mutex<Instant>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let pause = (self.began.elapsed() * self.pause.times).min(self.pause.at_most);
        *lock(&self.not_before) = Instant::now() + pause;
    }
}

/// The place of a request that waits.
struct Place<'t> {
    turns: &'t Turns,
    user: &'t str,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut places = lock(&self.turns.places);
        if let Some(own) = places.get_mut(self.user) {
            *own -= 1;
            if *own == 0 {
                places.remove(self.user);
            }
        }
    }
}

impl Turns {
    /// Turns with such a pause after each.
    pub fn new(pause: Pause) -> Self {
        Self {
            permit: Arc::new(Semaphore::new(1)),
            not_before: Arc::new(Mutex::new(Instant::now())),
            pause,
            places: Mutex::default(),
        }
    }

    /// Runs the work on a thread of its own; fails if another request is running, or during the pause.
    pub async fn take<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Response> {
        let permit = Arc::clone(&self.permit).try_acquire_owned().map_err(|_| busy())?;
        if Instant::now() < *lock(&self.not_before) {
            return Err(busy());
        }
        let turn = self.begin(permit);
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.map_err(|_panicked| {
            let why = "the scheduler cannot decide about these pods".to_owned();
            refusal(StatusCode::INTERNAL_SERVER_ERROR, why)
        })
    }

    /// Waits for a turn, and runs the work in a task of its own: it goes on if the client gives up, so that its turn lasts until it has ended. Fails if too
    /// many requests wait, or it takes too long.
    pub async fn wait<T: Send + 'static>(
        &self,
        user: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Response> {
        let _place = self.place(user).ok_or_else(busy)?;
        let turn = timeout(LONGEST, self.wait_for_turn()).await.ok().flatten();
        let turn = turn.ok_or_else(busy)?;
        let done = tokio::spawn(async move {
            let done = work.await;
            drop(turn);
            done
        });
        match timeout(LONGEST, done).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_panicked)) => {
                let why = "the scheduler cannot be asked".to_owned();
                Err(refusal(StatusCode::INTERNAL_SERVER_ERROR, why))
            }
            Err(_elapsed) => {
                let why = format!("the scheduler has not answered after {} s", LONGEST.as_secs());
                Err(refusal(StatusCode::SERVICE_UNAVAILABLE, why))
            }
        }
    }

    /// A place for one more request of a user, if there is one.
    fn place<'t>(&'t self, user: &'t str) -> Option<Place<'t>> {
        let mut places = lock(&self.places);
        let user = without_account(user);
        let own = places.get(user).copied().unwrap_or_default();
        let most = if own == 0 { WAITING } else { WAITING - KEPT };
        if own >= WAITING_OF_USER || places.values().sum::<usize>() >= most {
            return None;
        }
        places.insert(user.to_owned(), own + 1);
        Some(Place { turns: self, user })
    }

    /// Requests get their turns in the order in which they came. `None` does not occur: the semaphore stays open.
    async fn wait_for_turn(&self) -> Option<Turn> {
        let permit = Arc::clone(&self.permit).acquire_owned().await.ok()?;
        let not_before = *lock(&self.not_before);
        // Not by the timer if that time has passed, since it would wait for the next millisecond.
        if Instant::now() < not_before {
            sleep_until(not_before).await;
        }
        Some(self.begin(permit))
    }

    fn begin(&self, permit: OwnedSemaphorePermit) -> Turn {
        Turn {
            began: Instant::now(),
            pause: self.pause,
            not_before: Arc::clone(&self.not_before),
            _permit: permit,
        }
    }
}

/// The name of a user, without that of the service account in its namespace.
pub fn without_account(user: &str) -> &str {
    match user.rsplit_once(':') {
        Some((namespace, _)) if namespace.starts_with(SERVICE_ACCOUNT) => namespace,
        _ => user,
    }
}

/// The response to a request that finds no turn.
pub fn busy() -> Response {
    let mut response = refusal(
        StatusCode::TOO_MANY_REQUESTS,
        "another question is being worked on; ask again".to_owned(),
    );
    let after = HeaderValue::from_static("2");
    response.headers_mut().insert(header::RETRY_AFTER, after);
    response
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
