//! Objects that are set aside, and their number by kind. Objects whose event made the engine panic are ignored until they change; pod
//! groups at which a cycle panicked are not placed until then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::{Resource, ResourceExt};

use super::identity::object_key;
use super::{Mirror, Output, PackedChange, Problem, Rejection, packed};
use crate::api::limits::ExceededLimit;
use crate::engine::input::{GroupKey, Name};

/// The kind of an object, and its `namespace/name`, or `/name` if the kind is cluster-scoped.
pub type ObjectKey = (&'static str, Box<str>);

/// Identity and version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its kind.
    pub kind: &'static str,
    /// `namespace/name`; `/name` for cluster-scoped kinds.
    pub key: Box<str>,
    /// Its uid.
    pub uid: String,
    /// Its resource version.
    pub version: Option<String>,
}

impl Identity {
    /// The object of a change. A grouping is about its pod.
    #[must_use]
    pub fn of(change: &PackedChange) -> Self {
        match change {
            PackedChange::Applied(object) | PackedChange::Deleted(object) => object.identity(),
            PackedChange::Grouped(grouping) => Self {
                kind: "Pod",
                key: object_key(&grouping.namespace, &grouping.pod),
                uid: grouping.uid.clone(),
                version: None,
            },
            PackedChange::Ungrouped(pod) => Self {
                kind: "Pod",
                key: object_key(&pod.namespace, &pod.name),
                uid: pod.uid.to_string(),
                version: None,
            },
            PackedChange::Requested(pod) => pod.identity(),
        }
    }

    /// An object of the API.
    #[must_use]
    pub fn of_resource<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            kind: match K::kind(&()) {
                Cow::Borrowed(kind) => kind,
                Cow::Owned(_) => "other",
            },
            key: object_key(&object.namespace().unwrap_or_default(), &object.name_any()),
            uid: object.uid().unwrap_or_default(),
            version: object.resource_version(),
        }
    }

    /// Its namespace, which may be empty, and its name.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or_default()
    }
}

/// An object with an identity.
pub(super) trait Identified {
    /// Its kind, key, uid and version.
    fn identity(&self) -> Identity;
}

impl<K: Resource<DynamicType = ()>> Identified for K {
    fn identity(&self) -> Identity {
        Identity::of_resource(self)
    }
}

impl Identified for packed::Pod {
    fn identity(&self) -> Identity {
        Identity {
            kind: "Pod",
            key: self.key.clone(),
            uid: self.pod.uid.to_string(),
            version: self.version.as_deref().map(ToOwned::to_owned),
        }
    }
}

impl Identified for packed::Group {
    fn identity(&self) -> Identity {
        Identity {
            kind: "PodGroup",
            key: object_key(self.key.namespace(), self.key.name()),
            uid: self.uid.to_string(),
            version: self.version.as_deref().map(ToOwned::to_owned),
        }
    }
}

/// Objects that exceed a limit, and which.
pub type Limited = BTreeMap<ObjectKey, ExceededLimit>;

/// Objects that are set aside.
#[derive(Debug, Default)]
pub struct Aside {
    /// Objects that exceed a limit, and are kept in part.
    limited: Limited,
    /// Objects that caused a panic. They are ignored.
    failed_objects: BTreeMap<ObjectKey, FailedObject>,
    /// Pod groups that made a cycle panic. They are not placed.
    failed_groups: BTreeMap<GroupKey, FailedGroup>,
    counts: BTreeMap<&'static str, usize>,
    changed: bool,
    /// Objects that are not set aside any more, since the last call of [`Aside::released`].
    released: Vec<ObjectKey>,
}

#[derive(Clone, Debug)]
struct FailedObject {
    uid: String,
    version: Option<String>,
    /// Number of panics.
    times: u32,
    /// It has changed since, and is tried again.
    tried_again: bool,
    /// Even its resources on its node could not be counted.
    unknown: bool,
    /// It exists still. Not known of an entry that was taken over, until [`Aside::exists`].
    exists: bool,
}

#[derive(Clone, Debug, Default)]
struct FailedGroup {
    /// Its uid; empty if it was not written yet, and gets one.
    uid: Name,
    /// Number of panics.
    times: u32,
    /// It has changed since, and is tried again.
    tried_again: bool,
}

/// The message about a pod group that made a cycle panic.
pub const GROUP_FAILED: &str =
    "the scheduler failed when it looked for places for this pod group: set aside until it changes";

/// The message about an object that caused a panic.
pub const OBJECT_FAILED: &str = "the scheduler failed when it read this object: set aside until it changes";

/// After so many panics an object is not retried when it changes, only when it is re-created.
const TRIES: u32 = 3;

