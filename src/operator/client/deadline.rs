//! Deadlines of requests: until the response begins, until it is complete, and between two chunks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tower::{BoxError, Layer, Service};

/// Timeout of a list: enough for any size, since lists are paged.
const PAGE: Duration = Duration::from_secs(120);
/// Grace after a watch's own timeout.
const WATCH_OVERTIME: Duration = Duration::from_secs(5);

/// A request that was not answered in time. Whether it was carried out is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the API server within {} s", .0.as_secs_f64())]
pub struct TimedOut(pub Duration);

/// The deadlines of a client's requests.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    request: Duration,
    /// Set for a client of watches: their duration.
    watch: Option<Duration>,
}

/// The deadlines of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    /// Until the response begins.
    begin: Duration,
    /// Until it is complete.
    whole: Duration,
    /// Between two chunks of it.
    silence: Option<Duration>,
}

impl Deadlines {
    /// One timeout for complete responses.
    #[must_use]
    pub fn whole(request: Duration) -> Self {
        Self { request, watch: None }
    }

    /// For a client that only lists and watches: a list may take long as long as chunks arrive; a watch must begin at once, and may
    /// be silent until its end.
    #[must_use]
    pub fn of_watches(request: Duration, watch: Duration) -> Self {
        let watch = Some(watch);
        Self { request, watch }
    }

    fn of(self, uri: &Uri) -> Bounds {
        let begin = self.request;
        match self.watch {
            None => Bounds {
                begin,
                whole: begin,
                silence: None,
            },
            Some(watch) if is_watch(uri) => Bounds {
                begin,
                whole: watch + WATCH_OVERTIME,
                silence: None,
            },
            Some(_) => Bounds {
                begin,
                whole: PAGE.max(begin),
                silence: Some(begin),
            },
        }
    }
}

pub(super) fn is_watch(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.split('&').any(|part| part == "watch=true"))
}

/// Puts deadlines around a client's service.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineLayer(pub Deadlines);

impl<S> Layer<S> for DeadlineLayer {
    type Service = DeadlineService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DeadlineService {
            deadlines: self.0,
            inner,
        }
    }
}

/// A service whose requests have deadlines.
#[derive(Clone, Debug)]
pub struct DeadlineService<S> {
    deadlines: Deadlines,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for DeadlineService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = Response<DeadlineBody<R>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let bounds = self.deadlines.of(request.uri());
        let sent = Instant::now();
        let answer = self.inner.call(request);
        async move {
            let answer = timeout_at(sent + bounds.begin, answer).await;
            let answer = answer.map_err(|_| timed_out(bounds.begin))?.map_err(Into::into)?;
            Ok(answer.map(|body| DeadlineBody::new(body, sent, bounds)))
        }
        .boxed()
    }
}

fn timed_out(bound: Duration) -> BoxError {
    metrics::counter!("unikai_api_requests_timed_out_total").increment(1);
    TimedOut(bound).into()
}

/// A response body that fails at its deadline, which closes the connection.
pub struct DeadlineBody<B> {
    inner: B,
    bounds: Bounds,
    complete_by: Instant,
    wake: Pin<Box<Sleep>>,
}

impl<B> fmt::Debug for DeadlineBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadlineBody").finish_non_exhaustive()
    }
}

impl<B> DeadlineBody<B> {
    fn new(inner: B, sent: Instant, bounds: Bounds) -> Self {
        let complete_by = sent + bounds.whole;
        let mut body = Self {
            inner,
            bounds,
            complete_by,
            wake: Box::pin(sleep_until(complete_by)),
        };
        body.heard();
        body
    }

    /// Restarts the deadline for the next chunk.
    fn heard(&mut self) {
        if let Some(silence) = self.bounds.silence {
            self.wake.as_mut().reset(self.complete_by.min(Instant::now() + silence));
        }
    }
}

impl<B> Body for DeadlineBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            self.heard();
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if self.wake.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let bound = match self.bounds.silence {
            Some(silence) if Instant::now() < self.complete_by => silence,
            _ => self.bounds.whole,
        };
        Poll::Ready(Some(Err(timed_out(bound))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A connector with a timeout that includes the handshake.
#[derive(Clone, Debug)]
pub struct ConnectWithin<C> {
    inner: C,
    bound: Duration,
}

impl<C> ConnectWithin<C> {
    /// Connects through `inner`.
    #[must_use]
    pub fn new(inner: C, bound: Duration) -> Self {
        Self { inner, bound }
    }
}

impl<C> Service<Uri> for ConnectWithin<C>
where
    C: Service<Uri>,
    C::Future: Send + 'static,
    C::Response: 'static,
    C::Error: Into<BoxError>,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let (connecting, bound) = (self.inner.call(target), self.bound);
        async move {
            let connected = timeout(bound, connecting).await.map_err(|_| timed_out(bound))?;
            connected.map_err(Into::into)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
