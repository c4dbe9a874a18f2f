//! The terms of leadership of this process, and how it takes part in elections.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use tokio::sync::watch;

use crate::components::leadership::{Leading, Scope, Term, Terms};
use crate::operator::fence::Fence;

/// The terms of this process, as its elections begin and end them.
#[derive(Debug, Default)]
pub struct Leads {
    terms: watch::Sender<Terms>,
    begun: AtomicU64,
    /// Those of the current terms.
    fences: Mutex<BTreeMap<u64, Fence>>,
}

impl Leads {
    /// The terms as they change. Those that have begun already are the first change: a component may start after them.
    #[must_use]
    pub fn watch(&self) -> Leading {
        let mut terms = self.terms.subscribe();
        terms.mark_changed();
        terms
    }

    /// Begins a term, with a client for its writes, which is behind the fence; returns its number.
    pub fn begin(&self, scope: &Scope, writes: Client, fence: &Fence) -> u64 {
        let mut number = 0;
        self.change(scope, |terms| {
            // Not before: of two terms that begin at the same time, the higher number could be told first, and watches ignore lower ones after it.
            number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            terms.begin(scope, Term { number, writes });
        });
        self.fences().insert(number, fence.clone());
        number
    }

    /// Ends a term.
    pub fn end(&self, scope: &Scope, number: u64) {
        self.change(scope, |terms| terms.end(scope, number));
        self.fences().remove(&number);
    }

    /// Waits until each write of the current terms has been answered, or can no longer arrive: see [`Fence::settled`].
    pub async fn settled(&self, late: Duration) {
        let fences: Vec<Fence> = self.fences().values().cloned().collect();
        join_all(fences.iter().map(|fence| fence.settled(late))).await;
    }

    fn fences(&self) -> MutexGuard<'_, BTreeMap<u64, Fence>> {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, scope: &Scope, change: impl FnOnce(&mut Terms)) {
        self.terms.send_modify(change);
        self.show(scope);
    }

    /// Sets the metric.
    pub fn show(&self, scope: &Scope) {
        show(scope, f64::from(u8::from(self.terms.borrow().of(scope).is_some())));
    }

    /// The pool has no shard any more. Its series stays until the process ends, and must not look like that of a pool without a leader.
    pub fn removed(&self, scope: &Scope) {
        show(scope, f64::NAN);
    }
}

fn show(scope: &Scope, leads: f64) {
    match scope {
        Scope::Cluster => metrics::gauge!("unikai_leader").set(leads),
        Scope::Pool(pool) => metrics::gauge!("unikai_pool_leader", "node_pool" => pool.to_string()).set(leads),
    }
}

/// How a process takes part in an election.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// It takes the Lease as soon as it is free.
    #[default]
    Preferred,
    /// Another replica is to have it: this one takes it only if it stays free, and releases it after a delay.
    Reserve,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::components::leadership::refused;

    #[tokio::test]
    async fn a_term_that_has_begun_is_told_to_those_who_watch_later() {
        let leads = Leads::default();
        leads.begin(&Scope::Cluster, refused(), &Fence::closed());
        let watch = leads.watch();
        assert!(watch.has_changed().unwrap() && watch.clone().has_changed().unwrap());
    }

    #[tokio::test]
    async fn terms_that_begin_at_the_same_time_are_told_in_the_order_of_their_numbers() {
        let (leads, writes) = (Arc::new(Leads::default()), refused());
        let told = leads.watch();
        // As long as the terms are read, none is told.
        let read = told.borrow();
        let elections: Vec<_> = ["blue", "green"]
            .into_iter()
            .map(|pool| {
                let (leads, writes) = (Arc::clone(&leads), writes.clone());
                thread::spawn(move || leads.begin(&Scope::Pool(pool.into()), writes, &Fence::closed()))
            })
            .collect();
        thread::sleep(Duration::from_millis(100));
        assert_eq!(leads.begun.load(Ordering::Relaxed), 0, "none has a number before");
        drop(read);
        let mut numbers: Vec<_> = elections.into_iter().map(|election| election.join().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(told.borrow().all().count(), 2);
    }
}
