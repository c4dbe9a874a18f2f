//! The connections of a server: limited in number and in idle time. At the limit a new connection replaces another, so that no client can block the API
//! server or the kubelet's probes by holding connections: if many had no request so far (they can be opened without a TLS handshake), the one of these that
//! has been idle the longest, else the one of all. A connection is not replaced while one of its requests is being handled, where the server tells by
//! [`OfConnection::handle`]: the webhook server does, the operator's HTTP server does not.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use http::Request;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tower::Service;

use crate::api::limits;

/// A connection is closed after this time without data. The API server closes its own after 90 s.
pub const IDLE: Duration = Duration::from_secs(120);

/// If more connections than these had no request so far, a new one replaces one of them.
const SILENT_MOST: usize = limits::WEBHOOK_CONNECTIONS / 4;

/// All open connections.
#[derive(Clone)]
pub struct Connections {
    open: Arc<Mutex<Open>>,
    began: Instant,
    max_wait: Duration,
}

#[derive(Default)]
struct Open {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

struct Entry {
    usage: Arc<Usage>,
    close: CancellationToken,
}

/// What a connection is used for.
#[derive(Default)]
struct Usage {
    /// When data was last received or sent, in milliseconds.
    last: AtomicU64,
    /// There was a request.
    asked: AtomicBool,
    /// Number of requests that are being handled.
    handled: AtomicUsize,
}

impl Open {
    /// The connection to close for a new one.
    fn replaceable(&self) -> Option<u64> {
        let is_silent = |entry: &Entry| !entry.usage.asked.load(Ordering::Relaxed);
        let many = self.entries.values().filter(|entry| is_silent(entry)).count() > SILENT_MOST;
        let replaceable = |entry: &Entry| {
            let is_idle = entry.usage.handled.load(Ordering::Relaxed) == 0;
            if many { is_silent(entry) } else { is_idle }
        };
        let entries = self.entries.iter().filter(|(_, entry)| replaceable(entry));
        let oldest = entries.min_by_key(|(_, entry)| entry.usage.last.load(Ordering::Relaxed));
        oldest.map(|(id, _)| *id)
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self::new()
    }
}

impl Connections {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::with(IDLE)
    }

    fn with(max_wait: Duration) -> Self {
        Self {
            open: Arc::default(),
            began: Instant::now(),
            max_wait,
        }
    }

