//! Device locality: how close together the devices of a pod are, by their NUMA node, PCIe root, or a driver's own attribute for an island of
//! faster links.
//!
//! Devices agree in an attribute if all of them have it with one value. Agreement in a more important attribute outweighs that in all less important ones;
//! devices without any of the attributes are ignored.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::engine::input::Name;
use crate::engine::input::devices::{AllocationInput, Attribute};
use crate::engine::model::Model;
use crate::engine::model::devices::{Allocation, LATER, NOW};
use crate::engine::model::ids::{DeviceId, PodId};
use crate::engine::policy::DEVICE_LOCALITY_MOST as MOST;

use super::{DeviceDemand, When};

/// A device's values.
type LocalityValues<'a> = SmallVec<[Option<&'a Attribute>; MOST]>;

fn attributes(model: &Model) -> &[Name] {
    let all = model.devices().locality();
    &all[..all.len().min(MOST)]
}

/// A device's locality values; `None` if it has none.
fn locality_values(model: &Model, device: DeviceId) -> Option<LocalityValues<'_>> {
    let offer = model.devices().devices[device].offer.as_ref()?;
    let values: LocalityValues = attributes(model).iter().map(|name| offer.attribute(name)).collect();
    values.iter().any(Option::is_some).then_some(values)
}

/// The attributes of a subset, the most important of which is its highest bit.
fn chosen(model: &Model, subset: usize) -> impl Iterator<Item = usize> + use<> {
    let count = attributes(model).len();
    (0..count).filter(move |at| subset >> (count - 1 - at) & 1 == 1)
}

/// Attributes in which devices agree, as a bit mask with the most important one highest. 0 for fewer than two devices with locality attributes.
#[must_use]
fn closeness(model: &Model, devices: &[DeviceId]) -> usize {
    let all_values: SmallVec<[LocalityValues; 8]> = devices
        .iter()
        .filter_map(|device| locality_values(model, *device))
        .collect();
    let [first, others @ ..] = &*all_values else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let agree = |at: usize| first[at].is_some() && others.iter().all(|other| other[at] == first[at]);
    (0..attributes(model).len()).fold(0, |bits, at| bits << 1 | usize::from(agree(at)))
}

/// The closeness of new devices together with those that the claims keep.
#[must_use]
pub fn closeness_of<'a>(
    model: &Model,
    fresh: impl Iterator<Item = &'a AllocationInput>,
    kept: impl Iterator<Item = &'a Allocation>,
) -> usize {
    let fresh = fresh.flat_map(|given| &given.results);
    let fresh = fresh.filter_map(|result| model.devices().named(result));
    let kept = kept.flat_map(|kept| kept.devices.iter().copied());
    let devices: SmallVec<[DeviceId; 8]> = fresh.chain(kept).collect();
    closeness(model, &devices)
}

/// The largest possible closeness.
#[must_use]
pub fn closest(model: &Model) -> usize {
    (1 << attributes(model).len()) - 1
}

/// Whether locality applies to these claims: they request more than one device, by number, without alternatives, whose order would matter more.
#[must_use]
pub fn concerns(model: &Model, asks: &[DeviceDemand], kept: &[&Allocation]) -> bool {
    if attributes(model).is_empty() {
        return false;
    }
    let mut devices: usize = kept.iter().map(|kept| kept.devices.len()).sum();
    for request in asks.iter().flat_map(|ask| ask.requests) {
        match &*request.options {
            [only] if !only.admin => match only.count {
                Some(count) => devices += count,
                None => return false,
            },
            _ => return false,
        }
    }
    devices > 1
}

/// Sets of devices that agree in some attribute, each with its closeness, best first: by importance of the attributes, then by how few devices are
/// free, so that large sets stay whole. Devices without locality attributes come last in each set.
#[must_use]
pub fn neighbourhoods(
    model: &Model,
    all: &[DeviceId],
    kept: &[&Allocation],
    when: When,
) -> Vec<(usize, Vec<DeviceId>)> {
    let at = if when == When::Now { NOW } else { LATER };
    let all_values: Vec<Option<LocalityValues>> = all.iter().map(|device| locality_values(model, *device)).collect();
    let kept: SmallVec<[LocalityValues; 4]> = kept
        .iter()
        .flat_map(|kept| &kept.devices)
        .filter_map(|device| locality_values(model, *device))
        .collect();
    let mut found = Vec::new();
    for subset in (1..=closest(model)).rev() {
        let key = |values: &LocalityValues| -> Option<SmallVec<[usize; MOST]>> {
            chosen(model, subset)
                .map(|at| {
                    let value = values[at]?;
                    all_values.iter().flatten().position(|other| other[at] == Some(value))
                })
                .collect()
        };
        // By first occurrence of each value, so that equal sets are tried in the order of devices.
        let mut sets: BTreeMap<SmallVec<[usize; MOST]>, usize> = BTreeMap::new();
        for (device, values) in all.iter().zip(&all_values) {
            if let Some(key) = values.as_ref().and_then(key) {
                *sets.entry(key).or_default() += usize::from(!model.devices().devices[*device].in_use(at));
            }
        }
        let with_kept = |set: &SmallVec<[usize; MOST]>| kept.iter().all(|values| key(values).as_ref() == Some(set));
        let mut sets: Vec<_> = sets.into_iter().filter(|(set, _)| with_kept(set)).collect();
        sets.sort_by_key(|(_, free)| *free);
        for (set, _) in sets {
            let pairs = all.iter().zip(&all_values);
            let near = pairs
                .clone()
                .filter(|(_, values)| values.as_ref().is_some_and(|values| key(values).as_ref() == Some(&set)));
            let silent = pairs.filter(|(_, values)| values.is_none());
            let members = near.chain(silent).map(|(device, _)| *device).collect();
            found.push((subset, members));
        }
    }
    found
}

/// Whether nodes are scored by device locality for a pod.
#[must_use]
pub fn counts(model: &Model, pod: PodId) -> bool {
    let pod = &model.pods()[pod].input;
    let Some(claims) = pod.claims.as_ref().filter(|_| !attributes(model).is_empty()) else {
        return false;
    };
    let named = claims.named.iter().filter_map(|named| {
        let id = model.devices().claims.find(named.claim.as_ref()?)?;
        model.devices().claims[id].input.as_deref()
    });
    let named = named.flat_map(|claim| claim.requests.iter());
    let extended = claims.extended.iter().flat_map(|extended| &extended.wanted);
    let requests = named.chain(extended.flat_map(|(.., requests)| requests));
    let devices = requests.map(|request| request.options.iter().map(|option| option.count.unwrap_or(2)).max());
    devices.flatten().sum::<usize>() > 1
}

#[cfg(test)]
mod tests;
