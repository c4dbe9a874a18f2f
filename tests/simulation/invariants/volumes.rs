//! The rules about volumes.

use super::{View, with_several};
use crate::state::PodSeen;
use crate::volumes::VolumeClaimSeen;

fn claim_of<'a>(view: &'a View<'_>, pod: &PodSeen) -> Option<&'a VolumeClaimSeen> {
    let claim = (pod.namespace.clone(), pod.volume_claim.clone()?);
    view.now.volume_claims.get(&claim)
}

/// Whether the volume of a pod's claim is on a node, or can be.
pub fn allows(view: &View<'_>, pod: &PodSeen, node: &str) -> bool {
    if pod.volume_claim.is_none() {
        return true;
    }
    let Some(claim) = claim_of(view, pod) else { return false };
    let mut volumes = view.now.volumes.values();
    match &claim.volume {
        Some(name) => {
            let volume = view.now.volumes.get(name).and_then(|volume| volume.node.as_ref());
            volume.is_none_or(|there| there == node)
        }
        None if claim.kept => volumes.any(|volume| {
            let is_free = volume.of.as_ref().is_none_or(|of| *of == claim.uid);
            volume.kept && volume.node.as_deref() == Some(node) && is_free
        }),
        None => true,
    }
}

pub fn elsewhere(view: &View<'_>) -> Option<String> {
    let mut pods = view
        .before
        .holding(view.now)
        .filter(|(_, pod)| pod.volume_claim.is_some());
    let has_one = |pod: &PodSeen| claim_of(view, pod).is_some_and(|claim| claim.volume.is_some());
    let (pod, _) = pods.find(|(pod, _)| !has_one(pod) || !allows(view, pod, &pod.node))?;
    let claim = claim_of(view, pod);
    let volume = claim.and_then(|claim| view.now.volumes.get(claim.volume.as_ref()?));
    let (name, node) = (pod.full_name(), &pod.node);
    Some(format!(
        "{name} is on {node}, its claim is {claim:?}, its volume {volume:?}"
    ))
}

pub fn of_claims(view: &View<'_>) -> Option<String> {
    let claims = view.now.volume_claims.iter();
    let volumes = claims.filter_map(|(claim, seen)| Some((seen.volume.as_ref()?, claim)));
    with_several(volumes).map(|(volume, claims)| format!("volume {volume} is of {claims:?}"))
}
