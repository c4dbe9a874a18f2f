//! Whether a node has the resources that a pod requests.

use crate::engine::input::{GPU, WHOLE};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::node::{Node, SharedGpu};
use crate::engine::model::resources::{GPUS, Resources};
use crate::engine::model::shape::Shape;

use super::claims;

/// Whether a shared GPU has room for `memory` more MiB once releasing pods have gone. A GPU whose pods are all releasing counts as a whole one instead.
fn group_fits(gpu: &SharedGpu, of: i64, memory: i64) -> bool {
    gpu.used() && !gpu.all_leaving() && gpu.free_later(of) >= memory
}

/// Shared GPUs of a node that have room for a request.
pub fn fitting_groups<'a>(node: &'a Node, shape: &Shape) -> impl Iterator<Item = (u32, &'a SharedGpu)> + use<'a> {
    let of = node.gpu_memory();
    let memory = shape.device_memory(of);
    let numbered = node.groups.iter().enumerate().map(|(at, gpu)| (at as u32, gpu));
    numbered.filter(move |(_, gpu)| group_fits(gpu, of, memory))
}

/// Whether `available` (idle or future of the node) has what the request asks for; `vector`: what of it need be free.
fn resources_fit(node: &Node, shape: &Shape, vector: &Resources, available: &Resources) -> bool {
    if shape.invalid {
        return false;
    }
    if !shape.shared {
        return vector.fits(available, false);
    }
    let whole = available.get(GPUS).div_euclid(GPU).max(0);
    vector.fits(available, true)
        && shape.device_portion(node.gpu_memory()) <= WHOLE
        && whole + fitting_groups(node, shape).count() as i64 >= shape.gpu.count
}

/// Whether a node has the resources that a pod requests, now or later. Resources that claims provide need not be free.
#[must_use]
pub fn pod_fits(model: &Model, pod_id: PodId, node_id: NodeId, now: bool) -> bool {
    let pod = &model.pods()[pod_id];
    let (node, shape) = (&model.nodes()[node_id], &model.shapes()[pod.shape]);
    let available = if now { &node.idle } else { &node.future };
    if pod.input.claims.is_none() {
        return resources_fit(node, shape, &shape.vector, available);
    }
    let mut vector = shape.vector.clone();
    if !shape.shared {
        vector.bump(GPUS, -claims::spared(model, pod_id, node_id, claims::figures(now)));
    }
    for position in claims::provided_by_claims(model, pod_id, node_id) {
        vector.set(position, 0);
    }
    resources_fit(node, shape, &vector, available)
}
