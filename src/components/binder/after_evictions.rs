//! Binds for which there is room below the limits of queues only once certain pods are evicted. They start when the API server has accepted these evictions, and
//! fail if it refuses one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::components::bus::OrderedBind;
use crate::engine::input::Name;

/// Evictions, and binds that wait for them.
#[derive(Debug, Default)]
pub struct AfterEvictions {
    /// By the uid of the evicted pod, as long as it exists.
    evictions: HashMap<Name, Eviction>,
    /// Binds of one order that wait for the same evictions.
    batches: HashMap<u64, Batch>,
    last_batch: u64,
}

#[derive(Debug)]
enum Eviction {
    /// It has not ended. The batches that wait for it.
    Open(Vec<u64>),
    Accepted,
    Refused,
}

#[derive(Debug)]
struct Batch {
    /// What its binds wait for.
    evictions: Arc<[Name]>,
    /// How many of these have not ended.
    open: usize,
    refused: bool,
    /// With the term of leadership in which each was ordered.
    binds: Vec<(OrderedBind, u64)>,
}

/// Binds that need not wait any longer.
#[derive(Debug, Default, PartialEq)]
pub struct Released {
    /// They may start, each in its term.
    pub start: Vec<(OrderedBind, u64)>,
    /// They fail: an eviction was refused.
    pub fail: Vec<OrderedBind>,
}

impl AfterEvictions {
    /// A pod is to be evicted.
    pub fn eviction(&mut self, uid: &Name) {
        if !matches!(self.evictions.get(uid), Some(Eviction::Open(_))) {
            self.evictions.insert(Arc::clone(uid), Eviction::Open(Vec::new()));
        }
    }

    /// Takes the binds of an order, whose evictions are known already. Returns those that need not wait.
    pub fn binds(&mut self, binds: Vec<OrderedBind>, term: u64) -> Released {
        let mut released = Released::default();
        // Binds that wait for the same evictions share the list.
        let mut batches: Vec<u64> = Vec::new();
        for bind in binds {
            let Some(evictions) = bind.placement.after_evictions.clone() else {
                released.start.push((bind, term));
                continue;
            };
            let same = |at: &u64| {
                let batch = self.batches.get(at);
                batch.is_some_and(|batch| Arc::ptr_eq(&batch.evictions, &evictions))
            };
            let known = batches.iter().copied().find(same);
            let at = known.unwrap_or_else(|| self.begin(evictions));
            if known.is_none() {
                batches.push(at);
            }
            if let Some(batch) = self.batches.get_mut(&at) {
                batch.binds.push((bind, term));
            }
        }
        batches.into_iter().for_each(|at| self.release(at, &mut released));
        released
    }

    /// Begins a batch without binds.
    fn begin(&mut self, evictions: Arc<[Name]>) -> u64 {
        self.last_batch += 1;
        let (mut open, mut refused) = (0, false);
        for uid in &*evictions {
            match self.evictions.get_mut(uid) {
                Some(Eviction::Open(batches)) => {
                    batches.push(self.last_batch);
                    open += 1;
                }
                Some(Eviction::Refused) => refused = true,
                // Without an entry the pod is gone.
                Some(Eviction::Accepted) | None => {}
            }
        }
        let batch = Batch {
            evictions,
            open,
            refused,
            binds: Vec::new(),
        };
        self.batches.insert(self.last_batch, batch);
        self.last_batch
    }

    /// Releases a batch whose evictions have all ended.
    fn release(&mut self, at: u64, released: &mut Released) {
        if self.batches.get(&at).is_none_or(|batch| batch.open > 0) {
            return;
        }
        let Some(batch) = self.batches.remove(&at) else { return };
        if batch.refused {
            released.fail.extend(batch.binds.into_iter().map(|(bind, _)| bind));
        } else {
            released.start.extend(batch.binds);
        }
    }

    /// An eviction has ended.
    pub fn ended(&mut self, uid: &Name, refused: bool) -> Released {
        let mut released = Released::default();
        let ended = if refused { Eviction::Refused } else { Eviction::Accepted };
        let Some(Eviction::Open(waiting)) = self.evictions.insert(Arc::clone(uid), ended) else {
            return released;
        };
        for at in waiting {
            if let Some(batch) = self.batches.get_mut(&at) {
                batch.open -= 1;
                batch.refused |= refused;
                self.release(at, &mut released);
            }
        }
        released
    }

    /// A pod is gone. An open eviction of it stays until it has ended.
    pub fn forget(&mut self, uid: &str) {
        if let Some(Eviction::Accepted | Eviction::Refused) = self.evictions.get(uid) {
            self.evictions.remove(uid);
        }
    }
}
