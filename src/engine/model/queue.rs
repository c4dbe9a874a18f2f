//! Queues: their settings, their place in the tree, what they hold.

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
    /// Its parent, if it has one and belongs to the tree.
    pub parent: Option<QueueId>,
    /// Queues right below it, by name.
    pub children: Vec<QueueId>,
    /// Belongs to the tree: it and all above it exist, and it is not below itself.
    pub valid: bool,
    /// What its pods hold or will hold.
    pub allocated: Shared,
    /// The part of non-preemptible groups.
    pub non_preemptible: Shared,
    /// What its pods hold or wait for; GPUs asked for by memory are in `wanted_memory`.
    pub wanted: Shared,
    /// MiB of GPU memory that its pending pods ask for.
    pub wanted_memory: i64,
    /// Its fair share, as of the cycle's start.
    pub fair: Shared,
    /// Historical usage in billionths of the cluster.
    pub usage: Shared,
    /// What its schedule gives it now instead of what it says itself.
    pub(super) scheduled: Option<[Share; 3]>,
    /// When that changes.
    pub(super) scheduled_until: Option<Time>,
}

impl Keyed for Queue {
    type Key = str;
    fn key(&self) -> &str {
        &self.name
    }
}

/// Where a queue stands in the tree.
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
    /// Where it stands in the tree.
    #[cfg(debug_assertions)]
    pub(super) fn place(&self) -> QueuePlace {
        QueuePlace {
            valid: self.valid,
            parent: self.parent,
            children: self.children.clone(),
        }
    }

    /// Puts it where it stands in the tree.
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

    /// Settings for a resource.
    #[must_use]
    pub fn share(&self, resource: usize) -> Share {
        let Some(input) = &self.input else {
            return Share::default();
        };
        let own = [input.cpu, input.memory, input.gpu];
        self.scheduled.unwrap_or(own)[resource]
    }

    /// What it may hold fairly: its quota or fair share, whichever is more, within its limit. `None` = unlimited.
    #[must_use]
    pub fn allocatable(&self, resource: usize) -> Option<i64> {
        let share = self.share(resource);
        let Some(quota) = share.quota else { return share.limit };
        let fair = quota.max(self.fair[resource]);
        Some(share.limit.map_or(fair, |limit| limit.min(fair)))
    }

    /// Has no queues below it.
    #[must_use]
    pub fn leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// Pod groups can be scheduled in it: it belongs to the tree and has no queues below it.
    #[must_use]
    pub fn schedulable(&self) -> bool {
        self.valid && self.leaf()
    }
}

impl Model {
    /// Has a queue go by what its schedule says now.
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

    /// When the schedule of a queue has it go by something else.
    #[must_use]
    pub fn next_scheduled(&self) -> Option<Time> {
        self.schedules.first().map(|(at, _)| *at)
    }

    /// The first queue, from a leaf upwards, whose limit `asked` on top of what is allocated would pass, and in which resource.
    #[must_use]
    pub fn over_limit(&self, queue: QueueId, asked: &Shared) -> Option<(QueueId, usize)> {
        self.first_without_room(queue, asked, |queue, resource| {
            let limit = queue.share(resource).limit;
            limit.map(|limit| limit - queue.allocated[resource])
        })
    }

    /// The first queue, from a leaf upwards, whose quota `asked` on top of what is non-preemptible would pass, and in which resource.
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
