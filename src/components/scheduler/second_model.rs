//! The second model: built from the stores, told what the first one is told, and compared with it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::components::panics;
use crate::components::watches::Stores;
use crate::engine::input::Time;
use crate::engine::model::digest::{Difference, Digest};
use crate::engine::policy::Policy;
use crate::mirror::{self, Groupings, PackedChange};
use crate::scheduler_core::SchedulerCore;

/// Differences that are kept of a comparison.
const DIFFERENCES: usize = 1_000;
/// Turns of the selectors of devices after which a comparison goes on without them.
const TURNS: usize = 100_000;

/// What the second model begins with, beside the stores.
pub struct Origin {
    /// Settings of the mirror.
    pub settings: mirror::Settings,
    /// Policy of the engine.
    pub policy: Policy,
    /// Groups of pods that are not written yet.
    pub groupings: Groupings,
    /// When it begins.
    pub now: Time,
}

/// What the second model is told, in the order in which the first one took it in.
pub enum Told {
    /// A change.
    Change(PackedChange, Time),
    /// What the first model amounts to.
    Digest(Box<Digest>, Time),
}

/// What comes back, each with the time that it took.
enum Answer {
    Built(Duration),
    Compared(Vec<Difference>, Duration),
    /// It panicked.
    Failed(String),
}

/// The second model.
struct Second {
    core: SchedulerCore,
    worked: Duration,
}

impl Second {
    fn build(origin: Origin, stores: &Stores) -> Self {
        let mut core = SchedulerCore::new(origin.settings, origin.policy);
        for object in stores.objects() {
            core.apply(&PackedChange::Applied(object.into()), origin.now);
        }
        let output = core.mirror.adopt(origin.groupings);
        core.forward(output, origin.now);
        Self {
            core,
            worked: Duration::ZERO,
        }
    }

    fn take(&mut self, told: Told) -> Option<Answer> {
        let began = Instant::now();
        let differences = match told {
            Told::Change(change, now) => {
                self.core.apply(&change, now);
                None
            }
            Told::Digest(digest, now) => Some(self.compare(*digest, now)),
        };
        self.worked += began.elapsed();
        differences.map(|differences| Answer::Compared(differences, std::mem::take(&mut self.worked)))
    }

    fn compare(&mut self, live: Digest, now: Time) -> Vec<Difference> {
        for _ in 0..TURNS {
            if !self.core.mirror.selectors_wait() {
                break;
            }
            let output = self.core.mirror.ask_selectors();
            self.core.forward(output, now);
        }
        live.differences(self.core.engine.digest(now), DIFFERENCES)
    }
}

/// Where the second model is kept, and how what it came to is heard of.
pub struct Worker {
    answers: Receiver<Answer>,
    /// On simulated time there are no threads, so that runs are repeatable: it works when it is looked at.
    here: Option<Box<Here>>,
}

struct Here {
    second: Second,
    told: Receiver<Told>,
    answers: Sender<Answer>,
}

impl Worker {
    /// Begins to build the second model. `None`: the operating system gives no thread.
    pub fn start(origin: Origin, stores: Arc<Stores>, told: Receiver<Told>) -> Option<Self> {
        let (sender, answers) = channel();
        if clock::is_simulated() {
            let second = Second::build(origin, &stores);
            // The other end is in this function.
            let _ = sender.send(Answer::Built(Duration::ZERO));
            let here = Some(Box::new(Here {
                second,
                told,
                answers: sender,
            }));
            return Some(Self { answers, here });
        }
        let work = move || {
            // Whoever asked may have given up meanwhile; then all ends with `told`.
            let worked = panics::catch(|| {
                let began = Instant::now();
                let mut second = Second::build(origin, &stores);
                let _ = sender.send(Answer::Built(began.elapsed()));
                for answer in told.iter().filter_map(|told| second.take(told)) {
                    let _ = sender.send(answer);
                }
            });
            if let Err(panic) = worked {
                let _ = sender.send(Answer::Failed(panic));
            }
        };
        let thread = std::thread::Builder::new().name("self-check".to_owned()).spawn(work);
        thread.is_ok().then_some(Self { answers, here: None })
    }

    /// Takes in what was told, where it is not done by a thread.
    pub fn go_on(&mut self) {
        if let Some(here) = &mut self.here {
            let Here { second, told, answers } = &mut **here;
            for answer in told.try_iter().filter_map(|told| second.take(told)) {
                // The other end is in `self`.
                let _ = answers.send(answer);
            }
        }
    }

    fn answer(&mut self) -> Result<Option<Answer>, String> {
        self.go_on();
        match self.answers.try_recv() {
            Ok(Answer::Failed(panic)) => Err(panic),
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err("the thread has ended".to_owned()),
        }
    }

    /// How long it took to build the second model, once it is built.
    pub fn built(&mut self) -> Result<Option<Duration>, String> {
        let built = self.answer()?;
        Ok(built.and_then(|answer| match answer {
            Answer::Built(worked) => Some(worked),
            Answer::Compared(..) | Answer::Failed(_) => None,
        }))
    }

    /// What differs, and how long it took to find out, once it is compared.
    pub fn compared(&mut self) -> Result<Option<(Vec<Difference>, Duration)>, String> {
        let compared = self.answer()?;
        Ok(compared.and_then(|answer| match answer {
            Answer::Compared(differences, worked) => Some((differences, worked)),
            Answer::Built(_) | Answer::Failed(_) => None,
        }))
    }
}
