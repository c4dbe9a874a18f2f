//! Skips pod groups that cannot fit because one with the same constraints, whose next pods request no more, has failed in this action and round of searches.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::engine::input::{GpuKind, Name, TopologyConstraint};
use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, PodGroupId, PodId, QueueId};
use crate::engine::model::pod_group::{Kind as MemberKind, Member};
use crate::engine::model::relations::Counters;
use crate::engine::model::resources::Resources;
use crate::engine::placement::volumes;

/// A kind of pods: the class, the pod set, the relations of other pods to it, the number of devices that it shares, which of the resources that queues share
/// it requests at all, and the drivers of its volumes. Of pods of one kind, one that requests more fits nowhere if another does not.
type Kind = (ClassId, Option<Member>, Counters, GpuKind, i64, [bool; 3], Vec<Name>);

/// A member of a pod group's tree: parent, minimum, active pods, and topology constraint. Names do not count.
type TreeMember = (Option<Member>, usize, usize, Option<Box<TopologyConstraint>>);

/// Pod groups are compared if these are equal: priority and preemptibility, the trees, and the kinds of the pods to be placed next.
type Signature = (Option<QueueId>, i64, bool, Vec<TreeMember>, Vec<Kind>);

/// What decides whether the next pods of a pod group can be placed.
#[derive(Debug)]
pub struct Asked {
    signature: Signature,
    /// Of each of the pods, in order of kinds and requests.
    requests: Vec<(Resources, i64)>,
}

impl Asked {
    /// For the next pods of a pod group. `table`: the queue, unless all are compared. `None` if it depends on the places of its other pods, too: on their
    /// topology domains, or on whether they may be moved; or on NUMA zones or certain volumes, since pods of a class may ask for different ones or share one.
    #[must_use]
    pub fn of(model: &Model, table: Option<QueueId>, pod_group: PodGroupId, pods: &[PodId]) -> Option<Self> {
        let entry = &model.pod_groups()[pod_group];
        let constrained = entry.tree.iter().any(|member| member.topology.is_some());
        if entry.places() > 0 && (table.is_none() || constrained) {
            return None;
        }
        // How much requests by memory count in a queue depends on the node, so the queue's limits may exclude some nodes only.
        let table = table.or_else(|| entry.queue.filter(|_| model.some_by_memory(pods)));
        let (priority, preemptible) = entry
            .input
            .as_ref()
            .map_or((0, false), |input| (input.priority, input.preemptible));
        let tree = (0..).zip(entry.tree.iter()).map(|(at, member)| {
            let (min, active) = match &member.kind {
                MemberKind::Set { need, .. } => (*need, 0),
                MemberKind::Pods(_) => entry.pods(at).map_or((0, 0), |pods| (pods.min, pods.active())),
            };
            (member.parent, min, active, member.topology.clone())
        });
        let tree = tree.collect();
        if volumes::share(model, pods) {
            return None;
        }
        let zones = model.most_zones() > 0;
        let mut each: Vec<(Kind, (Resources, i64))> = Vec::with_capacity(pods.len());
        for &id in pods {
            let pod = &model.pods()[id];
            if zones && pod.input.numa.is_some() {
                return None;
            }
            let shape = &model.shapes()[pod.shape];
            let devices = if shape.shared { shape.gpu.count } else { 0 };
            let kind = (
                pod.class,
                pod.member,
                pod.counted.clone(),
                shape.gpu.kind,
                devices,
                shape.quota.map(|amount| amount > 0),
                volumes::kinds(model, id)?,
            );
            each.push((kind, (shape.vector.clone(), shape.memory_sum())));
        }
        each.sort_by(|(kind, left), (other, right)| {
            let requests = || left.0.iter().cmp(right.0.iter()).then(left.1.cmp(&right.1));
            kind.cmp(other).then_with(requests)
        });
        let (kinds, requests) = each.into_iter().unzip();
        Some(Self {
            signature: (table, priority, preemptible, tree, kinds),
            requests,
        })
    }
}

/// Pod groups that failed in an action.
#[derive(Debug, Default)]
pub struct FailedPodGroups {
    failed: BTreeMap<Signature, Vec<(Resources, i64)>>,
}

impl FailedPodGroups {
    /// Whether the pods request at least as much as some that failed.
    #[must_use]
    pub fn must_fail(&self, asked: &Asked) -> bool {
        let known = self.failed.get(&asked.signature);
        known.is_some_and(|failed| no_more(failed, &asked.requests))
    }

    /// Adds pods that could not be placed. Those that request least are kept.
    pub fn failed(&mut self, asked: Asked) {
        let Asked { signature, requests } = asked;
        match self.failed.entry(signature) {
            Entry::Vacant(entry) => drop(entry.insert(requests)),
            Entry::Occupied(mut entry) => {
                if no_more(&requests, entry.get()) {
                    entry.insert(requests);
                }
            }
        }
    }
}

/// Whether each of these requests is at most the other one at its position. As the signatures are equal, there are as many.
fn no_more(requests: &[(Resources, i64)], others: &[(Resources, i64)]) -> bool {
    requests.len() <= others.len()
        && requests
            .iter()
            .zip(others)
            .all(|(one, other)| one.0.fits(&other.0, false) && one.1 <= other.1)
}

#[cfg(test)]
mod tests;
