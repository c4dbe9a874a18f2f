//! What the pods of each pod group request and hold, updated pod by pod. Pure.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;

use crate::api::gpu_request::{self, GpuShare, Part};
use crate::api::limits;
use crate::api::names::{annotation, condition as condition_names, received_resource_type, resource};
use crate::api::quantity::Amount;
use crate::components::bus::{Amounts, GroupKey};
use crate::components::pods;
use crate::components::quantities::{Sum, combine};

/// Sums over the pods of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requested by pods that are not finished.
    pub requested: Sum,
    /// Held by pods that run or are bound.
    pub allocated: Sum,
    /// All pods, also finished ones.
    pub pods: usize,
    /// Pods without a node that are not finished.
    pub waiting: usize,
    /// Those of them that have scheduling gates.
    pub gated: usize,
    /// Pods with a node that are not finished.
    pub running: usize,
    /// When the oldest of the pods was created that have been without a node since there was last none of them; in seconds since 1970.
    pub waiting_since: i64,
}

impl Sums {
    /// Whether nothing but scheduling gates keeps its waiting pods.
    #[must_use]
    pub fn only_gated(&self) -> bool {
        self.waiting > 0 && self.gated == self.waiting
    }
}

/// One pod's contribution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contribution {
    requested: Amounts,
    allocated: Amounts,
    waiting: bool,
    gated: bool,
    running: bool,
    created: i64,
}

/// The contributions of all pods, and their sums by group.
#[derive(Debug, Default)]
pub struct Ledger {
    parts: HashMap<String, (GroupKey, Contribution)>,
    sums: HashMap<GroupKey, Sums>,
    /// What the pod before requested: mostly pods of the same template come one after another, and share it.
    latest: Amounts,
}

impl Ledger {
    /// Records a pod and the devices that it claims; returns the groups whose sums changed. `gpu_memory`: MiB of one GPU of its node, for a pod that
    /// requests a part of a GPU by its memory.
    pub fn put(&mut self, pod: &Pod, gpu_memory: Option<i64>, claimed: &Amounts) -> Vec<GroupKey> {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some(group) = pods::annotated_group(pod) else {
            return self.remove(&uid);
        };
        let mut part = part(pod, gpu_memory, claimed);
        if part.requested == self.latest {
            part.requested = self.latest.clone();
        } else {
            self.latest = part.requested.clone();
        }
        if part.allocated == part.requested {
            part.allocated = part.requested.clone();
        }
        if self
            .parts
            .get(&uid)
            .is_some_and(|known| (&known.0, &known.1) == (&group, &part))
        {
            return Vec::new();
        }
        let mut changed = self.remove(&uid);
        let sums = self.sums.entry(group.clone()).or_default();
        sums.pods += 1;
        sums.requested
            .combine(&Sum::from(part.requested.clone()), Amount::wide_add);
        sums.allocated
            .combine(&Sum::from(part.allocated.clone()), Amount::wide_add);
        sums.waiting += usize::from(part.waiting);
        sums.gated += usize::from(part.gated);
        sums.running += usize::from(part.running);
        if part.waiting && (sums.waiting == 1 || part.created < sums.waiting_since) {
            sums.waiting_since = part.created;
        }
        self.parts.insert(uid, (group.clone(), part));
        if !changed.contains(&group) {
            changed.push(group);
        }
        changed
    }

    /// The pod was deleted; returns its group.
    pub fn remove(&mut self, uid: &str) -> Vec<GroupKey> {
        let Some((group, part)) = self.parts.remove(uid) else {
            return Vec::new();
        };
        if let Some(sums) = self.sums.get_mut(&group) {
            sums.pods -= 1;
            sums.requested.combine(&Sum::from(part.requested), Amount::wide_sub);
            sums.allocated.combine(&Sum::from(part.allocated), Amount::wide_sub);
            sums.waiting -= usize::from(part.waiting);
            sums.gated -= usize::from(part.gated);
            sums.running -= usize::from(part.running);
            if sums.pods == 0 {
                self.sums.remove(&group);
            }
        }
        vec![group]
    }

