//! The grouper's writes: PodGroup objects, and the annotation of pods that are still pending. Off the critical path:
//! a write starts a little later, so that Bindings go first and quick changes become one write; the number of open writes is
//! limited; writes without effect are left out, and only the leader writes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use smol_str::SmolStr;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{debug, warn};

use super::grouped_pods::{Entry, GroupedPods, Member};
use super::merge::{merge, minimums, set_times, stay_preemptible, take_minimums};
use crate::api::PodGroup;
use crate::api::names::{annotation, label, object, reason};
use crate::components::agenda::Agenda;
use crate::components::bus::{Bus, GroupKey, Grouping, Note, Severity, Subject, Times};
use crate::components::compact::Compact;
use crate::components::patch::merge_diff;
use crate::components::retry::{Backoff, Failure, failure};
use crate::components::watches::Stores;
use crate::components::write_slots::WriteSlot;
use crate::components::{Context, PlainPodGroups, pods};
use crate::mirror::priority::Classes;

/// Delay of the write of a PodGroup: long enough that the Bindings of the same burst are sent.
const WRITE_AFTER: Duration = Duration::from_millis(50);
/// Delay of the creation of a PodGroup: if the scheduler places it in this time, the time of its start goes into the same write.
const CREATE_AFTER: Duration = Duration::from_secs(1);
/// How long open writes are waited for before the last ones.
const OPEN_WRITES: Duration = Duration::from_secs(2);
/// Concurrent writes before the end of the process.
const LAST_AT_ONCE: usize = 8;
/// Delay of the annotation of a pod that the scheduler could not place, and of the label of a bound pod.
const MARK_SOON: Duration = Duration::from_millis(300);
/// Delay of the annotation of any other pending pod.
const MARK_LATE: Duration = Duration::from_secs(10);
/// Pods that are told that the API server rejected their group.
const TOLD_MAX: usize = 3;
/// Wait before a failed write is tried again: first and longest.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(200),
    longest: Duration::from_secs(60),
};
/// After this time without such a change, the next change by others of what was written counts as the first. Much longer than the longest wait.
const CALM: Duration = Duration::from_mins(10);

/// Whether the API server takes the desired minimums and sub-groups of a group. The scheduler uses them before they are written, so it is told if the API server
/// keeps others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Minimums {
    /// Not known: they have changed since the last write began.
    #[default]
    New,
    /// They are written, or their write is under way.
    Sent,
    /// It has refused the write, or had others afterwards: those count.
    Overruled,
}

/// The desired state of one pod group.
#[derive(Default)]
struct DesiredGroup {
    /// The group that its workload defines; `None` for groups created by other clients.
    desired: Option<Compact<PodGroup>>,
    /// It is of a single pod that owns it and names its queue.
    plain: bool,
    /// The scheduler could not place it.
    waits: bool,
    /// The scheduler's timestamps, and the term in which it decided them: they are written in no other.
    times: Option<(u64, Times)>,
    /// The API server's answer to the last write, until the watch shows it.
    written: Option<Arc<PodGroup>>,
    /// More than one of its pods start together, or in sub-groups.
    gang: bool,
    /// Consecutive writes that failed, or after which the API server has another group than was written.
    failures: u32,
    /// Whether the API server takes its minimums and sub-groups.
    minimums: Minimums,
    /// The priority class that it is to have.
    class: Option<SmolStr>,
    /// The API server's group has had owners since its desired state was last determined.
    had_owners: bool,
    /// The API server has the group as it is to be.
    in_place: bool,
    /// How often others have changed that, and when they did so last.
    reverts: u32,
    reverted: Option<Instant>,
}

impl DesiredGroup {
    /// The delay of the next write. The first change by others is undone at once: it may be a mistake.
    fn delay(&self) -> Duration {
        match self.failures.max(self.reverts.saturating_sub(1)) {
            0 => WRITE_AFTER,
            times => RETRY.wait(times),
        }
    }

