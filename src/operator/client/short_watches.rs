//! A pause before a watch whose last one ended at once.
//!
//! The client library begins the next watch as soon as one has ended, and pauses only after an error. If watches end as soon as they begin, for example by a
//! proxy, it would begin them without end.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, Layer, Service};

use super::deadline::is_watch;
use crate::components::watches::RETRY;

/// A watch that ends sooner, and has shown nothing, is followed by a pause.
const SHORT: Duration = Duration::from_secs(1);

/// The watches of a client that ended at once. As a layer, it pauses before the next ones. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ShortWatches {
    ended: Arc<Mutex<HashMap<String, Ended>>>,
}

/// The last of some watches in a row that ended at once.
#[derive(Clone, Copy, Debug)]
struct Ended {
    in_a_row: u32,
    at: Instant,
}

impl ShortWatches {
    /// When the next watch may begin, if not at once.
    fn next_at(&self, watch: &str) -> Option<Instant> {
        let ended = self.lock().get(watch).copied()?;
        Some(ended.at + RETRY.wait(ended.in_a_row))
    }

    /// A watch has ended at once, or it works.
    fn saw(&self, watch: String, ended_at_once: bool) {
        let mut ended = self.lock();
        if !ended_at_once {
            ended.remove(&watch);
            return;
        }
        let before = ended.get(&watch).map_or(0, |ended| ended.in_a_row);
        let (in_a_row, at) = (before.saturating_add(1), Instant::now());
        ended.insert(watch, Ended { in_a_row, at });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Ended>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is watched, from whatever version; `None` for a request that is no watch.
fn watched(uri: &Uri) -> Option<String> {
    let query = uri.query().filter(|_| is_watch(uri))?;
    let parameters = query.split('&').filter(|part| !part.starts_with("resourceVersion="));
    let parts: Vec<&str> = [uri.path()].into_iter().chain(parameters).collect();
    Some(parts.join("&"))
}

impl<S> Layer<S> for ShortWatches {
    type Service = PausingService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PausingService {
            watches: self.clone(),
            inner,
        }
    }
}

/// See [`ShortWatches`].
#[derive(Clone, Debug)]
pub struct PausingService<S> {
    watches: ShortWatches,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for PausingService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: 'static,
{
    type Response = Response<WatchBody<R>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Some(name) = watched(request.uri()) else {
            let plain = |inner| WatchBody { inner, watch: None };
            let answer = self.inner.call(request);
            return answer
                .map(move |answer| answer.map(|answer| answer.map(plain)).map_err(Into::into))
                .boxed();
        };
        // The clone that was polled ready is used; a fresh clone takes its place.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let watches = self.watches.clone();
        async move {
            if let Some(at) = watches.next_at(&name) {
                sleep_until(at).await;
            }
            let began = Instant::now();
            let answer = inner.call(request).await.map_err(Into::into)?;
            // One that is refused is an error.
            let watch = answer.status().is_success().then_some(Watch { name, began, watches });
            Ok(answer.map(|inner| WatchBody { inner, watch }))
        }
        .boxed()
    }
}

/// A watch that has shown nothing yet.
struct Watch {
    name: String,
    began: Instant,
    watches: ShortWatches,
}

/// The body of a response, which may be a watch.
pub struct WatchBody<B> {
    inner: B,
    watch: Option<Watch>,
}

impl<B> fmt::Debug for WatchBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchBody").finish_non_exhaustive()
    }
}

impl<B> Body for WatchBody<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let watch = if polled.is_ready() { self.watch.take() } else { None };
        let Some(Watch { name, began, watches }) = watch else {
            return polled;
        };
        match &polled {
            Poll::Ready(Some(Ok(_))) => watches.saw(name, false),
            Poll::Ready(None) => watches.saw(name, began.elapsed() < SHORT),
            // There is a pause after an error.
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
