//! Objects that are set aside, and their number by kind. Objects whose event made the engine panic are ignored until they change; pod
//! groups at which a cycle panicked are not placed until then.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kube::{Resource, ResourceExt};

use super::bounds::ExceededLimit;
use super::identity::object_key;
use super::{PackedChange, Problem, packed};
use crate::engine::input::GroupKey;

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

/// Objects that are set aside.
#[derive(Debug, Default)]
pub struct Aside {
    /// Objects that exceed a limit, and are kept in part.
    limited: BTreeMap<(&'static str, Box<str>), ExceededLimit>,
    /// Objects that caused a panic. They are ignored.
    left_out: BTreeMap<(&'static str, Box<str>), LeftOut>,
    /// Pod groups that made a cycle panic. They are not placed.
    held_back: BTreeMap<GroupKey, HeldBack>,
    counts: BTreeMap<&'static str, usize>,
    changed: bool,
}

#[derive(Clone, Debug)]
struct LeftOut {
    uid: String,
    version: Option<String>,
    /// Number of panics.
    times: u32,
    /// It has changed since, and is tried again.
    tried_again: bool,
    /// Even its resources on its node could not be counted.
    unknown: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct HeldBack {
    /// Number of panics.
    times: u32,
    /// It has changed since, and is tried again.
    tried_again: bool,
}

/// The message about a pod group that made a cycle panic.
pub const HELD_BACK: &str =
    "the scheduler failed when it looked for places for this pod group: set aside until it changes";

/// The message about an object that caused a panic.
pub const LEFT_OUT: &str = "the scheduler failed when it read this object: set aside until it changes";

/// After so many panics an object is not retried when it changes, only when it is re-created.
const TRIES: u32 = 3;

impl Aside {
    /// Records the limit that an object exceeds, if any.
    pub fn limit(&mut self, kind: &'static str, key: impl FnOnce() -> Box<str>, excess: Option<ExceededLimit>) {
        if excess.is_none() && self.limited.is_empty() {
            return;
        }
        let key = (kind, key());
        let before = match excess {
            Some(excess) => self.limited.insert(key, excess),
            None => self.limited.remove(&key),
        };
        if before.is_some() != excess.is_some() {
            self.count(kind, excess.is_some());
        }
    }

    /// Objects that are set aside: kind, namespace (may be empty), name, and reason.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &str, &str, String)> {
        let limited = self.limited.iter();
        let limited = limited.map(|(object, excess)| (object, Problem::ExceededLimit(*excess).to_string()));
        let left_out = self.left_out.iter().filter(|(_, left_out)| !left_out.tried_again);
        let left_out = left_out.map(|(object, _)| (object, LEFT_OUT.to_owned()));
        let objects = limited.chain(left_out).map(|((kind, key), why)| {
            let (namespace, name) = key.split_once('/').unwrap_or_default();
            (*kind, namespace, name, why)
        });
        let held_back = self.held_back.iter().filter(|(_, held)| !held.tried_again);
        let held_back = held_back.map(|(key, _)| ("PodGroup", key.namespace(), key.name(), HELD_BACK.to_owned()));
        objects.chain(held_back)
    }

    /// Nothing is set aside because of a panic, now or before it changed.
    #[must_use]
    pub fn nothing_failed(&self) -> bool {
        self.left_out.is_empty() && self.held_back.is_empty()
    }

    /// Holds a pod group back until it changes; false if it is held back already. The caller reports it.
    pub fn hold_back(&mut self, group: &GroupKey) -> bool {
        if self.holds_back(group) {
            return false;
        }
        let held = self.held_back.entry(group.clone()).or_default();
        (held.times, held.tried_again) = (held.times + 1, false);
        self.count("PodGroup", true);
        true
    }

    /// Whether a pod group is held back.
    #[must_use]
    pub fn holds_back(&self, group: &GroupKey) -> bool {
        !self.held_back.is_empty() && self.held_back.get(group).is_some_and(|held| !held.tried_again)
    }

    /// Retries a pod group that is held back and has changed, unless it failed too often.
    pub fn try_again(&mut self, group: &GroupKey) {
        let held = self.held_back.get_mut(group);
        if let Some(held) = held.filter(|held| !held.tried_again && held.times < TRIES) {
            held.tried_again = true;
            self.count("PodGroup", false);
        }
    }

    /// A pod group is gone.
    pub fn forget_group(&mut self, group: &GroupKey) {
        if self.held_back.remove(group).is_some_and(|held| !held.tried_again) {
            self.count("PodGroup", false);
        }
    }

    /// Whether an ignored pod's resources on its node are counted.
    #[must_use]
    pub fn counts_on_its_node(&self, pod: &str) -> bool {
        let left_out = self.left_out.get(&("Pod", Box::from(pod)));
        left_out.is_some_and(|left_out| !left_out.unknown)
    }

    /// Ignores an object until it changes; a bound pod's resources on its node are still counted, unless that panics, too.
    pub fn leave_out(&mut self, object: &Identity) {
        let key = (object.kind, object.key.clone());
        let before = self.left_out.get(&key).filter(|before| before.uid == object.uid);
        let times = before.map_or(0, |before| before.times) + 1;
        let left_out = LeftOut {
            uid: object.uid.clone(),
            version: object.version.clone(),
            times,
            tried_again: false,
            unknown: before.is_some_and(|before| !before.tried_again),
        };
        let before = self.left_out.insert(key, left_out);
        if before.is_none_or(|before| before.tried_again) {
            self.count(object.kind, true);
        }
    }

    /// Whether a change is to be ignored, because its object is.
    pub fn ignores(&mut self, change: &PackedChange) -> bool {
        if self.left_out.is_empty() {
            return false;
        }
        let object = Identity::of(change);
        let key = (object.kind, object.key.clone());
        let Some(left_out) = self.left_out.get_mut(&key) else {
            return false;
        };
        let out = !left_out.tried_again;
        let same = left_out.uid == object.uid;
        // A pod that is requested says nothing about one of its name that exists, nor does the end of the request.
        let requested = matches!(change, PackedChange::Requested(_));
        if !same && (requested || matches!(change, PackedChange::Deleted(_))) {
            return false;
        }
        if matches!(change, PackedChange::Deleted(_)) || !same {
            self.left_out.remove(&key);
            if out {
                self.count(object.kind, false);
            }
            return false;
        }
        if !out {
            return false;
        }
        let again = matches!(change, PackedChange::Applied(_)) && left_out.version != object.version;
        if !again || left_out.times >= TRIES {
            return true;
        }
        left_out.tried_again = true;
        self.count(object.kind, false);
        false
    }

    /// Takes the entries over into the next mirror.
    pub fn follow(&mut self, before: &Self) {
        for ((kind, key), left_out) in &before.left_out {
            self.left_out.insert((*kind, key.clone()), left_out.clone());
            if !left_out.tried_again {
                self.count(kind, true);
            }
        }
        for (group, held) in &before.held_back {
            self.held_back.insert(group.clone(), *held);
            if !held.tried_again {
                self.count("PodGroup", true);
            }
        }
        for kind in before.counts.keys() {
            self.counts.entry(kind).or_default();
        }
        self.changed = true;
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
