//! Restores what a bound pod is charged for. A tenant may change labels and annotations of a running pod, and with them its pod group, its GPU
//! portion and its GPU groups; none of that changes what the pod holds. So before any subscriber gets a pod, these labels and annotations are set to
//! the first of:
//!
//! 1. what the reservation pods of its GPUs record, for its portion and its groups (`fractions::users`);
//! 2. what they were when this process first saw the pod bound;
//! 3. its own when it is first seen bound, except that a sub-group that its pod group does not have is removed, and that its pod group is the one which
//!    the binder has recorded in its status, else an existing one that is named after the pod or its owner. The binder records it before the Binding,
//!    if it differs from the one that would be found ([`found_group`]), so that every process finds the same, whenever it starts. And a pod whose Binding
//!    gave it no part of a GPU has none, whatever its annotations ask for since.
//!
//! An event on the pod reports what was restored, once for each change.
//!
//! Records of users on other pods than reservation pods are removed: they count nowhere, and the limits on annotations do not hold for them.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use super::{Key, Stores};
use crate::api::gpu_request::is_group_label;
use crate::api::names::{annotation, condition, label, reason, received_resource_type};
use crate::components::Settings;
use crate::components::bus::{Note, Severity, Subject};
use crate::components::fractions::users::{self, User};
use crate::components::pods::{self, OwnPods, Role};
use crate::mirror::trim::is_user_record;

/// Changes that an event lists.
const NAMED_MAX: usize = 5;
/// Characters of a label's or annotation's name in an event.
const NAME_SHOWN: usize = 80;

/// What pods are charged for. Used by the watch of pods.
#[derive(Default)]
pub struct Charged {
    stores: Arc<Stores>,
    scheduler: String,
    own_pods: OwnPods,
    queue_label: String,
    pool_label: String,
    /// Users recorded on each reservation pod, by name of the reservation pod.
    reservations: HashMap<String, Reservation>,
    /// The reservation pods that record a user, by the user's uid.
    named_by: HashMap<String, BTreeSet<String>>,
    /// The GPU groups that pods' own labels named, by the pod's uid, where it is charged for others.
    own_groups: HashMap<String, BTreeSet<String>>,
    /// Pods that were bound when they were first seen, before all pod groups were known.
    unsure: BTreeSet<(String, String)>,
    /// The first list of pods is complete, and pod groups are known.
    listed: bool,
    /// Changes that were reported, by the pod's uid.
    told: HashMap<String, u64>,
    notes: Vec<Note>,
}

/// What a reservation pod records: its node, its group and its users.
#[derive(Clone, Debug, Default, PartialEq)]
struct Reservation {
    node: String,
    group: String,
    users: BTreeMap<String, User>,
}

impl Charged {
    /// Empty.
    #[must_use]
    pub fn new(stores: Arc<Stores>, settings: &Settings) -> Self {
        Self {
            stores,
            scheduler: settings.scheduler_name.clone(),
            own_pods: settings.own_pods.clone(),
            queue_label: settings.queue_label_key.clone(),
            pool_label: settings.pools.key.clone(),
            ..Self::default()
        }
    }

    /// Restores the charged fields; `before` is the pod as it was last passed on, and is read for bound pods only. Returns other pods that must be
    /// restored again.
    pub fn settle(&mut self, pod: &mut Pod, before: impl FnOnce() -> Option<Arc<Pod>>) -> Vec<Key> {
        if self.own_pods.role(pod) == Role::Reservation {
            return self.reservation(pod);
        }
        // Records of users are exempt from the limits, but count on reservation pods alone.
        if let Some(annotations) = &mut pod.metadata.annotations {
            annotations.retain(|key, _| !is_user_record(key));
        }
        if !pods::is_bound(pod) {
            return Vec::new();
        }
        let said = self.charged(pod);
        match before() {
            Some(before) if pods::is_bound(&before) => self.keep(pod, &before),
            _ if self.listed => self.first_seen_bound(pod),
            _ => {
                self.unsure
                    .insert((pod.namespace().unwrap_or_default(), pod.name_any()));
            }
        }
        self.recorded(pod);
        self.tell(pod, &said);
        Vec::new()
    }

