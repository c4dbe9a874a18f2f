//! The best node for a pod.
//!
//! Preferences come in steps: a nominated node, GPUs in shared use, room now, the kind of node, then the packing order. The walk goes through the node
//! index step by step and stops at the first node that fits; the plain definition in `score` gives the same answer and serves where the index does not
//! reach.

use crate::engine::decision::Work;
use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::class::NodeSet;
use crate::engine::model::ids::{NodeId, TaskId};
use crate::engine::model::index::Order;
use crate::engine::model::resources::{CPU, GPUS};
use crate::engine::policy::Policy;

use super::filter::{allowed, fits_later, fits_now};
use super::gpu;
use super::score::Scorers;

/// What placement needs to know beside the model.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// Which preferences count.
    pub scorers: &'a Scorers,
    /// The nodes in question; `None` = all.
    pub among: Option<&'a NodeSet>,
}

/// Whether a pod can go to a node, now or later.
fn suits(model: &Model, context: Context, task: TaskId, id: NodeId, work: &mut Work) -> bool {
    work.nodes_tested += 1;
    let (node, shape) = (&model.nodes[id], &model.shapes[model.tasks[task].shape]);
    context.among.is_none_or(|set| set.has(id.at()))
        && fits_later(node, shape)
        && allowed(model, context.policy, task, id)
        && (!shape.shared || gpu::choose(model, task, node, context.scorers.gpus).is_some())
}

/// The best node for a pod, if it fits any. The pod's class must be up to date.
#[must_use]
pub fn best_node(model: &Model, context: Context, task: TaskId, work: &mut Work) -> Option<NodeId> {
    let scorers = context.scorers;
    let indexed = scorers.availability && scorers.resource_type && scorers.placement.is_some();
    if indexed && model.tasks[task].input.nominated_node.is_none() {
        walk(model, context, task, work)
    } else {
        scan(model, context, task, work)
    }
}

/// By the plain definition: all nodes in order of score.
#[must_use]
pub fn scan(model: &Model, context: Context, task: TaskId, work: &mut Work) -> Option<NodeId> {
    let order = context.scorers.rank(model, task, context.among);
    order.into_iter().find(|id| suits(model, context, task, *id, work))
}

/// By the index.
#[must_use]
pub fn walk(model: &Model, context: Context, task: TaskId, work: &mut Work) -> Option<NodeId> {
    let shape = &model.shapes[model.tasks[task].shape];
    if context.scorers.sharing && !model.index.sharing.is_empty() {
        let sharing = sharing_nodes(model, context, task);
        if let Some(id) = sharing.into_iter().find(|id| suits(model, context, task, *id, work)) {
            return Some(id);
        }
    }
    let lists: &[(Order, i64)] = if shape.cpu_only {
        &[
            (Order::CpuNodes, shape.vector.get(CPU)),
            (Order::GpuNodes, shape.vector.get(CPU)),
        ]
    } else if !shape.shared {
        &[(Order::Gpus, shape.vector.get(GPUS))]
    } else if context.scorers.sharing {
        &[(Order::Gpus, shape.gpu.count * GPU)]
    } else {
        &[(Order::Gpus, i64::MIN)]
    };
    let mut later = None;
    for &(order, least) in lists {
        let mut first_later = None;
        for id in model.index.walk(order, least) {
            let now = fits_now(&model.nodes[id], shape);
            if (now || (later.is_none() && first_later.is_none())) && suits(model, context, task, id, work) {
                if now {
                    return Some(id);
                }
                first_later = Some(id);
            }
        }
        later = later.or(first_later);
    }
    later
}

/// Nodes with a GPU in shared use that has room, best first.
fn sharing_nodes(model: &Model, context: Context, task: TaskId) -> Vec<NodeId> {
    let shape = &model.shapes[model.tasks[task].shape];
    let mut set = NodeSet::default();
    let mut any = false;
    for &rank in &model.index.sharing {
        let id = model.index.at_rank(rank);
        if context.among.is_none_or(|set| set.has(id.at()))
            && super::filter::fitting_groups(&model.nodes[id], shape).next().is_some()
        {
            set.add(id.at());
            any = true;
        }
    }
    if any {
        context.scorers.rank(model, task, Some(&set))
    } else {
        Vec::new()
    }
}
