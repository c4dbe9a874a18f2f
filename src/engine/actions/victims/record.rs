//! Commits the answer of a search, and records it for decisions, reports and later searches.

use std::sync::Arc;

use crate::engine::decision::{Side, Sides};
use crate::engine::fairshare::reclaim::parting;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};

use super::{Answer, Case, lost};
use crate::engine::actions::cycle::Cycle;
use crate::engine::actions::cycle_log::{CycleLog, EvictionReason, Taken};

/// Commits an answer.
pub fn record(cycle: &mut Cycle, answer: &Answer) {
    let case = &answer.case;
    let preemptor = cycle.model.pod_groups()[case.pod_group].key.clone();
    let mut known: Vec<(QueueId, Arc<Sides>)> = Vec::new();
    debug_assert!(cycle.model.changed_since(answer.mark).next().is_some());
    remember_taken(cycle.model, &mut cycle.log, answer);
    for batch in &answer.victims {
        let lost: Vec<PodId> = batch
            .pods
            .iter()
            .copied()
            // One that was only planned is not evicted.
            .filter(|pod| lost(cycle.model, *pod) && cycle.model.pods()[*pod].state.hold.is_some())
            .collect();
        if lost.is_empty() {
            continue;
        }
        let between = sides(cycle.model, case, batch.pod_group, &mut known);
        for pod in lost {
            let reason = EvictionReason {
                action: case.action.kind(),
                preemptor: Some(preemptor.clone()),
                cause: case.action.cause(between.clone()),
            };
            cycle.log.evictions.insert(pod, reason);
        }
        let times = cycle.model.pod_groups()[batch.pod_group].eviction_times();
        cycle.log.evictions_before.entry(batch.pod_group).or_insert(times);
        cycle.model.evicted(batch.pod_group, cycle.context.now);
        cycle.log.timed.insert(batch.pod_group);
    }
    cycle.commit();
}

/// The figures of the two queues between which capacity moves, from before the search.
fn sides(model: &Model, case: &Case, victim: PodGroupId, known: &mut Vec<(QueueId, Arc<Sides>)>) -> Option<Arc<Sides>> {
    if !case.action.is_between_queues() {
        return None;
    }
    let theirs = model.pod_groups()[victim].queue?;
    if let Some((_, sides)) = known.iter().find(|(queue, _)| *queue == theirs) {
        return Some(sides.clone());
    }
    let (ours, donor) = parting(model, case.queue, theirs)?;
    let side = |id: QueueId| {
        let queue = &model.queues()[id];
        let input = queue.input.as_ref()?;
        Some(Side {
            queue: input.display.clone(),
            used: case.held.of(id),
            quota: [0, 1, 2].map(|resource| queue.share(resource).quota),
            fair: queue.fair,
            priority: input.priority,
        })
    };
    let sides = Arc::new(Sides {
        theirs: side(donor)?,
        ours: side(ours)?,
    });
    known.push((theirs, sides.clone()));
    Some(sides)
}

/// Records the pods that lose their places to an answer.
fn remember_taken(model: &Model, log: &mut CycleLog, answer: &Answer) {
    if answer.case.action.is_between_queues() {
        log.gains.push(gaining(model, answer));
    }
    for (pod, before) in model.states_before(answer.mark) {
        let now = &model.pods()[pod].state;
        if now.evicted_from.is_none() || now.hold.is_none() {
            continue;
        }
        let (order, gains) = (log.taken.len(), log.gains.len());
        let taken = log.taken.entry(pod).or_insert_with(|| Taken {
            before: before.clone(),
            order,
            gains,
        });
        if now.plan.is_none() {
            taken.gains = gains;
        }
    }
}

/// The queues that gain by a reclaim: the reclaimer's, upwards to the sibling of the queues that lost.
fn gaining(model: &Model, answer: &Answer) -> Vec<QueueId> {
    let queue = answer.case.queue;
    let losers = answer
        .victims
        .iter()
        .filter_map(|batch| model.pod_groups()[batch.pod_group].queue);
    let sides = losers.filter_map(|loser| Some(parting(model, queue, loser)?.0));
    let most = |side| model.path_up(queue).position(|at| at == side).map_or(0, |at| at + 1);
    let compared = sides.map(most).max().unwrap_or(0).max(1);
    model.path_up(queue).take(compared).collect()
}
