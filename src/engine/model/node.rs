//! Resource accounting of a node. All figures are sums over the places of pods, so they do not depend on the order of changes.

use crate::api::limits;
use crate::engine::input::{GPU, Keyed, Name, NodeInput, Time};

use super::ids::PodId;
use super::numa::Ledger;
use super::resources::{GPUS, Resources, Shared};
use super::shape::{Shape, UNKNOWN_GPU_MEMORY};
use super::weight::Weight;

/// Number and memory of some users of a shared GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of pods.
    pub pods: i64,
    /// MiB that they use.
    pub memory: i64,
}

/// A GPU that is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedGpu {
    /// Its group's name.
    pub name: Name,
    /// Users that are not releasing.
    pub staying: Tally,
    /// Releasing users.
    pub leaving: Tally,
    /// Pipelined users.
    pub planned: Tally,
    /// Reservation pods that hold the device. One without users is about to be deleted, and until then no other pod gets the device.
    pub reserved: i64,
}

impl SharedGpu {
    fn tally(&mut self, weight: Weight) -> &mut Tally {
        match weight {
            Weight::Staying => &mut self.staying,
            Weight::Leaving => &mut self.leaving,
            Weight::Planned => &mut self.planned,
        }
    }

    /// Whole GPUs that it takes: (now, later, only planned so far).
    fn whole(&self) -> (i64, i64, i64) {
        let now = i64::from(self.staying.pods + self.leaving.pods + self.reserved > 0);
        let later = i64::from(self.staying.pods + self.planned.pods > 0);
        (now, later, i64::from(now == 0 && later == 1))
    }

    /// Some pod uses it.
    #[must_use]
    pub fn used(&self) -> bool {
        self.staying.pods + self.leaving.pods + self.planned.pods + self.reserved > 0
    }

    /// MiB in use.
    #[must_use]
    pub fn used_memory(&self) -> i64 {
        self.staying.memory + self.leaving.memory + self.planned.memory
    }

    /// MiB free now, of `memory`.
    #[must_use]
    pub fn free_now(&self, memory: i64) -> i64 {
        memory - self.staying.memory - self.leaving.memory
    }

    /// MiB free once releasing users have gone and pipelined ones run.
    #[must_use]
    pub fn free_later(&self, memory: i64) -> i64 {
        memory - self.staying.memory - self.planned.memory
    }

    /// All its pods are releasing: it counts as a whole GPU being released, not as shared.
    #[must_use]
    pub fn all_leaving(&self) -> bool {
        self.staying.pods + self.planned.pods == 0
    }
}

/// A node.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// What is known about it; `None` until its event arrives, or after it is gone.
    pub input: Option<Box<NodeInput>>,
    /// Position in name order, up to date while a cycle decides.
    pub rank: u32,
    /// Allocatable resources.
    pub allocatable: Resources,
    /// Idle resources: free now.
    pub idle: Resources,
    /// Free once releasing pods have gone and pipelined ones run.
    pub future: Resources,
    /// Taken by pipelined pods.
    pub planned: Resources,
    /// Shared GPUs, and unused entries. Places refer to them by position, so a used one keeps its position.
    pub groups: Vec<SharedGpu>,
    /// Unused positions in `groups`.
    free_groups: Vec<u32>,
    /// No GPU is opened for sharing before this instant, because a reservation failed.
    pub sharing_from: Option<Time>,
    /// NUMA zones, if the kubelet's alignment is predicted.
    pub numa: Option<Ledger>,
    /// Pods on it, ascending.
    pub pods: Vec<PodId>,
    /// Pods pipelined to it, ascending.
    pub coming: Vec<PodId>,
    /// Requests of pods of other schedulers.
    pub foreign: Shared,
}

impl Keyed for Node {
    type Key = str;
    fn key(&self) -> &str {
        &self.name
    }
}

