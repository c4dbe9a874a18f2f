//! Trying a candidate: its victims are evicted, then the preemptor and the victims are placed in the real order of queues and jobs. Who outranks the
//! preemptor gets its place back first.

use std::collections::BTreeSet;

use crate::engine::fairshare::tree::{Job, JobTree, Purpose};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::gang::Stage;
use crate::engine::model::ids::{GangId, TaskId};
use crate::engine::model::task::Status;

use super::generate::Candidate;
use super::{Search, node_of};
use crate::engine::actions::place::Mode;
use crate::engine::actions::session::Session;

impl Session<'_> {
    /// On success the changes stay in the model from the mark on.
    pub fn simulate(&mut self, search: &Search, count: usize, candidate: &Candidate) -> Option<Mark> {
        self.work.candidates_simulated += 1;
        let mark = self.model.mark();
        let pods = &search.chunk[..count];
        let mut nodes = search.feasible.clone();
        let mut victims: BTreeSet<GangId> = BTreeSet::new();
        for task in candidate.in_order() {
            if let Some(node) = node_of(self.model, task) {
                nodes.add(node.at());
            }
            victims.extend(self.model.tasks[task].gang);
            self.model.evict(task);
        }
        let mut jobs = self.everybody_in_line(search, pods, &victims);
        let mut open = victims.len() + 1;
        let mut placed = false;
        while open > 0
            && let Some(job) = jobs.pop(self.model)
        {
            if job.gang == search.gang {
                open -= 1;
                placed = self.place(job.gang, pods, Mode::Simulate(&nodes));
                if !placed {
                    break;
                }
            } else if victims.contains(&job.gang) {
                open -= 1;
                self.place(job.gang, &job.tasks.unwrap_or_default(), Mode::Simulate(&nodes));
            }
        }
        if placed && self.acceptable(search, pods, candidate) {
            return Some(mark);
        }
        self.rollback(mark);
        None
    }

    /// The preemptor, the victims, and all who wait: they are not placed, but their claims decide which queue is next.
    fn everybody_in_line(&self, search: &Search, pods: &[TaskId], victims: &BTreeSet<GangId>) -> JobTree {
        let mut jobs = JobTree::new(self.rules, Purpose::Serve);
        for &gang in self
            .model
            .pending
            .iter()
            .filter(|gang| **gang != search.gang && !victims.contains(gang))
        {
            let entry = &self.model.gangs[gang];
            if entry.ready()
                && entry.input.as_ref().is_some_and(|input| !input.backed_off)
                && let Some(job) = self.pending_job(gang)
            {
                jobs.push(self.model, job);
            }
        }
        for &gang in victims {
            let tasks = self.evicted_chunk(gang);
            let amount = wanted(self.model, &tasks, smallest_gpu(self.model));
            let entry = &self.model.gangs[gang];
            jobs.push(
                self.model,
                Job {
                    order: self.rules.job(entry, entry.stage(&entry.active())),
                    gang,
                    amount,
                    tasks: Some(tasks),
                },
            );
        }
        let amount = wanted(self.model, pods, smallest_gpu(self.model));
        let order = self
            .rules
            .job(&self.model.gangs[search.gang], self.partial_stage(search.gang, pods));
        jobs.push(
            self.model,
            Job {
                order,
                gang: search.gang,
                amount,
                tasks: None,
            },
        );
        jobs
    }

    /// What a victim gets back at most: its next pods, the evicted ones first.
    fn evicted_chunk(&self, gang: GangId) -> Vec<TaskId> {
        let entry = &self.model.gangs[gang];
        let take = |member, most: usize| -> Vec<TaskId> {
            let pods = entry.pods(member).map(|pods| &*pods.tasks).unwrap_or_default();
            let wanting = |evicted: bool| {
                pods.iter().copied().filter(move |task| {
                    self.model.wants_place(*task, self.now)
                        && self.model.tasks[*task].state.evicted_from.is_some() == evicted
                })
            };
            wanting(true).chain(wanting(false)).take(most).collect()
        };
        entry.chunk(&entry.active(), &take)
    }

    /// How far a gang is that consists of its active pods and some of the waiting ones.
    fn partial_stage(&self, gang: GangId, pods: &[TaskId]) -> Stage {
        let entry = &self.model.gangs[gang];
        let mut stage = Stage::Exact;
        for (member, set) in entry.pod_sets() {
            let more = pods
                .iter()
                .filter(|task| self.model.tasks[**task].member == Some(member))
                .count();
            let active = set.active();
            if active < set.min.min(active + more) {
                return Stage::Below;
            }
            if active > set.min {
                stage = Stage::Above;
            }
        }
        stage
    }

    /// A victim that lost its place without another.
    #[must_use]
    pub fn left_out(&self, task: TaskId) -> bool {
        self.model.tasks[task].state.status == Status::Releasing
    }
}
