//! What can never be: pods of a gang that find no room together even if everybody else leaves. Proven from what nodes have in all, so it costs no search.

use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, CounterId, NodeId, PodGroupId, PodId};
use crate::engine::model::pod_group::Member;
use crate::engine::policy::Policy;

use super::domains::{Question, never_room};

/// Whether pods of a gang can never be placed together. Their classes must be up to date.
#[must_use]
pub fn never_fits(model: &Model, policy: &Policy, gang: PodGroupId, tasks: &[PodId]) -> bool {
    let constrained = model.pod_groups[gang]
        .tree
        .iter()
        .any(|member| member.topology.is_some());
    let heeded = || policy.plugins.topology;
    (constrained && heeded() && no_domain(model, gang, tasks)) || too_many_apart(model, tasks)
}

/// A member must be in one domain, and none of them is large enough.
fn no_domain(model: &Model, gang: PodGroupId, tasks: &[PodId]) -> bool {
    let entry = &model.pod_groups[gang];
    (0..entry.tree.len()).any(|member| {
        let member = member as Member;
        let Some(constraint) = &entry.tree[member as usize].topology else {
            return false;
        };
        let under = |task: &PodId| model.pods[*task].member.is_some_and(|own| entry.is_under(own, member));
        let tasks: Vec<PodId> = tasks.iter().copied().filter(under).collect();
        let placed = entry
            .pods
            .iter()
            .copied()
            .filter(|task| model.pods[*task].state.status.active_allocated() && under(task));
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

/// Pods that must be apart from one another, and more of them than there are places apart. It implies that the rule `pod_affinity` refuses one of them on
/// every node once the others are placed.
fn too_many_apart(model: &Model, tasks: &[PodId]) -> bool {
    let Some(first) = tasks.first().map(|task| &model.pods[*task]) else {
        return false;
    };
    let class = &model.classes[first.class];
    let apart = class.asked.iter().flat_map(|asked| &asked.apart);
    apart
        .into_iter()
        .filter(|counter| first.counted.contains(counter))
        .any(|counter| {
            let alike = |task: &&PodId| {
                let task = &model.pods[**task];
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
