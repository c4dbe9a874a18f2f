//! Jobs that are certain to fail because a job that asks for no more, under the same constraints, has just failed.

use std::collections::BTreeMap;

use crate::engine::input::TopologyConstraint;
use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, GangId, QueueId, TaskId};
use crate::engine::model::resources::Resources;
use crate::engine::model::task::Status;

/// What makes jobs comparable: kind and rank of the gang, what it needs and has, the topologies that bind it, the classes of its waiting pods.
type Signature = (
    Option<QueueId>,
    i64,
    bool,
    Vec<(usize, usize)>,
    Vec<Option<Box<TopologyConstraint>>>,
    Vec<ClassId>,
);

/// Jobs that failed in this action.
#[derive(Debug, Default)]
pub struct Skips {
    failed: BTreeMap<Signature, Vec<(Resources, i64)>>,
}

impl Skips {
    /// Whether a job asks for at least as much as one that failed.
    #[must_use]
    pub fn certain_to_fail(&self, model: &Model, table: Option<QueueId>, gang: GangId) -> bool {
        if self.failed.is_empty() {
            return false;
        }
        let Some(known) = self.failed.get(&signature(model, table, gang)) else {
            return false;
        };
        let asked = requests(model, gang);
        asked.len() >= known.len()
            && known
                .iter()
                .zip(&asked)
                .all(|(failed, asked)| failed.0.fits(&asked.0, false) && failed.1 <= asked.1)
    }

    /// Remembers a failed job.
    pub fn failed(&mut self, model: &Model, table: Option<QueueId>, gang: GangId) {
        let asked = requests(model, gang);
        self.failed.entry(signature(model, table, gang)).or_insert(asked);
    }
}

fn waiting(model: &Model, gang: GangId) -> impl Iterator<Item = TaskId> + '_ {
    model.gangs[gang]
        .tasks
        .iter()
        .copied()
        .filter(|task| model.tasks[*task].state.status == Status::Pending)
}

fn signature(model: &Model, table: Option<QueueId>, gang: GangId) -> Signature {
    let entry = &model.gangs[gang];
    let (priority, preemptible) = entry
        .input
        .as_ref()
        .map_or((0, false), |input| (input.priority, input.preemptible));
    let needs = entry.pod_sets().map(|(_, pods)| (pods.min, pods.active())).collect();
    let mut classes: Vec<ClassId> = waiting(model, gang).map(|task| model.tasks[task].class).collect();
    classes.sort_unstable();
    let topologies = entry.tree.iter().map(|member| member.topology.clone()).collect();
    (table, priority, preemptible, needs, topologies, classes)
}

fn requests(model: &Model, gang: GangId) -> Vec<(Resources, i64)> {
    let request = |task: TaskId| {
        let shape = &model.shapes[model.tasks[task].shape];
        (shape.vector.clone(), shape.memory_sum())
    };
    let mut requests: Vec<_> = waiting(model, gang).map(request).collect();
    requests.sort_by(|left, right| left.0.iter().cmp(right.0.iter()).then(left.1.cmp(&right.1)));
    requests
}

#[cfg(test)]
mod tests;
