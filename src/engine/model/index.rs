//! Nodes in the order in which placement prefers them, kept as their usage changes, so that placing a pod need not look at all nodes.
//!
//! Packing prefers little free capacity, spreading the largest free part. Either is one number per node and resource; the order is by that number, then by
//! name. Nodes whose free resources changed are re-sorted right before the next walk: most simulations need none.

use std::collections::BTreeSet;

use crate::engine::policy::Strategy;

use super::arena::Arena;
use super::ids::NodeId;
use super::node::Node;
use super::resources::{CPU, GPUS};

/// Which list of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All, by GPUs.
    Gpus,
    /// Nodes without GPUs, by cpu.
    CpuNodes,
    /// Nodes with GPUs, by cpu.
    GpuNodes,
}

/// The lists.
#[derive(Debug, Default)]
pub struct NodeIndex {
    on: bool,
    gpu: Strategy,
    cpu: Strategy,
    lists: [BTreeSet<(i64, u32)>; 3],
    positions: Vec<Position>,
    /// Nodes whose usage changed since they were sorted.
    moved: Vec<NodeId>,
    by_rank: Vec<NodeId>,
    /// Nodes with a shared GPU, by rank.
    pub sharing: BTreeSet<u32>,
}

/// A node's position in the lists: keys by GPUs and by cpu, rank, and whether it has no GPUs.
type Keys = (i64, i64, u32, bool);

#[derive(Clone, Copy, Debug, Default)]
struct Position {
    keys: Option<Keys>,
    /// It is in `moved`.
    moved: bool,
}

fn key(strategy: Strategy, node: &Node, resource: usize) -> i64 {
    let free = node.future.get(resource);
    match strategy {
        Strategy::Binpack => free,
        Strategy::Spread => {
            let of = spread_base(node, resource);
            if of == 0 {
                0
            } else {
                -(free.saturating_mul(1 << 20) / of)
            }
        }
    }
}

/// What free capacity is compared with when spreading.
#[must_use]
pub fn spread_base(node: &Node, resource: usize) -> i64 {
    if resource == GPUS {
        let stated = node.input.as_ref().and_then(|input| input.gpu_count);
        stated.unwrap_or(node.allocatable.get(GPUS) / crate::engine::input::GPU)
    } else {
        node.allocatable.get(resource)
    }
}

impl NodeIndex {
    /// Builds the lists; ranks must be right.
    pub fn rebuild(&mut self, gpu: Strategy, cpu: Strategy, nodes: &Arena<NodeId, Node>, by_name: &[NodeId]) {
        *self = Self {
            on: true,
            gpu,
            cpu,
            by_rank: by_name.to_vec(),
            ..Self::default()
        };
        self.positions.resize(nodes.slots(), Position::default());
        for &id in by_name {
            self.update_position(id, &nodes[id]);
        }
    }

    /// Switches the lists off until they are built again.
    pub fn stop(&mut self) {
        self.on = false;
        self.moved.clear();
    }

    /// Notes that a node's usage changed.
    pub fn changed(&mut self, id: NodeId) {
        let Some(position) = self.positions.get_mut(id.at()).filter(|_| self.on) else {
            return;
        };
        if !std::mem::replace(&mut position.moved, true) {
            self.moved.push(id);
        }
    }

    /// Re-sorts the nodes whose usage changed: to be done before a walk.
    pub fn catch_up(&mut self, nodes: &Arena<NodeId, Node>) {
        while let Some(id) = self.moved.pop() {
            self.positions[id.at()].moved = false;
            self.update_position(id, &nodes[id]);
        }
    }

    /// Every node that is not in `moved` is at the position of its usage.
    #[cfg(debug_assertions)]
    pub(super) fn is_true(&self, nodes: &Arena<NodeId, Node>) -> bool {
        let at_place = |id: &NodeId| {
            let position = &self.positions[id.at()];
            position.moved || position.keys == Some(self.keys(&nodes[*id]))
        };
        !self.on || self.by_rank.iter().all(at_place)
    }

    fn keys(&self, node: &Node) -> Keys {
        (
            key(self.gpu, node, GPUS),
            key(self.cpu, node, CPU),
            node.rank,
            node.cpu_only(),
        )
    }

    fn update_position(&mut self, id: NodeId, node: &Node) {
        if node.input.is_none() {
            return;
        }
        let fresh = self.keys(node);
        let old = self.positions[id.at()].keys.replace(fresh);
        if node.groups.iter().any(super::node::SharedGpu::used) {
            self.sharing.insert(node.rank);
        } else {
            self.sharing.remove(&node.rank);
        }
        if old == Some(fresh) {
            return;
        }
        if let Some((gpu, cpu, rank, cpu_only)) = old {
            self.lists[Order::Gpus as usize].remove(&(gpu, rank));
            self.lists[cpu_list(cpu_only) as usize].remove(&(cpu, rank));
        }
        let (gpu, cpu, rank, cpu_only) = fresh;
        self.lists[Order::Gpus as usize].insert((gpu, rank));
        self.lists[cpu_list(cpu_only) as usize].insert((cpu, rank));
    }

    /// Nodes in order. When packing, those with less than `least` free are left out.
    pub fn walk(&self, order: Order, least: i64) -> impl Iterator<Item = NodeId> + '_ {
        debug_assert!(self.moved.is_empty(), "the index is to catch up before a walk");
        let strategy = if order == Order::Gpus { self.gpu } else { self.cpu };
        let start = match strategy {
            Strategy::Binpack => least,
            Strategy::Spread => i64::MIN,
        };
        self.lists[order as usize]
            .range((start, 0)..)
            .map(|&(_, rank)| self.by_rank[rank as usize])
    }

    /// The node of a rank.
    #[must_use]
    pub fn at_rank(&self, rank: u32) -> NodeId {
        self.by_rank[rank as usize]
    }
}

fn cpu_list(cpu_only: bool) -> Order {
    if cpu_only { Order::CpuNodes } else { Order::GpuNodes }
}
