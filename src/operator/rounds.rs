//! A round: the components, from their start with one configuration to their graceful end.
//!
//! Scheduling rules change within a round. For other changes the round ends like at shutdown, except that the Lease is kept, and
//! the next begins; so no component needs to handle changes of settings. Between rounds nothing is decided. The webhook server continues, and answers reviews
//! as in the last round until the next one has listed the queues.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::client::Clients;
use super::elections::Shards;
use super::lease::Leads;
use super::supervisor::{Ended, Supervisor};
use super::{bootstrap, telemetry};
use crate::components::admission::WebhookServer;
use crate::components::bus::{self, Bus, Kind};
use crate::components::figures::{Figures, families};
use crate::components::heartbeat::Heartbeat;
use crate::components::history::History;
use crate::components::leadership::{self, Pools, Scope};
use crate::components::numa_daemon_set::{self, Missing};
use crate::components::readiness::Readiness;
use crate::components::retry::LATE;
use crate::components::scheduler::{Followed, Numbered, Shard};
use crate::components::watches::Stores;
use crate::components::write_slots::Background;
use crate::components::{self, admission};
use crate::config::{Common, Resolved, ShardRules};

/// How long components may take to finish. Kubernetes gives the process 30 s in all.
pub const DRAIN: Duration = Duration::from_secs(20);
/// How long Leases and servers may take to end after them. A Lease is released once no write can arrive any more.
pub const END: Duration = Duration::from_secs(8);

/// The name of the configuration on `/readyz`.
const CONFIGURATION: &str = "configuration";
/// The names of watches there begin with this.
const WATCH: &str = "watch-";

/// The effective configuration with its number; `None` before it is known.
pub type InForce = Option<(u64, Arc<Resolved>)>;

/// The parts of a round that HTTP pages read.
#[derive(Clone)]
pub struct Shown {
    /// The channels between components.
    pub bus: Bus,
    /// The watched objects.
    pub stores: Arc<Stores>,
    /// The names of the shards, in the order of their schedulers on the bus.
    pub shards: Vec<String>,
    /// The node pools that they schedule.
    pub pools: Pools,
    /// The `schedulerName` of our pods.
    pub scheduler_name: String,
}

/// What all rounds share.
pub struct Rounds {
    /// Clients of the API server.
    pub clients: Clients,
    /// The terms of this process.
    pub leads: Arc<Leads>,
    /// Which parts of the process are ready.
    pub readiness: Readiness,
    /// The series of objects.
    pub figures: Figures,
    /// Watchdog of the scheduler's thread.
    pub heartbeat: Heartbeat,
    /// Recent decisions.
    pub history: History,
    /// The server of the webhooks.
    pub webhook_server: Arc<WebhookServer>,
    /// Where they are served.
    pub webhooks: SocketAddr,
    /// Whether missing default queues are created.
    pub create_default_queues: bool,
    /// The current round for HTTP pages.
    pub shown: watch::Sender<Option<Shown>>,
    /// The prefix of metrics.
    pub metrics_namespace: watch::Sender<String>,
    /// The configuration numbers that the schedulers have applied.
    pub follows: watch::Sender<Followed>,
    /// The shards with a Lease of their own, and whether everything has been listed.
    pub shards: watch::Sender<Shards>,
    /// Objects or fields that are missing for the NUMA exporter.
    pub missing: watch::Sender<Missing>,
}

/// The components, running.
pub struct Round {
    /// Their settings.
    pub common: Common,
    /// By the names of the shards.
    rules: BTreeMap<String, (Scope, watch::Sender<Numbered>)>,
    work: Supervisor,
    end: CancellationToken,
}