    /// Adds a connection; closes another one at the limit, or the new one if none is replaceable.
    fn enter<S>(&self, stream: S) -> Connection<S> {
        let (close, usage) = (CancellationToken::new(), Arc::new(Usage::default()));
        usage.last.store(self.now(), Ordering::Relaxed);
        let entry = Entry {
            usage: Arc::clone(&usage),
            close: close.clone(),
        };
        let mut open = self.lock();
        if open.entries.len() >= limits::WEBHOOK_CONNECTIONS
            && let Some(other) = open.replaceable()
            && let Some(other) = open.entries.remove(&other)
        {
            other.close.cancel();
        }
        open.next += 1;
        let id = open.next;
        if open.entries.len() < limits::WEBHOOK_CONNECTIONS {
            open.entries.insert(id, entry);
        } else {
            close.cancel();
        }
        drop(open);
        Connection {
            stream,
            id,
            usage,
            closed: Box::pin(close.cancelled_owned()),
            idle: Box::pin(tokio::time::sleep(self.max_wait)),
            connections: self.clone(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Accept<TcpStream, S> for Connections {
    type Stream = Connection<TcpStream>;
    type Service = Asked<S>;
    type Future = Ready<io::Result<(Self::Stream, Self::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(stream.set_nodelay(true).map(|()| {
            let connection = self.enter(stream);
            let usage = OfConnection(Arc::clone(&connection.usage));
            (connection, Asked { service, usage })
        }))
    }
}

/// The connection of a request; an extension of the request.
#[derive(Clone)]
pub struct OfConnection(Arc<Usage>);

impl OfConnection {
    /// The request is being handled from now on, until the result is dropped: its connection is not replaced.
    #[must_use]
    pub fn handle(&self) -> Handled {
        self.0.handled.fetch_add(1, Ordering::Relaxed);
        Handled(Arc::clone(&self.0))
    }
}

/// A request that is being handled.
pub struct Handled(Arc<Usage>);

impl Drop for Handled {
    fn drop(&mut self) {
        self.0.handled.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The service of a connection, which records that there are requests, and adds [`OfConnection`] to them.
#[derive(Clone)]
pub struct Asked<S> {
    service: S,
    usage: OfConnection,
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Asked<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        self.usage.0.asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(self.usage.clone());
        self.service.call(request)
    }
}

/// One connection.
pub struct Connection<S> {
    stream: S,
    id: u64,
    usage: Arc<Usage>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    idle: Pin<Box<Sleep>>,
    connections: Connections,
}

impl<S> Connection<S> {
    /// Bytes were read or written.
    fn used(&mut self) {
        self.usage.last.store(self.connections.now(), Ordering::Relaxed);
        let silent_until = Instant::now() + self.connections.max_wait;
        self.idle.as_mut().reset(silent_until);
    }

    /// Whether it was closed for another one.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Poll::Ready(io::Error::new(io::ErrorKind::ConnectionAborted, "closed for another"));
        }
        let idle = self.idle.as_mut().poll(context);
        idle.map(|()| io::Error::new(io::ErrorKind::TimedOut, "idle for too long"))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            self.used();
        }
        match self.poll_end(context) {
            Poll::Ready(error) => Poll::Ready(Err(error)),
            Poll::Pending => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(error) = self.poll_end(context) {
            return Poll::Ready(Err(error));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.used();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S> Drop for Connection<S> {
    fn drop(&mut self) {
        self.connections.lock().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_idle_connection_is_closed() {
        let connections = Connections::with(Duration::from_millis(10));
        let (_client, server) = duplex(64);
        let mut server = connections.enter(server);
        assert_eq!(server.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(server);
        assert!(connections.lock().entries.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_response_is_not_cut() {
        let connections = Connections::with(Duration::from_secs(10));
        let (mut client, server) = duplex(1);
        let mut server = connections.enter(server);
        for _ in 0..5 {
            server.write_all(b"x").await.unwrap();
            tokio::time::advance(Duration::from_secs(8)).await;
            assert_eq!(client.read_u8().await.unwrap(), b'x');
        }
        // The client does not read any more.
        server.write_all(b"x").await.unwrap();
        let error = server.write_all(b"x").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// As many connections as there may be; their clients are gone. The one of age 7 has been idle the longest.
    fn full(connections: &Connections, asked: bool) -> Vec<Connection<DuplexStream>> {
        let all = (0..limits::WEBHOOK_CONNECTIONS).map(|age| {
            let connection = connections.enter(duplex(64).0);
            connection.usage.asked.store(asked, Ordering::Relaxed);
            connection
                .usage
                .last
                .store(if age == 7 { 0 } else { 10 }, Ordering::Relaxed);
            connection
        });
        all.collect()
    }

    fn is_closed(connection: &mut Connection<DuplexStream>) -> bool {
        connection.closed.as_mut().now_or_never().is_some()
    }

    #[tokio::test]
    async fn at_the_limit_the_connection_that_is_idle_longest_is_closed() {
        for asked in [true, false] {
            let connections = Connections::new();
            let mut all = full(&connections, asked);
            let (mut client, server) = duplex(64);
            let mut late = connections.enter(server);
            assert!(is_closed(&mut all[7]) && !is_closed(&mut all[8]));
            client.write_all(b"x").await.unwrap();
            assert_eq!(late.read_u8().await.unwrap(), b'x');
            assert_eq!(connections.lock().entries.len(), limits::WEBHOOK_CONNECTIONS);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn at_the_limit_a_connection_without_a_request_is_closed_first() {
        let connections = Connections::new();
        let used = || {
            let connection = connections.enter(duplex(64).0);
            connection.usage.asked.store(true, Ordering::Relaxed);
            connection
        };
        let (mut waits, mut idle) = (used(), used());
        let _handled = OfConnection(Arc::clone(&waits.usage)).handle();
        let mut bare = Vec::new();
        for _ in 0..limits::WEBHOOK_CONNECTIONS {
            tokio::time::advance(Duration::from_millis(1)).await;
            bare.push(connections.enter(duplex(64).0));
        }
        assert!(!is_closed(&mut waits) && !is_closed(&mut idle));
        let closed: Vec<bool> = bare.iter_mut().map(is_closed).collect();
        assert!(closed[..2].iter().all(|closed| *closed) && closed[2..].iter().all(|closed| !closed));
    }

    #[tokio::test]
    async fn a_connection_with_a_request_that_is_being_handled_is_not_closed_for_another() {
        let connections = Connections::new();
        let mut all = full(&connections, true);
        let handled: Vec<_> = all
            .iter()
            .map(|connection| OfConnection(Arc::clone(&connection.usage)).handle())
            .collect();
        let mut refused = connections.enter(duplex(64).0);
        assert_eq!(
            refused.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::ConnectionAborted
        );
        assert!(!all.iter_mut().any(is_closed));
        drop(handled);
        let mut next = connections.enter(duplex(64).0);
        assert!(!is_closed(&mut next) && is_closed(&mut all[7]));
    }

    #[tokio::test]
    async fn requests_know_their_connection() {
        let connections = Connections::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let service = tower::service_fn(|request: Request<()>| {
            ready(Ok::<_, io::Error>(request.extensions().get::<OfConnection>().cloned()))
        });
        let (connection, mut service) = connections.accept(accepted.unwrap().0, service).await.unwrap();
        assert!(!connection.usage.asked.load(Ordering::Relaxed));
        let of = service.call(Request::new(())).await.unwrap().expect("its connection");
        assert!(connection.usage.asked.load(Ordering::Relaxed));
        let handled = of.handle();
        assert_eq!(connection.usage.handled.load(Ordering::Relaxed), 1);
        drop(handled);
        assert_eq!(connection.usage.handled.load(Ordering::Relaxed), 0);
    }
}
