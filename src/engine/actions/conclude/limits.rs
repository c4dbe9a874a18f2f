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
    /// The part of it of non-preemptible pod groups.
    non_preemptible: Shared,
}

/// A queue that exceeds its limit, or its quota for non-preemptible pods, if evictions are refused.
struct OverLimit {
    limit: [bool; 3],
    quota: [bool; 3],
    evicting: Arc<[Name]>,
}

/// Records in each bind the evictions without which a queue would exceed its limit, or its quota if the pod is non-preemptible. Without the plugin
/// `proportion` neither counts.
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
        let non_preemptible = is_non_preemptible(model, pod);
        let over_limit_for = |queue: QueueId| {
            let over_limit = over_limit.get(&queue)?;
            let exceeded = |at: usize| over_limit.limit[at] || (non_preemptible && over_limit.quota[at]);
            (0..3).any(|at| exceeded(at) && asked[at] > 0).then_some(over_limit)
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

fn is_non_preemptible(model: &Model, pod: PodId) -> bool {
    let input = model.pod_group_of(pod).and_then(|pod_group| pod_group.input.as_ref());
    input.is_some_and(|input| !input.preemptible)
}

fn queues_over_limit(model: &Model, evicting: &[PodId]) -> BTreeMap<QueueId, OverLimit> {
    let mut below: BTreeMap<QueueId, Evicting> = BTreeMap::new();
    for &pod in evicting {
        let held = model.accepted(pod);
        let non_preemptible = is_non_preemptible(model, pod);
        let queues = queue_of(model, pod).into_iter().flat_map(|queue| model.path_up(queue));
        for queue in queues {
            let sum = below.entry(queue).or_default();
            sum.pods.push(pod);
            add(&mut sum.held, &held, 1);
            if non_preemptible {
                add(&mut sum.non_preemptible, &held, 1);
            }
        }
    }
    let over_limit = below.into_iter().filter_map(|(id, evicting)| {
        let queue = &model.queues()[id];
        let limit = [0, 1, 2].map(|at| {
            let exceeded = |limit: i64| queue.allocated[at] + evicting.held[at] > limit;
            evicting.held[at] > 0 && queue.share(at).limit.is_some_and(exceeded)
        });
        let quota = [0, 1, 2].map(|at| {
            let exceeded = |quota: i64| queue.non_preemptible[at] + evicting.non_preemptible[at] > quota;
            evicting.non_preemptible[at] > 0 && queue.share(at).quota.is_some_and(exceeded)
        });
        let uid = |pod: &PodId| model.pods()[*pod].input.pod.uid.clone();
        let over_limit = || OverLimit {
            limit,
            quota,
            evicting: evicting.pods.iter().map(uid).collect(),
        };
        (limit.contains(&true) || quota.contains(&true)).then(|| (id, over_limit()))
    });
    over_limit.collect()
}
