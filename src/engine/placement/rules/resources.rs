//! Resources (kube-scheduler's NodeResourcesFit): cpu, memory, GPUs, pod slots and extended resources, once releasing pods have gone.

use std::fmt;

use smallvec::SmallVec;

use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::ids::PodId;
use crate::engine::model::node::Node;
use crate::engine::model::resources::{CPU, GPUS, MEMORY, PODS, mig_slices};
use crate::engine::model::shape::Shape;
use crate::engine::placement::claims;
use crate::engine::placement::resources::pod_fits;

use super::{PodOnNode, Verdict};

/// What the node has too little of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// GPUs.
    Gpus,
    /// Memory of each GPU.
    GpuMemory,
    /// Cpu.
    Cpu,
    /// Memory.
    Memory,
    /// Another resource, by name.
    Other(String),
    /// Instances of a MIG profile, by name.
    Mig(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Gpus => "GPUs",
            Self::GpuMemory => "GPU memory",
            Self::Cpu => "CPU cores",
            Self::Memory => "memory",
            Self::Other(name) => name,
            Self::Mig(profile) => return write!(f, "node(s) didn't have enough of mig profile: {profile}"),
        };
        write!(f, "node(s) didn't have enough resources: {name}")
    }
}

/// The rule. An invalid request is refused without a reason, as in KAI.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    if pod_fits(pair.model, pair.pod_id, pair.id, false) {
        V::FITS
    } else {
        V::refused_for(|| shortages(pair))
    }
}

/// All insufficient resources. Resources that are being released do not count here, as in KAI.
fn shortages(pair: &PodOnNode) -> SmallVec<[Refusal; 2]> {
    let (model, shape, node) = (pair.model, pair.shape, pair.node);
    let spared = claims::spared(model, pair.pod_id, pair.id, claims::figures(true));
    let mut reasons: SmallVec<[Refusal; 2]> = SmallVec::new();
    for (name, amount) in &shape.gpu.mig {
        let position = model.resources().find(name);
        if position.is_none_or(|at| free(node, at) < *amount) {
            reasons.push(Refusal::Mig(name.to_string()));
        }
    }
    let gpus = if shape.gpu.memory > 0 {
        shape.accepted(node.gpu_memory())[GPUS]
    } else {
        shape.vector.get(GPUS)
    };
    if shape.gpu.mig.is_empty() && gpus - spared > free(node, GPUS).max(0) {
        reasons.push(Refusal::Gpus);
    } else if shape.gpu.memory > 0 && shape.gpu.memory > node.gpu_memory() {
        reasons.push(Refusal::GpuMemory);
    } else if shape.shared && reasons.is_empty() && shape.vector.fits(&node.future, true) && free(node, GPUS) < GPU {
        reasons.push(Refusal::Gpus);
    }
    let others = short(shape, node).filter(|at| *at != GPUS);
    reasons.extend(others.filter_map(|at| shortage(model, at)));
    reasons
}

fn free(node: &Node, position: usize) -> i64 {
    node.idle.get(position) - node.planned.get(position)
}

/// Positions of the insufficient resources, by amounts alone.
fn short<'a>(shape: &'a Shape, node: &'a Node) -> impl Iterator<Item = usize> + 'a {
    let short = |(at, asked): (usize, i64)| {
        let anyway = matches!(at, CPU | MEMORY);
        ((anyway || asked > 0) && asked > free(node, at)).then_some(at)
    };
    shape.vector.iter().filter_map(short)
}

/// The refusal for the resource at a position. MIG instances are reported by profile.
fn shortage(model: &Model, at: usize) -> Option<Refusal> {
    match at {
        CPU => Some(Refusal::Cpu),
        MEMORY => Some(Refusal::Memory),
        GPUS => Some(Refusal::Gpus),
        _ => {
            let name = model.resources().name(at);
            (mig_slices(name) == 0).then(|| Refusal::Other(name.to_string()))
        }
    }
}

/// Fast path for a report about many nodes: the missing resources as a bit mask, by position. `None`: not applicable, because claims,
/// shared GPUs or MIG profiles are involved, or there are more than 64 resources.
#[must_use]
pub fn missing_mask(model: &Model, id: PodId) -> Option<impl Fn(&Node) -> Option<u64>> {
    let pod = &model.pods()[id];
    let shape = &model.shapes()[pod.shape];
    let judged = pod.input.claims.is_none() && shape.plain() && shape.vector.iter().all(|(at, _)| at < 64);
    let missing = |node: &Node| {
        let fits = shape.vector.fits(&node.future, false);
        (!fits).then(|| short(shape, node).fold(0, |mask, at| mask | 1 << at))
    };
    judged.then_some(missing)
}

/// The refusals of a bit mask of [`missing_mask`].
pub fn of_mask(model: &Model, mask: u64) -> impl Iterator<Item = Refusal> + '_ {
    let positions = (0..64).filter(move |at| mask >> at & 1 == 1);
    positions.filter_map(|at| shortage(model, at))
}

/// Position of the first resource of which no node has as much as the pod requests, even empty. It implies that the rule refuses every node that is
/// not overcommitted.
#[must_use]
pub fn larger_than_all_nodes(model: &Model, id: PodId) -> Option<usize> {
    let pod = &model.pods()[id];
    let shape = &model.shapes()[pod.shape];
    let extended = pod.input.claims.iter().flat_map(|claims| &claims.extended);
    let claimed = extended
        .flat_map(|extended| &extended.wanted)
        .filter(|(_, gpu, _)| !gpu);
    let claimed: SmallVec<[usize; 2]> = claimed.filter_map(|(name, ..)| model.resources().find(name)).collect();
    let elsewhere = if model.devices().plain() {
        0
    } else {
        shape.gpu.dra * GPU
    };
    let too_large = |position: &usize| {
        let spared = if *position == GPUS { elsewhere } else { 0 };
        let asked = shape.vector.get(*position) - spared;
        asked > 0 && asked > model.largest().get(*position) && !claimed.contains(position)
    };
    let others = shape.vector.iter().map(|(at, _)| at).skip(PODS);
    [GPUS, CPU, MEMORY].into_iter().chain(others).find(too_large)
}
