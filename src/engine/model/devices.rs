//! Devices of dynamic resource allocation: what pools publish, and what is allocated of it now and later.
//!
//! Allocations of claims take devices, see `claims`. The figures here are sums over allocations, so they do not depend on the order of changes.

pub mod claims;
pub mod searches;

use std::collections::BTreeMap;

use crate::engine::input::devices::{AllocationInput, DeviceInput, PoolInput, Reach, ResultInput};
use crate::engine::input::{Name, Table};

use super::arena::Arena;
use super::ids::{ClaimId, DeviceId, PodId, PoolId};
use claims::{Claims, Grant};
use searches::Searches;

/// Figures for now, and for later: once releasing pods have gone and pipelined pods run.
pub type Both<T> = [T; 2];

/// Position in [`Both`]: now.
pub const NOW: usize = 0;
/// Position in [`Both`]: later.
pub const LATER: usize = 1;

/// A pool.
#[derive(Debug)]
pub struct Pool {
    /// Its driver and its name.
    pub key: (Name, Name),
    /// While false, nothing is allocated from it.
    pub complete: bool,
    /// Shared counters: capacity, and what devices consume.
    pub counters: Vec<(i128, Both<i128>)>,
    /// Devices by name, also those that are not published and that an allocation names.
    devices: BTreeMap<Name, DeviceId>,
    /// Published devices, in order.
    offered: Vec<DeviceId>,
}

impl Pool {
    /// More of a shared counter is consumed than it has.
    fn overdrawn(&self, at: usize) -> bool {
        self.counters.iter().any(|(amount, drawn)| drawn[at] > *amount)
    }
}

/// A device.
#[derive(Debug)]
pub struct Device {
    /// Its pool.
    pub pool: PoolId,
    /// Its name.
    pub name: Name,
    /// Its place in its pool.
    position: usize,
    /// What is known of it; `None` if only an allocation names it.
    pub offer: Option<DeviceInput>,
    /// Allocations that take all of it.
    whole: Both<u32>,
    /// Allocations that take a part.
    parts: Both<u32>,
    /// The sum of those parts, by capacity.
    taken: Vec<(Name, Both<i128>)>,
    /// Claims with an allocation that names it, as often as it does.
    claims: Vec<ClaimId>,
}

impl Device {
    /// Some allocation takes it, or a part of it.
    #[must_use]
    pub fn in_use(&self, at: usize) -> bool {
        self.whole[at] + self.parts[at] > 0
    }

    /// Some allocation takes all of it.
    #[must_use]
    pub fn given(&self, at: usize) -> bool {
        self.whole[at] > 0
    }

    /// How much of a capacity is taken.
    #[must_use]
    pub fn taken(&self, capacity: &Name, at: usize) -> i128 {
        let found = self.taken.iter().find(|(name, _)| name == capacity);
        found.map_or(0, |(_, taken)| taken[at])
    }

    /// It is published and overallocated.
    fn over_given(&self, at: usize) -> bool {
        self.offer.as_ref().is_some_and(|offer| {
            self.whole[at] > 1
                || self.whole[at] > 0 && self.parts[at] > 0
                || (offer.capacities.iter()).any(|(name, capacity)| self.taken(name, at) > capacity.value)
        })
    }

    /// All figures, for comparison.
    pub fn figures(&self) -> impl std::fmt::Debug + PartialEq + std::hash::Hash + use<> {
        let mut taken: Vec<_> = self.taken.iter().filter(|(_, both)| *both != [0; 2]).cloned().collect();
        taken.sort();
        (self.whole, self.parts, taken)
    }

    /// The node whose GPU it is.
    fn gpu_of(&self) -> Option<&Name> {
        match &self.offer.as_ref().filter(|offer| offer.gpu)?.reach {
            Reach::Node(node) => Some(node),
            Reach::Selected(_) | Reach::All => None,
        }
    }
}

/// A change of the GPUs that claims take of a node: (node, now, later, only later).
pub type Charge = (Name, [i64; 3]);

/// An allocation with its devices resolved to ids.
#[derive(Debug)]
pub struct Allocation {
    /// The allocation as in the input.
    pub given: AllocationInput,
    /// The devices, in the order of the results.
    pub devices: Vec<DeviceId>,
}

impl PartialEq for Allocation {
    fn eq(&self, other: &Self) -> bool {
        self.given == other.given
    }
}

impl Eq for Allocation {}

impl std::hash::Hash for Allocation {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.given.hash(state);
    }
}

