//! Reports to users: the status of PodGroups (what their pods request and hold, why they wait), the `PodScheduled` condition of pods that cannot run,
//! and the events that go with both.
//!
//! Everything is computed from the watched pods and the scheduler's latest reports, and written when it differs from what is stored, one patch per
//! object, by the leader. A pod that still waits after [`UNREPORTED_AFTER`] gets a reason in any case: without a report, the one that the objects
//! show (`unreported`). Why something cannot be placed is found out by the engine.

mod claims;
mod conditions;
mod gpu_memory;
pub mod ledger;
mod notify;
mod other_schedulers;
mod status;
mod summary;
mod unreported;
mod waiting;
mod without_shard;
mod write_history;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, info, warn};

use crate::api::PodGroup;
use crate::api::names::reason;
use crate::api::quantity::Amount;
use crate::components::agenda::Agenda;
use crate::components::bus::{
    Amounts, Bus, Change, GroupKey, GroupReport, Kind, Listener, Object, Obstacle, ObstacleKind, PodRef, ToPodGroups,
    ToQueues, deliver,
};
use crate::components::fair::InNamespace;
use crate::components::leadership::{Scope, Terms};
use crate::components::quantities::Sum;
use crate::components::repeats::Repeats;
use crate::components::retry::{Backoff, Failure, failure};
use crate::components::watches::{Key, Stores};
use crate::components::write_slots::{WriteSlot, WriteSlots};
use crate::components::{Context, Error, panics, pods};
use claims::Users;
use gpu_memory::PodsByNode;
use ledger::Ledger;
use other_schedulers::OtherSchedulers;
use waiting::WaitingPods;
use write_history::WriteHistory;

/// Sums are written this long after they changed: the pods of a gang change together.
const SUMS_AFTER: Duration = Duration::from_millis(200);
/// Delay for the sums of a gang of which not all pods are bound: most of these pods are bound before, and one write suffices. The same for a gang
/// that lacks pods: they are usually being created.
const WAITING_AFTER: Duration = Duration::from_secs(1);
/// The same where no pod is bound yet: binding many takes longer. A group that cannot be placed is reported earlier.
const UNBOUND_AFTER: Duration = Duration::from_secs(5);
/// A pod without a report by then gets the reason that the objects show. Most pods are bound before. The pods of an incomplete gang get it then as
/// well, unless more of its pods have just been created.
const UNREPORTED_AFTER: Duration = Duration::from_secs(2);
/// Delay of reasons, for which users wait: short, but long enough for a gang whose pods are being created.
const REASONS_AFTER: Duration = Duration::from_millis(150);
/// Maximum time for which due writes wait for bindings: reasons are to be readable within seconds, also during a burst.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Wait before a failed write is retried: first and longest.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(60),
};
/// Messages handled before usage is sent.
const MESSAGES_AT_ONCE: usize = 1_024;

/// Writes statuses and conditions until shutdown, and tells the component `queues` what pod groups request and hold. If the part is switched off, it
/// does only the latter.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(
    context: Context,
    mut inbox: mpsc::Receiver<ToPodGroups>,
    stores: Arc<Stores>,
    bus: Bus,
) -> Result<(), Error> {
    // A process that leads nothing writes and reports nothing.
    let (_nothing, leads_nothing) = watch::channel(Terms::default());
    let leading = if context.settings.parts.pod_groups {
        context.leading.clone()
    } else {
        leads_nothing
    };
    let context = Context { leading, ..context };
    let mut leading = context.leading.clone();
    let mut slots = WriteSlots::with_max_wait(&context.background, MAX_WAIT);
    let mut statuses = PodGroups::new(context.clone(), stores, bus);
    let mut messages = Vec::new();
    loop {
        let again = statuses.repeats.next();
        tokio::select! {
            () = context.shutdown.cancelled() => return Ok(()),
            received = inbox.recv_many(&mut messages, MESSAGES_AT_ONCE) => {
                if received == 0 {
                    return Err(Error::Closed);
                }
                messages.drain(..).for_each(|message| statuses.take(message));
                statuses.send_usage().await?;
            }
            Some(written) = statuses.writes.join_next() => {
                let written = written.map_err(|panic| Error::Panicked { task: "status write", panic: panic.to_string() })?;
                statuses.written(written);
            }
            changed = leading.changed() => {
                changed.map_err(|_| Error::Closed)?;
                statuses.leading_changed();
            }
            slot = slots.due(statuses.agenda.next()) => statuses.write_next(slot),
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => statuses.repeat_events(),
        }
    }
}

