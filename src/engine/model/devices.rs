//! Devices that pods claim: what pools offer, and what is taken of it now and later.
//!
//! A device is taken by allocations of claims, see `claims`. The figures here are sums over those, so that the order of changes leaves no trace.

pub mod claims;

use std::collections::BTreeMap;

use crate::engine::input::devices::{AllocationInput, DeviceInput, PoolInput, Reach, ResultInput};
use crate::engine::input::{Name, Table};

use super::arena::Arena;
use super::ids::{ClaimId, DeviceId, PodId, PoolId};
use claims::{Claims, Grant};

/// Figures for now, and for when who leaves has left and who is planned is there.
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
    /// Nothing is given out of it while it is not.
    pub complete: bool,
    /// What devices draw on together: how much there is, and how much is drawn.
    pub counters: Vec<(i128, Both<i128>)>,
    /// Devices by name; also those that only an allocation names.
    devices: BTreeMap<Name, DeviceId>,
    /// Those on offer, in order.
    offered: Vec<DeviceId>,
}

impl Pool {
    /// More is drawn on a counter than there is.
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
    /// What those parts come to, by capacity.
    taken: Vec<(Name, Both<i128>)>,
    /// Claims with an allocation that names it, one entry each.
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

    /// It is on offer, and more of it is given than there is.
    fn over_given(&self, at: usize) -> bool {
        self.offer.as_ref().is_some_and(|offer| {
            self.whole[at] > 1
                || self.whole[at] > 0 && self.parts[at] > 0
                || (offer.capacities.iter()).any(|(name, capacity)| self.taken(name, at) > capacity.value)
        })
    }

    /// All that is taken, to compare.
    #[cfg(test)]
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

/// GPUs of a node are taken or given back: (the node, now, later, only later).
pub type Charge = (Name, [i64; 3]);

/// An allocation, its devices found.
#[derive(Debug)]
pub struct Allocation {
    /// What was given.
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
    pool_ids: Table<(Name, Name), PoolId>,
    by_node: Table<Name, Vec<DeviceId>>,
    elsewhere: Vec<DeviceId>,
    /// GPUs on offer that are not one node's own, or that are given in parts.
    odd_gpus: usize,
    /// Attributes that say where a device sits, the most important first.
    locality: Vec<Name>,
    /// Devices on offer that have any of these.
    located: usize,
    /// Pools with devices that no allocation takes any more.
    left_pools: Vec<PoolId>,
    /// Claims that a pod names no more, or that are gone.
    pub(super) left_claims: Vec<ClaimId>,
    /// GPUs of nodes that changed hands and are not in the nodes' books yet.
    pub(super) charges: Vec<Charge>,
}

impl Inventory {
    /// Each GPU on offer is one node's, and is given as a whole: a pod that claims one needs one of the node's free GPUs.
    #[must_use]
    pub fn plain(&self) -> bool {
        self.odd_gpus == 0
    }

    /// Attributes that say where a device sits, the most important first. Empty if no device has any.
    #[must_use]
    pub fn locality(&self) -> &[Name] {
        if self.located == 0 { &[] } else { &self.locality }
    }

    /// Goes by these attributes from now on.
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

    /// Devices that one node offers alone.
    #[must_use]
    pub fn of_node(&self, node: &Name) -> &[DeviceId] {
        self.by_node.get(node).map_or(&[], |devices| devices)
    }

    /// Devices that more than one node may use.
    #[must_use]
    pub fn elsewhere(&self) -> &[DeviceId] {
        &self.elsewhere
    }

    /// Some pod that uses the device leaves it, and the test holds for that pod.
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

    /// Takes a pool's devices off the offer. Gives the claims that take any of them, which count nothing meanwhile.
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

    /// Puts the lists in order that a pool's devices were added to.
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

    /// Forgets devices that are neither offered nor taken, and the pool if it has no others.
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

    /// Forgets what is no longer referred to. Between events only: while one is taken in, and while a cycle decides, things may come back.
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

    /// Finds an allocation's devices; those that are not offered get an entry too.
    pub(super) fn resolve(&mut self, given: AllocationInput) -> Allocation {
        let mut find = |result: &ResultInput| {
            let pool = self.pool_id(&result.driver, &result.pool);
            self.device_id(pool, &result.device)
        };
        let devices = given.results.iter().map(&mut find).collect();
        Allocation { given, devices }
    }

    /// An allocation of a claim is known from here on (`sign` 1), or no longer.
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

    /// An allocation begins (1) or ceases (-1) to take its devices, now and later.
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

    /// A device, capacity or counter on offer of which more is given than there is.
    #[cfg(test)]
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

    /// An allocation that some pod uses is the claim's only one that lasts, and no more is given of its devices, later, than there is.
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

    /// GPUs of a node that are taken, by whomever: now, later, only later.
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

/// Says where it sits.
fn sits(locality: &[Name], offer: &DeviceInput) -> bool {
    locality.iter().any(|name| offer.attribute(name).is_some())
}

fn odd(offer: &DeviceInput) -> bool {
    offer.gpu && (offer.multi || !matches!(offer.reach, Reach::Node(_)))
}