    /// Restores a pod again after more became known; returns it if it changed. `first`: only its own fields were known before.
    pub fn again(&mut self, known: &Pod, first: bool) -> Option<Pod> {
        let mut pod = known.clone();
        if !pods::is_bound(&pod) {
            return None;
        }
        let said = self.charged(&pod);
        if first {
            self.first_seen_bound(&mut pod);
        }
        self.recorded(&mut pod);
        if self.charged(&pod) == said {
            return None;
        }
        self.tell(&pod, &said);
        Some(pod)
    }

    /// The first list of pods is complete, and all pod groups are known. Returns pods that must be restored again.
    pub fn listed(&mut self) -> Vec<Key> {
        self.listed = true;
        let unsure = std::mem::take(&mut self.unsure).into_iter();
        unsure.map(|(namespace, name)| Key { namespace, name }).collect()
    }

    /// A pod was deleted.
    pub fn gone(&mut self, pod: &Pod) {
        if self.own_pods.role(pod) == Role::Reservation {
            self.replace(&pod.name_any(), Reservation::default());
        }
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.told.remove(uid);
        self.own_groups.remove(uid);
    }

    /// Reports since the last call.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    fn is_charged_label(&self, key: &str) -> bool {
        is_group_label(key)
            || key == self.queue_label
            || key == self.pool_label
            || matches!(
                key,
                label::SUBGROUP_NAME | label::PREEMPTIBILITY | label::PRIORITY_CLASS_NAME
            )
    }

    /// The charged fields in the pod's own labels and annotations.
    fn charged(&self, pod: &Pod) -> Said {
        let labels = pod.metadata.labels.iter().flatten();
        let annotations = pod.metadata.annotations.iter().flatten();
        let labels = labels.filter(|(key, _)| self.is_charged_label(key));
        let annotations = annotations.filter(|(key, _)| is_charged_annotation(key));
        let both = labels.chain(annotations);
        both.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Keeps everything as it was, except for what the grouper writes after the binding.
    fn keep(&self, pod: &mut Pod, before: &Pod) {
        let sub_group = pod.labels().get(label::SUBGROUP_NAME).cloned();
        let sub_group = sub_group.filter(|_| self.is_late_mark(pod, before));
        put_back(&mut pod.metadata.labels, before.metadata.labels.as_ref(), |key| {
            self.is_charged_label(key)
        });
        if let Some(name) = sub_group {
            pod.labels_mut().insert(label::SUBGROUP_NAME.to_owned(), name);
        }
        let group = pod.annotations().get(annotation::POD_GROUP_NAME).cloned();
        let group = group.filter(|_| pods::annotated_group(before).is_none());
        let annotations = before.metadata.annotations.as_ref();
        put_back(&mut pod.metadata.annotations, annotations, is_charged_annotation);
        if let Some(name) = group {
            pod.annotations_mut()
                .insert(annotation::POD_GROUP_NAME.to_owned(), name);
        }
    }

    /// The grouper writes the sub-group of a pod after the binding if there was no time before.
    fn is_late_mark(&self, pod: &Pod, before: &Pod) -> bool {
        let Some(name) = pod.labels().get(label::SUBGROUP_NAME) else {
            return false;
        };
        let group = pods::annotated_group(before);
        let group = group.and_then(|key| self.stores.pod_groups.get(key.namespace(), key.name()));
        !before.labels().contains_key(label::SUBGROUP_NAME)
            && group.is_none_or(|group| group.spec.sub_groups.iter().any(|one| one.name == *name))
    }

    /// A pod that is seen bound for the first time.
    fn first_seen_bound(&self, pod: &mut Pod) {
        if pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()) != Some(&*self.scheduler) {
            return;
        }
        // Its annotations may have changed between the decision and the Binding.
        let received = pod.annotations().get(annotation::RECEIVED_RESOURCE_TYPE);
        if received.is_some_and(|received| received == received_resource_type::REGULAR) {
            pod.annotations_mut().retain(|key, _| !users::is_share(key));
        }
        let namespace = pod.namespace().unwrap_or_default();
        let named = pod.annotations().get(annotation::POD_GROUP_NAME).cloned();
        let recorded = recorded_group(pod).map(str::to_owned);
        let counts = recorded.or_else(|| found_group(&self.stores, pod)).or(named);
        if let Some(name) = &counts {
            let annotations = pod.annotations_mut();
            annotations.insert(annotation::POD_GROUP_NAME.to_owned(), name.clone());
        }
        let counts = counts.and_then(|name| self.stores.pod_groups.get(&namespace, &name));
        let sub_group = pod.labels().get(label::SUBGROUP_NAME);
        if let (Some(group), Some(sub_group)) = (counts, sub_group)
            && !group.spec.sub_groups.iter().any(|one| one.name == *sub_group)
        {
            pod.labels_mut().remove(label::SUBGROUP_NAME);
        }
    }

    /// Reservation pods on the pod's node take precedence.
    fn recorded(&mut self, pod: &mut Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if !self.named_by.contains_key(&uid) {
            return;
        }
        let labels = pod.labels().iter();
        let labelled: BTreeSet<String> = labels
            .filter(|(key, _)| is_group_label(key))
            .map(|(_, group)| group.clone())
            .collect();
        let own = self.own_groups.get(&uid).unwrap_or(&labelled);
        let found = self.records(&uid, pods::node(pod), own);
        let Some(user) = found.values().next() else { return };
        let share: BTreeMap<String, String> = user.share.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let mut groups: BTreeSet<&str> = found.keys().copied().collect();
        // While some of its reservation pods are unknown, its own labels count as well.
        if groups.len() < user.share.devices() {
            groups.extend(labelled.iter().map(|group| &**group));
        }
        let differ = !groups.iter().copied().eq(own.iter().map(|group| &**group));
        let wanted = users::labels(groups.into_iter());
        if differ {
            self.own_groups.entry(uid).or_insert(labelled);
        } else {
            self.own_groups.remove(&uid);
        }
        put_back(&mut pod.metadata.labels, Some(&wanted), is_group_label);
        put_back(&mut pod.metadata.annotations, Some(&share), users::is_share);
    }

    /// The groups for which reservation pods on a node record a user, with its record. A bind that failed may have left records on further reservation pods:
    /// then the groups that the pod's own labels name decide, if they are as many as its devices.
    fn records(&self, uid: &str, node: Option<&str>, own: &BTreeSet<String>) -> BTreeMap<&str, &User> {
        let names = self.named_by.get(uid).into_iter().flatten();
        let found: BTreeMap<&str, &User> = names
            .filter_map(|name| self.reservations.get(name))
            .filter(|reservation| Some(&*reservation.node) == node)
            .filter_map(|reservation| Some((&*reservation.group, reservation.users.get(uid)?)))
            .collect();
        let named = found.iter().filter(|(group, _)| own.contains(**group));
        let named: BTreeMap<&str, &User> = named.map(|(group, user)| (*group, *user)).collect();
        let decides = named
            .values()
            .next()
            .is_some_and(|user| user.share.devices() == named.len());
        if decides { named } else { found }
    }

    /// A reservation pod was created or changed.
    fn reservation(&mut self, pod: &Pod) -> Vec<Key> {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let reservation = Reservation {
            node: node.unwrap_or_default(),
            group: pod.labels().get(label::GPU_GROUP).cloned().unwrap_or_default(),
            users: users::of(pod),
        };
        self.replace(&pod.name_any(), reservation)
    }

    fn replace(&mut self, name: &str, new: Reservation) -> Vec<Key> {
        let old = self.reservations.remove(name).unwrap_or_default();
        for uid in old.users.keys().filter(|uid| !new.users.contains_key(*uid)) {
            if let Some(names) = self.named_by.get_mut(uid) {
                names.remove(name);
                if names.is_empty() {
                    self.named_by.remove(uid);
                }
            }
        }
        let moved = (&old.node, &old.group) != (&new.node, &new.group);
        let mut concerned = Vec::new();
        for (uid, user) in &new.users {
            if moved || old.users.get(uid) != Some(user) {
                self.named_by.entry(uid.clone()).or_default().insert(name.to_owned());
                concerned.push(user);
            }
        }
        concerned.extend(
            old.users
                .iter()
                .filter(|(uid, _)| !new.users.contains_key(*uid))
                .map(|(_, user)| user),
        );
        let keys = concerned
            .into_iter()
            .map(|user| Key {
                namespace: user.namespace.clone(),
                name: user.name.clone(),
            })
            .collect();
        if !new.users.is_empty() {
            self.reservations.insert(name.to_owned(), new);
        }
        keys
    }

    /// Reports what was restored, once per value.
    fn tell(&mut self, pod: &Pod, said: &Said) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let counts = self.charged(pod);
        if *said == counts {
            if !self.told.is_empty() {
                self.told.remove(uid);
            }
            return;
        }
        let mut hasher = DefaultHasher::new();
        said.hash(&mut hasher);
        let hash = hasher.finish();
        if self.told.insert(uid.to_owned(), hash) == Some(hash)
            || pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()) != Some(&*self.scheduler)
        {
            return;
        }
        let differs = |key: &&String| said.get(*key) != counts.get(*key);
        let keys: BTreeSet<&String> = said.keys().chain(counts.keys()).filter(differs).collect();
        let shown = keys
            .iter()
            .take(NAMED_MAX)
            .map(|key| key.chars().take(NAME_SHOWN).collect());
        let mut shown: Vec<String> = shown.collect();
        if keys.len() > NAMED_MAX {
            shown.push(format!("and {} more", keys.len() - NAMED_MAX));
        }
        metrics::counter!("unikai_pod_changes_ignored_total").increment(1);
        self.notes.push(Note {
            subject: Subject::Pod(pods::pod_ref(pod)),
            severity: Severity::Warning,
            reason: reason::CHANGE_IGNORED,
            message: format!(
                "the pod is bound: what it says now of {} is ignored, and it stays charged for what it was bound with",
                shown.join(", ")
            ),
            source: self.scheduler.clone(),
            annotations: BTreeMap::new(),
        });
    }
}

