//! Pod groups: from PodGroup objects, or, until these exist, as the grouper is about to write them. What they depend on (priority
//! classes, topologies) and what depends on them.
//!
//! The minimums and sub-groups of an existing group count as the grouper has computed them last, until the API server shows them, or the grouper says that it
//! does not take them. Otherwise pods of a gang that grows would be placed by the old minimums before the new ones are written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use smol_str::SmolStr;

use super::aside::GROUP_FAILED;
use super::identity::object_key;
use super::repeated::Repeated;
use super::{Entry, GroupDraft, Mirror, Output, Problem, bounds, name, packed, pod, pod_group, priority};
use crate::api::pod_group::SubGroup;
use crate::api::queue_access::{QueueAccess, not_open};
use crate::api::{self, PodGroup, Queue, Topology};
use crate::engine::input::{Event, GroupInput, GroupKey, Hold, Keyed, Name, PodRef, Time};

/// A pod group as the grouper is about to write it.
pub struct Draft {
    key: GroupKey,
    /// The object. If one is stored it has the minimums and sub-groups of the grouper and all else of the stored one. `None` if the stored one needs no change,
    /// or was deleted since.
    group: Option<Arc<packed::Group>>,
    /// How many pods were grouped into it.
    pods: usize,
    /// When the first of its pods was created, which is the age of a group that is not written yet.
    since: Time,
}

impl Draft {
    /// A draft without pods; `since`: when the first pod was created.
    fn empty(key: &GroupKey, since: Time) -> Box<Self> {
        Box::new(Self {
            key: key.clone(),
            group: None,
            pods: 0,
            since,
        })
    }
}

/// Groupings without an API object, for the next mirror.
#[derive(Default)]
pub struct Groupings {
    memberships: Vec<(Name, pod::Membership)>,
    drafts: Vec<Arc<packed::Group>>,
}

impl Keyed for Box<Draft> {
    type Key = GroupKey;
    fn key(&self) -> &GroupKey {
        &self.key
    }
}

/// Objects on which pod groups depend.
#[derive(Default)]
pub struct Lookups {
    /// Priority classes.
    pub classes: priority::Classes,
    /// Topologies, by name.
    pub topologies: BTreeMap<Box<str>, Arc<Topology>>,
    /// Namespaces that may use each queue, and which queues are held.
    access: QueueAccess,
    queues: Repeated,
}

impl Entry for PodGroup {
    type Packed = packed::Group;
    fn trim(&mut self) {
        bounds::cut_group(self);
    }
    fn changed(group: &Arc<packed::Group>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        if there {
            mirror.group_applied(group, out);
        } else {
            mirror.group_deleted(group, out);
        }
    }
}

impl Entry for Topology {
    type Packed = Self;
    fn changed(topology: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        if there {
            mirror.topology_applied(topology, out);
        } else {
            mirror.topology_deleted(topology, out);
        }
    }
}

impl Mirror {
    fn group_applied(&mut self, group: &Arc<packed::Group>, out: &mut Output) {
        let key = &group.key;
        let (name, namespace) = key.parts();
        if namespace.is_empty() || name.is_empty() {
            return out.reject("PodGroup", namespace, name, Problem::NoIdentity);
        }
        let excess = group.excess.as_deref().copied();
        self.aside.limit("PodGroup", || object_key(namespace, name), excess);
        let before = self.group(key).cloned();
        self.groups.insert(Arc::clone(group));
        self.redraft(group);
        let after = Arc::clone(self.group(key).unwrap_or(group));
        self.may_be_tried_again(key, before.as_ref(), &after);
        self.group_changed(key, before.as_ref(), Some(&after), out);
    }

    /// Bases the draft of a group on its stored object. It ends once the API server shows the same minimums and sub-groups.
    fn redraft(&mut self, stored: &packed::Group) {
        if let Some(draft) = self.drafts.get_mut(&stored.key) {
            draft.group = draft.group.take().and_then(|computed| reshaped(stored, &computed));
        }
    }

    /// A pod group that is set aside is retried when its spec changes.
    fn may_be_tried_again(&mut self, key: &GroupKey, before: Option<&Arc<packed::Group>>, after: &packed::Group) {
        if !self.aside.is_group_set_aside(key) {
            return;
        }
        let asks = |group: &packed::Group| self.read_group(key, group, None);
        if before.is_some_and(|before| asks(before) != asks(after)) {
            self.aside.try_again(key);
        }
    }

