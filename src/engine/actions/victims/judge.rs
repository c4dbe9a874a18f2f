//! Who may be a victim, whether a search is worth it, whether a solution is acceptable, and what to tell those evicted.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::decision::{ReasonCode, Side, Sides, Why};
use crate::engine::fairshare::gates::{over_quota, thousandths};
use crate::engine::fairshare::min_runtime::protected_until;
use crate::engine::fairshare::reclaim::{Bundles, Claim, Loss, legitimate, may_reclaim, parting};
use crate::engine::fairshare::sorted::{evictable, next_victims};
use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::fairshare::{largest_gpu, smallest_gpu, wanted};
use crate::engine::input::Time;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::pod::Status;
use crate::engine::model::pod_group::{Member, PodIds};
use crate::engine::model::resources::{Shared, add};
use crate::engine::placement::bounds::never_fits;
use crate::engine::placement::rules::refresh_class;
use crate::engine::policy::{ActionKind, DisruptionBudgets};

use super::bounds::asked_gpus;
use super::{Answer, Candidate, Case};
use crate::engine::actions::session::{BudgetReach, Session, Verdict};

impl Session<'_> {
    /// See [`may_reclaim`]; never without shares.
    pub fn may_reclaim(&self, queue: QueueId, entry: &Shared, preemptible: bool) -> bool {
        self.rules.shares && may_reclaim(self.model, queue, entry, preemptible)
    }

    /// Until when a pod group may not trigger evictions.
    #[must_use]
    pub fn delayed_until(&self, pod_group: PodGroupId) -> Option<Time> {
        let input = self.model.pod_groups()[pod_group].input.as_ref()?;
        let delay = input.preemption_delay.filter(|delay| *delay > 0)?;
        Some(Time(
            input.created.max(input.last_eviction.unwrap_or(input.created)).0 + delay,
        ))
    }

    /// Notes which pod groups an action leaves out because of their preemption delay.
    pub fn note_delays(&mut self, action: ActionKind) {
        let pending: Vec<PodGroupId> = self.model.pending().iter().copied().collect();
        for pod_group in pending {
            let Some(input) = &self.model.pod_groups()[pod_group].input else {
                continue;
            };
            let suits = self.sorted.waiting(pod_group).is_some()
                && schedulable_queue(self.model, pod_group).is_some()
                && (action != ActionKind::Consolidation || input.preemptible);
            let Some(until) = self.delayed_until(pod_group).filter(|until| suits && *until > self.now) else {
                continue;
            };
            let delay = input.preemption_delay.unwrap_or(0);
            self.wait_until.insert(until);
            if !self.note(pod_group).names(ReasonCode::PreemptionDelayNotElapsed) {
                let message = format!(
                    "Workload is within its preemption delay window ({}) and may not trigger evictions before {}",
                    duration(delay),
                    instant(until)
                );
                self.refuse(pod_group, ReasonCode::PreemptionDelayNotElapsed, message);
            }
        }
    }

    /// Cheap tests before a search.
    pub fn promising(&mut self, action: ActionKind, queue: QueueId, pods: &[PodId], preemptible: bool) -> bool {
        for pod in pods {
            refresh_class(self.model, self.model.pods()[*pod].class);
        }
        let pod_group = pods.first().and_then(|pod| self.model.pods()[*pod].pod_group);
        if pod_group.is_some_and(|pod_group| never_fits(self.model, self.policy, pod_group, pods)) {
            return false;
        }
        match action {
            ActionKind::Preempt => {
                let asked = wanted(self.model, pods, largest_gpu(self.model));
                preemptible || !self.rules.shares || over_quota(self.model, queue, &asked).is_none()
            }
            ActionKind::Consolidation => {
                let asked: i64 = pods.iter().map(|pod| asked_gpus(self.model, *pod)).sum();
                self.capacity.update(self.model);
                asked <= self.capacity.ready_sum
            }
            ActionKind::Reclaim | ActionKind::Allocate | ActionKind::StaleGangEviction => true,
        }
    }

    /// A victim's minimum run time is not over. The cycle remembers when to look again.
    pub fn protected(&self, victim: PodGroupId, reclaimer: Option<QueueId>) -> bool {
        let until = protected_until(self.model, self.policy, &self.model.pod_groups()[victim], reclaimer);
        let Some(until) = until.filter(|until| *until > self.now) else {
            return false;
        };
        let first = self.protected_until.get().map_or(until, |first| first.min(until));
        self.protected_until.set(Some(first));
        true
    }

    /// Whether a pod group may be a victim, as far as what it would lose next is concerned: what was refused a moment ago is not asked for again, and what no
    /// disruption budget lets go is left to those who look for victims beyond budgets.
    pub fn may_lose(&self, victim: PodGroupId, reach: BudgetReach) -> bool {
        if self.model.nothing_refused() && self.unbudgeted() {
            return reach == BudgetReach::Within;
        }
        let pod_group = &self.model.pod_groups()[victim];
        let pods: Vec<PodId> = evictable(self.model, pod_group).collect();
        let next = next_victims(self.model, pod_group, &pods);
        if self.model.refused(next.iter().copied()) {
            return false;
        }
        let within = self.within_budgets(next.iter().copied());
        self.budgets_in_the_way.set(self.budgets_in_the_way.get() || !within);
        within == (reach == BudgetReach::Within)
    }

    /// No disruption budget says anything.
    pub fn unbudgeted(&self) -> bool {
        self.policy.disruption_budgets == DisruptionBudgets::Ignore || self.model.budgets().is_empty()
    }

    /// Whether disruption budgets allow that all of these are evicted.
    pub fn within_budgets(&self, pods: impl Iterator<Item = PodId>) -> bool {
        let model = &*self.model;
        self.unbudgeted() || model.budgets().allow(pods.map(|pod| &*model.pods()[pod].input))
    }

    /// Whether all victims of a candidate may go that are really evicted: some may stay after all, and plans are no pods.
    fn may_all_go(&self, candidate: &Candidate) -> bool {
        if self.model.nothing_refused() && self.unbudgeted() {
            return true;
        }
        let mut evicted = candidate.victims();
        evicted.retain(|pod| {
            let from = self.model.pods()[*pod].state.evicted_from;
            from.is_some_and(|status| status != Status::Pipelined)
        });
        if self.model.refused(evicted.iter().copied()) {
            return false;
        }
        let within = self.within_budgets(evicted.into_iter());
        self.budgets_in_the_way.set(self.budgets_in_the_way.get() || !within);
        within || self.reach == BudgetReach::Beyond
    }

    /// Whether what a candidate led to is acceptable.
    pub fn acceptable(&self, case: &Case, pods: &[PodId], candidate: &Candidate) -> bool {
        if !self.may_all_go(candidate) {
            return false;
        }
        match case.action {
            ActionKind::Consolidation => candidate.victims().into_iter().all(|pod| !self.left_out(pod)),
            ActionKind::Preempt => self.minimum_runtimes_kept(candidate, None),
            ActionKind::Reclaim => {
                self.minimum_runtimes_kept(candidate, Some(case.queue)) && self.fair(case, pods, candidate)
            }
            ActionKind::Allocate | ActionKind::StaleGangEviction => false,
        }
    }

    /// A protected pod group keeps its minimum: pods that stay where they are. Those that leave already do not count, nor those that this candidate takes or moves.
    fn minimum_runtimes_kept(&self, candidate: &Candidate, reclaimer: Option<QueueId>) -> bool {
        let lost = candidate.victims().into_iter().filter(|pod| self.lost(*pod));
        let pod_set = |pod: PodId| Some((self.model.pods()[pod].pod_group?, self.model.pods()[pod].member?));
        let mut lost: SmallVec<[(PodGroupId, Member); 4]> = lost.filter_map(pod_set).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.into_iter().all(|(pod_group, member)| {
            let pods = self.model.pod_groups()[pod_group].pods(member);
            pods.is_none_or(|pods| pods.staying() >= pods.min) || !self.protected(pod_group, reclaimer)
        })
    }

    /// What each pod group loses that counts against the rules of reclaim, the pod group that loses first before the others.
    fn lost_by_pod_group(&self, candidate: &Candidate) -> impl Iterator<Item = (PodGroupId, PodIds)> {
        let batches = &candidate.batches;
        let mut order: SmallVec<[(PodGroupId, usize); 2]> = (batches.iter().enumerate())
            .map(|(at, batch)| (batch.pod_group, at))
            .collect();
        order.sort_unstable();
        let counts = |pod: &PodId| !self.policy.consolidating_reclaim || self.left_out(*pod);
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
    fn fair(&self, case: &Case, pods: &[PodId], candidate: &Candidate) -> bool {
        let mut losses: SmallVec<[Loss; 2]> = SmallVec::new();
        for (pod_group, pods) in self.lost_by_pod_group(candidate) {
            // All its pods have been placed again, so its queue loses nothing.
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
            multiplier: self.policy.plugins.proportion.unwrap_or_default().saturation_multiplier,
        };
        legitimate(self.model, &case.held, &claim, &losses)
    }

    /// Pods beyond the minimum one by one, then all others together.
    fn bundles(&self, pod_group: PodGroupId, pods: &[PodId]) -> Bundles {
        let entry = &self.model.pod_groups()[pod_group];
        let mut core = [0; 3];
        let mut bundles = Bundles::new();
        for (member, set) in entry.pod_sets() {
            let theirs = pods
                .iter()
                .filter(|pod| self.model.pods()[**pod].member == Some(member));
            for (at, pod) in theirs.enumerate() {
                let amount = self.held_before(*pod);
                if at < set.min {
                    add(&mut core, &amount, 1);
                } else {
                    bundles.push(amount);
                }
            }
        }
        if core != [0; 3] {
            bundles.push(core);
        }
        bundles
    }

    /// What a pod counted in its queue where it was.
    fn held_before(&self, pod: PodId) -> Shared {
        let pod = &self.model.pods()[pod];
        let node = pod.state.hold.as_ref().map(|place| &self.model.nodes()[place.node]);
        let shape = &self.model.shapes()[pod.shape];
        node.map_or(shape.quota, |node| shape.accepted(node.gpu_memory()))
    }

    /// Keeps an answer.
    pub fn keep(&mut self, answer: &Answer) {
        let case = &answer.case;
        let for_group = self.model.pod_groups()[case.pod_group].key.clone();
        let mut sides: Vec<(QueueId, Arc<Sides>)> = Vec::new();
        debug_assert!(self.model.changed_since(answer.mark).next().is_some());
        self.remember_taken(answer);
        for batch in &answer.victims {
            let lost: Vec<PodId> = batch.pods.iter().copied().filter(|pod| self.lost(*pod)).collect();
            if lost.is_empty() {
                continue;
            }
            let told = self.sides(case, batch.pod_group, &mut sides);
            for pod in lost {
                let verdict = Verdict {
                    action: case.action,
                    for_group: Some(for_group.clone()),
                    why: match case.action {
                        ActionKind::Consolidation => Why::Moved,
                        ActionKind::Preempt => Why::Preempted,
                        ActionKind::Reclaim | ActionKind::Allocate | ActionKind::StaleGangEviction => {
                            Why::Reclaimed(told.clone())
                        }
                    },
                };
                self.verdicts.insert(pod, verdict);
            }
            let times = self.model.pod_groups()[batch.pod_group].eviction_times();
            self.evictions_before.entry(batch.pod_group).or_insert(times);
            self.model.evicted(batch.pod_group, self.now);
            self.timed.insert(batch.pod_group);
        }
        self.commit();
    }

    /// The two queues between which a victim's pods change hands, as they were before.
    fn sides(&self, case: &Case, victim: PodGroupId, known: &mut Vec<(QueueId, Arc<Sides>)>) -> Option<Arc<Sides>> {
        if case.action != ActionKind::Reclaim {
            return None;
        }
        let theirs = self.model.pod_groups()[victim].queue?;
        if let Some((_, sides)) = known.iter().find(|(queue, _)| *queue == theirs) {
            return Some(sides.clone());
        }
        let (ours, donor) = parting(self.model, case.queue, theirs)?;
        let side = |id: QueueId| {
            let queue = &self.model.queues()[id];
            let input = queue.input.as_ref()?;
            Some(Side {
                queue: input.display.clone(),
                used: case.held.of(id),
                quota: [0, 1, 2].map(|resource| queue.share(resource).quota),
                fair: queue.fair,
                priority: input.priority,
            })
        };
        let sides = Arc::new(Sides {
            theirs: side(donor)?,
            ours: side(ours)?,
        });
        known.push((theirs, sides.clone()));
        Some(sides)
    }
}

/// A length of time as Go prints it.
fn duration(millis: i64) -> String {
    let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
    let seconds = thousandths(millis % 60_000);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// An instant in RFC 3339, UTC, seconds.
fn instant(time: Time) -> String {
    let stamp = jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
