//! One search: its preemptor, the order in which victims would be gathered, and what can be said before anything is tried.

use smallvec::SmallVec;

use crate::engine::actions::capacity::Kind;
use crate::engine::actions::session::{BudgetReach, Session};
use crate::engine::fairshare::min_runtime::elastic;
use crate::engine::fairshare::order::Rules;
use crate::engine::fairshare::reclaim::{may_donate, most_taken};
use crate::engine::fairshare::sorted::{active_of, evictable, next_victims, requests};
use crate::engine::fairshare::tree::{OrderEntry, OrderTree, Pick, Purpose, View};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, QueueId};
use crate::engine::model::pod_group::PodIds;
use crate::engine::model::resources::{GPUS, Shared};
use crate::engine::placement::rules::refresh_class;
use crate::engine::policy::ActionKind;

use super::{Batch, Case, Tried};

/// A search for one preemptor.
pub struct Search {
    /// What is asked.
    pub case: Case,
    /// Candidates that failed.
    pub failed: Tried,
    /// Some pod of it needs no GPU: any node will do.
    pub anywhere: bool,
    /// Who would be taken, in order.
    pub sequence: Sequence,
    /// The kinds of its pods, each with the table that counts them; and per pod its kind.
    pub kinds: SmallVec<[usize; 2]>,
    /// See `kinds`.
    pub kind_of: SmallVec<[usize; 4]>,
    /// The table for the pods' GPUs, if all ask for the same number, and that is not 0.
    pub even: Option<usize>,
}

/// Victims from the worst on: worst queue, worst pod group in it, what that pod group can best do without. Gathered as far as somebody asked.
pub struct Sequence {
    /// Victims so far.
    pub batches: Vec<Batch>,
    rest: OrderTree,
    reach: BudgetReach,
    /// The queues from which they are taken, by position.
    donors: Vec<bool>,
    most: usize,
    pod_groups: Vec<PodGroupId>,
}

