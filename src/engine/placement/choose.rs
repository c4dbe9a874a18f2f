//! The best node for a pod.
//!
//! Scores come in steps: a nominated node, shared GPUs with room (for pods that share GPUs), idle resources, the kind of node, then the packing order. The walk
//! goes through the node index step by step and stops at the first node that fits; the plain definition in `score` gives the same answer and is used where the
//! index does not apply. Preferred pod affinity comes before all this but the nominated node: nodes are grouped by its sum of weights.

use std::cell::RefCell;
use std::cmp::Reverse;

use smallvec::SmallVec;

use crate::engine::decision::{LOOKS_PER_TEST, Work};
use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::epochs::{Change, Seen};
use crate::engine::model::ids::{ClassId, NodeId, PodId, ShapeId};
use crate::engine::model::index::Order;
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::relations::Counters;
use crate::engine::model::resources::{CPU, GPUS};
use crate::engine::model::shape::Shape;
use crate::engine::policy::Policy;

use super::claims;
use super::neighbours::{self, Spreading};
use super::preferred::Preferred;
use super::resources::{fitting_groups, pod_fits};
use super::rules::{self, Fit, PodOnNode};
use super::score::{Scorers, extras, most_extras};
use super::volumes;

/// Input of placement beside the model.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The settings.
    pub policy: &'a Policy,
    /// The score terms that are switched on.
    pub scorers: &'a Scorers,
    /// The candidate nodes.
    pub scope: Scope<'a>,
    /// The pod's topology spread constraints at this moment.
    pub spreading: Option<&'a Spreading>,
    /// Cache of nodes that rejected pods like the last one.
    pub rejected: Option<&'a RefCell<RejectedNodes>>,
}

impl<'a> Context<'a> {
    /// A pod and a node as input of the placement rules.
    #[must_use]
    pub fn pair(self, model: &'a Model, pod: PodId, id: NodeId) -> PodOnNode<'a> {
        let settings = rules::Settings {
            policy: self.policy,
            spreading: self.spreading,
            gpu_order: self.scorers.gpus,
        };
        PodOnNode::new(model, settings, pod, id)
    }
}

/// Nodes that rejected a pod. Until something is freed, they reject all pods of the same class, shape and counters. (This holds for missing pod affinity,
/// too: placing such a pod cannot satisfy it, since a pod that matches its own affinity is not rejected for it.)
#[derive(Debug, Default)]
pub struct RejectedNodes {
    like: Option<(ClassId, ShapeId, Counters)>,
    freed: Seen,
    nodes: NodeSet,
}

impl RejectedNodes {
    /// Prepares the cache for a pod; false if rejections of this pod hold for no other.
    fn ready(&mut self, model: &Model, id: PodId) -> bool {
        let pod = &model.pods()[id];
        let shape = &model.shapes()[pod.shape];
        let moves = pod.state.hold.is_some() || pod.state.plan.is_some();
        if shape.shared || shape.gpu.memory != 0 || moves || volumes::concerned(model, id) {
            *self = Self::default();
            return false;
        }
        let same = |(class, shape, counted): &(ClassId, ShapeId, Counters)| {
            (*class, *shape) == (pod.class, pod.shape) && *counted == pod.counted
        };
        let freed = self.freed.catch_up(model.epochs().of(Change::CapacityFreed));
        if freed || !self.like.as_ref().is_some_and(same) {
            *self = Self {
                like: Some((pod.class, pod.shape, pod.counted.clone())),
                freed: self.freed,
                nodes: NodeSet::default(),
            };
        }
        true
    }
}

/// The candidate nodes of a pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// The candidates; `None` = all nodes.
    pub among: Option<&'a NodeSet>,
    /// Groups of candidates, the best first; nodes in no group are excluded.
    pub preferred: Option<&'a Preferred>,
}