/// All devices, and all claims for them.
#[derive(Debug, Default)]
pub struct Inventory {
    /// Pools.
    pub pools: Arena<PoolId, Pool>,
    /// Devices.
    pub devices: Arena<DeviceId, Device>,
    /// Claims.
    pub claims: Claims,
    /// What the searches for devices have cost in this cycle.
    pub searches: Searches,
    pool_ids: Table<(Name, Name), PoolId>,
    by_node: Table<Name, Vec<DeviceId>>,
    elsewhere: Vec<DeviceId>,
    /// Published GPUs that several nodes can use, or that are allocated in parts.
    odd_gpus: usize,
    /// Locality attributes (NUMA node, PCIe root), the most important first.
    locality: Vec<Name>,
    /// Number of published devices with a locality attribute.
    located: usize,
    /// Pools with devices that lost their last allocation: to be swept.
    left_pools: Vec<PoolId>,
    /// Claims that lost a pod or were deleted: to be swept.
    pub(super) left_claims: Vec<ClaimId>,
    /// Changes of nodes' GPUs that are not applied to the nodes yet.
    pub(super) charges: Vec<Charge>,
}

impl Inventory {
    /// Each published GPU belongs to one node and is allocated as a whole: a pod that claims one needs one of the node's free GPUs.
    #[must_use]
    pub fn plain(&self) -> bool {
        self.odd_gpus == 0
    }

    /// Locality attributes, the most important first. Empty if no device has any.
    #[must_use]
    pub fn locality(&self) -> &[Name] {
        if self.located == 0 { &[] } else { &self.locality }
    }

    /// Sets the locality attributes.
    pub(super) fn set_locality(&mut self, attributes: &[String]) {
        if self
            .locality
            .iter()
            .map(|name| &**name)
            .eq(attributes.iter().map(String::as_str))
        {
            return;
        }
        self.locality = attributes.iter().map(|name| name.as_str().into()).collect();
        let offers = self.devices.iter().filter_map(|(_, device)| device.offer.as_ref());
        self.located = offers.filter(|offer| sits(&self.locality, offer)).count();
    }

    /// Devices that only this node can use.
    #[must_use]
    pub fn of_node(&self, node: &Name) -> &[DeviceId] {
        self.by_node.get(node).map_or(&[], |devices| devices)
    }

    /// Devices that more than one node may use.
    #[must_use]
    pub fn elsewhere(&self) -> &[DeviceId] {
        &self.elsewhere
    }

    /// Some releasing pod that uses the device meets the test.
    #[must_use]
    pub fn is_left_by(&self, device: DeviceId, test: impl Fn(PodId) -> bool) -> bool {
        let claims = self.devices[device].claims.iter().map(|claim| &self.claims[*claim]);
        claims.into_iter().any(|claim| {
            let mut grants = claim.grants.iter();
            grants.any(|grant| grant.leaving > 0 && grant.allocation.devices.contains(&device))
                && claim.users.iter().any(|user| test(*user))
        })
    }

    /// The order in which devices are tried.
    #[must_use]
    pub fn rank(&self, device: DeviceId) -> (&(Name, Name), usize) {
        let device = &self.devices[device];
        (&self.pools[device.pool].key, device.position)
    }

    /// A pool appeared or changed.
    pub(super) fn apply_pool(&mut self, input: PoolInput) {
        let id = self.pool_id(&input.driver, &input.pool);
        let hidden = self.hide(id);
        let pool = &mut self.pools[id];
        pool.complete = input.complete;
        pool.counters = input.counters.iter().map(|amount| (*amount, [0; 2])).collect();
        for (position, offer) in input.devices.into_iter().enumerate() {
            let device = self.device_id(id, &offer.name);
            // The first of two devices of one name counts: a device is in one list only. The pool is incomplete.
            if self.devices[device].offer.is_some() {
                continue;
            }
            self.odd_gpus += usize::from(odd(&offer));
            self.located += usize::from(sits(&self.locality, &offer));
            let list = match &offer.reach {
                Reach::Node(node) => self.by_node.entry(node.clone()).or_default(),
                Reach::Selected(_) | Reach::All => &mut self.elsewhere,
            };
            list.push(device);
            let entry = &mut self.devices[device];
            (entry.position, entry.offer) = (position, Some(offer));
            self.pools[id].offered.push(device);
        }
        self.sort(id);
        self.show(&hidden);
        self.left_pools.push(id);
    }

    /// A pool is gone.
    pub(super) fn pool_gone(&mut self, driver: Name, pool: Name) {
        if let Some(&id) = self.pool_ids.get(&(driver, pool)) {
            let hidden = self.hide(id);
            self.pools[id].complete = false;
            self.show(&hidden);
            self.left_pools.push(id);
        }
    }

