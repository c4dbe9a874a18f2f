//! The victim search of consolidation, reclaim and preempt.
//!
//! Problem: a gang's next pods, some gangs that may be victims, and a judge. Wanted: victims such that, once they are gone, the pods find places in the real
//! order of queues and jobs, and the judge agrees. The answer is defined step by step: two generators, tried in order; for each a sequence of
//! probes over the first 1, 2, 4 … pods, then bisection, each probe starting from the victims that the last solved one needed; in a probe, victims are
//! gathered from the worst on, and each state of that gathering yields candidates, of which the first that works wins.

pub mod bounds;
pub mod gather;
pub mod generate;
pub mod judge;
pub mod simulate;

use std::collections::BTreeSet;

use crate::engine::decision::ReasonCode;
use crate::engine::fairshare::reclaim::Holdings;
use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::model::Mark;
use crate::engine::model::class::NodeSet;
use crate::engine::model::ids::{GangId, NodeId, QueueId, TaskId};
use crate::engine::policy::{ActionKind, Plugin};

use super::session::Session;

/// Pods that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their gang.
    pub gang: GangId,
    /// The pods.
    pub tasks: Vec<TaskId>,
}

/// How candidates are made from the victims gathered so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// Empties one node.
    NodeLocal,
    /// Empties the smallest nodes that suffice, then more.
    MultiNode,
}

/// A search for one preemptor.
pub struct Search {
    /// The action.
    pub action: ActionKind,
    /// The preemptor.
    pub gang: GangId,
    /// Its queue.
    pub queue: QueueId,
    /// Its next pods.
    pub chunk: Vec<TaskId>,
    /// Gangs that may be victims.
    pub eligible: Vec<GangId>,
    /// Nodes on which its pods may be placed without victims.
    pub feasible: NodeSet,
    /// What queues held before.
    pub held: Holdings,
    /// Candidates that failed: number of pods, and victims.
    pub failed: BTreeSet<(usize, Vec<TaskId>)>,
}

