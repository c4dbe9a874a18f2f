//! The annotation of a pod: how much of its resources is in which zone.

use std::collections::BTreeMap;

use super::cpus::Cpus;
use super::kubelet::{PodResources, TopologyInfo};
use crate::api::bind_request::NumaZone;
use crate::api::quantity::{Amount, Format};

/// The annotation of a pod; `None` if none of its resources is in a single zone. Zones are in the order of their names.
#[must_use]
pub fn of(pod: &PodResources, cpus: &Cpus) -> Option<String> {
    let mut zones: BTreeMap<String, BTreeMap<&str, i64>> = BTreeMap::new();
    let mut add = |zone: i64, resource, amount: i64| {
        let sum = zones
            .entry(format!("node-{zone}"))
            .or_default()
            .entry(resource)
            .or_default();
        *sum = sum.saturating_add(amount);
    };
    for container in &pod.containers {
        for devices in &container.devices {
            let count = i64::try_from(devices.device_ids.len()).unwrap_or(i64::MAX);
            if let (Some(zone), true) = (only_zone(devices.topology.as_ref()), count > 0) {
                add(zone, &*devices.resource_name, count);
            }
        }
        for zone in container.cpu_ids.iter().filter_map(|cpu| cpus.get(cpu)) {
            add(*zone, "cpu", 1);
        }
        for block in container.memory.iter().filter(|block| block.size > 0) {
            if let Some(zone) = only_zone(block.topology.as_ref()) {
                add(zone, &*block.memory_type, i64::try_from(block.size).unwrap_or(i64::MAX));
            }
        }
    }
    let zone = |(zone, amounts): (String, BTreeMap<&str, i64>)| NumaZone {
        zone,
        amount: amounts
            .into_iter()
            .map(|(resource, amount)| {
                let quantity = Amount::from_units(amount).to_quantity(Format::DecimalSi);
                (resource.to_owned(), quantity)
            })
            .collect(),
    };
    let zones: Vec<NumaZone> = zones.into_iter().map(zone).collect();
    (!zones.is_empty()).then(|| serde_json::to_string(&zones).ok())?
}

/// The zone of resources that are in a single one.
fn only_zone(topology: Option<&TopologyInfo>) -> Option<i64> {
    match &*topology?.nodes {
        [zone] if zone.id >= 0 => Some(zone.id),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::kubelet::{ContainerDevices, ContainerMemory, ContainerResources, NumaNode};
    use super::*;

    fn zones(ids: &[i64]) -> Option<TopologyInfo> {
        let nodes = ids.iter().map(|id| NumaNode { id: *id }).collect();
        Some(TopologyInfo { nodes })
    }

    fn gpus(count: usize, topology: Option<TopologyInfo>) -> ContainerDevices {
        ContainerDevices {
            resource_name: "nvidia.com/gpu".to_owned(),
            device_ids: (0..count).map(|device| format!("GPU-{device}")).collect(),
            topology,
        }
    }

    fn memory(kind: &str, size: u64, topology: Option<TopologyInfo>) -> ContainerMemory {
        ContainerMemory {
            memory_type: kind.to_owned(),
            size,
            topology,
        }
    }

    /// The annotation of a pod with these containers, on a node with the CPUs 0 to 3 in zone 0 and 4 to 7 in zone 10.
    fn written(containers: Vec<ContainerResources>) -> Option<String> {
        let cpus = (0..8).map(|cpu| (cpu, if cpu < 4 { 0 } else { 10 })).collect();
        let pod = PodResources {
            name: "pod".to_owned(),
            namespace: "team".to_owned(),
            containers,
        };
        of(&pod, &cpus)
    }

    #[test]
    fn amounts_are_summed_up_by_zone() {
        let first = ContainerResources {
            devices: vec![gpus(1, zones(&[0])), gpus(1, zones(&[0])), gpus(1, zones(&[2]))],
            cpu_ids: vec![0, 1, 4],
            memory: vec![memory("memory", 1 << 30, zones(&[0]))],
            ..ContainerResources::default()
        };
        let second = ContainerResources {
            cpu_ids: vec![2],
            memory: vec![
                memory("memory", 1, zones(&[0])),
                memory("hugepages-2Mi", 2 << 20, zones(&[10])),
            ],
            ..ContainerResources::default()
        };
        let expected = concat!(
            r#"[{"zone":"node-0","amount":{"cpu":"3","memory":"1073741825","nvidia.com/gpu":"2"}},"#,
            r#"{"zone":"node-10","amount":{"cpu":"1","hugepages-2Mi":"2097152"}},"#,
            r#"{"zone":"node-2","amount":{"nvidia.com/gpu":"1"}}]"#
        );
        assert_eq!(written(vec![first, second]).as_deref(), Some(expected));
    }

    #[test]
    fn devices_in_no_zone_or_in_several_are_left_out() {
        let container = ContainerResources {
            devices: vec![
                gpus(2, zones(&[0, 1])),
                gpus(2, None),
                gpus(2, zones(&[])),
                gpus(0, zones(&[0])),
                gpus(1, zones(&[-1])),
            ],
            cpu_ids: vec![99, -1],
            memory: vec![
                memory("memory", 0, zones(&[0])),
                memory("memory", 8, zones(&[0, 1])),
                memory("memory", 8, None),
            ],
            ..ContainerResources::default()
        };
        assert_eq!(written(vec![container]), None);
        assert_eq!(written(Vec::new()), None);
    }

    #[test]
    fn absurd_amounts_are_handled() {
        let block = || memory("memory", u64::MAX, zones(&[0]));
        let container = ContainerResources {
            memory: vec![block(), block()],
            ..ContainerResources::default()
        };
        assert!(written(vec![container]).is_some());
    }
}
