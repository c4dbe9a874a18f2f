//! Capacity tables: free resources per node, and how many pods of a kind fit on each node. A table is filled once per cycle and then updated
//! for the nodes that decisions changed. There are few, as each is as long as the list of nodes.

use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::epochs::{Change, Seen};
use crate::engine::model::ids::{ClassId, NodeId, PodId, ShapeId};
use crate::engine::model::node::{Node, SharedGpu};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::resources::{CPU, GPUS, MEMORY, PODS, mig_slices};
use crate::engine::model::shape::Shape;
use crate::engine::placement::rules::gpu_kind;

/// With more tables than this, all are dropped before the next search.
const MANY: usize = 64;

/// Cpu, memory, GPUs of all kinds (millionths) and pod slots.
pub type Capacity = [i64; 4];

/// GPUs of a node that are free once releasing pods have gone: whole GPUs, parts of shared ones, MIG slices. In millionths.
#[must_use]
pub(in crate::engine) fn free_gpus(node: &Node, model: &Model) -> i64 {
    let of = node.gpu_memory();
    let shared = node.groups.iter().filter(|gpu| gpu.used() && !gpu.all_leaving());
    let parts: i64 = shared.map(|gpu| gpu.free_later(of).max(0) * GPU / of).sum();
    let others = node.future.iter().skip(PODS + 1).filter(|(_, amount)| *amount > 0);
    let slices: i64 = others
        .map(|(at, amount)| mig_slices(model.resources().name(at)) * amount * GPU)
        .sum();
    node.future.get(GPUS) + parts + slices
}

/// GPUs that must be free on a node for a request. GPUs that a claim holds already, or may get from another pool, need not be.
#[must_use]
pub fn needed_gpus(model: &Model, shape: &Shape) -> i64 {
    let gpu = &shape.gpu;
    let spared = if model.devices().plain() {
        gpu.dra_shared
    } else {
        gpu.dra
    };
    shape.quota[GPUS] - spared * GPU
}

/// What is free on a node once releasing pods have gone.
#[must_use]
pub fn free(model: &Model, node: NodeId) -> Capacity {
    let node = &model.nodes()[node];
    let future = &node.future;
    [
        future.get(CPU),
        future.get(MEMORY),
        free_gpus(node, model),
        future.get(PODS),
    ]
}

/// What the eviction of a pod would free.
#[must_use]
pub fn freed_by(model: &Model, pod: PodId) -> Capacity {
    let shape = &model.shapes()[model.pods()[pod].shape];
    let hold = model.pods()[pod].state.hold.as_ref();
    let claimed = hold.and_then(|hold| hold.extras().devices.as_ref());
    let claimed = claimed.map_or(0, |used| {
        used.iter().map(|used| used.allocation.devices.len() as i64 * GPU).sum()
    });
    let gpus = model.accepted(pod)[GPUS].max(claimed);
    [shape.vector.get(CPU), shape.vector.get(MEMORY), gpus, 1]
}

/// Adds `by` to `room`.
pub fn add_capacity(room: &mut Capacity, by: &Capacity) {
    for (mine, theirs) in room.iter_mut().zip(by) {
        *mine += theirs;
    }
}

/// The pods that a table counts slots for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pods with so many GPUs. Nothing else of the request is considered.
    Gpus(i64),
    /// Pods of a class and shape.
    Pods(ClassId, ShapeId),
}

impl Kind {
    /// A lower bound of one pod's request.
    fn ask(self, model: &Model) -> Capacity {
        match self {
            Self::Gpus(gpus) => [0, 0, gpus, 0],
            Self::Pods(_, shape) => {
                let shape = &model.shapes()[shape];
                let vector = &shape.vector;
                // GPU portions are rounded when they are counted, so they give no lower bound.
                let gpus = if shape.shared { 0 } else { needed_gpus(model, shape) };
                [vector.get(CPU), vector.get(MEMORY), gpus, 1]
            }
        }
    }

    /// Whether the node may take such pods: the rules of the class and `gpu_kind` allow it. The class must be up to date.
    fn allowed(self, model: &Model, node: NodeId) -> bool {
        match self {
            Self::Gpus(_) => true,
            Self::Pods(class, shape) => {
                model.class_nodes(class).has(node.at())
                    && gpu_kind::judge::<bool>(&model.shapes()[shape], &model.nodes()[node])
            }
        }
    }
}

fn copies(ask: &Capacity, room: &Capacity) -> i64 {
    let each = ask.iter().zip(room).filter(|(ask, _)| **ask > 0);
    each.map(|(ask, room)| room.max(&0) / ask).min().unwrap_or(0)
}

/// The largest rounding error on a node with shared GPUs, in millionths of a GPU.
fn slack(model: &Model, node: NodeId) -> i64 {
    let node = &model.nodes()[node];
    if node.groups.iter().any(SharedGpu::used) {
        (node.pods.len() + node.coming.len()) as i64 * (GPU / 100)
    } else {
        0
    }
}

/// Upper bounds of the pods of a kind that fit, per node and in all: only the resources of [`Capacity`] are compared.
#[derive(Debug)]
struct Slots {
    kind: Kind,
    ask: Capacity,
    upto: usize,
    per_node: Vec<i64>,
    sum: i64,
}

/// All tables.
#[derive(Debug, Default)]
pub struct CapacityTables {
    node_specs: Seen,
    reused_ids: Seen,
    /// See [`Inventory::plain`](crate::engine::model::devices::Inventory::plain), on which the needs of pods depend.
    plain: bool,
    touched: Vec<NodeId>,
    upto: usize,
    built: bool,
    capacity: Vec<Capacity>,
    /// Nodes with free GPUs.
    pub some: NodeSet,
    /// Free GPUs of nodes that have any.
    pub sum: i64,
    /// The same, of nodes that take pods.
    pub ready_sum: i64,
    slots: Vec<Slots>,
}

