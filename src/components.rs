//! The components. Each is a task with a typed inbox and outbox; they depend on the bus, not on one another.
//!
//! A component is started by its `run` function, which ends with `Ok` when `Context::shutdown` is cancelled and its work in
//! flight is done, and with an error when it cannot go on. The operator joins all of them. Beside its inbox and outbox each
//! component gets the same [`Context`].

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
pub mod connection_causes;
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
pub mod keyed_turns;
mod latency;
pub mod leadership;
pub mod numa_daemon_set;
mod owner;
pub mod panics;
mod patch;
pub mod podgroups;
pub(crate) mod pods;
mod quantities;
pub mod queues;
pub mod readiness;
mod repeats;
pub(crate) mod retry;
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
use pods::OwnPods;
use queues::shown::MetricLabel;
use readiness::Readiness;
use watches::Stores;
use write_slots::Background;

/// What every component gets beside its inbox and outbox.
#[derive(Clone)]
pub struct Context {
    /// For single reads, each with a deadline. Not fenced.
    pub reads: Client,
    /// For watches, as [`watches::config`] sets them up. Not fenced.
    pub watches: Client,
    /// For every write that only the leader may do: of the whole cluster, unless this context is [of a scope](Self::of_scope) or [of a
    /// term](Self::of_term). Its requests pass the fence, so a write that would leave after the lease's validity is refused before it is sent.
    pub writes: Client,
    /// Refuses every request.
    pub refused: Client,
    /// The configuration.
    pub settings: Arc<Settings>,
    /// The terms of leadership, while this process holds their leases. Components check before each write.
    pub leading: Leading,
    /// What the writes of this context are about: it is led under one Lease.
    pub scope: Scope,
    /// The only term in which this context writes; `None`: any.
    pub only_term: Option<u64>,
    /// Cancelled at shutdown: accept no more work, finish what is in flight, return.
    pub shutdown: CancellationToken,
    /// Where a component reports whether it is ready.
    pub readiness: Readiness,
    /// Slots for background writes (pod groups, statuses, events). Bindings go first.
    pub background: Background,
    /// Metrics of objects.
    pub figures: Figures,
    /// Watchdog of the scheduler's thread.
    pub heartbeat: Heartbeat,
    /// Recent decisions.
    pub history: History,
}

impl Context {
    /// Whether this process leads the scope of this context now, and in the term of the context if it has one.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        let terms = self.leading.borrow();
        match self.only_term {
            Some(number) => terms.numbered(number).is_some(),
            None => terms.of(&self.scope).is_some(),
        }
    }

    /// The number of the term in which this process leads the scope of this context; `None` if it does not.
    #[must_use]
    pub fn term(&self) -> Option<u64> {
        self.leading.borrow().of(&self.scope).map(|term| term.number)
    }

    /// The scope of an object with these labels.
    #[must_use]
    pub fn scope_of(&self, labels: Option<&BTreeMap<String, String>>) -> Scope {
        self.settings.pools.scope(labels)
    }

    /// The context for writes about objects of a scope. Every write is refused once the current term is over.
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

    /// The context for writes that were decided in that term. Every write is refused once it is over.
    #[must_use]
    pub fn of_term(&self, number: u64) -> Self {
        let term = self.leading.borrow().numbered(number).cloned();
        self.only(number, term)
    }

    /// Whether this context writes in the term with this number only.
    #[must_use]
    pub fn is_of_term(&self, number: u64) -> bool {
        self.only_term == Some(number)
    }

    /// Whether this process leads anything.
    #[must_use]
    pub fn leads_something(&self) -> bool {
        self.leading.borrow().all().next().is_some()
    }

    /// The context of some current term, for writes that every process that leads anything may do.
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

