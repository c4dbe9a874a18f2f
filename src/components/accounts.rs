//! What queues hold over time, between the scheduler of a shard, which sees every change, and the component that sums it up and says what it comes to.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::engine::Engine;
use crate::engine::input::{Name, Time};
use crate::usage::{Ledger, Settings};

/// What each queue has used, as parts per billion of the cluster: cpu, memory and GPUs.
pub type Shares = Vec<(Name, [i64; 3])>;

/// What the scheduler is told.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// The term in which it may decide by it.
    pub term: Option<u64>,
    /// What queues have used; those that are not listed have used nothing.
    pub shares: Arc<Shares>,
}

/// The two ends of what one shard's scheduler and its accounts tell each other.
#[must_use]
pub fn channel() -> (Meter, Accounts) {
    let (settings, followed) = watch::channel(None);
    let (tells, told) = watch::channel(Told::default());
    let ledger = SharedLedger::default();
    let meter = Meter {
        settings,
        told,
        ledger: ledger.clone(),
        opening: 0,
        held: Vec::new(),
    };
    let accounts = Accounts {
        settings: followed,
        tells,
        ledger,
    };
    (meter, accounts)
}

/// The ledger that both ends write into, while it is open.
#[derive(Clone, Debug, Default)]
pub struct SharedLedger(Arc<Mutex<Open>>);

#[derive(Debug, Default)]
struct Open {
    ledger: Option<Ledger>,
    /// Counts how often it was opened.
    opening: u64,
}

impl SharedLedger {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with this ledger.
    pub fn open(&self, ledger: Ledger) {
        let mut open = self.lock();
        open.ledger = Some(ledger);
        open.opening += 1;
    }

    /// Nothing is written down any more.
    pub fn close(&self) {
        self.lock().ledger = None;
    }

    /// The ledger as it is now, if it is open.
    #[must_use]
    pub fn ledger(&self) -> Option<Ledger> {
        self.lock().ledger.clone()
    }

    /// What queues have used.
    #[must_use]
    pub fn usage(&self, now: Time) -> Shares {
        self.lock()
            .ledger
            .as_mut()
            .map_or_else(Vec::new, |ledger| ledger.usage(now))
    }
}

/// The component's end.
#[derive(Debug)]
pub struct Accounts {
    /// How it is summed up; `None`: not at all.
    pub settings: watch::Receiver<Option<Settings>>,
    /// Tells the scheduler.
    pub tells: watch::Sender<Told>,
    /// What is held.
    pub ledger: SharedLedger,
}

/// The scheduler's end.
#[derive(Debug)]
pub struct Meter {
    settings: watch::Sender<Option<Settings>>,
    told: watch::Receiver<Told>,
    ledger: SharedLedger,
    /// When the ledger was opened that has been told all of `held`.
    opening: u64,
    /// What queues of the tree hold.
    held: Vec<(Name, [i64; 3])>,
}

impl Meter {
    /// Has usage summed up like this from now on.
    pub fn follow(&self, settings: Option<&Settings>) {
        self.settings.send_if_modified(|before| {
            let changed = before.as_ref() != settings;
            *before = settings.cloned();
            changed
        });
    }

    /// Something new is told.
    ///
    /// # Errors
    /// If the component is gone.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.told.changed().await
    }

    /// What queues have used, as it was told last.
    pub fn usage(&mut self) -> Shares {
        (*self.told.borrow_and_update().shares).clone()
    }

    /// Whether usage is known as far as a term is to wait for it.
    #[must_use]
    pub fn lets_decide(&self, term: u64) -> bool {
        self.settings.borrow().is_none() || self.told.borrow().term == Some(term)
    }

    /// Writes down what queues hold from now on. The engine has just been through a cycle.
    pub fn read(&mut self, engine: &Engine, now: Time) {
        let mut open = self.ledger.lock();
        let opening = open.opening;
        let Some(ledger) = &mut open.ledger else { return };
        let model = engine.model();
        let queues = || {
            model
                .queues()
                .iter()
                .map(|(_, queue)| queue)
                .filter(|queue| queue.valid)
        };
        ledger.capacity(model.total(), now);
        let same = self.opening == opening
            && queues()
                .map(|queue| &queue.name)
                .eq(self.held.iter().map(|(name, _)| name));
        if same {
            for (queue, (name, held)) in queues().zip(&mut self.held) {
                if *held != queue.allocated {
                    *held = queue.allocated;
                    ledger.hold(name, *held, now);
                }
            }
            return;
        }
        self.opening = opening;
        self.held = queues().map(|queue| (queue.name.clone(), queue.allocated)).collect();
        let names: BTreeSet<&str> = self.held.iter().map(|(name, _)| &**name).collect();
        ledger.only(|name| names.contains(name), now);
        for (name, held) in &self.held {
            ledger.hold(name, *held, now);
        }
    }
}

#[cfg(test)]
mod tests;