    /// Unpublishes a pool's devices. Returns the claims with allocations of them, which are not counted meanwhile.
    fn hide(&mut self, id: PoolId) -> Vec<ClaimId> {
        let pool = &self.pools[id];
        let mut claims: Vec<ClaimId> = pool
            .devices
            .values()
            .flat_map(|device| self.devices[*device].claims.iter().copied())
            .collect();
        claims.sort_unstable();
        claims.dedup();
        for &claim in &claims {
            self.uncount(claim);
        }
        for device in std::mem::take(&mut self.pools[id].offered) {
            let Some(offer) = self.devices[device].offer.take() else {
                continue;
            };
            self.odd_gpus -= usize::from(odd(&offer));
            self.located -= usize::from(sits(&self.locality, &offer));
            match &offer.reach {
                Reach::Node(node) => {
                    if let Some(list) = self.by_node.get_mut(node) {
                        list.retain(|other| *other != device);
                        if list.is_empty() {
                            self.by_node.remove(node);
                        }
                    }
                }
                Reach::Selected(_) | Reach::All => self.elsewhere.retain(|other| *other != device),
            }
        }
        claims
    }

    fn show(&mut self, claims: &[ClaimId]) {
        for &claim in claims {
            self.recount(claim);
        }
    }

    /// Sorts the lists to which a pool's devices were added.
    fn sort(&mut self, id: PoolId) {
        let mut lists: Vec<Option<Name>> = Vec::new();
        for device in &self.pools[id].offered {
            let node = match self.devices[*device].offer.as_ref().map(|offer| &offer.reach) {
                Some(Reach::Node(node)) => Some(node.clone()),
                _ => None,
            };
            if lists.last() != Some(&node) {
                lists.push(node);
            }
        }
        lists.sort();
        lists.dedup();
        for list in lists {
            let devices = match &list {
                Some(node) => self.by_node.get_mut(node).map(std::mem::take),
                None => Some(std::mem::take(&mut self.elsewhere)),
            };
            let Some(mut devices) = devices else { continue };
            devices.sort_by(|left, right| self.rank(*left).cmp(&self.rank(*right)));
            match list {
                Some(node) => drop(self.by_node.insert(node, devices)),
                None => self.elsewhere = devices,
            }
        }
    }

    /// Removes devices that are neither published nor allocated, and the pool if none is left.
    fn drop_unused(&mut self, id: PoolId) {
        let devices = &self.devices;
        let unused = |device: &DeviceId| devices[*device].offer.is_none() && devices[*device].claims.is_empty();
        let gone: Vec<DeviceId> = self.pools[id].devices.values().copied().filter(unused).collect();
        for device in gone {
            if let Some(device) = self.devices.remove(device) {
                self.pools[id].devices.remove(&device.name);
            }
        }
        if self.pools[id].devices.is_empty()
            && let Some(pool) = self.pools.remove(id)
        {
            self.pool_ids.remove(&pool.key);
        }
    }

    /// Removes entries without references. Only between events: during an event or a cycle, references may come back.
    pub(super) fn sweep(&mut self) {
        for pool in std::mem::take(&mut self.left_pools) {
            if self.pools.contains(pool) {
                self.drop_unused(pool);
            }
        }
        for claim in std::mem::take(&mut self.left_claims) {
            self.claims.drop_unused(claim);
        }
    }

    fn pool_id(&mut self, driver: &Name, pool: &Name) -> PoolId {
        let key = (driver.clone(), pool.clone());
        if let Some(&id) = self.pool_ids.get(&key) {
            return id;
        }
        let id = self.pools.insert(Pool {
            key: key.clone(),
            complete: false,
            counters: Vec::new(),
            devices: BTreeMap::new(),
            offered: Vec::new(),
        });
        self.pool_ids.insert(key, id);
        id
    }

    fn device_id(&mut self, pool: PoolId, name: &Name) -> DeviceId {
        if let Some(&id) = self.pools[pool].devices.get(name) {
            return id;
        }
        let id = self.devices.insert(Device {
            pool,
            name: name.clone(),
            position: 0,
            offer: None,
            whole: [0; 2],
            parts: [0; 2],
            taken: Vec::new(),
            claims: Vec::new(),
        });
        self.pools[pool].devices.insert(name.clone(), id);
        id
    }

    /// The device that a result names, if it is known.
    #[must_use]
    pub fn named(&self, result: &ResultInput) -> Option<DeviceId> {
        let pool = self.pool_ids.get(&(result.driver.clone(), result.pool.clone()))?;
        self.pools[*pool].devices.get(&result.device).copied()
    }

    /// Resolves an allocation's devices; unpublished ones get an entry.
    pub(super) fn resolve(&mut self, given: AllocationInput) -> Allocation {
        let mut find = |result: &ResultInput| {
            let pool = self.pool_id(&result.driver, &result.pool);
            self.device_id(pool, &result.device)
        };
        let devices = given.results.iter().map(&mut find).collect();
        Allocation { given, devices }
    }

