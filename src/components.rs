//! The components. Each is a task with a typed inbox and outbox; they know the bus, not one another.
//!
//! A component is started by its `run` function, which ends with `Ok` when `Context::shutdown` is cancelled and its work in
//! flight is done, and with an error when it cannot go on. The operator joins all of them. What a component is given beside
//! its inbox and outbox is the same for all: a [`Context`]. Nothing here decides where a pod runs.

// What comes from an object never makes this panic.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice
)]

pub mod accounts;
pub mod admission;
mod agenda;
pub mod binder;
pub mod bus;
mod compact;
pub mod connection_failures;
pub mod events;
pub mod fair;
pub mod figures;
pub mod fractions;
pub mod gpu_operator;
pub mod grouper;
pub mod grouping;
pub mod heartbeat;
pub mod history;
mod latency;
pub mod leadership;
pub mod numa_daemon_set;
mod owner;
pub mod panics;
mod patch;
pub mod podgroups;
mod pods;
mod quantities;
pub mod queues;
pub mod readiness;
mod retry;
mod runtime_classes;
pub mod scaleup;
pub mod scheduler;
pub mod shares;
pub mod traces;
pub mod usage;
mod views;
pub mod watches;
pub mod weight;
pub mod write_slots;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

use crate::api::names::{label, object};
use crate::engine::decision::Wording;
use crate::engine::policy::DisruptionBudgets;
use bus::{Bus, Inboxes};
use figures::Figures;
use heartbeat::Heartbeat;
use history::History;
use leadership::{Leading, Pools, Scope, Term};
use queues::shown::MetricLabel;
use readiness::Readiness;
use watches::Stores;
use write_slots::Background;

/// What every component is given beside its inbox and outbox.
#[derive(Clone)]
pub struct Context {
    /// For single reads, each of which is answered within a deadline or fails. Always allowed.
    pub reads: Client,
    /// For watches, as [`watches::config`] sets them up: always allowed.
    pub watches: Client,
    /// For every write that only the leader may do: of the whole cluster, unless this context is [of a scope](Self::of_scope) or [of a
    /// term](Self::of_term). Its requests pass the fence, so a write that would leave after the lease's validity is refused before it is sent.
    pub writes: Client,
    /// Refuses every request.
    pub refused: Client,
    /// What the user configured.
    pub settings: Arc<Settings>,
    /// The terms of leadership, while this process holds their leases. Components check before each write.
    pub leading: Leading,
    /// What this context is for.
    pub scope: Scope,
    /// The only term in which this context writes, if it is not for all.
    pub only_term: Option<u64>,
    /// Cancelled when the process is to end: stop taking work, finish what is in flight, return.
    pub shutdown: CancellationToken,
    /// Where a component says what it still waits for.
    pub readiness: Readiness,
    /// Turns for writes that nobody waits for (pod groups, statuses, events). Bindings go first.
    pub background: Background,
    /// What is shown of objects as metrics.
    pub figures: Figures,
    /// Whether the scheduler's thread gets on with its work.
    pub heartbeat: Heartbeat,
    /// What was decided of late.
    pub history: History,
}

impl Context {
    /// Whether this process leads what this context is for right now, and still in the term that it is for.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        let terms = self.leading.borrow();
        match self.only_term {
            Some(number) => terms.numbered(number).is_some(),
            None => terms.of(&self.scope).is_some(),
        }
    }

    /// The number of the term in which this process leads what this context is for, if it does.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.leading.borrow().of(&self.scope).map(|term| term.number)
    }

    /// The scope of an object with these labels.
    #[must_use]
    pub fn scope_of(&self, labels: Option<&BTreeMap<String, String>>) -> Scope {
        self.settings.pools.scope(labels)
    }

    /// The context for what is written about objects of a scope: every write is refused once the term that lasts now is over.
    #[must_use]
    pub fn of_scope(&self, scope: &Scope) -> Self {
        let term = self.leading.borrow().of(scope).cloned();
        // No term has this number.
        let number = term.as_ref().map_or(0, |term| term.number);
        Self {
            scope: scope.clone(),
            ..self.only(number, term)
        }
    }

    /// The context for what was decided in that term: once it is over, every write is refused.
    #[must_use]
    pub fn of_term(&self, number: u64) -> Self {
        let term = self.leading.borrow().numbered(number).cloned();
        self.only(number, term)
    }

    /// Whether this process leads anything.
    #[must_use]
    pub fn leads_something(&self) -> bool {
        self.leading.borrow().all().next().is_some()
    }

    /// The context of a term that lasts, for what may be written by any process that leads something.
    #[must_use]
    pub fn of_any_term(&self) -> Option<Self> {
        let number = self.leading.borrow().all().next().map(|(_, term)| term.number);
        number.map(|number| self.of_term(number))
    }

    fn only(&self, number: u64, term: Option<Term>) -> Self {
        Self {
            writes: term.map_or_else(|| self.refused.clone(), |term| term.writes),
            only_term: Some(number),
            ..self.clone()
        }
    }
}

