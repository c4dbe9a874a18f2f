//! The second model of a self-check: it is built from the stores, gets every change that the first one gets, and is compared with it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::arrivals::Arrivals;
use crate::clock;
use crate::components::bus::Object;
use crate::components::panics;
use crate::components::watches::Stores;
use crate::engine::input::Time;
use crate::engine::model::digest::{Difference, Digest};
use crate::engine::policy::Policy;
use crate::mirror::{self, Groupings, PackedChange, packed};
use crate::scheduler_core::SchedulerCore;

/// Limit on the differences of a comparison.
const DIFFERENCES: usize = 1_000;
/// Limit on the steps in which selectors of devices are evaluated before a comparison.
const SELECTOR_STEPS: usize = 100_000;

/// What the second model is built from, beside the stores.
pub struct Origin {
    /// Settings of the mirror.
    pub settings: mirror::Settings,
    /// Policy of the engine.
    pub policy: Policy,
    /// Groups of pods whose PodGroups are not written yet.
    pub groupings: Groupings,
    /// Pods of which the creation is requested.
    pub requested: Vec<Arc<packed::Pod>>,
    /// Which nodes the first model does not know yet.
    pub arrivals: Arrivals,
    /// The time of all events.
    pub now: Time,
}

/// A message to the second model, in the order in which the first one was changed.
pub enum ToSecondModel {
    /// A change that the first model got.
    Change(PackedChange, Time),
    /// The digest of the first model, to be compared.
    Digest(Box<Digest>, Time),
}

/// The end of a piece of work of the second model.
pub struct Answer {
    /// The time that it took.
    pub worked: Duration,
    /// What differs; nothing after the model was built.
    pub differences: Vec<Difference>,
}

/// An answer, or the message of a panic.
type Outcome = Result<Answer, String>;

struct SecondModel {
    core: SchedulerCore,
    /// Time since the last answer that changes took.
    worked: Duration,
}

impl SecondModel {
    fn build(origin: Origin, stores: &Stores) -> (Self, Answer) {
        let began = Instant::now();
        let mut core = SchedulerCore::new(origin.settings, origin.policy);
        let known = |object: &Object| !matches!(object, Object::Node(node) if origin.arrivals.will_hold(node));
        for object in stores.objects().filter(known) {
            core.apply(&PackedChange::Applied(object.into()), origin.now);
        }
        for requested in origin.requested {
            core.apply(&PackedChange::Requested(requested), origin.now);
        }
        let output = core.mirror.adopt(origin.groupings);
        core.forward(output, origin.now);
        let built = Answer {
            worked: began.elapsed(),
            differences: Vec::new(),
        };
        let worked = Duration::ZERO;
        (Self { core, worked }, built)
    }

    fn handle(&mut self, message: ToSecondModel) -> Option<Answer> {
        let began = Instant::now();
        let differences = match message {
            ToSecondModel::Change(change, now) => {
                self.core.apply(&change, now);
                None
            }
            ToSecondModel::Digest(digest, now) => Some(self.compare(*digest, now)),
        };
        self.worked += began.elapsed();
        differences.map(|differences| Answer {
            worked: std::mem::take(&mut self.worked),
            differences,
        })
    }

    fn compare(&mut self, first: Digest, now: Time) -> Vec<Difference> {
        for _ in 0..SELECTOR_STEPS {
            if !self.core.mirror.selectors_wait() {
                break;
            }
            let output = self.core.mirror.ask_selectors();
            self.core.forward(output, now);
        }
        first.differences(self.core.engine.digest(now), DIFFERENCES)
    }
}

/// Runs the second model: in a thread of its own, or on simulated time, where runs must be repeatable, in the calls of [`Worker::answer`].
pub struct Worker {
    answers: Receiver<Outcome>,
    inline: Option<Box<Inline>>,
}

struct Inline {
    second: SecondModel,
    messages: mpsc::Receiver<ToSecondModel>,
    answers: Sender<Outcome>,
}

impl Worker {
    /// Begins to build the second model. `None`: the operating system gives no thread.
    pub fn start(origin: Origin, stores: Arc<Stores>, messages: mpsc::Receiver<ToSecondModel>) -> Option<Self> {
        // Sending fails only once the self-check is given up, which ends `messages`, too.
        let (sender, answers) = channel();
        if clock::is_simulated() {
            let (second, built) = SecondModel::build(origin, &stores);
            let _ = sender.send(Ok(built));
            let inline = Inline {
                second,
                messages,
                answers: sender,
            };
            return Some(Self {
                answers,
                inline: Some(Box::new(inline)),
            });
        }
        let mut messages = messages;
        let work = move || {
            let worked = panics::catch(|| {
                let (mut second, built) = SecondModel::build(origin, &stores);
                let _ = sender.send(Ok(built));
                while let Some(message) = messages.blocking_recv() {
                    if let Some(answer) = second.handle(message) {
                        let _ = sender.send(Ok(answer));
                    }
                }
            });
            if let Err(panic) = worked {
                let _ = sender.send(Err(panic));
            }
        };
        let thread = std::thread::Builder::new().name("self-check".to_owned()).spawn(work);
        thread.is_ok().then_some(Self { answers, inline: None })
    }

    /// The next answer, once it is there.
    ///
    /// # Errors
    /// If the second model panicked, or its thread has ended.
    pub fn answer(&mut self) -> Result<Option<Answer>, String> {
        if let Some(inline) = &mut self.inline {
            let Inline {
                second,
                messages,
                answers,
            } = &mut **inline;
            while let Ok(message) = messages.try_recv() {
                if let Some(answer) = second.handle(message) {
                    let _ = answers.send(Ok(answer));
                }
            }
        }
        match self.answers.try_recv() {
            Ok(outcome) => outcome.map(Some),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("the thread has ended".to_owned()),
        }
    }
}
