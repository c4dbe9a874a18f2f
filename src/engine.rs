//! The pure scheduler. `Engine::apply` takes events, `Engine::cycle` gives decisions; no I/O, clock, async or Kubernetes types, no randomness,
//! no iteration over unordered maps: the same events lead to the same decisions.
//!
//! Decided binds and evictions are assumed at once: the next cycle counts with them, whether the watch has shown them or not.

pub mod actions;
pub mod decision;
pub mod explain;
pub mod fairshare;
pub mod gpus;
pub mod input;
pub mod model;
pub mod overview;
pub mod placement;
pub mod policy;
pub mod refresh;
pub mod stage;
#[cfg(test)]
pub(crate) mod tests;
pub mod verdict;

use std::collections::{BTreeMap, BTreeSet};

use actions::allocate::{allocate, waiting_in_order};
use actions::conclude::conclude;
use actions::context::CycleContext;
use actions::cycle::{Cycle, Kept};
use actions::spare::spare_needless;
use actions::stale::{evict_stale, stale_until};
use actions::unbound::{free_unbound, start_planned};
use actions::victims::action::{FindVictims, evict_for_others};
use actions::victims::find::find;
use actions::victims::rules::EvictingAction;
use decision::{Decisions, Detail, GroupReport, ReasonCode, UnknownSubGroup, WaitingGroup};
use explain::report::{Findings, report};
use fairshare::divide::divide_tree;
use fairshare::tree::schedulable_queue;
use input::{Counts, Event, GroupKey, Millis, Name, PodRef, Time};
use model::Model;
use model::digest::Digest;
use model::epochs::{Change, Epoch, Seen};
use model::ids::{PodGroupId, PodId};
use model::pod::{Assumed, Status};
use placement::score::Scorers;
use policy::{ActionKind, Policy};
use refresh::LOOK_AGAIN;
use stage::{Observer, Stage};
use verdict::Verdicts;

/// Why a cycle is needed at some instant although no event arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// A broken gang's grace period ends.
    StaleGang,
    /// A terminating pod counts as stuck from then on.
    StuckPod,
    /// A preemption delay, or the delay after evictions in vain, ends.
    PreemptionDelay,
    /// A pod whose bind or eviction failed may be tried again.
    BindRetry,
    /// A minimum run time ends.
    MinRuntime,
    /// Another entry of a queue's quota schedule comes into force, or none does.
    QuotaSchedule,
    /// The model has changed, or searches are left.
    Changed,
}

/// The scheduler for one node pool.
pub struct Engine {
    policy: Policy,
    model: Model,
    /// The epoch of [`Change::Any`] at the start of the last cycle.
    seen: Seen,
    /// The same at its end.
    concluded: Seen,
    kept: Kept,
    /// The last report about each pod group.
    reported: BTreeMap<PodGroupId, Reported>,
    /// Pod groups that an earlier engine reported, and that this one has neither reported nor cleared yet.
    reported_before: BTreeSet<GroupKey>,
    /// Pods whose sub-group does not exist, by pod, with the message last reported.
    unknown_sub_groups: BTreeMap<PodId, (PodRef, String)>,
    /// Pod groups below their minimum.
    stale: BTreeSet<PodGroupId>,
    /// Instants at which a cycle is needed, with the reason.
    wake: BTreeSet<(Time, WakeReason)>,
}

/// A report about a pod group, and its inputs: the report is reused while they are the same.
#[derive(Debug)]
struct Reported {
    report: GroupReport,
    /// See [`PodGroup::changed`](model::pod_group::PodGroup::changed); 0 if the report must be computed again.
    changed: Epoch,
    findings: Findings,
    /// The epoch of the model for which the verdict was computed.
    as_of: Seen,
    /// When the verdict expires by itself.
    ends: Option<Time>,
    /// The verdict is computed again after this time, although these inputs are the same: it also depends on other pod groups.
    look_again: Time,
    /// The age of the verdict when `look_again` was set.
    stood: Millis,
}

impl Reported {
    /// Sets `look_again`: after `stood`, within bounds, or when the verdict expires.
    fn settle(&mut self, now: Time, stood: Millis, until: Option<Time>) {
        let (shortest, longest) = LOOK_AGAIN;
        self.stood = stood.clamp(shortest, longest);
        let then = Time(now.0.saturating_add(self.stood));
        self.ends = until.filter(|until| *until > now);
        self.look_again = self.ends.map_or(then, |until| until.min(then));
    }
}

