//! Mirror and engine together: changes of objects in, decisions out. The operator's scheduler, `unikai replay` and `unikai simulate` all decide by this.
//!
//! Synchronous, without a clock. Callers handle panics of the two (`components/scheduler/intake.rs`).

use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread;

use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::{Counts, Event, Time};
use crate::engine::policy::Policy;
use crate::engine::stage::Observer;
use crate::mirror::aside::ObjectKey;
use crate::mirror::{Mirror, Output, PackedChange, PackedObject, Rejection, Settings};

/// How many changes the mirror reads in one go when there are many.
const BATCH: usize = 64;
/// How many batches may wait for the engine.
const BATCHES: usize = 64;

/// A mirror and an engine that receives its events.
pub struct SchedulerCore {
    /// The objects.
    pub mirror: Mirror,
    /// The model, and the scheduler.
    pub engine: Engine,
}

/// The result of a change.
#[derive(Debug)]
pub struct Applied {
    /// The engine received events.
    pub changed: bool,
    /// Parts of objects that could not be used.
    pub rejections: Vec<Rejection>,
    /// Objects that are not set aside any more.
    pub released: Vec<ObjectKey>,
}

impl SchedulerCore {
    /// Without objects.
    #[must_use]
    pub fn new(settings: Settings, policy: Policy) -> Self {
        Self {
            mirror: Mirror::new(settings),
            engine: Engine::new(policy),
        }
    }

    /// Allocates memory for so many more objects at once; without it, it is allocated as they come.
    pub fn reserve(&mut self, more: &Counts) {
        self.mirror.reserve(more);
        self.engine.reserve(more);
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &PackedChange, now: Time) -> Applied {
        let output = self.mirror.apply(change);
        self.forward(output, now)
    }

    /// Applies the mirror's events to the engine.
    pub fn forward(&mut self, output: Output, now: Time) -> Applied {
        let changed = !output.events.is_empty();
        for event in output.events {
            self.engine.apply(event, now);
        }
        Applied {
            changed,
            rejections: output.rejections,
            released: output.released,
        }
    }

    /// Applies many changes: the mirror reads them in a thread of its own while the engine applies the events. The result is the same as
    /// that of applying one after the other.
    pub fn load(&mut self, changes: &[PackedChange], now: Time) -> Vec<Rejection> {
        self.reserve(&count(changes));
        let (mirror, engine) = (&mut self.mirror, &mut self.engine);
        thread::scope(|scope| {
            let (sender, batches) = mpsc::sync_channel::<Vec<Event>>(BATCHES);
            let reading = scope.spawn(move || {
                let mut rejections = Vec::new();
                for batch in changes.chunks(BATCH) {
                    let mut events = Vec::with_capacity(batch.len());
                    for change in batch {
                        let output = mirror.apply(change);
                        rejections.extend(output.rejections);
                        events.extend(output.events);
                    }
                    // The receiver is gone only if the engine has panicked, which ends this scope.
                    let _ = sender.send(events);
                }
                rejections
            });
            batches.iter().flatten().for_each(|event| engine.apply(event, now));
            reading.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    /// Runs a cycle.
    pub fn cycle(&mut self, now: Time, observer: Observer) -> Decisions {
        self.engine.cycle_seen_by(now, observer)
    }
}

fn count(changes: &[PackedChange]) -> Counts {
    let mut counts = Counts::default();
    for change in changes {
        match change {
            PackedChange::Applied(PackedObject::Node(_)) => counts.nodes += 1,
            PackedChange::Applied(PackedObject::PodGroup(_)) => counts.groups += 1,
            PackedChange::Applied(PackedObject::Pod(_)) => counts.pods += 1,
            _ => {}
        }
    }
    counts
}

#[cfg(test)]
mod tests;