/// The name and the task of a running component.
pub type Running = (&'static str, JoinHandle<Result<(), Error>>);

/// Starts the watches and every component that gets their changes, on the current runtime. The caller joins the handles: a component that ends
/// before shutdown is a failure of the process.
#[must_use]
pub fn start(
    context: &Context,
    stores: &Arc<Stores>,
    (mut bus, inboxes): (Bus, Inboxes),
    shards: Vec<scheduler::Shard>,
) -> Vec<Running> {
    let parts = context.settings.parts;
    let (context, stores) = (|| context.clone(), || Arc::clone(stores));
    let scaleup = if !context().settings.known {
        // Nor is it known whether there are to be scaling pods.
        spawn("scaleup", context(), idle(context(), inboxes.scaleup))
    } else if context().settings.scaling.on {
        spawn("scaleup", context(), scaleup::run(context(), inboxes.scaleup))
    } else {
        bus.scaleup = None;
        spawn("scaleup", context(), scaleup::remove(context(), stores()))
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
        // If it is switched off, it still tells queues what pod groups hold.
        spawn(
            "podgroups",
            context(),
            podgroups::run(context(), inboxes.podgroups, stores(), bus.clone()),
        ),
        spawn(
            "binder",
            context(),
            binder::run(context(), inboxes.binder, stores(), bus.clone()),
        ),
        // If grouping is switched off, it ignores pods, and still writes the scheduler's timestamps.
        spawn(
            "grouper",
            context(),
            grouper::run(context(), inboxes.grouper, stores(), bus.clone()),
        ),
        spawn("watches", context(), watches::run(context(), stores(), bus)),
    ];
    running.push(scaleup);
    running.extend(schedulers);
    running
}

/// Runs a component in a task and a span of its own. Once shutdown has begun, a closed channel is no error.
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

/// The task of a part that is switched off: drops its messages until shutdown.
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
    /// Pods are bound. If not, nothing is scheduled either.
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

/// Whether PodGroup objects are written for single pods that nothing but themselves owns.
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

/// The settings of the components.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether the settings are those in force: not while the Config is invalid and its last valid state unknown. Then running pods are left alone.
    pub known: bool,
    /// Which parts are switched on.
    pub parts: Parts,
    /// Our own namespace.
    pub namespace: String,
    /// Pods with this `spec.schedulerName` are ours.
    pub scheduler_name: String,
    /// The operator's own pods.
    pub own_pods: OwnPods,
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
    /// Group exactly as KAI does: without annotations of ours, and without versions and wrappers that KAI does not support.
    pub exactly_as_kai: bool,
    /// The ConfigMap with priority classes and preemptibility by kind of workload: namespace and name.
    pub default_priorities: Option<(String, String)>,
    /// Pods must carry these labels to be grouped.
    pub pod_labels: BTreeMap<String, String>,
    /// Namespaces must carry these labels for their pods to be grouped.
    pub namespace_labels: BTreeMap<String, String>,
    /// How evictions treat disruption budgets.
    pub disruption_budgets: DisruptionBudgets,
    /// The kubelets' alignment to NUMA zones is predicted for all resources but these; `None`: it is ignored.
    pub numa: Option<Vec<String>>,
    /// The NUMA exporter, which reports the zones in which kubelets allocated resources to pods.
    pub numa_exporter: numa_daemon_set::Settings,
    /// Pods wait for the ConfigMaps that they need.
    pub config_maps: bool,
    /// Extended resources that are whole GPUs, beside those of NVIDIA and AMD.
    pub gpu_resources: Vec<String>,
    /// Conditions and events list every node instead of counts per reason.
    pub detailed_fit_errors: bool,
    /// Whether the reasons in conditions and events are in our words or in KAI's.
    pub messages: Wording,
    /// Labels of queues that are labels of their metrics, too, by the label's key.
    pub queue_metric_labels: Vec<MetricLabel>,
    /// How long a bind may wait for volumes.
    pub volume_binding_timeout: Duration,
    /// How often the scheduler's model is compared with one that is built anew; zero: never.
    pub self_check_interval: Duration,
    /// A watch is ended and resumed after so many seconds.
    pub watch_timeout: u32,
    /// How long background writes that are due wait for bindings.
    pub background_delay: Duration,
    /// How GPUs are shared.
    pub sharing: fractions::Settings,
    /// Scaling pods, by which cluster autoscalers notice missing GPU portions.
    pub scaling: scaleup::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            known: true,
            parts: Parts::default(),
            namespace: object::NAMESPACE.to_owned(),
            scheduler_name: object::SCHEDULER_NAME.to_owned(),
            own_pods: OwnPods::default(),
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
            self_check_interval: Duration::from_secs(600),
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
    /// Another component has ended and its channel is closed.
    #[error("the component at the other end of the bus is gone")]
    Closed,
    /// A task or thread of the component panicked.
    #[error("{task} panicked: {panic}")]
    Panicked {
        /// Its name.
        task: &'static str,
        /// The text of the panic.
        panic: String,
    },
    /// A listener failed.
    #[error("cannot serve the webhooks")]
    Listener(#[source] std::io::Error),
    /// A thread could not be created.
    #[error("cannot start the scheduler's thread")]
    Thread(#[source] std::io::Error),
}

#[cfg(test)]
pub(crate) mod tests;