impl Session<'_> {
    /// Runs one of the three actions.
    pub fn evict_for_others(&mut self, action: ActionKind) {
        if action == ActionKind::Consolidation && self.policy.max_consolidation_victims == Some(0) {
            return;
        }
        let generators = self.generators();
        let mut jobs = self.pending_jobs(action, |session, gang| session.may_trigger(action, gang));
        self.note_delays(action);
        let mut skips = super::skip::Skips::default();
        while let Some(job) = jobs.pop(self.model) {
            let Some(queue) = schedulable_queue(self.model, job.gang) else {
                continue;
            };
            let tasks = job.tasks.unwrap_or_default();
            let preemptible = self.model.gangs[job.gang]
                .input
                .as_ref()
                .is_some_and(|input| input.preemptible);
            if action == ActionKind::Reclaim && !self.may_reclaim(queue, &job.amount, preemptible) {
                continue;
            }
            let table = if action == ActionKind::Consolidation {
                None
            } else {
                Some(queue)
            };
            if skips.certain_to_fail(self.model, table, job.gang) || self.is_impossible(job.gang, &tasks) {
                continue;
            }
            let promising = self.promising(action, job.gang, queue, &tasks, preemptible);
            if promising && self.solve(action, job.gang, queue, tasks, &generators) {
                jobs.recount();
            } else {
                skips.failed(self.model, table, job.gang);
            }
        }
    }

    fn generators(&self) -> Vec<Generator> {
        let of = |plugin: &Plugin| match plugin {
            Plugin::NodeLocalGreedy => Some(Generator::NodeLocal),
            Plugin::MultiNodeGang => Some(Generator::MultiNode),
            _ => None,
        };
        self.policy.plugins.iter().filter_map(of).collect()
    }

    fn may_trigger(&self, action: ActionKind, gang: GangId) -> bool {
        let Some(input) = &self.model.gangs[gang].input else {
            return false;
        };
        (action != ActionKind::Consolidation || input.preemptible)
            && self.delayed_until(gang).is_none_or(|until| until <= self.now)
    }

    /// Something that a pod needs is missing for good: no eviction helps.
    fn is_impossible(&mut self, gang: GangId, tasks: &[TaskId]) -> bool {
        let found = tasks.iter().find_map(|&task| {
            Some((
                task,
                crate::engine::explain::refusal::impossible(self.model, self.policy, task)?,
            ))
        });
        let Some((task, text)) = found else { return false };
        let pod = &self.model.tasks[task].input;
        let message = format!(
            "Resources were not found for pod {}/{} due to: {text}",
            pod.namespace, pod.name
        );
        if !self.note(gang).reasons.iter().any(|reason| reason.message == message) {
            self.refuse(gang, ReasonCode::PodSchedulingErrors, message);
        }
        true
    }

    /// Searches, and keeps the answer if there is one.
    fn solve(
        &mut self,
        action: ActionKind,
        gang: GangId,
        queue: QueueId,
        chunk: Vec<TaskId>,
        generators: &[Generator],
    ) -> bool {
        let mut search = Search {
            action,
            gang,
            queue,
            eligible: self.eligible_victims(action, gang, queue, &chunk),
            feasible: self.feasible_nodes(gang),
            held: Holdings::now(self.model),
            failed: BTreeSet::new(),
            chunk,
        };
        if search.eligible.is_empty() {
            return false;
        }
        let messages = self.messages(&search);
        for &generator in generators {
            if let Some((mark, victims)) = self.run_probes(&mut search, generator) {
                self.keep(&search, mark, &victims, &messages);
                return true;
            }
        }
        false
    }

    /// The probes of one generator. The answer's changes are in the model, from the mark on.
    fn run_probes(&mut self, search: &mut Search, generator: Generator) -> Option<(Mark, Vec<Batch>)> {
        let all = search.chunk.len();
        let mut recorded: Vec<Batch> = Vec::new();
        let (mut solved, mut failed) = (0, all + 1);
        let mut next = 1;
        while next > solved && next < failed {
            match self.probe(search, generator, next, &recorded) {
                Some((mark, victims)) => {
                    self.rollback(mark);
                    recorded = victims;
                    solved = next;
                }
                None => failed = next,
            }
            next = if failed > all {
                (2 * solved).min(all)
            } else {
                usize::midpoint(solved, failed)
            };
        }
        if solved == 0 {
            return None;
        }
        let before = self.active_used(search.gang);
        let (mark, victims) = self.probe(search, generator, all, &recorded)?;
        let gang = &self.model.gangs[search.gang];
        if gang.satisfied(0, &gang.active()) && self.active_used(search.gang) > before {
            return Some((mark, victims));
        }
        self.rollback(mark);
        None
    }

    fn active_used(&self, gang: GangId) -> usize {
        self.model.gangs[gang]
            .pod_sets()
            .map(|(_, pods)| pods.active_used())
            .sum()
    }

    /// Tries to place the first `count` pods. On success the changes stay in the model from the mark on, and the batches that lost a pod come back.
    fn probe(
        &mut self,
        search: &mut Search,
        generator: Generator,
        count: usize,
        recorded: &[Batch],
    ) -> Option<(Mark, Vec<Batch>)> {
        let mut gathering = self.gather(search, count, recorded);
        loop {
            if gathering.passes(self.model) {
                for candidate in generate::candidates(self.model, search, &gathering, generator) {
                    let tasks = candidate.victims();
                    if tasks.is_empty() || search.failed.contains(&(count, tasks.clone())) {
                        continue;
                    }
                    if let Some(mark) = self.simulate(search, count, &candidate) {
                        let kept = candidate
                            .batches
                            .into_iter()
                            .filter(|batch| batch.tasks.iter().any(|task| self.lost(*task)));
                        return Some((mark, kept.collect()));
                    }
                    search.failed.insert((count, tasks));
                }
            }
            if !gathering.step(self.model) {
                return None;
            }
        }
    }

    /// A pod that was evicted has not got its place back.
    pub fn lost(&self, task: TaskId) -> bool {
        self.model.tasks[task].state.evicted_from.is_some()
    }

    /// Nodes with something free for the preemptor: any, unless all its pods need GPUs.
    fn feasible_nodes(&self, gang: GangId) -> NodeSet {
        let any = self.model.gangs[gang]
            .tasks
            .iter()
            .any(|task| self.model.shapes[self.model.tasks[*task].shape].cpu_only);
        let mut set = NodeSet::default();
        for &id in &self.model.by_name {
            if any || bounds::free_gpus(&self.model.nodes[id], self.model) > 0 {
                set.add(id.at());
            }
        }
        set
    }
}

/// The node on which a pod is, or will be.
#[must_use]
pub fn node_of(model: &crate::engine::model::Model, task: TaskId) -> Option<NodeId> {
    let state = &model.tasks[task].state;
    state.plan.as_ref().or(state.hold.as_ref()).map(|place| place.node)
}
