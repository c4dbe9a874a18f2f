//! The grouper's state of pods: their groups, their failures, and when each is grouped next. Pure: no clock, no client.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

use super::absent_classes::AbsentClasses;
use crate::api::PodGroup;
use crate::api::names::{annotation, label};
use crate::components::bus::{GroupKey, PodRef};
use crate::components::fair::InNamespace;
use crate::components::grouping::stated::Stated;
use crate::components::pods;

/// One pod.
#[derive(Debug)]
pub struct Entry {
    /// Its names.
    pub pod: PodRef,
    /// When it was created, in seconds since 1970.
    created: i64,
    /// It is being deleted.
    pub leaving: bool,
    /// It has a node.
    pub bound: bool,
    /// It has succeeded or failed.
    pub finished: bool,
    /// What it says about its group.
    stated: Stated,
    /// It names a group.
    pub names_a_group: bool,
    /// It names its group.
    pub names_its_group: bool,
    /// The group that it names and was bound in, until it is grouped.
    bound_in: Option<GroupKey>,
    names_its_sub_group: bool,
    /// Grows with every change that grouping depends on; the result of an owner walk of an older version is dropped.
    pub version: u64,
    /// Its group, once known.
    pub group: Option<GroupKey>,
    /// Its sub-group, if it has one.
    pub sub_group: Option<Box<str>>,
    /// Consecutive failures.
    pub attempts: u32,
    /// When it came, unless it was there when the process started.
    pub came: Option<Instant>,
    /// When it was last grouped.
    pub looked: Option<Instant>,
    /// Its owners are to be read anew when it is grouped next.
    pub anew: bool,
    fingerprint: u64,
}

impl Entry {
    /// Copies the fields that are read often; all others are read from the store.
    fn see(&mut self, pod: &Pod) {
        let meta = &pod.metadata;
        self.created = meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second());
        self.leaving = meta.deletion_timestamp.is_some();
        (self.bound, self.finished) = (pods::is_bound(pod), pods::is_finished(pod));
        self.see_names(pod);
    }

    /// Compares the group and sub-group that the pod names with its own.
    fn see_names(&mut self, pod: &Pod) {
        let group = pods::annotated_group(pod);
        self.names_a_group = group.is_some();
        self.names_its_group = group.is_some() && group == self.group;
        let labels = pod.metadata.labels.as_ref();
        let sub_group = labels.and_then(|labels| labels.get(label::SUBGROUP_NAME));
        self.names_its_sub_group = sub_group.map(String::as_str) == self.sub_group.as_deref();
    }

    /// Whether it was recorded from this state of the pod, or one that differs only in what its grouping does not depend on.
    pub fn is_recorded_from(&self, pod: &Pod) -> bool {
        self.fingerprint == fingerprint(pod, self.group.as_ref())
    }

    /// Whether it names its sub-group, if it has one.
    pub fn is_placed(&self) -> bool {
        self.sub_group.is_none() || self.names_its_sub_group
    }

    /// Whether its Binding has named its group, and it needs the label of its sub-group, which a Binding cannot set.
    pub fn lacks_label(&self) -> bool {
        self.bound && self.names_its_group && !self.is_placed()
    }

    /// Whether it waits for a node.
    fn waits(&self) -> bool {
        !(self.bound || self.finished || self.leaving)
    }

    /// The pod as a member of its group.
    pub fn member(&self) -> Member {
        Member {
            namespace: Arc::clone(&self.pod.namespace),
            uid: Arc::clone(&self.pod.uid),
        }
    }
}

/// A pod by its UID, in its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Member {
    /// Namespace.
    pub namespace: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

impl Member {
    /// The pod.
    pub fn of(pod: &Pod) -> Self {
        let meta = &pod.metadata;
        Self {
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            uid: meta.uid.as_deref().unwrap_or_default().into(),
        }
    }
}

