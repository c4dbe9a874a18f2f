//! A pod's requests: the exact sum over containers, native sidecars, init containers and overhead, or pod-level resources if set, and the
//! GPU part with its annotations.
//!
//! Absent: limits and ephemeral containers. GPUs in overhead do not count.

use smallvec::SmallVec;

use super::packed::{Pod, texts};
use super::{Problem, name};
use crate::api::QuantityMap;
use crate::api::gpu_request::{self, Asked, GpuShare, Named, Part};
use crate::api::limits::GPU_DEVICES_COUNTED;
use crate::api::names::resource;
use crate::api::quantity::Amount;
use crate::engine::input::{Amounts, GPU, GpuKind, GpuRequest, Name, WHOLE};

/// Maximum of milli-cores, bytes (64 TiB) or thousandths. The sum over 131,072 pods does not overflow.
pub const MOST: i64 = 1 << 46;

/// How a resource name is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Milli-cores.
    Cpu,
    /// Bytes of memory.
    Memory,
    /// Whole devices, of all vendors together.
    Gpu,
    /// Instances of a multi-instance GPU profile.
    Mig,
    /// Bytes of storage or huge pages.
    Storage,
    /// Thousandths of an extended resource.
    Extended,
    /// Not counted: pods, and unknown names.
    None,
}

impl Unit {
    fn of(name: &str, gpus: &[String]) -> Self {
        match name {
            resource::CPU => Self::Cpu,
            resource::MEMORY => Self::Memory,
            _ if gpus.iter().any(|gpu| gpu == name) => Self::Gpu,
            resource::EPHEMERAL_STORAGE | "storage" => Self::Storage,
            _ if name.starts_with("hugepages-") => Self::Storage,
            _ if name.starts_with(resource::NVIDIA_MIG_PREFIX) => Self::Mig,
            _ if name.contains('/') => Self::Extended,
            _ if name.starts_with("attachable-volumes-") => Self::Extended,
            _ => Self::None,
        }
    }

    /// The maximum that is counted. Pods that request more are held back. Sums of many such amounts do not overflow.
    fn most(self) -> i64 {
        match self {
            Self::Gpu | Self::Mig => GPU_DEVICES_COUNTED,
            Self::Cpu | Self::Memory | Self::Storage | Self::Extended | Self::None => MOST,
        }
    }

    /// The maximum that is valid on a node, where amounts above [`Unit::most`] count as that. More devices are invalid: a pod whose number of them is capped
    /// fits no node.
    fn most_on_node(self) -> i64 {
        match self {
            Self::Gpu | Self::Mig => self.most(),
            Self::Cpu | Self::Memory | Self::Storage | Self::Extended | Self::None => i64::MAX,
        }
    }

    /// An amount in this unit, rounded away from zero.
    fn count(self, amount: Amount) -> i64 {
        match self {
            Self::Cpu | Self::Extended => amount.milli(),
            Self::Memory | Self::Gpu | Self::Mig | Self::Storage | Self::None => amount.units(),
        }
    }
}

/// A small sorted map by resource name.
#[derive(Clone, Debug)]
struct ByName<'o, T>(SmallVec<[(&'o str, T); 4]>);

impl<T> Default for ByName<'_, T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<'o, T> ByName<'o, T> {
    /// The entry of a name, inserted if there is none.
    #[allow(clippy::indexing_slicing, reason = "the position was found, or has just been filled")]
    fn entry(&mut self, name: &'o str, new: T) -> &mut T {
        let found = self.0.binary_search_by(|(other, _)| (*other).cmp(name));
        let at = found.unwrap_or_else(|at| {
            self.0.insert(at, (name, new));
            at
        });
        &mut self.0[at].1
    }
}

/// Amounts by resource name, with their unit; GPUs of different vendors are separate until they are added up.
#[derive(Clone, Debug, Default)]
struct Sum<'o>(ByName<'o, (Unit, i64)>);

