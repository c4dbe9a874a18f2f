//! Binds that must wait for evictions. What an evicted pod holds counts as free in its queue from the decision on, but the API server may refuse the eviction.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::engine::decision::Bind;
use crate::engine::input::Name;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodId, QueueId};
use crate::engine::model::resources::{Shared, add};
use crate::engine::policy::Policy;

/// Pods of a queue and those below it whose eviction is decided but may be refused.
#[derive(Default)]
struct Evicting {
    pods: Vec<PodId>,
    /// What they hold.
    held: Shared,
}

/// A queue that exceeds its limit if evictions are refused.
struct OverLimit {
    resources: [bool; 3],
    evicting: Arc<[Name]>,
}

/// Records in each bind the evictions without which a queue would exceed its limit. Without the plugin `proportion` limits do not count.
pub fn await_evictions(model: &mut Model, policy: &Policy, binds: &mut [Bind]) {
    // In any case: evictions that are over are forgotten by it.
    let evicting = model.evicting();
    if policy.plugins.proportion.is_none() || evicting.is_empty() || binds.is_empty() {
        return;
    }
    let over_limit = queues_over_limit(model, &evicting);
    if over_limit.is_empty() {
        return;
    }
    for bind in binds {
        let Some(pod) = model.pods().id(&bind.pod.uid) else {
            continue;
        };
        let asked = model.accepted(pod);
        let over_limit_for = |queue: QueueId| {
            let over_limit = over_limit.get(&queue)?;
            (0..3)
                .any(|at| over_limit.resources[at] && asked[at] > 0)
                .then_some(over_limit)
        };
        // The evictions of the topmost such queue include those of the queues below it.
        let queue = queue_of(model, pod);
        let last = queue.and_then(|queue| model.path_up(queue).filter_map(over_limit_for).last());
        bind.after_evictions = last.map(|over_limit| Arc::clone(&over_limit.evicting));
    }
}

fn queue_of(model: &Model, pod: PodId) -> Option<QueueId> {
    let pod = &model.pods()[pod];
    pod.member?;
    model.pod_groups()[pod.pod_group?].queue
}

fn queues_over_limit(model: &Model, evicting: &[PodId]) -> BTreeMap<QueueId, OverLimit> {
    let mut below: BTreeMap<QueueId, Evicting> = BTreeMap::new();
    for &pod in evicting {
        let held = model.accepted(pod);
        let queues = queue_of(model, pod).into_iter().flat_map(|queue| model.path_up(queue));
        for queue in queues.filter(|queue| has_limit(model, *queue)) {
            let sum = below.entry(queue).or_default();
            sum.pods.push(pod);
            add(&mut sum.held, &held, 1);
        }
    }
    let over_limit = below.into_iter().filter_map(|(id, evicting)| {
        let queue = &model.queues()[id];
        let resources = [0, 1, 2].map(|at| {
            let exceeded = |limit: i64| queue.allocated[at] + evicting.held[at] > limit;
            evicting.held[at] > 0 && queue.share(at).limit.is_some_and(exceeded)
        });
        let uid = |pod: &PodId| model.pods()[*pod].input.pod.uid.clone();
        let over_limit = || OverLimit {
            resources,
            evicting: evicting.pods.iter().map(uid).collect(),
        };
        resources.contains(&true).then(|| (id, over_limit()))
    });
    over_limit.collect()
}

fn has_limit(model: &Model, queue: QueueId) -> bool {
    (0..3).any(|at| model.queues()[queue].share(at).limit.is_some())
}
