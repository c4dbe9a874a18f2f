//! What a pod asks for: containers, native sidecars, init containers and overhead summed up exactly, and the GPU part with its annotations.
//!
//! Absent: pod-level requests, resizes under way, limits and ephemeral containers. GPUs in overhead do not count.

use smallvec::SmallVec;

use super::slim::Pod;
use super::{Problem, name};
use crate::api::QuantityMap;
use crate::api::names::{annotation, resource};
use crate::api::quantity::Amount;
use crate::engine::input::{Amounts, GPU, GpuKind, GpuRequest, WHOLE};

/// The most milli-cores, bytes or thousandths that count: 256 TiB, for one.
const MOST: i64 = 1 << 48;
/// The most devices that count.
const MOST_DEVICES: i64 = 1 << 20;
/// The most MiB of a GPU that count.
const MOST_GPU_MEMORY: i64 = 1 << 28;

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
    /// Bytes of storage.
    Storage,
    /// Thousandths of an extended resource.
    Extended,
    /// Not counted: pods, and names that mean nothing.
    None,
}

impl Unit {
    fn of(name: &str, gpus: &[String]) -> Self {
        match name {
            resource::CPU => Self::Cpu,
            resource::MEMORY => Self::Memory,
            _ if gpus.iter().any(|gpu| gpu == name) => Self::Gpu,
            resource::EPHEMERAL_STORAGE | "storage" => Self::Storage,
            _ if name.starts_with(resource::NVIDIA_MIG_PREFIX) => Self::Mig,
            _ if name.contains('/') => Self::Extended,
            _ if name.starts_with("hugepages-") || name.starts_with("attachable-volumes-") => Self::Extended,
            _ => Self::None,
        }
    }

    /// The most of it that counts. No node has as much, and sums of many such amounts are still far from what an integer holds.
    fn most(self) -> i64 {
        match self {
            Self::Gpu | Self::Mig => MOST_DEVICES,
            Self::Cpu | Self::Memory | Self::Storage | Self::Extended | Self::None => MOST,
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

/// Few things by resource name, sorted by it.
#[derive(Clone, Debug)]
struct ByName<'o, T>(SmallVec<[(&'o str, T); 4]>);

impl<T> Default for ByName<'_, T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<'o, T> ByName<'o, T> {
    /// The entry of a name, new if there is none.
    fn entry(&mut self, name: &'o str, new: T) -> &mut T {
        let found = self.0.binary_search_by(|(other, _)| (*other).cmp(name));
        let at = found.unwrap_or_else(|at| {
            self.0.insert(at, (name, new));
            at
        });
        &mut self.0[at].1
    }
}

/// Amounts by resource name, with their unit and in its steps; vendors' GPUs stay apart until they are added up.
#[derive(Clone, Debug, Default)]
struct Sum<'o>(ByName<'o, (Unit, i64)>);

