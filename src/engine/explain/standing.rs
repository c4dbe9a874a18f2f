//! Where the queues stand in which a pod group waits: what each holds, and what its share is. Worked out when somebody asks.

use crate::engine::Engine;
use crate::engine::decision::QueueStanding;
use crate::engine::input::GroupKey;

impl Engine {
    /// The queues of a pod group from its own up, as of the last cycle. Empty if there is no such group or queue.
    #[must_use]
    pub fn standing(&self, group: &GroupKey) -> Vec<QueueStanding> {
        let model = self.model();
        let gang = model.gang_of_group(group);
        let Some(own) = gang.and_then(|gang| model.gangs[gang].queue) else {
            return Vec::new();
        };
        let standing = |id| {
            let queue = &model.queues[id];
            QueueStanding {
                queue: queue.name.clone(),
                allocated: queue.allocated,
                fair: queue.fair,
                quota: [0, 1, 2].map(|resource| queue.share(resource).quota),
                limit: [0, 1, 2].map(|resource| queue.share(resource).limit),
            }
        };
        model.path_up(own).map(standing).collect()
    }
}
