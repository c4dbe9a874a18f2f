//! Which pod groups may be victims, and whether the result of evicting them is acceptable. Read-only.

use smallvec::SmallVec;

use crate::engine::fairshare::min_runtime::{elastic, protected_until};
use crate::engine::fairshare::reclaim::{Bundles, Claim, Loss, legitimate};
use crate::engine::fairshare::sorted::{evictable, next_victims};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::input::Time;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::pod::Status;
use crate::engine::model::pod_group::{Member, PodIds, PodSet};
use crate::engine::model::resources::{Shared, add};

use super::{Candidate, Case, lost};
use crate::engine::actions::budgets::{unbudgeted, within_budgets};
use crate::engine::actions::context::CycleContext;

/// Whether victims are searched within disruption budgets or beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetReach {
    /// Victims that budgets allow to be evicted.
    Within,
    /// Victims that budgets protect.
    Beyond,
}

/// Why a victim, or the result of a candidate, is not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The victim has no lower priority than the preemptor.
    Priority,
    /// A minimum run time, with its end.
    ProtectedUntil(Time),
    /// A disruption budget.
    Budget,
    /// Anything else.
    Other,
}

/// The rules for victims.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// The cluster.
    pub model: &'a Model,
    /// The settings and the time.
    pub context: CycleContext<'a>,
}

