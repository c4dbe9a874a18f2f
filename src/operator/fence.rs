//! The fence: a process that does not hold the lease writes nothing.
//!
//! A [`Fence`] is for one term of leadership, and has the time until which the Lease is certainly ours. Once closed it stays closed, so that
//! what was decided in one term cannot leave in the next. [`FenceLayer`] refuses a mutating request unless the fence is open,
//! each time the request is driven on and not only when it is made; [`stream`] sees to it that what a process had under way
//! when it was stopped does not leave when it wakes up. The clock is the monotonic one, which goes on while the process is
//! stopped. What has reached the network cannot be called back: that is what the time between the end of the fence and the
//! end of the lease is for. A holder that releases the lease early waits for [`Fence::settled`] first.

pub mod stream;

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http::{Method, Request};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until, timeout};
use tower::{BoxError, Layer, Service};

/// Until when this process may write in a term. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    state: Arc<Mutex<State>>,
}

/// How often [`Fence::settled`] looks for answers.
const LOOK: Duration = Duration::from_millis(20);
/// How long the answer to a write is waited for that nobody else waits for. At least as long as a Lease is kept for it.
const FOLLOWED: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct State {
    term: Term,
    /// Writes without an answer yet.
    under_way: usize,
    /// When the last write left that got no answer.
    unanswered: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Term {
    #[default]
    NotYet,
    OpenUntil(Instant),
    Over,
}

impl Fence {
    /// A fence that starts closed.
    #[must_use]
    pub fn closed() -> Self {
        Self::default()
    }

    /// Opens it until the instant, or keeps it open until then, unless the term is over.
    pub fn extend(&self, until: Instant) {
        let mut state = self.lock();
        if !matches!(state.term, Term::Over) {
            state.term = Term::OpenUntil(until);
        }
    }

    /// Closes it at once, and for good.
    pub fn close(&self) {
        self.lock().term = Term::Over;
    }

    /// Whether a write may leave at the instant.
    #[must_use]
    pub fn is_open(&self, now: Instant) -> bool {
        matches!(self.lock().term, Term::OpenUntil(until) if now < until)
    }

    /// Waits until each write has been answered, or can no longer arrive: a write without an answer is taken to arrive within `late` after it left.
    /// Call it when no new writes are made; it takes at most `late`.
    pub async fn settled(&self, late: Duration) {
        let end = Instant::now() + late;
        loop {
            let (under_way, unanswered) = {
                let state = self.lock();
                (state.under_way, state.unanswered)
            };
            let now = Instant::now();
            let until = match unanswered.map(|left| left + late) {
                _ if under_way > 0 => end.min(now + LOOK),
                Some(until) => until.min(end),
                None => return,
            };
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Error of a write that was not sent because the fence was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not hold the lease")]
pub struct Fenced;

/// A write on its way.
struct UnderWay {
    fence: Fence,
    left: Instant,
    answered: bool,
}

impl UnderWay {
    fn new(fence: Fence) -> Self {
        fence.lock().under_way += 1;
        Self {
            fence,
            left: Instant::now(),
            answered: false,
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.fence.lock();
        state.under_way -= 1;
        if !self.answered {
            state.unanswered = state.unanswered.max(Some(self.left));
        }
    }
}

/// A request that is sent. If nobody waits for the answer to a write any more while the fence is open, as at shutdown, it is still waited for, so that the fence is
/// settled as soon as the write has arrived.
struct Sent<T: Send + 'static> {
    answer: Option<BoxFuture<'static, Result<T, BoxError>>>,
    under_way: Option<UnderWay>,
}

impl<T: Send + 'static> Sent<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, BoxError>> {
        let Some(answer) = &mut self.answer else {
            return Poll::Pending;
        };
        let polled = answer.as_mut().poll(cx);
        if let Poll::Ready(answer) = &polled {
            self.answer = None;
            if let (Some(under_way), Ok(_)) = (&mut self.under_way, answer) {
                under_way.answered = true;
            }
        }
        polled
    }
}

impl<T: Send + 'static> Drop for Sent<T> {
    fn drop(&mut self) {
        let (Some(answer), Some(under_way)) = (self.answer.take(), self.under_way.take()) else {
            return;
        };
        if !under_way.fence.is_open(Instant::now()) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            // It is moved into this task as a whole.
            let mut under_way = under_way;
            under_way.answered = matches!(timeout(FOLLOWED, answer).await, Ok(Ok(_)));
        });
    }
}

/// Puts a fence around a client's service.
#[derive(Clone, Debug)]
pub struct FenceLayer(pub Fence);

impl<S> Layer<S> for FenceLayer {
    type Service = FencedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        FencedService {
            fence: self.0.clone(),
            inner,
        }
    }
}

/// A service whose mutating requests pass a fence.
#[derive(Clone, Debug)]
pub struct FencedService<S> {
    fence: Fence,
    inner: S,
}

impl<S, B> Service<Request<B>> for FencedService<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: Send + 'static,
    S::Error: Into<BoxError> + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mutating = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let fence = self.fence.clone();
        let mut sent = Sent {
            answer: Some(self.inner.call(request).map_err(Into::into).boxed()),
            under_way: None,
        };
        poll_fn(move |cx| {
            if mutating && !fence.is_open(Instant::now()) {
                // It may not have left as a whole, and is not driven on.
                sent.answer = None;
                metrics::counter!("unikai_fenced_writes_total").increment(1);
                return Poll::Ready(Err(Fenced.into()));
            }
            if mutating {
                sent.under_way.get_or_insert_with(|| UnderWay::new(fence.clone()));
            }
            sent.poll(cx)
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests;
