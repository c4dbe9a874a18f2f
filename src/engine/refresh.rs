//! Recomputes verdicts between cycles: their figures depend on other pod groups, too. Decides nothing.

use super::Engine;
use super::actions::context::CycleContext;
use super::decision::{GroupReport, Verdict};
use super::input::{Millis, Time};
use super::model::epochs::Change;
use super::model::ids::PodGroupId;
use super::placement::score::Scorers;
use super::verdict::Verdicts;

/// The shortest and the longest time until a verdict is computed again, in milliseconds. The time doubles with each unchanged result.
pub(super) const LOOK_AGAIN: (Millis, Millis) = (1_000, 4_000);
/// Limit on nodes and workloads looked at per call. The other verdicts are computed by later calls.
const LOOKED_AT: usize = 80_000;
/// Limit on pod groups per call.
const GROUPS: usize = 256;

/// The result of a refresh.
#[derive(Debug, Default)]
pub struct Refreshed {
    /// Reports whose verdict changed.
    pub reports: Vec<GroupReport>,
    /// Those of them whose cause changed.
    pub other_cause: Vec<GroupReport>,
    /// When the next refresh is needed if no cycle runs before.
    pub next: Option<Time>,
}

impl Engine {
    /// Recomputes verdicts that are older than the last cycle's model, the oldest first, as many as the limits allow.
    pub fn refresh_verdicts(&mut self, now: Time) -> Refreshed {
        let current = self.model.epochs().of(Change::Any);
        let mut refreshed = Refreshed::default();
        if !self.seen.is_current(current) {
            // The next cycle comes first, as the objects of a report may be gone. A refresh is due after it.
            return refreshed;
        }
        let old = self.reported.iter().filter(|(_, known)| {
            let ended = known.ends.is_some_and(|ends| ends <= now);
            ended || !known.as_of.is_current(current)
        });
        let mut due: Vec<(Time, PodGroupId)> = old.map(|(id, known)| (known.look_again, *id)).collect();
        due.sort_unstable();
        let later = due.partition_point(|(at, _)| *at <= now);
        let mut next = due.get(later).map(|(at, _)| *at);
        let scorers = Scorers::of(&self.policy);
        let mut verdicts = Verdicts::new(&self.model, CycleContext::new(&self.policy, &scorers, now));
        let mut found = Vec::new();
        for (_, id) in due.iter().take(later) {
            if verdicts.looked_at() >= LOOKED_AT || found.len() >= GROUPS {
                next = Some(now);
                break;
            }
            found.extend(
                self.reported
                    .get(id)
                    .map(|known| (*id, verdicts.verdict(*id, &known.findings))),
            );
        }
        for (id, (verdict, until)) in found {
            let Some(known) = self.reported.get_mut(&id) else {
                continue;
            };
            let stands = verdict == known.report.verdict;
            known.as_of.catch_up(current);
            known.settle(now, if stands { known.stood * 2 } else { 0 }, until);
            if stands {
                continue;
            }
            let other_cause = verdict.cause != known.report.verdict.cause;
            known.report.verdict = verdict;
            if other_cause {
                refreshed.other_cause.push(known.report.clone());
            }
            refreshed.reports.push(known.report.clone());
        }
        refreshed.next = next;
        refreshed
    }

    /// The last report about a pod group, with its current verdict.
    pub(super) fn current_report(&self, id: PodGroupId, now: Time) -> Option<GroupReport> {
        let known = self.reported.get(&id)?;
        let mut report = known.report.clone();
        if let Some(verdict) = self.current_verdict(id, now) {
            report.verdict = verdict;
        }
        Some(report)
    }

    /// `None` if the reported verdict is current, and while a cycle is due.
    fn current_verdict(&self, id: PodGroupId, now: Time) -> Option<Verdict> {
        let current = self.model.epochs().of(Change::Any);
        let known = self.reported.get(&id)?;
        if known.as_of.is_current(current) || !self.seen.is_current(current) {
            return None;
        }
        let scorers = Scorers::of(&self.policy);
        let mut verdicts = Verdicts::new(&self.model, CycleContext::new(&self.policy, &scorers, now));
        let (verdict, _) = verdicts.verdict(id, &known.findings);
        Some(verdict)
    }
}
