//! Trying a candidate: its victims are evicted, then the preemptor and the victims are placed in the real order of queues and jobs. Who outranks the
//! preemptor gets its place back first.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::engine::fairshare::lines::Line;
use crate::engine::fairshare::order::{Contender, compare_queues};
use crate::engine::fairshare::tree::{Job, JobTree, Pick, Purpose, schedulable_queue};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::class::NodeSet;
use crate::engine::model::gang::{Stage, Tasks};
use crate::engine::model::ids::{GangId, QueueId, TaskId};
use crate::engine::model::task::Status;

use super::{Candidate, Case, node_of};
use crate::engine::actions::place::Mode;
use crate::engine::actions::session::Session;

impl Session<'_> {
    /// On success the changes stay in the model from the mark on.
    pub fn simulate(&mut self, case: &Case, anywhere: bool, count: usize, candidate: &Candidate) -> Option<Mark> {
        self.work.candidates_simulated += 1;
        let mark = self.model.mark();
        let pods = &case.chunk[..count];
        let mut nodes = if anywhere {
            self.model.by_name.iter().fold(NodeSet::default(), |mut all, node| {
                all.add(node.at());
                all
            })
        } else {
            self.rooms.some.clone()
        };
        let mut victims: Vec<GangId> = Vec::new();
        for task in candidate.in_order() {
            if let Some(node) = node_of(self.model, task) {
                nodes.add(node.at());
            }
            victims.extend(self.model.tasks[task].gang);
            self.model.evict(task);
        }
        victims.sort_unstable();
        victims.dedup();
        self.lost_kinds.clear();
        let placed = self.place_in_order(case, pods, &victims, &nodes);
        self.lost_kinds.clear();
        if placed && self.acceptable(case, pods, candidate) {
            return Some(mark);
        }
        self.work.candidates_refused += u64::from(placed);
        self.rollback(mark);
        None
    }

    /// Places the preemptor and the victims in the order of queues and jobs. All others who wait are not placed, but their claims decide which queue is
    /// next. False if the preemptor finds no place.
    fn place_in_order(&mut self, case: &Case, pods: &[TaskId], victims: &[GangId], nodes: &NodeSet) -> bool {
        let mut jobs: Vec<(QueueId, Job)> = Vec::with_capacity(victims.len() + 1);
        for &gang in victims {
            if let Some(queue) = schedulable_queue(self.model, gang) {
                jobs.push((queue, self.victim_in_line(gang)));
            }
        }
        jobs.push((case.queue, self.preemptor_in_line(case, pods)));
        jobs.sort_by(|left, right| (left.0, &left.1.order).cmp(&(right.0, &right.1.order)));
        let mut placed = false;
        let mut jobs = VecDeque::from(jobs);
        let mut contested = if self.put_first(case, &mut jobs) {
            None
        } else {
            self.contested(&jobs, victims, case.gang)
        };
        let others = |gang: GangId| {
            let takes_part = gang == case.gang || victims.binary_search(&gang).is_ok();
            if takes_part { Pick::Pass } else { Pick::Take }
        };
        while !jobs.is_empty() {
            let several = jobs.front().map(|(queue, _)| *queue) != jobs.back().map(|(queue, _)| *queue);
            let next = match &mut contested {
                // Among jobs of one queue their own order decides.
                Some(tree) if several => {
                    let Some(job) = tree.pop(self.view(&others)) else { break };
                    let Some(at) = jobs.iter().position(|(_, other)| other.gang == job.gang) else {
                        continue;
                    };
                    jobs.remove(at)
                }
                Some(_) | None => jobs.pop_front(),
            };
            let Some((_, next)) = next else { break };
            let own = next.gang == case.gang;
            let tasks = if own {
                pods
            } else {
                next.tasks.as_deref().unwrap_or_default()
            };
            let done = self.place(next.gang, tasks, Mode::Simulate(nodes));
            if own && !done {
                return false;
            }
            placed |= own;
        }
        placed
    }

    /// Puts the preemptor first, if its turn is plain to see: it heads its line, and its queue goes before the only other one, next to it in the tree.
    fn put_first(&self, case: &Case, jobs: &mut VecDeque<(QueueId, Job)>) -> bool {
        let Some(at) = jobs.iter().position(|(_, job)| job.gang == case.gang) else {
            return false;
        };
        let mut others = jobs.iter().filter(|(queue, _)| *queue != case.queue);
        let Some((other, head)) = others.next() else {
            return false;
        };
        let alone = others.all(|(queue, _)| queue == other)
            && jobs.iter().filter(|(queue, _)| *queue == case.queue).count() == 1;
        let line = |queue: QueueId| self.lines.of(queue);
        let quiet = line(*other).is_none_or(|line| line.waiting.is_empty());
        let own = &jobs[at].1;
        let ahead = |line: &Line| {
            let first = line.waiting.first_key_value();
            first.is_some_and(|(order, standing)| standing.gang != case.gang && *order < own.order)
        };
        let heads = line(case.queue).is_none_or(|line| !ahead(line));
        let siblings = self.model.queues[case.queue].parent == self.model.queues[*other].parent;
        if !(alone && quiet && heads && siblings && self.rules.shares) {
            return false;
        }
        let contender = |queue: QueueId, job: &Job| Contender {
            queue,
            job: job.amount,
            victims: [0; 3],
        };
        let order = compare_queues(self.model, &contender(case.queue, own), &contender(*other, head));
        if order == Ordering::Less
            && let Some(own) = jobs.remove(at)
        {
            jobs.push_front(own);
            return true;
        }
        false
    }

    /// The tree in which jobs of different queues take turns; `None` if all are of one queue. Queues at the top below which nobody takes part change
    /// nobody's turn.
    fn contested(&self, jobs: &VecDeque<(QueueId, Job)>, victims: &[GangId], preemptor: GangId) -> Option<JobTree> {
        let (first, last) = (jobs.front()?.0, jobs.back()?.0);
        if first == last {
            return None;
        }
        let top = |queue: QueueId| self.model.path_up(queue).last();
        let mut tops: Vec<_> = jobs.iter().map(|(queue, _)| top(*queue)).collect();
        tops.dedup();
        let pick = |gang: GangId| {
            let takes_part = gang == preemptor || victims.binary_search(&gang).is_ok();
            if takes_part { Pick::Pass } else { Pick::Take }
        };
        let view = self.view(&pick);
        let mut tree = JobTree::new(self.rules, Purpose::Serve).skimming();
        tree.add_lines(view, |queue| tops.contains(&top(queue)));
        for (_, job) in jobs {
            tree.push(view, job.clone());
        }
        Some(tree)
    }

    fn victim_in_line(&self, gang: GangId) -> Job {
        let tasks = self.evicted_chunk(gang);
        let entry = &self.model.gangs[gang];
        Job {
            order: self.rules.job(entry, entry.stage(&entry.active())),
            gang,
            amount: wanted(self.model, &tasks, smallest_gpu(self.model)),
            tasks: Some(tasks),
        }
    }

    fn preemptor_in_line(&self, case: &Case, pods: &[TaskId]) -> Job {
        let stage = self.partial_stage(case.gang, pods);
        Job {
            order: self.rules.job(&self.model.gangs[case.gang], stage),
            gang: case.gang,
            amount: wanted(self.model, pods, smallest_gpu(self.model)),
            tasks: None,
        }
    }

    /// What a victim gets back at most: its next pods, the evicted ones first.
    pub(in crate::engine) fn evicted_chunk(&self, gang: GangId) -> Tasks {
        let entry = &self.model.gangs[gang];
        let take = |member, most: usize| -> Tasks {
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
    pub(in crate::engine) fn partial_stage(&self, gang: GangId, pods: &[TaskId]) -> Stage {
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
