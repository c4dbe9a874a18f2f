//! Admission: the webhooks that look at objects before the API server takes them.
//!
//! - `review` is the question and the answer; `pods`, `queues`, `pod_groups`, `topologies` are the rules, pure functions;
//! - `hints` are warnings about what is allowed and hardly meant;
//! - `lookups` finds out what the rules must know of the cluster;
//! - `known_queues` decides which queues the API server need not ask about;
//! - `certificates` decides which certificate is issued and served when, `configurations` what the API server is told of the
//!   webhooks; `keeper` watches and writes both;
//! - `server` listens; `connections` and `body` bound what it takes in, `handshakes` tells of TLS that fails.
//!
//! Every replica serves; only the leader writes, except for the very first certificate, which whoever comes first makes.
//! Pods of other schedulers never get here: the API server is told not to ask about them.

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

/// What is done about the queues of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum QueueLabels {
    /// Every pod is given the label of its queue, and one whose queue cannot run it is refused.
    Enforce,
    /// Every pod is given the label of its queue; who creates one whose queue cannot run it is warned.
    Warn,
    /// Nothing; a pod whose queue cannot run it waits, and its condition and an event say why.
    Off,
}

/// What becomes of requests while no webhook answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum FailurePolicy {
    /// They are refused; only those that concern us.
    Fail,
    /// They pass unseen.
    Ignore,
}

impl FailurePolicy {
    /// As the API writes it.
    #[must_use]
    pub fn as_api(self) -> &'static str {
        match self {
            Self::Fail => "Fail",
            Self::Ignore => "Ignore",
        }
    }
}

/// What the API server is told to ask about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Pods and topologies.
    pub pods: bool,
    /// Queues.
    pub queues: bool,
    /// Pod groups.
    pub pod_groups: bool,
    /// Of pods only those with all of these labels.
    pub pod_labels: BTreeMap<String, String>,
    /// And of them only those of namespaces with all of these labels.
    pub namespace_labels: BTreeMap<String, String>,
    /// And of those only of namespaces that have the queue label.
    pub namespaces_with_queue: bool,
}

impl Default for Scope {
    /// Everything.
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

/// What the webhooks are to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Our namespace: pods in it are let be, and the certificate is stored in it.
    pub namespace: String,
    /// What the API server is told to ask about.
    pub scope: Scope,
    /// Pods with this `spec.schedulerName` are ours.
    pub scheduler_name: String,
    /// The label that names a pod's queue.
    pub queue_label_key: String,
    /// What is done about the queues of pods.
    pub queue_labels: QueueLabels,
    /// Whether pods may share GPUs.
    pub gpu_sharing: bool,
    /// The extended resources that are whole GPUs.
    pub gpu_resources: Vec<String>,
    /// The runtime class of pods that share a GPU; empty for none.
    pub gpu_fraction_runtime_class: String,
    /// Whether containers are kept from choosing GPUs by themselves.
    pub block_nvidia_visible_devices: bool,
    /// Whether containers that share a GPU learn the memory that HAMi-core is to hold them to.
    pub hami_core: bool,
    /// What is asked of queues.
    pub queue_rules: queues::Rules,
    /// What becomes of requests while no webhook answers.
    pub failure_policy: FailurePolicy,
    /// The authorities whose clients alone are served, as PEM; `None`: whoever comes.
    pub client_authorities: Option<String>,
    /// Where to listen.
    pub address: SocketAddr,
    /// Where the API server finds us; `None`: at the address that was bound, as in an embedded cluster.
    pub target: Option<Target>,
}

impl Settings {
    /// The namespaces where pods are let be.
    #[must_use]
    pub fn exempt_namespaces(&self) -> [&str; 2] {
        ["kube-system", &self.namespace]
    }
}

/// The server of the webhooks, which stays while those change who answer.
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
    /// Serves on `listener` until `end`. Begins when there is a certificate, and somebody to answer.
    ///
    /// # Errors
    /// When the listener breaks.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, end: CancellationToken) -> Result<(), Error> {
        let (tls, answers) = (self.tls.subscribe(), self.answers.subscribe());
        let served = server::serve(listener, tls, answers, &self.open, end).await;
        served.map_err(Error::Listener)
    }

    /// What is served, for callers in this process.
    #[must_use]
    pub fn router(&self) -> axum::Router {
        server::router(self.answers.subscribe())
    }

    /// Has these answer from now on; where others do, once the queues are known.
    async fn admit(&self, webhooks: Webhooks, stores: &Stores, readiness: &Handle) {
        if self.answers.borrow().is_some() {
            stores.namespaces.listed().await;
            stores.queues.listed().await;
        }
        self.answers.send_replace(Some(Arc::new(webhooks)));
        // The sender is here, so it does not go.
        let _ = self.open.subscribe().wait_for(|open| *open).await;
        readiness.ready();
    }
}

/// Answers for the webhooks that are served at `address`, and keeps the certificates and configurations, until shutdown.
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
    let certificates = keeper::keep_certificates(
        context.clone(),
        settings.namespace.clone(),
        names(&settings, &target),
        Published {
            tls: webhook_server.tls.clone(),
            bundle,
            clients: settings.client_authorities.clone(),
        },
    );
    let configurations =
        keeper::keep_configurations(context.clone(), settings.clone(), target, trusted, Arc::clone(&stores));
    let readiness = context.readiness.handle("webhooks", "no certificate yet");
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

/// The names by which the API server reaches us.
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
