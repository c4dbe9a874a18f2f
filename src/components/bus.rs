//! The bus: all messages between components. Every message is an enum here, with its
//! sender, its receiver, the bound of its channel and the arithmetic behind the bound. Channels are plain bounded tokio
//! channels. There is no generic event bus and no subscription at run time.
//!
//! ```text
//! watches   ──Change──────────────▶ scheduler, grouper, podgroups, queues   awaited
//! grouper   ──Grouping, Ungrouped─▶ scheduler                               kept in an outbox until there is room
//! scheduler ──BindOrder───────────▶ binder                                  awaited, never long: the binder's loop only queues
//! watches   ──Change──────────────▶ binder                                  awaited, never long, and after the scheduler
//! binder    ──Outcome─────────────▶ scheduler                               awaited by the binder's workers, not by its loop
//! binder    ──Reservation…────────▶ scheduler                               likewise
//! scheduler ──Waiting, Cleared────▶ podgroups                               awaited, never long: kept latest per group
//! grouper, scheduler ──Obstacles──▶ podgroups                               awaited, never long: kept latest per pod
//! scheduler ──Times, Waiting──────▶ grouper                                 awaited, never long: kept latest per group
//! grouper   ──Unwritten───────────▶ podgroups                               awaited, never long: kept latest per group
//! podgroups ──Usage───────────────▶ queues                                  awaited, never long: kept latest per group
//! scheduler ──FairShare───────────▶ queues                                  awaited, never long: kept latest per queue
//! operator  ──questions───────────▶ scheduler, grouper                      awaited with a deadline; a late answer is dropped
//! all       ──Note────────────────▶ events                                  dropped and counted when full
//! scheduler ──TraceEvent────────────▶ traces                                  not made at all unless a collector is configured;
//! binder    ──TraceEvent────────────▶ traces                                  dropped and counted when full
//! ```
//!
//! No deadlock, because no cycle of sends is awaited all the way: the loops of binder and grouper take from their inboxes
//! without ever waiting for the scheduler or for the API server; work that waits runs in tasks of its own. Data lives in shared objects (`Arc`), so a message is a few words.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;

pub use super::quantities::Amounts;
use crate::api::PodGroup;
use crate::api::names::object;
use crate::clock;
use crate::components::Error;
use crate::components::fractions::users::Share;
use crate::components::leadership::Scope;
use crate::components::pods;
use crate::components::retry::Backoff;
use crate::engine::decision::Cause;
pub use crate::engine::decision::{Bind, GroupReport, GroupTimes, WaitingGroup};
pub use crate::engine::input::{GroupKey, PodRef};
pub use crate::engine::overview::{GroupDetails, GroupSeen, NodeSeen, Page, QueueSeen};
use crate::engine::policy::ActionKind;
pub use crate::kinds::{Kind, Listener, Object};
use crate::mirror::PackedChange;
use crate::mirror::aside::Identity;
use crate::mirror::claims::allocation::GivenAllocations;
use crate::random;

/// Scheduler inbox: the burst of one gang of 4,096 pods. A message is below 128 bytes, and keeps its object, packed. Overflow is awaited: the model must see
/// every change.
const SCHEDULER_INBOX: usize = 4_096;
/// Inboxes of grouper, podgroups and queues, which handle a change in some microseconds. A message keeps its object, a typed pod of some KiB, so their size
/// bounds the memory that is needed beyond what is kept. Overflow is awaited.
const CHANGES_INBOX: usize = 2_048;
/// Binder inbox: a batch from each cycle, and the changes of pods and bind requests. The loop only notes and queues. Awaited.
const BINDER_INBOX: usize = 2_048;
/// Events waiting to be written: two for each pod of a 4,096-pod burst. What does not fit is dropped and counted, since
/// events must never delay a binding.
const EVENTS_INBOX: usize = 8_192;

/// Trace events waiting to become spans: three for each pod of a 4,096-pod burst. What does not fit is dropped and counted.
const TRACES_INBOX: usize = 16_384;

/// **watches → scheduler, grouper, podgroups, queues**: something changed in the API server. For one object the changes come
/// in order; an object that vanished while a watch was down is reported as deleted. Awaited.
#[derive(Clone, Debug)]
pub enum Change {
    /// Appeared or changed.
    Applied(Object),
    /// Gone; carries the last known state.
    Deleted(Object),
    /// Every object of the kind has been reported once. Sent again after each relist.
    Synced(Kind),
}

