//! Pod groups: as the API server shows them, or as the grouper is about to write them until then. What they depend on beside themselves (priority
//! classes, topologies) and what depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::identity::object_key;
use super::repeated::Repeated;
use super::{Grouping, Mirror, Output, Problem, pod, pod_group, priority, slim};
use crate::api::Topology;
use crate::engine::input::{Event, GroupInput, GroupKey, Keyed};

/// A pod group as the grouper is about to write it.
pub struct Draft {
    key: GroupKey,
    /// The object; `None` if it was deleted since.
    group: Option<Arc<slim::Group>>,
    /// Pods that hold it.
    pods: usize,
}

impl Keyed for Box<Draft> {
    type Key = GroupKey;
    fn key(&self) -> &GroupKey {
        &self.key
    }
}

/// What the meaning of pod groups depends on beside themselves.
#[derive(Default)]
pub struct Lookups {
    /// Priority classes.
    pub classes: priority::Classes,
    /// Topologies, by name.
    pub topologies: BTreeMap<Box<str>, Arc<Topology>>,
    queues: Repeated,
}

impl Mirror {
    pub(super) fn group_applied(&mut self, group: &Arc<slim::Group>, out: &mut Output) {
        let key = &group.key;
        if key.namespace().is_empty() || key.name().is_empty() {
            return out.reject("PodGroup", key.namespace(), key.name(), Problem::NoIdentity);
        }
        let old = self.groups.insert(Arc::clone(group));
        let before = old.as_ref().or_else(|| self.draft(key));
        self.group_changed(key, before, Some(group), out);
    }

    pub(super) fn group_deleted(&mut self, group: &slim::Group, out: &mut Output) {
        self.with_group(&group.key, out, |mirror| {
            mirror.groups.remove(&group.key);
            if let Some(draft) = mirror.drafts.get_mut(&group.key) {
                draft.group = None;
            }
        });
    }

    fn draft(&self, key: &GroupKey) -> Option<&Arc<slim::Group>> {
        self.drafts.get(key)?.group.as_ref()
    }

    /// The object that counts: the API server's, else the grouper's.
    fn group(&self, key: &GroupKey) -> Option<&Arc<slim::Group>> {
        self.groups.get(key).or_else(|| self.draft(key))
    }

    /// A pod group as the engine sees it, if it is of the shard.
    fn read_group(&self, key: &GroupKey, group: &slim::Group, out: Option<&mut Output>) -> Option<GroupInput> {
        let (lookups, shard) = (&self.lookups, &self.settings.shard);
        if !shard.takes(&group.labels) {
            return None;
        }
        let mut problems = Vec::new();
        let (queue, classes) = (lookups.queues.name(&group.queue), &lookups.classes);
        let input = pod_group::read(
            key.clone(),
            group,
            queue,
            shard,
            classes,
            &lookups.topologies,
            &mut problems,
        );
        if let Some(out) = out {
            for problem in problems {
                out.reject("PodGroup", key.namespace(), key.name(), problem);
            }
        }
        Some(input)
    }

    /// Changes what is known of a group and tells of it if the engine would see a difference.
    fn with_group(&mut self, key: &GroupKey, out: &mut Output, change: impl FnOnce(&mut Self)) {
        let before = self.group(key).cloned();
        change(self);
        self.group_changed(key, before.as_ref(), self.group(key), out);
    }

    /// Tells of a group if the engine would see a difference.
    fn group_changed(
        &self,
        key: &GroupKey,
        before: Option<&Arc<slim::Group>>,
        after: Option<&Arc<slim::Group>>,
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

    /// Makes a change on which pod groups may depend, and tells of those that did.
    pub(super) fn with_groups(
        &mut self,
        out: &mut Output,
        concerned: impl Fn(&slim::Group) -> bool,
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

    pub(super) fn topology_applied(&mut self, topology: &Arc<Topology>, out: &mut Output) {
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
        let concerned = |group: &slim::Group| pod_group::names_topology(group, &name);
        self.with_groups(out, concerned, |mirror| {
            mirror
                .lookups
                .topologies
                .insert(name.as_str().into(), Arc::clone(topology));
        });
    }

    pub(super) fn topology_deleted(&mut self, topology: &Topology, out: &mut Output) {
        let name = topology.name_any();
        if self.lookups.topologies.contains_key(name.as_str()) {
            out.events.push(Event::TopologyGone(name.as_str().into()));
            let concerned = |group: &slim::Group| pod_group::names_topology(group, &name);
            self.with_groups(out, concerned, |mirror| {
                mirror.lookups.topologies.remove(name.as_str());
            });
        }
    }

    pub(super) fn grouped(&mut self, grouping: &Grouping, out: &mut Output) {
        let key = object_key(&grouping.namespace, &grouping.pod);
        if self.pods.get(&key).is_some_and(|pod| *pod.pod.uid == *grouping.uid) {
            let mut pod = Output::default();
            self.with_pod(&key, &mut pod, |mirror| mirror.join(grouping, out));
            out.events.append(&mut pod.events);
        }
    }

    /// Notes a pod's membership and its group's draft; telling of the pod is the caller's.
    fn join(&mut self, grouping: &Grouping, out: &mut Output) {
        let group = GroupKey::new(&grouping.namespace, &grouping.group.name_any());
        let membership = pod::Membership {
            group: group.clone(),
            sub_group: grouping.sub_group.as_deref().map(Into::into),
        };
        let before = self.memberships.insert(grouping.uid.as_str().into(), membership);
        let stays = before.as_ref().is_some_and(|before| before.group == group);
        self.with_group(&group, out, |mirror| {
            let draft = mirror.drafts.get_or_insert_with(&group, || {
                Box::new(Draft {
                    key: group.clone(),
                    group: None,
                    pods: 0,
                })
            });
            draft.pods += usize::from(!stays);
            if mirror.groups.get(&group).is_none() {
                draft.group = Some(Arc::new(Arc::clone(&grouping.group).into()));
            }
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
    }
}
