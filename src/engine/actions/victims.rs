//! The victim search of consolidation, reclaim and preempt.
//!
//! Problem: a gang's next pods, some gangs that may be victims, and a judge. Wanted: victims such that, once they are gone, the pods find places in the real
//! order of queues and jobs, and the judge agrees. The answer is defined step by step: two generators, tried in order; for each a sequence of
//! probes over the first 1, 2, 4 … pods, then bisection, each probe starting from the victims that the last solved one needed; in a probe, victims are
//! gathered from the worst on, and each state of that gathering yields candidates, of which the first that works wins.
//!
//! `engine/tests/plain` does just that. What runs gives the same answer without looking at what cannot succeed: see `room`, `search` and `probe`.
//! Where there is none, `complete` looks through all sets of victims.

pub mod bounds;
mod complete;
pub mod judge;
pub mod probe;
pub mod room;
pub mod search;
pub mod simulate;

use std::collections::BTreeSet;

use crate::engine::decision::ReasonCode;
use crate::engine::fairshare::reclaim::Holdings;
use crate::engine::fairshare::tree::{JobTree, Pick, Turn, schedulable_queue};
use crate::engine::model::Mark;
use crate::engine::model::gang::Tasks;
use crate::engine::model::ids::{GangId, NodeId, QueueId, TaskId};
use crate::engine::placement::claims;
use crate::engine::policy::{ActionKind, DisruptionBudgets, VictimGenerator};
use crate::engine::stage::{SearchEnd, Searcher, Stage};

use super::session::Session;
use search::Search;

/// Pods that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their gang.
    pub gang: GangId,
    /// The pods.
    pub tasks: Tasks,
}

/// A set of victims to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Recorded victims and some of the potential ones.
    pub batches: Vec<Batch>,
}

impl Candidate {
    /// All victims, each once, in the order in which they were gathered.
    #[must_use]
    pub fn in_order(&self) -> Tasks {
        let all = self.batches.iter().flat_map(|batch| batch.tasks.iter().copied());
        if let [only] = &*self.batches {
            return only.tasks.clone();
        }
        let mut seen = BTreeSet::new();
        all.filter(|task| seen.insert(*task)).collect()
    }