/// The place of a change among all changes of its kind in this process. A model that was built from the stores includes those up to some number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The kind.
    pub kind: Kind,
    /// How many changes of the kind the store had when the change was sent.
    pub number: u64,
}

/// **grouper → scheduler**: which pod group a pod belongs to, before either is written to the API server. Kept in the
/// grouper's outbox until there is room.
#[derive(Clone, Debug)]
pub struct Grouping {
    /// The pod.
    pub pod: PodRef,
    /// The pod group as it is or is about to be in the API server.
    pub group: Arc<PodGroup>,
    /// The sub-group that the pod belongs to.
    pub sub_group: Option<String>,
}

/// **everyone → scheduler**.
#[derive(Clone, Debug)]
pub enum ToScheduler {
    /// From watches, packed: many changes can wait for the end of a cycle, and a typed pod takes twenty times as much memory.
    Change(PackedChange, Position),
    /// From watches: an object that was created or changed and cannot be packed, and the text of the panic.
    Unreadable(Identity, String, Position),
    /// From watches: every object of the kind has been reported once.
    Synced(Kind),
    /// From the grouper.
    Grouped(Grouping),
    /// From the grouper: it does not group the pod any more.
    Ungrouped(PodRef),
    /// From the binder.
    Outcome(Outcome),
    /// From the binder, before it requests the creation of a reservation pod, as the request may take effect late. The pod holds its GPU from now on; it has a uid of
    /// its own until a watch shows it.
    ReservationRequested(Arc<Pod>),
    /// From the binder: such a request can have no further effect, and watches show what it has created.
    ReservationSettled(Arc<Pod>),
    /// From watches: the watch of the kind has caught up with the begin of that term of leadership.
    Current(Kind, u64),
    /// From the operator's HTTP pages.
    Look(Look),
}

/// **operator → scheduler**: a request for a part of the state. Answered between cycles; lists that grow with the cluster are answered page by page.
#[derive(Clone, Debug)]
pub enum Look {
    /// The pod groups that wait, in the order in which they would be tried.
    JobOrder(Reply<Vec<WaitingGroup>>),
    /// The queues.
    Queues(Reply<Vec<QueueSeen>>),
    /// The nodes from a position on.
    Nodes(usize, Reply<Page<NodeSeen>>),
    /// The pod groups from a position on.
    Groups(usize, Reply<Page<GroupSeen>>),
    /// A pod group with its pods; `None` if there is no such group.
    Group(GroupKey, Reply<Option<Box<GroupDetails>>>),
    /// The pod group of a pod, by its uid.
    GroupOf(Arc<str>, Reply<Option<GroupKey>>),
}

impl From<Grouping> for ToScheduler {
    fn from(grouping: Grouping) -> Self {
        Self::Grouped(grouping)
    }
}

/// The channel for an answer. The receiver may be gone by then.
pub type Reply<T> = mpsc::Sender<T>;

/// One pod to be bound.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderedBind {
    /// The node pool that it was decided for: the value of its label, empty for the default one.
    pub pool: Arc<str>,
    /// The pod, its node and its devices.
    pub placement: Bind,
    /// Labels that must be added to the pod before it is bound.
    pub labels: BTreeMap<String, String>,
    /// What the binding writes into the pod's annotations.
    pub annotations: BTreeMap<String, String>,
    /// The grouper found another pod group for the pod than the one that it was decided in.
    pub regrouped: bool,
    /// The pod group that the pod's annotation named at the time of the decision.
    pub named: Option<GroupKey>,
    /// The steps that precede the Binding.
    pub steps: Vec<Step>,
    /// What is allocated to the pod's claims, in the form of the API.
    pub given: GivenAllocations,
    /// The pod's GPU sharing request at the time of the decision, as its annotations state it.
    pub share: Share,
}

impl OrderedBind {
    /// Whether the pod names the pod group that it named at the time of the decision, or the one in which it was decided.
    #[must_use]
    pub fn names_its_group(&self, pod: &Pod) -> bool {
        let named = pods::annotated_group(pod);
        named == self.named || named.as_ref() == Some(&self.placement.group)
    }
}

/// What a pod needs besides the binding itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// A portion of a GPU that a reservation pod holds.
    GpuShare,
    /// Volumes with `WaitForFirstConsumer`.
    Volumes,
    /// Resource claims.
    Claims,
}

