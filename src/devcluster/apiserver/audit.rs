//! The audit log of writes: user, request and status code. Reads are not logged.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{identity::Identity, request::RequestInfo};

/// One write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    /// User name of the writer.
    pub user: String,
    /// The pod of the writer's token.
    pub pod: Option<String>,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource, empty for none.
    pub subresource: String,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// Object name, empty where the server generates it.
    pub name: String,
    /// HTTP status code of the answer; 0 when the connection was broken on purpose.
    pub code: u16,
}

/// Writes kept in the log; the oldest go first. Counts are complete.
const WRITES_KEPT: usize = 200_000;

/// The audit log of a running server.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    writes: VecDeque<Write>,
    counts: BTreeMap<(String, String, u16), usize>,
}

impl Audit {
    /// The writes since the start or the last [`Audit::clear`], in order of their answers; of very many the newest.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.lock().writes.iter().cloned().collect()
    }

    /// The writes of one user; of an identity in a pod, those of that pod.
    #[must_use]
    pub fn writes_of(&self, identity: &Identity) -> Vec<Write> {
        let inner = self.lock();
        inner
            .writes
            .iter()
            .filter(|write| write.user == identity.user && (identity.pod.is_none() || write.pod == identity.pod))
            .cloned()
            .collect()
    }

    /// Writes counted by user, `verb resource/subresource` and code.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(String, String, u16), usize> {
        self.lock().counts.clone()
    }

    /// Clears the log.
    pub fn clear(&self) {
        *self.lock() = Inner::default();
    }

    pub(crate) fn record(&self, identity: &Identity, request: &RequestInfo, code: u16) {
        if !request.verb.is_write() {
            return;
        }
        let write = Write {
            user: identity.user.clone(),
            pod: identity.pod.clone(),
            verb: request.verb.as_str().to_owned(),
            resource: request.resource.clone(),
            subresource: request.subresource.clone(),
            namespace: request.namespace.clone(),
            name: request.name.clone(),
            code,
        };
        let slash = if write.subresource.is_empty() { "" } else { "/" };
        let what = format!("{} {}{slash}{}", write.verb, write.resource, write.subresource);
        let mut inner = self.lock();
        *inner.counts.entry((write.user.clone(), what, code)).or_default() += 1;
        inner.writes.push_back(write);
        if inner.writes.len() > WRITES_KEPT {
            inner.writes.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
