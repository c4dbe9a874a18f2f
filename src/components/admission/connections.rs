//! The connections of a server: limited in number and in idle time. At the limit a new connection replaces the one that has been idle the longest, so that
//! no client can block the API server or the kubelet's probes by holding connections.

use std::collections::BTreeMap;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::Accept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::api::limits;

/// A connection is closed after this time without data. The API server closes its own after 90 s.
pub const IDLE: Duration = Duration::from_secs(120);

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
    /// When data was last received or sent, in milliseconds.
    last: Arc<AtomicU64>,
    close: CancellationToken,
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

    /// Adds a connection; closes another one at the limit.
    fn enter<S>(&self, stream: S) -> Connection<S> {
        let (close, last) = (CancellationToken::new(), Arc::new(AtomicU64::new(self.now())));
        let mut open = self.lock();
        if open.entries.len() >= limits::WEBHOOK_CONNECTIONS {
            let silent = |(_, entry): &(&u64, &Entry)| entry.last.load(Ordering::Relaxed);
            if let Some(id) = open.entries.iter().min_by_key(silent).map(|(id, _)| *id)
                && let Some(entry) = open.entries.remove(&id)
            {
                entry.close.cancel();
            }
        }
        open.next += 1;
        let id = open.next;
        let entry = Entry {
            last: Arc::clone(&last),
            close: close.clone(),
        };
        open.entries.insert(id, entry);
        drop(open);
        Connection {
            stream,
            id,
            last,
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
    type Service = S;
    type Future = Ready<io::Result<(Self::Stream, S)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        ready(stream.set_nodelay(true).map(|()| (self.enter(stream), service)))
    }
}

/// One connection.
pub struct Connection<S> {
    stream: S,
    id: u64,
    last: Arc<AtomicU64>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    idle: Pin<Box<Sleep>>,
    connections: Connections,
}

impl<S> Connection<S> {
    /// Bytes were read or written.
    fn used(&mut self) {
        self.last.store(self.connections.now(), Ordering::Relaxed);
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

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

    #[tokio::test]
    async fn at_the_limit_the_connection_that_is_idle_longest_is_closed() {
        let connections = Connections::new();
        let mut all: Vec<_> = (0..limits::WEBHOOK_CONNECTIONS)
            .map(|_| connections.enter(duplex(64).0))
            .collect();
        for (age, connection) in all.iter().enumerate() {
            connection.last.store(if age == 7 { 0 } else { 10 }, Ordering::Relaxed);
        }
        let (mut client, server) = duplex(64);
        let mut late = connections.enter(server);
        assert!(all[7].closed.as_mut().now_or_never().is_some());
        assert!(all[8].closed.as_mut().now_or_never().is_none());
        client.write_all(b"x").await.unwrap();
        assert_eq!(late.read_u8().await.unwrap(), b'x');
        assert_eq!(connections.lock().entries.len(), limits::WEBHOOK_CONNECTIONS);
    }
}
