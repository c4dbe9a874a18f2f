//! What the pods of each pod group ask for and hold, kept up to date pod by pod. Pure.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::api::names::{annotation, condition as condition_names, node_label, received_resource_type, resource};
use crate::api::quantity::{self, Amount};
use crate::components::bus::{Amounts, GroupKey};
use crate::components::pods;
use crate::components::quantities::combine;

/// Sums over the pods of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Asked for by pods that are not finished.
    pub requested: Amounts,
    /// Held by pods that run or are bound.
    pub allocated: Amounts,
    /// Pods without a node.
    pub waiting: usize,
}

/// One pod's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Part {
    requested: Amounts,
    allocated: Amounts,
    waiting: bool,
}

/// The parts of all pods and their sums by group.
#[derive(Debug, Default)]
pub struct Ledger {
    parts: HashMap<String, (GroupKey, Part)>,
    sums: HashMap<GroupKey, (usize, Sums)>,
}

impl Ledger {
    /// Takes in a pod; returns the groups whose sums changed.
    pub fn put(&mut self, pod: &Pod, node: Option<&Node>) -> Vec<GroupKey> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some(group) = pods::annotated_group(pod) else {
            return self.remove(&uid);
        };
        let part = part(pod, node);
        if self
            .parts
            .get(&uid)
            .is_some_and(|known| (&known.0, &known.1) == (&group, &part))
        {
            return Vec::new();
        }
        let mut changed = self.remove(&uid);
        let (members, sums) = self.sums.entry(group.clone()).or_default();
        *members += 1;
        combine(&mut sums.requested, &part.requested, Amount::saturating_add);
        combine(&mut sums.allocated, &part.allocated, Amount::saturating_add);
        sums.waiting += usize::from(part.waiting);
        self.parts.insert(uid, (group.clone(), part));
        if !changed.contains(&group) {
            changed.push(group);
        }
        changed
    }

    /// The pod is gone; returns its group.
    pub fn remove(&mut self, uid: &str) -> Vec<GroupKey> {
        let Some((group, part)) = self.parts.remove(uid) else {
            return Vec::new();
        };
        if let Some((members, sums)) = self.sums.get_mut(&group) {
            *members -= 1;
            combine(&mut sums.requested, &part.requested, Amount::saturating_sub);
            combine(&mut sums.allocated, &part.allocated, Amount::saturating_sub);
            sums.waiting -= usize::from(part.waiting);
            if *members == 0 {
                self.sums.remove(&group);
            }
        }
        vec![group]
    }

    /// How many pods of a group are counted.
    #[must_use]
    pub fn pods(&self, group: &GroupKey) -> usize {
        self.sums.get(group).map_or(0, |(pods, _)| *pods)
    }

    /// The sums of a group; nothing if it has no pods.
    #[must_use]
    pub fn sums(&self, group: &GroupKey) -> Sums {
        self.sums.get(group).map(|(_, sums)| sums.clone()).unwrap_or_default()
    }
}

fn part(pod: &Pod, node: Option<&Node>) -> Part {
    let scheduled = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref())
        .is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition.type_ == condition_names::POD_SCHEDULED && condition.status == "True")
        });
    let (asks, holds) = match pods::phase(pod) {
        "Pending" | "" => (true, scheduled || pods::is_bound(pod)),
        "Running" => (true, true),
        _ => (false, false),
    };
    let base = container_requests(pod);
    let with = |extra: Amounts| {
        let mut sum = base.clone();
        combine(&mut sum, &extra, Amount::saturating_add);
        sum
    };
    Part {
        requested: if asks {
            with(shared_gpu_requested(pod))
        } else {
            Amounts::new()
        },
        allocated: if holds {
            with(shared_gpu_held(pod, node))
        } else {
            Amounts::new()
        },
        waiting: asks && !pods::is_bound(pod),
    }
}

/// The sum over the regular containers.
fn container_requests(pod: &Pod) -> Amounts {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let mut sum = Amounts::new();
    for (name, quantity) in requests.flatten() {
        let amount = Amount::of(quantity).unwrap_or_default();
        combine(
            &mut sum,
            &BTreeMap::from([(name.clone(), amount)]),
            Amount::saturating_add,
        );
    }
    sum
}

fn amount_annotation(pod: &Pod, key: &str) -> Option<Amount> {
    let (amount, _) = quantity::parse(pod.metadata.annotations.as_ref()?.get(key)?).ok()?;
    (!amount.is_negative() && !amount.is_zero()).then_some(amount)
}

fn devices(pod: &Pod) -> i64 {
    amount_annotation(pod, annotation::GPU_FRACTION_NUM_DEVICES).map_or(1, Amount::units)
}

fn single(name: &str, amount: Amount) -> Amounts {
    Amounts::from([(name.to_owned(), amount)])
}

fn shared_gpu_requested(pod: &Pod) -> Amounts {
    if let Some(fraction) = amount_annotation(pod, annotation::GPU_FRACTION) {
        return single(resource::NVIDIA_GPU, fraction.saturating_mul(devices(pod)));
    }
    let memory = amount_annotation(pod, annotation::GPU_MEMORY);
    memory
        .map(|memory| single(resource::GPU_MEMORY, memory.saturating_mul(devices(pod))))
        .unwrap_or_default()
}

fn shared_gpu_held(pod: &Pod, node: Option<&Node>) -> Amounts {
    let annotations = pod.metadata.annotations.as_ref();
    let received = annotations.and_then(|annotations| annotations.get(annotation::RECEIVED_RESOURCE_TYPE));
    if received.is_none_or(|received| received != received_resource_type::FRACTION) {
        return Amounts::new();
    }
    if let Some(fraction) = amount_annotation(pod, annotation::GPU_FRACTION) {
        return single(resource::NVIDIA_GPU, fraction.saturating_mul(devices(pod)));
    }
    let (Some(memory), Some(of_one)) = (
        amount_annotation(pod, annotation::GPU_MEMORY),
        node.and_then(gpu_memory),
    ) else {
        return Amounts::new();
    };
    // Thousandths, rounded up: a status is for people, and never says less than is held.
    let milli = (memory.milli() + of_one - 1) / of_one;
    single(
        resource::NVIDIA_GPU,
        Amount::from_milli(milli).saturating_mul(devices(pod)),
    )
}

/// MiB of one GPU of the node.
fn gpu_memory(node: &Node) -> Option<i64> {
    let labels = node.metadata.labels.as_ref()?;
    if let Some(memory) = labels.get(node_label::GPU_MEMORY) {
        return memory.parse().ok().filter(|memory| *memory > 0);
    }
    let size = labels
        .keys()
        .find_map(|key| key.strip_prefix(node_label::AMD_VRAM_PREFIX))?;
    let (bytes, _) = quantity::parse(size).ok()?;
    Some(bytes.units() / 1_000_000).filter(|memory| *memory > 0)
}

#[cfg(test)]
mod tests;
