//! Failed connections to the API server: told once with its address and the cause, and counted.
//!
//! The errors of the HTTP library name neither, and each request of each component that meets the failure would tell of it.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use http_body_util::combinators::MapErr;
use hyper::body::{Body, Bytes};
use tower::{BoxError, Layer, Service};

use super::deadline::TimedOut;
use crate::components::connection_failures::{Cause, ConnectionFailed, ConnectionFailures, Side, links};
use crate::operator::fence::Fenced;

/// The API server, and which connections to it failed.
#[derive(Clone, Debug)]
pub struct Reached {
    address: String,
    failures: ConnectionFailures,
}

impl Reached {
    /// The API server at a URL.
    #[must_use]
    pub fn at(url: &Uri) -> Self {
        let port = url
            .port_u16()
            .unwrap_or(if url.scheme_str() == Some("http") { 80 } else { 443 });
        Self {
            address: format!("{}:{port}", url.host().unwrap_or("localhost")),
            failures: ConnectionFailures::of(Side::ApiServer),
        }
    }

    /// An error with address and cause if a connection failed; others as they are.
    fn name(&self, error: BoxError) -> BoxError {
        // A slow answer is not the connection's fault, nor a write that we ourselves do not send.
        if error.is::<TimedOut>() || links(&*error).any(<dyn std::error::Error>::is::<Fenced>) {
            return error;
        }
        let of_connection = links(&*error).any(|link| {
            link.is::<hyper_util::client::legacy::Error>() || link.is::<hyper::Error>() || link.is::<std::io::Error>()
        });
        if !of_connection {
            return error;
        }
        let slow = links(&*error).find_map(|link| link.downcast_ref::<TimedOut>());
        let (cause, why) = slow.map_or_else(|| Cause::of(&*error), |slow| (Cause::Silent, slow.to_string()));
        self.failures.failed(&self.address, cause, &why);
        let address = self.address.clone();
        ConnectionFailed { address, why }.into()
    }
}

/// Looks at the connections of a client.
#[derive(Clone, Debug)]
pub struct ReachedLayer(pub Reached);

impl<S> Layer<S> for ReachedLayer {
    type Service = ReachedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ReachedService {
            server: self.0.clone(),
            inner,
        }
    }
}

/// See [`ReachedLayer`].
#[derive(Clone, Debug)]
pub struct ReachedService<S> {
    server: Reached,
    inner: S,
}

/// A body whose errors have address and cause.
type NamedBody<B> = MapErr<B, Box<dyn FnMut(BoxError) -> BoxError + Send>>;

impl<S, B, R> Service<Request<B>> for ReachedService<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = BoxError>,
    S::Future: Send + 'static,
    R: Body<Data = Bytes, Error = BoxError>,
{
    type Response = Response<NamedBody<R>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (answer, server) = (self.inner.call(request), self.server.clone());
        async move {
            let answer = answer.await.map_err(|error| server.name(error))?;
            server.failures.worked(&server.address);
            let name: Box<dyn FnMut(BoxError) -> BoxError + Send> = Box::new(move |error| server.name(error));
            Ok(answer.map(|body| body.map_err(name)))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use kube::Client;
    use tokio::net::TcpListener;

    use super::*;
    use crate::operator::client::{Patience, Reach, connect};

    /// The error of a request to the server at a URL.
    async fn error(url: &str) -> kube::Error {
        let mut config = kube::Config::new(url.parse().unwrap());
        config.root_cert = Some(Vec::new());
        let second = std::time::Duration::from_secs(1);
        let patience = Patience {
            request: second * 10,
            watch: second * 10,
        };
        let client: Client = connect(Reach::Network(Box::new(config)), patience, second * 10)
            .unwrap()
            .reads;
        client.apiserver_version().await.unwrap_err()
    }

    #[tokio::test]
    async fn errors_of_connections_name_address_and_cause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let closing = tokio::spawn(async move {
            loop {
                drop(listener.accept().await);
            }
        });
        let closed = error(&format!("https://{address}")).await;
        assert!(ConnectionFailed::is_cause_of(&closed), "{closed}");
        assert!(
            closed.to_string().contains(&format!("no connection to {address}: ")),
            "{closed}"
        );
        closing.abort();
        assert!(closing.await.is_err());
        let refused = error(&format!("http://{address}")).await;
        assert_eq!(
            refused.to_string(),
            format!("ServiceError: no connection to {address}: Connection refused (os error 111)")
        );
        let unknown = error("http://no-such-host.invalid").await.to_string();
        assert!(
            unknown.contains("no connection to no-such-host.invalid:80: "),
            "{unknown}"
        );
    }

    #[test]
    fn what_is_not_of_the_connection_stays_as_it_is() {
        let server = Reached::at(&Uri::from_static("https://10.0.0.1"));
        for error in [
            BoxError::from(TimedOut(std::time::Duration::from_secs(1))),
            BoxError::from(std::io::Error::other(Fenced)),
            BoxError::from("the credentials are wrong"),
        ] {
            let text = error.to_string();
            let named = server.name(error);
            assert!(!named.is::<ConnectionFailed>(), "{named}");
            assert_eq!(named.to_string(), text);
        }
        let slow = std::io::Error::other(std::io::Error::other(TimedOut(std::time::Duration::from_secs(5))));
        assert_eq!(
            server.name(slow.into()).to_string(),
            "no connection to 10.0.0.1:443: no answer from the API server within 5 s"
        );
    }
}