    /// Registers (`sign` 1) or unregisters (-1) an allocation of a claim with its devices.
    pub(super) fn name(&mut self, claim: ClaimId, allocation: &Allocation, sign: i64) {
        for &device in &allocation.devices {
            let entry = &mut self.devices[device];
            if sign > 0 {
                entry.claims.push(claim);
            } else if let Some(at) = entry.claims.iter().position(|other| *other == claim) {
                entry.claims.swap_remove(at);
                if entry.offer.is_none() && entry.claims.is_empty() {
                    self.left_pools.push(entry.pool);
                }
            }
        }
    }

    /// An allocation begins (1) or stops (-1) taking its devices, now and later.
    pub(super) fn take(&mut self, allocation: &Allocation, change: Both<i64>) {
        for (result, &id) in allocation.given.results.iter().zip(&allocation.devices) {
            if !result.admin {
                self.take_one(id, result, change);
            }
        }
    }

    fn take_one(&mut self, id: DeviceId, result: &ResultInput, change: Both<i64>) {
        let device = &mut self.devices[id];
        let before = [device.in_use(NOW), device.in_use(LATER)];
        let counts = if result.taken.is_some() {
            &mut device.parts
        } else {
            &mut device.whole
        };
        for at in [NOW, LATER] {
            counts[at] = counts[at].wrapping_add_signed(change[at] as i32);
        }
        for (name, amount) in result.taken.iter().flatten() {
            let found = device.taken.iter().position(|(known, _)| known == name);
            let position = found.unwrap_or_else(|| {
                device.taken.push((name.clone(), [0; 2]));
                device.taken.len() - 1
            });
            for at in [NOW, LATER] {
                device.taken[position].1[at] += i128::from(change[at]) * amount;
            }
        }
        let after = [device.in_use(NOW), device.in_use(LATER)];
        if before == after {
            return;
        }
        let step = |at: usize| i64::from(after[at]) - i64::from(before[at]);
        let pool = &mut self.pools[device.pool];
        for (counter, amount) in device.offer.iter().flat_map(|offer| &offer.draws) {
            if let Some((_, drawn)) = pool.counters.get_mut(*counter) {
                for at in [NOW, LATER] {
                    drawn[at] += i128::from(step(at)) * amount;
                }
            }
        }
        if let Some(node) = device.gpu_of() {
            let planned = |[now, later]: Both<bool>| i64::from(later && !now);
            let charge = [step(NOW), step(LATER), planned(after) - planned(before)];
            self.charges.push((node.clone(), charge));
        }
    }

    /// A published device, capacity or counter that is overallocated.
    #[must_use]
    pub(super) fn over_given(&self) -> Option<String> {
        let over = |device: &Device| device.over_given(NOW) || device.over_given(LATER);
        let device = self.devices.iter().find(|(_, device)| over(device));
        let pool = self
            .pools
            .iter()
            .find(|(_, pool)| pool.overdrawn(NOW) || pool.overdrawn(LATER));
        let device = device.map(|(_, device)| format!("device {}: {:?}", device.name, device.figures()));
        device.or_else(|| pool.map(|(_, pool)| format!("pool {:?}: {:?}", pool.key, pool.counters)))
    }

    /// Whether no other allocation of the claim lasts, and the devices of this one are not overallocated later.
    #[must_use]
    pub fn suffices(&self, claim: ClaimId, allocation: &Allocation) -> bool {
        let lasts = |grant: &Grant| grant.staying + grant.planned > 0;
        let mut others = self.claims[claim]
            .grants
            .iter()
            .filter(|grant| *grant.allocation != *allocation);
        !others.any(lasts)
            && allocation.devices.iter().all(|device| {
                let device = &self.devices[*device];
                !device.over_given(LATER) && !self.pools[device.pool].overdrawn(LATER)
            })
    }

    /// GPUs of a node that are taken by any claim: now, later, only later.
    #[must_use]
    pub fn gpus_taken(&self, node: &Name) -> [i64; 3] {
        let mut sum = [0; 3];
        for &id in self.of_node(node) {
            let device = &self.devices[id];
            if device.gpu_of().is_some() {
                let [now, later] = [device.in_use(NOW), device.in_use(LATER)];
                sum[0] += i64::from(now);
                sum[1] += i64::from(later);
                sum[2] += i64::from(later && !now);
            }
        }
        sum
    }
}

/// Whether it has a locality attribute.
fn sits(locality: &[Name], offer: &DeviceInput) -> bool {
    locality.iter().any(|name| offer.attribute(name).is_some())
}

fn odd(offer: &DeviceInput) -> bool {
    offer.gpu && (offer.multi || !matches!(offer.reach, Reach::Node(_)))
}