impl CapacityTables {
    /// Applies the changes since the last cycle; rebuilds all tables if that is cheaper, or if node specs changed.
    pub fn begin(&mut self, model: &mut Model) {
        let touched = model.take_touched();
        let other_nodes = self.node_specs.catch_up(model.epochs().of(Change::NodeSpecs));
        if other_nodes || self.touched.len() + touched.count() > model.by_name().len() {
            *self = Self {
                node_specs: self.node_specs,
                reused_ids: self.reused_ids,
                ..Self::default()
            };
        }
        let reused = self.reused_ids.catch_up(model.epochs().of(Change::ReusedIds));
        let plain = model.devices().plain();
        if std::mem::replace(&mut self.plain, plain) != plain || reused {
            self.slots.clear();
        }
        self.touch(touched.iter().map(NodeId::of));
    }

    /// Whether the tables equal freshly built ones.
    #[cfg(test)]
    #[must_use]
    pub fn are_true(&mut self, model: &mut Model) -> bool {
        self.begin(model);
        if !self.built {
            return true;
        }
        self.update(model);
        let mut anew = Self::default();
        anew.update(model);
        let tables = self.slots.iter().map(|slots| slots.kind).collect::<Vec<_>>();
        self.capacity == anew.capacity
            && (self.sum, self.ready_sum) == (anew.sum, anew.ready_sum)
            && tables.into_iter().all(|kind| {
                let (ours, fresh) = (self.table(model, kind), anew.table(model, kind));
                self.slots[ours].per_node == anew.slots[fresh].per_node && self.fitting(ours) == anew.fitting(fresh)
            })
    }

    /// Marks nodes whose usage changed permanently.
    pub fn touch(&mut self, nodes: impl Iterator<Item = NodeId>) {
        if self.built {
            let before = self.touched.len();
            for node in nodes {
                if self.touched[before..].last() != Some(&node) {
                    self.touched.push(node);
                }
            }
        }
    }

    /// Updates the marked nodes.
    pub fn update(&mut self, model: &Model) {
        if !self.built {
            self.built = true;
            self.capacity = vec![[0; 4]; model.nodes().slots()];
            for &node in model.by_name() {
                self.look_at(model, node);
            }
        }
        while let Some(&node) = self.touched.get(self.upto) {
            self.upto += 1;
            if model.nodes()[node].input.is_some() {
                self.look_at(model, node);
            }
        }
    }

    fn look_at(&mut self, model: &Model, node: NodeId) {
        let fresh = free(model, node);
        let old = std::mem::replace(&mut self.capacity[node.at()], fresh);
        let more = fresh[GPUS].max(0) - old[GPUS].max(0);
        self.sum += more;
        if model.nodes()[node].ready() {
            self.ready_sum += more;
        }
        if fresh[GPUS] > 0 {
            self.some.add(node.at());
        } else {
            self.some.take(node.at());
        }
    }

    /// What is free on a node.
    #[must_use]
    pub fn of(&self, node: NodeId) -> &Capacity {
        &self.capacity[node.at()]
    }

    /// The position of the table for a kind of pods, which is updated or created. Call [`CapacityTables::update`] before.
    pub fn table(&mut self, model: &Model, kind: Kind) -> usize {
        let at = self
            .slots
            .iter()
            .position(|slots| slots.kind == kind)
            .unwrap_or_else(|| {
                let mut slots = Slots {
                    kind,
                    ask: kind.ask(model),
                    upto: self.touched.len(),
                    per_node: vec![0; self.capacity.len()],
                    sum: 0,
                };
                for &node in model.by_name() {
                    slots.look_at(model, &self.capacity, node);
                }
                self.slots.push(slots);
                self.slots.len() - 1
            });
        let slots = &mut self.slots[at];
        while let Some(&node) = self.touched.get(slots.upto) {
            slots.upto += 1;
            if model.nodes()[node].input.is_some() {
                slots.look_at(model, &self.capacity, node);
            }
        }
        at
    }

    /// The number of tables for kinds of pods.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.slots.len()
    }

    /// Drops the tables for kinds of pods if there are many. Their positions do not count any longer.
    pub fn drop_if_many(&mut self) {
        if self.slots.len() > MANY {
            self.slots.clear();
        }
    }

    /// Pods that fit, over all nodes.
    #[must_use]
    pub fn fitting(&self, table: usize) -> i64 {
        self.slots[table].sum
    }

    /// How many more pods fit on a node once that much more is free there.
    #[must_use]
    pub fn gain(&self, model: &Model, table: usize, node: NodeId, freed: &Capacity) -> i64 {
        let slots = &self.slots[table];
        if !slots.kind.allowed(model, node) {
            return 0;
        }
        let mut room = self.capacity[node.at()];
        add_capacity(&mut room, freed);
        slots.copies(model, node, room) - slots.per_node[node.at()]
    }
}

impl Slots {
    fn copies(&self, model: &Model, node: NodeId, mut room: Capacity) -> i64 {
        if self.ask[GPUS] > 0 && matches!(self.kind, Kind::Pods(..)) {
            room[GPUS] += slack(model, node);
        }
        copies(&self.ask, &room)
    }

    fn look_at(&mut self, model: &Model, capacity: &[Capacity], node: NodeId) {
        let fresh = if self.kind.allowed(model, node) {
            self.copies(model, node, capacity[node.at()])
        } else {
            0
        };
        self.sum += fresh - std::mem::replace(&mut self.per_node[node.at()], fresh);
    }
}
