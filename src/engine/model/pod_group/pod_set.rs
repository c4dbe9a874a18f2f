//! The pods of a sub-group, or of a pod group without sub-groups, counted by status.

use super::PodIds;
use crate::engine::model::pod::{STATUSES, Status};

/// A pod set.
#[derive(Debug, Default)]
pub struct PodSet {
    /// Its minimum: how many pods must be active.
    pub min: usize,
    /// All its pods, in pod order.
    pub pods: PodIds,
    /// Pods by status.
    pub counts: [u32; STATUSES],
    /// Pods evicted in the cycle's open statement.
    pub evicted_now: u32,
}

impl PodSet {
    /// An empty one with that minimum.
    #[must_use]
    pub fn of(min: usize) -> Self {
        Self { min, ..Self::default() }
    }

    fn count(&self, of: &[u32; STATUSES]) -> usize {
        let counts = self.counts.iter().zip(of);
        counts.map(|(count, counts)| count * counts).sum::<u32>() as usize
    }

    /// Pods of one status.
    #[must_use]
    pub fn with(&self, status: Status) -> usize {
        self.counts[status as usize] as usize
    }

    /// Active pods.
    #[must_use]
    pub fn active(&self) -> usize {
        self.count(&ACTIVE)
    }

    /// Active and releasing pods.
    #[must_use]
    pub fn active_used(&self) -> usize {
        self.count(&USED)
    }

    /// Pods that hold a place and are not releasing.
    #[must_use]
    pub fn staying(&self) -> usize {
        self.count(&STAYING)
    }

    /// Pods that exist and can still run.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.count(&ALIVE)
    }

    /// Those that may start: they have no scheduling gates.
    #[must_use]
    pub fn ungated(&self) -> usize {
        self.alive() - self.with(Status::Gated)
    }
}

const ALL: [Status; STATUSES] = [
    Status::Pending,
    Status::Gated,
    Status::Allocated,
    Status::Pipelined,
    Status::Binding,
    Status::Bound,
    Status::Running,
    Status::Releasing,
    Status::Stuck,
    Status::Succeeded,
    Status::Failed,
    Status::Unknown,
];

/// 1 for each status that counts, else 0: a sum without branches, since this is called most often.
macro_rules! those {
    ($test:path) => {{
        let mut those = [0; STATUSES];
        let mut at = 0;
        while at < STATUSES {
            those[at] = $test(ALL[at]) as u32;
            at += 1;
        }
        those
    }};
}
const ACTIVE: [u32; STATUSES] = those!(Status::active_allocated);
const USED: [u32; STATUSES] = those!(Status::active_used);
const STAYING: [u32; STATUSES] = those!(Status::allocated);
const ALIVE: [u32; STATUSES] = those!(Status::alive);
