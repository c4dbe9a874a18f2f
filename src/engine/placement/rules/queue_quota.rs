//! The queue's limit and quota, per node: how many GPUs a request by GPU memory counts depends on the node. Without the plugin `proportion` there are none.
//!
//! Other pods count the same on every node, so the check of the pod group before placement covers them, unless pods that request GPU memory are placed with
//! them (see [`refuses_all`]).

use std::fmt;

use crate::engine::fairshare::quotas::{self, Exceeded};
use crate::engine::model::Model;
use crate::engine::model::ids::PodId;
use crate::engine::model::pod::Pod;
use crate::engine::model::resources::Shared;

use super::{PodOnNode, Verdict};

/// The limit or quota that would be exceeded, with its figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The reason's code.
    pub code: &'static str,
    /// The message in KAI's words.
    pub details: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, details } = self;
        write!(
            f,
            "node does not have enough capacity. Reason: {code}, Details: {details}"
        )
    }
}

/// The rule.
pub fn check<V: Verdict<Refusal>>(pair: &PodOnNode) -> V {
    if pair.shape.gpu.memory == 0 || pair.settings.policy.plugins.proportion.is_none() {
        return V::FITS;
    }
    let amount = pair.shape.accepted(pair.node.gpu_memory());
    match exceeded(pair.model, pair.pod, &amount) {
        None => V::FITS,
        Some(gate) => V::refused(|| refusal(pair.model, gate, &amount)),
    }
}

/// Why all nodes refuse a pod that requests no GPU memory. Pods of its pod group that do, and were placed before it, may count more than the check of the pod
/// group assumed.
#[must_use]
pub fn refuses_all(model: &Model, pod: PodId) -> Option<Refusal> {
    let pod = &model.pods()[pod];
    let shape = &model.shapes()[pod.shape];
    if shape.gpu.memory > 0 {
        return None;
    }
    let gate = exceeded(model, pod, &shape.quota)?;
    Some(refusal(model, gate, &shape.quota))
}

fn exceeded(model: &Model, pod: &Pod, amount: &Shared) -> Option<Exceeded> {
    let pod_group = &model.pod_groups()[pod.pod_group?];
    let preemptible = pod_group.input.as_ref()?.preemptible;
    quotas::check(model, pod_group.queue?, preemptible, amount)
}

fn refusal(model: &Model, gate: Exceeded, amount: &Shared) -> Refusal {
    Refusal {
        code: gate.code.as_str(),
        details: quotas::message(model, gate, amount),
    }
}
