//! The work queue of a controller: each key is worked on by one reconciliation at a time and never lost.
//!
//! Keys added while they are worked on are worked on again. Later visits wait on the world's clock; retries of failed requests wait in
//! real time with a growing delay.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Display;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::Notify;

use super::clock::Clock;

/// When a key is to be reconciled again after a successful reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// When something about it changes.
    OnChange,
    /// At this instant, or earlier when something changes.
    At(Timestamp),
}

impl Again {
    /// The earlier of two visits.
    pub fn or_at(self, at: Timestamp) -> Self {
        match self {
            Self::OnChange => Self::At(at),
            Self::At(other) => Self::At(other.min(at)),
        }
    }
}

/// Keys that wait for a reconciliation.
pub(super) struct WorkQueue<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

struct State<K> {
    ready: VecDeque<K>,
    queued: HashSet<K>,
    running: HashSet<K>,
    again: HashSet<K>,
    due: BTreeSet<(Timestamp, K)>,
    due_of: HashMap<K, Timestamp>,
    failures: HashMap<K, u32>,
}

impl<K> WorkQueue<K>
where
    K: Clone + Eq + Hash + Ord + Display,
{
    pub fn new() -> Self {
        let state = State {
            ready: VecDeque::new(),
            queued: HashSet::new(),
            running: HashSet::new(),
            again: HashSet::new(),
            due: BTreeSet::new(),
            due_of: HashMap::new(),
            failures: HashMap::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Asks for a reconciliation of `key`.
    pub fn add(&self, key: K) {
        self.lock().add(key);
        self.changed.notify_one();
    }

    /// Works the queue for ever: at most `limit` reconciliations at once, all on the calling task.
    pub async fn run<F, Fut>(&self, clock: &Clock, limit: usize, reconcile: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = kube::Result<Again>>,
    {
        let mut running = FuturesUnordered::new();
        let mut backing_off = FuturesUnordered::new();
        loop {
            while running.len() < limit
                && let Some(key) = self.lock().pop(clock.now())
            {
                let work = reconcile(key.clone());
                running.push(async move { (key, work.await) });
            }
            let due = self.lock().due.first().map(|(at, _)| *at);
            tokio::select! {
                Some((key, outcome)) = running.next(), if !running.is_empty() => {
                    if let Some(delay) = self.lock().finish(&key, outcome) {
                        backing_off.push(async move {
                            tokio::time::sleep(delay).await;
                            key
                        });
                    }
                }
                Some(key) = backing_off.next(), if !backing_off.is_empty() => self.lock().add(key),
                () = self.changed.notified() => {}
                () = sleep_until(clock, due), if running.len() < limit => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for `at`, or for ever without one.
pub(super) async fn sleep_until(clock: &Clock, at: Option<Timestamp>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl<K> State<K>
where
    K: Clone + Eq + Hash + Ord + Display,
{
    fn add(&mut self, key: K) {
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    fn add_at(&mut self, key: K, at: Timestamp) {
        if let Some(known) = self.due_of.get(&key).copied() {
            if known <= at {
                return;
            }
            self.due.remove(&(known, key.clone()));
        }
        self.due_of.insert(key.clone(), at);
        self.due.insert((at, key));
    }

    fn pop(&mut self, now: Timestamp) -> Option<K> {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let (_, key) = self.due.pop_first()?;
            self.due_of.remove(&key);
            self.add(key);
        }
        let key = self.ready.pop_front()?;
        self.queued.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    /// Ends the reconciliation of `key`; the delay after which a failed one is to be tried again.
    fn finish(&mut self, key: &K, outcome: kube::Result<Again>) -> Option<Duration> {
        self.running.remove(key);
        if self.again.remove(key) {
            self.add(key.clone());
        }
        match outcome {
            Ok(again) => {
                self.failures.remove(key);
                if let Again::At(at) = again {
                    self.add_at(key.clone(), at);
                }
                None
            }
            Err(error) => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures += 1;
                tracing::debug!(%key, %error, "reconciliation failed, retrying");
                Some(retry_delay(*failures, &error))
            }
        }
    }
}

/// Conflicts and vanished objects come from a view that was a moment old; anything else is given time.
fn retry_delay(failures: u32, error: &kube::Error) -> Duration {
    let stale = matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409));
    let first = Duration::from_millis(if stale { 5 } else { 50 });
    (first * 2_u32.saturating_pow(failures.saturating_sub(1).min(16))).min(Duration::from_secs(10))
}

#[cfg(test)]
mod tests;
