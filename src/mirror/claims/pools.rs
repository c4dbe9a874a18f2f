//! Resource slices → pools of devices: the newest generation of each pool, if complete.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::NodeSelector;
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, Counter, Device, DeviceAttribute, DeviceCapacity, DeviceTaint, ResourceSlice,
    ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;

use super::cel::{Subject, parts};
use crate::api::quantity::Amount;
use crate::engine::input::devices::{Attribute, Capacity, CapacityPolicy, DeviceInput, PoolInput, Reach, is_gpu};
use crate::engine::input::{Name, Taint, TaintEffect};
use crate::mirror::{constraints, name};

/// The driver and name of a pool.
pub type PoolKey = (Name, Name);

/// All slices, by pool and name.
#[derive(Default)]
pub struct Slices {
    by_pool: BTreeMap<PoolKey, BTreeMap<String, Arc<ResourceSlice>>>,
    pool_of: BTreeMap<String, PoolKey>,
    /// GPUs per node, and what each pool adds to them.
    gpus: BTreeMap<Name, i64>,
    counted: BTreeMap<PoolKey, BTreeMap<Name, i64>>,
}

impl Slices {
    /// Records a slice. Returns the pools that changed.
    pub fn put(&mut self, slice: Arc<ResourceSlice>) -> BTreeSet<PoolKey> {
        let mut changed = self.remove(&slice.name_any());
        let key = pool_of(&slice);
        self.pool_of.insert(slice.name_any(), key.clone());
        let of_pool = self.by_pool.entry(key.clone()).or_default();
        of_pool.insert(slice.name_any(), slice);
        changed.insert(key);
        changed
    }

    /// Removes a slice.
    pub fn remove(&mut self, slice: &str) -> BTreeSet<PoolKey> {
        let Some(key) = self.pool_of.remove(slice) else {
            return BTreeSet::new();
        };
        if let Some(of_pool) = self.by_pool.get_mut(&key) {
            of_pool.remove(slice);
            if of_pool.is_empty() {
                self.by_pool.remove(&key);
            }
        }
        BTreeSet::from([key])
    }

    /// The pools that a slice is or will be part of.
    #[must_use]
    pub fn pools_of(&self, slice: &ResourceSlice) -> BTreeSet<PoolKey> {
        let known = self.pool_of.get(&slice.name_any()).cloned();
        known.into_iter().chain([pool_of(slice)]).collect()
    }

    /// Recounts a pool's GPUs. Returns the nodes whose number changed, with the difference.
    pub fn count(&mut self, key: &PoolKey) -> Vec<(Name, i64)> {
        let mut fresh: BTreeMap<Name, i64> = BTreeMap::new();
        if is_gpu(&key.0) {
            for slice in self.newest(key) {
                let devices = slice.spec.devices.iter().flatten();
                for device in devices {
                    if let Some(node) = node_of(&slice.spec, device) {
                        *fresh.entry(name(node)).or_default() += 1;
                    }
                }
            }
        }
        let before = if fresh.is_empty() {
            self.counted.remove(key)
        } else {
            self.counted.insert(key.clone(), fresh.clone())
        };
        let before = before.unwrap_or_default();
        let nodes: BTreeSet<&Name> = before.keys().chain(fresh.keys()).collect();
        let mut changed = Vec::new();
        for node in nodes {
            let more = fresh.get(node).unwrap_or(&0) - before.get(node).unwrap_or(&0);
            if more == 0 {
                continue;
            }
            changed.push((node.clone(), more));
            let gpus = self.gpus.entry(node.clone()).or_default();
            *gpus += more;
            if *gpus == 0 {
                self.gpus.remove(node);
            }
        }
        changed
    }

    /// GPUs that slices offer on a node.
    #[must_use]
    pub fn gpus_on(&self, node: &str) -> i64 {
        self.gpus.get(node).copied().unwrap_or(0)
    }

    /// Slices of a pool's newest generation, in order of their names.
    fn newest(&self, key: &PoolKey) -> Vec<&Arc<ResourceSlice>> {
        let slices = self.by_pool.get(key).into_iter().flat_map(BTreeMap::values);
        let newest = slices.clone().map(|slice| slice.spec.pool.generation).max();
        slices
            .filter(|slice| Some(slice.spec.pool.generation) == newest)
            .collect()
    }

