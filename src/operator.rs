//! Wiring of the components into one process.
//!
//! [`Operator::start`] starts every component and returns at once; [`Running`] is the handle on them. `unikai run` and the
//! embedded cluster use the same one. Shutdown order: components finish open work while the lease is still
//! renewed, then the lease is released, then the servers stop; webhooks behind a Service answer for some seconds more.

pub mod access;
pub mod bootstrap;
pub mod client;
mod compression;
mod configuration;
mod elections;
pub mod fence;
pub mod http;
mod inspection;
pub mod lease;
pub mod metrics;
pub mod page;
pub mod profile;
mod prometheus;
mod rounds;
pub mod settings;
pub mod shutdown;
pub mod supervisor;
pub mod telemetry;
mod unread;
mod views;
mod writes;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span};

use crate::components::admission::WebhookServer;
use crate::components::admission::configurations::Target;
use crate::components::figures::Figures;
use crate::components::heartbeat::Heartbeat;
use crate::components::history::History;
use crate::components::leadership::Pools;
use crate::components::readiness::Readiness;
use crate::components::scheduler::Followed;
use crate::components::watches::Stores;
use crate::components::{leadership, watches};
use crate::config::{Resolved, Resolver};

use configuration::{Configuration, Leader};
use elections::{Elections, Shards};
use inspection::Inspection;
use rounds::{InForce, Round, Rounds, Shown};
use settings::Settings;
use supervisor::{Ended, Supervisor};
use views::{Gatherer, Views};

/// How long webhooks behind a Service are answered after a shutdown began: API servers call a pod until they see that it is no longer an endpoint. It is less
/// than [`rounds::DRAIN`], so that a shutdown takes no longer with it.
const STAY: Duration = Duration::from_secs(5);

/// The operator; see [`Operator::start`].
#[derive(Debug)]
pub struct Operator;

/// Handle on a running operator. Dropping it aborts all tasks, like `kill -9`.
#[derive(Debug)]
pub struct Running {
    /// Where health, metrics and state are served.
    pub http: SocketAddr,
    /// Where the webhooks are served.
    pub webhooks: SocketAddr,
    /// The state of leader election.
    pub election: watch::Receiver<lease::Status>,
    /// Watchdog of the scheduler's thread.
    pub heartbeat: Heartbeat,
    readiness: Readiness,
    webhook_server: Arc<WebhookServer>,
    shutdown: CancellationToken,
    supervised: JoinHandle<anyhow::Result<()>>,
}

/// Cancellation of the components, of leader election, of the servers.
#[derive(Debug, Clone, Default)]
struct Ends {
    shutdown: CancellationToken,
    release: CancellationToken,
    servers: CancellationToken,
}

impl Operator {
    /// Starts the operator for the cluster of `config`. Later failures of the API server are retried.
    ///
    /// # Errors
    /// When an address cannot be bound or a client cannot be set up.
    pub async fn start(config: &kube::Config, settings: Settings) -> anyhow::Result<Running> {
        let http = http::bind(settings.http_address).await?;
        begin(client::Reach::Network(Box::new(config.clone())), settings, http)
    }

    /// Starts it for an API server in this process.
    ///
    /// # Errors
    /// When an address cannot be bound.
    #[cfg(feature = "devcluster")]
    pub async fn start_in_process(server: client::InProcess, settings: Settings) -> anyhow::Result<Running> {
        let http = http::bind(settings.http_address).await?;
        begin(client::Reach::InProcess(server), settings, http)
    }
}

