//! Leadership as the components see it: what this process leads, and in which terms.
//!
//! Leadership is divided by node pools ([`Scope`]): each pool with a shard has a Lease, and the default pool shares the Lease of cluster-wide
//! objects. A term lasts from taking a Lease to losing it. Between two terms of this process another may have led, so decisions of one term must not
//! be carried out in the next: orders name their term, and each term has a client of its own, whose writes are refused once the term is over.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tower::BoxError;

use crate::api::names::{label, object};

/// What is led under one Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Cluster-wide objects, the default node pool (objects without the label), and pools without a shard.
    #[default]
    Cluster,
    /// The node pool with this value of the label, which has a shard.
    Pool(Arc<str>),
}

/// Which node pools there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pools {
    /// The label that names a node pool. Empty: there is only one.
    pub key: String,
    /// Values of the label that have a shard.
    pub with_shard: BTreeSet<Arc<str>>,
    /// Whether there is a shard for objects without the label.
    pub default_has_shard: bool,
}

impl Default for Pools {
    /// KAI's label, and the default pool alone.
    fn default() -> Self {
        Self {
            key: label::NODE_POOL.to_owned(),
            with_shard: BTreeSet::new(),
            default_has_shard: true,
        }
    }
}

impl Pools {
    /// The scope of an object with these labels.
    #[must_use]
    pub fn scope(&self, labels: Option<&BTreeMap<String, String>>) -> Scope {
        let value = labels.and_then(|labels| labels.get(&self.key));
        let value = value.and_then(|value| self.with_shard.get(value.as_str()));
        value.map_or(Scope::Cluster, |value| Scope::Pool(Arc::clone(value)))
    }

    /// The name of an object's node pool, by its labels, if no shard schedules it.
    #[must_use]
    pub fn without_shard<'o>(&self, labels: Option<&'o BTreeMap<String, String>>) -> Option<&'o str> {
        if self.key.is_empty() {
            return None;
        }
        match labels.and_then(|labels| labels.get(&self.key)) {
            Some(value) => (!self.with_shard.contains(value.as_str())).then_some(value),
            None => (!self.default_has_shard).then_some(object::DEFAULT_NODE_POOL),
        }
    }
}

/// The name of a node pool in messages, events and metrics.
#[must_use]
pub fn pool_name(value: &str) -> &str {
    if value.is_empty() {
        object::DEFAULT_NODE_POOL
    } else {
        value
    }
}

/// One term of leadership.
#[derive(Clone)]
pub struct Term {
    /// Unique in this process, and greater than those of earlier terms.
    pub number: u64,
    /// A client whose writes are refused once the term is over.
    pub writes: Client,
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Term").field(&self.number).finish_non_exhaustive()
    }
}

/// The current terms.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    by_scope: BTreeMap<Scope, Term>,
}

impl Terms {
    /// A term has begun.
    pub fn begin(&mut self, scope: &Scope, term: Term) {
        self.by_scope.insert(scope.clone(), term);
    }

    /// The term of that number is over. Another of the same scope may have begun, under another Lease, and continues.
    pub fn end(&mut self, scope: &Scope, number: u64) {
        if self.of(scope).is_some_and(|term| term.number == number) {
            self.by_scope.remove(scope);
        }
    }

    /// The current term of the scope, if this process leads it.
    #[must_use]
    pub fn of(&self, scope: &Scope) -> Option<&Term> {
        self.by_scope.get(scope)
    }

    /// The term of that number, if it is current.
    #[must_use]
    pub fn numbered(&self, number: u64) -> Option<&Term> {
        self.by_scope.values().find(|term| term.number == number)
    }

    /// The terms by scope.
    pub fn all(&self) -> impl Iterator<Item = (&Scope, &Term)> {
        self.by_scope.iter()
    }
}

/// The terms of this process as they change.
pub type Leading = watch::Receiver<Terms>;

/// A write was not sent, because this process does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not lead")]
struct NotLeading;

/// A client whose requests belong to the current term of the cluster scope.
#[must_use]
pub fn writes(leading: Leading) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let term = leading.borrow().of(&Scope::Cluster).cloned();
        async move {
            match term {
                Some(term) => term.writes.send(request).await.map_err(BoxError::from),
                None => Err(NotLeading.into()),
            }
        }
    });
    Client::new(service, "default")
}

/// The client of a term that is over.
#[must_use]
pub fn refused() -> Client {
    let service = tower::service_fn(|_: Request<Body>| {
        std::future::ready(Err::<http::Response<Body>, _>(BoxError::from(NotLeading)))
    });
    Client::new(service, "default")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_led_with_their_pool_if_it_has_a_shard() {
        let pools = Pools {
            key: "pool".to_owned(),
            with_shard: ["blue".into()].into(),
            default_has_shard: true,
        };
        let of = |value: Option<&str>| {
            let labels = value.map(|value| BTreeMap::from([("pool".to_owned(), value.to_owned())]));
            pools.scope(labels.as_ref())
        };
        assert_eq!(of(Some("blue")), Scope::Pool("blue".into()));
        for elsewhere in [None, Some(""), Some("red")] {
            assert_eq!(of(elsewhere), Scope::Cluster);
        }
    }

    #[tokio::test]
    async fn the_end_of_a_term_does_not_end_a_later_term_of_its_scope() {
        let (mut terms, pool) = (Terms::default(), Scope::Pool("blue".into()));
        let term = |number| Term {
            number,
            writes: refused(),
        };
        terms.begin(&pool, term(1));
        terms.begin(&pool, term(2));
        terms.end(&pool, 1);
        assert_eq!(terms.of(&pool).map(|term| term.number), Some(2));
        terms.end(&pool, 2);
        assert!(terms.of(&pool).is_none());
    }
}
