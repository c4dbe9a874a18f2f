//! Maintains the Secret with the certificates and the webhook configurations. Both are watched, so that changes by others are corrected at
//! once, and nothing is written without need.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use rustls::ServerConfig;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Settings;
use super::certificates::{self, Pair, Pairs, Plan};
use super::configurations::{self, Configuration, Desired, Target};
use super::known_queues::KnownQueues;
use super::lookups;
use crate::api::names::{label, object};
use crate::clock;
use crate::components::Context;
use crate::components::owner::Owner;
use crate::components::watches::{self, Stores};

/// Delay before a failed write is repeated.
const RETRY: Duration = Duration::from_secs(2);
/// How long a certificate is served before the one that it replaces is no longer trusted: other replicas may change over a little later.
const SETTLE: Duration = Duration::from_secs(10);
/// Maximum sleep, since clocks are adjusted and machines are suspended.
const SLEEP_MAX: Duration = Duration::from_secs(600);

/// The authorities of every webhook of ours in the API server, as PEM; `None` before they are listed.
pub type Registered = Option<BTreeSet<String>>;

/// The certificates in use, for the other parts of admission.
#[derive(Debug)]
pub struct Published {
    /// The TLS configuration to serve with.
    pub tls: watch::Sender<Option<Arc<ServerConfig>>>,
    /// The authorities to trust, as PEM.
    pub bundle: watch::Sender<Option<String>>,
    /// The authorities that the API servers trust.
    pub registered: watch::Receiver<Registered>,
    /// The authorities of allowed client certificates, as PEM.
    pub clients: Option<String>,
}

/// Maintains the certificates for `names` until shutdown, and publishes them.
pub async fn keep_certificates(context: Context, namespace: String, names: Vec<String>, published: Published) {
    let mut keeper = CertificateKeeper {
        context,
        namespace,
        names,
        published,
        secret: None,
        last: Pairs::default(),
        served: None,
        served_since: Instant::now(),
    };
    let shutdown = keeper.context.shutdown.clone();
    shutdown.run_until_cancelled(keeper.run()).await;
}

struct CertificateKeeper {
    context: Context,
    namespace: String,
    names: Vec<String>,
    published: Published,
    secret: Option<Secret>,
    /// The pair to serve, with its names: restored if the Secret is emptied.
    last: Pairs,
    /// The certificate that is served.
    served: Option<String>,
    served_since: Instant,
}

impl CertificateKeeper {
    async fn run(&mut self) {
        let api: Api<Secret> = Api::namespaced(self.context.watches.clone(), &self.namespace);
        let config = watches::config(&self.context.settings);
        let only = config.fields(&format!("metadata.name={}", object::WEBHOOK_SECRET));
        let mut events = watcher(api, only).default_backoff().boxed();
        let mut leading = self.context.leading.clone();
        let mut registered = self.published.registered.clone();
        let mut synced = false;
        let mut sleep = SLEEP_MAX;
        loop {
            tokio::select! {
                Some(event) = events.next() => match event {
                    Ok(watcher::Event::Init) => {
                        self.secret = None;
                        synced = false;
                    }
                    Ok(watcher::Event::InitApply(secret) | watcher::Event::Apply(secret)) => self.secret = Some(secret),
                    Ok(watcher::Event::InitDone) => synced = true,
                    Ok(watcher::Event::Delete(_)) => self.secret = None,
                    Err(error) => warn!(%error, secret = object::WEBHOOK_SECRET, "the webhooks' certificate cannot be watched; trying again"),
                },
                Ok(()) = leading.changed() => {}
                Ok(()) = registered.changed() => {}
                () = tokio::time::sleep(sleep) => {}
            }
            if synced {
                sleep = self.step().await;
            }
        }
    }

    /// Executes what is due; returns when to call it again.
    async fn step(&mut self) -> Duration {
        let now = clock::now();
        let pairs = Pairs::from_data(&data_of(self.secret.as_ref()));
        self.publish(&pairs, now);
        let restored = if pairs.pairs.is_empty() {
            self.last.restored(&self.names, now)
        } else {
            Ok(None)
        };
        let plan = match restored {
            Ok(Some(restored)) => Ok(Plan::Store(restored)),
            Ok(None) => pairs.plan(&self.names, now),
            Err(error) => Err(error),
        };
        match plan {
            Ok(Plan::Keep(until)) => {
                let span = Duration::try_from(until.duration_since(now)).unwrap_or_default();
                span.clamp(Duration::from_secs(1), SLEEP_MAX)
            }
            // API servers may not trust another one yet, or still reach a replica that serves it.
            Ok(Plan::Store(next)) if pairs.loses(&next, now) && !self.is_settled(&next) => SETTLE,
            Ok(Plan::Store(next)) => {
                self.store(&next).await;
                RETRY
            }
            Err(error) => {
                warn!(%error, "no certificate for the webhooks could be issued");
                RETRY
            }
        }
    }

