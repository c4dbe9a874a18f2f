//! The two clients: one for reads, watches and the lease, one whose writes pass the fence.

use std::time::Duration;

use anyhow::Context;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use super::fence::stream::FencedConnector;
use super::fence::{Fence, FenceLayer};
use super::writes::CountLayer;

/// How long a connection for writes may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The clients of one process.
#[derive(Clone)]
pub struct Clients {
    /// Never refused here.
    pub reads: Client,
    /// Refused unless the fence is open. Has connections of its own, which pass the fence too. What fails is reported at once: the
    /// components know best what to try again, and when.
    pub writes: Client,
}

/// Makes the clients; nothing is asked of the API server.
///
/// # Errors
/// When the configuration's certificates or credentials cannot be used.
pub fn connect(config: &Config, fence: &Fence) -> anyhow::Result<Clients> {
    let unusable = "cannot set up the client of the API server";
    Ok(Clients {
        reads: Client::try_from(config.clone()).context(unusable)?,
        writes: fenced(config, fence).context(unusable)?,
    })
}

/// The library's own stack, without its retries, on connections that pass the fence.
fn fenced(config: &Config, fence: &Fence) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(FencedConnector::new(tcp, fence.clone()))?;
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build::<_, Body>(connector);
    let service = ServiceBuilder::new()
        .layer(FenceLayer(fence.clone()))
        .layer(CountLayer)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace.clone()))
}
