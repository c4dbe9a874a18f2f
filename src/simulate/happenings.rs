//! What happens when, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::input::Millis;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A job has done its work, if it still is in that run.
    Done {
        /// The job.
        job: usize,
        /// Counts how often it began to run.
        run: u32,
    },
    /// A pod that was told to leave has left.
    Left {
        /// Its job.
        job: usize,
        /// Which of its pods.
        pod: usize,
    },
    /// A job comes.
    Comes(usize),
    /// The engine is told what queues have used.
    Usage,
}

/// What happens when; what happens at once, in the order in which it was found out.
#[derive(Debug, Default)]
pub struct Happenings {
    waiting: BinaryHeap<Reverse<(Millis, u64, Happening)>>,
    count: u64,
}

impl Happenings {
    /// Something will happen.
    pub fn add(&mut self, at: Millis, what: Happening) {
        self.count += 1;
        self.waiting.push(Reverse((at, self.count, what)));
    }

    /// When the next does.
    pub fn next(&self) -> Option<Millis> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next that has happened by now.
    pub fn take(&mut self, now: Millis) -> Option<Happening> {
        let Reverse((at, ..)) = self.waiting.peek()?;
        let due = *at <= now;
        due.then(|| self.waiting.pop().map(|Reverse((.., what))| what))
            .flatten()
    }
}