    /// A pool's input; `None` if it has no slices.
    #[must_use]
    pub fn read(&self, key: &PoolKey) -> Option<PoolInput> {
        let slices = self.newest(key);
        let first = slices.first()?;
        let mut counters = Counters::default();
        for slice in &slices {
            for set in slice.spec.shared_counters.iter().flatten() {
                for (counter, value) in &set.counters {
                    counters.add(&set.name, counter, value);
                }
            }
        }
        let all = slices.iter().flat_map(|slice| {
            let devices = slice.spec.devices.iter().flatten();
            devices.map(|device| (&slice.spec, device))
        });
        let mut names = BTreeSet::new();
        let mut twice = false;
        let devices = all.map(|(spec, device)| {
            twice |= !names.insert(&device.name);
            read_device(spec, device, &counters)
        });
        let devices: Vec<DeviceInput> = devices.collect();
        let complete = slices.len() as i64 == first.spec.pool.resource_slice_count;
        Some(PoolInput {
            driver: key.0.clone(),
            pool: key.1.clone(),
            // Two devices of one name: a reference to one would be ambiguous.
            complete: complete && !twice,
            counters: counters.values,
            devices,
        })
    }

    /// The devices of a pool as selectors see them, in the order of [`Slices::read`].
    #[must_use]
    pub fn subjects(&self, key: &PoolKey) -> Vec<Subject> {
        let slices = self.newest(key);
        let subjects = devices(slices).map(|device| Subject::new(&key.0, device));
        subjects.collect()
    }

    /// The slices that [`Slices::read`] reads.
    #[must_use]
    pub fn shown(&self, key: &PoolKey) -> Vec<Arc<ResourceSlice>> {
        self.newest(key).into_iter().cloned().collect()
    }

    /// Takes over the results of selectors for devices that these see as before, in the pool that was read from the slices of then. Returns whether there are
    /// other devices.
    pub fn take_over(
        &self,
        key: &PoolKey,
        then: &[Arc<ResourceSlice>],
        before: Option<&PoolInput>,
        pool: &mut PoolInput,
    ) -> bool {
        let known: BTreeMap<&str, (&Device, &DeviceInput)> = devices(then)
            .zip(before.into_iter().flat_map(|pool| &pool.devices))
            .map(|(device, input)| (&*device.name, (device, input)))
            .collect();
        let slices = self.newest(key);
        let mut others = false;
        for (device, input) in devices(slices).zip(&mut pool.devices) {
            match known.get(&*device.name) {
                Some((known, results)) if looks_alike(known, device) => {
                    input.meets.clone_from(&results.meets);
                    input.fails.clone_from(&results.fails);
                }
                _ => others = true,
            }
        }
        others
    }
}

fn pool_of(slice: &ResourceSlice) -> PoolKey {
    (name(&slice.spec.driver), name(&slice.spec.pool.name))
}

fn devices<'s>(slices: impl IntoIterator<Item = &'s Arc<ResourceSlice>>) -> impl Iterator<Item = &'s Device> {
    let slices = slices.into_iter();
    slices.flat_map(|slice| slice.spec.devices.iter().flatten())
}

/// Whether two devices of one driver are equal in all that [`Subject`] has.
fn looks_alike(one: &Device, other: &Device) -> bool {
    one.allow_multiple_allocations == other.allow_multiple_allocations
        && one.attributes == other.attributes
        && one.capacity == other.capacity
}

/// Shared counters, by set and name.
#[derive(Default)]
struct Counters<'s> {
    positions: BTreeMap<(&'s str, &'s str), usize>,
    values: Vec<i128>,
}

impl<'s> Counters<'s> {
    fn add(&mut self, set: &'s str, counter: &'s str, value: &Counter) {
        let amount = nanos(&value.value).unwrap_or(0);
        self.positions.entry((set, counter)).or_insert_with(|| {
            self.values.push(amount);
            self.values.len() - 1
        });
    }
}

fn nanos(quantity: &Quantity) -> Option<i128> {
    Amount::of(quantity).ok().map(Amount::nanos)
}

/// The one node from which a device can be used.
fn node_of<'s>(spec: &'s ResourceSliceSpec, device: &'s Device) -> Option<&'s str> {
    let node = if spec.per_device_node_selection == Some(true) {
        device.node_name.as_deref()
    } else {
        spec.node_name.as_deref()
    };
    node.filter(|node| !node.is_empty())
}