impl InNamespace for Member {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// The UIDs of a group's members, in order. Most groups have one.
#[derive(Clone, Debug)]
enum Members {
    One(Arc<str>),
    Many(BTreeSet<Arc<str>>),
}

impl Members {
    fn insert(&mut self, uid: &Arc<str>) {
        match self {
            Self::One(one) if one == uid => {}
            Self::One(one) => *self = Self::Many(BTreeSet::from([Arc::clone(one), Arc::clone(uid)])),
            Self::Many(all) => {
                all.insert(Arc::clone(uid));
            }
        }
    }

    /// True if none is left.
    fn remove(&mut self, uid: &str) -> bool {
        match self {
            Self::One(one) => **one == *uid,
            Self::Many(all) => {
                all.remove(uid);
                all.is_empty()
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        let (one, many) = match self {
            Self::One(one) => (Some(one), None),
            Self::Many(all) => (None, Some(all)),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
}

/// All pods of our scheduler, by UID.
#[derive(Debug, Default)]
pub struct GroupedPods {
    pods: HashMap<Arc<str>, Entry>,
    members: HashMap<GroupKey, Members>,
    /// Bound pods that are not grouped yet, by the group that they name: after a restart, others of their group may be grouped first.
    bound_in: HashMap<GroupKey, Members>,
    /// Priority classes that groups name in vain.
    pub absent_classes: AbsentClasses,
    /// Groups whose pods have not all stated the same class and preemptibility: how many that have not ended state what.
    mixed: HashMap<GroupKey, BTreeMap<Stated, usize>>,
    /// When pods last came to gangs or left them, until the owners of a pod of theirs are read after that.
    pub changed: HashMap<GroupKey, Instant>,
    /// Pods that have not ended and have no group.
    ungrouped: BTreeSet<Member>,
    retries: BTreeSet<(Instant, String)>,
    /// When each of them is to be grouped again.
    retry_at: HashMap<String, Instant>,
    versions: u64,
}

impl GroupedPods {
    /// Records a pod; true if it must be grouped (again).
    pub fn record(&mut self, pod: &Pod) -> bool {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let known = self.pods.get(uid);
        let fingerprint = fingerprint(pod, known.and_then(|entry| entry.group.as_ref()));
        if let Some(entry) = self.pods.get_mut(uid)
            && entry.fingerprint == fingerprint
        {
            entry.see(pod);
            self.index(uid);
            self.index_bound(pod);
            return false;
        }
        self.versions += 1;
        self.bind_in(uid, None);
        self.uncount(uid);
        let earlier = self.pods.remove(uid);
        let known = earlier.as_ref().map(|entry| {
            let (group, sub_group) = (entry.group.clone(), entry.sub_group.clone());
            (group, sub_group, entry.came, entry.looked, entry.anew)
        });
        let (group, sub_group, came, looked, anew) = known.unwrap_or_default();
        let mut entry = Entry {
            pod: pods::pod_ref(pod),
            created: 0,
            leaving: false,
            bound: false,
            finished: false,
            stated: Stated::of(pod),
            names_a_group: false,
            names_its_group: false,
            bound_in: None,
            names_its_sub_group: false,
            version: self.versions,
            group,
            sub_group,
            attempts: 0,
            came,
            looked,
            anew,
            fingerprint,
        };
        entry.see(pod);
        if let Some(group) = &entry.group
            && earlier.is_some_and(|earlier| earlier.stated != entry.stated)
        {
            self.count_all(group);
        }
        self.pods.insert(Arc::clone(&entry.pod.uid), entry);
        self.count(uid);
        self.index(uid);
        self.index_bound(pod);
        true
    }

    /// Keeps `ungrouped` up to date with a pod.
    fn index(&mut self, uid: &str) {
        let Some(entry) = self.pods.get(uid) else { return };
        let member = entry.member();
        if entry.group.is_none() && !entry.finished {
            self.ungrouped.insert(member);
        } else {
            self.ungrouped.remove(&member);
        }
    }

    /// Keeps `bound_in` up to date with a pod.
    fn index_bound(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let counts = |entry: &&Entry| entry.bound && !entry.finished && entry.group.is_none();
        let bound = self.pods.get(uid).filter(counts);
        let group = bound.and_then(|_| pods::annotated_group(pod));
        self.bind_in(uid, group);
    }

    /// Records the group that a bound pod names, or that it names none or is grouped.
    fn bind_in(&mut self, uid: &str, group: Option<GroupKey>) {
        let Some(entry) = self.pods.get_mut(uid).filter(|entry| entry.bound_in != group) else {
            return;
        };
        let uid = Arc::clone(&entry.pod.uid);
        if let Some(before) = std::mem::replace(&mut entry.bound_in, group.clone())
            && self.bound_in.get_mut(&before).is_some_and(|pods| pods.remove(&uid))
        {
            self.bound_in.remove(&before);
        }
        if let Some(group) = group {
            self.bound_in
                .entry(group)
                .and_modify(|pods| pods.insert(&uid))
                .or_insert(Members::One(uid));
        }
    }

    /// Removes a pod. Returns its group if it was the last member.
    pub fn forget(&mut self, pod: &Pod) -> Option<GroupKey> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.drop_retry(uid);
        self.bind_in(uid, None);
        self.uncount(uid);
        let entry = self.pods.remove(uid)?;
        self.ungrouped.remove(&entry.member());
        self.leave(uid, entry.group?)
    }

    /// Records the group of a pod. Returns its previous group if it was the last member of that.
    pub fn assign(&mut self, pod: &Pod, group: GroupKey, sub_group: Option<String>) -> Option<GroupKey> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.uncount(uid);
        let entry = self.pods.get_mut(uid)?;
        entry.attempts = 0;
        entry.sub_group = sub_group.map(Into::into);
        entry.fingerprint = fingerprint(pod, Some(&group));
        let previous = entry.group.replace(group.clone());
        entry.see_names(pod);
        let uid = Arc::clone(&entry.pod.uid);
        self.bind_in(&uid, None);
        let previous = previous.filter(|previous| *previous != group);
        let left = previous.and_then(|previous| self.leave(&uid, previous));
        self.index(&uid);
        let pair = self.entries(&group).next().zip(self.pods.get(&uid));
        if pair.is_some_and(|(other, entry)| other.stated != entry.stated) {
            self.count_all(&group);
        }
        self.count(&uid);
        self.members
            .entry(group)
            .and_modify(|members| members.insert(&uid))
            .or_insert(Members::One(uid));
        left
    }

    /// A pod is not grouped any more. Returns its group if it was the last member.
    pub fn unassign(&mut self, pod: &Pod) -> Option<GroupKey> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.uncount(uid);
        let entry = self.pods.get_mut(uid)?;
        let group = entry.group.take()?;
        entry.sub_group = None;
        entry.fingerprint = fingerprint(pod, None);
        entry.see_names(pod);
        self.index(uid);
        self.leave(uid, group)
    }

    /// Begins to count what members of a group state. A member that is just recorded or assigned is counted afterwards.
    fn count_all(&mut self, group: &GroupKey) {
        if self.mixed.contains_key(group) {
            return;
        }
        let mut counts: BTreeMap<Stated, usize> = BTreeMap::new();
        for entry in self.entries(group).filter(|entry| !entry.finished) {
            *counts.entry(entry.stated.clone()).or_default() += 1;
        }
        self.mixed.insert(group.clone(), counts);
    }

    /// Counts what a pod states for its group, unless all pods of that state the same.
    fn count(&mut self, uid: &str) {
        if let Some(entry) = self.pods.get(uid).filter(|entry| !entry.finished)
            && let Some(group) = &entry.group
            && let Some(counts) = self.mixed.get_mut(group)
        {
            *counts.entry(entry.stated.clone()).or_default() += 1;
        }
    }

    /// The same before a pod changes or leaves its group.
    fn uncount(&mut self, uid: &str) {
        if let Some(entry) = self.pods.get(uid).filter(|entry| !entry.finished)
            && let Some(group) = &entry.group
            && let Some(counts) = self.mixed.get_mut(group)
            && let Some(count) = counts.get_mut(&entry.stated)
        {
            *count -= 1;
            if *count == 0 {
                counts.remove(&entry.stated);
            }
        }
    }

    /// Removes a member. Returns the group if it was the last one.
    fn leave(&mut self, uid: &str, group: GroupKey) -> Option<GroupKey> {
        if self.members.get_mut(&group).is_some_and(|members| members.remove(uid)) {
            self.members.remove(&group);
            self.mixed.remove(&group);
            self.changed.remove(&group);
            self.absent_classes.forget(&group);
        }
        (!self.members.contains_key(&group)).then_some(group)
    }

    /// The pod of that UID.
    pub fn get(&self, uid: &str) -> Option<&Entry> {
        self.pods.get(uid)
    }

    /// The pod of that UID, to change.
    pub fn get_mut(&mut self, uid: &str) -> Option<&mut Entry> {
        self.pods.get_mut(uid)
    }

    /// The group's members.
    pub fn members(&self, group: &GroupKey) -> impl Iterator<Item = Member> {
        let namespace: Arc<str> = group.namespace().into();
        let uids = self.members.get(group).into_iter().flat_map(Members::iter);
        uids.map(move |uid| Member {
            namespace: Arc::clone(&namespace),
            uid: Arc::clone(uid),
        })
    }

    /// Whether the group has members.
    pub fn has_members(&self, group: &GroupKey) -> bool {
        self.members.contains_key(group)
    }

    /// Whether the only member is a pod that owns the group.
    pub fn only_owner(&self, key: &GroupKey, group: &PodGroup) -> bool {
        let owners = group.metadata.owner_references.as_deref().unwrap_or_default();
        let members = self.members.get(key).into_iter().flat_map(Members::iter);
        matches!(owners, [owner] if owner.kind == "Pod" && members.map(|uid| &**uid).eq([&*owner.uid]))
    }

    /// The pods of the group.
    fn entries(&self, group: &GroupKey) -> impl Iterator<Item = &Entry> {
        self.all_of(self.members.get(group))
    }

    /// The pods that were bound in the group and are not grouped yet.
    fn bound_before(&self, group: &GroupKey) -> impl Iterator<Item = &Entry> {
        self.all_of(self.bound_in.get(group))
    }

    fn all_of<'a>(&'a self, pods: Option<&'a Members>) -> impl Iterator<Item = &'a Entry> {
        let uids = pods.into_iter().flat_map(Members::iter);
        uids.filter_map(move |uid| self.pods.get(uid))
    }

    /// Whether a pod of the group is on a node.
    pub fn runs(&self, group: &GroupKey) -> bool {
        self.bound_in.contains_key(group) || self.entries(group).any(|pod| pod.bound && !pod.finished)
    }

    /// The highest rank of what pods of the group state themselves. Where all members state the same, only one is looked at.
    pub fn highest<'a, R: Ord>(&'a self, group: &GroupKey, rank: impl Fn(&'a Stated) -> Option<R>) -> Option<R> {
        let mixed = self.mixed.get(group);
        let one = match mixed {
            None => self.entries(group).find(|entry| !entry.finished),
            Some(_) => None,
        };
        let of_entries = one.into_iter().chain(self.bound_before(group));
        let of_entries = of_entries.map(|entry| &entry.stated);
        let all = of_entries.chain(mixed.into_iter().flat_map(BTreeMap::keys));
        all.filter_map(rank).max()
    }

    /// A pod that stays in the group: one that waits, else any.
    pub fn one(&self, group: &GroupKey) -> Option<&Entry> {
        let waiting = self.entries(group).find(|entry| entry.waits());
        waiting.or_else(|| self.entries(group).find(|entry| !entry.leaving && !entry.finished))
    }

    /// Chooses a pod that stays in the group to be grouped again with its owners read anew.
    pub fn one_anew(&mut self, group: &GroupKey) -> Option<Member> {
        let uid = Arc::clone(&self.one(group)?.pod.uid);
        let entry = self.pods.get_mut(&uid)?;
        entry.anew = true;
        Some(entry.member())
    }

    /// What a walk that is under way finds for the pod does not count.
    pub fn outdate(&mut self, uid: &str) {
        if let Some(entry) = self.pods.get_mut(uid) {
            self.versions += 1;
            entry.version = self.versions;
        }
    }

    /// Every pod.
    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.pods.values()
    }