impl Rounds {
    /// Starts the components with the effective configuration.
    #[must_use]
    pub fn begin(&self, number: u64, resolved: &Resolved) -> Round {
        self.expect();
        self.readiness.handle(CONFIGURATION, "known").ready();
        let common = resolved.common.clone();
        let settings = &common.components;
        let end = CancellationToken::new();
        self.metrics_namespace.send_replace(common.metrics_namespace.clone());
        let context = components::Context {
            reads: self.clients.reads.clone(),
            watches: self.clients.watches.clone(),
            writes: leadership::writes(self.leads.watch()),
            settings: Arc::new(settings.clone()),
            refused: leadership::refused(),
            leading: self.leads.watch(),
            scope: Scope::Cluster,
            only_term: None,
            shutdown: end.clone(),
            readiness: self.readiness.clone(),
            background: Background::new(settings.background_delay),
            figures: self.figures.clone(),
            heartbeat: self.heartbeat.clone(),
            history: self.history.clone(),
        };
        let stores = Arc::new(Stores::default());
        let mut channels = bus::channels(resolved.shards.len());
        let mut work = Supervisor::default();
        if let Some(tracer) = telemetry::tracer() {
            let (traces, inbox) = bus::Traces::channel();
            channels.0.traces = traces;
            work.start("traces", components::traces::run(end.clone(), inbox, tracer));
        }
        // The state page outlives the components, and the traces task ends when its last sender is dropped.
        let bus = Bus {
            traces: bus::Traces::default(),
            ..channels.0.clone()
        };
        let stores_shown = Arc::clone(&stores);
        self.shown.send_replace(Some(Shown {
            bus,
            stores: stores_shown,
            shards: resolved.shards.iter().map(|shard| shard.name.clone()).collect(),
            pools: settings.pools.clone(),
            scheduler_name: settings.scheduler_name.clone(),
        }));
        self.follows.send_replace(Followed::default());
        let mut rules = BTreeMap::new();
        let mut shards = Vec::new();
        for shard in &resolved.shards {
            // The handle may be dropped: the scheduler takes another of the same name.
            let _ = self.readiness.handle(Shard::readiness(&shard.name), "starting");
            let (steer, followed) = watch::channel((number, Arc::new(shard.rules.clone())));
            rules.insert(shard.name.clone(), (shard.scope(), steer));
            shards.push(Shard {
                name: shard.name.clone(),
                scope: shard.scope(),
                rules: followed,
                follows: self.follows.clone(),
            });
        }
        self.shards.send_modify(|known| known.by_pool = with_lease(resolved));
        work.start("first lists", self.tell_of_first_lists(resolved, end.clone()));
        for (name, component) in components::start(&context, &stores, channels, shards) {
            work.adopt(name, component);
        }
        if self.create_default_queues {
            work.start(
                "bootstrap",
                bootstrap::run(context.clone(), settings.default_queue.clone()),
            );
        }
        let exporter = numa_daemon_set::run(context.clone(), self.missing.clone());
        work.start("numa-daemon-set", exporter);
        let webhook_server = Arc::clone(&self.webhook_server);
        let answers = admission::run(context, common.admission.clone(), self.webhooks, stores, webhook_server);
        work.start("admission", answers);
        Round {
            common,
            rules,
            work,
            end,
        }
    }

    /// Tells the elections once that everything has been listed, and the schedulers have it.
    fn tell_of_first_lists(
        &self,
        resolved: &Resolved,
        end: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + use<> {
        let schedulers: BTreeSet<String> = resolved
            .shards
            .iter()
            .map(|shard| Shard::readiness(&shard.name))
            .collect();
        let (readiness, shards) = (self.readiness.clone(), self.shards.clone());
        async move {
            let lists = readiness.ready(|name| name.starts_with(WATCH) || schedulers.contains(name));
            if end.run_until_cancelled(lists).await.is_some() {
                shards.send_if_modified(|known| !std::mem::replace(&mut known.listed, true));
                end.cancelled().await;
            }
            Ok(())
        }
    }

    /// Ends the round before the next one; returns the tasks that failed.
    pub async fn end(&self, mut round: Round) -> Vec<Ended> {
        info!("the configuration has changed; components are restarted");
        let late = round.end().await;
        for shard in round.rules.keys() {
            self.readiness.handle(Shard::readiness(shard), "ended").ready();
        }
        self.figures.clear(&families::OF_OBJECTS.iter().collect::<Vec<_>>());
        late
    }

    /// Waits until no write of an ended round can arrive any more: the next round would decide without its effect.
    pub async fn settled(&self) {
        self.leads.settled(LATE).await;
    }

    /// Registers the components that must report before the process is ready, since their tasks may start after the first probe.
    pub fn expect(&self) {
        let watches = Kind::ALL.iter().map(|kind| format!("{WATCH}{}", kind.plural()));
        let others = [CONFIGURATION, "webhooks", "webhook-configurations"].map(str::to_owned);
        for name in watches.chain(others) {
            // The handle may be dropped: the component takes another of the same name.
            let _ = self.readiness.handle(name, "starting");
        }
    }
}

/// The shards with a Lease of their own: all but that of the default node pool.
fn with_lease(resolved: &Resolved) -> BTreeMap<Arc<str>, String> {
    let shards = resolved.shards.iter().filter_map(|shard| match shard.scope() {
        Scope::Cluster => None,
        Scope::Pool(pool) => Some((pool, shard.name.clone())),
    });
    shards.collect()
}

impl Round {
    /// Whether the running components fit this configuration, apart from scheduling rules.
    #[must_use]
    pub fn serves(&self, resolved: &Resolved) -> bool {
        let same = |shard: &ShardRules| {
            self.rules
                .get(&shard.name)
                .is_some_and(|(scope, _)| *scope == shard.scope())
        };
        self.common == resolved.common && self.rules.len() == resolved.shards.len() && resolved.shards.iter().all(same)
    }

    /// Sends these rules to the schedulers.
    pub fn steer(&self, number: u64, resolved: &Resolved) {
        for shard in &resolved.shards {
            if let Some((_, rules)) = self.rules.get(&shard.name) {
                rules.send_replace((number, Arc::new(shard.rules.clone())));
            }
        }
    }

    /// The next task that ends.
    pub async fn next_end(&mut self) -> Ended {
        self.work.next_end().await
    }

    /// Has the components finish open work.
    pub async fn end(&mut self) -> Vec<Ended> {
        self.end.cancel();
        self.work.drain(DRAIN).await
    }
}
