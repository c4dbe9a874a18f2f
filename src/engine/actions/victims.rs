//! The victim search of consolidation, reclaim and preempt.
//!
//! Problem: a pod group's next pods, some pod groups that may be victims, and a judge. Wanted: victims such that, once they are gone, the pods find places in the real
//! order of queues and pod groups, and the judge agrees. The answer is defined step by step: two generators, tried in order; for each a sequence of
//! probes over the first 1, 2, 4 … pods, then bisection, each probe starting from the victims that the last solved one needed; in a probe, victims are
//! gathered from the worst on, and each state of that gathering yields candidates, of which the first that works wins.
//!
//! `engine/tests/plain` does just that. What runs gives the same answer without looking at what cannot succeed: see `room`, `search` and `probe`.
//! Where there is none, `complete` looks through all sets of victims.

pub mod bounds;
mod complete;
pub mod judge;
pub mod probe;
pub mod search;
pub mod simulate;

use std::collections::BTreeSet;

use crate::engine::decision::ReasonCode;
use crate::engine::fairshare::reclaim::Holdings;
use crate::engine::fairshare::tree::{OrderTree, Pick, Popped, schedulable_queue};
use crate::engine::model::Mark;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId, QueueId};
use crate::engine::model::pod_group::PodIds;
use crate::engine::placement::claims;
use crate::engine::placement::rules::refresh_class;
use crate::engine::policy::{ActionKind, DisruptionBudgets, VictimGenerator};
use crate::engine::stage::{SearchEnd, Searcher, Stage};

use super::session::{BudgetReach, Session};
use search::Search;

