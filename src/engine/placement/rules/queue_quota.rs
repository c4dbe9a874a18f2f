//! The queue's limit and quota, per node: how many GPUs a request by GPU memory counts depends on the node. Without the plugin `proportion` there are none.

use std::fmt;

use crate::engine::fairshare::quotas::{self, Exceeded};
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
    match exceeded(pair) {
        None => V::FITS,
        Some((gate, amount)) => V::refused(|| Refusal {
            code: gate.code.as_str(),
            details: quotas::message(pair.model, gate, &amount),
        }),
    }
}

fn exceeded(pair: &PodOnNode) -> Option<(Exceeded, Shared)> {
    let pod_group = &pair.model.pod_groups()[pair.pod.pod_group?];
    let amount = pair.shape.accepted(pair.node.gpu_memory());
    let preemptible = pod_group.input.as_ref()?.preemptible;
    quotas::check(pair.model, pod_group.queue?, preemptible, &amount).map(|gate| (gate, amount))
}
