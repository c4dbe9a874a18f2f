//! Turns of pod groups at searches for victims. Successive searches that find nothing are limited in their steps, in each action of a cycle, so that a full cluster in
//! which many pod groups wait does not delay the decisions for others. Where a cycle ended before each pod group had a search, the next one goes on with the others.
//!
//! Whoever runs the engine may pause the searches, so that those in vain take a limited part of a CPU however often something changes. Cycles during a pause only
//! allocate.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::input::Time;
use crate::engine::model::ids::PodGroupId;
use crate::engine::policy::{ActionKind, Policy};

use super::cycle_log::CycleLog;
use super::skip::FailedPodGroups;

/// The steps of a simulated pod; a tested node is one step.
const STEPS_PER_POD: u64 = 32;

/// A round of searches, which ends when each pod group had its turn in each action. A pod group with the reused id of a deleted one waits for the next round, and so
/// may one whose class has a reused id.
#[derive(Debug, Default)]
pub struct Turns {
    /// The pod groups whose search found nothing, by action.
    without_result: BTreeMap<ActionKind, BTreeSet<PodGroupId>>,
    /// What these asked for, by action: others that ask for no less are skipped, in whichever cycle of the round it would be their turn.
    failed: BTreeMap<ActionKind, FailedPodGroups>,
    /// The model has changed since the round began, so that another search may find something.
    changed: bool,
    /// An action of this cycle has ended before each pod group had its turn.
    unfinished: bool,
    /// No search before this time.
    paused_until: Time,
    /// The earliest end of a minimum runtime that kept a search of this round from victims.
    protected_until: Option<Time>,
}

impl Turns {
    /// Whether a pod group waits until the others had their turns.
    #[must_use]
    pub fn had_turn(&self, action: ActionKind, pod_group: PodGroupId) -> bool {
        self.without_result
            .get(&action)
            .is_some_and(|had| had.contains(&pod_group))
    }

    /// There is no search before this time.
    pub fn pause(&mut self, until: Time) {
        self.paused_until = until;
    }

    /// Whether there is no search at this time. The cycle counts as unfinished then.
    pub fn paused(&mut self, now: Time) -> bool {
        let paused = now < self.paused_until;
        self.unfinished |= paused;
        paused
    }

    /// Takes what failed in this round, until the action ends.
    #[must_use]
    pub fn take_failed(&mut self, action: ActionKind) -> FailedPodGroups {
        self.failed.remove(&action).unwrap_or_default()
    }

    /// An action has ended; its searches for these pod groups found nothing. `failed`: what failed in this round. `complete`: each pod group had its turn.
    pub fn end(
        &mut self,
        action: ActionKind,
        without_result: Vec<PodGroupId>,
        failed: FailedPodGroups,
        complete: bool,
    ) {
        self.without_result.entry(action).or_default().extend(without_result);
        self.failed.insert(action, failed);
        self.unfinished |= !complete;
    }

    /// When the first minimum runtime ends that kept a search of this round from victims; `until`: the same of this cycle.
    pub fn protected_until(&mut self, until: Option<Time>, now: Time) -> Option<Time> {
        let earlier = self.protected_until.filter(|earlier| *earlier > now);
        self.protected_until = earlier.into_iter().chain(until).min();
        self.protected_until
    }

    /// The model has changed.
    pub fn changed(&mut self) {
        self.changed |= !self.without_result.is_empty();
    }

    /// The cycle has ended. Returns when another is needed although no change may follow: to go on with the round, or as something has changed during it.
    pub fn conclude(&mut self, decided: bool, now: Time) -> Option<Time> {
        let again = if std::mem::take(&mut self.unfinished) {
            self.changed |= decided;
            true
        } else {
            self.without_result.clear();
            self.failed.clear();
            self.protected_until = None;
            std::mem::take(&mut self.changed)
        };
        again.then(|| self.paused_until.max(now))
    }
}

/// The steps of a cycle so far.
#[must_use]
pub fn steps(log: &CycleLog) -> u64 {
    log.work.nodes_tested + STEPS_PER_POD * log.work.pods_simulated + log.search_steps
}

/// Whether a search that has taken so many steps is cut off.
#[must_use]
pub fn exceeds_limit(steps: u64, policy: &Policy) -> bool {
    steps > policy.max_steps_per_search
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_minimum_runtime_counts_until_the_round_of_searches_ends() {
        let mut turns = Turns::default();
        let mut cycle = |now: i64, until: Option<i64>, complete: bool| {
            turns.end(ActionKind::Reclaim, Vec::new(), FailedPodGroups::default(), complete);
            let until = turns.protected_until(until.map(Time), Time(now));
            turns.conclude(false, Time(now));
            until.map(|until| until.0)
        };
        assert_eq!(cycle(0, Some(50), false), Some(50));
        assert_eq!(cycle(10, None, false), Some(50), "others had their turns");
        assert_eq!(cycle(20, Some(40), false), Some(40));
        assert_eq!(cycle(40, Some(60), true), Some(60), "the first is over");
        assert_eq!(cycle(45, None, true), None, "each pod group was searched for again");
    }
}