/// A component that runs: its name and its end.
pub type Running = (&'static str, JoinHandle<Result<(), Error>>);

/// Starts every component that lives off the watches, on the current runtime. The handles are to be joined: a component that ends
/// before shutdown is asked for is a failure of the process. A part that is switched off takes in what it is told, and does nothing.
#[must_use]
pub fn start(
    context: &Context,
    stores: &Arc<Stores>,
    (mut bus, inboxes): (Bus, Inboxes),
    shards: Vec<scheduler::Shard>,
) -> Vec<Running> {
    let parts = context.settings.parts;
    let (context, stores) = (|| context.clone(), || Arc::clone(stores));
    let scaleup = if context().settings.scaling.on {
        Some(spawn("scaleup", context(), scaleup::run(context(), inboxes.scaleup)))
    } else {
        bus.scaleup = None;
        None
    };
    let shards = shards.into_iter().zip(inboxes.schedulers);
    let schedulers: Vec<_> = shards
        .flat_map(|(shard, inbox)| {
            let context = Context {
                scope: shard.scope.clone(),
                heartbeat: context().heartbeat.part(),
                ..context()
            };
            let (meter, accounts) = accounts::channel();
            let usage = usage::run(context.clone(), accounts, shard.name.clone());
            let scheduler = scheduler::run(context.clone(), inbox, stores(), bus.clone(), shard, meter);
            [
                spawn("scheduler", context.clone(), scheduler),
                spawn("usage", context, usage),
            ]
        })
        .collect();
    let mut running = vec![
        spawn("events", context(), events::run(context(), inboxes.events, stores())),
        if parts.queues {
            spawn("queues", context(), queues::run(context(), inboxes.queues, stores()))
        } else {
            spawn("queues", context(), idle(context(), inboxes.queues))
        },
        if parts.pod_groups {
            let podgroups = podgroups::run(context(), inboxes.podgroups, stores(), bus.clone());
            spawn("podgroups", context(), podgroups)
        } else {
            spawn("podgroups", context(), idle(context(), inboxes.podgroups))
        },
        spawn(
            "binder",
            context(),
            binder::run(context(), inboxes.binder, stores(), bus.clone()),
        ),
        if parts.grouper {
            let grouper = grouper::run(context(), inboxes.grouper, stores(), bus.clone());
            spawn("grouper", context(), grouper)
        } else {
            spawn("grouper", context(), idle(context(), inboxes.grouper))
        },
        spawn("watches", context(), watches::run(context(), stores(), bus)),
    ];
    running.extend(scaleup);
    running.extend(schedulers);
    running
}

/// Runs a component in a task and a span of its own. That a peer is gone is no error once shutdown has begun.
fn spawn<F>(name: &'static str, context: Context, component: F) -> Running
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let component = async move {
        match component.await {
            Err(Error::Closed) if context.shutdown.is_cancelled() => Ok(()),
            ended => ended,
        }
    };
    (name, tokio::spawn(component.instrument(info_span!("component", name))))
}

/// A part that is switched off: takes in what it is told, until shutdown.
async fn idle<T>(context: Context, mut inbox: mpsc::Receiver<T>) -> Result<(), Error> {
    let told = async {
        while inbox.recv().await.is_some() {}
        Err(Error::Closed)
    };
    context.shutdown.run_until_cancelled(told).await.unwrap_or(Ok(()))
}

/// Which parts are switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Pods are grouped.
    pub grouper: bool,
    /// Pods are bound. If not, nothing is decided either.
    pub binder: bool,
    /// Statuses of pod groups and conditions of pods are written.
    pub pod_groups: bool,
    /// Statuses of queues are written.
    pub queues: bool,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            grouper: true,
            binder: true,
            pod_groups: true,
            queues: true,
        }
    }
}

/// Whether PodGroup objects are written for single pods that stand for themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PlainPodGroups {
    /// For every pod, as KAI.
    #[default]
    Always,
    /// Only once the pod waits.
    Waiting,
    /// Never.
    Never,
}

