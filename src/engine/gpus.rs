//! The GPUs of all nodes by state: used, free, fragmented or unavailable. Updated incrementally: only nodes whose usage changed are counted
//! again.
//!
//! Counts GPUs of device plugins: whole ones, shared ones, and MIG slices. Devices of resource claims are not counted.

use super::input::GPU;
use super::model::Model;
use super::model::epochs::{Change, Epoch, Seen};
use super::model::ids::NodeId;
use super::model::node::Node;
use super::model::resources::{GPUS, PODS, Resources, mig_slices};

/// Millionths of GPUs. The four states add up to all that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuStates {
    /// Pods use them.
    pub used: i64,
    /// Free, on nodes without GPUs in use.
    pub free: i64,
    /// Free, but on nodes with GPUs in use, or as a part of a GPU.
    pub fragmented: i64,
    /// Free, on nodes that are cordoned or not ready.
    pub unavailable: i64,
    /// The most whole GPUs that a pod could get on this node. Not one of the states.
    pub whole: i64,
}

impl GpuStates {
    /// Adds (`sign` 1) or subtracts (-1) another's states.
    fn add(&mut self, other: &Self, sign: i64) {
        self.used += sign * other.used;
        self.free += sign * other.free;
        self.fragmented += sign * other.fragmented;
        self.unavailable += sign * other.unavailable;
    }

    fn of(model: &Model, node: &Node) -> Self {
        let slices = |amounts: &Resources| -> i64 {
            let others = amounts.iter().skip(PODS + 1).filter(|(_, amount)| *amount > 0);
            let slices = others.map(|(at, amount)| mig_slices(model.resources().name(at)) * amount);
            slices.sum::<i64>() * GPU
        };
        let all = node.allocatable.get(GPUS).max(0) + slices(&node.allocatable);
        let memory = node.gpu_memory().max(1);
        let shared = node.groups.iter().filter(|gpu| gpu.used());
        let parts: i64 = shared.map(|gpu| gpu.free_now(memory).max(0) * GPU / memory).sum();
        let whole = node.idle.get(GPUS).max(0);
        let left = (whole + parts + slices(&node.idle)).min(all);
        let mut states = Self {
            used: all - left,
            ..Self::default()
        };
        if !node.ready() {
            states.unavailable = left;
            return states;
        }
        states.whole = whole / GPU * GPU;
        if left == all {
            states.free = left;
        } else {
            states.fragmented = left;
        }
        states
    }
}

/// The states of all nodes, with the epochs at which they were counted.
#[derive(Debug, Default)]
pub struct GpuTally {
    specs: Seen,
    usage: Epoch,
    nodes: Vec<GpuStates>,
    sum: GpuStates,
}

impl GpuTally {
    /// The current sum; `whole` is the maximum over nodes.
    pub fn update(&mut self, model: &Model) -> GpuStates {
        let (epochs, nodes) = (model.epochs(), model.nodes());
        let anew = self.specs.catch_up(epochs.of(Change::NodeSpecs));
        let before = std::mem::replace(&mut self.usage, epochs.of(Change::NodeUsage));
        if !anew && before == self.usage {
            return self.sum;
        }
        self.nodes.resize(nodes.slots(), GpuStates::default());
        for (at, known) in self.nodes.iter_mut().enumerate() {
            let id = NodeId::of(at);
            if !anew && !epochs.node_used_since(id, before) {
                continue;
            }
            let states = if nodes.contains(id) {
                GpuStates::of(model, &nodes[id])
            } else {
                GpuStates::default()
            };
            self.sum.add(known, -1);
            self.sum.add(&states, 1);
            *known = states;
        }
        self.sum.whole = self.nodes.iter().map(|states| states.whole).max().unwrap_or_default();
        self.sum
    }
}

#[cfg(test)]
mod tests;
