//! Whether a pod fits a node: resources first, then rules.

use crate::api::names::node_label;
use crate::engine::fairshare::gates;
use crate::engine::input::{GpuKind, WHOLE};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::node::{Node, SharedGpu};
use crate::engine::model::prepare::has_label;
use crate::engine::model::resources::{GPUS, PODS, Resources};
use crate::engine::model::shape::Shape;
use crate::engine::policy::Policy;

use super::{claims, neighbours, numa, volumes};

/// Whether a shared GPU has room for `memory` more MiB once who leaves has left. A GPU that everybody leaves counts as a whole one instead.
#[must_use]
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

/// Whether `available` (idle or future of the node) has what the request asks for.
#[must_use]
fn resources_fit(node: &Node, shape: &Shape, available: &Resources) -> bool {
    if shape.invalid {
        return false;
    }
    if !shape.shared {
        return shape.vector.fits(available, false);
    }
    let whole = available.get(GPUS).div_euclid(crate::engine::input::GPU).max(0);
    shape.vector.fits(available, true)
        && shape.device_portion(node.gpu_memory()) <= WHOLE
        && whole + fitting_groups(node, shape).count() as i64 >= shape.gpu.count
}

/// Whether a node has the resources that a pod asks for, now or later. What a claim brings along need not be free there.
#[must_use]
pub fn task_fits(model: &Model, task: PodId, id: NodeId, now: bool) -> bool {
    let pod = &model.pods[task];
    let (node, shape) = (&model.nodes[id], &model.shapes[pod.shape]);
    let available = if now { &node.idle } else { &node.future };
    if pod.input.claims.is_none() || shape.shared {
        return resources_fit(node, shape, available);
    }
    let mut vector = shape.vector.clone();
    vector.bump(GPUS, -claims::spared(model, task, id, claims::figures(now)));
    for position in claims::stood_for(model, task, id) {
        vector.set(position, 0);
    }
    vector.fits(available, false)
}

/// Fits without waiting for anybody to leave.
#[must_use]
pub fn fits_now(node: &Node, shape: &Shape) -> bool {
    resources_fit(node, shape, &node.idle)
}

/// Rules beside resources. The class's bits must be up to date.
#[must_use]
pub fn allowed(model: &Model, policy: &Policy, task: PodId, id: NodeId) -> bool {
    let pod = &model.pods[task];
    let (node, shape, class) = (&model.nodes[id], &model.shapes[pod.shape], &model.classes[pod.class]);
    class.nodes.has(id.at())
        && node_kind_allows(node, shape)
        && claims::gpus_served(model, task, id)
        && (shape.gpu.memory == 0 || node.input.as_ref().is_some_and(|input| input.gpu_memory.is_some()))
        && sharing_open(node, shape)
        && slots_suffice(node, shape)
        && (class.constraints.ports.is_empty() || ports_free(model, task, node))
        && neighbours::clash(model, task, id).is_none()
        && numa::allows(model, task, id)
        && volumes::fit(model, task, id, false, policy.csi_storage).is_ok()
        && (!policy.restrict_nodes || worker_label_fits(policy, node, shape))
        && (shape.gpu.memory == 0 || gate_open(model, task, node))
}

/// Rules about kinds of GPU.
#[must_use]
pub fn node_kind_allows(node: &Node, shape: &Shape) -> bool {
    let Some(input) = &node.input else { return false };
    let strategy = || node.label(node_label::MIG_STRATEGY).map_or("", |value| &**value);
    if shape.gpu.legacy_mig {
        return false;
    }
    if shape.cpu_only {
        return true;
    }
    if shape.shared && input.dra_gpus || shape.gpu.kind == GpuKind::Mig && !input.mig {
        return false;
    }
    !input.mig
        || match strategy() {
            "single" => shape.gpu.kind == GpuKind::Regular,
            "mixed" => shape.gpu.kind == GpuKind::Mig,
            _ => true,
        }
}

/// A new shared GPU needs a slot for its reservation pod too.
#[must_use]
pub fn slots_suffice(node: &Node, shape: &Shape) -> bool {
    if !shape.shared {
        return true;
    }
    node.future.get(PODS) >= if joins(node, shape) { 1 } else { 2 }
}

/// GPUs of the node may be opened for sharing, or none need be.
#[must_use]
pub fn sharing_open(node: &Node, shape: &Shape) -> bool {
    node.sharing_from.is_none() || !shape.shared || joins(node, shape)
}

fn joins(node: &Node, shape: &Shape) -> bool {
    fitting_groups(node, shape).count() as i64 >= shape.gpu.count
}

/// No pod on the node, or coming to it, uses the host ports.
#[must_use]
pub fn ports_free(model: &Model, task: PodId, node: &Node) -> bool {
    let wanted = &model.pods[task].input.needs.host_ports;
    node.pods
        .iter()
        .chain(&node.coming)
        .filter(|other| **other != task)
        .all(|other| {
            let taken = &model.pods[*other].input.needs.host_ports;
            taken.iter().all(|taken| {
                let everywhere = |ip: &str| ip.is_empty() || ip == "0.0.0.0";
                wanted.iter().all(|port| {
                    port.port != taken.port
                        || port.protocol != taken.protocol
                        || (port.ip != taken.ip && !everywhere(&port.ip) && !everywhere(&taken.ip))
                })
            })
        })
}

/// Nodes are reserved for pods with or without GPUs.
#[must_use]
pub fn worker_label_fits(policy: &Policy, node: &Node, shape: &Shape) -> bool {
    has_label(
        node,
        if shape.cpu_only {
            &policy.cpu_worker_label
        } else {
            &policy.gpu_worker_label
        },
    )
}

/// Requests by memory count differently on each node: the queue's gates with the amount that it would be here.
#[must_use]
fn gate_open(model: &Model, task: PodId, node: &Node) -> bool {
    closed_gate(model, task, node).is_none()
}

/// See [`gate_open`].
#[must_use]
pub fn closed_gate(
    model: &Model,
    task: PodId,
    node: &Node,
) -> Option<(gates::Closed, crate::engine::model::resources::Shared)> {
    let pod = &model.pods[task];
    let gang = &model.pod_groups[pod.pod_group?];
    let amount = model.shapes[pod.shape].accepted(node.gpu_memory());
    let preemptible = gang.input.as_ref()?.preemptible;
    gates::check(model, gang.queue?, preemptible, &amount).map(|closed| (closed, amount))
}
