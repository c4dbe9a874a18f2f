//! The rules about volumes.

use super::View;
use crate::state::PodSeen;

/// The volume of a pod, if its claim has one.
fn volume_of<'a>(view: &'a View<'_>, pod: &PodSeen) -> Option<&'a str> {
    let claim = (pod.namespace.clone(), pod.volume_claim.clone()?);
    view.now.volume_claims.get(&claim)?.as_deref()
}

/// Whether a pod may be on a node because of its volume: there is none yet, or it is there.
pub fn allows(view: &View<'_>, pod: &PodSeen, node: &str) -> bool {
    let volume = volume_of(view, pod).and_then(|name| view.now.volumes.get(name));
    volume.and_then(Option::as_ref).is_none_or(|there| there == node)
}

pub fn elsewhere(view: &View<'_>) -> Option<String> {
    let mut pods = view
        .before
        .holding(view.now)
        .filter(|(_, pod)| pod.volume_claim.is_some());
    let (pod, _) = pods.find(|(pod, _)| volume_of(view, pod).is_none() || !allows(view, pod, &pod.node))?;
    let volume = volume_of(view, pod);
    let where_it_is = volume.map(|name| view.now.volumes.get(name));
    let (name, node) = (pod.full_name(), &pod.node);
    Some(format!(
        "{name} is on {node}, its volume is {volume:?} on {where_it_is:?}"
    ))
}
