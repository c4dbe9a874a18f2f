//! Stale gang eviction: what is left of a gang that lost members it needs is evicted after a grace period.
//!
//! It is no voluntary disruption: what is left of a gang does no work, and a disruption budget that kept it would keep its devices for good. So it goes
//! beyond budgets, unless they are always to be respected.

use std::collections::BTreeSet;

use crate::engine::decision::Why;
use crate::engine::input::{Name, Time};
use crate::engine::model::ids::{GangId, TaskId};
use crate::engine::policy::{ActionKind, DisruptionBudgets};

use super::session::{Session, Verdict};

impl Session<'_> {
    /// Brings the set of broken gangs and their timestamps up to date.
    fn watch_stale(&mut self, stale: &mut BTreeSet<GangId>) {
        let now = self.now;
        let mut changed = std::mem::take(&mut self.model.changed_gangs);
        // One run for each kind of event that told of them, mostly.
        changed.sort();
        changed.dedup();
        for id in changed {
            if !self.model.gangs.contains(id) {
                stale.remove(&id);
                continue;
            }
            let gang = &mut self.model.gangs[id];
            let is_stale = gang.input.is_some() && gang.stale();
            let Some(input) = &mut gang.input else {
                stale.remove(&id);
                continue;
            };
            if is_stale {
                stale.insert(id);
                if input.stale_since.is_none() {
                    input.stale_since = Some(now);
                    self.timed.insert(id);
                }
            } else {
                stale.remove(&id);
                if input.stale_since.take().is_some() {
                    self.timed.insert(id);
                }
            }
        }
    }

    /// When a broken gang's patience ends; `None` = never.
    #[must_use]
    pub fn stale_until(&self, gang: GangId) -> Option<Time> {
        let input = self.model.gangs[gang].input.as_ref()?;
        let grace = input.staleness_grace.or(self.policy.staleness_grace)?;
        (grace >= 0).then(|| Time(input.stale_since.unwrap_or(self.now).0 + grace))
    }

    /// Runs the action.
    pub fn evict_stale(&mut self, stale: &mut BTreeSet<GangId>) {
        self.watch_stale(stale);
        for &id in &*stale {
            if self.stale_until(id).is_none_or(|until| until > self.now) {
                continue;
            }
            self.serve(id);
            let gang = &self.model.gangs[id];
            let mut doomed: Vec<(TaskId, Why)> = Vec::new();
            let single = gang.pod_sets().count() == 1;
            for (member, pods) in gang.pod_sets() {
                let name = &gang.tree[member as usize].name;
                let only = single && name == "default";
                for &task in &pods.tasks {
                    let entry = &self.model.tasks[task];
                    if entry.state.status.active_allocated() && entry.state.hold.is_some() {
                        let why = Why::Broken {
                            min: pods.min,
                            sub_group: (!only).then(|| Name::from(&**name)),
                        };
                        doomed.push((task, why));
                    }
                }
            }
            doomed.retain(|(task, _)| !self.model.refused([*task].into_iter()));
            let respected = self.policy.disruption_budgets == DisruptionBudgets::Respect;
            if doomed.is_empty() || (respected && !self.within_budgets(doomed.iter().map(|(task, _)| *task))) {
                continue;
            }
            for (task, why) in doomed {
                self.model.evict(task);
                self.verdicts.insert(
                    task,
                    Verdict {
                        action: ActionKind::StaleGangEviction,
                        for_group: None,
                        why,
                    },
                );
            }
            self.commit();
        }
    }
}