impl Session<'_> {
    /// Prepares a search; `None` if there is no victim at all, or if no set of victims can do.
    pub fn begin(&mut self, case: Case) -> Option<Search> {
        let Case {
            action,
            pod_group,
            queue,
            ..
        } = case;
        let chunk = &case.chunk;
        let entry = wanted(self.model, chunk, smallest_gpu(self.model));
        let donors = self.donors(action, queue, &entry);
        self.capacity.update(self.model);
        if action == ActionKind::Reclaim && self.beyond_reach(&case, &entry, &donors) {
            return None;
        }
        let sequence = self.sequence(&case, donors)?;
        let mut kinds = SmallVec::new();
        let mut kind_of = SmallVec::with_capacity(chunk.len());
        let mut anywhere = false;
        let mut sizes: SmallVec<[i64; 2]> = SmallVec::new();
        for &pod in chunk {
            let pod = &self.model.pods()[pod];
            let (class, shape) = (pod.class, pod.shape);
            refresh_class(self.model, class);
            let table = self.capacity.table(self.model, Kind::Pods(class, shape));
            if !kinds.contains(&table) {
                kinds.push(table);
                sizes.push(self.model.shapes()[shape].quota[GPUS]);
            }
            kind_of.push(table);
        }
        for pod in &self.model.pod_groups()[pod_group].pods {
            anywhere |= self.model.shapes()[self.model.pods()[*pod].shape].cpu_only;
        }
        sizes.dedup();
        let even = match *sizes {
            [size] if size > 0 => Some(self.capacity.table(self.model, Kind::Gpus(size))),
            _ => None,
        };
        Some(Search {
            case,
            failed: Tried::default(),
            anywhere,
            sequence,
            kinds,
            kind_of,
            even,
        })
    }

    /// No victims that the rules of reclaim allow would free as many GPUs as the pods need.
    fn beyond_reach(&self, case: &Case, claim: &Shared, donors: &[bool]) -> bool {
        let lacking = wanted(self.model, &case.chunk, None)[GPUS] - self.capacity.sum;
        if lacking <= 0 {
            return false;
        }
        let donates = |queue: QueueId| donors.get(queue.at()).copied().unwrap_or(false);
        most_taken(self.model, self.sorted, case.queue, claim, donates).is_some_and(|most| most < lacking)
    }

    /// The queues from which victims may be taken, by position.
    fn donors(&self, action: ActionKind, queue: QueueId, entry: &Shared) -> Vec<bool> {
        let mut donors = vec![false; self.model.queues().slots()];
        for (theirs, line) in self.sorted.queues() {
            donors[theirs.at()] = !line.victims.is_empty()
                && match action {
                    ActionKind::Consolidation => true,
                    ActionKind::Preempt => theirs == queue,
                    ActionKind::Reclaim => theirs != queue && may_donate(self.model, queue, theirs, entry),
                    ActionKind::Allocate | ActionKind::StaleGangEviction => false,
                };
        }
        donors
    }

    /// Who may be taken, to be gathered from the worst on; `None` if nobody.
    fn sequence(&self, case: &Case, donors: Vec<bool>) -> Option<Sequence> {
        let most = match self.policy.max_consolidation_victims {
            Some(most) if case.action == ActionKind::Consolidation => most + 1,
            Some(_) | None => usize::MAX,
        };
        let mut sequence = Sequence {
            batches: Vec::new(),
            rest: OrderTree::new(self.rules, Purpose::Victims),
            reach: BudgetReach::Within,
            donors,
            most,
            pod_groups: Vec::new(),
        };
        self.line_up_victims(case, &mut sequence, BudgetReach::Within);
        self.next_batch(case, &mut sequence).then_some(sequence)
    }

    /// Starts the tree from which victims are taken.
    fn line_up_victims(&self, case: &Case, sequence: &mut Sequence, reach: BudgetReach) {
        let pick = |victim| self.pick_victim(case, victim, reach);
        sequence.reach = reach;
        sequence.rest = OrderTree::new(self.rules, Purpose::Victims);
        let donors = &sequence.donors;
        sequence.rest.add_queues(self.view(&pick), |theirs| donors[theirs.at()]);
    }

    /// Gathers the next victims: those beyond disruption budgets after all others, if at all. False if there are none left.
    fn next_batch(&self, case: &Case, sequence: &mut Sequence) -> bool {
        let pick = |victim| self.pick_victim(case, victim, BudgetReach::Within);
        if sequence.reach == BudgetReach::Within && sequence.step(self.view(&pick), self.rules) {
            return true;
        }
        if self.reach == BudgetReach::Within {
            return false;
        }
        if sequence.reach == BudgetReach::Within {
            self.line_up_victims(case, sequence, BudgetReach::Beyond);
        }
        let pick = |victim| self.pick_victim(case, victim, BudgetReach::Beyond);
        sequence.step(self.view(&pick), self.rules)
    }

    /// Whether a pod group of a donor queue may be a victim.
    fn pick_victim(&self, case: &Case, victim: PodGroupId, reach: BudgetReach) -> Pick {
        let (action, preemptor, queue) = (case.action, case.pod_group, case.queue);
        if victim == preemptor {
            return Pick::Pass;
        }
        let priority = |pod_group: PodGroupId| {
            self.model.pod_groups()[pod_group]
                .input
                .as_ref()
                .map_or(0, |input| input.priority)
        };
        let unprotected = |reclaimer| elastic(&self.model.pod_groups()[victim]) || !self.protected(victim, reclaimer);
        let takes = match action {
            ActionKind::Preempt if priority(victim) >= priority(preemptor) => {
                // Victims are in order of priority: those that follow have no less.
                return if self.rules.priority { Pick::End } else { Pick::Pass };
            }
            ActionKind::Preempt => unprotected(None),
            ActionKind::Reclaim => unprotected(Some(queue)),
            ActionKind::Consolidation | ActionKind::Allocate | ActionKind::StaleGangEviction => true,
        };
        if takes && self.may_lose(victim, reach) {
            Pick::Take
        } else {
            Pick::Pass
        }
    }

    /// Makes sure that a search's sequence has a batch at a position; false if there are not so many.
    pub fn gathered(&self, search: &mut Search, at: usize) -> bool {
        while search.sequence.batches.len() <= at {
            if !self.next_batch(&search.case, &mut search.sequence) {
                return false;
            }
        }
        true
    }
}

impl Sequence {
    /// Gathers the next victims. False if there are none left.
    fn step(&mut self, view: View, rules: Rules) -> bool {
        let model = view.model;
        loop {
            let Some(entry) = self.rest.pop(view) else { return false };
            let pod_group = &model.pod_groups()[entry.pod_group];
            if entry.pods.is_none() {
                if self.pod_groups.len() >= self.most {
                    continue;
                }
                if self.most < usize::MAX {
                    self.pod_groups.push(entry.pod_group);
                }
            }
            let pods = entry.pods.unwrap_or_else(|| evictable(model, pod_group).collect());
            let chunk = next_victims(model, pod_group, &pods);
            if chunk.len() < pods.len() {
                let left: PodIds = pods.iter().copied().filter(|pod| !chunk.contains(pod)).collect();
                self.rest.push(view, victim_entry(model, rules, entry.pod_group, left));
            }
            if !chunk.is_empty() {
                self.batches.push(Batch {
                    pod_group: entry.pod_group,
                    pods: chunk,
                });
                return true;
            }
        }
    }
}

fn victim_entry(model: &Model, rules: Rules, pod_group: PodGroupId, pods: PodIds) -> OrderEntry {
    let entry = &model.pod_groups()[pod_group];
    let stage = entry.stage(&active_of(model, entry, &pods));
    OrderEntry {
        order: rules.pod_group(entry, stage),
        pod_group,
        amount: requests(model, &next_victims(model, entry, &pods)),
        pods: Some(pods),
    }
}