fn reach(spec: &ResourceSliceSpec, device: &Device) -> Option<Reach> {
    if let Some(node) = node_of(spec, device) {
        return Some(Reach::Node(name(node)));
    }
    let (all, selector) = if spec.per_device_node_selection == Some(true) {
        (device.all_nodes, &device.node_selector)
    } else {
        (spec.all_nodes, &spec.node_selector)
    };
    if all == Some(true) {
        return Some(Reach::All);
    }
    selector.as_ref().map(|selector| Reach::Selected(terms(selector)))
}

/// The terms of a node selector, without those that match nothing.
#[must_use]
pub fn terms(selector: &NodeSelector) -> Vec<crate::engine::input::NodeTerm> {
    selector
        .node_selector_terms
        .iter()
        .filter_map(constraints::term)
        .collect()
}

/// Reads a device. One with unsupported features is never allocated.
fn read_device(spec: &ResourceSliceSpec, device: &Device, counters: &Counters) -> DeviceInput {
    let driver = &spec.driver;
    let reach = reach(spec, device);
    let mut usable = reach.is_some() && device.binding_conditions.iter().flatten().next().is_none();
    let mut draws = Vec::new();
    for consumption in device.consumes_counters.iter().flatten() {
        for (counter, value) in &consumption.counters {
            let position = counters
                .positions
                .get(&(consumption.counter_set.as_str(), counter.as_str()));
            match (position, nanos(&value.value)) {
                (Some(position), Some(amount)) => draws.push((*position, amount)),
                _ => usable = false,
            }
        }
    }
    let full = |short: &str| {
        let (domain, id) = parts(driver, short);
        Name::from(format!("{domain}/{id}"))
    };
    let mut attributes: Vec<_> = device
        .attributes
        .iter()
        .flatten()
        .filter_map(|(short, value)| Some((full(short), attribute(value)?)))
        .collect();
    attributes.sort();
    let mut capacities: Vec<(Name, Capacity)> = Vec::new();
    for (short, value) in device.capacity.iter().flatten() {
        match capacity(value) {
            Some(capacity) => capacities.push((name(short), capacity)),
            None => usable = false,
        }
    }
    capacities.sort_by(|left, right| left.0.cmp(&right.0));
    let hard = |taint: &DeviceTaint| {
        Some(Taint {
            key: name(&taint.key),
            value: name(taint.value.as_deref().unwrap_or_default()),
            effect: match taint.effect.as_str() {
                "NoSchedule" => TaintEffect::NoSchedule,
                "NoExecute" => TaintEffect::NoExecute,
                _ => return None,
            },
        })
    };
    DeviceInput {
        name: name(&device.name),
        reach: reach.unwrap_or(Reach::Selected(Vec::new())),
        binds: device.binds_to_node == Some(true),
        usable,
        gpu: is_gpu(driver),
        multi: device.allow_multiple_allocations == Some(true),
        attributes,
        capacities,
        draws,
        taints: device.taints.iter().flatten().filter_map(hard).collect(),
        meets: Vec::new(),
        fails: Vec::new(),
    }
}

fn attribute(attribute: &DeviceAttribute) -> Option<Attribute> {
    let text = attribute.string.as_ref().map(|text| Attribute::Text(name(text)));
    let version = attribute.version.as_ref().map(|text| Attribute::Version(name(text)));
    let truth = attribute.bool.map(Attribute::Bool);
    truth.or(attribute.int.map(Attribute::Int)).or(text).or(version)
}

fn capacity(capacity: &DeviceCapacity) -> Option<Capacity> {
    let policy = |policy: &CapacityRequestPolicy| {
        let all = |quantity: &Option<Quantity>| match quantity {
            Some(quantity) => nanos(quantity).map(Some),
            None => Some(None),
        };
        let range = match &policy.valid_range {
            Some(range) => Some((nanos(&range.min)?, all(&range.max)?, all(&range.step)?)),
            None => None,
        };
        let values = policy.valid_values.iter().flatten().map(nanos);
        let mut values = values.collect::<Option<Vec<i128>>>()?;
        values.sort_unstable();
        Some(CapacityPolicy {
            default: all(&policy.default)?,
            range,
            values,
        })
    };
    let policy = match &capacity.request_policy {
        Some(given) => Some(policy(given)?),
        None => None,
    };
    Some(Capacity {
        value: nanos(&capacity.value)?,
        policy,
    })
}

#[cfg(test)]
mod tests;