    /// Writes the Secret: any replica creates it, only the leader changes it. The API server lets the first write win, and the
    /// watch shows the result.
    async fn store(&mut self, pairs: &Pairs) {
        let how = PostParams::default();
        let data = pairs
            .to_data()
            .into_iter()
            .map(|(key, value)| (key, ByteString(value)))
            .collect();
        let written = match &self.secret {
            None => {
                let api: Api<Secret> = Api::namespaced(self.context.reads.clone(), &self.namespace);
                let secret = Secret {
                    metadata: self.metadata(),
                    data: Some(data),
                    type_: Some("Opaque".to_owned()),
                    ..Secret::default()
                };
                api.create(&how, &secret).await
            }
            Some(_) if !self.context.is_leading() => return,
            Some(live) => {
                let api: Api<Secret> = Api::namespaced(self.context.writes.clone(), &self.namespace);
                api.replace(
                    object::WEBHOOK_SECRET,
                    &how,
                    &Secret {
                        data: Some(data),
                        ..live.clone()
                    },
                )
                .await
            }
        };
        match written {
            Ok(secret) => {
                info!(secret = object::WEBHOOK_SECRET, "webhook certificate stored");
                self.publish(&Pairs::from_data(&data_of(Some(&secret))), clock::now());
                self.secret = Some(secret);
            }
            Err(error) if is_conflict(&error) => {}
            Err(error) => {
                warn!(%error, ns = self.namespace, "the webhooks' certificate cannot be stored; trying again");
            }
        }
    }

    /// The pair to serve.
    fn served<'a>(&self, pairs: &'a Pairs, now: Timestamp) -> Option<&'a Pair> {
        let registered = self.published.registered.borrow();
        let is_registered = |pair: &Pair| {
            let everywhere =
                |all: &BTreeSet<String>| all.iter().all(|authorities| authorities.contains(&pair.authority));
            registered.as_ref().is_some_and(everywhere)
        };
        pairs.served_if(is_registered, now)
    }

    /// Whether one of these pairs has been served for a while.
    fn is_settled(&self, pairs: &Pairs) -> bool {
        let is_served = |pair: &Pair| self.served.as_ref() == Some(&pair.certificate);
        pairs.pairs.iter().any(is_served) && self.served_since.elapsed() >= SETTLE
    }

    fn publish(&mut self, pairs: &Pairs, now: Timestamp) {
        let Some(served) = self.served(pairs, now) else { return };
        self.last = Pairs {
            names: pairs.names.clone(),
            pairs: vec![served.clone()],
        };
        metrics::gauge!("unikai_certificate_expiry_timestamp_seconds").set(served.expires_at().as_second() as f64);
        self.published.bundle.send_if_modified(|bundle| {
            let next = Some(pairs.bundle());
            let changed = *bundle != next;
            *bundle = next;
            changed
        });
        if self.served.as_ref() == Some(&served.certificate) {
            return;
        }
        match certificates::server_config(served, self.published.clients.as_deref()) {
            Ok(config) => {
                self.served = Some(served.certificate.clone());
                self.served_since = Instant::now();
                self.published.tls.send_replace(Some(config));
            }
            Err(error) => warn!(%error, "the webhooks' certificate cannot be served"),
        }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(object::WEBHOOK_SECRET.to_owned()),
            namespace: Some(self.namespace.clone()),
            labels: Some(BTreeMap::from([(
                label::MANAGED_BY.to_owned(),
                object::OPERATOR.to_owned(),
            )])),
            ..ObjectMeta::default()
        }
    }
}

fn data_of(secret: Option<&Secret>) -> BTreeMap<String, Vec<u8>> {
    let data = secret.and_then(|secret| secret.data.as_ref());
    data.into_iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.clone()))
        .collect()
}

/// Maintains the webhook configurations until shutdown, while this process leads.
pub async fn keep_configurations(
    context: Context,
    settings: Settings,
    target: Target,
    mut bundle: watch::Receiver<Option<String>>,
    registered: watch::Sender<Registered>,
    stores: Arc<Stores>,
) {
    let readiness = context
        .readiness
        .handle("webhook-configurations", "not registered with the API server yet");
    let mut mutating = Live::<MutatingWebhookConfiguration>::new(&context);
    let mut validating = Live::<ValidatingWebhookConfiguration>::new(&context);
    let mut leading = context.leading.clone();
    let mut queues = stores.queues.changes();
    // They may be listed already.
    queues.mark_changed();
    let mut known = KnownQueues::default();
    let mut retry_at = None;
    let mut owner = Owner::Unknown;
    let keep = async {
        loop {
            let prepared = bundle.borrow().is_some() && mutating.synced && validating.synced;
            let wake = retry_at.into_iter().chain(known.due()).min().filter(|_| prepared);
            tokio::select! {
                Some(event) = mutating.events.next() => mutating.see(event),
                Some(event) = validating.events.next() => validating.see(event),
                Ok(()) = bundle.changed() => {}
                Ok(()) = leading.changed() => {}
                Ok(()) = queues.changed() => {
                    if !known.see(lookups::open_leaves(&stores), Instant::now()) {
                        continue;
                    }
                }
                () = sleep_or_wait(wake) => {}
            }
            retry_at = None;
            if !(mutating.synced && validating.synced) {
                continue;
            }
            let seen: Registered = Some(mutating.authorities().chain(validating.authorities()).collect());
            registered.send_if_modified(|known| {
                let changed = *known != seen;
                *known = seen;
                changed
            });
            let Some(pem) = bundle.borrow_and_update().clone() else {
                continue;
            };
            let leaves = known.tell(Instant::now());
            let mut desired = configurations::desired(&settings, &target, &pem, leaves, owner.reference());
            if context.is_leading() && !(owner.is_known() && is_right(&mutating, &validating, &desired)) {
                let owned = mutating.is_owned() || validating.is_owned();
                owner = owner.look_up(&context, owned, "webhooks are registered").await;
                if !owner.is_known() {
                    retry_at = Some(Instant::now() + RETRY);
                    continue;
                }
                desired = configurations::desired(&settings, &target, &pem, leaves, owner.reference());
            }
            let mut right = mutating.reconcile(&context, &desired.mutating).await;
            for configuration in &desired.validating {
                right &= validating.reconcile(&context, configuration).await;
            }
            if right {
                readiness.ready();
            } else {
                retry_at = Some(Instant::now() + RETRY);
            }
        }
    };
    context.shutdown.run_until_cancelled(keep).await;
}