/// Pods that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their pod group.
    pub pod_group: PodGroupId,
    /// The pods.
    pub pods: PodIds,
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
    pub fn in_order(&self) -> PodIds {
        let all = self.batches.iter().flat_map(|batch| batch.pods.iter().copied());
        if let [only] = &*self.batches {
            return only.pods.clone();
        }
        let mut seen = BTreeSet::new();
        all.filter(|pod| seen.insert(*pod)).collect()
    }

    /// All victims, each once, by id.
    #[must_use]
    pub fn victims(&self) -> PodIds {
        let mut all: PodIds = self
            .batches
            .iter()
            .flat_map(|batch| batch.pods.iter().copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Candidates that failed: number of pods, and victims.
#[derive(Debug, Default)]
pub struct Tried(BTreeSet<(usize, PodIds)>);

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
    pub pod_group: PodGroupId,
    /// Its queue.
    pub queue: QueueId,
    /// Its next pods.
    pub chunk: PodIds,
    /// What queues held before.
    pub held: Holdings,
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
        let mut pod_groups = self.line_up(action);
        let mut skips = super::skip::Skips::default();
        while let Some(entry) = self.next_preemptor(&mut pod_groups, action) {
            self.begin_placing(entry.pod_group);
            let Some(queue) = schedulable_queue(self.model, entry.pod_group) else {
                continue;
            };
            let pods = self.model.next_chunk(entry.pod_group, self.now);
            let preemptible = self.model.pod_groups()[entry.pod_group]
                .input
                .as_ref()
                .is_some_and(|input| input.preemptible);
            if pods.is_empty()
                || (action == ActionKind::Reclaim && !self.may_reclaim(queue, &entry.amount, preemptible))
            {
                continue;
            }
            let table = if action == ActionKind::Consolidation {
                None
            } else {
                Some(queue)
            };
            let hopeless = skips.certain_to_fail(self.model, table, entry.pod_group)
                || self.is_impossible(entry.pod_group, &pods)
                || self.claims_in_vain(&pods)
                || !self.promising(action, queue, &pods, preemptible);
            let end = if hopeless {
                SearchEnd::NotAttempted
            } else if let Some(answer) = self.solve(action, entry.pod_group, queue, pods, &generators) {
                if self.spares() {
                    self.spare_since(answer.mark, false);
                }
                self.hold_places(&mut pod_groups, action, answer.mark);
                self.keep(&answer);
                pod_groups.recount();
                (self.observer)(Stage::Placed(action));
                SearchEnd::Solved
            } else {
                skips.failed(self.model, table, entry.pod_group);
                self.why_not(&generators)
            };
            (self.observer)(Stage::TakenUp { action, end });
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

    /// The pod groups that an action tries, in their order.
    fn line_up(&self, action: ActionKind) -> OrderTree {
        let mut pod_groups = self.pending_tree(action);
        pod_groups.add_queues(self.view(&|pod_group| self.pick_preemptor(action, pod_group)), |_| true);
        pod_groups
    }

    fn next_preemptor(&self, pod_groups: &mut OrderTree, action: ActionKind) -> Option<Popped> {
        pod_groups.pop(self.view(&|pod_group| self.pick_preemptor(action, pod_group)))
    }

    fn pick_preemptor(&self, action: ActionKind, pod_group: PodGroupId) -> Pick {
        let input = self.model.pod_groups()[pod_group].input.as_ref();
        let suits = input.is_some_and(|input| action != ActionKind::Consolidation || input.preemptible)
            && self.delayed_until(pod_group).is_none_or(|until| until <= self.now);
        if suits { Pick::Take } else { Pick::Pass }
    }

    /// Pod groups that lose pods keep their places among those to be tried: the order of an action is that of its start.
    fn hold_places(&self, pod_groups: &mut OrderTree, action: ActionKind, mark: Mark) {
        let pick = |pod_group| self.pick_preemptor(action, pod_group);
        for pod in self.model.changed_since(mark) {
            if let Some(pod_group) = self.model.pods()[pod].pod_group {
                pod_groups.hold(self.view(&pick), pod_group);
            }
        }
    }

    /// What a pod claims could be had nowhere, whoever left.
    fn claims_in_vain(&mut self, pods: &[PodId]) -> bool {
        let mut seen = Vec::new();
        pods.iter().any(|&id| {
            let pod = &self.model.pods()[id];
            let kind = (pod.class, pod.shape);
            if pod.input.claims.is_none() || seen.contains(&kind) {
                return false;
            }
            seen.push(kind);
            refresh_class(self.model, kind.0);
            claims::refused(self.model, id).is_some() || !claims::conceivable(self.model, id)
        })
    }

    /// Something that a pod needs is missing for good: no eviction helps.
    fn is_impossible(&mut self, pod_group: PodGroupId, pods: &[PodId]) -> bool {
        let found = pods.iter().find_map(|&pod| {
            Some((
                pod,
                crate::engine::explain::refusal::impossible(self.model, self.policy, pod)?,
            ))
        });
        let Some((pod, text)) = found else { return false };
        let pod = &self.model.pods()[pod].input.pod;
        let message = format!("Resources were not found for pod {pod} due to: {text}");
        if !self.note(pod_group).says(&message) {
            self.refuse(pod_group, ReasonCode::PodSchedulingErrors, message);
        }
        true
    }

    /// Searches, and beyond disruption budgets if there is no answer within. The answer's changes are in the model, from the mark on.
    fn solve(
        &mut self,
        action: ActionKind,
        pod_group: PodGroupId,
        queue: QueueId,
        chunk: PodIds,
        generators: &[VictimGenerator],
    ) -> Option<Answer> {
        let case = Case {
            action,
            pod_group,
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
        self.reach = BudgetReach::Beyond;
        let found = self.search(case, generators);
        self.reach = BudgetReach::Within;
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

    /// Lets the observer see a search.
    fn seen<T>(
        &mut self,
        action: ActionKind,
        searcher: Searcher,
        search: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let before = self.work;
        let found = search(self);
        (self.observer)(Stage::Searched {
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
        let before = self.active_used(search.case.pod_group);
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
        let lost = |batch: &Batch| batch.pods.iter().any(|pod| self.lost(*pod));
        candidate.batches.into_iter().filter(lost).collect()
    }

    /// The pod group has what it needs, and more than before.
    fn complete(&mut self, case: &Case, before: usize, mark: Mark) -> Option<Mark> {
        let pod_group = &self.model.pod_groups()[case.pod_group];
        if pod_group.satisfied(0, &pod_group.active()) && self.active_used(case.pod_group) > before {
            return Some(mark);
        }
        self.rollback(mark);
        None
    }

    pub(in crate::engine) fn active_used(&self, pod_group: PodGroupId) -> usize {
        self.model.pod_groups()[pod_group]
            .pod_sets()
            .map(|(_, pods)| pods.active_used())
            .sum()
    }

    /// A pod that was evicted has not got its place back.
    pub fn lost(&self, pod: PodId) -> bool {
        self.model.pods()[pod].state.evicted_from.is_some()
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
pub fn node_of(model: &crate::engine::model::Model, pod: PodId) -> Option<NodeId> {
    let state = &model.pods()[pod].state;
    state.plan.as_ref().or(state.hold.as_ref()).map(|place| place.node)
}