    /// Others have changed what was written, and may do so each time.
    fn count_revert(&mut self) {
        let now = Instant::now();
        let is_calm = self.reverted.is_none_or(|last| now - last > CALM);
        self.reverts = if is_calm { 1 } else { self.reverts.saturating_add(1) };
        self.reverted = Some(now);
    }
}

/// The end of a write.
pub enum Written {
    /// Of a pod group, with the API server's object; `None` if the write was not needed.
    Group(GroupKey, Result<Option<Arc<PodGroup>>, kube::Error>),
    /// Of the annotation of a pod.
    Pod(Member, Result<(), kube::Error>),
}

impl Written {
    /// Why it failed, if it did.
    fn error(&self) -> Option<&kube::Error> {
        match self {
            Self::Group(_, result) => result.as_ref().err(),
            Self::Pod(_, result) => result.as_ref().err(),
        }
    }
}

/// The queue of the grouper's writes.
pub struct PodGroupWriter {
    context: Context,
    stores: Arc<Stores>,
    bus: Bus,
    desired_groups: HashMap<GroupKey, DesiredGroup>,
    agenda: Agenda<GroupKey>,
    /// Groups that were deleted during their write, so that its answer no longer shows what is there.
    outdated: HashSet<GroupKey>,
    /// Pods whose annotation is due at a time, if they are still pending then.
    marks: Agenda<Member>,
    /// Pod groups and pods take turns if both have due writes.
    marks_next: bool,
    /// Open writes; the owner of the writer joins them.
    pub writes: JoinSet<Written>,
}

impl PodGroupWriter {
    /// An empty writer.
    pub fn new(context: Context, stores: Arc<Stores>, bus: Bus) -> Self {
        Self {
            context,
            stores,
            bus,
            desired_groups: HashMap::new(),
            agenda: Agenda::default(),
            outdated: HashSet::new(),
            marks: Agenda::default(),
            marks_next: false,
            writes: JoinSet::new(),
        }
    }

    /// Sets the group that a workload defines. Returns the group that the scheduler is to use: an existing one keeps its queue, and also its minimums and sub-groups
    /// if the API server does not take the desired ones.
    pub fn desire(&mut self, key: &GroupKey, desired: &PodGroup, grouped_pods: &GroupedPods) -> Arc<PodGroup> {
        let (existing, earlier) = (self.existing(key), self.desired(key));
        let is_new = earlier
            .as_ref()
            .is_none_or(|earlier| minimums(&earlier.spec) != minimums(&desired.spec));
        let before = existing.as_deref().or(earlier.as_ref());
        let mut merged = merge(before, desired, &self.context.settings);
        self.stays_preemptible(key, &mut merged, before, grouped_pods);
        let desired_group = self.desired_groups.entry(key.clone()).or_default();
        if is_new {
            desired_group.minimums = Minimums::New;
        }
        desired_group.gang = is_gang(&merged);
        desired_group.had_owners = existing.as_deref().is_some_and(has_owners);
        // A process that starts later finds only the queue that the pod names by then: another one must be written.
        let names_its_queue = merged.spec.queue == desired.spec.queue;
        desired_group.plain = names_its_queue && grouped_pods.only_owner(key, &merged);
        // What others have set on an existing group may change: each write takes it from the group as it is then.
        let mut kept = if existing.is_some() {
            desired.clone()
        } else {
            merged.clone()
        };
        kept.spec
            .priority_class_name
            .clone_from(&merged.spec.priority_class_name);
        kept.spec.preemptibility.clone_from(&merged.spec.preemptibility);
        desired_group.class = kept.spec.priority_class_name.as_deref().map(SmolStr::new);
        desired_group.desired = Compact::pack(&mut kept);
        if desired_group.minimums == Minimums::Overruled
            && let Some(existing) = &existing
        {
            take_minimums(&mut merged.spec, &existing.spec);
        }
        // If `always_bind_requests` is set, Bindings wait until the PodGroup exists.
        let awaited = self.context.settings.sharing.always_bind_requests;
        let after = if existing.is_some() || awaited {
            WRITE_AFTER
        } else {
            CREATE_AFTER
        };
        self.queue_if_needed(key, after);
        Arc::new(merged)
    }

