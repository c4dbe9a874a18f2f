//! Usage of queues: the channel between the scheduler of a shard, which records what queues hold, and the usage component, which computes their shares.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::engine::Engine;
use crate::engine::input::{Name, Time};
use crate::usage::{Ledger, Settings};

/// What each queue has used, as parts per billion of the cluster: cpu, memory and GPUs.
pub type Shares = Vec<(Name, [i64; 3])>;

/// What the component sends to the scheduler.
#[derive(Clone, Debug, Default)]
pub struct UsageUpdate {
    /// The term in which the scheduler may use these shares.
    pub term: Option<u64>,
    /// What queues have used; those that are not listed have used nothing.
    pub shares: Arc<Shares>,
}

/// The two ends of the channel of one shard.
#[must_use]
pub fn channel() -> (Meter, Accounts) {
    let (settings, followed) = watch::channel(None);
    let (send, updates) = watch::channel(UsageUpdate::default());
    let ledger = SharedLedger::default();
    let meter = Meter {
        settings,
        updates,
        ledger: ledger.clone(),
        opening: 0,
        held: Vec::new(),
    };
    let accounts = Accounts {
        settings: followed,
        updates: send,
        ledger,
    };
    (meter, accounts)
}

/// The ledger that both ends use, while it is open.
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

    /// Records into this ledger from now on.
    pub fn open(&self, ledger: Ledger) {
        let mut open = self.lock();
        open.ledger = Some(ledger);
        open.opening += 1;
    }

    /// Stops recording.
    pub fn close(&self) {
        self.lock().ledger = None;
    }

    /// A copy of the ledger, if it is open.
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
    /// The scheduler's settings of usage; `None`: usage is not computed.
    pub settings: watch::Receiver<Option<Settings>>,
    /// To the scheduler.
    pub updates: watch::Sender<UsageUpdate>,
    /// What queues hold.
    pub ledger: SharedLedger,
}

/// The scheduler's end.
#[derive(Debug)]
pub struct Meter {
    settings: watch::Sender<Option<Settings>>,
    updates: watch::Receiver<UsageUpdate>,
    ledger: SharedLedger,
    /// The opening of the ledger that has recorded all of `held`.
    opening: u64,
    /// What queues of the tree hold.
    held: Vec<(Name, [i64; 3])>,
}

impl Meter {
    /// Sends settings to the component.
    pub fn follow(&self, settings: Option<&Settings>) {
        self.settings.send_if_modified(|before| {
            let changed = before.as_ref() != settings;
            *before = settings.cloned();
            changed
        });
    }

    /// Waits for an update.
    ///
    /// # Errors
    /// If the component is gone.
    pub async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.updates.changed().await
    }

    /// What queues have used, by the last update.
    pub fn usage(&mut self) -> Shares {
        (*self.updates.borrow_and_update().shares).clone()
    }

    /// Whether scheduling in that term need not wait for usage: none is computed, or the first update has arrived.
    #[must_use]
    pub fn is_known(&self, term: u64) -> bool {
        self.settings.borrow().is_none() || self.updates.borrow().term == Some(term)
    }

    /// Records what queues hold after a cycle of the engine.
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
