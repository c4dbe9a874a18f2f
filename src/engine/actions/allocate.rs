//! Allocate: places what fits, in the order of queues and pod groups. Nothing is evicted. A pod group that fits only on resources of
//! releasing pods is pipelined as a whole. A pod group that fails does not block those after it, nor does a sub-group block those that can replace it.

use std::collections::BTreeMap;

use crate::engine::fairshare::tree::{Pick, View};
use crate::engine::model::Model;
use crate::engine::model::ids::PodGroupId;
use crate::engine::model::pod::Status;
use crate::engine::model::pod_group::Member;
use crate::engine::policy::ActionKind;
use crate::engine::stage::Stage;

use super::cycle::Cycle;
use super::place::Mode;

/// Limit on the pod sets of a pod group that are found to have no place, in one action: a pod group may have thousands.
const FAILED_POD_SETS: usize = 32;

/// Pod sets that were found to have no place in this action, by pod group.
type Failed = BTreeMap<PodGroupId, Vec<Member>>;

/// Runs the action.
pub fn allocate(cycle: &mut Cycle) {
    cycle.caches.unschedulable.clear();
    let mut failed = Failed::new();
    let mut all = |_| Pick::Take;
    let mut pod_groups = cycle.pending_tree(ActionKind::Allocate);
    pod_groups.add_queues(&mut View::of(cycle.model, &cycle.kept.sorted, &mut all), |_| true);
    while let Some(entry) = pod_groups.pop(&mut View::of(cycle.model, &cycle.kept.sorted, &mut all)) {
        let pod_group = entry.pod_group;
        cycle.begin_placing(pod_group);
        let ran = runs(cycle.model, pod_group);
        let mark = cycle.model.mark();
        if !place_next(cycle, pod_group, &mut failed) {
            (cycle.observer)(Stage::Tried);
            continue;
        }
        let waits = cycle.placer().wait_as_one(pod_group, mark);
        cycle.commit();
        (cycle.observer)(Stage::Placed(ActionKind::Allocate));
        if !waits && !ran {
            record_start(cycle, pod_group);
        }
        if cycle.model.pod_groups()[pod_group].with(Status::Pending) > 0
            && let Some(next) = cycle.waiting_entry(pod_group)
        {
            pod_groups.push(&mut View::of(cycle.model, &cycle.kept.sorted, &mut all), next);
        }
    }
}

/// Places the next pods of a pod group. If those of a pod set have no place, others are tried in their stead, where the pod group's minimums leave a
/// choice.
fn place_next(cycle: &mut Cycle, pod_group: PodGroupId, failed: &mut Failed) -> bool {
    loop {
        let without = failed.get(&pod_group).map(Vec::as_slice).unwrap_or_default();
        let pods = cycle.model.next_chunk_without(pod_group, cycle.context.now, without);
        // The report is about the pods that come first, so what is found about others is dropped.
        let said = if without.is_empty() {
            None
        } else {
            cycle.log.findings.remove(&pod_group)
        };
        let placed = cycle.placer().try_place(pod_group, &pods, Mode::Real);
        if let Some(said) = said {
            cycle.log.findings.insert(pod_group, said);
        }
        let Err(pod_sets) = placed else {
            return true;
        };
        let several = cycle.model.pod_groups()[pod_group].pod_sets().nth(1).is_some();
        if pod_sets.is_empty() || !several {
            return false;
        }
        let known = failed.entry(pod_group).or_default();
        known.extend(pod_sets);
        if known.len() > FAILED_POD_SETS {
            return false;
        }
    }
}

/// Records that the first pods of a pod group have places.
pub fn record_start(cycle: &mut Cycle, pod_group: PodGroupId) {
    cycle.model.started(pod_group, cycle.context.now);
    cycle.log.timed.insert(pod_group);
}

/// Whether some pod of the pod group holds a place already.
pub fn runs(model: &Model, pod_group: PodGroupId) -> bool {
    let pod_group = &model.pod_groups()[pod_group];
    [Status::Allocated, Status::Binding, Status::Bound, Status::Running]
        .into_iter()
        .any(|status| pod_group.with(status) > 0)
}

/// The pending pod groups in the order in which the action would try them if none of them could be placed.
#[must_use]
pub fn waiting_in_order(cycle: &Cycle) -> Vec<PodGroupId> {
    let mut all = |_| Pick::Take;
    let mut pod_groups = cycle.pending_tree(ActionKind::Allocate);
    let mut view = View::of(cycle.model, &cycle.kept.sorted, &mut all);
    pod_groups.add_queues(&mut view, |_| true);
    std::iter::from_fn(|| pod_groups.pop(&mut view))
        .map(|entry| entry.pod_group)
        .collect()
}
