//! What a cycle notes for its reports, decisions and counters.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::decision::{Detail, EvictionCause, ReasonCode, Work};
use crate::engine::explain::report::Findings;
use crate::engine::input::{GroupKey, Time};
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::pod::State;
use crate::engine::policy::ActionKind;

/// Why a pod is evicted, and for which pod group.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The action.
    pub action: ActionKind,
    /// The group that gets the place.
    pub for_group: Option<GroupKey>,
    /// The reason.
    pub why: EvictionCause,
}

/// A pod that had a place before an answer of this cycle took it.
#[derive(Clone, Debug)]
pub struct Taken {
    /// Its state then.
    pub before: State,
    /// How many others had been taken from before.
    pub(super) order: usize,
    /// How many answers of reclaim had been kept when it lost its place.
    pub(super) gains: usize,
}

/// What a cycle notes.
#[derive(Debug, Default)]
pub struct CycleLog {
    /// Why pod groups wait.
    pub findings: BTreeMap<PodGroupId, Findings>,
    /// Why pods are evicted.
    pub verdicts: BTreeMap<PodId, Verdict>,
    /// Pods that had a place and lost it in this cycle.
    pub taken: BTreeMap<PodId, Taken>,
    /// For each answer of reclaim, the queues that hold more by it.
    pub gains: Vec<Vec<QueueId>>,
    /// When pod groups evicted in this cycle had been evicted before.
    pub evictions_before: BTreeMap<PodGroupId, [Option<Time>; 2]>,
    /// Pod groups with a new timestamp.
    pub timed: BTreeSet<PodGroupId>,
    /// Instants at which a preemption delay ends.
    pub delayed_until: BTreeSet<Time>,
    /// When the first of the minimum run times ends that kept a victim from being taken.
    pub protected_until: Option<Time>,
    /// Steps.
    pub work: Work,
}

impl CycleLog {
    /// Notes about a pod group, to be added to.
    pub fn note(&mut self, pod_group: PodGroupId) -> &mut Findings {
        self.findings.entry(pod_group).or_default()
    }

    /// Adds a reason why a pod group waits.
    pub fn refuse(&mut self, pod_group: PodGroupId, code: ReasonCode, message: String) {
        self.note(pod_group).add(code, message, Detail::Text);
    }

    /// A minimum run time that ends then kept a victim from being taken.
    pub fn protected(&mut self, until: Time) {
        self.protected_until = Some(self.protected_until.map_or(until, |first| first.min(until)));
    }
}
