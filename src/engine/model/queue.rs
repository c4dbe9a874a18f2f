//! Queues: settings, position in the tree, counters.

use crate::engine::input::{Keyed, Name, QueueInput, Share, Time};

use super::Model;
use super::ids::QueueId;
use super::resources::Shared;

/// A queue. Its counters include all queues below it.
#[derive(Debug)]
pub struct Queue {
    /// Its name.
    pub name: Name,
    /// What is known about it; `None` until its event arrives, or after it is gone.
    pub input: Option<Box<QueueInput>>,
    /// Its parent, if it has one and is in the tree.
    pub parent: Option<QueueId>,
    /// Queues right below it, by name.
    pub children: Vec<QueueId>,
    /// It is in the tree: it and all its ancestors exist, without a cycle.
    pub valid: bool,
    /// What its pods hold or are pipelined to hold.
    pub allocated: Shared,
    /// The part of `allocated` of non-preemptible pod groups.
    pub non_preemptible: Shared,
    /// What its pods hold or request while pending; GPUs requested by memory are in `wanted_memory`.
    pub wanted: Shared,
    /// MiB of GPU memory that its pending pods request.
    pub wanted_memory: i64,
    /// Its fair share, as of the cycle's start.
    pub fair: Shared,
    /// Historical usage in billionths of the cluster.
    pub usage: Shared,
    /// The quota schedule's entry in force, which overrides its own settings.
    pub(super) scheduled: Option<[Share; 3]>,
    /// When the schedule next changes.
    pub(super) scheduled_until: Option<Time>,
}

impl Keyed for Queue {
    type Key = str;
    fn key(&self) -> &str {
        &self.name
    }
}

/// A queue's position in the tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueuePlace {
    /// See [`Queue::valid`].
    pub valid: bool,
    /// See [`Queue::parent`].
    pub parent: Option<QueueId>,
    /// See [`Queue::children`].
    pub children: Vec<QueueId>,
}

impl Queue {
    /// Its position in the tree.
    #[cfg(debug_assertions)]
    pub(super) fn place(&self) -> QueuePlace {
        QueuePlace {
            valid: self.valid,
            parent: self.parent,
            children: self.children.clone(),
        }
    }

    /// Sets its position in the tree.
    pub(super) fn set_place(&mut self, place: QueuePlace) {
        (self.valid, self.parent, self.children) = (place.valid, place.parent, place.children);
    }

    /// A queue of which only the name is known.
    #[must_use]
    pub fn unknown(name: Name) -> Self {
        Self {
            name,
            input: None,
            parent: None,
            children: Vec::new(),
            valid: false,
            allocated: [0; 3],
            non_preemptible: [0; 3],
            wanted: [0; 3],
            wanted_memory: 0,
            fair: [0; 3],
            usage: [0; 3],
            scheduled: None,
            scheduled_until: None,
        }
    }

    /// The settings of a resource that are in force.
    #[must_use]
    pub fn share(&self, resource: usize) -> Share {
        let Some(input) = &self.input else {
            return Share::default();
        };
        let own = [input.cpu, input.memory, input.gpu];
        self.scheduled.unwrap_or(own)[resource]
    }

    /// The larger of quota and fair share, capped by the limit. `None` = unlimited.
    #[must_use]
    pub fn allocatable(&self, resource: usize) -> Option<i64> {
        let share = self.share(resource);
        let Some(quota) = share.quota else { return share.limit };
        let fair = quota.max(self.fair[resource]);
        Some(share.limit.map_or(fair, |limit| limit.min(fair)))
    }

    /// The time of the next change by its schedule.
    #[must_use]
    pub fn schedule_until(&self) -> Option<Time> {
        self.scheduled_until
    }

    /// Has no queues below it.
    #[must_use]
    pub fn leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Whether pod groups can be scheduled in it: it is a leaf of the tree.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.valid && self.leaf()
    }
}

impl Model {
    /// Applies a queue's quota schedule at an instant.
    pub(super) fn follow_schedule(&mut self, id: QueueId, now: Time) {
        let queue = &mut self.queues[id];
        if let Some(until) = queue.scheduled_until.take() {
            self.schedules.remove(&(until, id));
        }
        let schedule = queue.input.as_ref().and_then(|input| input.schedule.as_ref());
        (queue.scheduled, queue.scheduled_until) = schedule.map_or((None, None), |schedule| schedule.at(now));
        if let Some(until) = queue.scheduled_until {
            self.schedules.insert((until, id));
        }
    }

    /// When a queue's schedule next changes.
    #[must_use]
    pub fn next_scheduled(&self) -> Option<Time> {
        self.schedules.first().map(|(at, _)| *at)
    }

    /// The first queue, from a leaf upwards, whose limit `asked` would exceed on top of what is allocated, and the resource.
    #[must_use]
    pub fn over_limit(&self, queue: QueueId, asked: &Shared) -> Option<(QueueId, usize)> {
        self.first_without_room(queue, asked, |queue, resource| {
            let limit = queue.share(resource).limit;
            limit.map(|limit| limit - queue.allocated[resource])
        })
    }

    /// The first queue, from a leaf upwards, whose quota `asked` would exceed on top of what is non-preemptible, and the resource.
    #[must_use]
    pub fn over_quota(&self, queue: QueueId, asked: &Shared) -> Option<(QueueId, usize)> {
        self.first_without_room(queue, asked, |queue, resource| {
            let quota = queue.share(resource).quota;
            quota.map(|quota| quota - queue.non_preemptible[resource])
        })
    }

    fn first_without_room(
        &self,
        queue: QueueId,
        asked: &Shared,
        room: impl Fn(&Queue, usize) -> Option<i64>,
    ) -> Option<(QueueId, usize)> {
        self.path_up(queue).find_map(|id| {
            let queue = &self.queues[id];
            let full = |resource: &usize| {
                asked[*resource] > 0 && room(queue, *resource).is_some_and(|room| room < asked[*resource])
            };
            (0..3).find(full).map(|resource| (id, resource))
        })
    }
}
