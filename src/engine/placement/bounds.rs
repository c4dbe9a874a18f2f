//! Pod groups that cannot be placed even on an empty cluster. Proven from the allocatable resources of nodes, without a search.

use crate::engine::model::Model;
use crate::engine::model::ids::{ClassId, CounterId, NodeId, PodGroupId, PodId};
use crate::engine::model::pod_group::Member;
use crate::engine::policy::Policy;

use super::domains::{Question, never_room};

/// Whether pods of a pod group can never be placed together. Their classes must be up to date.
#[must_use]
pub fn never_fits(model: &Model, policy: &Policy, pod_group: PodGroupId, pods: &[PodId]) -> bool {
    let constrained = model.pod_groups()[pod_group]
        .tree
        .iter()
        .any(|member| member.topology.is_some());
    let enabled = || policy.plugins.topology;
    (constrained && enabled() && no_domain(model, pod_group, pods)) || too_many_apart(model, pods)
}

/// A member must be in one domain, and none of them is large enough.
fn no_domain(model: &Model, pod_group: PodGroupId, pods: &[PodId]) -> bool {
    let entry = &model.pod_groups()[pod_group];
    (0..entry.tree.len()).any(|member| {
        let member = member as Member;
        let Some(constraint) = &entry.tree[member as usize].topology else {
            return false;
        };
        let under = |pod: &PodId| model.pods()[*pod].member.is_some_and(|own| entry.is_under(own, member));
        let pods: Vec<PodId> = pods.iter().copied().filter(under).collect();
        let placed = entry
            .pods
            .iter()
            .copied()
            .filter(|pod| model.pods()[*pod].state.status.active_allocated() && under(pod));
        let with: Vec<NodeId> = placed.filter_map(|pod| model.node_of(pod)).collect();
        let question = Question {
            constraint,
            pods: &pods,
            with: &with,
            among: None,
            all: &[],
        };
        !pods.is_empty() && never_room(model, &question)
    })
}

/// Pods with anti-affinity to one another, and more of them than values of its topology key. It implies that the rule `pod_affinity` refuses one of them on
/// every node once the others are placed.
fn too_many_apart(model: &Model, pods: &[PodId]) -> bool {
    let Some(first) = pods.first().map(|pod| &model.pods()[*pod]) else {
        return false;
    };
    let class = &model.classes()[first.class];
    let apart = class.asked.iter().flat_map(|asked| &asked.apart);
    apart
        .into_iter()
        .filter(|counter| first.counted.contains(counter))
        .any(|counter| {
            let alike = |pod: &&PodId| {
                let pod = &model.pods()[**pod];
                pod.class == first.class && pod.counted.contains(counter)
            };
            places_apart(model, *counter, first.class).is_some_and(|places| pods.iter().filter(alike).count() > places)
        })
}

/// Number of values of a counter's label on the nodes of a class; `None` if some node lacks the label, so that any number of pods may be there.
fn places_apart(model: &Model, counter: CounterId, class: ClassId) -> Option<usize> {
    let nodes = model.class_nodes(class).iter().map(NodeId::of);
    let mut values = nodes
        .map(|node| model.neighbours().value(counter, node))
        .collect::<Option<Vec<u32>>>()?;
    values.sort_unstable();
    values.dedup();
    Some(values.len())
}
