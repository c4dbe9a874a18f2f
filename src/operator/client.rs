//! The clients of the API server, on connections that notice when the other end is gone, and with a deadline for every request.
//!
//! A network can die without a word: packets vanish, a load balancer keeps a connection open that leads nowhere, a server accepts
//! and never answers. So nothing here waits for ever: connections ask the other end for signs of life, and a request that is not
//! answered in time fails, and takes its connection with it. What fails is reported at once and never sent again here: the components
//! know best what to try again, and when. (The library's own retries would go on for more than a minute, unseen.)
//!
//! All of it is HTTP/1.1: a request that hangs holds up no other, as it has its connection for itself.

pub mod deadline;
pub mod served;

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
use deadline::{ConnectWithin, DeadlineLayer, Deadlines};
use served::{Served, ServedLayer};

/// How long a connection may take, with its handshake.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection without traffic is asked for a sign of life after this time, and then again and again.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(3);
const KEEPALIVE_TRIES: u32 = 3;
/// What was sent and is not acknowledged by then ends the connection. It ends silent ones, too: the kernel holds keepalive to it.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);
/// An idle connection is not used again after this time: behind it, the way may have changed.
const IDLE: Duration = Duration::from_secs(15);

/// How long answers may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// The whole answer to a request; of a list that a watch begins with, the wait for it or for its next part.
    pub request: Duration,
    /// The life of a watch; then another goes on where it ended.
    pub watch: Duration,
}

/// The clients of one process. Each has its own connections.
#[derive(Clone)]
pub struct Clients {
    /// For single reads. Never refused here.
    pub reads: Client,
    /// For watches, and the lists that they begin with.
    pub watches: Client,
    /// For the lease: not held up by anything else, and with a deadline of its own.
    pub lease: Client,
    /// For writes, one in each term of leadership.
    pub writers: Writers,
    /// In which version claims for devices are served. Somebody is to keep asking.
    pub served: Served,
}

/// Makes the clients for writes.
#[derive(Clone)]
pub struct Writers {
    config: Config,
    deadlines: Deadlines,
    served: Served,
}

impl Writers {
    /// A client whose writes are refused unless the fence is open. It has connections of its own, which pass the fence, too.
    ///
    /// # Errors
    /// When the configuration's certificates or credentials cannot be used.
    pub fn behind(&self, fence: &Fence) -> anyhow::Result<Client> {
        let fenced = FencedConnector::new(tcp(), fence.clone());
        client(&self.config, fenced, self.deadlines, &self.served, Some(fence.clone())).context(UNUSABLE)
    }
}

/// Makes the clients; nothing is asked of the API server. A request about the lease may take `lease`.
///
/// # Errors
/// When the configuration's certificates or credentials cannot be used, or it names a proxy.
pub fn connect(config: &Config, patience: Patience, lease: Duration) -> anyhow::Result<Clients> {
    ensure!(
        config.proxy_url.is_none(),
        "the kubeconfig names a proxy; the API server must be reachable without one"
    );
    let served = Served::default();
    let plain = |deadlines| client(config, tcp(), deadlines, &served, None).context(UNUSABLE);
    let deadlines = Deadlines::whole(patience.request);
    Ok(Clients {
        reads: plain(deadlines)?,
        watches: plain(Deadlines::of_watches(patience.request, patience.watch))?,
        lease: plain(Deadlines::whole(lease))?,
        writers: Writers {
            config: config.clone(),
            deadlines,
            served: served.clone(),
        },
        served: served.clone(),
    })
}

const UNUSABLE: &str = "cannot set up the client of the API server";

/// Makes connections that notice when the other end is gone.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE_AFTER));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp
}

/// The library's own stack, with deadlines and without its retries; with a fence, one for writes.
fn client<C>(
    config: &Config,
    connector: C,
    deadlines: Deadlines,
    served: &Served,
    fence: Option<Fence>,
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
    let is_for_writes = fence.is_some();
    let service = ServiceBuilder::new()
        .layer(DeadlineLayer(deadlines))
        .layer(ServedLayer(served.clone()))
        .option_layer(fence.map(FenceLayer))
        .option_layer(is_for_writes.then_some(CountLayer))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace.clone()))
}