    /// All pods, in order of creation.
    pub fn waiting(&self) -> Vec<Member> {
        let mut all: Vec<_> = self.pods.iter().map(|(uid, entry)| (entry.created, uid)).collect();
        all.sort_unstable();
        let entries = all.into_iter().filter_map(|(_, uid)| self.pods.get(uid));
        entries.map(Entry::member).collect()
    }

    /// The pods of a namespace that have not ended and have no group.
    pub fn ungrouped(&self, namespace: &str) -> Vec<Member> {
        let first = Member {
            namespace: namespace.into(),
            uid: "".into(),
        };
        let there = self.ungrouped.range(first..);
        there
            .take_while(|member| *member.namespace == *namespace)
            .cloned()
            .collect()
    }

    /// Schedules the next grouping of a pod.
    pub fn retry(&mut self, uid: &str, at: Instant) {
        self.drop_retry(uid);
        self.retry_at.insert(uid.to_owned(), at);
        self.retries.insert((at, uid.to_owned()));
    }

    fn drop_retry(&mut self, uid: &str) {
        if let Some((uid, at)) = self.retry_at.remove_entry(uid) {
            self.retries.remove(&(at, uid));
        }
    }

    /// Schedules the next grouping of all members of a group that are not being deleted then.
    pub fn retry_members(&mut self, group: &GroupKey, at: Instant) {
        let members = self.members.get(group).cloned();
        for uid in members.iter().flat_map(Members::iter) {
            self.retry(uid, at);
        }
    }

