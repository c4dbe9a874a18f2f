//! The search as it is defined, step by step, for tests to compare with: every state of the gathering, every candidate, all pending pod groups of every queue.

pub mod exhaustive;
mod gather;
mod generate;
mod simulate;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::actions::victims::judge::BudgetReach;
use crate::engine::actions::victims::search::VictimSearch;
use crate::engine::fairshare::min_runtime::elastic;
use crate::engine::fairshare::reclaim::may_donate;
use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::policy::VictimGenerator;

use crate::engine::actions::capacity::free_gpus;
use crate::engine::actions::victims::rules::EvictingAction;
use crate::engine::actions::victims::{Answer, Batch, Case, lost};
use crate::engine::fairshare::tree::Purpose;
use tree::{OrderEntry, OrderTree};

/// A search for one preemptor.
pub struct Search {
    case: Case,
    eligible: Vec<PodGroupId>,
    /// Those to be gathered after the others, because disruption budgets do not let them go.
    beyond: Vec<PodGroupId>,
    feasible: NodeSet,
    failed: BTreeSet<(usize, Vec<PodId>)>,
}

/// What [`find`](crate::engine::actions::victims::find::find) answers, found plainly.
pub fn find_plainly(victims: &mut VictimSearch, case: Case, generators: &[VictimGenerator]) -> Option<Answer> {
    let eligible = victims.eligible_victims(&case, BudgetReach::Within);
    let beyond = match victims.reach {
        BudgetReach::Within => Vec::new(),
        BudgetReach::Beyond => victims.eligible_victims(&case, BudgetReach::Beyond),
    };
    let mut search = Search {
        eligible,
        beyond,
        feasible: victims.feasible_nodes(case.pod_group),
        failed: BTreeSet::new(),
        case,
    };
    if search.eligible.is_empty() && search.beyond.is_empty() {
        return None;
    }
    let found = generators
        .iter()
        .find_map(|&generator| victims.run_plain_probes(&mut search, generator));
    found.map(|(mark, victims)| Answer {
        case: search.case,
        mark,
        victims,
    })
}

impl VictimSearch<'_> {
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
        let before = self.active_used(search.case.pod_group);
        let (mark, victims) = self.plain_probe(search, generator, all, &recorded)?;
        let pod_group = &self.model.pod_groups()[search.case.pod_group];
        if pod_group.satisfied(0, &pod_group.active()) && self.active_used(search.case.pod_group) > before {
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
                    let pods = candidate.victims().to_vec();
                    if pods.is_empty() || search.failed.contains(&(count, pods.clone())) {
                        continue;
                    }
                    if let Some(mark) = self.simulate_plainly(search, count, &candidate) {
                        let kept = candidate
                            .batches
                            .into_iter()
                            .filter(|batch| batch.pods.iter().any(|pod| lost(self.model, *pod)));
                        return Some((mark, kept.collect()));
                    }
                    search.failed.insert((count, pods));
                }
            }
            if !gathering.step(self.model) {
                return None;
            }
        }
    }

    /// Nodes with something free for the preemptor: any, unless all its pods need GPUs.
    fn feasible_nodes(&self, pod_group: PodGroupId) -> NodeSet {
        let any = self.model.pod_groups()[pod_group]
            .pods
            .iter()
            .any(|pod| self.model.shapes()[self.model.pods()[*pod].shape].cpu_only);
        let mut set = NodeSet::default();
        for &id in self.model.by_name() {
            if any || free_gpus(&self.model.nodes()[id], self.model) > 0 {
                set.add(id.at());
            }
        }
        set
    }

    /// Pod groups that may be victims.
    fn eligible_victims(&mut self, case: &Case, reach: BudgetReach) -> Vec<PodGroupId> {
        let (action, pod_group, queue, chunk) = (case.action, case.pod_group, case.queue, &*case.chunk);
        let priority = |pod_group: PodGroupId| {
            self.model.pod_groups()[pod_group]
                .input
                .as_ref()
                .map_or(0, |input| input.priority)
        };
        let asked = wanted(self.model, chunk, smallest_gpu(self.model));
        let mut donors: BTreeMap<QueueId, bool> = BTreeMap::new();
        let mut found = Vec::new();
        let mut objections = self.objections;
        for (id, entry) in self.model.pod_groups().iter() {
            let preemptible = entry.input.as_ref().is_some_and(|input| input.preemptible);
            let Some(theirs) = schedulable_queue(self.model, id).filter(|_| preemptible && id != pod_group) else {
                continue;
            };
            if entry.pod_sets().all(|(_, pods)| pods.active() == 0) {
                continue;
            }
            let eligible = match action {
                EvictingAction::Consolidation => true,
                EvictingAction::Preempt => {
                    theirs == queue && priority(id) < priority(pod_group) && self.unprotected(id, None)
                }
                EvictingAction::Reclaim => {
                    theirs != queue
                        && *donors
                            .entry(theirs)
                            .or_insert_with(|| may_donate(self.model, queue, theirs, &asked))
                        && self.unprotected(id, Some(queue))
                }
            };
            if eligible {
                match self.judge().may_lose(id, reach) {
                    Ok(()) => found.push(id),
                    Err(objection) => objections.note(objection),
                }
            }
        }
        self.objections = objections;
        match self.context.policy.max_consolidation_victims {
            Some(most) if action == EvictingAction::Consolidation && found.len() > most + 1 => {
                self.worst(found, most + 1)
            }
            Some(_) | None => found,
        }
    }

    /// The worst of some pod groups.
    fn worst(&self, pod_groups: Vec<PodGroupId>, most: usize) -> Vec<PodGroupId> {
        let mut tree = OrderTree::new(self.context.rules, Purpose::Victims);
        for pod_group in pod_groups {
            let entry = &self.model.pod_groups()[pod_group];
            tree.push(
                self.model,
                OrderEntry {
                    order: self.context.rules.pod_group(entry, entry.stage(&entry.active())),
                    pod_group,
                    amount: [0; 3],
                    pods: None,
                },
            );
        }
        std::iter::from_fn(|| tree.pop(self.model))
            .take(most)
            .map(|entry| entry.pod_group)
            .collect()
    }

    fn unprotected(&self, victim: PodGroupId, reclaimer: Option<QueueId>) -> bool {
        let entry = &self.model.pod_groups()[victim];
        elastic(entry) || self.judge().unprotected(victim, reclaimer).is_ok()
    }
}
