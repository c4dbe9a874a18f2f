//! Allocate: places what fits, in the order of queues and pod groups. Nothing is evicted. A pod group that fits only on resources of
//! releasing pods is pipelined as a whole. A pod group that fails does not block those after it.

use crate::engine::fairshare::tree::{Pick, View};
use crate::engine::model::Model;
use crate::engine::model::ids::PodGroupId;
use crate::engine::model::pod::Status;
use crate::engine::policy::ActionKind;
use crate::engine::stage::Stage;

use super::cycle::Cycle;
use super::place::Mode;

/// Runs the action.
pub fn allocate(cycle: &mut Cycle) {
    cycle.caches.unschedulable.clear();
    let mut all = |_| Pick::Take;
    let mut pod_groups = cycle.pending_tree(ActionKind::Allocate);
    pod_groups.add_queues(&mut View::of(cycle.model, &cycle.kept.sorted, &mut all), |_| true);
    while let Some(entry) = pod_groups.pop(&mut View::of(cycle.model, &cycle.kept.sorted, &mut all)) {
        let pod_group = entry.pod_group;
        cycle.begin_placing(pod_group);
        let pods = cycle.model.next_chunk(pod_group, cycle.context.now);
        let ran = runs(cycle.model, pod_group);
        let mark = cycle.model.mark();
        let mut placer = cycle.placer();
        if !placer.place(pod_group, &pods, Mode::Real) {
            continue;
        }
        let waits = placer.wait_as_one(pod_group, mark);
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