/// Starts everything, with the HTTP server bound.
fn begin(reach: client::Reach, settings: Settings, http: http::Bound) -> anyhow::Result<Running> {
    let Settings {
        common,
        lease,
        protect_metrics,
        create_default_queues,
        ..
    } = settings;
    let figures = Figures::default();
    let (metrics_namespace, prefix) = watch::channel(common.metrics_namespace.clone());
    let page = metrics::Page::new(figures.clone(), prefix);
    let clients = client::connect(reach, settings.timeouts, lease.request_timeout())?;
    let webhooks = listen(common.admission.address)?;
    let behind_service = matches!(common.admission.target, Some(Target::Service { .. }));
    let heartbeat = Heartbeat::default();
    let ends = Ends::default();
    let readiness = Readiness::default();
    let alive = http::alive(heartbeat.clone(), lease.duration);
    let (shards, with_lease) = watch::channel(Shards::default());
    let watch_timeout = common.components.watch_timeout;
    let divides = common.only_pool.is_none();
    let elections = Elections::new(&clients, lease, watch_timeout, heartbeat.clone(), with_lease, divides);
    let (leads, election, of_shards) = (elections.leads(), elections.status(), elections.of_shards());
    let leading = leads.watch();
    let (shown, seen) = watch::channel(None);
    let (in_force, resolved) = watch::channel(None);
    let (follows, followed) = watch::channel(Followed::default());
    let (missing, lacked) = watch::channel(None);
    let (told, answers) = watch::channel(None);
    let configuration = Configuration {
        watches: clients.watches.clone(),
        config: watches::config(&common.components),
        leader: Leader {
            writes: leadership::writes(leading.clone()),
            leading: leading.clone(),
            readiness: readiness.clone(),
            follows: followed,
            missing: lacked,
            prometheus: answers,
            figures: figures.clone(),
        },
        resolver: Resolver::new(common),
        in_force,
    };
    let history = History::default();
    let inspection = Arc::new(Inspection::new(seen.clone(), resolved.clone(), clients.reads.clone()));
    let access = Arc::new(access::Access::new(clients.reads.clone()));
    let elected = views::Elections {
        cluster: election.clone(),
        of_shards: of_shards.clone(),
    };
    let views = Arc::new(Views::new(
        Arc::clone(&access),
        Gatherer::new(seen.clone(), elected, history.clone()),
        Arc::clone(&inspection),
    ));
    let (served, reads) = (clients.served.clone(), clients.reads.clone());
    let address = webhooks.local_addr()?;
    let webhook_server = Arc::new(WebhookServer::default());
    let rounds = Rounds {
        clients,
        leads,
        readiness: readiness.clone(),
        figures,
        heartbeat: heartbeat.clone(),
        history,
        webhook_server: Arc::clone(&webhook_server),
        webhooks: address,
        create_default_queues,
        shown,
        metrics_namespace,
        follows,
        shards,
        missing,
    };
    rounds.expect();
    let running = Running {
        http: http.address,
        webhooks: address,
        election: election.clone(),
        heartbeat,
        readiness: readiness.clone(),
        webhook_server: Arc::clone(&webhook_server),
        shutdown: ends.shutdown.clone(),
        supervised: {
            let mut services = Supervisor::default();
            let (release, servers) = (ends.release.clone(), ends.servers.clone());
            let unneeded = ends.shutdown.clone();
            services.start("webhook server", webhook_server.serve(webhooks, servers.clone()));
            services.start("leader election", elections.run(release));
            services.start("api versions", {
                let (asking, ends) = (served.keep_asking(reads), servers.clone());
                async move {
                    ends.run_until_cancelled(asking).await;
                    anyhow::Ok(())
                }
            });
            services.start("configuration", async move {
                unneeded
                    .run_until_cancelled(Box::pin(configuration.run()))
                    .await
                    .unwrap_or(Ok(()))
            });
            services.start("prometheus check", {
                let (checking, ends) = (prometheus::run(resolved.clone(), told), servers.clone());
                async move { ends.run_until_cancelled(Box::pin(checking)).await.unwrap_or(Ok(())) }
            });
            services.start("history of queues", {
                let (views, ends) = (Arc::clone(&views), servers.clone());
                async move {
                    ends.run_until_cancelled(views.keep_history()).await;
                    anyhow::Ok(())
                }
            });
            services.start(
                "http server",
                http.serve(
                    http::Shown {
                        alive,
                        readiness,
                        describe: describe(election, of_shards, seen),
                        inspection,
                        metrics: page,
                        access,
                        views,
                        protect_metrics,
                    },
                    servers.clone(),
                ),
            );
            let stay = if behind_service { STAY } else { Duration::ZERO };
            tokio::spawn(supervise(rounds, resolved, services, ends, stay).instrument(info_span!("operator")))
        },
    };
    info!(http = %running.http, webhooks = %running.webhooks, "operator started");
    Ok(running)
}

/// Supervises the tasks and applies configuration changes until shutdown, then stops everything in order. `stay`: how long the servers answer after a
/// shutdown began.
async fn supervise(
    rounds: Rounds,
    mut resolved: watch::Receiver<InForce>,
    mut services: Supervisor,
    ends: Ends,
    stay: Duration,
) -> anyhow::Result<()> {
    let mut round: Option<Round> = None;
    let early = loop {
        tokio::select! {
            biased;
            () = ends.shutdown.cancelled() => break None,
            ended = services.next_end() => break Some(ended.into_error()),
            ended = next_end(&mut round) => break Some(cause(ended, &mut services).await),
            Ok(()) = resolved.changed() => {
                let Some((number, wanted)) = resolved.borrow_and_update().clone() else { continue };
                telemetry::set_json(wanted.json_log);
                match turn(&rounds, round.take(), number, &wanted, &ends.shutdown).await {
                    Ok(next) => round = next,
                    Err(error) => break Some(error),
                }
            }
        }
    };
    let result = early.map_or(Ok(()), Err);
    if let Err(error) = &result {
        error!(error = %format!("{error:#}"), "a component ended; ending the process");
    }
    ends.shutdown.cancel();
    let began = Instant::now();
    let mut late = Vec::new();
    if let Some(round) = &mut round {
        late.extend(round.end().await);
    }
    ends.release.cancel();
    // After a failure a new process must come soon.
    if result.is_ok() {
        sleep_until(began + stay).await;
    }
    ends.servers.cancel();
    late.extend(services.drain(rounds::END).await);
    for ended in late {
        error!(error = %format!("{:#}", ended.into_error()), "a component ended with an error");
    }
    result
}

