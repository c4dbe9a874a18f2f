//! Free resources of each NUMA zone of a node: now, and once releasing pods have gone and pipelined ones run.
//!
//! Where an agent on the node reports what is free, its last report counts, less what pods use that were placed since: what others use is in the report.

use std::sync::Arc;

use crate::engine::input::{Name, NumaInput, NumaPolicy, PodNuma, ZoneInput};

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
    /// What is reported as free; `None`: what the pods are recorded to use is subtracted instead.
    reported: Vec<Vec<Option<i64>>>,
    /// What pods that the report includes are recorded to use.
    included: Vec<Vec<i64>>,
    /// The number of the report; 0 without one.
    pub report: u64,
    /// Free now.
    pub now: Vec<Vec<i64>>,
    /// Free later.
    pub later: Vec<Vec<i64>>,
}

impl Ledger {
    /// The zones of an empty node. `report`: a number that no report had before, if these are reported.
    #[must_use]
    pub fn of(input: &Arc<NumaInput>, report: u64) -> Self {
        let mut resources: Vec<Name> = input
            .zones
            .iter()
            .flat_map(|zone| zone.allocatable.iter().map(|(name, _)| name.clone()))
            .collect();
        resources.sort();
        resources.dedup();
        let in_zone = |zone: &ZoneInput| -> Vec<i64> {
            let amounts = resources.iter().map(|name| amount_of(&zone.allocatable, name));
            amounts.map(Option::unwrap_or_default).collect()
        };
        let allocatable: Vec<Vec<i64>> = input.zones.iter().map(in_zone).collect();
        let reported = |(zone, most): (usize, &Vec<i64>)| -> Vec<Option<i64>> {
            let free = input.free.get(zone);
            let free = |name: &Name| free.and_then(|free| amount_of(free, name));
            let amounts = resources.iter().map(free).zip(most);
            amounts.map(|(free, most)| free.map(|free| free.min(*most))).collect()
        };
        let reported: Vec<Vec<Option<i64>>> = allocatable.iter().enumerate().map(reported).collect();
        let mut now = allocatable.clone();
        for (free, reported) in now.iter_mut().flatten().zip(reported.iter().flatten()) {
            *free = reported.unwrap_or(*free);
        }
        Self {
            input: input.clone(),
            report: if input.free.is_empty() { 0 } else { report },
            resources,
            included: now.iter().map(|zone| vec![0; zone.len()]).collect(),
            later: now.clone(),
            now,
            allocatable,
            reported,
        }
    }

    /// What is free later, or (`now`) both now and later. No more than there is, or than was reported.
    #[must_use]
    pub fn free(&self, now: bool) -> Vec<Vec<i64>> {
        let mut free = self.later.clone();
        let most = self.allocatable.iter().flatten();
        for (free, most) in free.iter_mut().flatten().zip(most) {
            *free = (*free).min(*most);
        }
        if now {
            let most = self.now.iter().flatten().zip(self.reported.iter().flatten());
            for (free, (now, reported)) in free.iter_mut().flatten().zip(most) {
                *free = (*free).min(*now).min(reported.unwrap_or(*now));
            }
        }
        free
    }

    /// The position of a resource.
    #[must_use]
    pub fn resource(&self, name: &Name) -> Option<usize> {
        self.resources.binary_search(name).ok()
    }

    /// The position of a resource in the zone of a share.
    fn position(&self, share: &ZoneShare, name: &Name) -> Option<usize> {
        self.resource(name).filter(|_| share.zone < self.now.len())
    }

    /// Takes (`sign` 1) or returns (-1) what a pod uses. `after`: the last report when a decision placed it.
    pub fn account(&mut self, shares: &[ZoneShare], after: u64, weight: Weight, sign: i64) {
        let was_there = weight != Weight::Planned && after != self.report;
        for share in shares {
            for (name, amount) in &share.amounts {
                let Some(at) = self.position(share, name) else { continue };
                let in_report = was_there && self.reported[share.zone][at].is_some();
                if in_report {
                    self.included[share.zone][at] += sign * amount;
                }
                let (now, later): (i64, i64) = match weight {
                    Weight::Staying if in_report => (0, 0),
                    Weight::Leaving if in_report => (0, -1),
                    Weight::Staying => (1, 1),
                    Weight::Leaving => (1, 0),
                    Weight::Planned => (0, 1),
                };
                self.now[share.zone][at] -= now * sign * amount;
                self.later[share.zone][at] -= later * sign * amount;
            }
        }
    }

    /// A pod is gone that the last report includes; `account` has returned what it used. Pods placed since the report may use that amount without a further
    /// report: if one pod ends and an equal one starts, the free amounts stay the same, and the agent reports nothing. It is limited to what the report counts
    /// as used beyond the records of the remaining pods, since the agent may have noticed the end before the report. If the pod was `leaving`, all of it stays
    /// free later, so that no further pod is evicted for those that wait for it.
    pub fn gone(&mut self, shares: &[ZoneShare], leaving: bool) {
        for share in shares {
            for (name, amount) in &share.amounts {
                let Some(at) = self.position(share, name) else { continue };
                let Some(reported) = self.reported[share.zone][at] else {
                    continue;
                };
                let used = self.allocatable[share.zone][at] - reported;
                let room = (used - self.included[share.zone][at]).min(*amount).max(0);
                self.now[share.zone][at] += room;
                self.later[share.zone][at] += if leaving { *amount } else { room };
            }
        }
    }

    /// Whether the zones have what these shares need, later.
    #[must_use]
    pub fn suffices(&self, shares: &[ZoneShare]) -> bool {
        shares.iter().all(|share| {
            let enough = |(name, _): &(Name, i64)| {
                let at = self.position(share, name);
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

fn amount_of(amounts: &[(Name, i64)], name: &Name) -> Option<i64> {
    let found = amounts.iter().find(|(other, _)| other == name);
    found.map(|(_, amount)| *amount)
}