impl Node {
    /// A node of which only the name is known.
    #[must_use]
    pub fn unknown(name: Name) -> Self {
        Self {
            name,
            input: None,
            rank: 0,
            allocatable: Resources::default(),
            idle: Resources::default(),
            future: Resources::default(),
            planned: Resources::default(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            sharing_from: None,
            numa: None,
            pods: Vec::new(),
            coming: Vec::new(),
            foreign: [0; 3],
        }
    }

    /// MiB per GPU.
    #[must_use]
    pub fn gpu_memory(&self) -> i64 {
        self.input
            .as_ref()
            .and_then(|input| input.gpu_memory)
            .unwrap_or(UNKNOWN_GPU_MEMORY)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&Name> {
        let labels = &self.input.as_ref()?.labels;
        let found = labels.binary_search_by(|(other, _)| (**other).cmp(key)).ok()?;
        Some(&labels[found].1)
    }

    /// Has no GPU of any kind.
    #[must_use]
    pub fn cpu_only(&self) -> bool {
        self.allocatable.get(GPUS) <= 0 && !self.input.as_ref().is_some_and(|input| input.mig || input.dra_gpus)
    }

    /// Whether it exists, is not cordoned and is ready.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.input
            .as_ref()
            .is_some_and(|input| input.faults.is_empty() && !input.unschedulable)
    }

    /// Sets the allocatable resources.
    pub fn set_allocatable(&mut self, allocatable: Resources) {
        self.idle.add(&self.allocatable, -1);
        self.future.add(&self.allocatable, -1);
        self.idle.add(&allocatable, 1);
        self.future.add(&allocatable, 1);
        self.allocatable = allocatable;
    }

    /// Adds (`sign` 1) or subtracts (-1) the place of a pod.
    pub fn account(
        &mut self,
        pod: PodId,
        (shape, vector): (&Shape, &Resources),
        groups: &[u32],
        reservation: bool,
        weight: Weight,
        sign: i64,
    ) {
        let list = if weight == Weight::Planned {
            &mut self.coming
        } else {
            &mut self.pods
        };
        match (list.binary_search(&pod), sign > 0) {
            (Err(position), true) => list.insert(position, pod),
            (Ok(position), false) => drop(list.remove(position)),
            (Ok(_), true) | (Err(_), false) => unreachable!("a task has one place of a kind"),
        }
        let gpus = vector.get(GPUS);
        let skip = if shape.shared || reservation { gpus } else { 0 };
        let (idle, future, planned) = match weight {
            Weight::Staying => (-1, -1, 0),
            Weight::Leaving => (-1, 0, 0),
            Weight::Planned => (0, -1, 1),
        };
        for (books, factor) in [
            (&mut self.idle, idle),
            (&mut self.future, future),
            (&mut self.planned, planned),
        ] {
            if factor != 0 {
                books.add(vector, factor * sign);
                if skip != 0 {
                    books.bump(GPUS, -factor * sign * skip);
                }
            }
        }
        if groups.is_empty() {
            return;
        }
        let memory = shape.device_memory(self.gpu_memory());
        for &group in groups {
            let weight = (!reservation).then_some(weight);
            self.account_group(group, memory, weight, sign);
        }
    }

    /// Changes the GPUs taken by claims: now, later, only later.
    pub fn charge_devices(&mut self, [now, later, planned]: [i64; 3]) {
        self.idle.bump(GPUS, -now * GPU);
        self.future.bump(GPUS, -later * GPU);
        self.planned.bump(GPUS, planned * GPU);
    }

    /// Adds or subtracts whole GPUs that are counted without a group.
    pub fn charge_whole(&mut self, gpus: i64, weight: Weight, sign: i64) {
        let gpus = sign * gpus;
        self.charge_devices(match weight {
            Weight::Staying => [gpus, gpus, 0],
            Weight::Leaving => [gpus, 0, 0],
            Weight::Planned => [0, gpus, gpus],
        });
    }

    /// Adds or removes a user of a shared GPU, or, without a weight, its reservation pod.
    fn account_group(&mut self, group: u32, memory: i64, weight: Option<Weight>, sign: i64) {
        let gpu = &mut self.groups[group as usize];
        let before = gpu.whole();
        match weight {
            Some(weight) => {
                let tally = gpu.tally(weight);
                tally.pods += sign;
                tally.memory += sign * memory;
            }
            None => gpu.reserved += sign,
        }
        let after = gpu.whole();
        self.idle.bump(GPUS, (before.0 - after.0) * GPU);
        self.future.bump(GPUS, (before.1 - after.1) * GPU);
        self.planned.bump(GPUS, (after.2 - before.2) * GPU);
    }

    /// The position of a GPU group; creates the group if there is none of that name.
    pub fn group(&mut self, name: &Name) -> u32 {
        if let Some(position) = self.groups.iter().position(|gpu| gpu.name == *name) {
            return position as u32;
        }
        let fresh = SharedGpu {
            name: name.clone(),
            ..SharedGpu::default()
        };
        if let Some(position) = self.free_groups.pop() {
            self.groups[position as usize] = fresh;
            return position;
        }
        self.groups.push(fresh);
        self.groups.len() as u32 - 1
    }

    /// The same for a pod that is on the node already: `None` if more groups are in use than a node can have.
    pub fn group_of_bound(&mut self, name: &Name) -> Option<u32> {
        let known = self.groups.iter().any(|gpu| gpu.name == *name);
        let full = self.groups.len() - self.free_groups.len() >= limits::GPU_GROUPS_PER_NODE;
        (known || !full).then(|| self.group(name))
    }

    /// Frees the positions of unused groups. No statement may be open, since a rollback could use them again.
    pub fn forget_unused_groups(&mut self) {
        while self.groups.last().is_some_and(|last| !last.used()) {
            self.groups.pop();
        }
        self.free_groups.clear();
        for (position, gpu) in self.groups.iter_mut().enumerate().filter(|(_, gpu)| !gpu.used()) {
            gpu.name = Name::default();
            self.free_groups.push(position as u32);
        }
    }
}

#[cfg(test)]
mod tests;
