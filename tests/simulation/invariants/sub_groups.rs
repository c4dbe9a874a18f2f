//! The rules about sub-groups.

use std::collections::BTreeSet;

use super::View;
use crate::state::{GroupSeen, PodSeen};

/// The racks of a sub-group's pods, when one of them was bound.
pub fn in_several_racks(view: &View<'_>) -> Option<String> {
    view.before.newly_bound().find_map(|pod| {
        let group = view.now.groups.get(&(pod.namespace.clone(), pod.group.clone()))?;
        let together = group.in_rack_with(pod.sub_group.as_deref()?);
        // A node that is gone has no rack any more.
        let racks: BTreeSet<&str> = racks_with(view, group, pod).into_iter().flatten().collect();
        (racks.len() > 1).then(|| format!("{together:?} of {}/{} are in {racks:?}", pod.namespace, pod.group))
    })
}

/// The rack of each pod that must be in one rack with this one and has a node; none for a node without.
fn racks_with<'v>(view: &View<'v>, group: &GroupSeen, pod: &PodSeen) -> Vec<Option<&'v str>> {
    let together = pod.sub_group.as_deref().map(|name| group.in_rack_with(name));
    let together = together.unwrap_or_default();
    let holding = view.before.holding(view.now);
    let of_it = holding.filter(|(other, current)| {
        let is_of_it = other.sub_group.as_deref().is_some_and(|name| together.contains(&name));
        (&other.namespace, &other.group) == (&pod.namespace, &pod.group) && is_of_it && !current.deleting
    });
    of_it
        .map(|(other, _)| view.now.nodes.get(&other.node)?.rack.as_deref())
        .collect()
}

/// Whether a pod may be on a node as far as racks are concerned: those of its sub-group may be in another node pool by now, and stay there.
pub fn allow(view: &View<'_>, group: &GroupSeen, pod: &PodSeen, node: &str) -> bool {
    let rack = view.now.nodes.get(node).and_then(|node| node.rack.as_deref());
    racks_with(view, group, pod).iter().all(|other| *other == rack)
}
