//! Who may be a victim, whether a search is worth it, whether a solution is acceptable, and what to tell those evicted.

use std::collections::BTreeMap;

use crate::engine::decision::ReasonCode;
use crate::engine::explain::refusal::impossible;
use crate::engine::fairshare::gates::{over_quota, readable, thousandths};
use crate::engine::fairshare::min_runtime::{elastic, protected_until};
use crate::engine::fairshare::reclaim::{Claim, Loss, legitimate, may_donate, may_reclaim};
use crate::engine::fairshare::tree::{Job, JobTree, Purpose, schedulable_queue};
use crate::engine::fairshare::{largest_gpu, smallest_gpu, wanted};
use crate::engine::input::Time;
use crate::engine::model::Mark;
use crate::engine::model::ids::{GangId, QueueId, TaskId};
use crate::engine::model::resources::{Shared, add};
use crate::engine::policy::{ActionKind, Plugin};

use super::bounds::{asked_gpus, free_gpus};
use super::generate::Candidate;
use super::{Batch, Search};
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
            let entry = &self.model.gangs[gang];
            let Some(input) = &entry.input else { continue };
            let suits = entry.ready() && (action != ActionKind::Consolidation || input.preemptible);
            let Some(until) = self.delayed_until(gang).filter(|until| suits && *until > self.now) else {
                continue;
            };
            let delay = input.preemption_delay.unwrap_or(0);
            self.wait_until.insert(until);
            let noted = self
                .note(gang)
                .reasons
                .iter()
                .any(|reason| reason.code == ReasonCode::PreemptionDelayNotElapsed);
            if !noted {
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
    pub fn promising(
        &self,
        action: ActionKind,
        gang: GangId,
        queue: QueueId,
        tasks: &[TaskId],
        preemptible: bool,
    ) -> bool {
        match action {
            ActionKind::Preempt => {
                let asked = wanted(self.model, tasks, largest_gpu(self.model));
                preemptible || !self.rules.shares || over_quota(self.model, queue, &asked).is_none()
            }
            ActionKind::Consolidation => {
                let asked: i64 = tasks.iter().map(|task| asked_gpus(self.model, *task)).sum();
                let ready = self
                    .model
                    .by_name
                    .iter()
                    .map(|id| &self.model.nodes[*id])
                    .filter(|node| node.ready());
                asked <= ready.map(|node| free_gpus(node, self.model).max(0)).sum()
            }
            ActionKind::Reclaim => tasks
                .iter()
                .all(|task| impossible(self.model, self.policy, *task).is_none()),
            ActionKind::Allocate | ActionKind::StaleGangEviction => self.model.gangs[gang].input.is_some(),
        }
    }

    /// Gangs that may be victims.
    pub fn eligible_victims(
        &mut self,
        action: ActionKind,
        gang: GangId,
        queue: QueueId,
        chunk: &[TaskId],
    ) -> Vec<GangId> {
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
            if eligible {
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

    fn protected(&self, victim: GangId, reclaimer: Option<QueueId>) -> bool {
        protected_until(self.model, self.policy, &self.model.gangs[victim], reclaimer)
            .is_some_and(|until| until > self.now)
    }

    /// Whether what a candidate led to is acceptable.
    pub fn acceptable(&self, search: &Search, pods: &[TaskId], candidate: &Candidate) -> bool {
        match search.action {
            ActionKind::Consolidation => candidate.victims().into_iter().all(|task| !self.left_out(task)),
            ActionKind::Preempt => self.minimum_runtimes_kept(candidate, None),
            ActionKind::Reclaim => {
                self.minimum_runtimes_kept(candidate, Some(search.queue)) && self.fair(search, pods, candidate)
            }
            ActionKind::Allocate | ActionKind::StaleGangEviction => false,
        }
    }

    /// A protected gang gives at most what is more than its minimum.
    fn minimum_runtimes_kept(&self, candidate: &Candidate, reclaimer: Option<QueueId>) -> bool {
        let mut lost: BTreeMap<(GangId, u32), usize> = BTreeMap::new();
        for task in candidate.victims().into_iter().filter(|task| self.lost(*task)) {
            if let (Some(gang), Some(member)) = (self.model.tasks[task].gang, self.model.tasks[task].member) {
                *lost.entry((gang, member)).or_insert(0) += 1;
            }
        }
        lost.into_iter().all(|((gang, member), count)| {
            !self.protected(gang, reclaimer)
                || self.model.gangs[gang]
                    .pods(member)
                    .is_none_or(|pods| pods.active_used() >= pods.min + count)
        })
    }

    /// The rules of reclaim.
    fn fair(&self, search: &Search, pods: &[TaskId], candidate: &Candidate) -> bool {
        let mut by_gang: Vec<(GangId, Vec<TaskId>)> = Vec::new();
        for batch in &candidate.batches {
            let counts = |task: &TaskId| !self.policy.consolidating_reclaim || self.left_out(*task);
            let tasks = batch.tasks.iter().copied().filter(counts);
            match by_gang.iter_mut().find(|(gang, _)| *gang == batch.gang) {
                Some((_, all)) => all.extend(tasks),
                None => by_gang.push((batch.gang, tasks.collect())),
            }
        }
        let mut losses = Vec::new();
        for (gang, tasks) in by_gang {
            let Some(leaf) = self.model.gangs[gang].queue else {
                return false;
            };
            losses.push(Loss {
                leaf,
                bundles: self.bundles(gang, &tasks),
            });
        }
        let multiplier = self.policy.plugins.iter().find_map(|plugin| match plugin {
            Plugin::Proportion {
                saturation_multiplier, ..
            } => Some(*saturation_multiplier),
            _ => None,
        });
        let claim = Claim {
            leaf: search.queue,
            job: wanted(self.model, pods, smallest_gpu(self.model)),
            preemptible: self.model.gangs[search.gang]
                .input
                .as_ref()
                .is_some_and(|input| input.preemptible),
            multiplier: multiplier.unwrap_or(1_000_000),
        };
        legitimate(self.model, &search.held, &claim, &losses)
    }

    /// Pods beyond the minimum one by one, then all others together.
    fn bundles(&self, gang: GangId, tasks: &[TaskId]) -> Vec<Shared> {
        let entry = &self.model.gangs[gang];
        let mut core = [0; 3];
        let mut bundles = Vec::new();
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

    /// Keeps the answer of a search.
    pub fn keep(&mut self, search: &Search, mark: Mark, victims: &[Batch], messages: &Messages) {
        let now = self.now;
        let for_group = self.model.gangs[search.gang].key.clone();
        debug_assert!(self.model.changed_since(mark).next().is_some());
        for batch in victims {
            let lost: Vec<TaskId> = batch.tasks.iter().copied().filter(|task| self.lost(*task)).collect();
            for task in lost {
                let message = messages.about(self, search, task);
                self.verdicts.insert(
                    task,
                    Verdict {
                        action: search.action,
                        for_group: Some(for_group.clone()),
                        message,
                    },
                );
            }
            if let Some(input) = &mut self.model.gangs[batch.gang].input {
                input.last_eviction = Some(now);
                self.timed.insert(batch.gang);
            }
        }
        self.commit();
    }

    /// Descriptions of all queues before anything was evicted.
    pub fn messages(&self, search: &Search) -> Messages {
        let describe = |id: QueueId| {
            let queue = &self.model.queues[id];
            let Some(input) = &queue.input else {
                return String::new();
            };
            let amounts = |amount: [Option<i64>; 3]| {
                let show = |resource: usize| {
                    amount[resource].map_or_else(|| "Unlimited".to_owned(), |amount| readable(amount, resource))
                };
                format!("<GPU: {}, CPU: {} (cores), memory: {} (GB)>", show(2), show(0), show(1))
            };
            format!(
                "{} uses {} with a quota of {}, fair-share of {} and queue priority of <{}>.",
                input.display,
                amounts(queue.allocated.map(Some)),
                amounts([0, 1, 2].map(|resource| queue.share(resource).quota)),
                amounts(queue.fair.map(Some)),
                input.priority
            )
        };
        let wants = search.action == ActionKind::Reclaim;
        let queues = if wants {
            self.model.queues.ids().map(|id| (id, describe(id))).collect()
        } else {
            BTreeMap::new()
        };
        Messages { queues }
    }
}

/// What to tell victims.
pub struct Messages {
    queues: BTreeMap<QueueId, String>,
}

impl Messages {
    fn about(&self, session: &Session, search: &Search, task: TaskId) -> String {
        let model = &session.model;
        let pod = &model.tasks[task].input;
        let (namespace, name) = (&pod.namespace, &pod.name);
        let preemptor = &model.gangs[search.gang].key;
        let by = format!("{}/{}", preemptor.namespace, preemptor.name);
        match search.action {
            ActionKind::Preempt => format!("Pod {namespace}/{name} was preempted by higher priority workload {by}"),
            ActionKind::Consolidation => {
                format!(
                    "Pod {namespace}/{name} was preempted and rescheduled due to bin packing (resource consolidation) procedure"
                )
            }
            ActionKind::Reclaim | ActionKind::Allocate | ActionKind::StaleGangEviction => {
                let first = format!("Pod {namespace}/{name} was preempted by workload {by}.");
                let sides = model.tasks[task]
                    .gang
                    .and_then(|gang| model.gangs[gang].queue)
                    .and_then(|victim| {
                        let (ours, theirs) = crate::engine::fairshare::reclaim::parting(model, search.queue, victim)?;
                        Some((self.queues.get(&theirs)?, self.queues.get(&ours)?))
                    });
                sides.map_or_else(|| first.clone(), |(theirs, ours)| format!("{first}\n{theirs}\n{ours}"))
            }
        }
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
