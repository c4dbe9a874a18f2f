//! The served version of `resource.k8s.io`: `v1beta1` in Kubernetes 1.32, `v1beta2` in 1.33, `v1` since 1.34.
//!
//! Clients request `v1`; the path of a request is rewritten to the served version, once that is known. Objects are read in any of these forms
//! (`mirror/claims/versions.rs`), and the written fields (metadata and status of claims) are the same in all of them.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIGroup;
use kube::Client;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tower::{BoxError, Layer, Service};
use tracing::{debug, info};

/// The group.
const GROUP: &str = "/apis/resource.k8s.io";
/// The requested version, as in a path.
const ASKED: &str = "/apis/resource.k8s.io/v1/";
/// Readable versions, best first.
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];
/// Poll interval: an upgrade of the API server may change the version. After an answer that something in the version is not found it is asked for at once: the
/// claims must not count as deleted, with their devices free, because another version is served now.
const EVERY: Duration = Duration::from_secs(60);
/// Minimum time between two polls.
const AGAIN: Duration = Duration::from_secs(1);

/// The version that is served; `None` before it is known. Clones share it.
#[derive(Clone, Debug)]
pub struct Served {
    version: watch::Sender<Option<&'static str>>,
    doubt: Arc<Notify>,
}

impl Default for Served {
    fn default() -> Self {
        Self {
            version: watch::Sender::new(None),
            doubt: Arc::default(),
        }
    }
}

impl Served {
    /// Polls the API server for ever.
    pub async fn keep_asking(self, reads: Client) {
        let mut was_served = false;
        loop {
            let wait = match ask(&reads).await {
                Ok(Some(version)) => {
                    was_served = true;
                    self.found(version);
                    EVERY
                }
                // A version that was served is requested until another one is.
                Ok(None) if was_served => EVERY,
                Ok(None) => {
                    self.found(VERSIONS[0]);
                    // That nothing is found is no news.
                    sleep(EVERY).await;
                    continue;
                }
                Err(error) => {
                    debug!(%error, "the served version of resource claims cannot be read");
                    AGAIN
                }
            };
            sleep(AGAIN).await;
            let _ = timeout(wait.saturating_sub(AGAIN), self.doubt.notified()).await;
        }
    }

    fn found(&self, version: &'static str) {
        let changed = self
            .version
            .send_if_modified(|known| known.replace(version) != Some(version));
        if changed {
            info!(version, "resource claims are read in this version");
        }
    }

    /// The path of a request with the served version.
    async fn path(&self, uri: Uri) -> Uri {
        let Some(rest) = uri.path_and_query().and_then(|path| path.as_str().strip_prefix(ASKED)) else {
            return uri;
        };
        let mut known = self.version.subscribe();
        let version = known.wait_for(Option::is_some).await.ok().and_then(|version| *version);
        let path = format!("{GROUP}/{}/{rest}", version.unwrap_or(VERSIONS[0]));
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = path.parse().ok();
        Uri::from_parts(parts).unwrap_or(uri)
    }
}

/// The best served version; `None` if none is served. Then `v1` is requested, so that it is found when it appears.
async fn ask(reads: &Client) -> kube::Result<Option<&'static str>> {
    let request = Request::get(GROUP).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let group: APIGroup = match reads.request(request).await {
        Ok(group) => group,
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
        Err(error) => return Err(error),
    };
    let serves = |version: &&str| group.versions.iter().any(|served| served.version == **version);
    Ok(VERSIONS.into_iter().find(|version| serves(version)))
}

/// Rewrites the paths of a client's requests.
#[derive(Clone, Debug)]
pub struct ServedLayer(pub Served);

impl<S> Layer<S> for ServedLayer {
    type Service = ServedService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        ServedService {
            served: self.0.clone(),
            inner,
        }
    }
}

/// See [`ServedLayer`].
#[derive(Clone, Debug)]
pub struct ServedService<S> {
    served: Served,
    inner: S,
}

