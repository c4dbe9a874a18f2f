//! Admission: the mutating and validating webhooks.
//!
//! - `review` has the request and the response; `pods`, `queues`, `pod_groups`, `topologies` are the rules, pure functions;
//! - `hints` are warnings about values that are allowed but probably a mistake;
//! - `lookups` reads the objects of the cluster that the rules need;
//! - `known_queues` decides for which queues the API server need not call the webhook;
//! - `certificates` decides when certificates are issued and served, `configurations` builds the webhook configurations;
//!   `keeper` watches and writes both;
//! - `server` listens; `connections` and `body` limit its connections and the size of requests, `handshakes` logs and counts failed TLS handshakes.
//!
//! Every replica serves; only the leader writes, except for the first certificate, which the first replica writes.
//! The webhooks are not called for pods of other schedulers.

mod body;
pub mod certificates;
pub mod configurations;
pub mod connections;
mod handshakes;
pub mod hints;
pub mod keeper;
mod known_queues;
pub mod lookups;
pub mod pod_groups;
pub mod pods;
pub mod queues;
pub mod review;
mod server;
pub mod topologies;

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use configurations::Target;
use keeper::Published;
use lookups::Lookups;
use server::Webhooks;

use super::readiness::Handle;
use super::watches::Stores;
use super::{Context, Error};
use crate::api::names::object;

/// How the queues of pods are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum QueueLabels {
    /// The queue label is added to pods, and pods with an unsuitable queue are refused.
    Enforce,
    /// The queue label is added to pods, and pods with an unsuitable queue draw a warning.
    Warn,
    /// Not at all: a pod with an unsuitable queue stays pending, with the reason in its condition and an event.
    Off,
}

/// What the API server does with requests while no webhook answers (`failurePolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailurePolicy {
    /// It refuses those that the webhooks select.
    Fail,
    /// It accepts them without review.
    Ignore,
}

impl FailurePolicy {
    /// Its name in the API.
    #[must_use]
    pub fn as_api(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// The objects for which the webhooks are registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Pods and topologies.
    pub pods: bool,
    /// Queues.
    pub queues: bool,
    /// Pod groups.
    pub pod_groups: bool,
    /// Only pods with all of these labels.
    pub pod_labels: BTreeMap<String, String>,
    /// Only pods of namespaces with all of these labels.
    pub namespace_labels: BTreeMap<String, String>,
    /// Only pods of namespaces with the queue label.
    pub namespaces_with_queue: bool,
}

impl Default for Scope {
    /// All objects.
    fn default() -> Self {
        Self {
            pods: true,
            queues: true,
            pod_groups: true,
            pod_labels: BTreeMap::new(),
            namespace_labels: BTreeMap::new(),
            namespaces_with_queue: false,
        }
    }
}

/// The settings of the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Our namespace: its pods are exempt, and the certificate is stored in it.
    pub namespace: String,
    /// The objects for which the webhooks are registered.
    pub scope: Scope,
    /// Pods with this `spec.schedulerName` are ours.
    pub scheduler_name: String,
    /// The label that names a pod's queue.
    pub queue_label_key: String,
    /// How the queues of pods are checked.
    pub queue_labels: QueueLabels,
    /// Whether pods may share GPUs.
    pub gpu_sharing: bool,
    /// The extended resources that are whole GPUs.
    pub gpu_resources: Vec<String>,
    /// The runtime class of pods that share a GPU; empty for none.
    pub gpu_fraction_runtime_class: String,
    /// Whether containers are prevented from choosing GPUs by themselves.
    pub block_nvidia_visible_devices: bool,
    /// Whether containers that share a GPU get the memory limit that HAMi-core enforces.
    pub hami_core: bool,
    /// The rules for queues.
    pub queue_rules: queues::Rules,
    /// What the API server does with requests while no webhook answers.
    pub failure_policy: FailurePolicy,
    /// The authorities of allowed client certificates, as PEM; `None`: all clients are served.
    pub client_authorities: Option<String>,
    /// The address to listen on.
    pub address: SocketAddr,
    /// The URL or Service that the API server calls; `None`: the bound address, as in an embedded cluster.
    pub target: Option<Target>,
}

