//! The clients of the API server, with keepalive on connections and a deadline for every request.
//!
//! Networks fail silently: packets are dropped, a load balancer keeps a dead connection open, a server accepts
//! and never answers. So no wait is unbounded: connections use TCP keepalive, and a request that is not
//! answered in time fails, and its connection is closed. Failures are reported at once and never retried here: the components
//! know what to retry, and when. (The library's own retries would go on silently for more than a minute.)
//!
//! HTTP/1.1 only: each request has its own connection, so a hanging one blocks no other.

pub mod connections;
pub mod deadline;
mod retry_after;
pub mod served;
mod short_watches;

use std::time::Duration;

use anyhow::{Context, ensure};
use http::Uri;
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, Service, ServiceBuilder};

use super::fence::stream::FencedConnector;
use super::fence::{Fence, FenceLayer};
use super::writes::CountLayer;
use connections::ApiServerConnections;
use deadline::{ConnectWithin, DeadlineLayer, Deadlines};
use served::{Served, ServedLayer};
use short_watches::ShortWatches;

/// Timeout of a connection with its TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// TCP keepalive: idle time, and interval of probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(3);
const KEEPALIVE_TRIES: u32 = 3;
/// `TCP_USER_TIMEOUT`: unacknowledged data or keepalive probes end the connection after this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// Idle connections are not reused after this time, since routes may have changed.
const IDLE: Duration = Duration::from_secs(15);

/// Timeouts of responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the whole response; for a watch's initial list: until it begins, and between two chunks.
    pub request: Duration,
    /// Duration of a watch, after which another continues it.
    pub watch: Duration,
}

/// The clients of one process. Each has its own connections.
#[derive(Clone)]
pub struct Clients {
    /// For reads. Not fenced.
    pub reads: Client,
    /// For watches and their initial lists.
    pub watches: Client,
    /// For the lease: own connections and a shorter deadline.
    pub lease: Client,
    /// For writes, one in each term of leadership.
    pub writers: Writers,
    /// The served version of `resource.k8s.io`; must be polled.
    pub served: Served,
}

/// How the API server is reached.
#[derive(Clone)]
pub enum Reach {
    /// Over the network.
    Network(Box<Config>),
    /// In this process. Requests have a path without a host, and the service authenticates its caller by itself.
    #[cfg(feature = "devcluster")]
    InProcess(InProcess),
}

impl Reach {
    /// Whether the kubeconfig names a proxy.
    fn has_proxy(&self) -> bool {
        match self {
            Self::Network(config) => config.proxy_url.is_some(),
            #[cfg(feature = "devcluster")]
            Self::InProcess(_) => false,
        }
    }

    /// The address of the API server for errors and the log.
    fn server(&self) -> ApiServerConnections {
        match self {
            Self::Network(config) => ApiServerConnections::at(&config.cluster_url),
            #[cfg(feature = "devcluster")]
            Self::InProcess(_) => ApiServerConnections::at(&Uri::from_static("https://localhost")),
        }
    }
}

/// An API server in this process.
#[cfg(feature = "devcluster")]
pub type InProcess = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<axum::body::Body>, BoxError>;

/// Creates the clients for writes.
#[derive(Clone)]
pub struct Writers {
    reach: Reach,
    deadlines: Deadlines,
    server: ApiServerConnections,
    served: Served,
}

impl Writers {
    /// A client with own connections whose writes are refused, in the client and at the socket, unless the fence is open. `late`: how long after the fence
    /// has closed another process may begin to write.
    ///
    /// # Errors
    /// When the configuration's certificates or credentials cannot be used.
    pub fn behind(&self, fence: &Fence, late: Duration) -> anyhow::Result<Client> {
        let known = (&self.server, &self.served);
        client(&self.reach, self.deadlines, known, Some((fence, late))).context(UNUSABLE)
    }
}

