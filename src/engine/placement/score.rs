//! How well a node suits a pod: a sum of terms in steps that hardly ever overlap. This is the plain definition; `choose` finds the same winner without
//! looking at all nodes.

use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::class::NodeSet;
use crate::engine::model::ids::{NodeId, TaskId};
use crate::engine::model::index::spread_base;
use crate::engine::model::node::Node;
use crate::engine::model::prepare::strategies;
use crate::engine::model::resources::{CPU, GPUS};
use crate::engine::model::shape::Shape;
use crate::engine::policy::{Plugin, Policy, Strategy};

use super::filter::{fits_now, fitting_groups};

/// Order of GPUs on a node for sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuOrder {
    /// The fullest first.
    Pack,
    /// The emptiest first.
    Spread,
    /// Used ones first, no order among them.
    Any,
}

/// Which terms count.
#[derive(Clone, Copy, Debug)]
pub struct Scorers {
    /// 1000 if the pod fits now.
    pub availability: bool,
    /// 10 for pods without GPUs on nodes without GPUs.
    pub resource_type: bool,
    /// 10,000 if a GPU in shared use has room.
    pub sharing: bool,
    /// 10,000,000 for the nominated node.
    pub nominated: bool,
    /// 0 to 9, or 0 to 1: packing or spreading, for GPUs and cpu.
    pub placement: Option<(Strategy, Strategy)>,
    /// Order of GPUs.
    pub gpus: GpuOrder,
}

impl Scorers {
    /// Those of a policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let has = |test: fn(&Plugin) -> bool| policy.plugins.iter().any(test);
        let pack = has(|plugin| matches!(plugin, Plugin::GpuPack));
        let spread = has(|plugin| matches!(plugin, Plugin::GpuSpread));
        Self {
            availability: has(|plugin| matches!(plugin, Plugin::NodeAvailability)),
            resource_type: has(|plugin| matches!(plugin, Plugin::ResourceType)),
            sharing: has(|plugin| matches!(plugin, Plugin::GpuSharingOrder)),
            nominated: has(|plugin| matches!(plugin, Plugin::NominatedNode)),
            placement: strategies(policy),
            gpus: match (pack, spread) {
                (true, false) => GpuOrder::Pack,
                (false, true) => GpuOrder::Spread,
                (true, true) | (false, false) => GpuOrder::Any,
            },
        }
    }

    /// All nodes of `among` (`None` = all), best first; equal ones by name.
    #[must_use]
    pub fn rank(&self, model: &Model, task: TaskId, among: Option<&NodeSet>) -> Vec<NodeId> {
        let shape = &model.shapes[model.tasks[task].shape];
        let nodes: Vec<NodeId> = model
            .by_name
            .iter()
            .copied()
            .filter(|id| among.is_none_or(|set| set.has(id.at())))
            .collect();
        let range = self.range(model, shape, &nodes);
        let mut scored: Vec<(f64, NodeId)> = nodes
            .into_iter()
            .map(|id| (self.score(model, task, id, range), id))
            .collect();
        scored.sort_by(|left, right| right.0.total_cmp(&left.0));
        scored.into_iter().map(|(_, id)| id).collect()
    }

    fn resource(shape: &Shape) -> usize {
        if shape.cpu_only { CPU } else { GPUS }
    }

    /// Least and most free capacity over nodes that have any of it at all.
    fn range(&self, model: &Model, shape: &Shape, nodes: &[NodeId]) -> (i64, i64) {
        let resource = Self::resource(shape);
        let having = nodes
            .iter()
            .map(|id| &model.nodes[*id])
            .filter(|node| node.allocatable.get(resource) != 0);
        let free = having.map(|node| node.future.get(resource));
        free.fold((i64::MAX, 0), |(least, most), free| (least.min(free), most.max(free)))
    }

    fn score(&self, model: &Model, task: TaskId, id: NodeId, range: (i64, i64)) -> f64 {
        let pod = &model.tasks[task];
        let (node, shape) = (&model.nodes[id], &model.shapes[pod.shape]);
        let mut score = self.placement_term(node, shape, range);
        if self.resource_type && shape.cpu_only && node.cpu_only() {
            score += 10.0;
        }
        if self.availability && fits_now(node, shape) {
            score += 1000.0;
        }
        if self.sharing && fitting_groups(node, shape).next().is_some() {
            score += 10_000.0;
        }
        if self.nominated && pod.input.nominated_node.as_ref() == Some(&node.name) {
            score += 10_000_000.0;
        }
        score
    }

    fn placement_term(&self, node: &Node, shape: &Shape, (least, most): (i64, i64)) -> f64 {
        let Some((gpu, cpu)) = self.placement else { return 0.0 };
        let resource = Self::resource(shape);
        let free = node.future.get(resource);
        match if shape.cpu_only { cpu } else { gpu } {
            Strategy::Binpack if node.allocatable.get(resource) == 0 || most == 0 => 0.0,
            Strategy::Binpack if least == most => 9.0,
            Strategy::Binpack => 9.0 * (1.0 - (free - least) as f64 / (most - least) as f64),
            Strategy::Spread => match spread_base(node, resource) {
                0 => 0.0,
                of if resource == GPUS => free as f64 / GPU as f64 / of as f64,
                of => free as f64 / of as f64,
            },
        }
    }
}