/// An object whose status is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Target {
    Group(GroupKey),
    Pod(PodRef),
}

impl InNamespace for Target {
    fn namespace(&self) -> &str {
        match self {
            Self::Group(key) => key.namespace(),
            Self::Pod(pod) => &pod.namespace,
        }
    }
}

/// A planned write.
type Write = BoxFuture<'static, Result<Stored, kube::Error>>;

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    Whole,
    /// The summary was dropped: the definition of pod groups is KAI's or an older one.
    WithoutSummary,
}

/// The end of a write.
struct Written {
    target: Target,
    result: Result<Stored, kube::Error>,
}

/// The latest report about a group.
struct Reported {
    report: GroupReport,
    /// The term of leadership in which it was reported. It is not written in others.
    term: u64,
    /// When the group was first and last reported.
    first: Instant,
    latest: Instant,
    /// No event reports it yet.
    news: bool,
}

struct PodGroups {
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    ledger: Ledger,
    /// The pods that claim devices.
    claimants: Users,
    /// The bound pods that share GPUs by memory.
    by_memory: PodsByNode,
    /// The latest report about each group that waits.
    reports: HashMap<GroupKey, Reported>,
    /// What was written about each group, also about one that does not wait at the moment: it may wait and be placed in turns.
    histories: HashMap<GroupKey, WriteHistory>,
    /// Groups that the scheduler reported as no longer waiting, and the term of leadership.
    cleared: BTreeMap<GroupKey, u64>,
    /// Pod groups of single pods that may never be written, by key, and their keys by the UID of the pod.
    unwritten: HashMap<GroupKey, Arc<PodGroup>>,
    unwritten_of: HashMap<String, GroupKey>,
    waiting: WaitingPods,
    /// What is known of waiting pods beside reports and objects.
    known: unreported::Known,
    others: OtherSchedulers,
    /// Events that are repeated while nothing changes.
    repeats: Repeats<Target>,
    agenda: Agenda<Target>,
    failures: HashMap<Target, u32>,
    writes: JoinSet<Written>,
    /// Groups whose usage was not passed to the queues yet.
    usage: BTreeSet<GroupKey>,
    missing: Vec<Kind>,
    /// The term in which objects without a shard were last searched.
    looked_in: Option<u64>,
    /// The usage of all groups at the start was passed to the queues.
    complete: bool,
    /// The API server stores summaries.
    summaries: bool,
}

impl PodGroups {
    fn new(context: Context, stores: Arc<Stores>, bus: Bus) -> Self {
        Self {
            context,
            stores,
            bus,
            ledger: Ledger::default(),
            claimants: Users::default(),
            by_memory: PodsByNode::default(),
            reports: HashMap::new(),
            histories: HashMap::new(),
            cleared: BTreeMap::new(),
            unwritten: HashMap::new(),
            unwritten_of: HashMap::new(),
            waiting: WaitingPods::default(),
            known: unreported::Known::default(),
            others: OtherSchedulers::default(),
            repeats: Repeats::default(),
            agenda: Agenda::default(),
            failures: HashMap::new(),
            writes: JoinSet::new(),
            usage: BTreeSet::new(),
            missing: Kind::told_to(&[Listener::PodGroups]),
            looked_in: None,
            complete: false,
            summaries: true,
        }
    }

    /// Handles a message. If one object or report of it panics, that one is skipped.
    fn take(&mut self, message: ToPodGroups) {
        match message {
            ToPodGroups::Change(change) => {
                if let Err(panic) = panics::catch(|| self.change(change.clone())) {
                    let note = panics::set_aside("podgroups", &change, &panic, &self.context.settings.scheduler_name);
                    note.into_iter().for_each(|note| self.bus.events.send_as_cluster(note));
                }
            }
            ToPodGroups::Waiting(term, reports) => {
                for report in reports {
                    let about = Target::Group(report.group.clone());
                    self.guard(Some(&about), |this| this.waiting(term, report));
                }
            }
            ToPodGroups::Cleared(term, groups) => {
                for group in groups {
                    let about = Target::Group(group.clone());
                    self.guard(Some(&about), |this| this.cleared(term, group));
                }
            }
            ToPodGroups::Unwritten(group) => {
                let about = Target::Group(pods::group_key(&group.metadata));
                self.guard(Some(&about), |this| this.unwritten(group));
            }
            ToPodGroups::Obstacles(obstacles) => {
                for obstacle in obstacles {
                    let about = Target::Pod(obstacle.pod.clone());
                    self.guard(Some(&about), |this| this.obstacle(obstacle));
                }
            }
            ToPodGroups::SetAside(group, why) => {
                let about = Target::Group(group.clone());
                self.guard(Some(&about), |this| this.set_aside(group, why));
            }
            ToPodGroups::Decides(scope, decides) => self.guard(None, |this| this.decides(scope, decides)),
        }
    }

