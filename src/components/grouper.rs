//! Assigns pods to pod groups. The owners of a pod decide its group. The grouper sends the group to the scheduler at once, and writes the
//! PodGroup object later, off the critical path.
//!
//! - `grouping` (shared with admission) reads the owners of a pod and computes its group; `merge` combines that with an existing
//!   PodGroup;
//! - namespaces take turns, pod by pod (`fair`), so that a tenant with many changes or slow owner reads delays only its own pods;
//! - `grouped_pods` holds the groups of pods; `writer` writes PodGroups shortly after, and the annotation of pods that are still pending
//!   then (a pod that is bound at once gets it with its Binding);
//! - `classes` has groups computed again when priority classes that they name are created or deleted, and `gangs` when pods come or go.
//!
//! Absent: pod groups created by other clients. Pods annotated `kai.scheduler/skip-podgrouper`, and ownerless pods that name a group
//! of their own, are left alone. While grouping is switched off, pods are ignored, and only the scheduler's timestamps are written.

mod absent_classes;
mod classes;
mod gangs;
mod grouped_pods;
pub mod merge;
mod obstacles;
mod writer;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};

use crate::api::PodGroup;
use crate::api::names::{self, annotation, label, object};
use crate::components::agenda::Agenda;
use crate::components::bus::{
    Bus, Change, GroupKey, Grouping, Kind, Listener, Note, Object, Obstacle, PodRef, Severity, Subject, ToGrouper,
    ToPodGroups, ToScheduler, deliver,
};
use crate::components::fair::{Fair, InNamespace as _, NamespaceQueues};
use crate::components::grouping::owners::Owners;
use crate::components::grouping::rules::Grouped;
use crate::components::grouping::stated::{self, Stated};
use crate::components::grouping::{Failed, Found, Known, has_all, is_addressed, names_foreign_group, skips_grouping};
use crate::components::retry::Backoff;
use crate::components::watches::Stores;
use crate::components::write_slots::WriteSlots;
use crate::components::{Context, Error, panics, pods};
use grouped_pods::{Entry, GroupedPods, Member};
use writer::{PodGroupWriter, Written};

/// Wait before a pod whose owners cannot be read is tried again: first and longest.
const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// Wait before the pods of a deleted pod group are grouped again: usually they are deleted with it.
const AFTER_DELETION: Duration = Duration::from_secs(1);
/// Minimum time between two groupings of one pod.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Owner walks at a time, in all and of one namespace: each holds a pod, and waits for its turn to read.
const WALKS_MAX: usize = 512;
const WALKS_PER_NAMESPACE: usize = 64;
/// Bytes of the reason why a pod cannot be grouped.
const REASON_MAX: usize = 1_024;
/// How long the last writes before a shutdown may take.
const LAST_WRITES: Duration = Duration::from_secs(5);
/// Messages received, or pods grouped, before the loop checks its other events.
const MESSAGES_AT_ONCE: usize = 1_024;
const PODS_AT_ONCE: usize = 16;

/// Groups pods until shutdown.
///
/// # Errors
/// If another component is gone, or a task of this one panicked.
pub async fn run(
    context: Context,
    mut inbox: mpsc::Receiver<ToGrouper>,
    stores: Arc<Stores>,
    bus: Bus,
) -> Result<(), Error> {
    let mut leading = context.leading.clone();
    // If `always_bind_requests` is set, Bindings wait until the PodGroups exist.
    let mut slots = if context.settings.sharing.always_bind_requests {
        WriteSlots::with_max_wait(&context.background, Duration::ZERO)
    } else {
        WriteSlots::new(&context.background)
    };
    let mut grouper = Grouper::new(context.clone(), stores, bus.clone());
    let mut messages = Vec::new();
    loop {
        grouper.group_some();
        for group in grouper.unwritten.drain(..) {
            deliver(&bus.podgroups, ToPodGroups::Unwritten(group)).await?;
        }
        grouper.pass_obstacles_on().await?;
        let again = [grouper.grouped_pods.next_retry(), grouper.doubted.next()];
        let again = again.into_iter().flatten().min();
        let due = grouper.writer.next_due();
        tokio::select! {
            () = context.shutdown.cancelled() => {
                grouper.end(&mut inbox).await;
                return Ok(());
            }
            received = inbox.recv_many(&mut messages, MESSAGES_AT_ONCE) => {
                if received == 0 {
                    return Err(Error::Closed);
                }
                messages.drain(..).for_each(|message| grouper.take(message));
            }
            room = bus.schedulers.room(), if !grouper.outbox.is_empty() => room?,
            Some(walked) = grouper.walks.join_next() => grouper.returned(joined("owner walk", walked)?),
            Some(written) = grouper.writer.writes.join_next() => {
                grouper.written(joined("pod group write", written)?);
            }
            Ok(()) = leading.changed() => grouper.writer.leading_changed(&grouper.grouped_pods),
            slot = slots.due(due) => grouper.writer.write_next(slot, &grouper.grouped_pods),
            () = sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => grouper.group_again(),
            () = tokio::task::yield_now(), if !grouper.queue.is_empty() && grouper.outbox.is_empty() => {}
        }
    }
}

