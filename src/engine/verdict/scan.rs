//! A scan of all nodes for one pod: the obstacle of each node, and how much is free on nodes without another obstacle.

use std::collections::BTreeMap;

use crate::engine::input::{GPU, WHOLE};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::node::Node;
use crate::engine::model::resources::{GPUS, PODS, Resources};
use crate::engine::model::shape::Shape;
use crate::engine::placement::choose::Context;
use crate::engine::placement::claims;
use crate::engine::placement::resources::pod_fits;
use crate::engine::placement::rules::{Reasons, gpu_kind, refusals};
use crate::engine::placement::volumes::fit;

use super::obstacles::{Obstacle, lasting, of_refusal};
use crate::engine::decision::Cause;

/// The result of a scan.
#[derive(Clone, Debug, Default)]
pub struct NodeScan {
    /// The pod requests GPUs, so nodes without GPUs are skipped.
    pub gpu: bool,
    /// Nodes that are not skipped.
    pub nodes: usize,
    /// Skipped nodes.
    pub without_gpus: usize,
    /// Obstacles, with the number of nodes; each node counts once.
    pub out: BTreeMap<Obstacle, usize>,
    /// Nodes without an obstacle beside free resources.
    pub open: Vec<NodeId>,
    /// Nodes on which the pod fits.
    pub fitting: usize,
    /// How many such pods fit in all.
    pub slots: i64,
    /// How many such pods would fit on empty nodes.
    pub room: i64,
}

/// Scans all nodes.
#[must_use]
pub fn scan(model: &Model, context: Context, pod: PodId) -> NodeScan {
    let shape = &model.shapes()[model.pods()[pod].shape];
    let mut scan = NodeScan {
        gpu: !shape.cpu_only,
        ..NodeScan::default()
    };
    for &id in model.by_name() {
        let node = &model.nodes()[id];
        if scan.gpu && node.cpu_only() {
            scan.without_gpus += 1;
            continue;
        }
        scan.nodes += 1;
        let spec = of_spec(model, pod, id, shape);
        let Some(obstacle) = spec.or_else(|| at_present(model, context, pod, id, shape, &mut scan)) else {
            scan.fitting += 1;
            scan.slots = scan
                .slots
                .saturating_add(slots(node, shape, &node.future, false).max(1));
            continue;
        };
        *scan.out.entry(obstacle).or_insert(0) += 1;
    }
    scan
}

/// An obstacle that no eviction would remove.
fn of_spec(model: &Model, pod: PodId, id: NodeId, shape: &Shape) -> Option<Obstacle> {
    let (node, entry) = (&model.nodes()[id], &model.pods()[pod]);
    let constraints = &model.classes()[entry.class].constraints;
    if let Some(obstacle) = lasting(constraints, node) {
        return Some(obstacle);
    }
    if let Some(reasons) = gpu_kind::judge::<Option<Reasons>>(shape, node) {
        return reasons.first().map(|reason| of_refusal(model, pod, Some(id), reason));
    }
    if shape.gpu.memory > 0 && node.input.as_ref().is_none_or(|input| input.gpu_memory.is_none()) {
        let text = "lacks|lack label nvidia.com/gpu.memory, without which GPU memory cannot be asked for";
        return Some(Obstacle::Rule(Cause::GpuMemoryUnknown, text.to_owned()));
    }
    if !constraints.reaches(node)
        && let Err(conflict) = fit(model, pod, id, false, false)
    {
        return Some(of_refusal(model, pod, Some(id), &conflict.into()));
    }
    let counts = |at: usize| !(at == GPUS && (shape.shared || claims::need_less(model, pod)));
    let provided_by_claims = claims::provided_by_claims(model, pod, id);
    let asked = shape
        .vector
        .iter()
        .filter(|(at, asked)| *asked > 0 && counts(*at) && !provided_by_claims.contains(at));
    let mut small = asked.filter(|(at, asked)| *asked > node.allocatable.get(*at));
    small.next().map(|(at, _)| Obstacle::TooSmall(at))
}