/// One pod to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evict {
    /// The pod.
    pub pod: PodRef,
    /// Its pod group, which the event is about.
    pub group: GroupKey,
    /// The node pool that it was decided for: the value of its label, empty for the default one.
    pub pool: Arc<str>,
    /// The action that decided it.
    pub action: ActionKind,
    /// The pod group that gets its place.
    pub for_group: Option<GroupKey>,
    /// The decision exceeds a disruption budget on purpose: the pod is deleted instead of evicted, as the API server would refuse an eviction.
    pub overrules_budgets: bool,
    /// The sentence of the event.
    pub message: String,
    /// Annotations of the event: action, preemptor, number of pods.
    pub details: BTreeMap<String, String>,
}

/// **scheduler → binder**: what a cycle decided. Awaited; the binder's loop only queues it.
#[derive(Clone, Debug, Default)]
pub struct BindOrder {
    /// Pods to bind, members of a gang next to each other, in the order of the decision.
    pub binds: Vec<OrderedBind>,
    /// Pods to evict, before `binds`. Pipelined pods are not among `binds`; a bind with `after_evictions` starts once those are accepted.
    pub evictions: Vec<Evict>,
    /// The term of leadership in which it was decided.
    pub term: u64,
}

/// **watches and scheduler → binder**.
#[derive(Clone, Debug)]
pub enum ToBinder {
    /// From watches, after the scheduler got it: pods and bind requests; and that all nodes, volumes and volume claims are listed.
    Change(Change),
    /// From the scheduler.
    Order(BindOrder),
    /// From watches, after the scheduler got it: the watch of the kind has caught up with the begin of that term of leadership.
    Current(Kind, u64),
}

/// **binder → scheduler**: how an order ended. Awaited by the worker that carried it out. What needs no answer, because the
/// watch shows it anyway, has none: pods that are bound, gone, re-created or bound elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The pod is not bound and waits again: the scheduler reverts its assumption.
    NotBound {
        /// The pod.
        pod: PodRef,
        /// Do not try again before.
        retry_at: Timestamp,
    },
    /// A GPU of a node could not be reserved for sharing.
    NoDevice {
        /// The node.
        node: Arc<str>,
        /// No GPU of the node is reserved for sharing before.
        retry_at: Timestamp,
    },
    /// The pod is not evicted: the scheduler reverts its assumption.
    NotEvicted {
        /// The pod.
        pod: PodRef,
        /// Do not try again before; `None` if it was not tried.
        retry_at: Option<Timestamp>,
    },
}

/// **scheduler → grouper**: when a pod group last began to run, was evicted, or broke; the grouper writes it into the pod
/// group's annotations, for the next leader. Awaited.
pub type Times = GroupTimes;

/// **watches and scheduler → grouper**.
#[derive(Clone, Debug)]
pub enum ToGrouper {
    /// From watches: pods, pod groups, priority classes, namespaces.
    Change(Change),
    /// From the scheduler, after a cycle, with the number of the term in which it decided them.
    Times(u64, Vec<Times>),
    /// From the scheduler, after a cycle: pod groups whose pods found no place.
    Waiting(Vec<GroupKey>),
    /// From the operator, for snapshots and what-if requests: the pod groups of pods that do not name theirs yet.
    Unwritten(Reply<Vec<Grouping>>),
}

/// **watches → scaleup**.
#[derive(Clone, Debug)]
pub enum ToScaleUp {
    /// Pods.
    Change(Change),
}

/// **watches, scheduler and grouper → podgroups**.
#[derive(Clone, Debug)]
pub enum ToPodGroups {
    /// From watches: pods, pod groups, nodes, priority classes, resource claims, namespaces.
    Change(Change),
    /// From the scheduler, after a cycle: pod groups whose pods found no place, and why. For each group the latest counts, in the term of leadership with this
    /// number.
    Waiting(u64, Vec<GroupReport>),
    /// From the scheduler, after a cycle of that term: pod groups with nothing pending any more.
    Cleared(u64, Vec<GroupKey>),
    /// From the grouper: the pod group of a single pod, its owner, that may never be written.
    Unwritten(Arc<PodGroup>),
    /// From grouper and scheduler: what keeps pods from a node and is in no report.
    Obstacles(Vec<Obstacle>),
    /// From the scheduler: a pod group that is set aside, with the message for its owner; `None`: it is not any more.
    SetAside(GroupKey, Option<String>),
    /// From the scheduler of that scope: whether scheduling is switched on.
    Decides(Scope, bool),
}

