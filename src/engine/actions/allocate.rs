//! Allocate: places what fits, in the order of queues and pod groups. Nobody is evicted. A pod group that fits only once others have left is planned as a whole. A
//! pod group that fails does not hold up the pod groups behind it.

use crate::engine::fairshare::tree::Pick;
use crate::engine::model::pod::Status;
use crate::engine::policy::ActionKind;
use crate::engine::stage::Stage;

use super::place::Mode;
use super::session::Session;

impl Session<'_> {
    /// Runs the action.
    pub fn allocate(&mut self) {
        self.unschedulable.clear();
        let all = |_| Pick::Take;
        let mut pod_groups = self.pending_tree(ActionKind::Allocate);
        pod_groups.add_queues(self.view(&all), |_| true);
        while let Some(entry) = pod_groups.pop(self.view(&all)) {
            self.begin_placing(entry.pod_group);
            let pods = self.model.next_chunk(entry.pod_group, self.now);
            let started = self.runs(entry.pod_group);
            let mark = self.model.mark();
            if !self.place(entry.pod_group, &pods, Mode::Real) {
                continue;
            }
            let waits = self.wait_as_one(entry.pod_group, mark);
            self.commit();
            (self.observer)(Stage::Placed(ActionKind::Allocate));
            if !waits && !started {
                self.started(entry.pod_group);
            }
            if self.model.pod_groups()[entry.pod_group].with(Status::Pending) > 0
                && let Some(next) = self.waiting_entry(entry.pod_group)
            {
                pod_groups.push(self.view(&all), next);
            }
        }
    }

    /// Some pod of it holds a place already.
    fn runs(&self, pod_group: crate::engine::model::ids::PodGroupId) -> bool {
        let pod_group = &self.model.pod_groups()[pod_group];
        [Status::Allocated, Status::Binding, Status::Bound, Status::Running]
            .into_iter()
            .any(|status| pod_group.with(status) > 0)
    }

    fn started(&mut self, pod_group: crate::engine::model::ids::PodGroupId) {
        self.model.started(pod_group, self.now);
        self.timed.insert(pod_group);
    }
}