fn joined<T>(task: &'static str, ended: Result<T, tokio::task::JoinError>) -> Result<T, Error> {
    ended.map_err(|panic| Error::Panicked {
        task,
        panic: panic.to_string(),
    })
}

/// The end of an owner walk.
struct Walked {
    pod: Member,
    version: u64,
    /// The pod was grouped again because its owners may have changed.
    anew: bool,
    /// When the pod came, if it had no group.
    came: Option<Instant>,
    /// The result, or the message if the walk panicked.
    found: Result<Result<Found, Failed>, String>,
}

struct Grouper {
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    owners: Arc<Owners>,
    grouped_pods: GroupedPods,
    /// Priority classes that exist.
    classes: HashSet<Box<str>>,
    /// Gangs whose owners may have changed: one of their pods is grouped again.
    doubted: Agenda<GroupKey>,
    writer: PodGroupWriter,
    /// Namespaces with the labels that the configuration requires.
    addressed: HashSet<String>,
    /// Pods to group.
    queue: Fair<Member>,
    /// Pods whose owners are being read, or wait for that.
    walking: HashSet<Member>,
    /// Those that wait.
    waiting_walks: NamespaceQueues<Member>,
    walks: JoinSet<Walked>,
    /// Messages for the schedulers.
    outbox: VecDeque<ToScheduler>,
    /// The pod group of the last grouping, as long as that waits for the scheduler or is read by it.
    last_sent: Weak<PodGroup>,
    /// Pod groups that may stay unwritten, to be sent to the podgroups component.
    unwritten: Vec<Arc<PodGroup>>,
    /// Pods without a group that were reported to the podgroups component.
    with_obstacle: HashSet<Arc<str>>,
    /// Messages for it that are not sent yet.
    obstacles: Vec<Obstacle>,
    missing: Vec<Kind>,
}

impl Grouper {
    /// Writes the scheduler's timestamps that are not written yet. Whoever decides next would not know that a pod group has just begun, and could evict it.
    async fn end(&mut self, inbox: &mut mpsc::Receiver<ToGrouper>) {
        while let Ok(message) = inbox.try_recv() {
            if let ToGrouper::Times(term, times) = message {
                self.writer.times(term, times);
            }
        }
        let written = self.writer.write_times(&self.grouped_pods);
        if timeout(LAST_WRITES, written).await.is_err() {
            warn!("not all times of pod groups are written before the end");
        }
    }

    fn new(context: Context, stores: Arc<Stores>, bus: Bus) -> Self {
        Self {
            owners: Arc::new(Owners::new(
                context.reads.clone(),
                context.settings.default_priorities.clone(),
            )),
            writer: PodGroupWriter::new(context.clone(), Arc::clone(&stores), bus.clone()),
            context,
            stores,
            bus,
            grouped_pods: GroupedPods::default(),
            classes: HashSet::new(),
            doubted: Agenda::default(),
            addressed: HashSet::new(),
            queue: Fair::default(),
            walking: HashSet::new(),
            waiting_walks: NamespaceQueues::new(WALKS_PER_NAMESPACE),
            walks: JoinSet::new(),
            outbox: VecDeque::new(),
            last_sent: Weak::new(),
            unwritten: Vec::new(),
            with_obstacle: HashSet::new(),
            obstacles: Vec::new(),
            missing: Kind::told_to(&[Listener::Grouper]),
        }
    }

