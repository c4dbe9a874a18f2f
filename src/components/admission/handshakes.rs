//! Failed TLS handshakes with the webhooks, logged and counted by address and cause.

use std::io;

use axum_server::accept::Accept;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::net::TcpStream;

use crate::components::connection_causes::Cause;
use crate::components::connection_failures::{ConnectionFailures, Side};

/// Accepts connections as `inner` does, and counts and logs those that fail.
#[derive(Clone)]
pub struct Handshakes<A> {
    inner: A,
    failures: ConnectionFailures,
}

impl<A> Handshakes<A> {
    /// With the acceptor that does the handshakes.
    pub fn with(inner: A) -> Self {
        Self {
            inner,
            failures: ConnectionFailures::of(Side::Webhooks),
        }
    }
}

impl<A, S> Accept<TcpStream, S> for Handshakes<A>
where
    A: Accept<TcpStream, S>,
    A::Future: Send + 'static,
{
    type Stream = A::Stream;
    type Service = A::Service;
    type Future = BoxFuture<'static, io::Result<(A::Stream, A::Service)>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        // Without the port, which differs for each connection.
        let peer = stream.peer_addr().map(|address| address.ip());
        let (accepting, failures) = (self.inner.accept(stream, service), self.failures.clone());
        async move {
            accepting.await.inspect_err(|error| {
                let address = peer.map_or_else(|_| "an unknown address".to_owned(), |peer| peer.to_string());
                let (cause, why) = Cause::of(error);
                let why = match error.kind() {
                    io::ErrorKind::UnexpectedEof => "closed before the TLS handshake was complete",
                    io::ErrorKind::TimedOut => "the TLS handshake was not complete in time",
                    _ => &why,
                };
                failures.failed(&address, cause, why);
            })
        }
        .boxed()
    }
}