impl Settings {
    /// The namespaces whose pods are exempt.
    #[must_use]
    pub fn exempt_namespaces(&self) -> [&str; 2] {
        ["kube-system", &self.namespace]
    }
}

/// The server of the webhooks, which keeps running while the component that answers is replaced.
#[derive(Default)]
pub struct WebhookServer {
    tls: watch::Sender<Option<Arc<ServerConfig>>>,
    answers: watch::Sender<Option<Arc<Webhooks>>>,
    open: watch::Sender<bool>,
}

impl fmt::Debug for WebhookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookServer").finish_non_exhaustive()
    }
}

impl WebhookServer {
    /// Serves on `listener` until `end`. Starts once there are a certificate and a handler.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, end: CancellationToken) -> Result<(), Error> {
        let (tls, answers) = (self.tls.subscribe(), self.answers.subscribe());
        let served = server::serve(listener, tls, answers, &self.open, end).await;
        served.map_err(Error::Listener)
    }

    /// The routes of the webhooks, for callers in this process.
    pub fn router(&self) -> axum::Router {
        server::router(self.answers.subscribe())
    }

    /// Sets or replaces the handler once namespaces and queues are known; before, pods would get wrong queues. Without them the process is not ready either.
    async fn admit(&self, webhooks: Webhooks, stores: &Stores, readiness: &Handle) {
        stores.namespaces.listed().await;
        stores.queues.listed().await;
        self.answers.send_replace(Some(Arc::new(webhooks)));
        // `self` has the sender, so the channel is open.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        readiness.ready();
    }
}

/// Handles requests of the webhooks served at `address`, and maintains the certificates and configurations, until shutdown.
///
/// # Errors
/// None; the signature is that of a component.
pub async fn run(
    context: Context,
    settings: Settings,
    address: SocketAddr,
    stores: Arc<Stores>,
    webhook_server: Arc<WebhookServer>,
) -> Result<(), Error> {
    let target = settings
        .target
        .clone()
        .unwrap_or_else(|| Target::Url(format!("https://{address}")));
    let (bundle, trusted) = watch::channel(None);
    let (registered, seen) = watch::channel(None);
    let certificates = keeper::keep_certificates(
        context.clone(),
        settings.namespace.clone(),
        names(&settings, &target),
        Published {
            tls: webhook_server.tls.clone(),
            bundle,
            registered: seen,
            clients: settings.client_authorities.clone(),
        },
    );
    let configurations = keeper::keep_configurations(
        context.clone(),
        settings.clone(),
        target,
        trusted,
        registered,
        Arc::clone(&stores),
    );
    let readiness = context.readiness.handle("webhooks", "not served yet");
    let webhooks = Webhooks::new(Lookups::new(&context, Arc::clone(&stores)), settings);
    let answer = context
        .shutdown
        .run_until_cancelled(webhook_server.admit(webhooks, &stores, &readiness));
    tokio::join!(
        answer,
        keeper::named("certificates", certificates),
        keeper::named("configurations", configurations),
    );
    Ok(())
}

/// Host names and addresses by which the API server calls the webhooks.
fn names(settings: &Settings, target: &Target) -> Vec<String> {
    let (name, namespace) = (object::OPERATOR, &settings.namespace);
    let mut names = vec![
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
    ];
    match target {
        Target::Url(url) => names.extend(url.parse().ok().as_ref().and_then(certificates::host)),
        Target::Service { name, namespace } if name != object::OPERATOR || *namespace != settings.namespace => {
            names.push(format!("{name}.{namespace}.svc"));
        }
        Target::Service { .. } => {}
    }
    names
}
