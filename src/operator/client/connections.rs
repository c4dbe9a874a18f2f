//! Failed connections to the API server, logged once with its address and the cause, and counted.
//!
//! The errors of the HTTP library contain neither, and each component would log the same failure for each of its requests.

use http::{Response, Uri};
use http_body_util::BodyExt;
use http_body_util::combinators::MapErr;
use hyper::body::{Body, Bytes};
use tower::BoxError;

use super::deadline::TimedOut;
use crate::components::connection_causes::{Cause, links};
use crate::components::connection_failures::{ConnectionFailed, ConnectionFailures, Side};
use crate::operator::fence::Fenced;

/// The address of the API server, and the failed connections to it. Clones share them.
#[derive(Clone, Debug)]
pub struct ApiServerConnections {
    address: String,
    failures: ConnectionFailures,
}

impl ApiServerConnections {
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

    /// Adds address and cause to the error of a failed connection, and logs and counts it. Other errors stay as they are.
    pub fn explain(&self, error: BoxError) -> BoxError {
        // Neither a late answer nor a write that the fence refuses is a failed connection.
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

    /// Records that a connection works. An error while the body of the response is read gets address and cause, too.
    pub fn answered<B>(&self, response: Response<B>) -> Response<ExplainedBody<B>>
    where
        B: Body<Data = Bytes, Error = BoxError>,
    {
        self.failures.worked(&self.address);
        let server = self.clone();
        response.map(|body| body.map_err(Box::new(move |error| server.explain(error)) as Explain))
    }
}

/// See [`ApiServerConnections::explain`].
type Explain = Box<dyn FnMut(BoxError) -> BoxError + Send>;

/// A body whose errors have address and cause.
pub type ExplainedBody<B> = MapErr<B, Explain>;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::Client;
    use tokio::net::TcpListener;

    use super::*;
    use crate::operator::client::{Reach, Timeouts, connect};

    /// The error of a request to the server at a URL.
    async fn error(url: &str) -> kube::Error {
        let mut config = kube::Config::new(url.parse().unwrap());
        config.root_cert = Some(Vec::new());
        let second = std::time::Duration::from_secs(1);
        let timeouts = Timeouts {
            request: second * 10,
            watch: second * 10,
        };
        let client: Client = connect(Reach::Network(Box::new(config)), timeouts, second * 10)
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

    /// The library's own client would ask again for more than a minute before it says so.
    #[tokio::test]
    async fn a_request_that_is_refused_is_not_repeated_here() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};

        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let busy = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let error = error(&format!("http://{address}")).await;
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == 503),
            "{error}"
        );
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        busy.abort();
    }

    #[test]
    fn other_errors_are_not_changed() {
        let server = ApiServerConnections::at(&Uri::from_static("https://10.0.0.1"));
        for error in [
            BoxError::from(TimedOut(std::time::Duration::from_secs(1))),
            BoxError::from(std::io::Error::other(Fenced)),
            BoxError::from("the credentials are wrong"),
        ] {
            let text = error.to_string();
            let named = server.explain(error);
            assert!(!named.is::<ConnectionFailed>(), "{named}");
            assert_eq!(named.to_string(), text);
        }
        let slow = std::io::Error::other(std::io::Error::other(TimedOut(std::time::Duration::from_secs(5))));
        assert_eq!(
            server.explain(slow.into()).to_string(),
            "no connection to 10.0.0.1:443: no answer from the API server within 5 s"
        );
    }
}
