//! Consolidation, reclaim and preempt: searches victims for one pending pod group after the other, and commits what it finds.

use crate::engine::fairshare::reclaim::Holdings;
use crate::engine::fairshare::tree::{OrderTree, Pick, Popped, View, schedulable_queue};
use crate::engine::model::ids::PodGroupId;
use crate::engine::model::{Mark, Model};
use crate::engine::policy::{DisruptionBudgets, VictimGenerator};
use crate::engine::stage::{SearchEnd, Stage};

use super::judge::BudgetReach;
use super::precheck::{claims_in_vain, is_impossible, may_reclaim, note_delays, promising};
use super::record::record;
use super::rules::EvictingAction;
use super::search::VictimSearch;
use super::{Answer, Case};
use crate::engine::actions::context::CycleContext;
use crate::engine::actions::cycle::Cycle;
use crate::engine::actions::skip::{Asked, FailedPodGroups};
use crate::engine::actions::spare::Sparer;
use crate::engine::actions::turns;

/// A search for victims within [`VictimSearch::reach`]. The answer's changes are in the model, after its mark.
pub type FindVictims = fn(&mut VictimSearch, Case, &[VictimGenerator]) -> Option<Answer>;

/// Runs one of the three actions.
pub fn evict_for_others(cycle: &mut Cycle, action: EvictingAction, find: FindVictims) {
    let policy = cycle.context.policy;
    if action.most_victims(policy) == 0 {
        return;
    }
    note_delays(cycle, action);
    if cycle.kept.turns.paused(cycle.context.now) {
        return;
    }
    let mut pod_groups = preemptors(cycle, action);
    let mut failed_before = cycle.kept.turns.take_failed(action.kind());
    // The complete search had no steps left in this cycle, and has some in the next one.
    let mut failed_now = FailedPodGroups::default();
    let (mut without_result, mut steps, mut complete) = (Vec::new(), 0, true);
    while let Some(entry) = next_preemptor(cycle, &mut pod_groups, action) {
        let pod_group = entry.pod_group;
        if cycle.kept.turns.had_turn(action.kind(), pod_group) {
            continue;
        }
        cycle.begin_placing(pod_group);
        let Some(queue) = schedulable_queue(cycle.model, pod_group) else {
            continue;
        };
        let pods = cycle.model.next_chunk(pod_group, cycle.context.now);
        let preemptible = cycle.model.pod_groups()[pod_group]
            .input
            .as_ref()
            .is_some_and(|input| input.preemptible);
        if pods.is_empty() || (action.is_between_queues() && !may_reclaim(cycle, queue, &entry.amount, preemptible)) {
            continue;
        }
        let table = action.depends_on_queue().then_some(queue);
        let asked = Asked::of(cycle.model, table, pod_group, &pods);
        let must_fail = |asked: &Asked| failed_before.must_fail(asked) || failed_now.must_fail(asked);
        let skipped = asked.as_ref().is_some_and(must_fail) || is_impossible(cycle, pod_group, &pods);
        let end = if skipped {
            SearchEnd::Skipped
        } else if claims_in_vain(cycle, &pods) || !promising(cycle, action, queue, &pods, preemptible) {
            SearchEnd::RuledOut
        } else if steps > policy.max_steps_without_result {
            SearchEnd::NotAttempted
        } else {
            let before = turns::steps(&cycle.log);
            let case = Case {
                action,
                pod_group,
                queue,
                held: Holdings::now(cycle.model),
                chunk: pods,
            };
            match solve(cycle, case, find) {
                Some(answer) => {
                    steps = 0;
                    if policy.plugins.spare {
                        Sparer {
                            model: cycle.model,
                            context: cycle.context,
                            taken: &cycle.log.taken,
                        }
                        .spare_since(answer.mark, false);
                    }
                    keep_order_of_victims(cycle, &mut pod_groups, action, answer.mark);
                    record(cycle, &answer);
                    pod_groups.recount();
                    (cycle.observer)(Stage::Placed(action.kind()));
                    SearchEnd::Solved
                }
                None => {
                    let taken = turns::steps(&cycle.log) - before;
                    let cut_off = turns::exceeds_limit(taken, policy);
                    let end = why_not(cycle, cut_off);
                    if let Some(asked) = asked.filter(|_| !cut_off) {
                        let complete = end != SearchEnd::OutOfSteps;
                        let failed = if complete { &mut failed_before } else { &mut failed_now };
                        failed.failed(asked);
                    }
                    without_result.push(pod_group);
                    steps += taken;
                    end
                }
            }
        };
        let action = action.kind();
        (cycle.observer)(Stage::TakenUp { action, end });
        if end == SearchEnd::NotAttempted {
            complete = false;
            break;
        }
    }
    cycle
        .kept
        .turns
        .end(action.kind(), without_result, failed_before, complete);
}