    /// All victims, each once, by id.
    #[must_use]
    pub fn victims(&self) -> Tasks {
        let mut all: Tasks = self
            .batches
            .iter()
            .flat_map(|batch| batch.tasks.iter().copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Candidates that failed: number of pods, and victims.
#[derive(Debug, Default)]
pub struct Tried(BTreeSet<(usize, Tasks)>);

impl Tried {
    /// It failed before.
    #[must_use]
    pub fn has(&self, count: usize, candidate: &Candidate) -> bool {
        !self.0.is_empty() && self.0.contains(&(count, candidate.victims()))
    }

    /// Remembers a failure.
    pub fn add(&mut self, count: usize, candidate: &Candidate) {
        self.0.insert((count, candidate.victims()));
    }
}

/// What is asked: who needs victims, and for what.
#[derive(Clone)]
pub struct Case {
    /// The action.
    pub action: ActionKind,
    /// The preemptor.
    pub gang: GangId,
    /// Its queue.
    pub queue: QueueId,
    /// Its next pods.
    pub chunk: Tasks,
    /// What queues held before.
    pub held: Holdings,
}

/// How far victims are looked for, as far as disruption budgets are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those that budgets let go.
    Within,
    /// The others.
    Beyond,
}

impl From<VictimGenerator> for Searcher {
    fn from(generator: VictimGenerator) -> Self {
        match generator {
            VictimGenerator::NodeLocalGreedy => Self::NodeLocalGreedy,
            VictimGenerator::MultiNodeGang => Self::MultiNodeGang,
        }
    }
}

impl Session<'_> {
    /// Runs one of the three actions.
    pub fn evict_for_others(&mut self, action: ActionKind) {
        if action == ActionKind::Consolidation && self.policy.max_consolidation_victims == Some(0) {
            return;
        }
        let generators = self.policy.plugins.victim_generators.clone();
        self.note_delays(action);
        let mut jobs = self.line_up(action);
        let mut skips = super::skip::Skips::default();
        while let Some(job) = self.next_preemptor(&mut jobs, action) {
            self.serve(job.gang);
            let Some(queue) = schedulable_queue(self.model, job.gang) else {
                continue;
            };
            let tasks = self.model.next_chunk(job.gang, self.now);
            let preemptible = self.model.gangs[job.gang]
                .input
                .as_ref()
                .is_some_and(|input| input.preemptible);
            if tasks.is_empty() || (action == ActionKind::Reclaim && !self.may_reclaim(queue, &job.amount, preemptible))
            {
                continue;
            }
            let table = if action == ActionKind::Consolidation {
                None
            } else {
                Some(queue)
            };
            let hopeless = skips.certain_to_fail(self.model, table, job.gang)
                || self.is_impossible(job.gang, &tasks)
                || self.claims_in_vain(&tasks)
                || !self.promising(action, queue, &tasks, preemptible);
            let end = if hopeless {
                SearchEnd::NotAttempted
            } else if let Some(answer) = self.solve(action, job.gang, queue, tasks, &generators) {
                if self.spares() {
                    self.spare_since(answer.mark, false);
                }
                self.hold_places(&mut jobs, action, answer.mark);
                self.keep(&answer);
                jobs.recount();
                (self.onlooker)(Stage::Placed(action));
                SearchEnd::Solved
            } else {
                skips.failed(self.model, table, job.gang);
                self.why_not(&generators)
            };
            (self.onlooker)(Stage::TakenUp { action, end });
        }
    }

    /// Why a search found nothing.
    fn why_not(&self, generators: &[VictimGenerator]) -> SearchEnd {
        let steps = self.policy.plugins.complete_search_steps;
        match (generators, steps, self.steps_left) {
            ([], 0, _) => SearchEnd::NoGenerator,
            (_, 1.., 0) => SearchEnd::OutOfSteps,
            _ => SearchEnd::Exhausted,
        }
    }

    /// The jobs that an action tries, in line.
    fn line_up(&self, action: ActionKind) -> JobTree {
        let mut jobs = self.pending_tree(action);
        jobs.add_lines(self.view(&|gang| self.pick_preemptor(action, gang)), |_| true);
        jobs
    }

    fn next_preemptor(&self, jobs: &mut JobTree, action: ActionKind) -> Option<Turn> {
        jobs.pop(self.view(&|gang| self.pick_preemptor(action, gang)))
    }

    fn pick_preemptor(&self, action: ActionKind, gang: GangId) -> Pick {
        let input = self.model.gangs[gang].input.as_ref();
        let suits = input.is_some_and(|input| action != ActionKind::Consolidation || input.preemptible)
            && self.delayed_until(gang).is_none_or(|until| until <= self.now);
        if suits { Pick::Take } else { Pick::Pass }
    }

    /// Gangs that lose pods keep their places among those to be tried: the order of an action is that of its start.
    fn hold_places(&self, jobs: &mut JobTree, action: ActionKind, mark: Mark) {
        let pick = |gang| self.pick_preemptor(action, gang);
        for task in self.model.changed_since(mark) {
            if let Some(gang) = self.model.tasks[task].gang {
                jobs.hold(self.view(&pick), gang);
            }
        }
    }

    /// What a pod claims could be had nowhere, whoever left.
    fn claims_in_vain(&mut self, tasks: &[TaskId]) -> bool {
        let mut seen = Vec::new();
        tasks.iter().any(|&task| {
            let pod = &self.model.tasks[task];
            let kind = (pod.class, pod.shape);
            if pod.input.claims.is_none() || seen.contains(&kind) {
                return false;
            }
            seen.push(kind);
            self.model.refresh_class(kind.0);
            claims::refused(self.model, task).is_some() || !claims::conceivable(self.model, task)
        })
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
        let pod = &self.model.tasks[task].input.pod;
        let message = format!("Resources were not found for pod {pod} due to: {text}");
        if !self.note(gang).says(&message) {
            self.refuse(gang, ReasonCode::PodSchedulingErrors, message);
        }
        true
    }

    /// Searches, and beyond disruption budgets if there is no answer within. The answer's changes are in the model, from the mark on.
    fn solve(
        &mut self,
        action: ActionKind,
        gang: GangId,
        queue: QueueId,
        chunk: Tasks,
        generators: &[VictimGenerator],
    ) -> Option<Answer> {
        let case = Case {
            action,
            gang,
            queue,
            held: Holdings::now(self.model),
            chunk,
        };
        self.budgets_in_the_way.set(false);
        let found = self.search(case.clone(), generators);
        let involuntary = matches!(action, ActionKind::Reclaim | ActionKind::Preempt);
        let may_exceed = involuntary && self.policy.disruption_budgets == DisruptionBudgets::Prefer;
        if found.is_some() || !may_exceed || !self.budgets_in_the_way.get() {
            return found;
        }
        self.reach = Reach::Beyond;
        let found = self.search(case, generators);
        self.reach = Reach::Within;
        found
    }

    /// One search, as far as [`Session::reach`] says.
    fn search(&mut self, case: Case, generators: &[VictimGenerator]) -> Option<Answer> {
        let action = case.action;
        #[cfg(test)]
        if self.plainly {
            return self.solve_plainly(case, generators);
        }
        let mut search = self.begin(case)?;
        let found = generators
            .iter()
            .find_map(|&generator| {
                self.seen(action, generator.into(), |session| {
                    session.run_probes(&mut search, generator)
                })
            })
            .or_else(|| {
                let last_resort = self.steps_left > 0;
                last_resort
                    .then(|| self.seen(action, Searcher::Complete, |session| session.look_through(&mut search)))?
            });
        #[cfg(test)]
        if self.exhaustively && found.is_none() {
            self.assert_hopeless(&mut search);
        }
        if found.is_none() {
            self.look_for_budgets(&mut search);
        }
        found.map(|(mark, victims)| Answer {
            case: search.case,
            mark,
            victims,
        })
    }

    /// Makes sure that it is known whether disruption budgets have kept anybody from a search that found nothing.
    fn look_for_budgets(&self, search: &mut Search) {
        let mut seen = search.sequence.batches.len();
        while !self.unbudgeted() && !self.budgets_in_the_way.get() && self.gathered(search, seen) {
            seen += 1;
        }
    }

    /// Lets the onlooker see a search.
    fn seen<T>(
        &mut self,
        action: ActionKind,
        searcher: Searcher,
        search: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let before = self.work;
        let found = search(self);
        (self.onlooker)(Stage::Searched {
            action,
            searcher,
            solved: found.is_some(),
            work: self.work.since(before),
        });
        found
    }

    /// The probes of one generator. The answer's changes are in the model, from the mark on.
    fn run_probes(&mut self, search: &mut Search, generator: VictimGenerator) -> Option<(Mark, Vec<Batch>)> {
        let all = search.case.chunk.len();
        let before = self.active_used(search.case.gang);
        let mut recorded: Vec<Batch> = Vec::new();
        let (mut solved, mut failed) = (0, all + 1);
        let mut next = 1;
        while next > solved && next < failed {
            match self.probe(search, generator, next, &recorded) {
                Some((mark, candidate)) => {
                    let tried = candidate.batches.len();
                    recorded = self.needed(candidate);
                    // The last probe would try these very victims once more, and find the same.
                    if next == all && recorded.len() == tried && search.even.is_some() {
                        let mark = self.complete(&search.case, before, mark)?;
                        return Some((mark, recorded));
                    }
                    self.rollback(mark);
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
        let (mark, candidate) = self.probe(search, generator, all, &recorded)?;
        let victims = self.needed(candidate);
        let mark = self.complete(&search.case, before, mark)?;
        Some((mark, victims))
    }

    /// The batches that lost a pod.
    fn needed(&self, candidate: Candidate) -> Vec<Batch> {
        let lost = |batch: &Batch| batch.tasks.iter().any(|task| self.lost(*task));
        candidate.batches.into_iter().filter(lost).collect()
    }

    /// The gang has what it needs, and more than before.
    fn complete(&mut self, case: &Case, before: usize, mark: Mark) -> Option<Mark> {
        let gang = &self.model.gangs[case.gang];
        if gang.satisfied(0, &gang.active()) && self.active_used(case.gang) > before {
            return Some(mark);
        }
        self.rollback(mark);
        None
    }

    pub(in crate::engine) fn active_used(&self, gang: GangId) -> usize {
        self.model.gangs[gang]
            .pod_sets()
            .map(|(_, pods)| pods.active_used())
            .sum()
    }

    /// A pod that was evicted has not got its place back.
    pub fn lost(&self, task: TaskId) -> bool {
        self.model.tasks[task].state.evicted_from.is_some()
    }
}

/// What a search found.
pub struct Answer {
    /// What was asked.
    pub case: Case,
    /// Where its changes begin.
    pub mark: Mark,
    /// The batches that lost a pod.
    pub victims: Vec<Batch>,
}

/// The node on which a pod is, or will be.
#[must_use]
pub fn node_of(model: &crate::engine::model::Model, task: TaskId) -> Option<NodeId> {
    let state = &model.tasks[task].state;
    state.plan.as_ref().or(state.hold.as_ref()).map(|place| place.node)
}
