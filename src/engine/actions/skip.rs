//! Skips pod groups that cannot fit because one with the same constraints, whose next pods request no more, has failed in this action.

use std::collections::BTreeMap;

use crate::engine::input::TopologyConstraint;
use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, PodGroupId, PodId, QueueId};
use crate::engine::model::relations::Counters;
use crate::engine::model::resources::Resources;

/// Pod groups are compared if these are equal: priority and preemptibility, minimums and active pods, topology constraints, and of the pods to be placed next the
/// classes and the relations of other pods to them.
type Signature = (
    Option<QueueId>,
    i64,
    bool,
    Vec<(usize, usize)>,
    Vec<Option<Box<TopologyConstraint>>>,
    Vec<(ClassId, Counters)>,
);

/// What decides whether the next pods of a pod group can be placed.
#[derive(Debug)]
pub struct Asked {
    signature: Signature,
    /// Of each of the pods, in order.
    requests: Vec<(Resources, i64)>,
}

impl Asked {
    /// For the next pods of a pod group. `table`: the queue, unless all are compared. `None` if it depends on the places of its other pods, too: on their
    /// topology domains, or on whether they may be moved.
    #[must_use]
    pub fn of(model: &Model, table: Option<QueueId>, pod_group: PodGroupId, pods: &[PodId]) -> Option<Self> {
        let entry = &model.pod_groups()[pod_group];
        let topologies = entry.tree.iter().map(|member| &member.topology);
        if entry.places() > 0 && (table.is_none() || topologies.clone().any(Option::is_some)) {
            return None;
        }
        let (priority, preemptible) = entry
            .input
            .as_ref()
            .map_or((0, false), |input| (input.priority, input.preemptible));
        let needs = entry.pod_sets().map(|(_, pods)| (pods.min, pods.active())).collect();
        let mut kinds: Vec<(ClassId, Counters)> = Vec::with_capacity(pods.len());
        let mut requests: Vec<(Resources, i64)> = Vec::with_capacity(pods.len());
        for pod in pods.iter().map(|pod| &model.pods()[*pod]) {
            let shape = &model.shapes()[pod.shape];
            kinds.push((pod.class, pod.counted.clone()));
            requests.push((shape.vector.clone(), shape.memory_sum()));
        }
        kinds.sort_unstable();
        requests.sort_by(|left, right| left.0.iter().cmp(right.0.iter()).then(left.1.cmp(&right.1)));
        Some(Self {
            signature: (
                table,
                priority,
                preemptible,
                needs,
                topologies.cloned().collect(),
                kinds,
            ),
            requests,
        })
    }
}

/// Pod groups that failed in this action.
#[derive(Debug, Default)]
pub struct FailedPodGroups {
    failed: BTreeMap<Signature, Vec<(Resources, i64)>>,
}

impl FailedPodGroups {
    /// Whether the pods request at least as much as some that failed.
    #[must_use]
    pub fn must_fail(&self, asked: &Asked) -> bool {
        let Some(known) = self.failed.get(&asked.signature) else {
            return false;
        };
        asked.requests.len() >= known.len()
            && known
                .iter()
                .zip(&asked.requests)
                .all(|(failed, asked)| failed.0.fits(&asked.0, false) && failed.1 <= asked.1)
    }

    /// Adds pods that could not be placed.
    pub fn failed(&mut self, asked: Asked) {
        self.failed.entry(asked.signature).or_insert(asked.requests);
    }
}

#[cfg(test)]
mod tests;