/// **grouper and scheduler → podgroups**: why a pod waits that is in no report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The pod.
    pub pod: PodRef,
    /// The kind of obstacle.
    pub kind: ObstacleKind,
    /// The reason in condition and event.
    pub reason: &'static str,
    /// The sentence for its owner; `None`: the last one of that kind no longer holds.
    pub message: Option<String>,
}

/// What keeps a pod from a node besides what reports say. Of several, the first in this order is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObstacleKind {
    /// It names a sub-group that its pod group does not have.
    SubGroup,
    /// It could not be grouped.
    Grouping,
    /// It is set aside.
    SetAside,
    /// Its node is chosen, but other pods must terminate there first.
    Place,
}

/// **podgroups → queues**: what a pod group requests and holds, as in its status, which may be written later. The latest counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// The pod group.
    pub group: GroupKey,
    /// Its queue; `None` when the pod group is gone.
    pub queue: Option<String>,
    /// Requested by pods that are not finished.
    pub requested: Amounts,
    /// Held by pods that run or are bound.
    pub allocated: Amounts,
    /// The part of `allocated` that cannot be preempted.
    pub allocated_non_preemptible: Amounts,
    /// Why it has pods without a node; `None` if it has none.
    pub waits: Option<Waits>,
}

/// Why and since when pods of a pod group have no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The cause of the latest verdict.
    pub cause: Cause,
    /// When the oldest of the pods was created, in seconds since 1970.
    pub since: i64,
}

/// **scheduler → queues**: the fair share of a queue. The latest counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FairShare {
    /// The queue.
    pub queue: String,
    /// Millionths of a GPU; 0 for a queue that is no longer in the tree.
    pub gpus: i64,
}

/// **watches, podgroups and schedulers → queues**.
#[derive(Clone, Debug)]
pub enum ToQueues {
    /// From watches: queues.
    Change(Change),
    /// From podgroups.
    Usage(Vec<Usage>),
    /// From podgroups: every pod group has been counted once.
    UsageComplete,
    /// From a scheduler, a second after cycles: the shares that changed.
    FairShares(Vec<FairShare>),
}

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// `Normal`: no problem.
    Normal,
    /// A problem.
    Warning,
}

/// Which object an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// A pod.
    Pod(PodRef),
    /// A pod group.
    PodGroup(GroupKey),
    /// A node, by its name.
    Node(Arc<str>),
}

impl Subject {
    /// Its namespace, or that of events about objects without one.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.namespace,
            Self::PodGroup(group) => group.namespace(),
            Self::Node(_) => object::CLUSTER_EVENTS_NAMESPACE,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Pod(pod) => &pod.name,
            Self::PodGroup(group) => group.name(),
            Self::Node(name) => name,
        }
    }
}

/// When an Event is repeated, by a higher count, while its cause lasts.
pub const REPEATS: Backoff = Backoff {
    first: Duration::from_secs(60),
    longest: Duration::from_secs(900),
};

/// **everyone → events**: an Event for users. Dropped and counted when the inbox is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object it is about.
    pub subject: Subject,
    /// The type of the Event.
    pub severity: Severity,
    /// The reason of the Event.
    pub reason: &'static str,
    /// The message of the Event.
    pub message: String,
    /// The reporting component: the Event's source.
    pub source: String,
    /// Annotations of the Event object.
    pub annotations: BTreeMap<String, String>,
}

/// **scheduler and binder → traces**: what spans are made from. Dropped and counted when the inbox is full.
#[derive(Clone, Debug)]
pub enum TraceEvent {
    /// From the scheduler: a pod without a node. The first one for a pod counts.
    Pod {
        /// The pod.
        pod: PodRef,
        /// Its group, if it names one itself.
        group: Option<GroupKey>,
        /// When.
        at: SystemTime,
    },
    /// From the scheduler: a pod was grouped.
    Grouped {
        /// The pod.
        pod: PodRef,
        /// Its group.
        group: GroupKey,
        /// The group's queue.
        queue: String,
        /// When.
        at: SystemTime,
    },
    /// From the scheduler: a pod was deleted.
    Gone {
        /// Its UID.
        uid: Arc<str>,
        /// When.
        at: SystemTime,
    },
    /// From the scheduler: a cycle that decided something.
    Cycle(Box<CycleSeen>),
    /// From the binder: how an order to bind ended.
    Bound(Box<BindSeen>),
}