impl<'o> Sum<'o> {
    /// Adds up quantities per resource, then rounds once. `most`: the maximum that is valid.
    fn of(
        quantities: impl Iterator<Item = (&'o str, &'o str)>,
        gpus: &[String],
        most: fn(Unit) -> i64,
        field: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut exact = ByName::<Amount>::default();
        for (resource, quantity) in quantities {
            let amount = quantity.parse::<Amount>().ok().filter(|amount| {
                let unit = Unit::of(resource, gpus);
                (0..=most(unit)).contains(&unit.count(*amount))
            });
            match amount {
                Some(amount) => {
                    let sum = exact.entry(resource, Amount::ZERO);
                    *sum = sum.saturating_add(amount);
                }
                None => problems.push(Problem::Quantity {
                    field,
                    resource: resource.to_owned(),
                    value: quantity.to_owned(),
                }),
            }
        }
        let counted = exact.0.into_iter().map(|(resource, sum)| {
            let unit = Unit::of(resource, gpus);
            (resource, (unit, unit.count(sum)))
        });
        Self(ByName(counted.collect()))
    }

    /// Reduces larger amounts to the maximum that is counted.
    fn capped(mut self) -> Self {
        for (_, (unit, amount)) in &mut self.0.0 {
            *amount = (*amount).min(unit.most());
        }
        self
    }

    fn iter(&self) -> impl Iterator<Item = (&'o str, Unit, i64)> {
        self.0
            .0
            .iter()
            .map(|&(resource, (unit, amount))| (resource, unit, amount))
    }

    fn add(mut self, other: &Self) -> Self {
        for (resource, unit, amount) in other.iter() {
            let (_, sum) = self.0.entry(resource, (unit, 0));
            *sum = sum.saturating_add(amount);
        }
        self
    }

    fn max(mut self, other: &Self) -> Self {
        for (resource, unit, amount) in other.iter() {
            let (_, most) = self.0.entry(resource, (unit, amount));
            *most = (*most).max(amount);
        }
        self
    }
}

/// What a node offers.
#[derive(Clone, Debug)]
pub struct Allocatable {
    /// Its amounts.
    pub amounts: Amounts,
    /// Its pod slots.
    pub pods: i64,
    /// The resources as which its device plugins offer GPUs.
    pub gpu_resources: Vec<Name>,
}

/// A node's amounts and pod slots. `gpus`: the resources that are whole GPUs.
pub fn allocatable(resources: &QuantityMap, gpus: &[String], problems: &mut Vec<Problem>) -> Allocatable {
    let field = "status.allocatable";
    let sum = Sum::of(texts(resources), gpus, Unit::most_on_node, field, problems).capped();
    let pods = sum.iter().find(|(resource, ..)| *resource == resource::PODS);
    let pods = pods.map_or(0, |(.., pods)| pods);
    let mut amounts = amounts(&sum);
    amounts.gpu = whole_gpus(&sum).saturating_mul(GPU);
    amounts
        .other
        .extend(mig(&sum).map(|(profile, count)| (name(profile), count)));
    amounts.other.sort();
    Allocatable {
        amounts,
        pods,
        gpu_resources: gpu_resources(&sum),
    }
}

/// A pod's requests: its amounts without GPUs, and its GPU request. `gpus`: the resources that are whole GPUs; the annotations of a pod of
/// another scheduler, which is not `ours`, are ignored. With a [`Problem`] that holds pods back the result is not reliable.
pub fn of_pod(pod: &Pod, ours: bool, gpus: &[String], problems: &mut Vec<Problem>) -> (Amounts, GpuRequest) {
    let base = base(pod, gpus, problems);
    let gpu = if ours {
        of_annotations(pod, &base, problems)
    } else {
        of_containers(&base, problems)
    };
    (amounts(&base), gpu)
}

/// The larger of the running containers' sum and each init container with the sidecars that run by then.
fn base<'o>(pod: &'o Pod, gpus: &[String], problems: &mut Vec<Problem>) -> Sum<'o> {
    let containers = pod.containers.iter().flat_map(|container| container.requests.iter());
    let running = Sum::of(containers, gpus, Unit::most, "spec.containers", problems);
    let (mut sidecars, mut peak) = (Sum::default(), Sum::default());
    for container in &pod.init_containers {
        let own = Sum::of(
            container.requests.iter(),
            gpus,
            Unit::most,
            "spec.initContainers",
            problems,
        );
        if container.stays {
            sidecars = sidecars.add(&own);
        } else {
            peak = peak.max(&own.add(&sidecars));
        }
    }
    let overhead = pod.spec().and_then(|spec| spec.overhead.as_ref());
    let overhead = overhead.into_iter().flat_map(texts);
    let mut overhead = Sum::of(overhead, gpus, Unit::most, "spec.overhead", problems);
    overhead
        .0
        .0
        .retain(|(_, (unit, _))| !matches!(unit, Unit::Gpu | Unit::Mig));
    let mut all = running.add(&sidecars).max(&peak);
    // Pod-level resources replace those of the containers.
    let whole = pod.spec().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let whole = whole.into_iter().flat_map(texts);
    let whole =
        whole.filter(|(name, _)| [resource::CPU, resource::MEMORY].contains(name) || name.starts_with("hugepages-"));
    for (name, unit, amount) in Sum::of(whole, gpus, Unit::most, "spec.resources", problems).iter() {
        *all.0.entry(name, (unit, amount)) = (unit, amount);
    }
    all.add(&overhead)
}

