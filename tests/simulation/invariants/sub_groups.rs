//! The rules about sub-groups.

use std::collections::BTreeSet;

use super::View;

/// The racks of a sub-group's pods, when one of them was bound.
pub fn in_several_racks(view: &View<'_>) -> Option<String> {
    view.before.new.iter().find_map(|uid| {
        let pod = view.before.bound.get(uid)?;
        let group = view.now.groups.get(&(pod.namespace.clone(), pod.group.clone()))?;
        let name = pod.sub_group.as_deref()?;
        let together = group.in_rack_with(name);
        let holding = view.before.holding(view.now);
        let of_it = holding.filter(|(other, current)| {
            let is_of_it = other.sub_group.as_deref().is_some_and(|name| together.contains(&name));
            (&other.namespace, &other.group) == (&pod.namespace, &pod.group) && is_of_it && !current.deleting
        });
        // A node that is gone has no rack any more.
        let racks = of_it.filter_map(|(other, _)| view.now.nodes.get(&other.node)?.rack.as_deref());
        let racks: BTreeSet<&str> = racks.collect();
        (racks.len() > 1).then(|| format!("{together:?} of {}/{} are in {racks:?}", pod.namespace, pod.group))
    })
}