impl Engine {
    /// An engine with an empty model.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let model = Model::new(policy.stuck_after);
        Self {
            policy,
            model,
            seen: Seen::default(),
            concluded: Seen::default(),
            kept: Kept::default(),
            reported: BTreeMap::new(),
            reported_before: BTreeSet::new(),
            unknown_sub_groups: BTreeMap::new(),
            stale: BTreeSet::new(),
            wake: BTreeSet::new(),
        }
    }

    /// Changes the policy. The next cycle recomputes everything that depends on it.
    pub fn set_policy(&mut self, policy: Policy) {
        if self.policy.actions != policy.actions {
            // While the action is switched off, the set is not updated.
            self.stale.clear();
            self.model.all_changed();
        }
        self.policy = policy;
        self.model.settings_changed(self.policy.stuck_after);
        self.kept.sorted.clear(&mut self.model);
        self.reported.values_mut().for_each(|known| known.changed = 0);
    }

    /// Takes over from an earlier engine that reported these pod groups as waiting: the next cycle clears those that do not wait any longer.
    pub fn continue_reports(&mut self, reported: BTreeSet<GroupKey>) {
        self.reported_before = reported;
        self.model.decide_again();
    }

    /// The next cycle reports all pod groups that wait, and clears all that were reported and wait no longer: another process may have decided meanwhile.
    pub fn report_anew(&mut self) {
        let reported = std::mem::take(&mut self.reported).into_values();
        self.reported_before.extend(reported.map(|known| known.report.group));
        self.model.decide_again();
    }

    /// Reserves memory for so many more objects, so that it is not allocated step by step.
    pub fn reserve(&mut self, more: &Counts) {
        self.model.reserve(more);
    }

    /// Applies one change. Never fails: invalid input (a queue below itself, an unknown parent) is explained in the reports of the pod groups
    /// that it affects.
    pub fn apply(&mut self, event: Event, now: Time) {
        self.model.apply(event, now);
    }

    /// Runs one cycle and assumes its decisions. Returns at once if nothing changed.
    pub fn cycle(&mut self, now: Time) -> Decisions {
        self.cycle_seen_by(now, &mut |_| ())
    }

    /// [`Engine::cycle`] with an observer that is called after each stage.
    pub fn cycle_seen_by(&mut self, now: Time, observer: Observer) -> Decisions {
        self.cycle_with(now, observer, find)
    }

    /// [`Engine::cycle_seen_by`] with the given victim search; tests pass the reference implementation.
    fn cycle_with(&mut self, now: Time, observer: Observer, find: FindVictims) -> Decisions {
        let mut decisions = Decisions::default();
        self.model.pass_time(now);
        let mut searches_go_on = false;
        while let Some(&(at, reason)) = self.wake.first()
            && at <= now
        {
            self.wake.pop_first();
            if reason == WakeReason::Changed {
                searches_go_on = true;
            } else {
                self.model.decide_again();
            }
        }
        let changed = !self.concluded.is_current(self.model.epochs().of(Change::Any));
        // Not before: that the searches go on is no change, which would begin another round of them.
        if searches_go_on {
            self.model.decide_again();
        }
        if !self.seen.catch_up(self.model.epochs().of(Change::Any)) {
            return decisions;
        }
        if changed {
            self.kept.turns.changed();
        }
        // The cycle collects these instants again.
        self.wake.clear();
        self.kept.placing = None;
        self.model.prepare(&self.policy);
        observer(Stage::Prepared);
        let k = self.k_value();
        divide_tree(&mut self.model, k);
        observer(Stage::Divided);
        let scorers = Scorers::of(&self.policy);
        let context = CycleContext::new(&self.policy, &scorers, now);
        let mut cycle = Cycle::new(&mut self.model, &mut self.kept, context, observer);
        for &action in &self.policy.actions {
            match action {
                ActionKind::StaleGangEviction => evict_stale(&mut cycle, &mut self.stale),
                // Without pending pods the sorted pod groups are not up to date.
                _ if cycle.model.pending().is_empty() => {}
                ActionKind::Allocate => allocate(&mut cycle),
                ActionKind::Consolidation => evict_for_others(&mut cycle, EvictingAction::Consolidation, find),
                ActionKind::Reclaim => evict_for_others(&mut cycle, EvictingAction::Reclaim, find),
                ActionKind::Preempt => evict_for_others(&mut cycle, EvictingAction::Preempt, find),
            }
            cycle.kept.placing = None;
            (cycle.observer)(Stage::Ended(action));
        }
        let spared = spare_needless(&mut cycle);
        let spared = free_unbound(&mut cycle) || spared;
        start_planned(&mut cycle);
        cycle.kept.placing = None;
        for &pod_group in &self.stale {
            let until = stale_until(cycle.model, context, pod_group);
            let until = until.filter(|until| *until > now);
            self.wake.extend(until.map(|until| (until, WakeReason::StaleGang)));
        }
        let delays = cycle.log.delayed_until.iter();
        self.wake
            .extend(delays.map(|until| (*until, WakeReason::PreemptionDelay)));
        let protection = cycle.kept.turns.protected_until(cycle.log.protected_until, now);
        self.wake
            .extend(protection.map(|until| (until, WakeReason::MinRuntime)));
        Self::report_waiting(&mut self.reported, &mut cycle, &mut decisions);
        Self::clear_reports(
            &mut self.reported,
            &mut self.reported_before,
            cycle.model,
            &mut decisions,
        );
        cycle.kept.placing = None;
        conclude(&mut cycle, &mut decisions);
        (cycle.observer)(Stage::Finished);
        self.report_unknown_sub_groups(&mut decisions);
        // Evictions and spared pods change what is free: pod groups that wait are tried once more.
        let decided = !(decisions.evict.is_empty() && decisions.bind.is_empty());
        let searches = self.kept.turns.conclude(decided, now);
        self.wake.extend(searches.map(|at| (at, WakeReason::Changed)));
        if !decisions.evict.is_empty() || (spared && !decisions.bind.is_empty()) {
            self.model.decide_again();
        }
        self.concluded = Seen::at(self.model.epochs().of(Change::Any));
        decisions
    }

    /// The pending pod groups in the order in which the next cycle would try to allocate them. Decides nothing.
    pub fn waiting_in_order(&mut self, now: Time) -> Vec<WaitingGroup> {
        self.model.pass_time(now);
        self.model.prepare(&self.policy);
        let k = self.k_value();
        divide_tree(&mut self.model, k);
        if self.model.pending().is_empty() {
            return Vec::new();
        }
        let scorers = Scorers::of(&self.policy);
        let context = CycleContext::new(&self.policy, &scorers, now);
        let observer: Observer = &mut |_| ();
        let order = waiting_in_order(&Cycle::new(&mut self.model, &mut self.kept, context, observer));
        let waiting = order.into_iter().filter_map(|id| {
            let pod_group = &self.model.pod_groups()[id];
            let queue = &self.model.queues()[pod_group.queue?];
            Some(WaitingGroup {
                group: pod_group.key.clone(),
                queue: queue.name.clone(),
                priority: pod_group.input.as_ref().map_or(0, |input| input.priority),
            })
        });
        waiting.collect()
    }

    /// When to call [`Engine::cycle`] again even if no event arrives.
    #[must_use]
    pub fn next_wakeup(&self, now: Time) -> Option<(Time, WakeReason)> {
        if !self.seen.is_current(self.model.epochs().of(Change::Any)) {
            return Some((now, WakeReason::Changed));
        }
        let (stuck, retry) = self.model.timers();
        let timers = [
            stuck.map(|at| (at, WakeReason::StuckPod)),
            retry.map(|at| (at, WakeReason::BindRetry)),
            self.model.next_scheduled().map(|at| (at, WakeReason::QuotaSchedule)),
            self.wake.first().copied(),
        ];
        timers.into_iter().flatten().min()
    }

    /// Cycles before this time do not search for victims. The engine has no clock: whoever runs it knows how long searches that found nothing have taken.
    pub fn pause_searches(&mut self, until: Time) {
        self.kept.turns.pause(until);
        let before = self.wake.len();
        self.wake.retain(|(_, reason)| *reason != WakeReason::Changed);
        if self.wake.len() < before {
            self.wake.insert((until, WakeReason::Changed));
        }
    }

    /// Decisions that the API server does not show yet, by pod.
    #[must_use]
    pub fn under_way(&self) -> Vec<(Name, Assumed)> {
        let assumed = self.model.pods().iter().map(|(_, pod)| pod);
        let assumed = assumed.filter(|pod| pod.assumed != Assumed::Nothing);
        assumed
            .map(|pod| (pod.input.pod.uid.clone(), pod.assumed.clone()))
            .collect()
    }

    /// The pod group that was being placed when the last cycle panicked.
    #[must_use]
    pub fn placing(&self) -> Option<GroupKey> {
        let pod_group = self.kept.placing?;
        Some(self.model.pod_groups()[pod_group].key.clone())
    }

    /// The pod groups that are stale: fewer of their pods run than they need.
    #[must_use]
    pub fn stale_groups(&self) -> BTreeSet<GroupKey> {
        let pod_groups = self.model.pod_groups();
        // One may have been deleted since the last cycle, or have got the pods that it lacked.
        let known = self.stale.iter().filter(|id| pod_groups.contains(**id));
        let known = known.map(|id| &pod_groups[*id]);
        let stale = known.filter(|pod_group| pod_group.input.is_some() && pod_group.stale());
        stale.map(|pod_group| pod_group.key.clone()).collect()
    }

    /// Retry delays of pods and nodes after failed binds, evictions and reservations, as events for another engine.
    #[must_use]
    pub fn retries(&self) -> Vec<Event> {
        self.model.retries()
    }

    /// Whether the API server shows this decision about a pod, or the pod is gone.
    #[must_use]
    pub fn shows(&self, pod: &str, assumed: &Assumed) -> bool {
        let status = self.model.pods().id(pod).map(|id| self.model.pods()[id].state.status);
        status.is_none_or(|status| match assumed {
            Assumed::Nothing => true,
            Assumed::Bound => !matches!(status, Status::Pending | Status::Gated),
            Assumed::Evicted => !status.active_allocated(),
        })
    }

    /// What another engine with the same events must agree on.
    #[must_use]
    pub fn digest(&mut self, now: Time) -> Digest {
        self.model.pass_time(now);
        self.model.prepare(&self.policy);
        self.model.digest()
    }

    /// The model, for tests and reports.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Changes the model behind the engine's back, as a fault would.
    #[cfg(test)]
    pub fn tamper(&mut self, tamper: impl FnOnce(&mut Model)) {
        tamper(&mut self.model);
    }

    fn k_value(&self) -> i64 {
        self.policy
            .plugins
            .proportion
            .map_or(0, |proportion| proportion.k_value)
    }

    /// Adds new reports about waiting pod groups to the decisions.
    fn report_waiting(reported: &mut BTreeMap<PodGroupId, Reported>, cycle: &mut Cycle, decisions: &mut Decisions) {
        let (model, policy, findings) = (&*cycle.model, cycle.context.policy, &cycle.log.findings);
        let now = cycle.context.now;
        let nothing = Findings::default();
        let mut verdicts = Verdicts::new(model, cycle.context);
        for &pod_group in model.pending() {
            cycle.kept.placing = Some(pod_group);
            let not_tried = Self::reason_not_tried(model, pod_group);
            let findings = not_tried
                .as_ref()
                .or_else(|| findings.get(&pod_group))
                .unwrap_or(&nothing);
            let changed = model.pod_groups()[pod_group].changed;
            let known = reported.get(&pod_group);
            let same = |known: &&Reported| known.changed == changed && known.findings == *findings;
            if let Some(known) = known.filter(same) {
                let said = || known.report.verdict.clone();
                debug_assert!(
                    report(model, policy, pod_group, findings, said).as_ref() == Some(&known.report),
                    "{:?}",
                    known.report
                );
                continue;
            }
            // The id may be that of a deleted pod group.
            if let Some(gone) = known.map(|known| known.report.group.clone())
                && gone != model.pod_groups()[pod_group].key
            {
                reported.remove(&pod_group);
                decisions.cleared.push(gone);
            }
            let mut until = None;
            let found = || {
                let (verdict, ends) = verdicts.verdict(pod_group, findings);
                until = ends;
                verdict
            };
            let report = report(model, policy, pod_group, findings, found);
            (cycle.observer)(Stage::Tried);
            let Some(report) = report else { continue };
            let known = reported.get(&pod_group);
            if known.is_none_or(|known| known.report != report) {
                decisions.unschedulable.push(report.clone());
            }
            let mut fresh = Reported {
                report,
                changed,
                findings: findings.clone(),
                as_of: Seen::at(model.epochs().of(Change::Any)),
                ends: None,
                look_again: now,
                stood: 0,
            };
            fresh.settle(now, 0, until);
            reported.insert(pod_group, fresh);
        }
        decisions
            .unschedulable
            .sort_by(|left, right| left.group.cmp(&right.group));
    }

    /// Adds the reported pod groups that wait no longer to the decisions: of this engine's reports, and of those before.
    fn clear_reports(
        reported: &mut BTreeMap<PodGroupId, Reported>,
        before: &mut BTreeSet<GroupKey>,
        model: &Model,
        decisions: &mut Decisions,
    ) {
        let waits = |id: &PodGroupId| model.pending().contains(id) && model.pod_groups()[*id].input.is_some();
        let over: Vec<_> = reported.keys().copied().filter(|id| !waits(id)).collect();
        for pod_group in over {
            if let Some(known) = reported.remove(&pod_group) {
                decisions.cleared.push(known.report.group);
            }
        }
        before.retain(|group| match model.pod_groups().id(group).filter(waits) {
            // One under back-off waits without a report of this engine.
            Some(id) => !reported.contains_key(&id),
            None => {
                decisions.cleared.push(group.clone());
                false
            }
        });
        // A pod group that was deleted and created again may wait under another id.
        let is_reported = |group: &GroupKey| {
            let id = model.pod_groups().id(group);
            id.is_some_and(|id| reported.contains_key(&id))
        };
        decisions.cleared.retain(|group| !is_reported(group));
        decisions.cleared.sort();
    }

    /// Reports on waiting pods whose sub-group does not exist, where the report is new.
    fn report_unknown_sub_groups(&mut self, decisions: &mut Decisions) {
        let mut now = BTreeMap::new();
        for &id in self.model.unknown_sub_groups() {
            let pod = &self.model.pods()[id].input;
            let pod_group = self
                .model
                .pod_group_of(id)
                .and_then(|pod_group| pod_group.input.as_ref());
            let Some(pod_group) = pod_group else { continue };
            let named = pod.sub_group.as_deref().unwrap_or("default");
            let prefix = if pod_group.back_off {
                format!("Node-Pool '{}': ", self.policy.node_pool)
            } else {
                String::new()
            };
            let group = &pod_group.key;
            let message =
                format!("{prefix}Pod references subgroup \"{named}\", which does not exist in PodGroup {group}");
            now.insert(id, (self.model.pods()[id].input.pod.clone(), message));
        }
        let before = std::mem::replace(&mut self.unknown_sub_groups, now);
        for (id, (pod, _)) in &before {
            if self.unknown_sub_groups.get(id).is_none_or(|(other, _)| other != pod) {
                let (pod, message) = (pod.clone(), None);
                decisions.unknown_sub_groups.push(UnknownSubGroup { pod, message });
            }
        }
        for (id, (pod, message)) in &self.unknown_sub_groups {
            if before
                .get(id)
                .is_none_or(|said| *said != (pod.clone(), message.clone()))
            {
                let (pod, message) = (pod.clone(), Some(message.clone()));
                decisions.unknown_sub_groups.push(UnknownSubGroup { pod, message });
            }
        }
    }

    /// Why a pod group is not tried at all; `None` if it may be tried.
    fn reason_not_tried(model: &Model, pod_group: PodGroupId) -> Option<Findings> {
        let entry = &model.pod_groups()[pod_group];
        let input = entry.input.as_ref()?;
        let name = &input.queue;
        let mut findings = Findings::default();
        if let Some(hold) = &input.held {
            let message = explain::hold::held(&input.key, name, hold);
            findings.add(ReasonCode::PodSchedulingErrors, message, Detail::Text);
        } else if let Some(what) = &entry.broken {
            let message = format!("The sub-groups contradict each other: {what}");
            findings.add(ReasonCode::PodSchedulingErrors, message, Detail::Text);
        } else if schedulable_queue(model, pod_group).is_none() || (entry.charged_elsewhere && input.refused.is_none())
        {
            let message = explain::queue::closed(model, model.queues().id(name), name);
            findings.add(ReasonCode::QueueDoesNotExist, message, Detail::Text);
        } else if let Some(why) = &input.refused {
            findings.add(ReasonCode::PodSchedulingErrors, why.to_string(), Detail::Text);
        } else {
            return None;
        }
        Some(findings)
    }
}
