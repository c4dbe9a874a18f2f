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

use super::filter::{allowed, fits_later, fits_now, fitting_groups};
use super::gpu;
use super::neighbours::{self, Spreading};
use super::numa;
use super::preferred::Preferred;
use super::score::Scorers;

/// What placement needs to know beside the model.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// Which preferences count.
    pub scorers: &'a Scorers,
    /// Where it looks.
    pub scope: Scope<'a>,
    /// How the pods lie among which the pod must be spread.
    pub spreading: Option<&'a Spreading>,
}

/// Where a pod may go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// The nodes in question; `None` = all.
    pub among: Option<&'a NodeSet>,
    /// Groups of nodes, the best first; nodes in none of them are not in question.
    pub preferred: Option<&'a Preferred>,
}

impl Scope<'_> {
    /// Whether a node is in question.
    #[must_use]
    pub fn has(&self, id: NodeId) -> bool {
        self.among.is_none_or(|set| set.has(id.at()))
    }

    /// Its nodes.
    fn nodes(&self, model: &Model) -> Vec<NodeId> {
        match self.among {
            Some(set) => set.iter().map(NodeId::of).collect(),
            None => model.by_name.clone(),
        }
    }
}

/// Whether a pod can go to a node, now or later.
fn suits(model: &Model, context: Context, task: TaskId, id: NodeId, work: &mut Work) -> bool {
    work.nodes_tested += 1;
    let (node, shape) = (&model.nodes[id], &model.shapes[model.tasks[task].shape]);
    context.scope.has(id)
        && fits_later(node, shape)
        && allowed(model, context.policy, task, id)
        && context
            .spreading
            .is_none_or(|spreading| spreading.clash(model, id).is_none())
        && (!shape.shared || gpu::choose(model, task, node, context.scorers.gpus).is_some())
}

/// One in so many nodes in question: fewer are looked at one by one, more by the index.
const FEW: usize = 16;

/// The best node for a pod, if it fits any. The pod's class must be up to date.
#[must_use]
pub fn best_node(model: &Model, context: Context, task: TaskId, work: &mut Work) -> Option<NodeId> {
    let scorers = context.scorers;
    let indexed = scorers.availability && scorers.resource_type && scorers.placement.is_some();
    let special = model.tasks[task].input.nominated_node.is_some()
        || numa::counts(model, task)
        || (scorers.pod_affinity && neighbours::has_preferences(model, task));
    if !indexed || special {
        return scan(model, context, task, work);
    }
    if let Some(preferred) = context.scope.preferred {
        return best_of_groups(model, context, preferred, task, work);
    }
    match context.scope.among {
        Some(among) if among.count() * FEW < model.by_name.len() => {
            let nodes: Vec<NodeId> = among.iter().map(NodeId::of).collect();
            pick(model, context, &nodes, task, work)
        }
        Some(_) | None => walk(model, context, task, work),
    }
}

/// Group after group.
fn best_of_groups(
    model: &Model,
    context: Context,
    preferred: &Preferred,
    task: TaskId,
    work: &mut Work,
) -> Option<NodeId> {
    let pod = &model.tasks[task];
    let kind = (pod.class, pod.shape);
    let lasting = !neighbours::concerned(model, task);
    let first = if lasting { preferred.first_open(kind) } else { 0 };
    let groups = preferred.groups().enumerate().skip(first);
    for (at, group) in groups {
        let found = if group.len() * FEW < model.by_name.len() {
            pick(model, context, group, task, work)
        } else {
            let mut nodes = NodeSet::default();
            for id in group.iter().filter(|id| context.scope.has(**id)) {
                nodes.add(id.at());
            }
            let scope = Scope {
                among: Some(&nodes),
                preferred: None,
            };
            walk(model, Context { scope, ..context }, task, work)
        };
        if found.is_some() {
            if lasting {
                preferred.note_open(kind, at);
            }
            return found;
        }
    }
    None
}

/// By the plain definition: all nodes in order of score.
#[must_use]
pub fn scan(model: &Model, context: Context, task: TaskId, work: &mut Work) -> Option<NodeId> {
    let nodes = context.scope.nodes(model);
    let order = context.scorers.rank(model, task, &nodes, context.scope.preferred);
    order.into_iter().find(|id| suits(model, context, task, *id, work))
}

/// The best of a few nodes that rank alike by topology: those that suit are scored.
fn pick(model: &Model, context: Context, nodes: &[NodeId], task: TaskId, work: &mut Work) -> Option<NodeId> {
    let mut fitting = Vec::new();
    for &id in nodes {
        if suits(model, context, task, id, work) {
            fitting.push(id);
        }
    }
    match &*fitting {
        [] => None,
        [only] => Some(*only),
        _ => context.scorers.rank(model, task, &fitting, None).first().copied(),
    }
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
            if !context.scope.has(id) {
                continue;
            }
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
    let ranks = model.index.sharing.iter();
    let with_room: Vec<NodeId> = ranks
        .map(|rank| model.index.at_rank(*rank))
        .filter(|id| context.scope.has(*id) && fitting_groups(&model.nodes[*id], shape).next().is_some())
        .collect();
    context.scorers.rank(model, task, &with_room, None)
}
