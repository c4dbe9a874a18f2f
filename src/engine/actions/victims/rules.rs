//! The actions that evict pods for a waiting pod group, and the rules in which they differ. Everything else in the victim search is the same for all.

use std::sync::Arc;

use crate::engine::decision::{EvictionCause, Sides};
use crate::engine::fairshare::reclaim::may_donate;
use crate::engine::input::GroupInput;
use crate::engine::model::Model;
use crate::engine::model::ids::QueueId;
use crate::engine::model::resources::Shared;
use crate::engine::policy::{ActionKind, Policy};

/// An action that evicts pods for a waiting pod group, the preemptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictingAction {
    /// Moves preemptible pods to other nodes.
    Consolidation,
    /// Evicts pods of queues above their fair share.
    Reclaim,
    /// Evicts pods of lower priority in the preemptor's queue.
    Preempt,
}

impl EvictingAction {
    /// Its entry among all actions.
    #[must_use]
    pub const fn kind(self) -> ActionKind {
        match self {
            Self::Consolidation => ActionKind::Consolidation,
            Self::Reclaim => ActionKind::Reclaim,
            Self::Preempt => ActionKind::Preempt,
        }
    }

    /// Whether a pod group may be a preemptor.
    #[must_use]
    pub fn serves(self, preemptor: &GroupInput) -> bool {
        match self {
            Self::Consolidation => preemptor.preemptible,
            Self::Reclaim | Self::Preempt => true,
        }
    }

    /// Whether victims and their loss are judged by the fair shares of two queues.
    #[must_use]
    pub fn is_between_queues(self) -> bool {
        match self {
            Self::Reclaim => true,
            Self::Consolidation | Self::Preempt => false,
        }
    }

    /// Whether victims depend on the preemptor's queue, so that a failure for one queue does not imply one for another.
    #[must_use]
    pub fn depends_on_queue(self) -> bool {
        match self {
            Self::Consolidation => false,
            Self::Reclaim | Self::Preempt => true,
        }
    }

    /// Whether pods of a queue may be victims for a pod group of `queue` that requests `amount`.
    #[must_use]
    pub fn takes_from(self, model: &Model, queue: QueueId, donor: QueueId, amount: &Shared) -> bool {
        match self {
            Self::Consolidation => true,
            Self::Reclaim => donor != queue && may_donate(model, queue, donor, amount),
            Self::Preempt => donor == queue,
        }
    }

    /// The number of pod groups among which victims are searched.
    #[must_use]
    pub fn most_victims(self, policy: &Policy) -> usize {
        match self {
            Self::Consolidation => match policy.max_consolidation_victims {
                Some(0) => 0,
                Some(most) => most + 1,
                None => usize::MAX,
            },
            Self::Reclaim | Self::Preempt => usize::MAX,
        }
    }

    /// Whether victims must have a lower priority than the preemptor.
    #[must_use]
    pub fn needs_lower_priority(self) -> bool {
        match self {
            Self::Preempt => true,
            Self::Consolidation | Self::Reclaim => false,
        }
    }

    /// The minimum run time that protects victims, if any does: before a reclaimer of this queue, or (`Some(None)`) before the victim's own queue.
    #[must_use]
    pub fn min_runtime(self, queue: QueueId) -> Option<Option<QueueId>> {
        match self {
            Self::Consolidation => None,
            Self::Reclaim => Some(Some(queue)),
            Self::Preempt => Some(None),
        }
    }

    /// Whether disruption budgets may be exceeded where no other victims are found and the policy allows it.
    #[must_use]
    pub fn may_exceed_budgets(self) -> bool {
        match self {
            Self::Consolidation => false,
            Self::Reclaim | Self::Preempt => true,
        }
    }

    /// Whether each victim must be placed again.
    #[must_use]
    pub fn must_place_victims(self) -> bool {
        match self {
            Self::Consolidation => true,
            Self::Reclaim | Self::Preempt => false,
        }
    }

    /// The cause of its evictions. `between`: the queues that exchange capacity.
    #[must_use]
    pub fn cause(self, between: Option<Arc<Sides>>) -> EvictionCause {
        match self {
            Self::Consolidation => EvictionCause::Moved,
            Self::Reclaim => EvictionCause::Reclaimed(between),
            Self::Preempt => EvictionCause::Preempted,
        }
    }
}