    /// Handles one report; if that panics, it is skipped and counted, and those after it are still handled.
    fn guard(&mut self, about: Option<&Target>, handle: impl FnOnce(&mut Self)) {
        if let Err(panic) = panics::catch(|| handle(self)) {
            metrics::counter!("unikai_object_panics_total", "component" => "podgroups").increment(1);
            error!(component = "podgroups", object = ?about, panic, "a report is skipped");
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Applied(Object::Pod(pod)) => self.pod(&pod),
            Change::Deleted(Object::Pod(pod)) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                let changed = self.ledger.remove(uid);
                self.claimants.forget(&pod);
                self.by_memory.forget(&Key::of(&pod.metadata));
                if let Some(key) = self.unwritten_of.remove(uid) {
                    self.forget_unwritten(&key);
                }
                self.others.forget(&pod);
                self.waits_no_more(&pods::pod_ref(&pod));
                self.sums_changed(changed);
            }
            Change::Applied(Object::PodGroup(group)) => {
                let key = pods::group_key(&group.metadata);
                self.sums_changed(vec![key.clone()]);
                self.see_group(&group);
                if self.reports.contains_key(&key) {
                    self.plan_reason(Target::Group(key), REASONS_AFTER);
                }
            }
            Change::Deleted(Object::PodGroup(group)) => self.forget(pods::group_key(&group.metadata)),
            Change::Applied(Object::PriorityClass(_)) | Change::Deleted(Object::PriorityClass(_)) => {
                self.everything_changed();
            }
            Change::Applied(Object::ResourceClaim(claim)) | Change::Deleted(Object::ResourceClaim(claim)) => {
                self.claim(&Key::of(&claim.metadata));
            }
            Change::Applied(Object::Node(node)) => self.node(&node),
            Change::Synced(kind) => self.synced(kind),
            Change::Applied(_) | Change::Deleted(_) => {}
        }
    }

    /// Scheduling in that scope is switched on or off.
    fn decides(&mut self, scope: Scope, decides: bool) {
        let changed = if decides {
            self.known.off.remove(&scope)
        } else {
            self.known.off.insert(scope)
        };
        if changed {
            self.plan_all_that_wait(REASONS_AFTER);
        }
    }

    /// The scheduler cannot read a pod group, or reads it again. No report says so, and its pods may still say that it does not exist.
    fn set_aside(&mut self, key: GroupKey, why: Option<String>) {
        let mut pods = self.waiting.all();
        pods.retain(|pod| self.ledger.group_of(&pod.uid) == Some(&key));
        // The deletion of a pod group may have been told before.
        match why.filter(|_| self.group(&key).is_some()) {
            Some(message) => self.known.set_aside.insert(key, message),
            None => self.known.set_aside.remove(&key),
        };
        pods.into_iter()
            .for_each(|pod| self.plan(Target::Pod(pod), REASONS_AFTER));
    }

    /// A pod group that may never be written counts for its queue while its pod exists.
    fn unwritten(&mut self, group: Arc<PodGroup>) {
        let key = pods::group_key(&group.metadata);
        let owners = group.metadata.owner_references.as_deref().unwrap_or_default();
        let Some(owner) = owners.first() else { return };
        let pod = self.stores.pods.get(key.namespace(), &owner.name);
        if pod.is_none_or(|pod| pod.metadata.uid.as_ref() != Some(&owner.uid)) {
            return;
        }
        let before = self.unwritten_of.insert(owner.uid.clone(), key.clone());
        if let Some(before) = before.filter(|before| *before != key) {
            self.forget_unwritten(&before);
        }
        self.unwritten.insert(key.clone(), group);
        self.usage.insert(key);
    }

    /// The pod of a group that may never be written is gone, or in another group.
    fn forget_unwritten(&mut self, key: &GroupKey) {
        self.unwritten.remove(key);
        if !self.stores.pod_groups.contains(key.namespace(), key.name()) {
            self.forget(key.clone());
        }
    }

    /// A group does not exist any more.
    fn forget(&mut self, key: GroupKey) {
        self.no_report(&key);
        self.histories.remove(&key);
        self.cleared.remove(&key);
        self.known.set_aside.remove(&key);
        self.failures.remove(&Target::Group(key.clone()));
        self.usage.insert(key);
    }

    /// The group as stored, or as it would be written.
    fn group(&self, key: &GroupKey) -> Option<Arc<PodGroup>> {
        let written = self.stores.pod_groups.get(key.namespace(), key.name());
        written.or_else(|| self.unwritten.get(key).cloned())
    }

    /// Nothing is written before everything has been counted; then every status is compared.
    fn synced(&mut self, kind: Kind) {
        let before = self.missing.len();
        self.missing.retain(|missing| *missing != kind);
        if before > 0 && self.missing.is_empty() {
            self.everything_changed();
            // What came due before was not written.
            self.plan_all_that_wait(REASONS_AFTER);
            self.look_at_other_schedulers();
            self.report_without_shard();
        }
    }

    /// A pod was created or changed: it is recounted, and so are others if it shows that one of their claims has changed.
    fn pod(&mut self, pod: &Pod) {
        let mut due = Vec::new();
        self.count(pod, &mut due);
        self.count_all(due);
    }

    /// A claim was created, changed or deleted: its pods are recounted.
    fn claim(&mut self, key: &Key) {
        let mut due = Vec::new();
        self.claimed(key, &mut due);
        self.count_all(due);
    }

    /// A node was created or changed: pods that share its GPUs by memory are recounted if that is another one.
    fn node(&mut self, node: &Node) {
        self.see_node(node);
        let due = self.by_memory.changed(node);
        self.count_all(due);
    }

    fn count_all(&mut self, mut due: Vec<Key>) {
        while let Some(key) = due.pop() {
            if let Some(pod) = self.stores.pods.get(&key.namespace, &key.name) {
                self.count(&pod, &mut due);
            }
        }
    }

    fn count(&mut self, pod: &Pod, due: &mut Vec<Key>) {
        if !pods::is_ours(pod, &self.context.settings) {
            return self.of_another_scheduler(pod);
        }
        let nodes = &self.stores.nodes;
        let memory = self
            .by_memory
            .see(pod, |node| gpu_memory::of_one_gpu(nodes.get("", node)?.as_ref()));
        let mut claimed = Sum::default();
        for claim in self.claimants.see(pod) {
            claimed.combine(&Sum::from(self.claimed(&claim, due)), Amount::saturating_add);
        }
        let changed = self.ledger.put(pod, memory, &claimed.amounts());
        self.sums_changed(changed);
        self.see_waiting(pod);
    }

    /// The devices that a claim requests; none while it does not exist. If they changed, its pods are due.
    fn claimed(&mut self, key: &Key, due: &mut Vec<Key>) -> Amounts {
        let claim = self.stores.resource_claims.get(&key.namespace, &key.name);
        let devices = claim.map(|claim| claims::devices(&claim)).unwrap_or_default();
        due.extend(self.claimants.changed(key, &devices));
        devices
    }

    fn sums_changed(&mut self, groups: Vec<GroupKey>) {
        for group in groups {
            let after = self.max_wait(&group);
            self.usage.insert(group.clone());
            self.plan(Target::Group(group), after);
        }
    }

    /// How long the sums of a group may change before they are written.
    fn max_wait(&self, key: &GroupKey) -> Duration {
        let sums = self.ledger.sums(key);
        let lacks_pods = || {
            let needed = self.group(key).and_then(|group| group.spec.min_member).unwrap_or(1);
            usize::try_from(needed).is_ok_and(|needed| sums.pods < needed)
        };
        match sums.waiting {
            0 if !lacks_pods() => SUMS_AFTER,
            1.. if sums.allocated.is_empty() => UNBOUND_AFTER,
            _ => WAITING_AFTER,
        }
    }

    /// Whether the scheduler of the group's node pool has reported it, and this term is another scheduler's: of the node pool in which it was before.
    fn is_of_another(&self, key: &GroupKey, term: u64) -> bool {
        let reported = self.reports.get(key).map(|reported| reported.term);
        reported.is_some_and(|reported| reported != term && self.context_of(key).is_of_term(reported))
    }

    /// A group cannot run: writes its condition, its pods' conditions, and events.
    fn waiting(&mut self, term: u64, report: GroupReport) {
        let (key, now) = (report.group.clone(), Instant::now());
        if self.is_of_another(&key, term) {
            return;
        }
        self.cleared.remove(&key);
        self.known.set_aside.remove(&key);
        let texts = report.pod_texts(self.context.settings.messages);
        let mut pods = self.waiting.replace(&key, status::reason_of(&report), &texts);
        let (of_group, of_pods) = if report.not_ready {
            (WAITING_AFTER, UNREPORTED_AFTER)
        } else {
            (REASONS_AFTER, REASONS_AFTER)
        };
        let before = self.reports.remove(&key);
        // In another term the same message is written again: another process may have written since.
        if before.as_ref().is_some_and(|before| before.term != term) {
            pods.extend(texts.into_iter().map(|(pod, _)| pod));
        }
        let cause = report.verdict.cause;
        if before
            .as_ref()
            .is_none_or(|before| before.report.verdict.cause != cause)
        {
            let (sentence, cause) = (&report.verdict.sentence, cause.as_str());
            info!(
                ns = key.namespace(),
                name = key.name(),
                cause,
                sentence,
                "pod group waits"
            );
            self.usage.insert(key.clone());
        }
        let before = before.filter(|before| before.report.not_ready == report.not_ready);
        let reported = Reported {
            report,
            term,
            first: before.map_or(now, |before| before.first),
            latest: now,
            news: true,
        };
        self.reports.insert(key.clone(), reported);
        pods.into_iter()
            .for_each(|pod| self.plan_reason(Target::Pod(pod), of_pods));
        self.plan_reason(Target::Group(key), of_group);
    }

    /// The group is no longer reported; its pods that still wait are handled again.
    fn no_report(&mut self, key: &GroupKey) {
        if self.reports.remove(key).is_some() {
            self.usage.insert(key.clone());
        }
        self.repeats.end(&Target::Group(key.clone()));
        let exists = self.unwritten.contains_key(key) || self.stores.pod_groups.contains(key.namespace(), key.name());
        if !exists {
            self.histories.remove(key);
        } else if let Some(history) = self.histories.get_mut(key) {
            // Its condition is removed once its pods have nodes, which is a write, too.
            history.wrote("", Instant::now());
        }
        let pods = self.waiting.replace(key, reason::UNSCHEDULABLE, &[]);
        pods.into_iter()
            .for_each(|pod| self.plan(Target::Pod(pod), UNREPORTED_AFTER));
    }

    fn cleared(&mut self, term: u64, key: GroupKey) {
        if self.is_of_another(&key, term) {
            return;
        }
        // Pods that are bound now have their condition from the API server.
        self.no_report(&key);
        // The deletion of a pod group may have been told before.
        if self.group(&key).is_some() {
            self.cleared.insert(key.clone(), term);
            self.plan(Target::Group(key), SUMS_AFTER);
        }
    }

    fn plan(&mut self, target: Target, after: Duration) {
        if self.context.leads_something() {
            self.agenda.plan(&target, Instant::now() + after);
        }
    }

    /// Plans the write of a reason, for the time from which it may be written at the earliest.
    fn plan_reason(&mut self, target: Target, after: Duration) {
        let (now, waiting) = (Instant::now(), self.reports.len());
        let due = match &target {
            Target::Group(key) => self.reports.get(key).and_then(|reported| {
                let message = reported.report.text(self.context.settings.messages);
                Some(self.histories.get(key)?.due(&message, now, waiting))
            }),
            Target::Pod(pod) => self.waiting.get(&pod.uid).and_then(|entry| {
                let said = entry.said()?;
                Some(entry.history.due(&said.message, now, waiting))
            }),
        };
        let wait = due.map_or(Duration::ZERO, |due| due.duration_since(now));
        self.plan(target, after.max(wait));
    }

    /// A new leader compares every status.
    fn leading_changed(&mut self) {
        self.agenda.clear();
        self.failures.clear();
        self.waiting.terms_changed();
        self.everything_changed();
        self.plan_all_that_wait(REASONS_AFTER);
        self.look_at_other_schedulers();
        self.report_without_shard();
    }

    fn plan_all_that_wait(&mut self, after: Duration) {
        let pods = self.waiting.all();
        pods.into_iter().for_each(|pod| self.plan(Target::Pod(pod), after));
    }

    fn everything_changed(&mut self) {
        let written = self.stores.pod_groups.keys().into_iter();
        let written = written.map(|key| GroupKey::new(&key.namespace, &key.name));
        let mut groups: Vec<_> = written.chain(self.unwritten.keys().cloned()).collect();
        groups.sort_unstable();
        self.sums_changed(groups);
    }

    /// Sends changed usage to the component `queues`, once every list is complete.
    async fn send_usage(&mut self) -> Result<(), Error> {
        if !self.missing.is_empty() || (self.usage.is_empty() && self.complete) {
            return Ok(());
        }
        let usage = std::mem::take(&mut self.usage).into_iter();
        let usage = usage.map(|key| {
            let group = self.group(&key);
            let report = self.reports.get(&key).map(|reported| &reported.report);
            status::usage(
                key.clone(),
                group.as_deref(),
                &self.ledger.sums(&key),
                report,
                &self.stores,
            )
        });
        deliver(&self.bus.queues, ToQueues::Usage(usage.collect())).await?;
        if !self.complete {
            self.complete = true;
            deliver(&self.bus.queues, ToQueues::UsageComplete).await?;
        }
        Ok(())
    }

    /// Starts the next write that is still needed.
    fn write_next(&mut self, slot: WriteSlot) {
        let ready = self.missing.is_empty();
        while let Some(target) = self.agenda.start(Instant::now()) {
            let write = match &target {
                _ if !ready => None,
                Target::Group(key) => self.write_group(key),
                Target::Pod(pod) => self.write_pod(pod),
            };
            let Some(write) = write else {
                self.agenda.finish(&target);
                self.failures.remove(&target);
                continue;
            };
            self.writes.spawn(async move {
                let result = write.await;
                slot.end(result.as_ref().err());
                Written { target, result }
            });
            return;
        }
    }

    /// The context for writes about a group, or about its pods: that of its node pool.
    fn context_of(&self, key: &GroupKey) -> Context {
        self.context_with(self.group(key).as_deref())
    }

    /// The same for a group that was read already.
    fn context_with(&self, group: Option<&PodGroup>) -> Context {
        let labels = group.and_then(|group| group.metadata.labels.as_ref());
        self.context.of_scope(&self.context.scope_of(labels))
    }

    /// The write of a group's status, if it differs from the stored one.
    fn write_group(&mut self, key: &GroupKey) -> Option<Write> {
        let group = self.stores.pod_groups.get(key.namespace(), key.name());
        let unwritten = self.unwritten.get(key);
        let context = self.context_with(group.as_ref().or(unwritten).map(|group| &**group));
        if !context.is_leading() {
            return None;
        }
        let is_reported = self.is_reported(key, &context);
        let held = is_reported && self.report_group(key);
        let group = group?;
        let finding = match self.reports.get(key).filter(|_| is_reported) {
            Some(_) if held => status::Finding::Held,
            Some(reported) => status::Finding::Waits(&reported.report),
            None if self.cleared.get(key).is_some_and(|term| context.is_of_term(*term)) => status::Finding::Cleared,
            None => status::Finding::Unknown,
        };
        let sums = self.ledger.sums(key);
        let summary = summary::summary(&group, &sums, &finding).filter(|_| self.summaries);
        let mut target = status::target(&group, &sums, finding, &self.stores, &self.context.settings);
        target.summary = summary.or(target.summary);
        let patch = status::patch(&group, &target)?;
        let key = key.clone();
        Some(async move { status::write_group(&context, &key, patch).await }.boxed())
    }

    fn written(&mut self, written: Written) {
        let target = written.target;
        self.agenda.finish(&target);
        let error = match written.result {
            Ok(stored) => {
                if stored == Stored::WithoutSummary && std::mem::take(&mut self.summaries) {
                    warn!(
                        "the definition of PodGroups has no status.summary, which kubectl shows; apply crds/ and restart"
                    );
                }
                self.failures.remove(&target);
                return;
            }
            Err(error) => error,
        };
        let failures = self.failures.entry(target.clone()).or_default();
        *failures += 1;
        let wait = RETRY.wait(*failures);
        match failure(&error) {
            // Deleted, or changed meanwhile: the watch will show it, and the rest is written then.
            Failure::Gone => {
                self.failures.remove(&target);
                return;
            }
            Failure::Conflict | Failure::Busy | Failure::Unknown => debug!(?target, %error, "status not written"),
            Failure::Refused => warn!(?target, %error, "status refused by the api server"),
        }
        self.plan(target, wait);
    }
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
