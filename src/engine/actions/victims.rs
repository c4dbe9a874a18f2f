//! The victim search of consolidation, reclaim and preempt.
//!
//! Problem: a pod group's next pods, some pod groups that may be victims, and rules for what is acceptable. Wanted: victims such that, once they are gone, the pods find places in the real
//! order of queues and pod groups, and the outcome is acceptable. The answer is defined step by step: two generators, tried in order; for each a sequence of
//! probes over the first 1, 2, 4 … pods, then bisection, each probe starting from the victims that the last solved one needed; in a probe, victims are
//! gathered from the worst on, and each state of that gathering yields candidates, of which the first that works wins.
//!
//! `engine/tests/plain` does just that. What runs gives the same answer without looking at what cannot succeed: see `bounds`, `search` and `probe`.
//! Where they find none, `complete` looks through all sets of victims.

pub mod action;
pub mod bounds;
mod complete;
pub mod find;
pub mod judge;
mod precheck;
pub mod probe;
mod record;
pub mod rules;
pub mod search;
pub mod simulate;

use std::collections::BTreeSet;

use crate::engine::fairshare::reclaim::Holdings;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId, QueueId};
use crate::engine::model::pod_group::PodIds;
use crate::engine::model::{Mark, Model};

use rules::EvictingAction;

/// Pods that are evicted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Their pod group.
    pub pod_group: PodGroupId,
    /// The pods.
    pub pods: PodIds,
}

/// A set of victims to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Recorded victims and some of the potential ones.
    pub batches: Vec<Batch>,
}

impl Candidate {
    /// All victims, each once, in the order in which they were gathered.
    #[must_use]
    pub fn in_order(&self) -> PodIds {
        let all = self.batches.iter().flat_map(|batch| batch.pods.iter().copied());
        if let [only] = &*self.batches {
            return only.pods.clone();
        }
        let mut seen = BTreeSet::new();
        all.filter(|pod| seen.insert(*pod)).collect()
    }

    /// All victims, each once, by id.
    #[must_use]
    pub fn victims(&self) -> PodIds {
        let mut all: PodIds = self
            .batches
            .iter()
            .flat_map(|batch| batch.pods.iter().copied())
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Candidates that failed: number of pods, and victims.
#[derive(Debug, Default)]
pub struct Tried(BTreeSet<(usize, PodIds)>);

impl Tried {
    /// It failed before.
    #[must_use]
    pub fn has(&self, count: usize, candidate: &Candidate) -> bool {
        !self.0.is_empty() && self.0.contains(&(count, candidate.victims()))
    }

    /// Remembers a failure.
    pub fn add(&mut self, count: usize, candidate: &Candidate) {
        self.0.insert((count, candidate.victims()));
    }
}

/// What a search is for: the pods that need victims.
#[derive(Clone)]
pub struct Case {
    /// The action.
    pub action: EvictingAction,
    /// The preemptor.
    pub pod_group: PodGroupId,
    /// Its queue.
    pub queue: QueueId,
    /// Its next pods.
    pub chunk: PodIds,
    /// What queues held before.
    pub held: Holdings,
}

/// What a search found.
pub struct Answer {
    /// What was asked.
    pub case: Case,
    /// Where its changes begin.
    pub mark: Mark,
    /// The batches that lost a pod.
    pub victims: Vec<Batch>,
}

/// The node on which a pod is, or will be.
#[must_use]
pub fn node_of(model: &Model, pod: PodId) -> Option<NodeId> {
    let state = &model.pods()[pod].state;
    state.plan.as_ref().or(state.hold.as_ref()).map(|place| place.node)
}

/// A pod that was evicted has not got its place back.
#[must_use]
pub fn lost(model: &Model, pod: PodId) -> bool {
    model.pods()[pod].state.evicted_from.is_some()
}
