//! The victim search of consolidation, reclaim and preempt.
//!
//! Given the next pods of a pod group, find victims such that, once they are evicted, the pods are placed in the order of queues and pod groups, and the
//! result is acceptable. The answer is defined step by step: two generators, tried in order; for each a sequence of
//! probes over the first 1, 2, 4 … pods, then bisection, each probe starting from the victims that the last solved one needed; in a probe, victims are
//! gathered from the worst on, and after each batch the generator makes candidates, and the first that works is taken.
//!
//! `engine/tests/plain` does exactly this. The code here gives the same answer and skips what cannot succeed: see `bounds`, `search` and `probe`.
//! Where the generators find none, `complete` searches all sets of victims.

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
    /// Whether the candidate failed before.
    #[must_use]
    pub fn has(&self, count: usize, candidate: &Candidate) -> bool {
        !self.0.is_empty() && self.0.contains(&(count, candidate.victims()))
    }

    /// Adds a failed candidate.
    pub fn add(&mut self, count: usize, candidate: &Candidate) {
        self.0.insert((count, candidate.victims()));
    }
}

/// The input of a search: the pods that need victims.
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
    /// What queues held before the search.
    pub held: Holdings,
}

/// The result of a search.
pub struct Answer {
    /// The input.
    pub case: Case,
    /// The mark after which its changes begin.
    pub mark: Mark,
    /// The batches that lost a pod.
    pub victims: Vec<Batch>,
}

/// The node that a pod is on or pipelined to.
#[must_use]
pub fn node_of(model: &Model, pod: PodId) -> Option<NodeId> {
    let state = &model.pods()[pod].state;
    state.plan.as_ref().or(state.hold.as_ref()).map(|place| place.node)
}

/// Whether an evicted pod has not got its place back.
#[must_use]
pub fn lost(model: &Model, pod: PodId) -> bool {
    model.pods()[pod].state.evicted_from.is_some()
}