    /// The group that a pod names.
    #[must_use]
    pub fn group_of(&self, uid: &str) -> Option<&GroupKey> {
        self.parts.get(uid).map(|(group, _)| group)
    }

    /// The sums of a group; nothing if it has no pods.
    #[must_use]
    pub fn sums(&self, group: &GroupKey) -> Sums {
        self.sums.get(group).cloned().unwrap_or_default()
    }
}

fn part(pod: &Pod, gpu_memory: Option<i64>, claimed: &Amounts) -> Contribution {
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
    let mut base = container_requests(pod);
    combine(&mut base, claimed, Amount::saturating_add);
    let share = share(pod, &base);
    let with = |extra: Amounts| {
        let mut sum = base.clone();
        combine(&mut sum, &extra, Amount::saturating_add);
        sum
    };
    let waiting = asks && !pods::is_bound(pod) && pod.metadata.deletion_timestamp.is_none();
    Contribution {
        requested: if asks {
            with(shared_gpu_requested(share))
        } else {
            Amounts::new()
        },
        allocated: if holds {
            with(shared_gpu_held(pod, share, gpu_memory))
        } else {
            Amounts::new()
        },
        waiting,
        gated: waiting && pods::has_gates(pod),
        running: asks && pods::is_bound(pod),
        created: pod
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(0, |time| time.0.as_second()),
    }
}

/// The sum over the regular containers.
fn container_requests(pod: &Pod) -> Amounts {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let requests = containers.filter_map(|container| container.resources.as_ref()?.requests.as_ref());
    let mut sum = Amounts::new();
    for (name, quantity) in requests.flatten() {
        if sum.len() >= limits::RESOURCE_NAMES_PER_POD && sum.get(name).is_none() {
            // The pod is set aside.
            return Amounts::new();
        }
        let amount = Amount::of(quantity).unwrap_or_default();
        combine(&mut sum, &Amounts::one(name.as_str(), amount), Amount::saturating_add);
    }
    sum
}

/// The GPU portion that the pod requests; whole GPUs take precedence.
fn share(pod: &Pod, base: &Amounts) -> Option<GpuShare> {
    let whole = [resource::NVIDIA_GPU, resource::AMD_GPU]
        .iter()
        .any(|gpu| base.get(gpu).is_some_and(|amount| !amount.is_zero()));
    gpu_request::share(pod.metadata.annotations.as_ref()).filter(|_| !whole)
}

fn single(name: &str, amount: Amount) -> Amounts {
    Amounts::one(name, amount)
}

fn shared_gpu_requested(share: Option<GpuShare>) -> Amounts {
    match share {
        Some(GpuShare {
            part: Part::Fraction(billionths),
            devices,
        }) => fraction(billionths, devices),
        Some(GpuShare {
            part: Part::Memory(mib),
            devices,
        }) => single(resource::GPU_MEMORY, Amount::from_units(mib).saturating_mul(devices)),
        None => Amounts::new(),
    }
}

fn fraction(billionths: i64, devices: i64) -> Amounts {
    let amount = Amount::from_nanos(billionths.into());
    single(resource::NVIDIA_GPU, amount.saturating_mul(devices))
}

fn shared_gpu_held(pod: &Pod, share: Option<GpuShare>, gpu_memory: Option<i64>) -> Amounts {
    let annotations = pod.metadata.annotations.as_ref();
    let received = annotations.and_then(|annotations| annotations.get(annotation::RECEIVED_RESOURCE_TYPE));
    if received.is_none_or(|received| received != received_resource_type::FRACTION) {
        return Amounts::new();
    }
    match (share, gpu_memory) {
        (
            Some(GpuShare {
                part: Part::Fraction(billionths),
                devices,
            }),
            _,
        ) => fraction(billionths, devices),
        (
            Some(GpuShare {
                part: Part::Memory(mib),
                devices,
            }),
            Some(of_one),
        ) => {
            // Rounded up, as Kubernetes reads quantities.
            let of_one = i128::from(of_one);
            let portion = Amount::from_nanos((Amount::from_units(mib).nanos() + of_one - 1) / of_one);
            single(resource::NVIDIA_GPU, portion.saturating_mul(devices))
        }
        _ => Amounts::new(),
    }
}

#[cfg(test)]
mod tests;
