//! NodeResourceTopology objects → a node's NUMA zones; pods → requests as the kubelet's Topology Manager counts them, and the zones that they are
//! recorded to use.
//!
//! A zone's available amounts lag behind, so they are read only if configured: by default free is allocatable minus the recorded usage of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;

use super::packed::{Container, Pod};
use super::{Entry, Mirror, Output, name, requests};
use crate::api::bind_request::{BindRequest, NumaZone};
use crate::api::names::annotation;
use crate::api::numa::NodeResourceTopology;
use crate::api::quantity::{Amount, Format};
use crate::api::{QuantityMap, numa};
use crate::engine::input::{Event, Name, NumaInput, NumaPolicy, PodNuma, ZoneInput};

impl Entry for NodeResourceTopology {
    type Packed = Self;
    fn changed(topology: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let node = topology.name_any();
        let ignored = mirror.settings.numa.as_ref().filter(|_| there);
        let reported = mirror.settings.zones_as_reported;
        let zones = ignored.and_then(|ignored| read(topology, ignored, reported));
        mirror.zones.put(&node, zones);
        let numa = mirror.zones.of(&node);
        if let Some(known) = mirror.nodes.get_mut(node.as_str())
            && known.numa != numa
        {
            known.numa = numa;
            out.events.push(Event::Node(Box::new(known.clone())));
        }
    }
}

/// Reads a node's zones, without the ignored resources; `reported`: free amounts are those that the agent reports. `None` if it has none.
#[must_use]
pub fn read(topology: &NodeResourceTopology, ignored: &[String], reported: bool) -> Option<NumaInput> {
    let mut zones: Vec<&numa::Zone> = topology.zones.iter().filter(|zone| zone.kind == "Node").collect();
    zones.sort_by_key(|zone| (number(&zone.name).is_none(), number(&zone.name), &zone.name));
    let amounts = |zone: &numa::Zone, of: fn(&numa::ZoneResource) -> &Quantity| -> Vec<(Name, i64)> {
        let aligned = zone
            .resources
            .iter()
            .filter(|resource| !ignored.contains(&resource.name));
        let amount = |resource: &numa::ZoneResource| {
            let amount = Amount::of(of(resource)).ok()?;
            // Differences between free and allocatable amounts are not to overflow.
            let most = requests::MOST;
            Some((name(&resource.name), units(&resource.name, amount).clamp(-most, most)))
        };
        aligned.filter_map(amount).collect()
    };
    let free = zones.iter().filter(|_| reported);
    let free = free.map(|zone| amounts(zone, |resource| &resource.available)).collect();
    let zone = |zone: &&numa::Zone| ZoneInput {
        name: name(&zone.name),
        allocatable: amounts(zone, |resource| &resource.allocatable),
    };
    let (policy, pod_scope) = policy(topology);
    let zones: Vec<ZoneInput> = zones.iter().map(zone).collect();
    (!zones.is_empty()).then_some(NumaInput {
        policy,
        pod_scope,
        zones,
        free,
    })
}

/// The number at the end of a name.
fn number(text: &str) -> Option<u64> {
    let digits = text.len() - text.bytes().rev().take_while(u8::is_ascii_digit).count();
    text.get(digits..)?.parse().ok()
}

fn units(resource: &str, amount: Amount) -> i64 {
    if resource == "cpu" {
        amount.milli()
    } else {
        amount.units()
    }
}

/// The kubelet's policy, and whether its scope is `pod`.
fn policy(topology: &NodeResourceTopology) -> (NumaPolicy, bool) {
    let attribute = |wanted: &str| {
        let found = topology.attributes.iter().find(|attribute| attribute.name == wanted);
        found.map(|attribute| attribute.value.as_str()).unwrap_or_default()
    };
    match attribute("topologyManagerPolicy") {
        "" => match topology
            .topology_policies
            .first()
            .map(String::as_str)
            .unwrap_or_default()
        {
            "SingleNUMANodePodLevel" => (NumaPolicy::SingleNode, true),
            "SingleNUMANodeContainerLevel" => (NumaPolicy::SingleNode, false),
            "RestrictedPodLevel" => (NumaPolicy::Restricted, true),
            "Restricted" | "RestrictedContainerLevel" => (NumaPolicy::Restricted, false),
            "BestEffortPodLevel" => (NumaPolicy::BestEffort, true),
            "BestEffort" | "BestEffortContainerLevel" => (NumaPolicy::BestEffort, false),
            _ => (NumaPolicy::None, false),
        },
        policy => {
            let policy = match policy {
                "single-numa-node" => NumaPolicy::SingleNode,
                "restricted" => NumaPolicy::Restricted,
                "best-effort" => NumaPolicy::BestEffort,
                _ => NumaPolicy::None,
            };
            (policy, attribute("topologyManagerScope") == "pod")
        }
    }
}