    /// When the next pod is due.
    pub fn next_retry(&self) -> Option<Instant> {
        self.retries.first().map(|(at, _)| *at)
    }

    /// The pods that are due and not being deleted.
    pub fn due(&mut self, now: Instant) -> Vec<Member> {
        let mut due = Vec::new();
        while self.next_retry().is_some_and(|at| at <= now)
            && let Some((_, uid)) = self.retries.pop_first()
        {
            self.retry_at.remove(&uid);
            let entry = self.pods.get(&*uid);
            let stays = entry.filter(|entry| !entry.leaving);
            due.extend(stays.map(Entry::member));
        }
        due
    }
}

/// Everything about a pod that its grouping depends on, without what the grouper itself writes.
fn fingerprint(pod: &Pod, group: Option<&GroupKey>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let meta = &pod.metadata;
    for (key, value) in meta.labels.iter().flatten() {
        if key != label::SUBGROUP_NAME {
            (key, value).hash(&mut hasher);
        }
    }
    for (key, value) in meta.annotations.iter().flatten() {
        let ours = match key.as_str() {
            annotation::POD_GROUP_NAME => group.is_some_and(|group| group.name() == value),
            annotation::RECEIVED_RESOURCE_TYPE => true,
            _ => false,
        };
        if !ours {
            (key, value).hash(&mut hasher);
        }
    }
    for owner in meta.owner_references.iter().flatten() {
        (
            &owner.api_version,
            &owner.kind,
            &owner.name,
            &owner.uid,
            owner.controller,
        )
            .hash(&mut hasher);
    }
    pods::is_finished(pod).hash(&mut hasher);
    // Grove names the part of a pod before it removes the gate.
    pods::has_gates(pod).hash(&mut hasher);
    pod.spec
        .as_ref()
        .and_then(|spec| spec.priority_class_name.as_deref())
        .hash(&mut hasher);
    hasher.finish()
}
