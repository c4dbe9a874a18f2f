//! Who may be a victim, whether a search is worth it, whether a solution is acceptable, and what to tell those evicted.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::decision::{ReasonCode, Side, Sides, Why};
use crate::engine::fairshare::gates::{over_quota, thousandths};
use crate::engine::fairshare::lines::{evictable, next_victims};
use crate::engine::fairshare::min_runtime::protected_until;
use crate::engine::fairshare::reclaim::{Bundles, Claim, Loss, legitimate, may_reclaim, parting};
use crate::engine::fairshare::tree::schedulable_queue;
use crate::engine::fairshare::{largest_gpu, smallest_gpu, wanted};
use crate::engine::input::Time;
use crate::engine::model::gang::{Member, Tasks};
use crate::engine::model::ids::{GangId, QueueId, TaskId};
use crate::engine::model::resources::{Shared, add};
use crate::engine::model::task::Status;
use crate::engine::placement::bounds::never_fits;
use crate::engine::policy::{ActionKind, DisruptionBudgets};

use super::bounds::asked_gpus;
use super::{Answer, Candidate, Case, Reach};
use crate::engine::actions::session::{Session, Verdict};

impl Session<'_> {
    /// See [`may_reclaim`]; never without shares.
    pub fn may_reclaim(&self, queue: QueueId, job: &Shared, preemptible: bool) -> bool {
        self.rules.shares && may_reclaim(self.model, queue, job, preemptible)
    }

    /// Until when a gang may not trigger evictions.
    #[must_use]
    pub fn delayed_until(&self, gang: GangId) -> Option<Time> {
        let input = self.model.gangs[gang].input.as_ref()?;
        let delay = input.preemption_delay.filter(|delay| *delay > 0)?;
        Some(Time(
            input.created.max(input.last_eviction.unwrap_or(input.created)).0 + delay,
        ))
    }

    /// Notes which gangs an action leaves out because of their preemption delay.
    pub fn note_delays(&mut self, action: ActionKind) {
        let pending: Vec<GangId> = self.model.pending.iter().copied().collect();
        for gang in pending {
            let Some(input) = &self.model.gangs[gang].input else {
                continue;
            };
            let suits = self.lines.waiting(gang).is_some()
                && schedulable_queue(self.model, gang).is_some()
                && (action != ActionKind::Consolidation || input.preemptible);
            let Some(until) = self.delayed_until(gang).filter(|until| suits && *until > self.now) else {
                continue;
            };
            let delay = input.preemption_delay.unwrap_or(0);
            self.wait_until.insert(until);
            if !self.note(gang).names(ReasonCode::PreemptionDelayNotElapsed) {
                let message = format!(
                    "Workload is within its preemption delay window ({}) and may not trigger evictions before {}",
                    duration(delay),
                    instant(until)
                );
                self.refuse(gang, ReasonCode::PreemptionDelayNotElapsed, message);
            }
        }
    }

    /// Cheap tests before a search.
    pub fn promising(&mut self, action: ActionKind, queue: QueueId, tasks: &[TaskId], preemptible: bool) -> bool {
        for task in tasks {
            self.model.refresh_class(self.model.tasks[*task].class);
        }
        let gang = tasks.first().and_then(|task| self.model.tasks[*task].gang);
        if gang.is_some_and(|gang| never_fits(self.model, self.policy, gang, tasks)) {
            return false;
        }
        match action {
            ActionKind::Preempt => {
                let asked = wanted(self.model, tasks, largest_gpu(self.model));
                preemptible || !self.rules.shares || over_quota(self.model, queue, &asked).is_none()
            }
            ActionKind::Consolidation => {
                let asked: i64 = tasks.iter().map(|task| asked_gpus(self.model, *task)).sum();
                self.rooms.update(self.model);
                asked <= self.rooms.ready_sum
            }
            ActionKind::Reclaim | ActionKind::Allocate | ActionKind::StaleGangEviction => true,
        }
    }

    /// A victim's minimum run time is not over. The cycle remembers when to look again.
    pub fn protected(&self, victim: GangId, reclaimer: Option<QueueId>) -> bool {
        let until = protected_until(self.model, self.policy, &self.model.gangs[victim], reclaimer);
        let Some(until) = until.filter(|until| *until > self.now) else {
            return false;
        };
        let first = self.protected_until.get().map_or(until, |first| first.min(until));
        self.protected_until.set(Some(first));
        true
    }

    /// Whether a gang may be a victim, as far as what it would lose next is concerned: what was refused a moment ago is not asked for again, and what no
    /// disruption budget lets go is left to those who look for victims beyond budgets.
    pub fn may_lose(&self, victim: GangId, reach: Reach) -> bool {
        if self.model.nothing_refused() && self.unbudgeted() {
            return reach == Reach::Within;
        }
        let gang = &self.model.gangs[victim];
        let tasks: Vec<TaskId> = evictable(self.model, gang).collect();
        let next = next_victims(self.model, gang, &tasks);
        if self.model.refused(next.iter().copied()) {
            return false;
        }
        let within = self.within_budgets(next.iter().copied());
        self.budgets_in_the_way.set(self.budgets_in_the_way.get() || !within);
        within == (reach == Reach::Within)
    }

    /// No disruption budget says anything.
    pub fn unbudgeted(&self) -> bool {
        self.policy.disruption_budgets == DisruptionBudgets::Ignore || self.model.budgets.is_empty()
    }

    /// Whether disruption budgets allow that all of these are evicted.
    pub fn within_budgets(&self, tasks: impl Iterator<Item = TaskId>) -> bool {
        let model = &*self.model;
        self.unbudgeted() || model.budgets.allow(tasks.map(|task| &*model.tasks[task].input))
    }

    /// Whether all victims of a candidate may go that are really evicted: some may stay after all, and plans are no pods.
    fn may_all_go(&self, candidate: &Candidate) -> bool {
        if self.model.nothing_refused() && self.unbudgeted() {
            return true;
        }
        let mut evicted = candidate.victims();
        evicted.retain(|task| {
            let from = self.model.tasks[*task].state.evicted_from;
            from.is_some_and(|status| status != Status::Pipelined)
        });
        if self.model.refused(evicted.iter().copied()) {
            return false;
        }
        let within = self.within_budgets(evicted.into_iter());
        self.budgets_in_the_way.set(self.budgets_in_the_way.get() || !within);
        within || self.reach == Reach::Beyond
    }

    /// Whether what a candidate led to is acceptable.
    pub fn acceptable(&self, case: &Case, pods: &[TaskId], candidate: &Candidate) -> bool {
        if !self.may_all_go(candidate) {
            return false;
        }
        match case.action {
            ActionKind::Consolidation => candidate.victims().into_iter().all(|task| !self.left_out(task)),
            ActionKind::Preempt => self.minimum_runtimes_kept(candidate, None),
            ActionKind::Reclaim => {
                self.minimum_runtimes_kept(candidate, Some(case.queue)) && self.fair(case, pods, candidate)
            }
            ActionKind::Allocate | ActionKind::StaleGangEviction => false,
        }
    }

    /// A protected gang keeps its minimum: pods that stay where they are. Those that leave already do not count, nor those that this candidate takes or moves.
    fn minimum_runtimes_kept(&self, candidate: &Candidate, reclaimer: Option<QueueId>) -> bool {
        let lost = candidate.victims().into_iter().filter(|task| self.lost(*task));
        let pod_set = |task: TaskId| Some((self.model.tasks[task].gang?, self.model.tasks[task].member?));
        let mut lost: SmallVec<[(GangId, Member); 4]> = lost.filter_map(pod_set).collect();
        lost.sort_unstable();
        lost.dedup();
        lost.into_iter().all(|(gang, member)| {
            let pods = self.model.gangs[gang].pods(member);
            pods.is_none_or(|pods| pods.staying() >= pods.min) || !self.protected(gang, reclaimer)
        })
    }

    /// What each gang loses that counts against the rules of reclaim, the gang that loses first before the others.
    fn lost_by_gang(&self, candidate: &Candidate) -> impl Iterator<Item = (GangId, Tasks)> {
        let batches = &candidate.batches;
        let mut order: SmallVec<[(GangId, usize); 2]> = (batches.iter().enumerate())
            .map(|(at, batch)| (batch.gang, at))
            .collect();
        order.sort_unstable();
        let counts = |task: &TaskId| !self.policy.consolidating_reclaim || self.left_out(*task);
        let all_of = |same: &[(GangId, usize)]| -> (usize, GangId, Tasks) {
            let tasks = same.iter().flat_map(|(_, at)| batches[*at].tasks.iter().copied());
            (same[0].1, same[0].0, tasks.filter(counts).collect())
        };
        let same_gang = |one: &(GangId, usize), other: &(GangId, usize)| one.0 == other.0;
        let mut by_gang: SmallVec<[_; 2]> = order.chunk_by(same_gang).map(all_of).collect();
        by_gang.sort_unstable_by_key(|(first, ..)| *first);
        by_gang.into_iter().map(|(_, gang, tasks)| (gang, tasks))
    }

    /// The rules of reclaim.
    fn fair(&self, case: &Case, pods: &[TaskId], candidate: &Candidate) -> bool {
        let mut losses: SmallVec<[Loss; 2]> = SmallVec::new();
        for (gang, tasks) in self.lost_by_gang(candidate) {
            // All its pods have been placed again, so its queue loses nothing.
            if tasks.is_empty() {
                continue;
            }
            let Some(leaf) = self.model.gangs[gang].queue else {
                return false;
            };
            losses.push(Loss {
                leaf,
                bundles: self.bundles(gang, &tasks),
            });
        }
        let claim = Claim {
            leaf: case.queue,
            job: wanted(self.model, pods, smallest_gpu(self.model)),
            preemptible: self.model.gangs[case.gang]
                .input
                .as_ref()
                .is_some_and(|input| input.preemptible),
            multiplier: self.policy.plugins.proportion.unwrap_or_default().saturation_multiplier,
        };
        legitimate(self.model, &case.held, &claim, &losses)
    }

    /// Pods beyond the minimum one by one, then all others together.
    fn bundles(&self, gang: GangId, tasks: &[TaskId]) -> Bundles {
        let entry = &self.model.gangs[gang];
        let mut core = [0; 3];
        let mut bundles = Bundles::new();
        for (member, set) in entry.pod_sets() {
            let theirs = tasks
                .iter()
                .filter(|task| self.model.tasks[**task].member == Some(member));
            for (at, task) in theirs.enumerate() {
                let amount = self.held_before(*task);
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
    fn held_before(&self, task: TaskId) -> Shared {
        let pod = &self.model.tasks[task];
        let node = pod.state.hold.as_ref().map(|place| &self.model.nodes[place.node]);
        let shape = &self.model.shapes[pod.shape];
        node.map_or(shape.quota, |node| shape.accepted(node.gpu_memory()))
    }

    /// Keeps an answer.
    pub fn keep(&mut self, answer: &Answer) {
        let case = &answer.case;
        let for_group = self.model.gangs[case.gang].key.clone();
        let mut sides: Vec<(QueueId, Arc<Sides>)> = Vec::new();
        debug_assert!(self.model.changed_since(answer.mark).next().is_some());
        self.remember_taken(answer);
        for batch in &answer.victims {
            let lost: Vec<TaskId> = batch.tasks.iter().copied().filter(|task| self.lost(*task)).collect();
            if lost.is_empty() {
                continue;
            }
            let told = self.sides(case, batch.gang, &mut sides);
            for task in lost {
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
                self.verdicts.insert(task, verdict);
            }
            let times = self.model.gangs[batch.gang].eviction_times();
            self.evictions_before.entry(batch.gang).or_insert(times);
            self.model.gangs[batch.gang].evicted(self.now);
            self.timed.insert(batch.gang);
        }
        self.commit();
    }

    /// The two queues between which a victim's pods change hands, as they were before.
    fn sides(&self, case: &Case, victim: GangId, known: &mut Vec<(QueueId, Arc<Sides>)>) -> Option<Arc<Sides>> {
        if case.action != ActionKind::Reclaim {
            return None;
        }
        let theirs = self.model.gangs[victim].queue?;
        if let Some((_, sides)) = known.iter().find(|(queue, _)| *queue == theirs) {
            return Some(sides.clone());
        }
        let (ours, donor) = parting(self.model, case.queue, theirs)?;
        let side = |id: QueueId| {
            let queue = &self.model.queues[id];
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