/// The pod group that the binder has recorded in a pod's status.
#[must_use]
pub fn recorded_group(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let record = conditions
        .iter()
        .find(|condition| condition.type_ == condition::BOUND_IN_POD_GROUP)?;
    record.message.as_deref()
}

/// The pod group of a bound pod without a record, if one exists that is named after the pod or an owner.
#[must_use]
pub fn found_group(stores: &Stores, pod: &Pod) -> Option<String> {
    let namespace = pod.namespace().unwrap_or_default();
    let exists = |name: &String| stores.pod_groups.contains(&namespace, name);
    let own = pods::default_group_name(&pod.name_any(), pod.metadata.uid.as_deref().unwrap_or_default());
    let owners = pod.metadata.owner_references.iter().flatten();
    let of_owners = owners.map(|owner| pods::default_group_name(&owner.name, &owner.uid));
    let mut found = std::iter::once(own).chain(of_owners).filter(exists);
    let first = found.next()?;
    // A tenant may create another one of them later.
    let named = pod.annotations().get(annotation::POD_GROUP_NAME);
    let named = named.filter(|named| **named != first && found.any(|name| name == **named));
    Some(named.cloned().unwrap_or(first))
}

/// Labels and annotations by key.
type Said = BTreeMap<String, String>;

fn is_charged_annotation(key: &str) -> bool {
    users::is_share(key)
        || matches!(key, annotation::POD_GROUP_NAME | annotation::RECEIVED_RESOURCE_TYPE)
        || key.starts_with(annotation::MIG_PREFIX)
}

/// Sets the entries of some keys to earlier values.
fn put_back(
    map: &mut Option<BTreeMap<String, String>>,
    before: Option<&BTreeMap<String, String>>,
    concerns: impl Fn(&str) -> bool,
) {
    let said = map.iter().flatten().filter(|(key, _)| concerns(key));
    if said.eq(before.into_iter().flatten().filter(|(key, _)| concerns(key))) {
        return;
    }
    let map = map.get_or_insert_default();
    map.retain(|key, _| !concerns(key));
    let wanted = before.into_iter().flatten().filter(|(key, _)| concerns(key));
    map.extend(wanted.map(|(key, value)| (key.clone(), value.clone())));
}

#[cfg(test)]
mod tests;
