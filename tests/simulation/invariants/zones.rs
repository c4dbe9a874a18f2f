//! The rules about NUMA zones.

use std::collections::{BTreeMap, BTreeSet};

use super::View;
use crate::state::PodSeen;

/// The CPUs of each zone of a node that its pods are to use.
fn used<'v>(view: &View<'v>, node: &str) -> BTreeMap<&'v str, i64> {
    let mut used: BTreeMap<&str, i64> = BTreeMap::new();
    let on_node = view.before.holding(view.now).filter(|(pod, _)| pod.node == node);
    for (zone, cores) in on_node.flat_map(|(pod, _)| &pod.zones) {
        *used.entry(zone).or_default() += cores;
    }
    used
}

/// The pods that were first seen bound in the latest state, to nodes with zones.
fn new<'v>(view: &View<'v>) -> impl Iterator<Item = &'v PodSeen> {
    let new = view.before.newly_bound();
    new.filter(|pod| pod.exclusive > 0 && view.now.zones.contains_key(&pod.node))
}

pub fn overfull(view: &View<'_>) -> Option<String> {
    let nodes: BTreeSet<&str> = new(view).map(|pod| &*pod.node).collect();
    nodes.into_iter().find_map(|node| {
        let (sizes, used) = (view.now.zones.get(node)?, used(view, node));
        let fits = |(zone, cores): (&&str, &i64)| sizes.get(*zone).is_some_and(|size| cores <= size);
        (!used.iter().all(fits)).then(|| format!("{node} has the zones {sizes:?} and gave {used:?}"))
    })
}

pub fn in_several(view: &View<'_>) -> Option<String> {
    let mut pods = new(view);
    let whole = |pod: &PodSeen| pod.zones.len() == 1 && pod.zones.values().all(|cores| *cores == pod.exclusive);
    let pod = pods.find(|pod| !whole(pod))?;
    let (name, cores) = (pod.full_name(), pod.exclusive);
    Some(format!(
        "{name} is on {} with {cores} CPUs in {:?}",
        pod.node, pod.zones
    ))
}

/// Whether a zone of a node has the CPUs that a pod wants for itself.
pub fn allow(view: &View<'_>, pod: &PodSeen, node: &str) -> bool {
    let Some(sizes) = view.now.zones.get(node).filter(|_| pod.exclusive > 0) else {
        return true;
    };
    let used = used(view, node);
    let mut free = sizes
        .iter()
        .map(|(zone, size)| size - used.get(&**zone).copied().unwrap_or(0));
    free.any(|free| free >= pod.exclusive)
}
