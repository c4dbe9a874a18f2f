//! Verdicts are found anew between cycles: what a pod group waits for may have other figures though nothing of its own has changed. Decides nothing.

use super::Engine;
use super::actions::context::CycleContext;
use super::decision::{GroupReport, Verdict};
use super::input::{Millis, Time};
use super::model::epochs::Change;
use super::model::ids::PodGroupId;
use super::placement::score::Scorers;
use super::verdict::Verdicts;

/// A verdict is not found anew for so many milliseconds, then for twice that time while it stays the same, and so on up to the other.
pub(super) const LOOK_AGAIN: (Millis, Millis) = (1_000, 4_000);
/// Nodes that are scanned at a time. What is left has its turn later.
const NODES: usize = 20_000;
/// Pod groups whose verdicts are found at a time.
const GROUPS: usize = 256;

/// What was found anew.
#[derive(Debug, Default)]
pub struct Renewed {
    /// Reports that say something else than before.
    pub reports: Vec<GroupReport>,
    /// Those of them that name another cause.
    pub other_cause: Vec<GroupReport>,
    /// When to look again.
    pub next: Option<Time>,
}

impl Engine {
    /// Finds verdicts anew that are older than what the last cycle knew, those first that are the oldest, and so many that it takes no long time.
    pub fn renew(&mut self, now: Time) -> Renewed {
        let current = self.model.epochs().of(Change::Any);
        let mut renewed = Renewed::default();
        if !self.seen.is_current(current) {
            // The next cycle comes first: what reports were made of may be gone.
            renewed.next = (!self.reported.is_empty()).then_some(now);
            return renewed;
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
        let most = (NODES / self.model.nodes().iter().count().max(1)).max(1);
        let mut found = Vec::new();
        for (_, id) in due.iter().take(later) {
            if verdicts.scanned() >= most || found.len() >= GROUPS {
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
                renewed.other_cause.push(known.report.clone());
            }
            renewed.reports.push(known.report.clone());
        }
        renewed.next = next;
        renewed
    }

    /// The last report about a pod group, with the verdict as it would be found now.
    pub(super) fn current_report(&self, id: PodGroupId, now: Time) -> Option<GroupReport> {
        let known = self.reported.get(&id)?;
        let mut report = known.report.clone();
        if let Some(verdict) = self.current_verdict(id, now) {
            report.verdict = verdict;
        }
        Some(report)
    }

    /// `None` where the known one is not older than the last cycle, and while the next one is due.
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