/// A cycle, and its result for each pod group with a new one.
#[derive(Clone, Debug)]
pub struct CycleSeen {
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// Its steps, one after the other: name, begin and end, as times since the begin of the cycle.
    pub steps: Vec<(&'static str, Duration, Duration)>,
    /// Searches for victims: the action, whether one succeeded, begin and end.
    pub searches: Vec<(&'static str, bool, Duration, Duration)>,
    /// Pod groups with their results.
    pub attempts: Vec<(GroupKey, GroupOutcome)>,
    /// Pods that are evicted.
    pub evicted: usize,
}

/// The result of a cycle for a pod group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOutcome {
    /// So many pods are bound.
    Bound(usize),
    /// So many pods wait for other pods to terminate.
    Pipelined(usize),
    /// It cannot be placed, and why.
    Unschedulable(String),
}

/// An order to bind, and how it ended.
#[derive(Clone, Debug)]
pub struct BindSeen {
    /// The pod.
    pub pod: PodRef,
    /// Its group.
    pub group: GroupKey,
    /// The node.
    pub node: Arc<str>,
    /// When the work began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// Its steps: name, begin and end.
    pub steps: Vec<TimedStep>,
    /// Why it failed, if so; the pod waits again.
    pub failed: Option<String>,
}

/// A step of a bind: name, begin and end.
pub type TimedStep = (&'static str, SystemTime, SystemTime);

/// The sender to the traces component. Sending never waits, and does nothing where no collector is configured.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    sender: Option<mpsc::Sender<TraceEvent>>,
}

impl Traces {
    /// A sender with its receiver, for a process with a collector.
    #[must_use]
    pub fn channel() -> (Self, mpsc::Receiver<TraceEvent>) {
        let (sender, inbox) = mpsc::channel(TRACES_INBOX);
        (Self { sender: Some(sender) }, inbox)
    }

    /// Whether a collector is configured.
    #[must_use]
    pub fn are_on(&self) -> bool {
        self.sender.is_some()
    }

    /// Sends an event, which is only made if a collector is configured.
    pub fn tell(&self, event: impl FnOnce() -> TraceEvent) {
        if let Some(sender) = &self.sender
            && sender.try_send(event()).is_err()
        {
            metrics::counter!("unikai_spans_dropped_total").increment(1);
        }
    }

    /// A log for the steps of one bind.
    #[must_use]
    pub fn steps(&self) -> StepLog {
        StepLog(self.are_on().then(Arc::default))
    }
}

/// The steps of one bind, recorded only if a collector is configured.
#[derive(Clone, Debug, Default)]
pub struct StepLog(Option<Arc<Mutex<Vec<TimedStep>>>>);

impl StepLog {
    /// Runs a step, and records its begin and end.
    pub async fn step<T>(&self, name: &'static str, step: impl Future<Output = T>) -> T {
        let Some(log) = &self.0 else { return step.await };
        let began = clock::system_time();
        let result = step.await;
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((name, began, clock::system_time()));
        result
    }

    /// The recorded steps.
    #[must_use]
    pub fn take(&self) -> Vec<TimedStep> {
        let noted = |log: &Arc<Mutex<Vec<_>>>| std::mem::take(&mut *log.lock().unwrap_or_else(PoisonError::into_inner));
        self.0.as_ref().map(noted).unwrap_or_default()
    }
}

/// The senders to the schedulers, one for each shard. All get the same messages; each keeps the objects of its node pool.
#[derive(Clone, Debug)]
pub struct Schedulers(Arc<[mpsc::Sender<ToScheduler>]>);

impl Schedulers {
    /// Sends to each, waiting for room.
    ///
    /// # Errors
    /// If one of them is gone.
    pub async fn send(&self, message: ToScheduler) -> Result<(), Error> {
        for scheduler in &*self.0 {
            deliver(scheduler, message.clone()).await?;
        }
        Ok(())
    }

    /// Sends to each if all have room; else returns the message.
    ///
    /// # Errors
    /// The message, if one has no room.
    pub fn try_send<T: Into<ToScheduler> + Clone>(&self, message: T) -> Result<(), T> {
        let rooms: Result<Vec<_>, _> = self.0.iter().map(mpsc::Sender::try_reserve).collect();
        let Ok(rooms) = rooms else { return Err(message) };
        for room in rooms {
            room.send(message.clone().into());
        }
        Ok(())
    }