/// The obstacle of a node whose specification suits the pod; `None`: none.
fn at_present(
    model: &Model,
    context: Context,
    pod: PodId,
    id: NodeId,
    shape: &Shape,
    scan: &mut NodeScan,
) -> Option<Obstacle> {
    let node = &model.nodes()[id];
    let fits = pod_fits(model, pod, id, false);
    let refused = if fits {
        refusals(&context.pair(model, pod, id))
    } else {
        None
    };
    let obstacle = match refused {
        Some(reasons) => reasons
            .first()
            .map_or(Obstacle::Full(GPUS), |reason| of_refusal(model, pod, Some(id), reason)),
        None if fits => {
            scan.open.push(id);
            scan.room = scan
                .room
                .saturating_add(slots(node, shape, &node.allocatable, true).max(1));
            return None;
        }
        None => Obstacle::Full(short(shape, node)),
    };
    if matches!(obstacle, Obstacle::Full(_)) {
        scan.open.push(id);
        scan.room = scan.room.saturating_add(slots(node, shape, &node.allocatable, true));
    }
    Some(obstacle)
}

/// The position of the resource of which a node has too little free: GPUs before others.
fn short(shape: &Shape, node: &Node) -> usize {
    let short = |at: usize| shape.vector.get(at) > node.future.get(at);
    if !shape.cpu_only && !shape.shared && short(GPUS) {
        return GPUS;
    }
    let others = shape.vector.iter().map(|(at, _)| at).filter(|at| *at != GPUS);
    let lacking = others.into_iter().find(|at| shape.vector.get(*at) > 0 && short(*at));
    lacking.unwrap_or(if shape.cpu_only { PODS } else { GPUS })
}

/// How many pods of a shape fit into the given free resources.
fn slots(node: &Node, shape: &Shape, free: &Resources, empty: bool) -> i64 {
    let counted = shape
        .vector
        .iter()
        .filter(|(at, asked)| *asked > 0 && !(shape.shared && *at == GPUS));
    let plain = counted
        .map(|(at, asked)| free.get(at).max(0) / asked)
        .min()
        .unwrap_or(0);
    if !shape.shared {
        return plain;
    }
    let (of, memory) = (node.gpu_memory(), shape.device_memory(node.gpu_memory()).max(1));
    let whole = (free.get(GPUS) / GPU).max(0).saturating_mul(of / memory);
    let groups = if empty { &[][..] } else { &node.groups };
    let parts = groups.iter().filter(|gpu| gpu.used() && !gpu.all_leaving());
    let parts: i64 = parts.map(|gpu| gpu.free_later(of).max(0) / memory).sum();
    plain.min((whole + parts) / shape.gpu.count.max(1))
}

/// The largest free portion of one GPU, in millionths, and its node; and the free GPUs of all nodes.
#[must_use]
pub fn free_parts(model: &Model, open: &[NodeId]) -> (i64, Option<NodeId>, i64) {
    let (mut most, mut at, mut sum) = (0, None, 0);
    for &id in open {
        let node = &model.nodes()[id];
        let of = node.gpu_memory().max(1);
        let part =
            |memory: i64| i64::try_from(i128::from(memory.max(0)) * i128::from(GPU) / i128::from(of)).unwrap_or(0);
        let shared = node.groups.iter().filter(|gpu| gpu.used() && !gpu.all_leaving());
        let shared: Vec<i64> = shared.map(|gpu| part(gpu.free_later(of))).collect();
        let whole = (node.future.get(GPUS) / GPU).max(0);
        let best = if whole > 0 {
            GPU
        } else {
            shared.iter().copied().max().unwrap_or(0)
        };
        if best > most {
            (most, at) = (best, Some(id));
        }
        sum += whole * GPU + shared.iter().sum::<i64>();
    }
    (most, at, sum)
}

/// The free amount of a resource on all nodes, and the node with the most.
#[must_use]
pub fn free(model: &Model, open: &[NodeId], position: usize) -> (i64, i64, Option<NodeId>) {
    let (mut sum, mut most, mut at) = (0_i64, -1, None);
    for &id in open {
        let free = model.nodes()[id].future.get(position).max(0);
        sum = sum.saturating_add(free);
        if free > most {
            (most, at) = (free, Some(id));
        }
    }
    (sum, most.max(0), at)
}

/// A portion of a GPU in billionths as millionths.
#[must_use]
pub fn portion(shape: &Shape) -> i64 {
    shape.gpu.portion / (WHOLE / GPU)
}
