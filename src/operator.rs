//! Floor 5: wiring of the components into one process.
//!
//! [`Operator::start`] starts every component and returns at once; [`Running`] is the handle on them. `unikai run` and the
//! embedded cluster use the same one. The order at the end: components finish what is under way while the lease is still
//! renewed, then the lease is given up, then the servers stop. Absent: any decision.

pub mod access;
pub mod bootstrap;
pub mod client;
pub mod fence;
pub mod http;
pub mod lease;
pub mod metrics;
pub mod settings;
pub mod shutdown;
pub mod supervisor;
pub mod telemetry;
mod writes;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span};

use crate::components::bus::{self, Bus, Inboxes, Kind};
use crate::components::figures::Figures;
use crate::components::leadership;
use crate::components::pulse::Pulse;
use crate::components::readiness::Readiness;
use crate::components::watches::Stores;
use crate::components::{self, BACKGROUND_WRITES, admission};
use crate::engine::policy::Policy;
use crate::mirror::{self, Home, Shard};

use lease::Elector;
use settings::Settings;
use supervisor::Supervisor;

/// How long components may take to finish. Kubernetes gives the process 30 s in all.
const DRAIN: Duration = Duration::from_secs(20);

/// The operator; see [`Operator::start`].
#[derive(Debug)]
pub struct Operator;

/// An operator that runs, and the handle on it. Dropping it kills the operator as `kill -9` would.
#[derive(Debug)]
pub struct Running {
    /// Where health, metrics and state are served.
    pub http: SocketAddr,
    /// Where the webhooks are served.
    pub webhooks: SocketAddr,
    /// What the election has come to, as it changes.
    pub election: watch::Receiver<lease::Status>,
    /// Whether the scheduler's thread gets on with its work.
    pub pulse: Pulse,
    readiness: Readiness,
    shutdown: CancellationToken,
    supervised: JoinHandle<anyhow::Result<()>>,
}

/// The three ends: of the components' work, of leading, of the servers.
#[derive(Debug, Clone, Default)]
struct Ends {
    shutdown: CancellationToken,
    release: CancellationToken,
    servers: CancellationToken,
}

impl Operator {
    /// Starts the operator for the cluster of `config`. What goes wrong with the API server later is waited out.
    ///
    /// # Errors
    /// When an address cannot be bound or a client cannot be set up.
    pub async fn start(config: &kube::Config, settings: Settings) -> anyhow::Result<Running> {
        let figures = Figures::default();
        let page = metrics::Page::new(figures.clone(), settings.metrics_namespace.clone());
        let clients = client::connect(config, settings.patience, settings.lease.request_timeout())?;
        let http = http::bind(settings.http_address).await?;
        let webhooks = listen(settings.admission.address)?;
        let (leads, leading) = watch::channel(None);
        let pulse = Pulse::default();
        let ends = Ends::default();
        let readiness = Readiness::default();
        expect(&readiness);
        let lease = settings.lease.clone();
        let alive = http::alive(pulse.clone(), lease.duration);
        let elector = Elector::new(&clients, lease, settings.components.watch_timeout, pulse.clone(), leads);
        let election = elector.status();
        let context = components::Context {
            reads: clients.reads,
            watches: clients.watches,
            writes: leadership::writes(leading.clone()),
            settings: Arc::new(settings.components.clone()),
            leading,
            only_term: None,
            shutdown: ends.shutdown.clone(),
            readiness: readiness.clone(),
            background: Arc::new(Semaphore::new(BACKGROUND_WRITES)),
            figures,
            pulse: pulse.clone(),
        };

        let stores = Arc::new(Stores::default());
        let mut channels = bus::channels();
        let mut work = Supervisor::default();
        if let Some(tracer) = telemetry::tracer() {
            let (traces, inbox) = bus::Traces::channel();
            channels.0.traces = traces;
            work.start("traces", components::traces::run(ends.shutdown.clone(), inbox, tracer));
        }
        // The page is served longer than the components work, and traces ends with the last that tells it anything.
        let page_bus = Bus {
            traces: bus::Traces::default(),
            ..channels.0.clone()
        };
        let describe = describe(election.clone(), page_bus, Arc::clone(&stores));
        start_components(&mut work, &context, &stores, channels, &settings);
        let running = Running {
            http: http.address,
            webhooks: webhooks.local_addr()?,
            election,
            pulse,
            readiness: readiness.clone(),
            shutdown: ends.shutdown.clone(),
            supervised: {
                let mut services = Supervisor::default();
                let (release, servers) = (ends.release.clone(), ends.servers.clone());
                services.start("leader election", elector.run(release));
                services.start(
                    "http server",
                    http.serve(
                        http::Shown {
                            alive,
                            readiness,
                            describe,
                            metrics: page,
                            access: access::Access::new(context.reads.clone()),
                            protect_metrics: settings.protect_metrics,
                        },
                        servers.clone(),
                    ),
                );
                services.start(
                    "admission",
                    admission::run(context, settings.admission, webhooks, stores, servers),
                );
                tokio::spawn(supervise(work, services, ends).instrument(info_span!("operator")))
            },
        };
        info!(http = %running.http, webhooks = %running.webhooks, "operator started");
        Ok(running)
    }
}