    fn group_deleted(&mut self, group: &packed::Group, out: &mut Output) {
        let (name, namespace) = group.key.parts();
        self.aside.limit("PodGroup", || object_key(namespace, name), None);
        self.with_group(&group.key, out, |mirror| {
            mirror.groups.remove(&group.key);
            if let Some(draft) = mirror.drafts.get_mut(&group.key) {
                draft.group = None;
            }
        });
        self.aside.forget_group(&group.key);
    }

    fn draft(&self, key: &GroupKey) -> Option<&Arc<packed::Group>> {
        self.drafts.get(key)?.group.as_ref()
    }

    /// The effective object: the API server's, unless the grouper has computed other minimums or sub-groups, or there is none yet.
    pub(super) fn group(&self, key: &GroupKey) -> Option<&Arc<packed::Group>> {
        self.draft(key).or_else(|| self.groups.get(key))
    }

    /// The engine's input of a pod group, if it is of the shard.
    fn read_group(&self, key: &GroupKey, group: &packed::Group, out: Option<&mut Output>) -> Option<GroupInput> {
        let (lookups, shard) = (&self.lookups, &self.settings.shard);
        if !shard.takes(&group.labels) {
            return None;
        }
        let mut problems: Vec<Problem> = group
            .excess
            .as_deref()
            .copied()
            .map(Problem::ExceededLimit)
            .into_iter()
            .collect();
        let (queue, classes) = (lookups.queues.name(&group.queue), &lookups.classes);
        let mut input = pod_group::read(
            key.clone(),
            group,
            queue,
            shard,
            classes,
            &lookups.topologies,
            &mut problems,
        );
        input.refused = if self.aside.is_group_set_aside(key) {
            Some(name(GROUP_FAILED))
        } else {
            self.refusal(&group.queue, key.namespace())
        };
        input.held = self.hold(group).map(Box::new);
        if let Some(out) = out {
            for problem in problems {
                out.reject("PodGroup", key.namespace(), key.name(), problem);
            }
        }
        Some(input)
    }

    /// Why a namespace may not use a queue, if so.
    fn refusal(&self, queue: &str, namespace: &str) -> Option<Name> {
        let closed_by = self.lookups.access.closed_by(queue, namespace)?;
        Some(name(&not_open(queue, closed_by, namespace)))
    }

    /// The hold on a pod group: by its own annotation, or by that of its queue or one above.
    fn hold(&self, group: &packed::Group) -> Option<Hold> {
        let own = api::hold::Hold::of(group.annotations.iter()).map(|hold| (None, hold.reason));
        let above = || {
            let (queue, hold) = self.lookups.access.held_by(&group.queue)?;
            Some((Some(name(queue)), hold.reason.clone()))
        };
        let (queue, reason) = own.or_else(above)?;
        let reason = reason.as_deref().map(name);
        Some(Hold { queue, reason })
    }

    /// Records which namespaces may use a queue, of any shard, and whether it is held; `None`: it was deleted. Emits events for pod groups that changed.
    pub(super) fn access_changed(&mut self, queue: &str, object: Option<&Queue>, out: &mut Output) {
        let change = |mirror: &mut Self| match object {
            Some(object) => mirror.lookups.access.put_queue(object),
            None => mirror.lookups.access.remove(queue),
        };
        let access = &self.lookups.access;
        if access.is_known_as(queue, object) {
            return;
        }
        if access.is_free(queue, object) {
            return change(self);
        }
        let within = access.names().filter(|name| access.is_within(name, queue));
        let concerned: BTreeSet<SmolStr> = within.chain([queue]).map(SmolStr::new).collect();
        self.with_groups(out, |group| concerned.contains(&group.queue), change);
    }

    /// Applies a change to a group and emits an event if its input changed.
    fn with_group(&mut self, key: &GroupKey, out: &mut Output, change: impl FnOnce(&mut Self)) {
        let before = self.group(key).cloned();
        change(self);
        self.group_changed(key, before.as_ref(), self.group(key), out);
    }