fn amounts(sum: &Sum) -> Amounts {
    let mut amounts = Amounts::default();
    for (resource, unit, amount) in sum.iter() {
        match unit {
            Unit::Cpu => amounts.cpu = amount,
            Unit::Memory => amounts.memory = amount,
            Unit::Storage | Unit::Extended if amount != 0 => amounts.other.push((name(resource), amount)),
            Unit::Storage | Unit::Extended | Unit::Gpu | Unit::Mig | Unit::None => {}
        }
    }
    amounts
}

fn whole_gpus(sum: &Sum) -> i64 {
    sum.iter()
        .filter(|(_, unit, _)| *unit == Unit::Gpu)
        .fold(0, |gpus, (.., amount)| gpus.saturating_add(amount))
}

/// The resources that are whole GPUs, of which there are some.
fn gpu_resources(sum: &Sum) -> Vec<Name> {
    sum.iter()
        .filter(|(_, unit, amount)| *unit == Unit::Gpu && *amount > 0)
        .map(|(resource, ..)| name(resource))
        .collect()
}

fn mig<'o>(sum: &Sum<'o>) -> impl Iterator<Item = (&'o str, i64)> {
    sum.iter()
        .filter(|(_, unit, amount)| *unit == Unit::Mig && *amount != 0)
        .map(|(profile, _, count)| (profile, count))
}

/// The GPU part. Container resources take precedence over annotations.
fn of_annotations(pod: &Pod, base: &Sum, problems: &mut Vec<Problem>) -> GpuRequest {
    let of_containers = of_containers(base, problems);
    let names = |wanted| base.iter().any(|(_, unit, _)| unit == wanted);
    let named = Named {
        whole: names(Unit::Gpu),
        mig: names(Unit::Mig),
    };
    match gpu_request::read(pod.annotations.iter(), named) {
        Ok(Asked::Nothing) => of_containers,
        // MIG instances of containers count, whatever the legacy annotation is.
        Ok(Asked::Mig(_)) if named.mig => of_containers,
        Ok(Asked::Share(share)) => of_share(share),
        Ok(Asked::Mig(profiles)) => GpuRequest {
            kind: GpuKind::Mig,
            mig: profiles
                .into_iter()
                .map(|(profile, count)| (name(profile), count))
                .collect(),
            legacy_mig: true,
            ..GpuRequest::default()
        },
        Err(invalid) => {
            problems.push(invalid.into());
            of_containers
        }
    }
}

/// Whole GPUs and MIG instances.
fn of_containers(base: &Sum, problems: &mut Vec<Problem>) -> GpuRequest {
    let whole = whole_gpus(base);
    let mig: Vec<_> = mig(base).map(|(profile, count)| (name(profile), count)).collect();
    if whole > 0 && !mig.is_empty() {
        problems.push(Problem::Contradiction(
            "the pod asks for whole GPUs and for instances of a multi-instance GPU",
        ));
    }
    GpuRequest {
        kind: if mig.is_empty() { GpuKind::Regular } else { GpuKind::Mig },
        count: whole,
        resources: gpu_resources(base),
        portion: if whole > 0 { WHOLE } else { 0 },
        mig,
        ..GpuRequest::default()
    }
}

fn of_share(share: GpuShare) -> GpuRequest {
    let (kind, portion, memory) = match share.part {
        Part::Fraction(billionths) => (GpuKind::Fraction, billionths, 0),
        Part::Memory(mib) => (GpuKind::Memory, 0, mib),
    };
    GpuRequest {
        kind,
        count: share.devices,
        // The reservation pod of a shared GPU requests it as this.
        resources: vec![name(resource::NVIDIA_GPU)],
        portion,
        memory,
        ..GpuRequest::default()
    }
}

#[cfg(test)]
mod tests;
