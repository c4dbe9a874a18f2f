//! Records of a cycle for its reports, decisions and counters.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::decision::{Detail, EvictionCause, ReasonCode, Work};
use crate::engine::explain::report::Findings;
use crate::engine::input::{GroupKey, Time};
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::pod::State;
use crate::engine::policy::ActionKind;

/// Why a pod is evicted.
#[derive(Clone, Debug)]
pub struct EvictionReason {
    /// The action that evicts it.
    pub action: ActionKind,
    /// The preemptor: the pod group that gets the place; `None` for a stale gang.
    pub preemptor: Option<GroupKey>,
    /// What the eviction is reported with.
    pub cause: EvictionCause,
}

/// A pod that a victim search of this cycle evicted or moved.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its state before.
    pub before: State,
    /// How many pods had lost their places before it.
    pub(super) order: usize,
    /// The length of [`CycleLog::gains`] when it lost its place.
    pub(super) gains: usize,
}

/// The records of a cycle.
#[derive(Debug, Default)]
pub struct CycleLog {
    /// Why pod groups wait.
    pub findings: BTreeMap<PodGroupId, Findings>,
    /// Why pods are evicted.
    pub evictions: BTreeMap<PodId, EvictionReason>,
    /// Pods that had a place and lost it in this cycle.
    pub taken: BTreeMap<PodId, Taken>,
    /// For each successful reclaim, the queues that gained by it.
    pub gains: Vec<Vec<QueueId>>,
    /// The eviction times of pod groups from before this cycle, to restore them if nothing is evicted after all.
    pub evictions_before: BTreeMap<PodGroupId, [Option<Time>; 2]>,
    /// Pod groups with a new timestamp.
    pub timed: BTreeSet<PodGroupId>,
    /// Instants at which pod groups may trigger evictions again.
    pub delayed_until: BTreeSet<Time>,
    /// The earliest end of a minimum run time that protected a victim.
    pub protected_until: Option<Time>,
    /// Counted steps.
    pub work: Work,
    /// Steps of searches for victims beside those in `work`.
    pub search_steps: u64,
}

impl CycleLog {
    /// The findings about a pod group; empty ones are added if there are none.
    pub fn note(&mut self, pod_group: PodGroupId) -> &mut Findings {
        self.findings.entry(pod_group).or_default()
    }

    /// Adds a reason why a pod group waits.
    pub fn refuse(&mut self, pod_group: PodGroupId, code: ReasonCode, message: String) {
        self.note(pod_group).add(code, message, Detail::Text);
    }

    /// Records that a minimum run time which ends at `until` protected a victim.
    pub fn protected(&mut self, until: Time) {
        self.protected_until = Some(self.protected_until.map_or(until, |first| first.min(until)));
    }
}
