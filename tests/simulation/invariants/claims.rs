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

/// A claim whose devices are not what it asks for.
pub fn unlike(view: &View<'_>) -> Option<String> {
    view.now.claims.iter().find_map(|(claim, seen)| {
        let devices: Vec<&str> = seen.devices.iter().map(|(_, device)| &**device).collect();
        let node = seen.devices.first().map_or("", |(node, _)| node);
        let is_right = devices.is_empty() || seen.wants.are(node, &devices);
        (!is_right).then(|| format!("{claim:?} asks for {:?} and has {:?}", seen.wants, seen.devices))
    })
}

/// Whether a node has the devices for a pod whose claims are all made.
pub fn fit(view: &View<'_>, pod: &PodSeen, node: &str) -> bool {
    let taken = |device| view.now.claims.values().any(|claim| claim.devices.contains(device));
    let offered = view.now.offered.values().flatten();
    let free = offered.filter(|device| device.0 == node && !taken(device));
    let free: Vec<&str> = free.map(|(_, name)| &**name).collect();
    pod.claims.iter().all(|name| {
        claim_of(view, pod, name).is_some_and(|claim| match claim.devices.first() {
            Some((there, _)) => there == node,
            None => claim.wants.can_be_of(node, &free),
        })
    })
}

/// Whether all claims of a pod are made for it alone, and stay.
pub fn are_its_own(view: &View<'_>, pod: &PodSeen) -> bool {
    let own = |name: &String| claim_of(view, pod, name).is_some_and(|claim| claim.of_one_pod && !claim.deleting);
    pod.claims.len() == pod.claimed && pod.claims.iter().all(own)
}