impl Scope<'_> {
    /// Whether a node is a candidate.
    #[must_use]
    pub fn has(&self, id: NodeId) -> bool {
        self.among.is_none_or(|set| set.has(id.at()))
    }

    /// Whether there are so few candidates that a scan is cheaper than the index.
    fn is_small(&self, model: &Model) -> bool {
        self.among.is_some_and(|among| are_few(among.count(), model))
    }

    /// The candidates in order of their names.
    #[must_use]
    pub fn by_name(&self, model: &Model) -> Vec<NodeId> {
        let mut nodes = self.nodes(model);
        if self.among.is_some() {
            nodes.retain(|id| model.nodes()[*id].input.is_some());
            nodes.sort_unstable_by_key(|id| model.nodes()[*id].rank);
        }
        nodes
    }

    /// The candidates as a list.
    fn nodes(&self, model: &Model) -> Vec<NodeId> {
        match self.among {
            Some(set) => set.iter().map(NodeId::of).collect(),
            None => model.by_name().to_vec(),
        }
    }
}

/// Whether a candidate node fits a pod, now or later.
fn node_fits(model: &Model, context: Context, pod: PodId, id: NodeId, work: &mut Work) -> bool {
    if is_rejected(model, context, pod, id) || !context.scope.has(id) {
        return false;
    }
    work.nodes_tested += 1;
    let fit = rules::fits(&context.pair(model, pod, id));
    if let (Fit::RefusedUntilFreed, Some(rejected)) = (fit, context.rejected) {
        rejected.borrow_mut().nodes.add(id.at());
    }
    fit == Fit::Fits
}

/// Whether the node is in the cache, and so rejects the pod.
fn is_rejected(model: &Model, context: Context, pod: PodId, id: NodeId) -> bool {
    let known = |rejected: &RefCell<RejectedNodes>| rejected.borrow().nodes.has(id.at());
    let rejected = context.rejected.is_some_and(known);
    debug_assert!(!rejected || rules::fits(&context.pair(model, pod, id)) != Fit::Fits);
    rejected
}

/// Candidates are scanned if they are fewer than one in so many nodes; else the index is used.
const FEW: usize = 16;

fn are_few(nodes: usize, model: &Model) -> bool {
    nodes * FEW < model.by_name().len()
}

/// The best node for a pod, if it fits any. The pod's class must be up to date.
#[must_use]
pub fn best_node(model: &mut Model, context: Context, pod: PodId, work: &mut Work) -> Option<NodeId> {
    let extras = most_extras(model, pod);
    if extras > 0.0 || !context.scope.is_small(model) {
        model.catch_up_index();
    }
    let model = &*model;
    let scorers = context.scorers;
    let indexed = scorers.availability && scorers.resource_type && scorers.placement.is_some();
    let preferences = scorers.pod_affinity && neighbours::has_preferences(model, pod);
    let nominated = model.pods()[pod]
        .input
        .nominated_node
        .as_ref()
        .filter(|_| scorers.nominated);
    // Also before a scan: the pod that it places may satisfy the affinity of others.
    let rejected = context
        .rejected
        .filter(|rejected| rejected.borrow_mut().ready(model, pod));
    let graded = preferences || context.scope.preferred.is_some() || model.shapes()[model.pods()[pod].shape].shared;
    let special = claims::need_less(model, pod) || (preferences && nominated.is_some()) || (extras > 0.0 && graded);
    if !indexed || special || (preferences && context.scope.preferred.is_some()) {
        return scan(
            model,
            Context {
                rejected: None,
                ..context
            },
            pod,
            work,
        );
    }
    // Pods of one class and shape may differ in their NUMA requests.
    let rejected = rejected.filter(|_| extras == 0.0);
    let context = Context { rejected, ..context };
    let nominated = nominated.and_then(|name| model.node_named(name));
    let ranked = |id: &NodeId| {
        context
            .scope
            .preferred
            .is_none_or(|preferred| preferred.rank(*id).is_some())
    };
    if let Some(id) = nominated.filter(ranked)
        && node_fits(model, context, pod, id, work)
    {
        return Some(id);
    }
    if extras > 0.0 {
        return walk_with_extras(model, context, extras, pod, work);
    }
    if preferences {
        return best_by_preferences(model, context, pod, work);
    }
    if let Some(preferred) = context.scope.preferred {
        return best_of_groups(model, context, preferred, pod, work);
    }
    best_of_equals(model, context, pod, work)
}

