//! The searches for one preemptor, in order: the generators, then the complete search.

use crate::engine::model::Mark;
use crate::engine::policy::VictimGenerator;
use crate::engine::stage::{Searcher, Stage};

use super::rules::EvictingAction;
use super::search::{SearchState, VictimSearch};
use super::{Answer, Batch, Case};
use crate::engine::actions::budgets::unbudgeted;

/// One search within [`VictimSearch::reach`].
pub fn find(victims: &mut VictimSearch, case: Case, generators: &[VictimGenerator]) -> Option<Answer> {
    let action = case.action;
    let mut search = victims.begin(case)?;
    let found = generators
        .iter()
        .find_map(|&generator| {
            victims.seen(action, generator.into(), |victims| {
                victims.run_probes(&mut search, generator)
            })
        })
        .or_else(|| {
            let steps_left = *victims.steps_left > 0 && !victims.is_cut_off();
            steps_left.then(|| victims.seen(action, Searcher::Complete, |victims| victims.look_through(&mut search)))?
        });
    if found.is_none() && !victims.is_cut_off() {
        victims.look_for_budgets(&mut search);
    }
    found.map(|(mark, victims)| Answer {
        case: search.case,
        mark,
        victims,
    })
}

impl From<VictimGenerator> for Searcher {
    fn from(generator: VictimGenerator) -> Self {
        match generator {
            VictimGenerator::NodeLocalGreedy => Self::NodeLocalGreedy,
            VictimGenerator::MultiNodeGang => Self::MultiNodeGang,
        }
    }
}

impl VictimSearch<'_> {
    /// After a search that found nothing: gathers all victims, so that it is known whether disruption budgets protected any.
    pub(in crate::engine) fn look_for_budgets(&mut self, search: &mut SearchState) {
        let mut seen = search.sequence.batches.len();
        while !unbudgeted(self.model, self.context.policy)
            && !self.objections.budget
            && !self.is_cut_off()
            && self.gathered(search, seen)
        {
            seen += 1;
        }
    }

    /// Runs a search and reports it to the observer.
    fn seen<T>(
        &mut self,
        action: EvictingAction,
        searcher: Searcher,
        search: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        let before = self.log.work;
        let found = search(self);
        (self.observer)(Stage::Searched {
            action: action.kind(),
            searcher,
            solved: found.is_some(),
            work: self.log.work.since(before),
        });
        found
    }

    /// The probes of one generator. The answer's changes are in the model, after the mark.
    pub(in crate::engine) fn run_probes(
        &mut self,
        search: &mut SearchState,
        generator: VictimGenerator,
    ) -> Option<(Mark, Vec<Batch>)> {
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
                    // The last probe would try the same victims again, with the same result.
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
}
