//! The events of a simulation, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::input::Millis;

/// An event of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimEvent {
    /// A job has finished, if it is still in that run.
    Done {
        /// The job.
        job: usize,
        /// Number of its run.
        run: u32,
    },
    /// An evicted pod has terminated.
    Left {
        /// Its job.
        job: usize,
        /// Which of its pods.
        pod: usize,
    },
    /// A job arrives.
    Arrives(usize),
    /// The engine gets the usage of queues.
    Usage,
}

/// Events by time; those of one instant in insertion order.
#[derive(Debug, Default)]
pub struct EventQueue {
    waiting: BinaryHeap<Reverse<(Millis, u64, SimEvent)>>,
    count: u64,
}

impl EventQueue {
    /// Adds an event.
    pub fn add(&mut self, at: Millis, what: SimEvent) {
        self.count += 1;
        self.waiting.push(Reverse((at, self.count, what)));
    }

    /// When the next event happens.
    pub fn next(&self) -> Option<Millis> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event up to now.
    pub fn take(&mut self, now: Millis) -> Option<SimEvent> {
        let Reverse((at, ..)) = self.waiting.peek()?;
        let due = *at <= now;
        due.then(|| self.waiting.pop().map(|Reverse((.., what))| what))
            .flatten()
    }
}
