//! Node objects → nodes.
//!
//! Absent: NUMA zones, which `numa` reads, and devices of resource slices, which `claims` counts.

use std::cell::RefCell;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::requests::Allocatable;
use super::{Problem, Settings, constraints, name, requests};
use crate::api::QuantityMap;
use crate::api::names::{annotation, node_label, resource};
use crate::engine::input::{GPU, Name, NodeFault, NodeInput, Time};

/// Values of the GPU memory label from this number on are bytes, smaller ones MiB.
const BYTES_FROM: i64 = 1 << 20;
/// GPU memory is rounded down to a multiple of this many MiB.
const MEMORY_STEP: i64 = 100;

/// Bytes of a condition's status that are kept.
const STATUS_MAX: usize = 16;

/// Conditions by which a node is not ready unless they are absent or have this status.
const SOUND: &[(&str, &str)] = &[
    ("Ready", "True"),
    ("MemoryPressure", "False"),
    ("DiskPressure", "False"),
    ("PIDPressure", "False"),
    ("NetworkUnavailable", "False"),
];

/// Drops what is never read, and the time of heartbeats, so that a node on which nothing else changed is the same.
pub fn trim(node: &mut Node) {
    if let Some(annotations) = &mut node.metadata.annotations {
        annotations.remove(annotation::KUBECTL_LAST_APPLIED);
    }
    let Some(status) = &mut node.status else { return };
    (status.images, status.daemon_endpoints) = (None, None);
    (status.volumes_attached, status.volumes_in_use) = (None, None);
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
}

/// Caches of the last node's resources and labels. Most nodes that follow have the same resources and similar labels.
#[derive(Debug, Default)]
pub struct Last {
    allocatable: RefCell<Option<(Arc<Node>, Allocatable)>>,
    labels: RefCell<Vec<(Name, Name)>>,
}

impl Last {
    /// A node's labels, which share their texts with those of the last node.
    fn labels(&self, node: &Node) -> Vec<(Name, Name)> {
        let mut last = self.labels.borrow_mut();
        let labels = node.labels().iter().map(|(key, value)| {
            let known = last.binary_search_by(|(known, _)| (**known).cmp(key));
            match known.ok().and_then(|at| last.get(at)) {
                Some((key, known)) if **known == **value => (key.clone(), known.clone()),
                Some((key, _)) => (key.clone(), name(value)),
                None => (name(key), name(value)),
            }
        });
        let labels: Vec<_> = labels.collect();
        last.clone_from(&labels);
        labels
    }

    /// What a node offers.
    fn allocatable(&self, node: &Arc<Node>, settings: &Settings, problems: &mut Vec<Problem>) -> Allocatable {
        let mut last = self.allocatable.borrow_mut();
        if let Some((like, known)) = &*last
            && allocatable(like) == allocatable(node)
        {
            return known.clone();
        }
        let before = problems.len();
        let empty = QuantityMap::new();
        let given = allocatable(node).unwrap_or(&empty);
        let read = requests::allocatable(given, &settings.gpu_resources, problems);
        // Each object has its own list of problems.
        if problems.len() == before {
            *last = Some((Arc::clone(node), read.clone()));
        }
        read
    }
}

fn allocatable(node: &Node) -> Option<&QuantityMap> {
    node.status.as_ref()?.allocatable.as_ref()
}

/// Reads a node. What cannot be read is left out and reported. The settings must be the same for all.
pub fn read(node: &Arc<Node>, settings: &Settings, last: &Last, problems: &mut Vec<Problem>) -> NodeInput {
    let Allocatable {
        amounts: allocatable,
        pods,
        gpu_resources,
    } = last.allocatable(node, settings, problems);
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let has_mig = allocatable
        .other
        .iter()
        .any(|(name, amount)| name.starts_with(resource::NVIDIA_MIG_PREFIX) && *amount > 0);
    NodeInput {
        name: name(&node.name_any()),
        labels: last.labels(node),
        taints: constraints::taints(node),
        unschedulable: node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true),
        faults: faults(node),
        gpu_resources,
        allocatable,
        pods,
        gpu_memory: label(node_label::GPU_MEMORY).and_then(gpu_memory),
        gpu_count: label(node_label::GPU_COUNT).and_then(|text| text.parse().ok()),
        dra_gpus: false,
        mig: label(&settings.mig_label).map_or(has_mig, |text| {
            matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }),
        numa: None,
        attach_limits: Vec::new(),
    }
}

/// Applies a change of the number of GPUs that resource slices publish for a node; `all`: how many they are now.
pub fn add_devices(node: &mut NodeInput, more: i64, all: i64) {
    node.allocatable.gpu += more * GPU;
    node.dra_gpus = all > 0;
}

/// MiB per GPU, by the label for GPU memory. `None`: not a number.
#[must_use]
pub fn gpu_memory_mib(text: &str) -> Option<i64> {
    let value: i64 = text.parse().ok()?;
    Some(if value >= BYTES_FROM { value / BYTES_FROM } else { value })
}

/// [`gpu_memory_mib`], rounded down to a multiple of [`MEMORY_STEP`]. `None`: not a number, or implausibly small.
fn gpu_memory(text: &str) -> Option<i64> {
    let mib = gpu_memory_mib(text)?;
    Some(mib - mib.rem_euclid(MEMORY_STEP)).filter(|mib| *mib > 0)
}

/// The conditions by which a node is not ready. A node without conditions is ready.
fn faults(node: &Node) -> Vec<NodeFault> {
    let faults = SOUND.iter().filter_map(|(kind, sound)| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let found = conditions.find(|condition| condition.type_ == *kind && condition.status != *sound)?;
        // Kubelets write True, False and Unknown.
        let status = found
            .status
            .get(..found.status.floor_char_boundary(STATUS_MAX))
            .unwrap_or_default();
        let since = found.last_transition_time.as_ref();
        Some(NodeFault {
            condition: name(&format!("{kind}={status}")),
            since: since.map(|time| Time(time.0.as_millisecond())),
        })
    });
    faults.collect()
}

#[cfg(test)]
mod tests;