impl Aside {
    /// Records the limit that an object exceeds, if any.
    pub fn limit(&mut self, kind: &'static str, key: impl FnOnce() -> Box<str>, excess: Option<ExceededLimit>) {
        if excess.is_none() && self.limited.is_empty() {
            return;
        }
        let key = (kind, key());
        let Some(excess) = excess else {
            if self.limited.remove(&key).is_some() {
                self.release(key);
            }
            return;
        };
        if self.limited.insert(key, excess).is_none() {
            self.count(kind, true);
        }
    }

    /// Objects that are set aside: kind, namespace (may be empty), name, and reason.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str, &str, String)> {
        let limited = self.limited.iter();
        let limited = limited.map(|(object, excess)| (object, Problem::ExceededLimit(*excess).to_string()));
        let failed_objects = self.failed_objects.iter().filter(|(_, failed)| !failed.tried_again);
        let failed_objects = failed_objects.map(|(object, _)| (object, OBJECT_FAILED.to_owned()));
        let objects = limited.chain(failed_objects).map(|((kind, key), why)| {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            (*kind, namespace, name, why)
        });
        let failed_groups = self.failed_groups.iter().filter(|(_, failed)| !failed.tried_again);
        let failed_groups =
            failed_groups.map(|(key, _)| ("PodGroup", key.namespace(), key.name(), GROUP_FAILED.to_owned()));
        objects.chain(failed_groups)
    }

    /// Nothing is set aside because of a panic, now or before it changed.
    #[must_use]
    pub fn nothing_failed(&self) -> bool {
        self.failed_objects.is_empty() && self.failed_groups.is_empty()
    }

    fn set_group_aside(&mut self, group: &GroupKey, uid: Name) -> bool {
        if self.is_group_set_aside(group) {
            return false;
        }
        let failed = self.failed_groups.entry(group.clone()).or_default();
        (failed.uid, failed.times, failed.tried_again) = (uid, failed.times + 1, false);
        self.count("PodGroup", true);
        true
    }

    /// Whether a pod group is set aside.
    #[must_use]
    pub fn is_group_set_aside(&self, group: &GroupKey) -> bool {
        !self.failed_groups.is_empty() && self.failed_groups.get(group).is_some_and(|failed| !failed.tried_again)
    }

    /// Retries a pod group that is set aside and has changed, unless it failed too often.
    pub fn try_again(&mut self, group: &GroupKey) {
        let failed = self.failed_groups.get_mut(group);
        if let Some(failed) = failed.filter(|failed| !failed.tried_again && failed.times < TRIES) {
            failed.tried_again = true;
            self.release(("PodGroup", object_key(group.namespace(), group.name())));
        }
    }

    /// A pod group is gone.
    pub fn forget_group(&mut self, group: &GroupKey) {
        if self
            .failed_groups
            .remove(group)
            .is_some_and(|failed| !failed.tried_again)
        {
            self.count("PodGroup", false);
        }
    }

    /// Whether an ignored pod's resources on its node are counted.
    #[must_use]
    pub fn counts_on_its_node(&self, pod: &str) -> bool {
        let failed = self.failed_objects.get(&("Pod", Box::from(pod)));
        failed.is_some_and(|failed| !failed.unknown)
    }

    /// Sets an object aside until it changes; a bound pod's resources on its node are still counted, unless that panics, too.
    pub fn set_object_aside(&mut self, object: &Identity) {
        let key = (object.kind, object.key.clone());
        let before = self.failed_objects.get(&key).filter(|before| before.uid == object.uid);
        let times = before.map_or(0, |before| before.times) + 1;
        let failed = FailedObject {
            uid: object.uid.clone(),
            version: object.version.clone(),
            times,
            tried_again: false,
            unknown: before.is_some_and(|before| !before.tried_again),
            exists: true,
        };
        let before = self.failed_objects.insert(key, failed);
        if before.is_none_or(|before| before.tried_again) {
            self.count(object.kind, true);
        }
    }

    /// Whether an object is set aside in this version.
    #[must_use]
    pub fn has(&self, object: &Identity) -> bool {
        let failed = self.failed_objects.get(&(object.kind, object.key.clone()));
        failed.is_some_and(|failed| !failed.tried_again && failed.uid == object.uid && failed.version == object.version)
    }

    /// Whether a change is to be ignored, because its object is.
    pub fn ignores(&mut self, change: &PackedChange) -> bool {
        if self.failed_objects.is_empty() {
            return false;
        }
        let object = Identity::of(change);
        let key = (object.kind, object.key.clone());
        let Some(failed) = self.failed_objects.get_mut(&key) else {
            return false;
        };
        let out = !failed.tried_again;
        let same = failed.uid == object.uid;
        // A pod that is requested says nothing about one of its name that exists, nor does the end of the request.
        let requested = matches!(change, PackedChange::Requested(_));
        if !same && (requested || matches!(change, PackedChange::Deleted(_))) {
            return false;
        }
        if matches!(change, PackedChange::Deleted(_)) || !same {
            self.failed_objects.remove(&key);
            if out {
                self.release(key);
            }
            return false;
        }
        if !out {
            return false;
        }
        let again = matches!(change, PackedChange::Applied(_)) && failed.version != object.version;
        if !again || failed.times >= TRIES {
            return true;
        }
        failed.tried_again = true;
        self.release(key);
        false
    }

    /// Takes the entries over into the next mirror, which gets all objects that exist. Then comes [`Mirror::forget_gone`].
    pub fn follow(&mut self, before: &Self) {
        for ((kind, key), failed) in &before.failed_objects {
            let failed = FailedObject {
                exists: false,
                ..failed.clone()
            };
            if !failed.tried_again {
                self.count(kind, true);
            }
            self.failed_objects.insert((*kind, key.clone()), failed);
        }
        for (group, failed) in &before.failed_groups {
            self.failed_groups.insert(group.clone(), failed.clone());
            if !failed.tried_again {
                self.count("PodGroup", true);
            }
        }
        for kind in before.counts.keys() {
            self.counts.entry(kind).or_default();
        }
        self.changed = true;
    }

    /// Records that an object exists, whether or not the mirror gets it.
    pub fn exists(&mut self, object: &Identity) {
        let failed = self.failed_objects.get_mut(&(object.kind, object.key.clone()));
        if let Some(failed) = failed.filter(|failed| failed.uid == object.uid) {
            failed.exists = true;
        }
    }

    fn forget_gone_objects(&mut self) {
        let gone = self.failed_objects.extract_if(.., |_, failed| !failed.exists);
        let gone: Vec<_> = gone.collect();
        for ((kind, _), failed) in gone {
            if !failed.tried_again {
                self.count(kind, false);
            }
        }
    }

    /// The objects that exceed a limit.
    #[must_use]
    pub fn limited(&self) -> &Limited {
        &self.limited
    }

    /// Whether a rejection by a new mirror is to be told. Not that of a limit that the object exceeded in the mirror before, or does not exceed any more: there
    /// may be room for it since.
    #[must_use]
    pub fn is_news(&self, rejection: &Rejection, before: &Limited) -> bool {
        let Problem::ExceededLimit(excess) = &rejection.problem else {
            return true;
        };
        let key = (rejection.kind, object_key(&rejection.namespace, &rejection.name));
        self.limited.get(&key) == Some(excess) && before.get(&key) != Some(excess)
    }

    /// The objects that exceeded a limit in the mirror before, and exceed none in this one.
    #[must_use]
    pub fn within_limits_again(&self, before: &Limited) -> Vec<ObjectKey> {
        let again = before.keys().filter(|key| !self.limited.contains_key(*key));
        again.cloned().collect()
    }

    fn release(&mut self, object: ObjectKey) {
        self.count(object.0, false);
        self.released.push(object);
    }

    /// The objects that are not set aside any more, since the last call.
    pub(super) fn released(&mut self) -> Vec<ObjectKey> {
        std::mem::take(&mut self.released)
    }

    fn count(&mut self, kind: &'static str, more: bool) {
        let count = self.counts.entry(kind).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        self.changed = true;
    }

    /// Number of objects set aside by kind, if it changed since the last call.
    pub fn news(&mut self) -> Option<&BTreeMap<&'static str, usize>> {
        std::mem::take(&mut self.changed).then_some(&self.counts)
    }
}

