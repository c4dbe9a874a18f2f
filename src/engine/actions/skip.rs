//! Skips pod groups that cannot fit because one with the same constraints that requests no more has failed in this action.

use std::collections::BTreeMap;

use crate::engine::input::TopologyConstraint;
use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, PodGroupId, PodId, QueueId};
use crate::engine::model::pod::Status;
use crate::engine::model::resources::Resources;

/// Pod groups are compared if these are equal: priority and preemptibility, minimums and active pods, topology constraints, classes of the pending pods.
type Signature = (
    Option<QueueId>,
    i64,
    bool,
    Vec<(usize, usize)>,
    Vec<Option<Box<TopologyConstraint>>>,
    Vec<ClassId>,
);

/// Pod groups that failed in this action.
#[derive(Debug, Default)]
pub struct FailedPodGroups {
    failed: BTreeMap<Signature, Vec<(Resources, i64)>>,
}

impl FailedPodGroups {
    /// Whether a pod group requests at least as much as one that failed.
    #[must_use]
    pub fn must_fail(&self, model: &Model, table: Option<QueueId>, pod_group: PodGroupId) -> bool {
        if self.failed.is_empty() {
            return false;
        }
        let Some(known) = self.failed.get(&signature(model, table, pod_group)) else {
            return false;
        };
        let asked = requests(model, pod_group);
        asked.len() >= known.len()
            && known
                .iter()
                .zip(&asked)
                .all(|(failed, asked)| failed.0.fits(&asked.0, false) && failed.1 <= asked.1)
    }

    /// Adds a failed pod group.
    pub fn failed(&mut self, model: &Model, table: Option<QueueId>, pod_group: PodGroupId) {
        let asked = requests(model, pod_group);
        self.failed.entry(signature(model, table, pod_group)).or_insert(asked);
    }
}

fn waiting(model: &Model, pod_group: PodGroupId) -> impl Iterator<Item = PodId> + '_ {
    model.pod_groups()[pod_group]
        .pods
        .iter()
        .copied()
        .filter(|pod| model.pods()[*pod].state.status == Status::Pending)
}

fn signature(model: &Model, table: Option<QueueId>, pod_group: PodGroupId) -> Signature {
    let entry = &model.pod_groups()[pod_group];
    let (priority, preemptible) = entry
        .input
        .as_ref()
        .map_or((0, false), |input| (input.priority, input.preemptible));
    let needs = entry.pod_sets().map(|(_, pods)| (pods.min, pods.active())).collect();
    let mut classes: Vec<ClassId> = waiting(model, pod_group).map(|pod| model.pods()[pod].class).collect();
    classes.sort_unstable();
    let topologies = entry.tree.iter().map(|member| member.topology.clone()).collect();
    (table, priority, preemptible, needs, topologies, classes)
}

fn requests(model: &Model, pod_group: PodGroupId) -> Vec<(Resources, i64)> {
    let request = |pod: PodId| {
        let shape = &model.shapes()[model.pods()[pod].shape];
        (shape.vector.clone(), shape.memory_sum())
    };
    let mut requests: Vec<_> = waiting(model, pod_group).map(request).collect();
    requests.sort_by(|left, right| left.0.iter().cmp(right.0.iter()).then(left.1.cmp(&right.1)));
    requests
}

#[cfg(test)]
mod tests;
