//! Trying a candidate: its victims are evicted, then the preemptor and the victims are placed in the real order of queues and jobs. Who outranks the
//! preemptor gets its place back first.

use std::collections::BTreeSet;

use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::ids::{GangId, TaskId};

use super::Search;
use super::tree::{Job, JobTree};
use crate::engine::actions::place::Mode;
use crate::engine::actions::session::Session;
use crate::engine::actions::victims::{Candidate, node_of};
use crate::engine::fairshare::tree::Purpose;

impl Session<'_> {
    /// On success the changes stay in the model from the mark on.
    pub fn simulate_plainly(&mut self, search: &Search, count: usize, candidate: &Candidate) -> Option<Mark> {
        self.work.candidates_simulated += 1;
        let mark = self.model.mark();
        let pods = &search.case.chunk[..count];
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
            if job.gang == search.case.gang {
                open -= 1;
                self.lost_kinds.clear();
                placed = self.place(job.gang, pods, Mode::Simulate(&nodes));
                if !placed {
                    break;
                }
            } else if victims.contains(&job.gang) {
                open -= 1;
                self.lost_kinds.clear();
                self.place(job.gang, &job.tasks.unwrap_or_default(), Mode::Simulate(&nodes));
            }
        }
        if placed && self.acceptable(&search.case, pods, candidate) {
            return Some(mark);
        }
        self.rollback(mark);
        None
    }

    /// A pending gang as a job in line; `None` if nothing of it can be placed.
    fn pending_job(&self, gang: GangId) -> Option<Job> {
        let tasks = self.model.next_chunk(gang, self.now);
        if tasks.is_empty() {
            return None;
        }
        let amount = wanted(self.model, &tasks, smallest_gpu(self.model));
        let entry = &self.model.gangs[gang];
        let order = self.rules.job(entry, entry.stage(&entry.active()));
        Some(Job {
            order,
            gang,
            amount,
            tasks: Some(tasks),
        })
    }

    /// The preemptor, the victims, and all who wait: they are not placed, but their claims decide which queue is next.
    fn everybody_in_line(&self, search: &Search, pods: &[TaskId], victims: &BTreeSet<GangId>) -> JobTree {
        let mut jobs = JobTree::new(self.rules, Purpose::Serve);
        for &gang in self
            .model
            .pending
            .iter()
            .filter(|gang| **gang != search.case.gang && !victims.contains(gang))
        {
            let entry = &self.model.gangs[gang];
            if entry.ready()
                && entry.input.as_ref().is_some_and(|input| !input.left_alone())
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
        let order = self.rules.job(
            &self.model.gangs[search.case.gang],
            self.partial_stage(search.case.gang, pods),
        );
        jobs.push(
            self.model,
            Job {
                order,
                gang: search.case.gang,
                amount,
                tasks: None,
            },
        );
        jobs
    }
}
