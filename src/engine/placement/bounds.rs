//! What can never be: pods of a gang that find no room together even if everybody else leaves. Proven from what nodes have in all, so it costs no search.

use crate::engine::model::Model;
use crate::engine::model::gang::Member;
use crate::engine::model::ids::{ClassId, CounterId, GangId, NodeId, TaskId};
use crate::engine::policy::Policy;

use super::domains::{Question, never_room};

/// Whether pods of a gang can never be placed together. Their classes must be up to date.
#[must_use]
pub fn never_fits(model: &Model, policy: &Policy, gang: GangId, tasks: &[TaskId]) -> bool {
    let constrained = model.gangs[gang].tree.iter().any(|member| member.topology.is_some());
    let heeded = || policy.plugins.topology;
    (constrained && heeded() && no_domain(model, gang, tasks)) || too_many_apart(model, tasks)
}

/// A member must be in one domain, and none of them is large enough.
fn no_domain(model: &Model, gang: GangId, tasks: &[TaskId]) -> bool {
    let entry = &model.gangs[gang];
    (0..entry.tree.len()).any(|member| {
        let member = member as Member;
        let Some(constraint) = &entry.tree[member as usize].topology else {
            return false;
        };
        let under = |task: &TaskId| model.tasks[*task].member.is_some_and(|own| entry.is_under(own, member));
        let tasks: Vec<TaskId> = tasks.iter().copied().filter(under).collect();
        let placed = entry
            .tasks
            .iter()
            .copied()
            .filter(|task| model.tasks[*task].state.status.active_allocated() && under(task));
        let with: Vec<NodeId> = placed.filter_map(|task| model.node_of(task)).collect();
        let question = Question {
            constraint,
            tasks: &tasks,
            with: &with,
            among: None,
        };
        !tasks.is_empty() && never_room(model, &question)
    })
}

/// Pods that must be apart from one another, and more of them than there are places apart.
fn too_many_apart(model: &Model, tasks: &[TaskId]) -> bool {
    let Some(first) = tasks.first().map(|task| &model.tasks[*task]) else {
        return false;
    };
    let class = &model.classes[first.class];
    let apart = class.asked.iter().flat_map(|asked| &asked.apart);
    apart
        .into_iter()
        .filter(|counter| first.counted.contains(counter))
        .any(|counter| {
            let alike = |task: &&TaskId| {
                let task = &model.tasks[**task];
                task.class == first.class && task.counted.contains(counter)
            };
            places_apart(model, *counter, first.class).is_some_and(|places| tasks.iter().filter(alike).count() > places)
        })
}

/// Values of a counter's label on the nodes of a class; `None` if some node lacks the label, where any number may be.
fn places_apart(model: &Model, counter: CounterId, class: ClassId) -> Option<usize> {
    let nodes = model.classes[class].nodes.iter().map(NodeId::of);
    let mut values = nodes
        .map(|node| model.neighbours.value(counter, node))
        .collect::<Option<Vec<u32>>>()?;
    values.sort_unstable();
    values.dedup();
    Some(values.len())
}