/// Creates the clients without sending requests. `lease`: timeout of requests about the lease.
///
/// # Errors
/// When the configuration's certificates or credentials cannot be used, or it names a proxy.
pub fn connect(reach: Reach, timeouts: Timeouts, lease: Duration) -> anyhow::Result<Clients> {
    ensure!(
        !reach.has_proxy(),
        "the kubeconfig names a proxy; the API server must be reachable without one"
    );
    let (server, served) = (reach.server(), Served::default());
    let plain = |deadlines| client(&reach, deadlines, (&server, &served), None).context(UNUSABLE);
    let deadlines = Deadlines::whole(timeouts.request);
    Ok(Clients {
        reads: plain(deadlines)?,
        watches: plain(Deadlines::of_watches(timeouts.request, timeouts.watch))?,
        lease: plain(Deadlines::whole(lease))?,
        writers: Writers {
            reach: reach.clone(),
            deadlines,
            server: server.clone(),
            served: served.clone(),
        },
        served: served.clone(),
    })
}

const UNUSABLE: &str = "cannot set up the client of the API server";

/// For how long the kernel sends unacknowledged writes again: they must not arrive `late` after the fence has closed. It counts from when it first sends them
/// again.
fn unacknowledged_writes(late: Duration) -> Duration {
    (late.min(UNACKNOWLEDGED) * 4 / 5).max(Duration::from_millis(1))
}

/// A connector with timeouts and keepalive. `unacknowledged`: see [`UNACKNOWLEDGED`].
#[cfg_attr(not(target_os = "linux"), expect(unused_variables, reason = "Linux alone has it"))]
fn tcp(unacknowledged: Duration) -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_AFTER));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(unacknowledged));
    tcp
}

/// What the clients of a process share: the API server's address with its failed connections, and the served version of `resource.k8s.io`.
type Known<'a> = (&'a ApiServerConnections, &'a Served);

/// A client with deadlines and without the library's retries; with a fence and the time after its end, one for writes.
fn client(
    reach: &Reach,
    deadlines: Deadlines,
    known: Known<'_>,
    fence: Option<(&Fence, Duration)>,
) -> kube::Result<Client> {
    match (reach, fence) {
        (Reach::Network(config), Some((fence, late))) => {
            let fenced = FencedConnector::new(tcp(unacknowledged_writes(late)), fence.clone());
            networked(config, fenced, deadlines, known, Some(fence))
        }
        (Reach::Network(config), None) => networked(config, tcp(UNACKNOWLEDGED), deadlines, known, None),
        #[cfg(feature = "devcluster")]
        (Reach::InProcess(service), fence) => {
            let fence = fence.map(|(fence, _)| fence);
            Ok(layered(service.clone(), "default", deadlines, known, fence))
        }
    }
}

/// The layers of the kube client over a connector.
fn networked<C>(
    config: &Config,
    connector: C,
    deadlines: Deadlines,
    known: Known<'_>,
    fence: Option<&Fence>,
) -> kube::Result<Client>
where
    C: Service<Uri> + Clone + Send + Sync + 'static,
    C::Response: Connection + Read + Write + Send + Unpin + 'static,
    C::Future: Send + 'static,
    C::Error: Into<BoxError> + Send + 'static,
{
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build::<_, Body>(ConnectWithin::new(connector, CONNECT));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(layered(service, &config.default_namespace, deadlines, known, fence))
}

/// Puts the layers that every client has around the service that sends to the API server.
fn layered<S, B>(
    service: S,
    namespace: &str,
    deadlines: Deadlines,
    (server, served): Known<'_>,
    fence: Option<&Fence>,
) -> Client
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error = BoxError> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: hyper::body::Body<Data = hyper::body::Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let (failing, answering) = (server.clone(), server.clone());
    let service = ServiceBuilder::new()
        .and_then(retry_after::in_status)
        .map_err(move |error| failing.explain(error))
        .map_response(move |response| answering.answered(response))
        .layer(ShortWatches::default())
        .layer(DeadlineLayer(deadlines))
        .layer(ServedLayer(served.clone()))
        .option_layer(fence.cloned().map(FenceLayer))
        .option_layer(fence.is_some().then_some(CountLayer))
        .service(service);
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests;
