//! Counts the writes to the API server, by resource and status code.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::{Layer, Service};

/// Puts a counter around a client's service.
#[derive(Clone, Copy, Debug)]
pub struct CountLayer;

impl<S> Layer<S> for CountLayer {
    type Service = CountedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        CountedService { inner }
    }
}

/// A service whose writes are counted.
#[derive(Clone, Debug)]
pub struct CountedService<S> {
    inner: S,
}

impl<S, B, R> Service<Request<B>> for CountedService<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    R: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS) {
            return self.inner.call(request).boxed();
        }
        let resource = resource(request.uri().path());
        let count = |answer: &Result<S::Response, S::Error>| {
            let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            let labels = [("resource", resource), ("code", code.to_string())];
            metrics::counter!("unikai_api_writes_total", &labels).increment(1);
        };
        self.inner
            .call(request)
            .map(|answer| {
                count(&answer);
                answer
            })
            .boxed()
    }
}

/// The resource of a request with its subresource: `pods/binding` of `/api/v1/namespaces/team/pods/p/binding`.
fn resource(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).collect();
    // `/api/VERSION/…` of the core group, `/apis/GROUP/VERSION/…` of the others.
    let (["api", _, rest @ ..] | ["apis", _, _, rest @ ..]) = &*parts else {
        return String::new();
    };
    match *rest {
        ["namespaces", _, resource, _, sub, ..] => format!("{resource}/{sub}"),
        ["namespaces", _, resource, ..] => resource.to_owned(),
        [resource, _, sub, ..] => format!("{resource}/{sub}"),
        [resource, ..] => resource.to_owned(),
        [] => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::resource;

    #[test]
    fn a_write_is_known_by_its_resource() {
        for (path, name) in [
            ("/api/v1/namespaces/team/pods/p/binding", "pods/binding"),
            ("/api/v1/namespaces/team/events", "events"),
            ("/apis/scheduling.run.ai/v2/queues/q/status", "queues/status"),
            (
                "/apis/scheduling.run.ai/v2alpha2/namespaces/team/podgroups/g",
                "podgroups",
            ),
            ("/api/v1/namespaces/team", "namespaces"),
            ("/healthz", ""),
        ] {
            assert_eq!(resource(path), name, "{path}");
        }
    }
}