/// Applies the effective configuration, in this round or in a new one. None begins during a shutdown.
async fn turn(
    rounds: &Rounds,
    round: Option<Round>,
    number: u64,
    wanted: &Resolved,
    shutdown: &CancellationToken,
) -> anyhow::Result<Option<Round>> {
    match round {
        Some(round) if round.serves(wanted) => {
            round.steer(number, wanted);
            return Ok(Some(round));
        }
        Some(round) => {
            // A task that has not ended would run beside the next round.
            if let Some(late) = rounds.end(round).await.into_iter().next() {
                return Err(late.into_error());
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = rounds.settled() => {}
            }
        }
        None => {}
    }
    Ok((!shutdown.is_cancelled()).then(|| rounds.begin(number, wanted)))
}

/// Why the process ends after a component ended: failing leader election ends components, and may be reported after them.
async fn cause(ended: Ended, services: &mut Supervisor) -> anyhow::Error {
    let max_wait = Duration::from_millis(200);
    match tokio::time::timeout(max_wait, services.next_end()).await {
        Ok(service) => service.into_error(),
        Err(_) => ended.into_error(),
    }
}

async fn next_end(round: &mut Option<Round>) -> Ended {
    match round {
        Some(round) => round.next_end().await,
        None => std::future::pending().await,
    }
}

impl Running {
    /// Returns when everything is ready: all kinds are listed, webhooks are served and registered.
    pub async fn ready(&self) {
        self.readiness.all_ready().await;
    }

    /// What is not ready yet, as (name, reason).
    #[must_use]
    pub fn waiting(&self) -> Vec<(String, String)> {
        self.readiness.waiting()
    }

    /// What answers at [`Running::webhooks`], for an API server in this process.
    pub fn webhook_router(&self) -> axum::Router {
        self.webhook_server.router()
    }

    /// Cancel it to shut the operator down gracefully.
    #[must_use]
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Whether the operator has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.supervised.is_finished()
    }

    /// Returns when the operator has ended, gracefully or because a component ended.
    ///
    /// # Errors
    /// Why it ended, if it was not shut down.
    pub async fn ended(mut self) -> anyhow::Result<()> {
        let ended = (&mut self.supervised).await;
        ended.context("the supervisor failed")?
    }

    /// Shuts it down gracefully.
    ///
    /// # Errors
    /// Why it ended before, if it did.
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

/// The content of `/state`.
fn describe(
    election: watch::Receiver<lease::Status>,
    of_shards: watch::Receiver<BTreeMap<String, watch::Receiver<lease::Status>>>,
    seen: watch::Receiver<Option<Shown>>,
) -> http::Describe {
    Arc::new(move || {
        let shards = of_shards.borrow();
        let shards: BTreeMap<_, _> = shards
            .iter()
            .map(|(shard, status)| (shard, status.borrow().clone()))
            .collect();
        let mut state = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "election": *election.borrow(),
            "shards": shards,
        });
        if let (Some(Shown { bus, stores, pools, .. }), Some(state)) = (&*seen.borrow(), state.as_object_mut()) {
            state.insert("objects".to_owned(), json!(stores.counts()));
            state.insert(
                "nodesWithoutShard".to_owned(),
                json!(nodes_without_shard(stores, pools)),
            );
            state.insert(
                "inboxes".to_owned(),
                json!({
                    "schedulers": bus.schedulers.inboxes().map(waiting).collect::<Vec<_>>(),
                    "grouper": waiting(&bus.grouper),
                    "binder": waiting(&bus.binder),
                    "podgroups": waiting(&bus.podgroups),
                    "queues": waiting(&bus.queues),
                }),
            );
        }
        state
    })
}

/// How many nodes are in each node pool that no shard schedules.
fn nodes_without_shard(stores: &Stores, pools: &Pools) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for node in stores.nodes.objects() {
        if let Some(pool) = pools.without_shard(node.metadata.labels.as_ref()) {
            *counts.entry(pool.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// The fill level of a channel.
fn waiting<T>(inbox: &tokio::sync::mpsc::Sender<T>) -> Value {
    json!({"waiting": inbox.max_capacity() - inbox.capacity(), "bound": inbox.max_capacity()})
}
