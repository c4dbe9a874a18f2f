//! Allocate: places what fits, in the order of queues and jobs. Nobody is evicted. A gang that fits only once others have left is planned as a whole. A
//! job that fails does not hold up the jobs behind it.

use crate::engine::fairshare::tree::Pick;
use crate::engine::model::task::Status;
use crate::engine::policy::ActionKind;
use crate::engine::stage::Stage;

use super::place::Mode;
use super::session::Session;

impl Session<'_> {
    /// Runs the action.
    pub fn allocate(&mut self) {
        self.hopeless.clear();
        let all = |_| Pick::Take;
        let mut jobs = self.pending_tree(ActionKind::Allocate);
        jobs.add_lines(self.view(&all), |_| true);
        while let Some(job) = jobs.pop(self.view(&all)) {
            self.serve(job.gang);
            let tasks = self.model.next_chunk(job.gang, self.now);
            let started = self.runs(job.gang);
            let mark = self.model.mark();
            if !self.place(job.gang, &tasks, Mode::Real) {
                continue;
            }
            let waits = self.wait_as_one(job.gang, mark);
            self.commit();
            (self.onlooker)(Stage::Placed(ActionKind::Allocate));
            if !waits && !started {
                self.started(job.gang);
            }
            if self.model.gangs[job.gang].with(Status::Pending) > 0
                && let Some(next) = self.waiting_job(job.gang)
            {
                jobs.push(self.view(&all), next);
            }
        }
    }

    /// Some pod of it holds a place already.
    fn runs(&self, gang: crate::engine::model::ids::GangId) -> bool {
        let gang = &self.model.gangs[gang];
        [Status::Allocated, Status::Binding, Status::Bound, Status::Running]
            .into_iter()
            .any(|status| gang.with(status) > 0)
    }

    fn started(&mut self, gang: crate::engine::model::ids::GangId) {
        self.model.gangs[gang].started(self.now);
        self.timed.insert(gang);
    }
}