fn is_right(
    mutating: &Live<MutatingWebhookConfiguration>,
    validating: &Live<ValidatingWebhookConfiguration>,
    desired: &Desired,
) -> bool {
    mutating.is_right(&desired.mutating) && desired.validating.iter().all(|one| validating.is_right(one))
}

async fn sleep_or_wait(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// The configurations of one kind, as last seen.
struct Live<K> {
    events: BoxStream<'static, watcher::Result<watcher::Event<K>>>,
    objects: BTreeMap<String, K>,
    /// They are complete: no list is under way.
    synced: bool,
}

impl<K> Live<K>
where
    K: Configuration
        + Resource<DynamicType = ()>
        + DeserializeOwned
        + serde::Serialize
        + std::fmt::Debug
        + Send
        + 'static,
    K: Resource<Scope = k8s_openapi::ClusterResourceScope>,
{
    fn new(context: &Context) -> Self {
        let api: Api<K> = Api::all(context.watches.clone());
        let config = watches::config(&context.settings);
        Self {
            events: watcher(api, config).default_backoff().boxed(),
            objects: BTreeMap::new(),
            synced: false,
        }
    }

    fn see(&mut self, event: watcher::Result<watcher::Event<K>>) {
        match event {
            Ok(watcher::Event::Init) => {
                self.objects.clear();
                self.synced = false;
            }
            Ok(watcher::Event::InitApply(found) | watcher::Event::Apply(found)) => {
                self.objects.insert(found.name_any(), found);
            }
            Ok(watcher::Event::InitDone) => self.synced = true,
            Ok(watcher::Event::Delete(gone)) => {
                self.objects.remove(&gone.name_any());
            }
            Err(error) => {
                warn!(%error, kind = %K::kind(&()), "webhook configurations cannot be watched; trying again");
            }
        }
    }

    fn is_right(&self, desired: &K) -> bool {
        self.objects
            .get(&desired.name_any())
            .is_some_and(|live| desired.onto(live) == *live)
    }

    /// The authorities of the webhooks in our configurations.
    fn authorities(&self) -> impl Iterator<Item = String> {
        let ours = object::WEBHOOKS.iter().filter_map(|name| self.objects.get(*name));
        ours.flat_map(Configuration::authorities)
    }

    /// Whether our ClusterRole owns any of them.
    fn is_owned(&self) -> bool {
        self.objects.values().any(Owner::has)
    }

    /// Makes the configuration what it is to be, if this process leads. Answers whether it is; to a process that does not lead,
    /// what it is to be is the leader's business, as long as there is one.
    async fn reconcile(&mut self, context: &Context, desired: &K) -> bool {
        let name = desired.name_any();
        let live = self.objects.get(&name);
        let wanted = live.map_or_else(|| desired.clone(), |live| desired.onto(live));
        if live == Some(&wanted) {
            return true;
        }
        if !context.is_leading() {
            return live.is_some();
        }
        let (api, how) = (Api::<K>::all(context.writes.clone()), PostParams::default());
        let written = if live.is_some() {
            api.replace(&name, &how, &wanted).await
        } else {
            api.create(&how, &wanted).await
        };
        match written {
            Ok(written) => {
                info!(name, kind = %K::kind(&()), "webhook configuration written");
                let right = desired.onto(&written) == written;
                self.objects.insert(name, written);
                right
            }
            Err(error) if is_conflict(&error) => false,
            Err(error) => {
                warn!(%error, name, "the webhook configuration cannot be written; trying again");
                false
            }
        }
    }
}

/// Whether another client's write came first; the watch shows it.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Spans `future` with the task's name.
pub fn named(name: &'static str, future: impl Future<Output = ()>) -> impl Future<Output = ()> {
    tracing::Instrument::instrument(future, tracing::info_span!("admission", task = name))
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