impl Mirror {
    /// Sets a pod group aside until it changes; false if it is set aside already. The caller reports it.
    pub fn set_group_aside(&mut self, group: &GroupKey) -> bool {
        let uid = self.group(group).map(|group| group.uid.clone());
        self.aside.set_group_aside(group, uid.unwrap_or_default())
    }

    /// Drops what [`Aside::follow`] took over about objects that do not exist any more, once this mirror has all others. Their deletions are not told to it.
    pub fn forget_gone(&mut self) -> Output {
        self.aside.forget_gone_objects();
        let gone = self.aside.failed_groups.iter().filter(|(key, failed)| {
            let is_another = |uid: &Name| !failed.uid.is_empty() && failed.uid != *uid;
            self.group(key).is_none_or(|group| is_another(&group.uid))
        });
        let gone: Vec<GroupKey> = gone.map(|(key, _)| key.clone()).collect();
        let mut out = Output::default();
        if gone.is_empty() {
            return out;
        }
        let set_aside = gone.iter().filter(|group| self.aside.is_group_set_aside(group));
        let released = set_aside.map(|group| ("PodGroup", object_key(group.namespace(), group.name())));
        out.released.extend(released);
        // One of that name may have been created since: it is placed.
        let concerned = |group: &packed::Group| gone.contains(&group.key);
        self.with_groups(&mut out, concerned, |mirror| {
            gone.iter().for_each(|group| mirror.aside.forget_group(group));
        });
        out
    }
}