/// What must report before the process is ready. Said here because the tasks that report may begin later than someone asks.
fn expect(readiness: &Readiness) {
    let watches = Kind::ALL.iter().map(|kind| format!("watch-{}", kind.plural()));
    let others = ["scheduler", "webhooks", "webhook-configurations"].map(str::to_owned);
    for name in watches.chain(others) {
        // The handle may go: the component takes one of the same name.
        let _ = readiness.handle(name, "starting");
    }
}

/// Starts what finishes its work before the lease is given up.
fn start_components(
    work: &mut Supervisor,
    context: &components::Context,
    stores: &Arc<Stores>,
    channels: (Bus, Inboxes),
    settings: &Settings,
) {
    let mirror = mirror_settings(&settings.components);
    let policy = policy(&settings.components, &mirror.shard);
    for (name, component) in components::start(context, stores, channels, mirror, policy) {
        work.adopt(name, component);
    }
    if settings.create_default_queues {
        let default_queue = settings.components.default_queue.clone();
        work.start("bootstrap", bootstrap::run(context.clone(), default_queue));
    }
}

/// What the engine goes by.
fn policy(settings: &components::Settings, shard: &Shard) -> Policy {
    Policy {
        disruption_budgets: settings.disruption_budgets,
        detailed_errors: settings.detailed_fit_errors,
        node_pool: shard.pool().to_owned(),
        ..Policy::default()
    }
}

/// What the mirror goes by: the part of the settings that says which objects are ours.
fn mirror_settings(settings: &components::Settings) -> mirror::Settings {
    let usual = mirror::Settings::default();
    mirror::Settings {
        numa: settings.numa.clone(),
        config_maps: settings.config_maps,
        home: Some(Home {
            label: settings.queue_label_key.clone(),
            default: settings.default_queue.clone(),
        }),
        gpu_resources: [usual.gpu_resources.as_slice(), settings.gpu_resources.as_slice()].concat(),
        scheduler_name: settings.scheduler_name.clone(),
        shard: Shard {
            key: settings.node_pool_label_key.clone(),
            value: settings.node_pool.clone().unwrap_or_default(),
        },
        ..usual
    }
}

/// Watches over the tasks until the end, and then sees to its order.
async fn supervise(mut work: Supervisor, mut services: Supervisor, ends: Ends) -> anyhow::Result<()> {
    let early = tokio::select! {
        biased;
        () = ends.shutdown.cancelled() => None,
        ended = work.next_end() => Some(ended),
        ended = services.next_end() => Some(ended),
    };
    let result = early.map_or(Ok(()), |ended| Err(ended.into_error()));
    if let Err(error) = &result {
        error!(error = %format!("{error:#}"), "a component ended; ending the process");
    }
    ends.shutdown.cancel();
    let mut late = work.drain(DRAIN).await;
    ends.release.cancel();
    ends.servers.cancel();
    late.extend(services.drain(DRAIN / 4).await);
    for ended in late {
        error!(error = %format!("{:#}", ended.into_error()), "a component did not end well");
    }
    result
}

impl Running {
    /// Returns when everything is ready: the cluster is known, webhooks are served and registered.
    pub async fn ready(&self) {
        self.readiness.all_ready().await;
    }

    /// What is not ready yet, as (name, reason).
    #[must_use]
    pub fn waiting(&self) -> Vec<(String, String)> {
        self.readiness.waiting()
    }

    /// Cancel it to end the operator in good order.
    #[must_use]
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Returns when the operator has ended, in good order or because a component did.
    ///
    /// # Errors
    /// Why it ended, if it was not told to.
    pub async fn ended(mut self) -> anyhow::Result<()> {
        let ended = (&mut self.supervised).await;
        ended.context("the supervisor failed")?
    }

    /// Ends it in good order.
    ///
    /// # Errors
    /// Why it had ended before, if it had.
    pub async fn shut_down(self) -> anyhow::Result<()> {
        self.shutdown.cancel();
        self.ended().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The tasks belong to the supervised one and are aborted with it.
        self.supervised.abort();
    }
}

fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("--webhook-address {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What the state page shows.
fn describe(election: watch::Receiver<lease::Status>, bus: Bus, stores: Arc<Stores>) -> http::Describe {
    Arc::new(move || {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "election": *election.borrow(),
            "objects": stores.counts(),
            "inboxes": {
                "scheduler": waiting(&bus.scheduler),
                "grouper": waiting(&bus.grouper),
                "binder": waiting(&bus.binder),
                "podgroups": waiting(&bus.podgroups),
                "queues": waiting(&bus.queues),
            },
        })
    })
}

/// How full an inbox is.
fn waiting<T>(inbox: &tokio::sync::mpsc::Sender<T>) -> Value {
    json!({"waiting": inbox.max_capacity() - inbox.capacity(), "bound": inbox.max_capacity()})
}

#[cfg(test)]
mod tests;
