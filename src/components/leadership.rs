//! Leadership as the components see it: whether this process leads, and in which term.
//!
//! A term lasts from taking the lease to losing it. In between two terms of this process another may have led, so what was decided in
//! one term is not to be carried out in the next: orders say in which term they were decided, and each term has a client of its own,
//! whose writes are refused for good once the term is over.

use std::fmt;

use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::sync::watch;
use tower::BoxError;

/// One term of leadership.
#[derive(Clone)]
pub struct Term {
    /// Different from those of the earlier terms of this process, and greater.
    pub number: u64,
    /// Its writes are refused once the term is over.
    pub writes: Client,
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Term").field(&self.number).finish_non_exhaustive()
    }
}

/// The term that lasts, if this process leads.
pub type Leading = watch::Receiver<Option<Term>>;

/// A write was not sent, because this process does not lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not lead")]
struct NotLeading;

/// A client whose requests belong to the term in which they are made.
#[must_use]
pub fn writes(leading: Leading) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let term = leading.borrow().clone();
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