impl Judge<'_> {
    /// Whether a pod group of a donor queue may be a victim.
    pub fn eligible(self, case: &Case, victim: PodGroupId, reach: BudgetReach) -> Result<(), Objection> {
        if victim == case.pod_group {
            return Err(Objection::Other);
        }
        let entry = &self.model.pod_groups()[victim];
        let priority = |pod_group: PodGroupId| {
            self.model.pod_groups()[pod_group]
                .input
                .as_ref()
                .map_or(0, |input| input.priority)
        };
        if case.action.needs_lower_priority() && priority(victim) >= priority(case.pod_group) {
            return Err(Objection::Priority);
        }
        if let Some(reclaimer) = case.action.min_runtime(case.queue).filter(|_| !elastic(entry)) {
            self.unprotected(victim, reclaimer)?;
        }
        self.may_lose(victim, reach)
    }

    /// Fails while a minimum run time protects the victim.
    pub(in crate::engine) fn unprotected(
        self,
        victim: PodGroupId,
        reclaimer: Option<QueueId>,
    ) -> Result<(), Objection> {
        let victim = &self.model.pod_groups()[victim];
        let until = protected_until(self.model, self.context.policy, victim, reclaimer);
        match until.filter(|until| *until > self.context.now) {
            Some(until) => Err(Objection::ProtectedUntil(until)),
            None => Ok(()),
        }
    }

    /// Whether the pods that a pod group would lose next may be evicted: not if the API server has just refused to evict one of them,
    /// within budgets only if these allow it, and beyond budgets only if they do not.
    pub(in crate::engine) fn may_lose(self, victim: PodGroupId, reach: BudgetReach) -> Result<(), Objection> {
        if self.model.nothing_refused() && unbudgeted(self.model, self.context.policy) {
            return match reach {
                BudgetReach::Within => Ok(()),
                BudgetReach::Beyond => Err(Objection::Other),
            };
        }
        let pod_group = &self.model.pod_groups()[victim];
        let pods: Vec<PodId> = evictable(self.model, pod_group).collect();
        let next = next_victims(self.model, pod_group, &pods);
        if self.model.refused(next.iter().copied()) {
            return Err(Objection::Other);
        }
        let within = within_budgets(self.model, self.context.policy, next.iter().copied());
        match (reach, within) {
            (BudgetReach::Within, true) | (BudgetReach::Beyond, false) => Ok(()),
            (BudgetReach::Within, false) => Err(Objection::Budget),
            (BudgetReach::Beyond, true) => Err(Objection::Other),
        }
    }

    /// Whether the result of a candidate is acceptable.
    pub fn acceptable(
        self,
        case: &Case,
        pods: &[PodId],
        candidate: &Candidate,
        reach: BudgetReach,
    ) -> Result<(), Objection> {
        self.may_all_go(candidate, reach)?;
        let action = case.action;
        if let Some(reclaimer) = action.min_runtime(case.queue) {
            self.minimum_runtimes_kept(candidate, reclaimer)?;
        }
        let all_placed = || candidate.victims().into_iter().all(|pod| !self.unplaced(pod));
        let fine = (!action.must_place_victims() || all_placed())
            && (!action.is_between_queues() || self.fair(case, pods, candidate));
        if fine { Ok(()) } else { Err(Objection::Other) }
    }

    /// Whether budgets allow all evictions of a candidate. Victims that keep their places, and pipelined pods, are not evicted.
    fn may_all_go(self, candidate: &Candidate, reach: BudgetReach) -> Result<(), Objection> {
        if self.model.nothing_refused() && unbudgeted(self.model, self.context.policy) {
            return Ok(());
        }
        let mut evicted = candidate.victims();
        evicted.retain(|pod| {
            let from = self.model.pods()[*pod].state.evicted_from;
            from.is_some_and(|status| status != Status::Pipelined)
        });
        if self.model.refused(evicted.iter().copied()) {
            return Err(Objection::Other);
        }
        let within = within_budgets(self.model, self.context.policy, evicted.into_iter());
        if within || reach == BudgetReach::Beyond {
            Ok(())
        } else {
            Err(Objection::Budget)
        }
    }

    /// Whether each protected pod group keeps its minimum of pods that stay where they are: releasing pods and those that this candidate evicts or moves do not count.
    fn minimum_runtimes_kept(self, candidate: &Candidate, reclaimer: Option<QueueId>) -> Result<(), Objection> {
        let lost = candidate.victims().into_iter().filter(|pod| lost(self.model, *pod));
        let pod_set = |pod: PodId| Some((self.model.pods()[pod].pod_group?, self.model.pods()[pod].member?));
        let mut lost: SmallVec<[(PodGroupId, Member); 4]> = lost.filter_map(pod_set).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.into_iter().try_for_each(|(pod_group, member)| {
            let entry = &self.model.pod_groups()[pod_group];
            let full = entry.pods(member).is_none_or(|pods| pods.staying() >= pods.min);
            if full || entry.satisfied(0, &entry.per_member(PodSet::staying)) {
                return Ok(());
            }
            self.unprotected(pod_group, reclaimer)
        })
    }

    /// The pods of each pod group that count as lost for the rules of reclaim, in the order of the losses.
    fn lost_by_pod_group(self, candidate: &Candidate) -> impl Iterator<Item = (PodGroupId, PodIds)> {
        let batches = &candidate.batches;
        let mut order: SmallVec<[(PodGroupId, usize); 2]> = (batches.iter().enumerate())
            .map(|(at, batch)| (batch.pod_group, at))
            .collect();
        order.sort_unstable();
        let counts = |pod: &PodId| !self.context.policy.consolidating_reclaim || self.unplaced(*pod);
        let all_of = |same: &[(PodGroupId, usize)]| -> (usize, PodGroupId, PodIds) {
            let pods = same.iter().flat_map(|(_, at)| batches[*at].pods.iter().copied());
            (same[0].1, same[0].0, pods.filter(counts).collect())
        };
        let same_pod_group = |one: &(PodGroupId, usize), other: &(PodGroupId, usize)| one.0 == other.0;
        let mut by_pod_group: SmallVec<[_; 2]> = order.chunk_by(same_pod_group).map(all_of).collect();
        by_pod_group.sort_unstable_by_key(|(first, ..)| *first);
        by_pod_group.into_iter().map(|(_, pod_group, pods)| (pod_group, pods))
    }

    /// The rules of reclaim.
    fn fair(self, case: &Case, pods: &[PodId], candidate: &Candidate) -> bool {
        let mut losses: SmallVec<[Loss; 2]> = SmallVec::new();
        for (pod_group, pods) in self.lost_by_pod_group(candidate) {
            // All its pods are placed again, so its queue loses nothing.
            if pods.is_empty() {
                continue;
            }
            let Some(leaf) = self.model.pod_groups()[pod_group].queue else {
                return false;
            };
            losses.push(Loss {
                leaf,
                bundles: self.bundles(pod_group, &pods),
            });
        }
        let claim = Claim {
            leaf: case.queue,
            entry: wanted(self.model, pods, smallest_gpu(self.model)),
            preemptible: self.model.pod_groups()[case.pod_group]
                .input
                .as_ref()
                .is_some_and(|input| input.preemptible),
            multiplier: self
                .context
                .policy
                .plugins
                .proportion
                .unwrap_or_default()
                .saturation_multiplier,
        };
        legitimate(self.model, &case.held, &claim, &losses)
    }

    /// The amounts lost as bundles: each surplus pod alone, then all others together.
    fn bundles(self, pod_group: PodGroupId, pods: &[PodId]) -> Bundles {
        let entry = &self.model.pod_groups()[pod_group];
        let mut core: Option<Shared> = None;
        let mut bundles = Bundles::new();
        for (member, set) in entry.pod_sets() {
            let theirs = pods
                .iter()
                .filter(|pod| self.model.pods()[**pod].member == Some(member));
            for (at, pod) in theirs.enumerate() {
                let amount = self.held_before(*pod);
                if at < set.min {
                    add(core.get_or_insert_default(), &amount, 1);
                } else {
                    bundles.push(amount);
                }
            }
        }
        bundles.extend(core);
        bundles
    }

    /// What a pod counted in its queue at its former place.
    fn held_before(self, pod: PodId) -> Shared {
        let pod = &self.model.pods()[pod];
        let node = pod.state.hold.as_ref().map(|place| &self.model.nodes()[place.node]);
        let shape = &self.model.shapes()[pod.shape];
        node.map_or(shape.quota, |node| shape.accepted(node.gpu_memory()))
    }

    /// Whether a victim lost its place and got no other.
    #[must_use]
    pub fn unplaced(self, pod: PodId) -> bool {
        self.model.pods()[pod].state.status == Status::Releasing
    }
}
