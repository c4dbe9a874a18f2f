//! Allocation and shares of queues: of a pod group's queue and those above it, or of all queues. Computed on request.

use crate::engine::Engine;
use crate::engine::decision::QueueStanding;
use crate::engine::input::GroupKey;
use crate::engine::model::queue::Queue;

impl Engine {
    /// The queues of a pod group from its own up, as of the last cycle. Empty if there is no such group or queue.
    #[must_use]
    pub fn standing(&self, group: &GroupKey) -> Vec<QueueStanding> {
        let model = self.model();
        let pod_group = model.pod_group_named(group);
        let Some(own) = pod_group.and_then(|pod_group| model.pod_groups()[pod_group].queue) else {
            return Vec::new();
        };
        model.path_up(own).map(|id| standing(&model.queues()[id])).collect()
    }

    /// All queues of the tree, as of the last cycle.
    pub fn queues(&self) -> impl Iterator<Item = QueueStanding> {
        let queues = self.model().queues().iter().map(|(_, queue)| queue);
        queues.filter(|queue| queue.valid).map(standing)
    }
}

fn standing(queue: &Queue) -> QueueStanding {
    QueueStanding {
        queue: queue.name.clone(),
        allocated: queue.allocated,
        fair: queue.fair,
        quota: [0, 1, 2].map(|resource| queue.share(resource).quota),
        limit: [0, 1, 2].map(|resource| queue.share(resource).limit),
        usage: queue.usage,
    }
}
