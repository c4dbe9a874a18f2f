//! The search as it is defined, step by step, for tests to compare with: every state of the gathering, every candidate, all who wait in every line.

mod exhaustive;
mod gather;
mod generate;
mod simulate;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::actions::session::Session;
use crate::engine::fairshare::min_runtime::elastic;
use crate::engine::fairshare::reclaim::may_donate;
use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::class::NodeSet;
use crate::engine::model::ids::{GangId, QueueId, TaskId};
use crate::engine::policy::{ActionKind, VictimGenerator};

use crate::engine::actions::victims::room::free_gpus;
use crate::engine::actions::victims::{Answer, Batch, Case, Reach};
use crate::engine::fairshare::tree::Purpose;
use tree::{Job, JobTree};

/// A search for one preemptor.
pub struct Search {
    case: Case,
    eligible: Vec<GangId>,
    /// Those to be gathered after the others, because disruption budgets do not let them go.
    beyond: Vec<GangId>,
    feasible: NodeSet,
    failed: BTreeSet<(usize, Vec<TaskId>)>,
}

impl Session<'_> {
    /// What [`Session::solve`] answers, found plainly.
    pub fn solve_plainly(&mut self, case: Case, generators: &[VictimGenerator]) -> Option<Answer> {
        let eligible = self.eligible_victims(&case, Reach::Within);
        let beyond = match self.reach {
            Reach::Within => Vec::new(),
            Reach::Beyond => self.eligible_victims(&case, Reach::Beyond),
        };
        let mut search = Search {
            eligible,
            beyond,
            feasible: self.feasible_nodes(case.gang),
            failed: BTreeSet::new(),
            case,
        };
        if search.eligible.is_empty() && search.beyond.is_empty() {
            return None;
        }
        let found = generators
            .iter()
            .find_map(|&generator| self.run_plain_probes(&mut search, generator));
        found.map(|(mark, victims)| Answer {
            case: search.case,
            mark,
            victims,
        })
    }

    /// The probes of one generator. The answer's changes are in the model, from the mark on.
    fn run_plain_probes(&mut self, search: &mut Search, generator: VictimGenerator) -> Option<(Mark, Vec<Batch>)> {
        let all = search.case.chunk.len();
        let mut recorded: Vec<Batch> = Vec::new();
        let (mut solved, mut failed) = (0, all + 1);
        let mut next = 1;
        while next > solved && next < failed {
            match self.plain_probe(search, generator, next, &recorded) {
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
        let before = self.active_used(search.case.gang);
        let (mark, victims) = self.plain_probe(search, generator, all, &recorded)?;
        let gang = &self.model.gangs[search.case.gang];
        if gang.satisfied(0, &gang.active()) && self.active_used(search.case.gang) > before {
            return Some((mark, victims));
        }
        self.rollback(mark);
        None
    }

    /// Tries to place the first `count` pods. On success the changes stay in the model from the mark on, and the batches that lost a pod come back.
    fn plain_probe(
        &mut self,
        search: &mut Search,
        generator: VictimGenerator,
        count: usize,
        recorded: &[Batch],
    ) -> Option<(Mark, Vec<Batch>)> {
        let mut gathering = self.gather(search, count, recorded);
        loop {
            if gathering.passes(self.model) {
                for candidate in generate::candidates(self.model, search, &gathering, generator) {
                    let tasks = candidate.victims().to_vec();
                    if tasks.is_empty() || search.failed.contains(&(count, tasks.clone())) {
                        continue;
                    }
                    if let Some(mark) = self.simulate_plainly(search, count, &candidate) {
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

    /// Nodes with something free for the preemptor: any, unless all its pods need GPUs.
    fn feasible_nodes(&self, gang: GangId) -> NodeSet {
        let any = self.model.gangs[gang]
            .tasks
            .iter()
            .any(|task| self.model.shapes[self.model.tasks[*task].shape].cpu_only);
        let mut set = NodeSet::default();
        for &id in &self.model.by_name {
            if any || free_gpus(&self.model.nodes[id], self.model) > 0 {
                set.add(id.at());
            }
        }
        set
    }

    /// Gangs that may be victims.
    fn eligible_victims(&self, case: &Case, reach: Reach) -> Vec<GangId> {
        let (action, gang, queue, chunk) = (case.action, case.gang, case.queue, &*case.chunk);
        let priority = |gang: GangId| self.model.gangs[gang].input.as_ref().map_or(0, |input| input.priority);
        let job = wanted(self.model, chunk, smallest_gpu(self.model));
        let mut donors: BTreeMap<QueueId, bool> = BTreeMap::new();
        let mut found = Vec::new();
        for (id, entry) in self.model.gangs.iter() {
            let preemptible = entry.input.as_ref().is_some_and(|input| input.preemptible);
            let Some(theirs) = schedulable_queue(self.model, id).filter(|_| preemptible && id != gang) else {
                continue;
            };
            if entry.pod_sets().all(|(_, pods)| pods.active() == 0) {
                continue;
            }
            let eligible = match action {
                ActionKind::Consolidation => true,
                ActionKind::Preempt => theirs == queue && priority(id) < priority(gang) && self.unprotected(id, None),
                ActionKind::Reclaim => {
                    theirs != queue
                        && *donors
                            .entry(theirs)
                            .or_insert_with(|| may_donate(self.model, queue, theirs, &job))
                        && self.unprotected(id, Some(queue))
                }
                ActionKind::Allocate | ActionKind::StaleGangEviction => false,
            };
            if eligible && self.may_lose(id, reach) {
                found.push(id);
            }
        }
        match self.policy.max_consolidation_victims {
            Some(most) if action == ActionKind::Consolidation && found.len() > most + 1 => self.worst(found, most + 1),
            Some(_) | None => found,
        }
    }

    /// The worst of some gangs.
    fn worst(&self, gangs: Vec<GangId>, most: usize) -> Vec<GangId> {
        let mut tree = JobTree::new(self.rules, Purpose::Rob);
        for gang in gangs {
            let entry = &self.model.gangs[gang];
            tree.push(
                self.model,
                Job {
                    order: self.rules.job(entry, entry.stage(&entry.active())),
                    gang,
                    amount: [0; 3],
                    tasks: None,
                },
            );
        }
        std::iter::from_fn(|| tree.pop(self.model))
            .take(most)
            .map(|job| job.gang)
            .collect()
    }

    fn unprotected(&self, victim: GangId, reclaimer: Option<QueueId>) -> bool {
        let entry = &self.model.gangs[victim];
        elastic(entry) || !self.protected(victim, reclaimer)
    }
}