impl<S, B, R> Service<Request<B>> for ServedService<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
    R: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        if !request.uri().path().starts_with(ASKED) {
            return self
                .inner
                .call(request)
                .map(|answer| answer.map_err(Into::into))
                .boxed();
        }
        // The clone that was polled ready is used; a fresh clone takes its place.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let served = self.served.clone();
        async move {
            *request.uri_mut() = served.path(request.uri().clone()).await;
            let answer = inner.call(request).await.map_err(Into::into)?;
            if answer.status() == StatusCode::NOT_FOUND {
                served.doubt.notify_one();
            }
            Ok(answer)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    /// A client of an API server that serves these versions, and the paths that it requests.
    fn server(versions: &'static [&'static str]) -> (Client, Arc<Mutex<Vec<String>>>) {
        changing(versions, versions)
    }

    /// The same of one that serves these versions at first, and others later.
    fn changing(first: &'static [&'static str], later: &'static [&'static str]) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let mut seen = seen.lock().unwrap();
            let versions = if seen.is_empty() { first } else { later };
            seen.push(request.uri().to_string());
            let versions: Vec<_> = versions
                .iter()
                .map(|version| json!({"groupVersion": format!("resource.k8s.io/{version}"), "version": version}))
                .collect();
            let body = json!({"kind": "APIGroup", "apiVersion": "v1", "name": "resource.k8s.io", "versions": versions});
            let response = Response::new(kube::client::Body::from(serde_json::to_vec(&body).unwrap()));
            async move { Ok::<_, BoxError>(response) }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn the_best_version_that_is_served_is_asked_for() {
        for (versions, best) in [
            (&["v1", "v1beta1"] as &[&str], Some("v1")),
            (&["v1beta1", "v1beta2"], Some("v1beta2")),
            (&["v1alpha3", "v1beta1"], Some("v1beta1")),
            (&[], None),
        ] {
            let (client, _) = server(versions);
            assert_eq!(ask(&client).await.unwrap(), best);
        }
    }

    #[tokio::test]
    async fn requests_wait_for_the_version_and_ask_for_it() {
        let served = Served::default();
        let inner = tower::service_fn(|request: Request<()>| async move {
            Ok::<_, BoxError>(Response::new(request.uri().to_string()))
        });
        let service = ServedLayer(served.clone()).layer(inner);
        let ask = |path: &str| {
            let answer = service.clone().oneshot(Request::get(path).body(()).unwrap());
            answer.map(|answer| answer.map(Response::into_body)).boxed()
        };
        assert_eq!(ask("/api/v1/pods?watch=true").await.unwrap(), "/api/v1/pods?watch=true");
        let claims = tokio::spawn(ask("/apis/resource.k8s.io/v1/resourceclaims?limit=5"));
        tokio::task::yield_now().await;
        assert!(!claims.is_finished());
        served.found("v1beta1");
        assert_eq!(
            claims.await.unwrap().unwrap(),
            "/apis/resource.k8s.io/v1beta1/resourceclaims?limit=5"
        );
        assert_eq!(ask("/apis/resource.k8s.io").await.unwrap(), "/apis/resource.k8s.io");
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_is_asked_for_again_when_something_in_it_is_not_found() {
        let (client, asked) = server(&["v1beta2"]);
        let served = Served::default();
        tokio::spawn(served.clone().keep_asking(client));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(asked.lock().unwrap().len(), 1);
        let inner = tower::service_fn(|_: Request<()>| async {
            let gone = Response::builder().status(StatusCode::NOT_FOUND).body(());
            Ok::<_, BoxError>(gone.unwrap())
        });
        for _ in 0..100 {
            let request = Request::get("/apis/resource.k8s.io/v1/resourceclaims")
                .body(())
                .unwrap();
            let service = ServedLayer(served.clone()).layer(inner);
            assert_eq!(service.oneshot(request).await.unwrap().status(), 404);
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(asked.lock().unwrap().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_was_served_is_requested_until_another_is() {
        for (later, requested) in [(&[] as &[&str], "v1beta1"), (&["v1beta2"], "v1beta2")] {
            let (client, asked) = changing(&["v1beta1"], later);
            let served = Served::default();
            tokio::spawn(served.clone().keep_asking(client));
            sleep(2 * EVERY).await;
            assert!(asked.lock().unwrap().len() > 1);
            assert_eq!(*served.version.borrow(), Some(requested));
        }
    }
}