    /// Waits until each has had room.
    ///
    /// # Errors
    /// If one of them is gone.
    pub async fn room(&self) -> Result<(), Error> {
        for scheduler in &*self.0 {
            drop(scheduler.reserve().await.map_err(|_| Error::Closed)?);
        }
        Ok(())
    }

    /// The inboxes, in the order of the shards.
    pub fn inboxes(&self) -> impl Iterator<Item = &mpsc::Sender<ToScheduler>> {
        self.0.iter()
    }
}

/// The sending ends of all inboxes.
#[derive(Clone, Debug)]
pub struct Bus {
    /// To the schedulers.
    pub schedulers: Schedulers,
    /// To the grouper.
    pub grouper: mpsc::Sender<ToGrouper>,
    /// To the binder.
    pub binder: mpsc::Sender<ToBinder>,
    /// To podgroups.
    pub podgroups: mpsc::Sender<ToPodGroups>,
    /// To queues.
    pub queues: mpsc::Sender<ToQueues>,
    /// To scaleup, where there is one.
    pub scaleup: Option<mpsc::Sender<ToScaleUp>>,
    /// To events.
    pub events: Notes,
    /// To traces.
    pub traces: Traces,
}

/// The receiving ends, one for each component.
#[derive(Debug)]
pub struct Inboxes {
    /// The schedulers', one for each shard.
    pub schedulers: Vec<mpsc::Receiver<ToScheduler>>,
    /// The grouper's.
    pub grouper: mpsc::Receiver<ToGrouper>,
    /// The binder's.
    pub binder: mpsc::Receiver<ToBinder>,
    /// Of podgroups.
    pub podgroups: mpsc::Receiver<ToPodGroups>,
    /// Of queues.
    pub queues: mpsc::Receiver<ToQueues>,
    /// Of scaleup.
    pub scaleup: mpsc::Receiver<ToScaleUp>,
    /// Of events.
    pub events: mpsc::Receiver<ToEvents>,
}

/// Creates every channel of the process, for so many shards.
#[must_use]
pub fn channels(shards: usize) -> (Bus, Inboxes) {
    let (schedulers, scheduler_inboxes): (Vec<_>, _) = (0..shards).map(|_| mpsc::channel(SCHEDULER_INBOX)).unzip();
    let (grouper, grouper_inbox) = mpsc::channel(CHANGES_INBOX);
    let (binder, binder_inbox) = mpsc::channel(BINDER_INBOX);
    let (podgroups, podgroups_inbox) = mpsc::channel(CHANGES_INBOX);
    let (queues, queues_inbox) = mpsc::channel(CHANGES_INBOX);
    let (scaleup, scaleup_inbox) = mpsc::channel(CHANGES_INBOX);
    let (events, events_inbox) = mpsc::channel(EVENTS_INBOX);
    let bus = Bus {
        schedulers: Schedulers(schedulers.into()),
        grouper,
        binder,
        podgroups,
        queues,
        scaleup: Some(scaleup),
        events: Notes { sender: events },
        traces: Traces::default(),
    };
    let inboxes = Inboxes {
        schedulers: scheduler_inboxes,
        grouper: grouper_inbox,
        binder: binder_inbox,
        podgroups: podgroups_inbox,
        queues: queues_inbox,
        scaleup: scaleup_inbox,
        events: events_inbox,
    };
    (bus, inboxes)
}

/// The sender to the events component. Sending never waits.
#[derive(Clone, Debug)]
pub struct Notes {
    sender: mpsc::Sender<ToEvents>,
}

/// A note, and which replica writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToEvents {
    /// This one, which leads the scope of the note.
    Ours(Note),
    /// The leader of the cluster, since every replica sends the same note.
    SeenByAll(Note),
}

impl Notes {
    /// Sends a note about an object in a scope that this process leads. Drops and counts it when the inbox is full.
    pub fn send(&self, note: Note) {
        self.put(ToEvents::Ours(note));
    }

    /// The same for a note that every replica sends: the leader of the cluster writes it.
    pub fn send_as_cluster(&self, note: Note) {
        self.put(ToEvents::SeenByAll(note));
    }

    fn put(&self, note: ToEvents) {
        if self.sender.try_send(note).is_err() {
            metrics::counter!("unikai_events_dropped_total").increment(1);
        }
    }
}

/// Sends, waiting for room.
///
/// # Errors
/// If the receiver is gone.
pub async fn deliver<T>(to: &mpsc::Sender<T>, message: T) -> Result<(), Error> {
    random::delay().await;
    to.send(message).await.map_err(|_| Error::Closed)
}
