//! The rules about devices that pods claim.

use super::{View, with_several};
use crate::state::{ClaimSeen, PodSeen};

fn claim_of<'a>(view: &'a View<'_>, pod: &PodSeen, name: &str) -> Option<&'a ClaimSeen> {
    view.now.claims.get(&(pod.namespace.clone(), name.to_owned()))
}

pub fn device_of_claims(view: &View<'_>) -> Option<String> {
    let claims = view.now.claims.iter();
    let devices = claims.flat_map(|(claim, seen)| seen.devices.iter().map(move |device| (device, claim)));
    with_several(devices).map(|((node, device), claims)| format!("device {device} of {node} is of {claims:?}"))
}

pub fn without_device(view: &View<'_>) -> Option<String> {
    view.before.holding(view.now).find_map(|(pod, now)| {
        let has = |claim: &ClaimSeen| {
            claim.reserved.contains(&pod.uid) && claim.devices.iter().any(|(node, _)| *node == pod.node)
        };
        let lost = now
            .claims
            .iter()
            .find(|name| !claim_of(view, pod, name).is_some_and(has))?;
        Some(format!(
            "{} is on {}, and its claim {lost} is {:?}",
            pod.full_name(),
            pod.node,
            claim_of(view, pod, lost)
        ))
    })
}

pub fn idle_device(view: &View<'_>) -> Option<String> {
    view.now.claims.iter().find_map(|(claim, seen)| {
        let on_node = |uid: &String| view.now.pods.get(uid).is_some_and(PodSeen::on_node);
        let used = seen.reserved.iter().any(on_node);
        (!seen.devices.is_empty() && !used).then(|| format!("{claim:?} has devices, and no pod has a node: {seen:?}"))
    })
}

/// How many devices of a node are free.
pub fn free(view: &View<'_>, node: &str) -> usize {
    let offered = view.now.offered.values().flatten();
    let taken = |device| view.now.claims.values().any(|claim| claim.devices.contains(device));
    offered.filter(|device| device.0 == node && !taken(device)).count()
}

/// Whether all claims of a pod are made for it alone, and stay.
pub fn are_its_own(view: &View<'_>, pod: &PodSeen) -> bool {
    let own = |name: &String| claim_of(view, pod, name).is_some_and(|claim| claim.of_one_pod && !claim.deleting);
    pod.claims.len() == pod.claimed && pod.claims.iter().all(own)
}
