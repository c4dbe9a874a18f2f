//! The fence at the socket: connections that send nothing once the fence is closed. Everything above may hold a request back for
//! a while (a queue, a pool, a handshake, a thread that gets no turn); here is the last moment before it leaves.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tower::{BoxError, Service};

use super::{Fence, Fenced};

/// Makes connections that pass a fence.
#[derive(Clone, Debug)]
pub struct FencedConnector {
    tcp: HttpConnector,
    fence: Fence,
}

impl FencedConnector {
    /// Connects through `tcp`.
    #[must_use]
    pub fn new(tcp: HttpConnector, fence: Fence) -> Self {
        Self { tcp, fence }
    }
}

impl Service<Uri> for FencedConnector {
    type Response = FencedStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let fence = self.fence.clone();
        let connecting = self.tcp.call(target);
        async move {
            let inner = connecting.await?;
            Ok(FencedStream { inner, fence })
        }
        .boxed()
    }
}

/// A connection that sends nothing once the fence is closed.
#[derive(Debug)]
pub struct FencedStream<S> {
    pub(super) inner: S,
    pub(super) fence: Fence,
}

impl<S: Unpin> FencedStream<S> {
    fn inner(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(&mut self.get_mut().inner)
    }

    fn check(&self) -> io::Result<()> {
        if self.fence.is_open(Instant::now()) {
            Ok(())
        } else {
            Err(io::Error::other(Fenced))
        }
    }
}

impl<S: Read + Unpin> Read for FencedStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_read(cx, buffer)
    }
}

impl<S: Write + Unpin> Write for FencedStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        self.inner().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        self.inner().poll_write_vectored(cx, bytes)
    }
}

impl<S: Connection> Connection for FencedStream<S> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}