/// The best of the candidates, without preferred groups.
fn best_of_equals(model: &Model, context: Context, pod: PodId, work: &mut Work) -> Option<NodeId> {
    match context.scope.among {
        Some(among) if context.scope.is_small(model) => {
            let nodes: Vec<NodeId> = among.iter().map(NodeId::of).collect();
            pick(model, context, &nodes, pod, work)
        }
        Some(_) | None => walk(model, context, pod, work),
    }
}

/// The best by preferred pod affinity: nodes are tried in levels of equal weight sums, the highest first.
fn best_by_preferences(model: &Model, context: Context, pod: PodId, work: &mut Work) -> Option<NodeId> {
    let preferences = neighbours::preferences(model, pod);
    let preference = |id: &NodeId| preferences[id.at()];
    let mut nodes = context.scope.nodes(model);
    // Sorted once, not searched for each level: tenants can give every node a sum of its own.
    nodes.sort_by_key(|id| Reverse(preference(id)));
    work.nodes_tested += (nodes.len() / LOOKS_PER_TEST) as u64;
    let mut levels = nodes.chunk_by(|left, right| preference(left) == preference(right));
    levels.find_map(|level| best_of_these(model, context, level, pod, work))
}

/// The best of some nodes, as far as they are candidates, without preferred groups. A few are tested one by one, so that the index is not walked for each few.
fn best_of_these(model: &Model, context: Context, nodes: &[NodeId], pod: PodId, work: &mut Work) -> Option<NodeId> {
    if are_few(nodes.len(), model) {
        return pick(model, context, nodes, pod, work);
    }
    let candidates = nodes.iter().filter(|id| context.scope.has(**id));
    let among: NodeSet = candidates.map(|id| id.at()).collect();
    let scope = Scope {
        among: Some(&among),
        preferred: None,
    };
    best_of_equals(model, Context { scope, ..context }, pod, work)
}

/// The best of the preferred groups, tried in order.
fn best_of_groups(
    model: &Model,
    context: Context,
    preferred: &Preferred,
    id: PodId,
    work: &mut Work,
) -> Option<NodeId> {
    let pod = &model.pods()[id];
    let kind = (pod.class, pod.shape);
    let lasting = !neighbours::concerned(model, id) && !neighbours::excludes_its_kind(model, id);
    let first = if lasting { preferred.first_open(kind) } else { 0 };
    debug_assert!({
        let mut before = (0..first).flat_map(|at| preferred.group(at));
        !before.any(|node| context.scope.has(*node) && rules::fits(&context.pair(model, id, *node)) == Fit::Fits)
    });
    let few = context.scope.among.filter(|_| context.scope.is_small(model));
    let groups = preferred.groups_with(few).into_iter();
    for at in groups.skip_while(|at| *at < first) {
        let found = best_of_these(model, context, preferred.group(at), id, work);
        if found.is_some() {
            if lasting {
                preferred.note_open(kind, at);
            }
            return found;
        }
    }
    None
}

/// The best by the plain definition: all nodes in order of score.
#[must_use]
pub fn scan(model: &Model, context: Context, pod: PodId, work: &mut Work) -> Option<NodeId> {
    let nodes = context.scope.nodes(model);
    let order = context.scorers.rank(model, pod, &nodes, context.scope.preferred);
    order.into_iter().find(|id| node_fits(model, context, pod, *id, work))
}

/// The best of a few nodes of equal topology rank: those that fit are scored.
fn pick(model: &Model, context: Context, nodes: &[NodeId], pod: PodId, work: &mut Work) -> Option<NodeId> {
    let mut fitting = Vec::new();
    for &id in nodes {
        if node_fits(model, context, pod, id, work) {
            fitting.push(id);
        }
    }
    match &*fitting {
        [] => None,
        [only] => Some(*only),
        _ => context.scorers.rank(model, pod, &fitting, None).first().copied(),
    }
}

