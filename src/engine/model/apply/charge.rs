//! Which queue a pod group is charged to, and whether it may be a victim, when its pod group, its pods or queues change: a right to change a pod group does not
//! release what it holds.

use std::collections::BTreeSet;

use crate::engine::model::Model;
use crate::engine::model::epochs::Seen;
use crate::engine::model::ids::{PodGroupId, QueueId};
use crate::engine::model::pod_group::PodGroup;
use crate::engine::model::resources::add;

/// New queue names after which unused ones are removed.
const QUEUES_NAMED: usize = 1_024;

impl Model {
    /// The queue to charge a pod group to whose PodGroup names `named`. While `named` cannot take it, its allocation stays charged as before, or is charged to
    /// the queue that its pods name: a change of the PodGroup does not release what it holds.
    pub(super) fn charged_to(&self, id: PodGroupId, named: QueueId, refused: bool) -> QueueId {
        let pod_group = &self.pod_groups[id];
        let takes = |queue: &QueueId| self.queues[*queue].schedulable();
        if (takes(&named) && !refused) || !pod_group.holds() {
            return named;
        }
        let fallback_queues = pod_group
            .pods
            .iter()
            .filter_map(|pod| self.pods[*pod].input.fallback_queue.as_ref());
        let fallback_queues = fallback_queues.filter_map(|fallback_queue| self.queues.id(fallback_queue));
        pod_group
            .queue
            .into_iter()
            .chain(fallback_queues)
            .find(takes)
            .unwrap_or(named)
    }

    /// The queue to charge a pod group to, and whether it differs from the one that it names.
    fn queue_of(&self, id: PodGroupId) -> Option<(QueueId, bool)> {
        let input = self.pod_groups[id].input.as_deref()?;
        let named = self.queues.id(&input.queue)?;
        let queue = self.charged_to(id, named, input.refused.is_some());
        Some((queue, queue != named))
    }

    /// Assigns a pod group to its queue while nothing is charged to queues. Returns whether the queue changed.
    pub(in crate::engine::model) fn find_queue(&mut self, id: PodGroupId) -> bool {
        let Some((queue, charged_elsewhere)) = self.queue_of(id) else {
            return false;
        };
        let pod_group = &mut self.pod_groups[id];
        pod_group.charged_elsewhere = charged_elsewhere;
        pod_group.queue.replace(queue) != Some(queue)
    }

    /// Assigns a pod group to its queue, and moves its charge.
    pub(super) fn move_queue(&mut self, id: PodGroupId) {
        let Some((queue, charged_elsewhere)) = self.queue_of(id) else {
            return;
        };
        if self.pod_groups[id].queue == Some(queue) {
            self.pod_groups[id].charged_elsewhere = charged_elsewhere;
        } else {
            self.change_pod_group(id, |pod_group| {
                (pod_group.queue, pod_group.charged_elsewhere) = (Some(queue), charged_elsewhere);
            });
        }
    }

    /// Whether a running preemptible pod group stays preemptible although its PodGroup is non-preemptible: as a non-preemptible one it would exceed the quota of a queue.
    /// While the queue tree is out of date it does, until `judge`. Before the first queue tree it does not: nothing has been decided, and the pod group may have been
    /// preemptible only because its priority class was not known yet.
    pub(super) fn stays_victim(&mut self, id: PodGroupId) -> bool {
        let pod_group = &self.pod_groups[id];
        let (Some(known), Some(queue)) = (&pod_group.input, pod_group.queue) else {
            return false;
        };
        if self.queue_tree == Seen::default() {
            return false;
        }
        // Without the PodGroup there is nothing to compare with.
        if !known.preemptible || known.uid.is_empty() || !pod_group.holds() {
            return false;
        }
        if !self.queue_tree_current() {
            self.unjudged.insert(id);
            return true;
        }
        let mut held = [0; 3];
        for pod in pod_group
            .pods
            .iter()
            .filter(|pod| self.pods[**pod].state.status.active_allocated())
        {
            add(&mut held, &self.accepted(*pod), 1);
        }
        self.over_quota(queue, &held).is_some()
    }

    /// Judges the pod groups that became non-preemptible while the queue tree was out of date.
    pub(in crate::engine::model) fn judge(&mut self) {
        for id in std::mem::take(&mut self.unjudged) {
            let claims = self.pod_groups.contains(id) && self.pod_groups[id].claims_protection;
            if claims && !self.stays_victim(id) {
                self.end_claim(id);
            }
        }
    }

    /// A pod group that claims to be non-preemptible is so from now on.
    fn end_claim(&mut self, id: PodGroupId) {
        if std::mem::take(&mut self.pod_groups[id].claims_protection) {
            self.change_pod_group(id, |pod_group| {
                if let Some(input) = &mut pod_group.input {
                    input.preemptible = false;
                }
            });
        }
    }

    /// Removes entries of queues that do not exist and that no pod group names, once many new names were added.
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

    /// The queue that a pod group is charged to is not schedulable or refuses it, and this is not recorded in `charged_elsewhere` yet.
    pub(super) fn must_move_queue(&self, id: PodGroupId) -> bool {
        let pod_group = &self.pod_groups[id];
        let refused = || pod_group.input.as_ref().is_some_and(|input| input.refused.is_some());
        self.queue_tree_current()
            && !pod_group.charged_elsewhere
            && (pod_group.queue.is_some_and(|queue| !self.queues[queue].schedulable()) || refused())
    }

    /// A pod left a pod group, or its bind failed: exceptions that last as long as the pod group runs end with its last pod.
    pub(super) fn left(&mut self, id: PodGroupId) {
        if self.pod_groups[id].placeholder && !self.is_held_for(id) {
            self.forget_group(id);
        }
        self.drop_empty_pod_group(id);
        let runs =
            |pod_group: &PodGroup| pod_group.holds() || !(pod_group.charged_elsewhere || pod_group.claims_protection);
        if !self.pod_groups.contains(id) || runs(&self.pod_groups[id]) {
            return;
        }
        self.move_queue(id);
        self.end_claim(id);
    }
}