    /// Emits an event for a group if its input changed.
    fn group_changed(
        &self,
        key: &GroupKey,
        before: Option<&Arc<packed::Group>>,
        after: Option<&Arc<packed::Group>>,
        out: &mut Output,
    ) {
        let before = before.and_then(|group| self.read_group(key, group, None));
        let after = after.and_then(|group| self.read_group(key, group, Some(out)));
        if after != before {
            let gone = || Event::GroupGone(key.clone());
            out.events
                .push(after.map_or_else(gone, |group| Event::Group(Box::new(group))));
        }
    }

    /// Applies a change on which pod groups may depend, and emits events for those that changed.
    pub(super) fn with_groups(
        &mut self,
        out: &mut Output,
        concerned: impl Fn(&packed::Group) -> bool,
        change: impl FnOnce(&mut Self),
    ) {
        let real = self.groups.iter().map(|group| (&group.key, group));
        let drafts = self.drafts.iter();
        let drafts = drafts.filter_map(|draft| Some((&draft.key, draft.group.as_ref()?)));
        let all = real.chain(drafts).filter(|(_, group)| concerned(group));
        let mut keys: Vec<GroupKey> = all.map(|(key, _)| key.clone()).collect();
        keys.sort_unstable();
        keys.dedup();
        let read = |mirror: &Self| -> Vec<_> {
            keys.iter()
                .map(|key| mirror.read_group(key, mirror.group(key)?, None))
                .collect()
        };
        let before = read(self);
        change(self);
        let changed = read(self)
            .into_iter()
            .zip(before)
            .filter(|(after, before)| after != before);
        out.events.extend(
            changed
                .filter_map(|(after, _)| after)
                .map(|group| Event::Group(Box::new(group))),
        );
    }

    fn topology_applied(&mut self, topology: &Arc<Topology>, out: &mut Output) {
        let name = topology.name_any();
        let input = pod_group::read_topology(topology);
        if self
            .lookups
            .topologies
            .get(name.as_str())
            .map(|known| pod_group::read_topology(known))
            .as_ref()
            != Some(&input)
        {
            out.events.push(Event::Topology(input));
        }
        let concerned = |group: &packed::Group| pod_group::names_topology(group, &name);
        self.with_groups(out, concerned, |mirror| {
            mirror
                .lookups
                .topologies
                .insert(name.as_str().into(), Arc::clone(topology));
        });
    }

    fn topology_deleted(&mut self, topology: &Topology, out: &mut Output) {
        let name = topology.name_any();
        if self.lookups.topologies.contains_key(name.as_str()) {
            out.events.push(Event::TopologyGone(name.as_str().into()));
            let concerned = |group: &packed::Group| pod_group::names_topology(group, &name);
            self.with_groups(out, concerned, |mirror| {
                mirror.lookups.topologies.remove(name.as_str());
            });
        }
    }

    pub(super) fn grouped(&mut self, grouping: &GroupDraft, out: &mut Output) {
        let key = object_key(&grouping.namespace, &grouping.pod);
        let known = self.pods.get(&key).filter(|pod| *pod.pod.uid == *grouping.uid);
        if let Some(created) = known.map(|pod| pod.created) {
            let mut pod = Output::default();
            self.with_pod(&key, &mut pod, |mirror| mirror.join(grouping, created, out));
            out.events.append(&mut pod.events);
        }
    }

    pub(super) fn ungrouped(&mut self, pod: &PodRef, out: &mut Output) {
        let mut left = None;
        let key = object_key(&pod.namespace, &pod.name);
        self.with_pod(&key, out, |mirror| left = mirror.memberships.remove(&*pod.uid));
        if let Some(left) = left {
            self.leave_draft(&left.group, out);
        }
    }

    /// All groupings without an API object.
    #[must_use]
    pub fn groupings(&self) -> Groupings {
        let mut groupings = Groupings::default();
        for pod in self.pods.iter() {
            if let Some(membership) = self.memberships.get(&*pod.pod.uid) {
                groupings.memberships.push((pod.pod.uid.clone(), membership.clone()));
            }
        }
        let drafts = self.drafts.iter().filter_map(|draft| draft.group.clone());
        groupings.drafts.extend(drafts);
        groupings
    }