/// The index lists to walk for a pod, the better ones first, each with the least that must be free.
fn lists(shape: &Shape, scorers: &Scorers) -> SmallVec<[(Order, i64); 2]> {
    // A pod that requests nothing of a resource fits even on a node where that is overcommitted. Pods with instances of a GPU request no whole ones.
    let least = |amount: i64| if amount > 0 { amount } else { i64::MIN };
    let cpu = least(shape.vector.get(CPU));
    if shape.cpu_only {
        SmallVec::from_iter([(Order::CpuNodes, cpu), (Order::GpuNodes, cpu)])
    } else if !shape.shared {
        SmallVec::from_iter([(Order::Gpus, least(shape.vector.get(GPUS)))])
    } else if scorers.sharing {
        SmallVec::from_iter([(Order::Gpus, shape.gpu.count * GPU)])
    } else {
        SmallVec::from_iter([(Order::Gpus, i64::MIN)])
    }
}

/// The best by a walk through the index.
#[must_use]
pub fn walk(model: &Model, context: Context, pod: PodId, work: &mut Work) -> Option<NodeId> {
    let shape = &model.shapes()[model.pods()[pod].shape];
    if context.scorers.sharing && shape.shared && !model.index().sharing.is_empty() {
        let sharing = sharing_nodes(model, context, pod);
        work.nodes_tested += model.index().sharing.len() as u64;
        if let Some(id) = sharing.into_iter().find(|id| node_fits(model, context, pod, *id, work)) {
            return Some(id);
        }
    }
    let mut later = None;
    for (order, least) in lists(shape, context.scorers) {
        let mut first_later = None;
        for id in model.index().walk(order, least) {
            if !context.scope.has(id) || is_rejected(model, context, pod, id) {
                continue;
            }
            let now = pod_fits(model, pod, id, true);
            if (now || (later.is_none() && first_later.is_none())) && node_fits(model, context, pod, id, work) {
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

/// The best where score terms outside the index add up to `most`: nodes in index order, until no later one can be better. Not for pods that share GPUs.
fn walk_with_extras(model: &Model, context: Context, most: f64, pod: PodId, work: &mut Work) -> Option<NodeId> {
    let (scorers, shape) = (context.scorers, &model.shapes()[model.pods()[pod].shape]);
    let range = scorers.range(model, shape, &context.scope.nodes(model));
    let value = |id: NodeId, more: f64| {
        let score = scorers.score_with(model, pod, id, range, None, more);
        (score, Reverse(model.nodes()[id].rank))
    };
    // Nodes where the pod must wait rank below all where it fits now.
    [true, false].into_iter().find_map(|now| {
        let mut best = None;
        for (order, least) in lists(shape, scorers) {
            for id in model.index().walk(order, least) {
                let fits = context.scope.has(id) && pod_fits(model, pod, id, true) == now;
                if !fits || !node_fits(model, context, pod, id, work) {
                    continue;
                }
                let more = extras(model, pod, id);
                let value = value(id, more);
                if best.as_ref().is_none_or(|(known, _)| *known < value) {
                    best = Some((value, id));
                }
                if more >= most {
                    return best.map(|(_, id)| id);
                }
            }
        }
        best.map(|(_, id)| id)
    })
}

/// Nodes with a shared GPU that has room for the pod, best first.
fn sharing_nodes(model: &Model, context: Context, pod: PodId) -> Vec<NodeId> {
    let shape = &model.shapes()[model.pods()[pod].shape];
    let nodes = model.index().sharing.iter().map(|rank| model.index().at_rank(*rank));
    let has_room = |id: &NodeId| fitting_groups(&model.nodes()[*id], shape).next().is_some();
    let with_room: Vec<NodeId> = nodes.filter(|id| context.scope.has(*id) && has_room(id)).collect();
    context.scorers.rank(model, pod, &with_room, None)
}

#[cfg(test)]
pub(super) mod tests;