/// What the components need to know of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Which parts are switched on.
    pub parts: Parts,
    /// Our own namespace.
    pub namespace: String,
    /// Pods with this `spec.schedulerName` are ours.
    pub scheduler_name: String,
    /// Label that names a workload's queue.
    pub queue_label_key: String,
    /// Node pools: the label that names them, and which of them have a shard.
    pub pools: Pools,
    /// Queue of workloads that name none.
    pub default_queue: String,
    /// Pods of a Job keep a pod group named after the pod, if one exists from an older release of KAI.
    pub search_legacy_pod_groups: bool,
    /// A Knative revision is one group; else each of its pods is.
    pub knative_gangs: bool,
    /// Kinds without a rule are grouped by the Karta that describes them.
    pub kartas: bool,
    /// Which single pods get a PodGroup object.
    pub plain_pod_groups: PlainPodGroups,
    /// Group as KAI does also where more is possible: annotations that only we know, versions and wrappers that KAI does not.
    pub exactly_as_kai: bool,
    /// The ConfigMap with priority classes and preemptibility by kind of workload: namespace and name.
    pub default_priorities: Option<(String, String)>,
    /// Pods must carry these labels to be grouped.
    pub pod_labels: BTreeMap<String, String>,
    /// Namespaces must carry these labels for their pods to be grouped.
    pub namespace_labels: BTreeMap<String, String>,
    /// What disruption budgets mean for evictions.
    pub disruption_budgets: DisruptionBudgets,
    /// The kubelets' alignment to NUMA zones is foreseen, without these resources.
    pub numa: Option<Vec<String>>,
    /// The exporter of what kubelets gave in NUMA zones.
    pub numa_exporter: numa_daemon_set::Settings,
    /// Pods wait for the ConfigMaps that they need.
    pub config_maps: bool,
    /// Extended resources that are whole GPUs, beside those of NVIDIA and AMD.
    pub gpu_resources: Vec<String>,
    /// Conditions and events list every node instead of counts per reason.
    pub detailed_fit_errors: bool,
    /// Whose words conditions and events are in that say why workloads wait.
    pub messages: Wording,
    /// Labels of queues that are labels of their metrics, too, by the label's key.
    pub queue_metric_labels: Vec<MetricLabel>,
    /// How long a bind may wait for volumes.
    pub volume_binding_timeout: Duration,
    /// A watch is taken up again after so many seconds.
    pub watch_timeout: u32,
    /// How long writes of pod groups, statuses and events that are due wait for bindings.
    pub background_delay: Duration,
    /// How GPUs are shared.
    pub sharing: fractions::Settings,
    /// How cluster autoscalers learn that GPUs to be shared are missing.
    pub scaling: scaleup::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            parts: Parts::default(),
            namespace: object::NAMESPACE.to_owned(),
            scheduler_name: object::SCHEDULER_NAME.to_owned(),
            queue_label_key: label::QUEUE.to_owned(),
            pools: Pools::default(),
            default_queue: object::DEFAULT_QUEUE.to_owned(),
            search_legacy_pod_groups: true,
            knative_gangs: true,
            kartas: true,
            plain_pod_groups: PlainPodGroups::Always,
            exactly_as_kai: false,
            default_priorities: None,
            pod_labels: BTreeMap::new(),
            namespace_labels: BTreeMap::new(),
            disruption_budgets: DisruptionBudgets::Prefer,
            numa: None,
            numa_exporter: numa_daemon_set::Settings::default(),
            config_maps: false,
            gpu_resources: Vec::new(),
            detailed_fit_errors: false,
            messages: Wording::default(),
            queue_metric_labels: Vec::new(),
            volume_binding_timeout: Duration::from_secs(120),
            watch_timeout: 20,
            background_delay: Duration::from_secs(5),
            sharing: fractions::Settings::default(),
            scaling: scaleup::Settings::default(),
        }
    }
}

/// Why a component cannot go on. Each ends the process.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another component has ended, so that messages to it go nowhere.
    #[error("the component at the other end of the bus is gone")]
    Closed,
    /// A task or thread of the component panicked.
    #[error("{task} panicked: {panic}")]
    Panicked {
        /// Which one.
        task: &'static str,
        /// What it said.
        panic: String,
    },
    /// An address cannot be listened on any more.
    #[error("cannot serve the webhooks")]
    Listener(#[source] std::io::Error),
    /// The operating system gave no thread.
    #[error("cannot start the scheduler's thread")]
    Thread(#[source] std::io::Error),
}