/// A pod's requests. `request` is its effective bind request. Overhead and pod-level requests are left out: kubelets do not align them.
#[must_use]
pub fn of_pod(pod: &Pod, request: Option<&BindRequest>) -> PodNuma {
    let guaranteed = pod.guaranteed;
    let asked = |container: &Container| -> Vec<(Name, i64)> {
        let amounts = container.requests.iter().filter_map(|(resource, quantity)| {
            let amount = units(resource, quantity.parse().ok()?);
            let counts = resource != "cpu" || (guaranteed && amount % 1000 == 0);
            (counts && amount > 0).then(|| (name(resource), amount))
        });
        amounts.collect()
    };
    let (mut together, mut alone) = (Vec::new(), Vec::new());
    let (mut sidecars, mut peak) = (Vec::new(), Vec::new());
    for container in &pod.init_containers {
        let own = asked(container);
        if container.stays {
            sidecars = sum(&sidecars, &own);
            together.push(own);
        } else {
            peak = larger(&peak, &sum(&own, &sidecars));
            alone.push(own);
        }
    }
    let mut running = sidecars;
    for own in pod.containers.iter().map(asked) {
        running = sum(&running, &own);
        together.push(own);
    }
    let whole = larger(&running, &peak);
    PodNuma {
        guaranteed,
        record: record(pod, request, &whole),
        whole,
        together,
        alone,
    }
}

fn merge(left: &[(Name, i64)], right: &[(Name, i64)], join: fn(i64, i64) -> i64) -> Vec<(Name, i64)> {
    let mut all = left.to_vec();
    for (name, amount) in right {
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = join(*sum, *amount),
            None => all.push((name.clone(), *amount)),
        }
    }
    all
}

fn sum(left: &[(Name, i64)], right: &[(Name, i64)]) -> Vec<(Name, i64)> {
    merge(left, right, i64::saturating_add)
}

fn larger(left: &[(Name, i64)], right: &[(Name, i64)]) -> Vec<(Name, i64)> {
    merge(left, right, i64::max)
}

/// Amounts by zone.
type Record = Vec<(Name, Vec<(Name, i64)>)>;

/// The zones that a pod uses: as reported on its node, else from its bind request, else as predicted at its bind. Tenants can create pods with these
/// annotations, so nothing is reported before a pod has its node, and one without any amount that the pod requests (`whole`) does not count.
fn record(pod: &Pod, request: Option<&BindRequest>, whole: &[(Name, i64)]) -> Record {
    let annotated = |key: &str| -> Option<Record> {
        let zones: Vec<NumaZone> = serde_json::from_str(pod.annotations.get(key)?).ok()?;
        requested(&zones, whole)
    };
    let observed = || {
        pod.node.as_ref()?;
        annotated(annotation::NUMA_PLACEMENT_OBSERVED)
    };
    let zones = observed()
        .or_else(|| requested(&request?.spec.predicted_numa_zones, whole))
        .or_else(|| annotated(annotation::NUMA_PLACEMENT_PREDICTED));
    zones.unwrap_or_default()
}

/// What zones have of the requests of a pod, up to an amount of which the sum over many pods does not overflow; `None` if nothing.
fn requested(zones: &[NumaZone], whole: &[(Name, i64)]) -> Option<Record> {
    let capped = |(resource, amount): &(Name, i64)| (resource.clone(), (*amount).min(requests::MOST));
    let mut left: Vec<(Name, i64)> = whole.iter().map(capped).collect();
    let mut amounts = |amounts: &QuantityMap| -> Vec<(Name, i64)> {
        let read = amounts.iter().filter_map(|(resource, quantity)| {
            let amount = units(resource, Amount::of(quantity).ok()?);
            let (known, rest) = left.iter_mut().find(|(known, _)| **known == **resource)?;
            let amount = amount.clamp(0, *rest);
            *rest -= amount;
            (amount > 0).then(|| (known.clone(), amount))
        });
        read.collect()
    };
    let zones = zones.iter().map(|zone| (name(&zone.zone), amounts(&zone.amount)));
    let read: Record = zones.collect();
    read.iter().any(|(_, amounts)| !amounts.is_empty()).then_some(read)
}

/// Adds the annotations of a Binding with the predicted zones. An observed placement that may be there before is cleared: no kubelet had the pod then.
pub fn annotate(annotations: &mut BTreeMap<String, String>, predicted: &[NumaZone]) {
    if predicted.is_empty() {
        return;
    }
    if let Ok(zones) = serde_json::to_string(predicted) {
        annotations.insert(annotation::NUMA_PLACEMENT_PREDICTED.to_owned(), zones);
    }
    annotations.insert(annotation::NUMA_PLACEMENT_OBSERVED.to_owned(), "[]".to_owned());
}

/// Zones as bind requests and annotations write them.
#[must_use]
pub fn zones(placed: &[(Name, Vec<(Name, i64)>)]) -> Vec<NumaZone> {
    let quantity = |(resource, amount): &(Name, i64)| {
        let amount = if **resource == *"cpu" {
            Amount::from_milli(*amount)
        } else {
            Amount::from_units(*amount)
        };
        (resource.to_string(), amount.to_quantity(Format::DecimalSi))
    };
    let zone = |(zone, amounts): &(Name, Vec<(Name, i64)>)| NumaZone {
        zone: zone.to_string(),
        amount: amounts.iter().map(quantity).collect(),
    };
    placed.iter().map(zone).collect()
}

/// The zones of all nodes.
#[derive(Debug, Default)]
pub struct Zones(BTreeMap<Box<str>, Arc<NumaInput>>);

impl Zones {
    /// Those of a node.
    #[must_use]
    pub fn of(&self, node: &str) -> Option<Arc<NumaInput>> {
        self.0.get(node).cloned()
    }

    /// Records a node's zones.
    pub fn put(&mut self, node: &str, zones: Option<NumaInput>) {
        match zones {
            Some(zones) => drop(self.0.insert(node.into(), Arc::new(zones))),
            None => drop(self.0.remove(node)),
        }
    }
}

#[cfg(test)]
mod tests;