impl<'o> Sum<'o> {
    /// Adds up quantities per resource, then rounds once.
    fn of(
        quantities: impl Iterator<Item = (&'o str, &'o str)>,
        gpus: &[String],
        field: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let mut exact = ByName::<Amount>::default();
        for (resource, quantity) in quantities {
            let amount = quantity.parse::<Amount>().ok().filter(|amount| {
                let unit = Unit::of(resource, gpus);
                (0..=unit.most()).contains(&unit.count(*amount))
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

/// A node's resources: its amounts, and how many pods it takes. `gpus` names the resources that are whole GPUs.
pub fn allocatable(resources: &QuantityMap, gpus: &[String], problems: &mut Vec<Problem>) -> (Amounts, i64) {
    let sum = Sum::of(texts(resources), gpus, "status.allocatable", problems);
    let pods = sum.iter().find(|(resource, ..)| *resource == resource::PODS);
    let pods = pods.map_or(0, |(.., pods)| pods);
    let mut amounts = amounts(&sum);
    amounts.gpu = whole_gpus(&sum).saturating_mul(GPU);
    amounts
        .other
        .extend(mig(&sum).map(|(profile, count)| (name(profile), count)));
    amounts.other.sort();
    (amounts, pods)
}

/// Whether an annotation is part of what a pod asks for.
#[must_use]
pub fn asks(key: &str) -> bool {
    let share = matches!(
        key,
        annotation::GPU_FRACTION | annotation::GPU_MEMORY | annotation::GPU_FRACTION_NUM_DEVICES
    );
    share || key.starts_with(annotation::MIG_PREFIX)
}

/// What a pod asks for: its amounts without GPUs, and its GPU request. `gpus` names the resources that are whole GPUs. Problems of the kind [`Problem::Quantity`] and
/// [`Problem::Contradiction`] mean that the answer is not to be relied on.
pub fn of_pod(pod: &Pod, gpus: &[String], problems: &mut Vec<Problem>) -> (Amounts, GpuRequest) {
    let base = base(pod, gpus, problems);
    (amounts(&base), gpu_request(pod, &base, problems))
}

/// The larger of what runs in the long run and what the init containers need on the way, with the sidecars that run by then.
fn base<'o>(pod: &'o Pod, gpus: &[String], problems: &mut Vec<Problem>) -> Sum<'o> {
    let containers = pod.containers.iter().flat_map(|container| container.requests.iter());
    let running = Sum::of(containers, gpus, "spec.containers", problems);
    let (mut sidecars, mut peak) = (Sum::default(), Sum::default());
    for container in &pod.init_containers {
        let own = Sum::of(container.requests.iter(), gpus, "spec.initContainers", problems);
        if container.stays {
            sidecars = sidecars.add(&own);
        } else {
            peak = peak.max(&own.add(&sidecars));
        }
    }
    let overhead = pod.spec().and_then(|spec| spec.overhead.as_ref());
    let mut overhead = Sum::of(overhead.into_iter().flat_map(texts), gpus, "spec.overhead", problems);
    overhead
        .0
        .0
        .retain(|(_, (unit, _))| !matches!(unit, Unit::Gpu | Unit::Mig));
    running.add(&sidecars).max(&peak).add(&overhead)
}

/// Quantities by resource, as texts.
pub(super) fn texts(quantities: &QuantityMap) -> impl Iterator<Item = (&str, &str)> {
    quantities
        .iter()
        .map(|(resource, quantity)| (&**resource, &*quantity.0))
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

fn mig<'o>(sum: &Sum<'o>) -> impl Iterator<Item = (&'o str, i64)> {
    sum.iter()
        .filter(|(_, unit, amount)| *unit == Unit::Mig && *amount != 0)
        .map(|(profile, _, count)| (profile, count))
}

/// The GPU part. The annotations for a share of a GPU replace what containers ask for, a fraction goes before memory, and MIG profiles
/// in annotations (old style) replace everything.
fn gpu_request(pod: &Pod, base: &Sum, problems: &mut Vec<Problem>) -> GpuRequest {
    let given = |key: &str| pod.annotations.get(key);
    let whole = whole_gpus(base);
    let mut request = GpuRequest {
        count: whole,
        portion: if whole > 0 { WHOLE } else { 0 },
        mig: mig(base).map(|(profile, count)| (name(profile), count)).collect(),
        ..GpuRequest::default()
    };
    if let Some(share) = share(&given, problems) {
        if !request.mig.is_empty() {
            problems.push(Problem::Contradiction(
                "the pod asks for a share of a GPU and for instances of a multi-instance GPU",
            ));
        }
        request = share;
    }
    let legacy = legacy_mig(pod);
    if !legacy.is_empty() {
        request = GpuRequest {
            mig: legacy,
            legacy_mig: true,
            ..GpuRequest::default()
        };
    }
    if !request.mig.is_empty() {
        if request.count > 0 {
            problems.push(Problem::Contradiction(
                "the pod asks for whole GPUs and for instances of a multi-instance GPU",
            ));
        }
        request.kind = GpuKind::Mig;
    }
    request
}

/// A request for a share of one or several GPUs, by fraction or by memory.
fn share<'o>(given: &impl Fn(&str) -> Option<&'o str>, problems: &mut Vec<Problem>) -> Option<GpuRequest> {
    let memory = read(
        given,
        annotation::GPU_MEMORY,
        "a whole number of MiB above 0",
        problems,
        |text| text.parse().ok().filter(|mib| *mib > 0),
    )
    .map(|mib: i64| mib.min(MOST_GPU_MEMORY));
    let portion = read(
        given,
        annotation::GPU_FRACTION,
        "a number above 0 and at most 1",
        problems,
        portion,
    );
    let mut request = match (portion, memory) {
        (Some(portion), _) => GpuRequest {
            kind: GpuKind::Fraction,
            count: 1,
            portion,
            ..GpuRequest::default()
        },
        (None, Some(memory)) => GpuRequest {
            kind: GpuKind::Memory,
            count: 1,
            memory,
            ..GpuRequest::default()
        },
        (None, None) => return None,
    };
    if let Some(devices) = read(
        given,
        annotation::GPU_FRACTION_NUM_DEVICES,
        "a whole number",
        problems,
        |text| text.parse::<i64>().ok(),
    ) {
        request.count = devices.min(MOST_DEVICES);
        if devices <= 0 {
            problems.push(Problem::Contradiction(
                "the pod asks for a share of no GPU: annotation gpu-fraction-num-devices must be above 0",
            ));
        }
    }
    Some(request)
}

fn read<'o, T>(
    given: &impl Fn(&str) -> Option<&'o str>,
    key: &str,
    expected: &'static str,
    problems: &mut Vec<Problem>,
    parse: impl Fn(&str) -> Option<T>,
) -> Option<T> {
    let text = given(key)?;
    let value = parse(text);
    if value.is_none() {
        problems.push(Problem::Ignored {
            key: key.to_owned(),
            value: text.to_owned(),
            expected,
        });
    }
    value
}

/// A decimal number above 0 and at most 1, in billionths.
fn portion(text: &str) -> Option<i64> {
    let plain = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'+' | b'-' | b'e' | b'E'));
    let amount = text.parse::<Amount>().ok().filter(|_| plain)?;
    i64::try_from(amount.nanos())
        .ok()
        .filter(|portion| (1..=WHOLE).contains(portion))
}

fn legacy_mig(pod: &Pod) -> Vec<(crate::engine::input::Name, i64)> {
    let profiles = pod
        .annotations
        .iter()
        .filter(|(key, _)| key.starts_with(annotation::MIG_PREFIX));
    profiles
        .filter_map(|(key, value)| {
            let count = value.parse().ok().filter(|count| *count > 0)?;
            Some((name(key), MOST_DEVICES.min(count)))
        })
        .collect()
}

#[cfg(test)]
mod tests;