    /// Records the scheduler's timestamps of groups, which it decided in that term.
    pub fn times(&mut self, term: u64, times: Vec<Times>) {
        for times in times {
            let key = times.group.clone();
            // A group that was deleted meanwhile would never be dropped again.
            if self.desired_groups.contains_key(&key) || self.stores.pod_groups.contains(key.namespace(), key.name()) {
                self.desired_groups.entry(key.clone()).or_default().times = Some((term, times));
                self.queue_if_needed(&key, WRITE_AFTER);
            }
        }
    }

    /// Records that the scheduler could not place the group.
    pub fn waits(&mut self, key: &GroupKey) {
        if let Some(desired_group) = self.desired_groups.get_mut(key) {
            desired_group.waits = true;
        }
        self.queue_if_needed(key, WRITE_AFTER);
    }

    /// Records the group as the watch shows it. Returns it if the scheduler must be told of its minimums and sub-groups.
    pub fn group_seen(&mut self, group: &PodGroup) -> Option<Arc<PodGroup>> {
        let key = pods::group_key(&group.metadata);
        let desired_group = self.desired_groups.get_mut(&key)?;
        if let Some(written) = &desired_group.written
            && !is_as_new(group.metadata.resource_version.as_deref(), written)
        {
            return None;
        }
        desired_group.written = None;
        desired_group.had_owners |= has_owners(group);
        let differs = self.differs(&key);
        let desired_group = self.desired_groups.get_mut(&key)?;
        if differs && desired_group.in_place {
            desired_group.count_revert();
        }
        desired_group.in_place = !differs;
        let (delay, is_overruled) = (desired_group.delay(), desired_group.minimums == Minimums::Overruled);
        if differs {
            self.queue(&key, delay);
        }
        if is_overruled { self.compare(&key) } else { None }
    }

    /// All groups have been listed: one that was written and is not among them was deleted, maybe before the watch could show it.
    pub fn groups_listed(&mut self) {
        let lost = |(key, group): &(&GroupKey, &DesiredGroup)| {
            group.written.is_some() && !self.stores.pod_groups.contains(key.namespace(), key.name())
        };
        let lost: Vec<GroupKey> = self
            .desired_groups
            .iter()
            .filter(lost)
            .map(|(key, _)| key.clone())
            .collect();
        for key in lost {
            if let Some(group) = self.desired_groups.get_mut(&key) {
                group.written = None;
            }
            self.queue_if_needed(&key, WRITE_AFTER);
        }
    }

    /// The last pod of a group has gone. The scheduler's timestamps that are not written yet stay until the group is deleted: it may get pods again.
    pub fn lost_last_pod(&mut self, key: &GroupKey) {
        if let Some(desired_group) = self.desired_groups.get_mut(key) {
            *desired_group = DesiredGroup {
                times: desired_group.times.take(),
                written: desired_group.written.take(),
                failures: desired_group.failures,
                ..DesiredGroup::default()
            };
        }
        // A write of them is planned or under way.
        if !self.differs(key) {
            self.drop_group(key);
        }
    }

    /// Removes a group that was deleted; remaining pods are grouped again.
    pub fn drop_group(&mut self, key: &GroupKey) {
        self.desired_groups.remove(key);
        if self.agenda.is_running(key) {
            self.outdated.insert(key.clone());
        }
    }

    /// Queues the annotation of a pod. It is left out if the pod is bound by then: the Binding has it.
    pub fn mark_late(&mut self, pod: &Member) {
        self.marks.plan(pod, Instant::now() + MARK_LATE);
    }