    /// Takes over groupings of another mirror, for pods that are known here.
    pub fn adopt(&mut self, mut groupings: Groupings) -> Output {
        groupings.memberships.sort_by(|left, right| left.0.cmp(&right.0));
        groupings.drafts.sort_by(|left, right| left.key.cmp(&right.key));
        let (mut out, mut pods) = (Output::default(), Output::default());
        let known = &groupings.memberships;
        let found = |uid: &str| known.binary_search_by(|(other, _)| (**other).cmp(uid)).ok();
        let joined = self
            .pods
            .iter()
            .filter_map(|pod| Some((pod.key.clone(), found(&pod.pod.uid)?)));
        let mut joined: Vec<(Box<str>, usize)> = joined.collect();
        joined.sort_unstable();
        let keys: Vec<Box<str>> = joined.iter().map(|(key, _)| key.clone()).collect();
        self.with_these_pods(&keys, &mut pods, |mirror| {
            for (key, at) in &joined {
                let (Some((uid, membership)), Some(pod)) = (known.get(*at), mirror.pods.get(key)) else {
                    continue;
                };
                let (group, created) = (&membership.group, pod.created);
                mirror.memberships.insert((**uid).into(), membership.clone());
                let draft = mirror.drafts.get_or_insert_with(group, || Draft::empty(group, created));
                draft.pods += 1;
                draft.since = draft.since.min(created);
            }
        });
        for group in &groupings.drafts {
            self.with_group(&group.key, &mut out, |mirror| {
                if let Some(draft) = mirror.drafts.get_mut(&group.key) {
                    draft.group = Some(Arc::clone(group));
                }
                if let Some(stored) = mirror.groups.get(&group.key).cloned() {
                    mirror.redraft(&stored);
                }
            });
        }
        out.events.append(&mut pods.events);
        out
    }

    /// Records a pod's grouping and its group's draft; the caller emits the pod's event. `created`: the pod's creation time.
    fn join(&mut self, grouping: &GroupDraft, created: Time, out: &mut Output) {
        let group = GroupKey::new(&grouping.namespace, &grouping.group.name_any());
        let membership = pod::Membership {
            group: group.clone(),
            sub_group: grouping.sub_group.as_deref().map(Into::into),
        };
        let before = self.memberships.insert(grouping.uid.as_str().into(), membership);
        let stays = before.as_ref().is_some_and(|before| before.group == group);
        self.with_group(&group, out, |mirror| {
            let draft = mirror
                .drafts
                .get_or_insert_with(&group, || Draft::empty(&group, created));
            draft.pods += usize::from(!stays);
            draft.since = draft.since.min(created);
            let mut computed: packed::Group = Arc::clone(&grouping.group).into();
            draft.group = match mirror.groups.get(&group) {
                Some(stored) => reshaped(stored, &computed),
                None => {
                    if grouping.group.metadata.creation_timestamp.is_none() {
                        computed.created = draft.since;
                    }
                    Some(Arc::new(computed))
                }
            };
        });
        if let Some(before) = before.filter(|_| !stays) {
            self.leave_draft(&before.group, out);
        }
    }

    pub(super) fn leave_draft(&mut self, group: &GroupKey, out: &mut Output) {
        self.with_group(group, out, |mirror| {
            if let Some(draft) = mirror.drafts.get_mut(group) {
                if draft.pods > 1 {
                    draft.pods -= 1;
                } else {
                    mirror.drafts.remove(group);
                }
            }
        });
        if self.group(group).is_none() {
            self.aside.forget_group(group);
        }
    }
}

/// What nobody but the grouper decides about its groups: minimums and sub-groups.
fn shape(group: &packed::Group) -> (Option<i32>, Option<i32>, &[SubGroup]) {
    let whole = group.whole.as_deref();
    let sub_groups = whole.map(|whole| whole.spec.sub_groups.as_slice());
    (group.min_member, group.min_sub_group, sub_groups.unwrap_or_default())
}

/// The stored group with the minimums and sub-groups of the computed one; `None` if it has these.
fn reshaped(stored: &packed::Group, computed: &packed::Group) -> Option<Arc<packed::Group>> {
    let (min_member, min_sub_group, sub_groups) = shape(computed);
    if shape(stored) == (min_member, min_sub_group, sub_groups) {
        return None;
    }
    let mut group = stored.clone();
    (group.min_member, group.min_sub_group) = (min_member, min_sub_group);
    group.excess = computed.excess.clone().or(group.excess);
    let mut whole = stored.whole.as_deref().cloned().unwrap_or_default();
    whole.spec.sub_groups = sub_groups.to_vec();
    group.whole = Some(Arc::new(whole));
    Some(Arc::new(group))
}
