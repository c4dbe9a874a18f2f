//! The volume claims that open binds in several steps wait for. Pods that share an unbound claim are promised the same volume, and each of their binds may
//! fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::decision::Promise;

/// For each claim, by namespace and name, how many open binds wait for it.
#[derive(Default)]
pub struct OpenClaims(Mutex<HashMap<Arc<str>, usize>>);

/// The claims of an open bind.
pub struct Waiting {
    all: Arc<OpenClaims>,
    claims: Vec<Arc<str>>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut counts = self.all.counts();
        for claim in &self.claims {
            if let Some(binds) = counts.get_mut(claim) {
                *binds -= 1;
                if *binds == 0 {
                    counts.remove(claim);
                }
            }
        }
    }
}

impl OpenClaims {
    fn counts(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bind with these promises begins; it ends when the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, promises: &[Promise]) -> Waiting {
        let claims: Vec<_> = promises.iter().map(|promise| Arc::clone(&promise.claim)).collect();
        let mut counts = self.counts();
        for claim in &claims {
            *counts.entry(Arc::clone(claim)).or_default() += 1;
        }
        drop(counts);
        Waiting {
            all: Arc::clone(self),
            claims,
        }
    }

    /// Whether an open bind waits for the claim.
    #[must_use]
    pub fn has(&self, claim: &str) -> bool {
        self.counts().contains_key(claim)
    }
}
