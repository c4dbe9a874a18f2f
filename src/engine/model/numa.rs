//! Free resources of each NUMA zone of a node: now, and once releasing pods have gone and pipelined ones run.

use std::sync::Arc;

use crate::engine::input::{Name, NumaInput, NumaPolicy, PodNuma};

use super::weight::Weight;

/// Whether a resource is a device, and not cpu, memory or huge pages.
#[must_use]
pub fn is_device(resource: &str) -> bool {
    resource != "cpu" && resource != "memory" && !resource.starts_with("hugepages-")
}

/// What a pod takes from a zone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ZoneShare {
    /// The zone, by number.
    pub zone: usize,
    /// Amounts by resource.
    pub amounts: Vec<(Name, i64)>,
}

/// The zones of a node.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// What is known about them.
    pub input: Arc<NumaInput>,
    /// Resources that zones are known to have.
    pub resources: Vec<Name>,
    /// By zone and resource.
    pub allocatable: Vec<Vec<i64>>,
    /// Free now.
    pub now: Vec<Vec<i64>>,
    /// Free later.
    pub later: Vec<Vec<i64>>,
}

impl Ledger {
    /// The zones of an empty node.
    #[must_use]
    pub fn of(input: &Arc<NumaInput>) -> Self {
        let mut resources: Vec<Name> = input
            .zones
            .iter()
            .flat_map(|zone| zone.allocatable.iter().map(|(name, _)| name.clone()))
            .collect();
        resources.sort();
        resources.dedup();
        let amount = |zone: usize, name: &Name| {
            let found = input.zones[zone].allocatable.iter().find(|(other, _)| other == name);
            found.map_or(0, |(_, amount)| *amount)
        };
        let allocatable: Vec<Vec<i64>> = (0..input.zones.len())
            .map(|zone| resources.iter().map(|name| amount(zone, name)).collect())
            .collect();
        Self {
            input: input.clone(),
            resources,
            now: allocatable.clone(),
            later: allocatable.clone(),
            allocatable,
        }
    }

    /// Sets the free amounts that the agent on the node reports. Call while its pods are counted; later changes start from these amounts.
    pub fn as_reported(&mut self) {
        let input = Arc::clone(&self.input);
        for (zone, free) in input.free.iter().enumerate().take(self.now.len()) {
            for (name, free) in free {
                let Some(at) = self.resource(name) else { continue };
                let difference = free - self.now[zone][at];
                self.now[zone][at] += difference;
                self.later[zone][at] += difference;
            }
        }
    }

    /// The position of a resource.
    #[must_use]
    pub fn resource(&self, name: &Name) -> Option<usize> {
        self.resources.binary_search(name).ok()
    }

    /// Takes (`sign` 1) or returns (-1) what a pod uses.
    pub fn account(&mut self, shares: &[ZoneShare], weight: Weight, sign: i64) {
        for share in shares {
            for (name, amount) in &share.amounts {
                let Some(at) = self.resource(name).filter(|_| share.zone < self.now.len()) else {
                    continue;
                };
                if weight != Weight::Planned {
                    self.now[share.zone][at] -= sign * amount;
                }
                if weight != Weight::Leaving {
                    self.later[share.zone][at] -= sign * amount;
                }
            }
        }
    }

    /// Whether the zones have what these shares need, later.
    #[must_use]
    pub fn suffices(&self, shares: &[ZoneShare]) -> bool {
        shares.iter().all(|share| {
            let enough = |(name, _): &(Name, i64)| {
                let at = self.resource(name).filter(|_| share.zone < self.later.len());
                at.is_none_or(|at| self.later[share.zone][at] >= 0)
            };
            share.amounts.iter().all(enough)
        })
    }

    /// Whether the kubelet aligns this pod to zones: all its resources, or its devices.
    #[must_use]
    pub fn aligns(&self, pod: &PodNuma) -> bool {
        let device = |(name, amount): &(Name, i64)| *amount > 0 && is_device(name) && self.resource(name).is_some();
        self.input.policy != NumaPolicy::None && (pod.guaranteed || pod.whole.iter().any(device))
    }

    /// A recorded placement by zone names; nothing if it names a zone that is not there.
    #[must_use]
    pub fn recorded(&self, record: &[(Name, Vec<(Name, i64)>)]) -> Vec<ZoneShare> {
        let share = |(zone, amounts): &(Name, Vec<(Name, i64)>)| {
            let zone = self.input.zones.iter().position(|known| known.name == *zone)?;
            Some(ZoneShare {
                zone,
                amounts: amounts.clone(),
            })
        };
        let mut shares: Vec<ZoneShare> = record.iter().map(share).collect::<Option<_>>().unwrap_or_default();
        shares.sort_by_key(|share| share.zone);
        shares
    }
}
