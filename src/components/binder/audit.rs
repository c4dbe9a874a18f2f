//! The rule of shared GPUs, held against what the API server shows, all the time: a group has one device, a device one group, and
//! what its pods were given is no more than the device. A breach is an ERROR and a metric, never silence.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use tracing::{error, info};

use super::groups::{Group, GroupId, Groups};
use crate::api::names::{annotation, node_label};
use crate::components::watches::Stores;

/// A whole device, in millionths.
const WHOLE: u64 = 1_000_000;
/// From this value on, the label for the memory of a GPU counts bytes, not MiB.
const BYTES_FROM: u64 = 1 << 20;

/// The breaches that there are.
#[derive(Default)]
pub struct Audit {
    broken: BTreeMap<GroupId, String>,
}

impl Audit {
    /// Looks at the groups of a node of which one has changed.
    pub fn look(&mut self, changed: &GroupId, groups: &Groups, stores: &Stores) {
        let of_node: BTreeMap<_, _> = groups.on_node(&changed.node).collect();
        let mut found: BTreeMap<GroupId, String> = of_node
            .iter()
            .filter_map(|(id, group)| Some(((*id).clone(), breach(id, group, &of_node, stores)?)))
            .collect();
        let before: Vec<_> = self
            .broken
            .keys()
            .filter(|id| id.node == changed.node)
            .cloned()
            .collect();
        if before.is_empty() && found.is_empty() {
            return;
        }
        for id in before {
            let was = self.broken.remove(&id);
            if !found.contains_key(&id) {
                info!(node = %id.node, group = %id.group, was, "shared GPU is in order again");
            } else if found.get(&id) == was.as_ref() {
                self.broken.extend(found.remove_entry(&id));
            }
        }
        for (id, what) in found {
            error!(node = %id.node, group = %id.group, error = what, "shared GPU given wrongly");
            metrics::counter!("unikai_shared_gpu_breaches_total").increment(1);
            self.broken.insert(id, what);
        }
        #[expect(clippy::cast_precision_loss, reason = "few")]
        metrics::gauge!("unikai_shared_gpus_broken").set(self.broken.len() as f64);
    }
}

/// The devices that a group's reservation pods hold.
fn devices(group: &Group) -> BTreeSet<&str> {
    let holders = group.holders.values().filter(|holder| holder.trouble.is_none());
    holders.filter_map(|holder| holder.device.as_deref()).collect()
}

/// What is wrong with a group.
fn breach(id: &GroupId, group: &Group, of_node: &BTreeMap<&GroupId, &Group>, stores: &Stores) -> Option<String> {
    let own = devices(group);
    if own.len() > 1 {
        return Some(format!("the group has {} devices: {own:?}", own.len()));
    }
    let others = of_node.iter().filter(|(other, _)| **other != id);
    if let Some((other, _)) = others.into_iter().find(|(_, group)| !devices(group).is_disjoint(&own)) {
        return Some(format!("device {own:?} is given to group {} too", other.group));
    }
    let node = stores.nodes.get("", &id.node);
    let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
    let memory = labels
        .and_then(|labels| labels.get(node_label::GPU_MEMORY)?.parse::<u64>().ok())
        .map(|memory| {
            if memory >= BYTES_FROM {
                memory / BYTES_FROM
            } else {
                memory
            }
        });
    let pods = group.users.values();
    let pods = pods.filter_map(|pod| stores.pods.get(&pod.namespace, &pod.name));
    let given: u64 = pods.filter_map(|pod| portion(&pod, memory)).sum();
    (given > WHOLE).then(|| {
        format!(
            "{given} millionths of the device are given to {} pods",
            group.users.len()
        )
    })
}

/// What a pod has of each of its devices, in millionths.
fn portion(pod: &Pod, memory: Option<u64>) -> Option<u64> {
    let annotations = pod.metadata.annotations.as_ref()?;
    if let Some(fraction) = annotations.get(annotation::GPU_FRACTION) {
        let fraction: f64 = fraction
            .parse()
            .ok()
            .filter(|fraction| (0.0..=1.0).contains(fraction))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 1")]
        return Some((fraction * WHOLE as f64) as u64);
    }
    let asked: u64 = annotations.get(annotation::GPU_MEMORY)?.parse().ok()?;
    Some(asked.checked_mul(WHOLE)? / memory.filter(|memory| *memory > 0)?)
}

#[cfg(test)]
mod tests;
