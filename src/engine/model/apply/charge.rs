//! Which queue a pod group is charged to, and whether it may be a victim, when its pod group, its pods or queues change: whoever may change a pod group does not
//! rid it of what it holds.

use std::collections::BTreeSet;

use crate::engine::fairshare::gates::over_quota;
use crate::engine::model::Model;
use crate::engine::model::ids::{PodGroupId, QueueId};
use crate::engine::model::pod_group::PodGroup;
use crate::engine::model::resources::add;

/// After so many new names of queues it is looked which of them are of none any more.
const QUEUES_NAMED: usize = 1_024;

impl Model {
    /// The queue that a pod group is charged to whose group names this one. What it holds stays where it was charged, or is charged to the queue that its pods
    /// name, while the named queue takes none of it: whoever may change a pod group does not rid it of what it holds.
    pub(super) fn charged_to(&self, id: PodGroupId, named: QueueId, refused: bool) -> QueueId {
        let pod_group = &self.pod_groups[id];
        let takes = |queue: &QueueId| self.queues[*queue].valid && self.queues[*queue].leaf();
        if (takes(&named) && !refused) || !pod_group.holds() {
            return named;
        }
        let homes = pod_group
            .pods
            .iter()
            .filter_map(|pod| self.pods[*pod].input.home.as_ref());
        let homes = homes.filter_map(|home| self.queues.id(home));
        pod_group.queue.into_iter().chain(homes).find(takes).unwrap_or(named)
    }

    /// Finds out anew which queue a pod group is charged to, once queues or its pods have changed. What is charged to the one before is the caller's.
    pub(in crate::engine::model) fn find_queue(&mut self, id: PodGroupId) -> bool {
        let Some(input) = self.pod_groups[id].input.as_deref() else {
            return false;
        };
        let Some(named) = self.queues.id(&input.queue) else {
            return false;
        };
        let queue = self.charged_to(id, named, input.refused.is_some());
        let pod_group = &mut self.pod_groups[id];
        pod_group.astray = queue != named;
        pod_group.queue.replace(queue) != Some(queue)
    }

    /// The same while counters are to stay true.
    pub(super) fn move_queue(&mut self, id: PodGroupId) {
        let (queue, astray) = (self.pod_groups[id].queue, self.pod_groups[id].astray);
        if !self.find_queue(id) {
            return;
        }
        let moved = (self.pod_groups[id].queue, self.pod_groups[id].astray);
        (self.pod_groups[id].queue, self.pod_groups[id].astray) = (queue, astray);
        self.change_pod_group(id, |pod_group| (pod_group.queue, pod_group.astray) = moved);
    }

    /// Whether a pod group that may be a victim stays one, whatever its group says from now on: it runs, and its queues may not hold that much work that is none.
    pub(super) fn stays_victim(&self, id: PodGroupId) -> bool {
        let pod_group = &self.pod_groups[id];
        let (Some(known), Some(queue)) = (&pod_group.input, pod_group.queue) else {
            return false;
        };
        // What is not known yet, of the group or of queues, gives nothing to compare with.
        if !known.preemptible || known.uid.is_empty() || !pod_group.holds() || self.queues_stale {
            return false;
        }
        let mut held = [0; 3];
        for pod in pod_group
            .pods
            .iter()
            .filter(|pod| self.pods[**pod].state.status.active_allocated())
        {
            add(&mut held, &self.accepted(*pod), 1);
        }
        over_quota(self, queue, &held).is_some()
    }

    /// Forgets queues that are not there and that no pod group names any more, once many names have come.
    pub(super) fn forget_queues(&mut self) {
        if self.queues_named < QUEUES_NAMED {
            return;
        }
        self.queues_named = 0;
        let used: BTreeSet<QueueId> = self
            .pod_groups
            .iter()
            .filter_map(|(_, pod_group)| pod_group.queue)
            .collect();
        let named = self
            .pod_groups
            .iter()
            .filter_map(|(_, pod_group)| pod_group.input.as_ref());
        let named: BTreeSet<QueueId> = named.filter_map(|input| self.queues.id(&input.queue)).collect();
        let unknown = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.input.is_none() && queue.children.is_empty());
        let unknown = unknown
            .map(|(id, _)| id)
            .filter(|id| !used.contains(id) && !named.contains(id));
        for id in unknown.collect::<Vec<_>>() {
            self.queues.remove(id);
        }
    }

    /// The queue that a pod group is charged to does not take it.
    pub(super) fn is_misplaced(&self, id: PodGroupId) -> bool {
        let pod_group = &self.pod_groups[id];
        let takes = |queue: QueueId| self.queues[queue].valid && self.queues[queue].leaf();
        let refused = || pod_group.input.as_ref().is_some_and(|input| input.refused.is_some());
        !self.queues_stale && !pod_group.astray && (pod_group.queue.is_some_and(|queue| !takes(queue)) || refused())
    }

    /// A pod of a pod group is gone, or another: what counted only for as long as the pod group ran is over with it.
    pub(super) fn left(&mut self, id: PodGroupId) {
        if self.pod_groups[id].stand_in && !self.is_held_for(id) {
            self.forget_group(id);
        }
        self.drop_empty_pod_group(id);
        let runs = |pod_group: &PodGroup| pod_group.holds() || !(pod_group.astray || pod_group.claims_protection);
        if !self.pod_groups.contains(id) || runs(&self.pod_groups[id]) {
            return;
        }
        self.move_queue(id);
        if std::mem::take(&mut self.pod_groups[id].claims_protection) {
            self.change_pod_group(id, |pod_group| {
                if let Some(input) = &mut pod_group.input {
                    input.preemptible = false;
                }
            });
        }
    }
}