    fn take(&mut self, message: ToGrouper) {
        match message {
            ToGrouper::Change(change) => {
                if let Err(panic) = panics::catch(|| self.change(change.clone())) {
                    self.set_aside(&change, &panic);
                }
            }
            ToGrouper::Times(term, times) => self.writer.times(term, times),
            ToGrouper::Waiting(groups) => self.waiting(&groups),
            // The requester may have stopped waiting.
            ToGrouper::Unwritten(reply) => drop(reply.try_send(self.writer.unwritten(&self.grouped_pods))),
        }
    }

    fn set_aside(&self, change: &Change, panic: &str) {
        let note = panics::set_aside("grouper", change, panic, object::GROUPER_EVENT_SOURCE);
        note.into_iter().for_each(|note| self.bus.events.send_as_cluster(note));
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Applied(Object::Pod(pod)) if self.groups(&pod) => self.pod(&pod),
            Change::Deleted(Object::Pod(pod)) => {
                let uid = pod.metadata.uid.as_deref().unwrap_or_default();
                self.with_obstacle.remove(uid);
                self.leaves(uid);
                if let Some(group) = self.grouped_pods.forget(&pod) {
                    self.writer.lost_last_pod(&group);
                }
            }
            Change::Deleted(Object::PodGroup(group)) => {
                let key = pods::group_key(&group.metadata);
                self.writer.drop_group(&key);
                self.grouped_pods.retry_members(&key, Instant::now() + AFTER_DELETION);
            }
            Change::Applied(Object::PodGroup(group)) => {
                if let Some(group) = self.writer.group_seen(&group) {
                    self.tell_minimums(group);
                }
            }
            Change::Applied(Object::PriorityClass(class)) => {
                self.class_changed(class.metadata.name.as_deref().unwrap_or_default(), true);
            }
            Change::Deleted(Object::PriorityClass(class)) => {
                self.class_changed(class.metadata.name.as_deref().unwrap_or_default(), false);
            }
            Change::Applied(Object::Namespace(namespace)) => self.namespace(&namespace),
            Change::Deleted(Object::Namespace(namespace)) => {
                self.addressed
                    .remove(namespace.metadata.name.as_deref().unwrap_or_default());
            }
            Change::Synced(kind) => self.synced(kind),
            Change::Applied(_) | Change::Deleted(_) => {}
        }
    }

    /// Whether it is one of the pods to group.
    fn groups(&self, pod: &Pod) -> bool {
        let settings = &self.context.settings;
        settings.parts.grouper && pods::is_ours(pod, settings)
    }

    /// After a change of its labels a namespace may be one whose pods are grouped.
    fn namespace(&mut self, namespace: &Namespace) {
        let required = &self.context.settings.namespace_labels;
        if required.is_empty() {
            return;
        }
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        if !has_all(namespace.metadata.labels.as_ref(), required) {
            self.addressed.remove(name);
        } else if self.addressed.insert(name.to_owned()) && self.missing.is_empty() {
            let pods = self.grouped_pods.ungrouped(name);
            pods.into_iter().for_each(|pod| self.queue.push(pod));
        }
    }

    /// The pods of these groups stay pending: the PodGroup and the pods' annotations are written without waiting for a bind.
    fn waiting(&mut self, groups: &[GroupKey]) {
        for group in groups {
            self.writer.waits(group);
            self.writer.mark_soon(self.grouped_pods.members(group));
        }
    }

    /// A kind has been listed. Once all that grouping reads are, the known pods are grouped; none is before.
    fn synced(&mut self, kind: Kind) {
        if kind == Kind::PodGroup {
            self.writer.groups_listed();
        }
        let before = self.missing.len();
        self.missing.retain(|missing| *missing != kind);
        if before > 0 && self.missing.is_empty() {
            self.grouped_pods
                .waiting()
                .into_iter()
                .for_each(|pod| self.queue.push(pod));
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let member = Member::of(pod);
        let known = self.grouped_pods.get(&member.uid);
        let (is_known, stayed) = (known.is_some(), known.is_some_and(|entry| !entry.leaving));
        let is_changed = self.grouped_pods.record(pod);
        if !is_known
            && self.missing.is_empty()
            && let Some(entry) = self.grouped_pods.get_mut(&member.uid)
        {
            entry.came = Some(Instant::now());
        }
        if stayed && pod.metadata.deletion_timestamp.is_some() {
            self.leaves(&member.uid);
        }
        self.mark_bound(&member);
        if !is_changed || !self.missing.is_empty() {
            return;
        }
        let looked = self.grouped_pods.get(&member.uid).and_then(|entry| entry.looked);
        match looked
            .map(|looked| looked + AGAIN_AFTER)
            .filter(|again| *again > Instant::now())
        {
            Some(again) => self.grouped_pods.retry(&member.uid, again),
            None => self.queue.push(member),
        }
    }

    /// Groups some of the queued pods, each namespace in turn, after the earlier results were sent to the scheduler.
    fn group_some(&mut self) {
        while let Some(message) = self.outbox.pop_front() {
            if let Err(message) = self.bus.schedulers.try_send(message) {
                return self.outbox.push_front(message);
            }
        }
        for _ in 0..PODS_AT_ONCE {
            let Some(pod) = self.queue.pop() else { return };
            if let Err(panic) = panics::catch(|| self.group(&pod)) {
                self.set_pod_aside(&pod, &panic);
            }
        }
    }

    /// The pod as the watch last showed it; `None` if it is gone.
    fn shown(&self, pod: &PodRef) -> Option<Arc<Pod>> {
        self.stores.pods.get_same(&pod.namespace, &pod.name, Some(&pod.uid))
    }

    /// The pod to group; `None` if it is gone, or if the store has a change that is still to be recorded: it is grouped after that.
    fn to_group(&self, entry: &Entry) -> Option<Arc<Pod>> {
        self.shown(&entry.pod).filter(|pod| entry.is_recorded_from(pod))
    }

    /// Records that grouping a pod panicked. It has no group until it changes.
    fn set_pod_aside(&mut self, pod: &Member, panic: &str) {
        let entry = self.grouped_pods.get(&pod.uid);
        if let Some(pod) = entry.and_then(|entry| self.shown(&entry.pod)) {
            let change = Change::Applied(Object::Pod(Arc::clone(&pod)));
            if let Some(note) = panics::set_aside("grouper", &change, panic, object::GROUPER_EVENT_SOURCE) {
                self.report_obstacle(pods::pod_ref(&pod), note.reason, note.message.clone());
                self.bus.events.send_as_cluster(note);
            }
        }
    }

    /// An annotation of a pod or an owner excludes the pod from grouping. It is reported unless the pod names a group. A pod that was grouped before leaves
    /// its group, or it would be annotated with that.
    fn skipped(&mut self, pod: &Pod) {
        let entry = self.grouped_pods.get(pod.metadata.uid.as_deref().unwrap_or_default());
        if !pods::is_bound(pod) && entry.is_some_and(|entry| entry.group.is_some()) {
            self.outbox.push_back(ToScheduler::Ungrouped(pods::pod_ref(pod)));
            if let Some(group) = self.grouped_pods.unassign(pod) {
                self.writer.lost_last_pod(&group);
            }
        }
        if pods::annotated_group(pod).is_some() {
            return self.clear_obstacle(pod);
        }
        let message = format!(
            "The pod names no pod group, and the annotation {} keeps one from being made for it; remove that, or name a pod group in the annotation {}",
            annotation::SKIP_POD_GROUPER,
            annotation::POD_GROUP_NAME
        );
        self.report_obstacle(pods::pod_ref(pod), names::reason::POD_GROUPER_WARNING, message);
    }

    /// Starts grouping a pod again. While a walk of its owners runs, no second one starts.
    fn group(&mut self, member: &Member) {
        let Some(entry) = self.grouped_pods.get(&member.uid) else {
            return;
        };
        let (is_new, version, anew) = (entry.group.is_none(), entry.version, entry.anew);
        let Some(pod) = self.to_group(entry) else { return };
        if let Some(entry) = self.grouped_pods.get_mut(&member.uid) {
            entry.looked = Some(Instant::now());
        }
        if pods::is_finished(&pod) || self.walking.contains(member) {
            return;
        }
        if skips_grouping(&pod) {
            return self.skipped(&pod);
        }
        if !self.is_addressed(&pod) {
            return self.not_monitored(&pod);
        }
        if self.stays_in_deleted_group(&pod) {
            return;
        }
        if let Some(key) = self.settled(&pod).filter(|_| is_new) {
            self.grouped_pods.assign(&pod, key.clone(), None);
            return self.note_absent_classes(&key, &pod, &[]);
        }
        // Owners of a new pod may have changed since they were cached.
        if !anew
            && !is_new
            && let Some(found) = self.known().cached(&pod)
        {
            return self.walked(Walked {
                pod: member.clone(),
                version,
                anew,
                came: None,
                found: Ok(Ok(found)),
            });
        }
        self.walking.insert(member.clone());
        self.waiting_walks.push(member.namespace(), member.clone());
        self.start_walks();
    }

    /// Begins to read the owners of waiting pods, as many as may be under way.
    fn start_walks(&mut self) {
        while self.walks.len() < WALKS_MAX
            && let Some(member) = self.waiting_walks.pop()
        {
            let entry = self.grouped_pods.get(&member.uid);
            let Some((pod, version)) = entry.and_then(|entry| Some((self.to_group(entry)?, entry.version))) else {
                self.walk_ended(&member);
                continue;
            };
            let entry = self.grouped_pods.get_mut(&member.uid);
            let (anew, is_new, came) = entry.map_or((false, true, None), |entry| {
                let is_new = entry.group.is_none();
                (std::mem::take(&mut entry.anew), is_new, entry.came.filter(|_| is_new))
            });
            let (stores, owners) = (Arc::clone(&self.stores), Arc::clone(&self.owners));
            let settings = Arc::clone(&self.context.settings);
            self.walks.spawn(async move {
                let known = Known {
                    stores: &stores,
                    owners: &owners,
                    settings: &settings,
                };
                let found = panics::caught(known.resolve_stored(&pod, anew || is_new)).await;
                Walked {
                    pod: member,
                    version,
                    anew,
                    came,
                    found,
                }
            });
        }
    }

    /// A walk has ended, or is not needed any more: its namespace may have another.
    fn walk_ended(&mut self, member: &Member) {
        self.walking.remove(member);
        self.waiting_walks.done(member.namespace());
    }

    fn known(&self) -> Known<'_> {
        Known {
            stores: &self.stores,
            owners: &self.owners,
            settings: &self.context.settings,
        }
    }

    fn is_addressed(&self, pod: &Pod) -> bool {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = self.stores.namespaces.get("", namespace);
        let labels = namespace
            .as_ref()
            .and_then(|namespace| namespace.metadata.labels.as_ref());
        is_addressed(pod, labels, &self.context.settings)
    }

    /// A bound pod stays in the group of another client that it was bound in, though that is gone.
    fn stays_in_deleted_group(&self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let group = self.grouped_pods.get(uid).and_then(|entry| entry.group.as_ref());
        pods::is_bound(pod)
            && names_foreign_group(pod)
            && group
                .is_some_and(|group| pods::annotated_group(pod).as_ref() == Some(group) && !self.group_exists(group))
    }

    /// A bound pod whose PodGroup exists is not grouped when it is first seen, so that a restart with many running pods reads no owners.
    fn settled(&self, pod: &Pod) -> Option<GroupKey> {
        let key = pods::annotated_group(pod)?;
        let group = self.stores.pod_groups.get(key.namespace(), key.name())?;
        let labels = pod.metadata.labels.as_ref();
        let is_placed = labels.is_some_and(|labels| labels.contains_key(label::SUBGROUP_NAME));
        (pods::is_bound(pod) && (is_placed || group.spec.sub_groups.is_empty())).then_some(key)
    }

    /// The owners of a pod have been read.
    fn returned(&mut self, walked: Walked) {
        self.walk_ended(&walked.pod);
        self.start_walks();
        // They may have changed while they were read.
        if self.grouped_pods.get(&walked.pod.uid).is_some_and(|entry| entry.anew) {
            self.queue.push(walked.pod.clone());
        }
        self.walked(walked);
    }

    /// All pods of a group are grouped again, by the owners that were just read for one of them.
    fn others_again(&mut self, group: &GroupKey) {
        self.grouped_pods.retry_members(group, Instant::now() + AGAIN_AFTER);
    }

    /// The owners of a pod are known, or cannot be.
    fn walked(&mut self, walked: Walked) {
        let Walked {
            pod: member,
            version,
            anew,
            came,
            found,
        } = walked;
        let Some(entry) = self.grouped_pods.get(&member.uid) else {
            return;
        };
        let is_outdated = entry.version != version;
        let Some(pod) = self.to_group(entry).filter(|_| !is_outdated) else {
            if let Some(entry) = self.grouped_pods.get_mut(&member.uid) {
                // Group it as soon as the change is recorded, and read the owners anew if this walk was to.
                entry.looked = None;
                entry.anew |= anew;
            }
            if is_outdated {
                self.queue.push(member);
            }
            return;
        };
        let has_group = entry.group.is_some();
        match found {
            Ok(Ok(Found::Skipped)) => {
                let left = entry.group.clone().filter(|_| anew);
                self.skipped(&pod);
                left.iter().for_each(|group| self.others_again(group));
            }
            Ok(Ok(Found::Group(grouped, owners))) => {
                let key = pods::group_key(&grouped.group.metadata);
                let others_move = anew && self.writer.has_other_sub_groups(&key, &grouped.group);
                self.grouped(&member, &pod, *grouped);
                self.note_absent_classes(&key, &pod, &owners);
                self.grouped_by(&key, &owners, came);
                if others_move {
                    self.others_again(&key);
                }
            }
            // It stays in its group, and nobody is told: owners that are gone usually go with their pods. A read that failed is repeated.
            Ok(Err(error)) if anew && has_group && (pods::is_bound(&pod) || matches!(error, Failed::Owner(_))) => {
                debug!(ns = %member.namespace, name = pod.metadata.name, %error, "pod not grouped again");
                let attempts = entry.attempts + 1;
                if let Some(entry) = self.grouped_pods.get_mut(&member.uid) {
                    entry.anew = true;
                }
                self.look_again(&member.uid, attempts);
            }
            Ok(Err(error)) => self.failed(&member.uid, &error.to_string()),
            Err(panic) => self.set_pod_aside(&member, &panic),
        }
    }

    /// Sends a pod's group to the scheduler, and queues the writes.
    fn grouped(&mut self, member: &Member, pod: &Pod, mut grouped: Grouped) {
        let key = pods::group_key(&grouped.group.metadata);
        self.clear_obstacle(pod);
        // A bound pod keeps the group with which it was bound, even if its labels or owners change.
        if pods::is_bound(pod)
            && let Some(entry) = self.grouped_pods.get(&member.uid)
            && let Some(group) = &entry.group
        {
            if *group != key {
                debug!(ns = %key.namespace(), name = pod.metadata.name, gang = %group.name(), "bound pod stays in its group");
                return;
            }
            grouped.sub_group = entry.sub_group.as_deref().map(str::to_owned).or(grouped.sub_group);
        }
        let attempts = self.grouped_pods.get(&member.uid).map_or(0, |entry| entry.attempts);
        let left = self.grouped_pods.assign(pod, key.clone(), grouped.sub_group.clone());
        self.combine(&key, &mut grouped);
        // Its owners may name its place a moment later, without a change of the pod.
        if grouped.may_find_place() && !pods::is_bound(pod) {
            self.look_again(&member.uid, attempts + 1);
        }
        if let Some(left) = left {
            self.writer.lost_last_pod(&left);
        }
        let group = self.writer.desire(&key, &grouped.group, &self.grouped_pods);
        // Pods of a gang come one after the other: a large group is in memory once while they wait for the scheduler.
        let group = self.last_sent.upgrade().filter(|last| *last == group).unwrap_or(group);
        self.last_sent = Arc::downgrade(&group);
        if self.writer.may_stay_unwritten(&key) {
            self.unwritten.push(Arc::clone(&group));
        }
        debug!(ns = %key.namespace(), name = pod.metadata.name, gang = %key.name(), "pod grouped");
        let entry = self.grouped_pods.get(&member.uid);
        if entry.is_some_and(|entry| !entry.bound || !entry.is_placed()) {
            self.writer.mark_late(member);
        }
        self.mark_bound(member);
        let grouping = Grouping {
            pod: pods::pod_ref(pod),
            group,
            sub_group: grouped.sub_group,
        };
        self.outbox.push_back(grouping.into());
    }

    /// A write has ended.
    fn written(&mut self, written: Written) {
        if let Some(group) = self.writer.written(written, &self.grouped_pods) {
            self.tell_minimums(group);
        }
    }

    /// The scheduler takes minimums and sub-groups of a group from the last grouping of one of its pods: so it is told of those that the API server has.
    fn tell_minimums(&mut self, group: Arc<PodGroup>) {
        let key = pods::group_key(&group.metadata);
        let grouping = self.grouped_pods.one(&key).map(|entry| Grouping {
            pod: entry.pod.clone(),
            group,
            sub_group: entry.sub_group.as_deref().map(str::to_owned),
        });
        self.outbox.extend(grouping.map(ToScheduler::from));
    }

    /// Where the owners leave them to the pods, the group has the highest class and the strictest preemptibility that its pods state, whichever is grouped
    /// last.
    fn combine(&self, key: &GroupKey, grouped: &mut Grouped) {
        let (pods, classes) = (&self.grouped_pods, &self.stores.priority_classes);
        let value = |name: &str| Some(classes.get("", name)?.value);
        let rank = |own: &Stated| own.ranked(value);
        let strictest = || pods.highest(key, |own| own.non_preemptible);
        stated::combine(grouped, || pods.highest(key, rank), strictest);
    }

    /// Queues the label of a bound pod that needs it: until then, only processes that have grouped the pod know its sub-group.
    fn mark_bound(&mut self, member: &Member) {
        if self.grouped_pods.get(&member.uid).is_some_and(Entry::lacks_label) {
            self.writer.mark_soon(std::iter::once(member.clone()));
        }
    }

    /// Groups a pod again, later after each attempt.
    fn look_again(&mut self, uid: &str, attempts: u32) {
        if let Some(entry) = self.grouped_pods.get_mut(uid) {
            entry.attempts = attempts;
            self.grouped_pods.retry(uid, Instant::now() + RETRY.wait(attempts));
        }
    }

    /// Reports a failure on the pod and tries again later, unless the pod is being deleted.
    fn failed(&mut self, uid: &str, reason: &str) {
        let Some(entry) = self.grouped_pods.get(uid) else {
            return;
        };
        if entry.leaving {
            return;
        }
        let (pod, attempts) = (entry.pod.clone(), entry.attempts + 1);
        self.look_again(uid, attempts);
        // It may quote text of tenants, and is written to every pod concerned.
        let reason = reason.get(..reason.floor_char_boundary(REASON_MAX)).unwrap_or_default();
        self.warn(pod, names::reason::POD_GROUPER_WARNING, reason.to_owned());
    }

    fn warn(&mut self, pod: PodRef, reason: &'static str, message: String) {
        self.report_obstacle(pod.clone(), reason, message.clone());
        self.bus.events.send_as_cluster(Note {
            subject: Subject::Pod(pod),
            severity: Severity::Warning,
            reason,
            message,
            source: object::GROUPER_EVENT_SOURCE.to_owned(),
            annotations: BTreeMap::new(),
        });
    }

    fn group_exists(&self, key: &GroupKey) -> bool {
        self.stores.pod_groups.contains(key.namespace(), key.name())
    }

    /// Groups the pods whose retry is due, and one of each group whose owners may have changed.
    fn group_again(&mut self) {
        let now = Instant::now();
        let due = self.grouped_pods.due(now);
        due.into_iter().for_each(|pod| self.queue.push(pod));
        for group in self.doubted.start_due(now) {
            self.doubted.finish(&group);
            if let Some(pod) = self.grouped_pods.one_anew(&group) {
                self.queue.push(pod);
            }
        }
    }
}

#[cfg(test)]
#[cfg(feature = "devcluster")]
mod tests;
