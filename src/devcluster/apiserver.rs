//! An in-memory Kubernetes API server over HTTPS, for the demo, the simulator and the tests. kube-rs clients and kubectl work
//! against it unmodified. Independent of `world`: no controller runs in here, so the dependents of deleted objects and the content of
//! terminating namespaces stay until a garbage collector and a namespace controller delete them, as with any API server without controllers.
//!
//! Absent: server-side apply (415), protobuf responses (JSON instead), logs, exec and port-forward (501), quotas, authorization (all users may
//! do everything, except users for whom a test enforces RBAC), conversion webhooks, and every kind that is not in `registry/builtin.rs` (404).

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use serde_json::json;
use tokio::task::JoinHandle;

mod admission;
mod admission_request;
pub mod audit;
pub mod cel;
pub mod clock;
mod cluster;
mod convert;
pub mod crd;
mod defaults;
mod discovery;
pub mod faults;
pub mod identity;
pub mod in_process;
mod json_type;
mod matching;
pub mod openapi;
pub mod patch;
mod policies;
mod present;
mod protobuf;
pub mod rbac;
mod registry;
mod request;
mod rest;
pub mod schema;
mod selector;
mod server;
mod service_proxy;
mod status;
mod store;
mod strategy;
pub mod table;
mod tls;
mod validation;
mod watch;
pub mod webhook;

pub use audit::{Audit, Write};
pub use clock::Clock;
pub use faults::{Effect, Faults, Match, RuleId, Times};
pub use identity::Identity;
pub use rbac::Rbac;

use cluster::Cluster;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub bind: SocketAddr,
    /// The time stamped on objects.
    pub clock: Clock,
    /// Past events kept per resource, for watches that start from an older revision.
    pub history: usize,
    /// Time between bookmarks on a watch that asks for them.
    pub bookmark_every: Duration,
}

impl Default for Options {
    /// A free port of the loopback address, the system's time.
    fn default() -> Self {
        Options {
            bind: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            clock: Clock::system(),
            history: 20_000,
            bookmark_every: Duration::from_secs(15),
        }
    }
}

/// The API server; see [`ApiServer::start`].
#[derive(Debug)]
pub struct ApiServer;

impl ApiServer {
    /// Starts a server that holds the namespaces and system objects of a new cluster.
    ///
    /// # Errors
    /// When the address cannot be bound or no certificate can be made.
    pub async fn start(options: Options) -> anyhow::Result<RunningServer> {
        let listener = TcpListener::bind(options.bind).with_context(|| format!("cannot listen on {}", options.bind))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let certificates = tls::make(address.ip()).context("cannot make certificates")?;
        let cluster = Arc::new(Cluster::new(options.clock, options.history, options.bookmark_every));
        let handle = axum_server::Handle::new();
        let serving = tokio::spawn(server::listen(
            listener,
            certificates.server,
            cluster.clone(),
            handle.clone(),
        ));
        let server = RunningServer {
            url: format!("https://{address}"),
            ca_pem: certificates.ca_pem,
            cluster,
            handle,
            serving,
        };
        let system = server.client(&system()).await?;
        bootstrap(system)
            .await
            .context("cannot make the objects of a new cluster")?;
        server.cluster.audit.clear();
        Ok(server)
    }
}

/// Handle on a running server. The server stops when this is dropped or [`RunningServer::shutdown`] is called.
#[derive(Debug)]
pub struct RunningServer {
    url: String,
    ca_pem: String,
    cluster: Arc<Cluster>,
    handle: axum_server::Handle<SocketAddr>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl RunningServer {
    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The authority that clients must trust, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A kubeconfig file for an identity, which is registered if new.
    #[must_use]
    pub fn kubeconfig(&self, identity: &Identity) -> String {
        identity::kubeconfig(
            &self.url,
            &self.ca_pem,
            &identity.user,
            &self.cluster.tokens.issue(identity),
        )
    }

    /// A client that acts as an identity.
    ///
    /// # Errors
    /// When the client's TLS cannot be set up.
    pub async fn client(&self, identity: &Identity) -> anyhow::Result<kube::Client> {
        let kubeconfig = kube::config::Kubeconfig::from_yaml(&self.kubeconfig(identity))?;
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &kube::config::KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Injects faults.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.cluster.faults
    }

    /// The clock that stamps objects.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.cluster.clock
    }

    /// The log of writes.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.cluster.audit
    }

    /// Enforces RBAC for chosen users.
    #[must_use]
    pub fn rbac(&self) -> &Rbac {
        &self.cluster.rbac
    }

    /// The token of an identity, which is registered if new.
    #[must_use]
    pub fn token(&self, identity: &Identity) -> String {
        self.cluster.tokens.issue(identity)
    }

    /// Sets the address of a Service port, for webhooks that name a Service and for the proxy to Services.
    pub fn map_service(&self, namespace: &str, name: &str, port: u16, address: SocketAddr) {
        self.cluster.map_service(namespace, name, port, address);
    }

    /// Sets the client certificate for calls of webhooks, and its key; both PEM.
    ///
    /// # Errors
    /// When they are not a valid certificate and key.
    pub fn identify_to_webhooks(&self, certificate: &str, key: &str) -> anyhow::Result<()> {
        Ok(self.cluster.webhooks.set_identity(certificate, key)?)
    }

    /// Adds an object as if it had long been stored: with the metadata and the status that it has, without admission, defaults and validation.
    /// For clusters that are too large to be created request by request.
    ///
    /// # Errors
    /// When its kind is not served, or its name is taken.
    pub fn preload(&self, object: serde_json::Value) -> anyhow::Result<()> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let catalog = self.cluster.registry.catalog();
        let mut resources = catalog.iter();
        let resource = resources.find(|resource| resource.kind == kind && resource.api_version() == api_version);
        let resource = resource.with_context(|| format!("{api_version} {kind} is not served"))?;
        let table = self.cluster.store.table(&resource.storage);
        table
            .create(object)
            .map(drop)
            .map_err(|error| anyhow::anyhow!("not stored: {error:?}"))
    }

    /// Stops serving at once and waits for the end.
    pub async fn shutdown(mut self) {
        self.handle.shutdown();
        if let Ok(Err(error)) = (&mut self.serving).await {
            tracing::error!(%error, "api server ended with an error");
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.serving.abort();
    }
}

/// The user of the server's own writes.
fn system() -> Identity {
    Identity::user("system:apiserver", &["system:masters"])
}

/// Creates the objects of a new cluster, through a client of [`system`].
async fn bootstrap(client: kube::Client) -> anyhow::Result<()> {
    use k8s_openapi::api::{
        core::v1::{Namespace, ServiceAccount},
        scheduling::v1::PriorityClass,
    };
    use kube::{Api, api::PostParams};
    let create = PostParams::default();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::all(client.clone()).create(&create, &namespace).await?;
        let account: ServiceAccount = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
        Api::namespaced(client.clone(), name).create(&create, &account).await?;
    }
    for (name, value) in admission::SYSTEM_PRIORITY_CLASSES {
        let class: PriorityClass = serde_json::from_value(json!({"metadata": {"name": name}, "value": value}))?;
        Api::all(client.clone()).create(&create, &class).await?;
    }
    Ok(())
}
