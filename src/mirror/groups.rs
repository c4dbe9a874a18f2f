//! Pod groups: as the API server shows them, or as the grouper is about to write them until then. What they depend on beside themselves (priority
//! classes, topologies) and what depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::ResourceExt;

use super::repeated::Repeated;
use super::{Grouping, Mirror, Output, Problem, Shard, object_key, pod, pod_group, priority, slim};
use crate::api::Topology;
use crate::engine::input::{Event, GroupInput, GroupKey, Keyed};

/// Groupings that may wait for their pods. More mean that the pods are gone; a lost one is found again by its annotation.
const MAX_EARLY: usize = 16_384;

/// What is known about a pod group.
pub struct Known {
    key: GroupKey,
    /// As the API server shows it.
    real: Option<Arc<slim::Group>>,
    /// As the grouper is about to write it.
    draft: Option<Arc<slim::Group>>,
    /// Pods that hold the draft.
    drafted_by: usize,
    /// The engine was told of it.
    told: bool,
}

impl Keyed for Box<Known> {
    type Key = GroupKey;
    fn key(&self) -> &GroupKey {
        &self.key
    }
}

impl Known {
    fn new(key: GroupKey) -> Self {
        Self {
            key,
            real: None,
            draft: None,
            drafted_by: 0,
            told: false,
        }
    }

    fn object(&self) -> Option<&Arc<slim::Group>> {
        self.real.as_ref().or(self.draft.as_ref())
    }

    /// The object, if it is of the shard.
    fn within(&self, shard: &Shard) -> Option<&slim::Group> {
        let object = self.object().map(Arc::as_ref);
        object.filter(|group| shard.takes(&group.labels))
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

impl Lookups {
    /// A pod group as the engine sees it.
    fn read(&self, key: GroupKey, group: &slim::Group, shard: &Shard, out: Option<&mut Output>) -> GroupInput {
        let mut problems = Vec::new();
        let queue = self.queues.name(&group.queue);
        let input = pod_group::read(key, group, queue, shard, &self.classes, &self.topologies, &mut problems);
        if let Some(out) = out {
            for problem in problems {
                out.reject("PodGroup", group.key.namespace(), group.key.name(), problem);
            }
        }
        input
    }
}

impl Mirror {
    pub(super) fn group_applied(&mut self, group: Arc<slim::Group>, out: &mut Output) {
        let key = group.key.clone();
        if key.namespace().is_empty() || key.name().is_empty() {
            return out.reject("PodGroup", key.namespace(), key.name(), Problem::NoIdentity);
        }
        self.with_group(key, out, |known| known.real = Some(group));
    }

    pub(super) fn group_deleted(&mut self, group: &slim::Group, out: &mut Output) {
        self.with_group(group.key.clone(), out, |known| {
            known.real = None;
            known.draft = None;
        });
    }

    /// Changes what is known of a group and tells of it if the engine would see a difference.
    fn with_group(&mut self, key: GroupKey, out: &mut Output, change: impl FnOnce(&mut Known)) {
        let (lookups, shard) = (&self.lookups, &self.settings.shard);
        let known = self
            .groups
            .get_or_insert_with(&key, || Box::new(Known::new(key.clone())));
        let told = known.within(shard).filter(|_| known.told);
        let before = told.map(|group| lookups.read(key.clone(), group, shard, None));
        change(known);
        if let Some(group) = known.within(shard) {
            let after = lookups.read(key, group, shard, Some(out));
            if before.as_ref() != Some(&after) {
                out.events.push(Event::Group(Box::new(after)));
            }
            known.told = true;
            return;
        }
        let was_told = std::mem::take(&mut known.told);
        if known.object().is_none() && known.drafted_by == 0 {
            self.groups.remove(&key);
        }
        if was_told {
            out.events.push(Event::GroupGone(key));
        }
    }

    /// Makes a change on which pod groups may depend, and tells of those that did.
    pub(super) fn with_groups(
        &mut self,
        out: &mut Output,
        concerned: impl Fn(&slim::Group) -> bool,
        change: impl FnOnce(&mut Self),
    ) {
        let concerned = |known: &Known| known.object().is_some_and(|group| concerned(group));
        let concerned = self.groups.iter().filter(|known| concerned(known));
        let mut keys: Vec<GroupKey> = concerned.map(|known| known.key.clone()).collect();
        keys.sort_unstable();
        let read = |mirror: &Self| -> Vec<_> {
            let known = keys.iter().filter_map(|key| Some((key, mirror.groups.get(key)?)));
            known
                .map(|(key, known)| {
                    let group = known.within(&mirror.settings.shard)?;
                    Some(mirror.lookups.read(key.clone(), group, &mirror.settings.shard, None))
                })
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

    pub(super) fn topology_applied(&mut self, topology: Arc<Topology>, out: &mut Output) {
        let name = topology.name_any();
        let input = pod_group::read_topology(&topology);
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
            mirror.lookups.topologies.insert(name.as_str().into(), topology);
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

    pub(super) fn grouped(&mut self, grouping: Grouping, out: &mut Output) {
        let key = object_key(&grouping.namespace, &grouping.pod);
        if self.pods.get(&key).is_some_and(|pod| *pod.pod.uid == *grouping.uid) {
            let mut groups = Output::default();
            self.with_pod(&key, out, |mirror| mirror.join(grouping, &mut groups));
            groups.events.append(&mut out.events);
            groups.rejections.append(&mut out.rejections);
            *out = groups;
        } else {
            if self.early.len() >= MAX_EARLY {
                self.early.clear();
            }
            self.early.insert(grouping.uid.as_str().into(), grouping);
        }
    }

    /// Notes a pod's membership and its group's draft; telling of the pod is the caller's.
    pub(super) fn join(&mut self, grouping: Grouping, out: &mut Output) {
        let group = GroupKey::new(&grouping.namespace, &grouping.group.name_any());
        let membership = pod::Membership {
            group: group.clone(),
            sub_group: grouping.sub_group.map(Into::into),
        };
        let before = self.memberships.insert(grouping.uid.into(), membership);
        let stays = before.as_ref().is_some_and(|before| before.group == group);
        self.with_group(group, out, |known| {
            known.drafted_by += usize::from(!stays);
            if known.real.is_none() {
                known.draft = Some(Arc::new(grouping.group.into()));
            }
        });
        if let Some(before) = before.filter(|_| !stays) {
            self.leave_draft(&before.group, out);
        }
    }

    pub(super) fn leave_draft(&mut self, group: &GroupKey, out: &mut Output) {
        self.with_group(group.clone(), out, |known| {
            known.drafted_by = known.drafted_by.saturating_sub(1);
            if known.drafted_by == 0 {
                known.draft = None;
            }
        });
    }
}
