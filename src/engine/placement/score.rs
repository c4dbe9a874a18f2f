//! The score of a node for a pod: a sum of terms in steps that hardly ever overlap. This is the plain definition; `choose` finds the same winner without
//! looking at all nodes.

use std::cmp::{Ordering, Reverse};

use crate::engine::input::GPU;
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodId};
use crate::engine::model::index::spread_base;
use crate::engine::model::node::Node;
use crate::engine::model::resources::{CPU, GPUS};
use crate::engine::model::shape::Shape;
use crate::engine::policy::{NodePlacement, Policy, Strategy};

use super::devices::locality;
use super::preferred::Preferred;
use super::resources::{fitting_groups, pod_fits};
use super::{claims, neighbours, numa};

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

/// A score: the sum of the terms of 100,000 and more, and of those below, which together stay under 100,000. Between them, the index of the preferred group
/// of nodes, since several groups may share a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Score {
    steps: i64,
    group: Reverse<u32>,
    fine: f64,
}

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        let steps = (self.steps, self.group).cmp(&(other.steps, other.group));
        steps.then(self.fine.total_cmp(&other.fine))
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The terms below 1000 that the index cannot provide: NUMA zones spanned and device locality.
#[must_use]
pub fn extras(model: &Model, pod: PodId, id: NodeId) -> f64 {
    let mut sum = 0.0;
    if numa::counts(model, pod) {
        sum += numa::score(model, pod, id);
    }
    if locality::counts(model, pod) {
        sum += device_locality(model, pod, id);
    }
    sum
}

/// The maximum of [`extras`] on any node; 0 if they do not apply.
#[must_use]
pub fn most_extras(model: &Model, pod: PodId) -> f64 {
    let zones = if numa::counts(model, pod) { 100.0 } else { 0.0 };
    let devices = if locality::counts(model, pod) {
        100.0 * locality::closest(model) as f64
    } else {
        0.0
    };
    zones + devices
}

/// The score terms that are switched on.
#[derive(Clone, Copy, Debug)]
pub struct Scorers {
    /// 1000 if the pod fits now.
    pub availability: bool,
    /// 10 for pods without GPUs on nodes without GPUs.
    pub resource_type: bool,
    /// 10,000 for pods that share GPUs, if a shared GPU has room.
    pub sharing: bool,
    /// 10,000,000 for the nominated node.
    pub nominated: bool,
    /// 1,000,000 times the sum of preferred pod affinity weights.
    pub pod_affinity: bool,
    /// 0 to 9, or 0 to 1: packing or spreading, for GPUs and cpu.
    pub placement: Option<NodePlacement>,
    /// Order of GPUs.
    pub gpus: GpuOrder,
}

impl Scorers {
    /// The terms of a policy.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let plugins = &policy.plugins;
        Self {
            availability: plugins.node_availability,
            resource_type: plugins.resource_type,
            sharing: plugins.gpu_sharing_order,
            nominated: plugins.nominated_node,
            pod_affinity: plugins.pod_affinity,
            placement: plugins.node_placement,
            gpus: match (plugins.gpu_pack, plugins.gpu_spread) {
                (true, false) => GpuOrder::Pack,
                (false, true) => GpuOrder::Spread,
                (true, true) | (false, false) => GpuOrder::Any,
            },
        }
    }

    /// The nodes, best first; equal ones by name.
    #[must_use]
    pub fn rank(&self, model: &Model, pod: PodId, nodes: &[NodeId], preferred: Option<&Preferred>) -> Vec<NodeId> {
        let range = self.range(model, &model.shapes()[model.pods()[pod].shape], nodes);
        let score = |&id: &NodeId| {
            Some((
                self.score(model, pod, id, range, preferred)?,
                model.nodes()[id].rank,
                id,
            ))
        };
        let mut scored: Vec<_> = nodes.iter().filter_map(score).collect();
        scored.sort_unstable_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
        scored.into_iter().map(|(_, _, id)| id).collect()
    }

    fn resource(shape: &Shape) -> usize {
        if shape.cpu_only { CPU } else { GPUS }
    }

    /// Minimum and maximum of free capacity over nodes that have the resource.
    pub(super) fn range(&self, model: &Model, shape: &Shape, nodes: &[NodeId]) -> (i64, i64) {
        let resource = Self::resource(shape);
        let having = nodes
            .iter()
            .map(|id| &model.nodes()[*id])
            .filter(|node| node.allocatable.get(resource) != 0);
        let free = having.map(|node| node.future.get(resource));
        free.fold((i64::MAX, 0), |(least, most), free| (least.min(free), most.max(free)))
    }

    /// `None`: the node is in none of the preferred groups, and does not count.
    fn score(
        &self,
        model: &Model,
        pod: PodId,
        id: NodeId,
        range: (i64, i64),
        preferred: Option<&Preferred>,
    ) -> Option<Score> {
        self.score_with(model, pod, id, range, preferred, extras(model, pod, id))
    }

    /// The same where the extras are known.
    pub(super) fn score_with(
        &self,
        model: &Model,
        pod_id: PodId,
        node_id: NodeId,
        range: (i64, i64),
        preferred: Option<&Preferred>,
        extras: f64,
    ) -> Option<Score> {
        let pod = &model.pods()[pod_id];
        let (node, shape) = (&model.nodes()[node_id], &model.shapes()[pod.shape]);
        let (step, group) = preferred.map_or(Some((0, 0)), |preferred| preferred.rank(node_id))?;
        let mut score = Score {
            steps: step * 100_000,
            group: Reverse(group),
            fine: self.placement_term(node, shape, range),
        };
        if self.pod_affinity {
            score.steps += neighbours::preference(model, pod_id, node_id).saturating_mul(1_000_000);
        }
        if self.resource_type && shape.cpu_only && node.cpu_only() {
            score.fine += 10.0;
        }
        score.fine += extras;
        if self.availability && pod_fits(model, pod_id, node_id, true) {
            score.fine += 1000.0;
        }
        if self.sharing && shape.shared && fitting_groups(node, shape).next().is_some() {
            score.fine += 10_000.0;
        }
        if self.nominated && pod.input.nominated_node.as_ref() == Some(&node.name) {
            score.steps += 10_000_000;
        }
        Some(score)
    }

    fn placement_term(&self, node: &Node, shape: &Shape, (least, most): (i64, i64)) -> f64 {
        let Some(NodePlacement { gpu, cpu }) = self.placement else {
            return 0.0;
        };
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

/// 100 for each step of closeness that the pod's devices would have on the node.
fn device_locality(model: &Model, pod: PodId, id: NodeId) -> f64 {
    let now = pod_fits(model, pod, id, true);
    let Ok(given) = claims::choose_bounded(model, pod, id, now) else {
        return 0.0;
    };
    let fresh = given
        .iter()
        .filter(|given| given.known.is_none())
        .map(|given| &given.fresh);
    let known = given.iter().filter_map(|given| given.known.as_deref());
    100.0 * locality::closeness_of(model, fresh, known) as f64
}