    /// Queues the annotation of pods that the scheduler could not place, or the label of bound pods.
    pub fn mark_soon(&mut self, pods: impl Iterator<Item = Member>) {
        for pod in pods {
            self.marks.plan(&pod, Instant::now() + MARK_SOON);
        }
    }

    /// Queues all groups and pods again when a term of leadership begins.
    pub fn leading_changed(&mut self, grouped_pods: &GroupedPods) {
        let mut keys: Vec<_> = self.desired_groups.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            self.queue_if_needed(&key, WRITE_AFTER);
        }
        let unmarked = |pod: &Member| {
            let is_so = |entry: &Entry| !entry.bound || !entry.is_placed();
            grouped_pods.get(&pod.uid).is_some_and(is_so)
        };
        self.mark_soon(grouped_pods.waiting().into_iter().filter(unmarked));
    }

    /// Whether the group may stay unwritten.
    pub fn may_stay_unwritten(&self, key: &GroupKey) -> bool {
        let plain = self.desired_groups.get(key).is_some_and(|desired| desired.plain);
        plain && self.context.settings.plain_pod_groups != PlainPodGroups::Always && self.existing(key).is_none()
    }

    /// Whether the group is to have sub-groups of other names than that one.
    pub fn has_other_sub_groups(&self, key: &GroupKey, group: &PodGroup) -> bool {
        self.desired(key).is_some_and(|desired| {
            let before = desired.spec.sub_groups.iter().map(|part| &part.name);
            before.ne(group.spec.sub_groups.iter().map(|part| &part.name))
        })
    }

    /// The groups that are to have this priority class.
    pub fn of_class(&self, class: &str) -> Vec<GroupKey> {
        let all = self.desired_groups.iter();
        let named = all.filter(|(_, group)| group.class.as_deref() == Some(class));
        let mut keys: Vec<_> = named.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// Whether more than one pod of the group start together, or in sub-groups.
    pub fn is_gang(&self, key: &GroupKey) -> bool {
        match self.desired_groups.get(key).filter(|group| group.desired.is_some()) {
            Some(desired_group) => desired_group.gang,
            None => self.existing(key).is_some_and(|group| is_gang(&group)),
        }
    }

    /// When the next write is due.
    pub fn next_due(&self) -> Option<Instant> {
        [self.agenda.next(), self.marks.next()].into_iter().flatten().min()
    }

    /// Ends the open writes, and writes all times that the API server does not have yet.
    pub async fn write_times(&mut self, grouped_pods: &GroupedPods) {
        let ended = async {
            while let Some(Ok(written)) = self.writes.join_next().await {
                self.written(written, grouped_pods);
            }
        };
        // One that hangs must not prevent the others.
        let _ = timeout(OPEN_WRITES, ended).await;
        let groups = self.desired_groups.iter();
        let missing = groups.filter(|(_, group)| group.times.is_some() && !group.in_place);
        // In an order that does not change from run to run.
        let missing: BTreeSet<GroupKey> = missing.map(|(key, _)| key.clone()).collect();
        let writes: Vec<_> = missing.iter().filter_map(|key| self.write(key, grouped_pods)).collect();
        let ended = stream::iter(writes).buffer_unordered(LAST_AT_ONCE);
        ended.for_each(|_| std::future::ready(())).await;
    }

    /// Starts the next due write that is still needed.
    pub fn write_next(&mut self, slot: WriteSlot, grouped_pods: &GroupedPods) {
        let now = Instant::now();
        self.marks_next = !self.marks_next;
        let write = if self.marks_next {
            self.next_mark(now, grouped_pods)
                .or_else(|| self.next_group(now, grouped_pods))
        } else {
            self.next_group(now, grouped_pods)
                .or_else(|| self.next_mark(now, grouped_pods))
        };
        if let Some(write) = write {
            self.writes.spawn(async move {
                let written = write.await;
                slot.end(written.error());
                written
            });
        }
    }

    /// The write of the next pod's annotation that is due. Those that are not needed are left out: there is one for each pod, and more than there are slots.
    fn next_mark(&mut self, now: Instant, grouped_pods: &GroupedPods) -> Option<BoxFuture<'static, Written>> {
        loop {
            let pod = self.marks.start(now)?;
            if let Some(write) = self.mark(&pod, grouped_pods) {
                return Some(write);
            }
            self.marks.finish(&pod);
        }
    }

    /// The write of the next pod group that is due, without those that are not needed.
    fn next_group(&mut self, now: Instant, grouped_pods: &GroupedPods) -> Option<BoxFuture<'static, Written>> {
        loop {
            let key = self.agenda.start(now)?;
            if let Some(write) = self.write(&key, grouped_pods) {
                return Some(write);
            }
            self.agenda.finish(&key);
        }
    }

    /// Keeps a group with running pods preemptible, and reports it. Returns whether it would have become non-preemptible.
    fn stays_preemptible(
        &self,
        key: &GroupKey,
        group: &mut PodGroup,
        before: Option<&PodGroup>,
        grouped_pods: &GroupedPods,
    ) -> bool {
        let asks = |group: &PodGroup| {
            (
                group.spec.preemptibility.clone(),
                group.spec.priority_class_name.clone(),
            )
        };
        let Some(before) = before.filter(|before| asks(before) != asks(group) && grouped_pods.runs(key)) else {
            return false;
        };
        let mut classes = Classes::default();
        self.stores
            .priority_classes
            .list()
            .iter()
            .for_each(|class| classes.put(class));
        let stays = stay_preemptible(group, before, &classes);
        if stays {
            self.bus.events.send_as_cluster(Note {
                subject: Subject::PodGroup(key.clone()),
                severity: Severity::Warning,
                reason: reason::CHANGE_IGNORED,
                message: "pods of the group are bound: it stays preemptible, with the priority class that it had"
                    .to_owned(),
                source: object::GROUPER_EVENT_SOURCE.to_owned(),
                annotations: BTreeMap::new(),
            });
        }
        stays
    }

    /// The context for writes about a group, or about its pods: that of its node pool.
    fn context_of(&self, group: Option<&PodGroup>) -> Context {
        let labels = group.and_then(|group| group.metadata.labels.as_ref());
        self.context.of_scope(&self.context.scope_of(labels))
    }

    fn existing(&self, key: &GroupKey) -> Option<Arc<PodGroup>> {
        let written = self
            .desired_groups
            .get(key)
            .and_then(|desired_group| desired_group.written.clone());
        written.or_else(|| self.stores.pod_groups.get(key.namespace(), key.name()))
    }

    /// The group that its workload defines.
    fn desired(&self, key: &GroupKey) -> Option<PodGroup> {
        self.desired_groups.get(key)?.desired.as_ref()?.object()
    }

    /// The group as it exists, or is about to be written.
    fn existing_or_desired(&self, key: &GroupKey) -> Option<Arc<PodGroup>> {
        self.existing(key).or_else(|| self.desired(key).map(Arc::new))
    }

    /// The group to write, if this process leads its scope and it differs from the API server's, with the context of the write.
    fn target(&self, key: &GroupKey) -> Option<(Context, Option<Arc<PodGroup>>, PodGroup)> {
        let desired_group = self.desired_groups.get(key)?;
        let existing = self.existing(key);
        let is_left_out = match self.context.settings.plain_pod_groups {
            PlainPodGroups::Always => false,
            PlainPodGroups::Waiting => desired_group.plain && !desired_group.waits,
            PlainPodGroups::Never => desired_group.plain,
        };
        if is_left_out && existing.is_none() {
            return None;
        }
        let desired = self.desired(key);
        let mut target = match (&existing, &desired) {
            (existing, Some(desired)) => merge(existing.as_deref(), desired, &self.context.settings),
            (Some(existing), None) => PodGroup::clone(existing),
            (None, None) => return None,
        };
        // Somebody has removed its owners: it stays without them until it is grouped again. `--cascade=orphan` removes an owner from its dependents before it is
        // deleted, and if it were written again, the garbage collector would delete the group.
        if let Some(existing) = existing
            .as_ref()
            .filter(|group| desired_group.had_owners && !has_owners(group))
        {
            target
                .metadata
                .owner_references
                .clone_from(&existing.metadata.owner_references);
        }
        let context = Some(self.context_of(Some(&target))).filter(Context::is_leading)?;
        if let Some((term, times)) = &desired_group.times
            && context.only_term == Some(*term)
        {
            set_times(&mut target, times);
        }
        (existing.as_deref() != Some(&target)).then_some((context, existing, target))
    }

    /// Whether the group is to be written.
    fn differs(&self, key: &GroupKey) -> bool {
        self.context.leads_something() && self.target(key).is_some()
    }

    fn queue_if_needed(&mut self, key: &GroupKey, after: Duration) {
        let differs = self.differs(key);
        if let Some(desired_group) = self.desired_groups.get_mut(key) {
            desired_group.in_place = !differs;
        }
        if differs {
            self.queue(key, after);
        }
    }

    fn queue(&mut self, key: &GroupKey, after: Duration) {
        self.agenda.plan(key, Instant::now() + after);
    }

    /// The desired group takes over class and preemptibility.
    fn desire_class_of(&mut self, key: &GroupKey, group: &PodGroup) {
        let Some(mut desired) = self.desired(key) else { return };
        desired
            .spec
            .priority_class_name
            .clone_from(&group.spec.priority_class_name);
        desired.spec.preemptibility.clone_from(&group.spec.preemptibility);
        if let Some(desired_group) = self.desired_groups.get_mut(key) {
            desired_group.class = desired.spec.priority_class_name.as_deref().map(SmolStr::new);
            desired_group.desired = Compact::pack(&mut desired);
        }
    }

    /// Writes a group, unless the write is not needed.
    fn write(&mut self, key: &GroupKey, grouped_pods: &GroupedPods) -> Option<BoxFuture<'static, Written>> {
        let (context, existing, mut target) = self.target(key)?;
        let needless = !grouped_pods.has_members(key) || (self.may_stay_unwritten(key) && grouped_pods.runs(key));
        if existing.is_none() && needless {
            return None;
        }
        // A pod may have been bound since the group was computed.
        if self.stays_preemptible(key, &mut target, existing.as_deref(), grouped_pods) {
            self.desire_class_of(key, &target);
            if existing.as_deref() == Some(&target) {
                return None;
            }
        }
        if let Some(desired_group) = self.desired_groups.get_mut(key)
            && desired_group.minimums == Minimums::New
        {
            desired_group.minimums = Minimums::Sent;
        }
        let key = key.clone();
        let api: Api<PodGroup> = Api::namespaced(context.writes, key.namespace());
        let write = async move {
            let result = match &existing {
                None => api.create(&PostParams::default(), &target).await.map(Some),
                Some(existing) => match merge_diff(existing.as_ref(), &target) {
                    None => Ok(None),
                    Some(patch) => api
                        .patch(key.name(), &PatchParams::default(), &Patch::Merge(patch))
                        .await
                        .map(Some),
                },
            };
            Written::Group(key, result.map(|group| group.map(trimmed)))
        };
        Some(write.boxed())
    }

    /// Handles the answer to a write. Returns a group if the scheduler must be told of its minimums and sub-groups.
    pub fn written(&mut self, written: Written, grouped_pods: &GroupedPods) -> Option<Arc<PodGroup>> {
        if let Some(error) = written.error().filter(|error| failure(error) == Failure::Refused) {
            self.refused(&written, error, grouped_pods);
        }
        match written {
            Written::Group(key, result) => self.group_written(&key, result),
            Written::Pod(pod, result) => {
                self.pod_written(&pod, result);
                None
            }
        }
    }

    fn pod_written(&mut self, pod: &Member, result: Result<(), kube::Error>) {
        self.marks.finish(pod);
        let Err(error) = result else { return };
        match failure(&error) {
            Failure::Busy | Failure::Unknown => self.marks.plan(pod, Instant::now() + MARK_LATE),
            // Deleted or re-created meanwhile, where the watch shows its next state, or reported to the user.
            Failure::Gone | Failure::Conflict | Failure::Refused => {
                debug!(uid = %pod.uid, %error, "pod not annotated with its group");
            }
        }
    }

    fn group_written(
        &mut self,
        key: &GroupKey,
        result: Result<Option<Arc<PodGroup>>, kube::Error>,
    ) -> Option<Arc<PodGroup>> {
        self.agenda.finish(key);
        let outdated = self.outdated.remove(key);
        let desired_group = self.desired_groups.get_mut(key)?;
        let was_overruled = desired_group.minimums == Minimums::Overruled;
        let may_stay_other = match result {
            Ok(group) => {
                desired_group.had_owners |= !outdated && group.as_deref().is_some_and(has_owners);
                // The watch may have shown a later state before the answer came.
                let shown = self.stores.pod_groups.version(key.namespace(), key.name());
                let is_shown = |group: &PodGroup| shown.is_some() && is_as_new(shown.as_deref(), group);
                desired_group.written = group.filter(|group| !outdated && !is_shown(group));
                self.ended(key) || was_overruled
            }
            Err(error) => {
                self.failed(key, &error);
                failure(&error) == Failure::Refused
            }
        };
        if may_stay_other { self.compare(key) } else { None }
    }

    /// A write has succeeded. If the group still differs, the API server has changed what was written, and would do so again. Changes since then are queued.
    /// Returns whether it differs.
    fn ended(&mut self, key: &GroupKey) -> bool {
        let differs = self.differs(key);
        if let Some(desired_group) = self.desired_groups.get_mut(key) {
            desired_group.in_place = !differs;
            desired_group.failures = if differs { desired_group.failures + 1 } else { 0 };
            let failures = desired_group.failures;
            if differs {
                self.queue(key, RETRY.wait(failures));
            }
        }
        differs
    }

    /// Compares minimums and sub-groups of a group with the desired ones that were sent. Returns it if it has others, or had others before.
    fn compare(&mut self, key: &GroupKey) -> Option<Arc<PodGroup>> {
        let (existing, desired) = (self.existing(key)?, self.desired(key)?);
        let desired_group = self.desired_groups.get_mut(key)?;
        if desired_group.minimums == Minimums::New {
            return None;
        }
        let others = minimums(&existing.spec) != minimums(&desired.spec);
        let before = desired_group.minimums;
        desired_group.minimums = if others { Minimums::Overruled } else { Minimums::Sent };
        (others || before == Minimums::Overruled).then_some(existing)
    }

    fn failed(&mut self, key: &GroupKey, error: &kube::Error) {
        let Some(desired_group) = self.desired_groups.get_mut(key) else {
            return;
        };
        desired_group.failures += 1;
        let wait = RETRY.wait(desired_group.failures);
        match failure(error) {
            // Created by another client meanwhile, or deleted: the watch will show it.
            Failure::Conflict | Failure::Gone => desired_group.written = None,
            Failure::Busy | Failure::Unknown | Failure::Refused => {
                debug!(ns = %key.namespace(), name = %key.name(), %error, "pod group not written");
            }
        }
        self.queue_if_needed(key, wait);
    }

    /// Reports to the user that the API server rejected a write: on the pod or the group, and on pods of a group that does not exist.
    fn refused(&self, written: &Written, error: &kube::Error, grouped_pods: &GroupedPods) {
        let subject = |pod: Member| Some(Subject::Pod(grouped_pods.get(&pod.uid)?.pod.clone()));
        let subjects: Vec<Subject> = match written {
            Written::Group(key, _) if self.existing(key).is_some() => vec![Subject::PodGroup(key.clone())],
            Written::Group(key, _) => grouped_pods.members(key).take(TOLD_MAX).filter_map(subject).collect(),
            Written::Pod(pod, _) => subject(pod.clone()).into_iter().collect(),
        };
        for subject in subjects {
            warn!(ns = subject.namespace(), name = subject.name(), %error, "write refused by the api server");
            self.bus.events.send(Note {
                subject,
                severity: Severity::Warning,
                reason: reason::POD_GROUPER_WARNING,
                message: error.to_string(),
                source: object::GROUPER_EVENT_SOURCE.to_owned(),
                annotations: BTreeMap::new(),
            });
        }
    }

    /// The pod groups and sub-groups of pods without the annotation, with each group as it exists or is about to be written.
    pub fn unwritten(&self, grouped_pods: &GroupedPods) -> Vec<Grouping> {
        let mut groups: HashMap<&GroupKey, Option<Arc<PodGroup>>> = HashMap::new();
        let all = grouped_pods.all();
        let unwritten = all.filter(|entry| !entry.names_its_group || !entry.is_placed());
        let groupings = unwritten.filter_map(|entry| {
            let key = entry.group.as_ref()?;
            let group = groups.entry(key).or_insert_with(|| self.existing_or_desired(key));
            Some(Grouping {
                pod: entry.pod.clone(),
                group: group.clone()?,
                sub_group: entry.sub_group.as_deref().map(str::to_owned),
            })
        });
        groupings.collect()
    }

    /// Writes the annotation of a pod, unless it has it or is no longer pending.
    fn mark(&self, member: &Member, grouped_pods: &GroupedPods) -> Option<BoxFuture<'static, Written>> {
        let entry = grouped_pods.get(&member.uid)?;
        let group = entry.group.clone()?;
        let (named, placed) = (entry.names_its_group, entry.is_placed());
        // A Binding names the group and cannot set the sub-group label, so a bound pod may need the write, too. So does one that was bound without a name.
        let late = (entry.bound && placed && entry.names_a_group) || entry.leaving;
        if (named && placed) || late {
            return None;
        }
        let context = self.context_of(self.existing_or_desired(&group).as_deref());
        if !context.is_leading() {
            return None;
        }
        let labels: BTreeMap<_, _> = entry
            .sub_group
            .iter()
            .map(|name| (label::SUBGROUP_NAME, name))
            .collect();
        let annotations = json!({annotation::POD_GROUP_NAME: group.name()});
        let metadata = json!({"uid": &*member.uid, "annotations": annotations, "labels": labels});
        let (name, member) = (entry.pod.name.clone(), member.clone());
        let api: Api<Pod> = Api::namespaced(context.writes, group.namespace());
        let write = async move {
            let patch = Patch::Merge(json!({"metadata": metadata}));
            let result = api.patch(&name, &PatchParams::default(), &patch).await;
            Written::Pod(member, result.map(drop))
        };
        Some(write.boxed())
    }
}

/// Whether more than one pod start together, or in sub-groups.
fn is_gang(group: &PodGroup) -> bool {
    group.spec.min_member > Some(1) || !group.spec.sub_groups.is_empty()
}

fn has_owners(group: &PodGroup) -> bool {
    group.metadata.owner_references.iter().flatten().next().is_some()
}

/// The object as the watch would show it.
fn trimmed(mut group: PodGroup) -> Arc<PodGroup> {
    group.metadata.managed_fields = None;
    Arc::new(group)
}

/// Whether the state that the watch shows is at least as new as the one that was written. Resource versions that are no
/// numbers cannot be compared; then what the watch shows counts.
fn is_as_new(seen: Option<&str>, written: &PodGroup) -> bool {
    let number = |version: Option<&str>| version.and_then(|text| text.parse::<u64>().ok());
    number(seen)
        .zip(number(written.metadata.resource_version.as_deref()))
        .is_none_or(|(seen, written)| seen >= written)
}

#[cfg(test)]
mod tests;