/// How a search ended that found nothing.
fn why_not(cycle: &Cycle, cut_off: bool) -> SearchEnd {
    if cut_off {
        return SearchEnd::OutOfSteps;
    }
    let plugins = &cycle.context.policy.plugins;
    match (
        &*plugins.victim_generators,
        plugins.complete_search_steps,
        cycle.steps_left,
    ) {
        ([], 0, _) => SearchEnd::NoGenerator,
        (_, 1.., 0) => SearchEnd::OutOfSteps,
        _ => SearchEnd::Exhausted,
    }
}

/// The pod groups that an action tries, in order.
fn preemptors(cycle: &Cycle, action: EvictingAction) -> OrderTree {
    let mut pod_groups = cycle.pending_tree(action.kind());
    let mut pick = |pod_group| pick_preemptor(cycle.model, cycle.context, action, pod_group);
    pod_groups.add_queues(&mut View::of(cycle.model, &cycle.kept.sorted, &mut pick), |_| true);
    pod_groups
}

fn next_preemptor(cycle: &Cycle, pod_groups: &mut OrderTree, action: EvictingAction) -> Option<Popped> {
    let mut pick = |pod_group| pick_preemptor(cycle.model, cycle.context, action, pod_group);
    pod_groups.pop(&mut View::of(cycle.model, &cycle.kept.sorted, &mut pick))
}

fn pick_preemptor(model: &Model, context: CycleContext, action: EvictingAction, pod_group: PodGroupId) -> Pick {
    let input = model.pod_groups()[pod_group].input.as_ref();
    let suits =
        input.is_some_and(|input| action.serves(input)) && model.pod_groups()[pod_group].delay(context.now).is_none();
    if suits { Pick::Take } else { Pick::Pass }
}

/// Keeps the position of the pod groups that lose pods among those to be tried, since an action tries pod groups in the order of its start.
fn keep_order_of_victims(cycle: &Cycle, pod_groups: &mut OrderTree, action: EvictingAction, mark: Mark) {
    let mut pick = |pod_group| pick_preemptor(cycle.model, cycle.context, action, pod_group);
    let mut view = View::of(cycle.model, &cycle.kept.sorted, &mut pick);
    for pod in cycle.model.changed_since(mark) {
        if let Some(pod_group) = cycle.model.pods()[pod].pod_group {
            pod_groups.keep_position(&mut view, pod_group);
        }
    }
}

/// Searches within disruption budgets, then beyond them if that finds nothing and the action allows it.
fn solve(cycle: &mut Cycle, case: Case, find: FindVictims) -> Option<Answer> {
    let policy = cycle.context.policy;
    let generators = &policy.plugins.victim_generators;
    let may_exceed = case.action.may_exceed_budgets() && policy.disruption_budgets == DisruptionBudgets::Prefer;
    let mut search = VictimSearch::new(cycle);
    let mut found = find(&mut search, case.clone(), generators);
    if found.is_none() && may_exceed && search.objections.budget {
        search.reach = BudgetReach::Beyond;
        found = find(&mut search, case, generators);
    }
    if let Some(until) = search.objections.protected_until {
        cycle.log.protected(until);
    }
    found
}

#[cfg(test)]
mod tests;
