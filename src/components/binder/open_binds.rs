//! How many binds are open, by what they concern: the pod, or a volume claim that they wait for. Pods that share an unbound claim are promised the same volume,
//! and each of their binds may fail.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of open binds, by the uid of a pod or the namespace and name of a claim.
#[derive(Default)]
pub struct OpenBinds(Mutex<HashMap<Arc<str>, usize>>);

/// An open bind. It ends when this is dropped.
pub struct Open {
    all: Arc<OpenBinds>,
    keys: Vec<Arc<str>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut counts = self.all.counts();
        for key in &self.keys {
            if let Some(binds) = counts.get_mut(key) {
                *binds -= 1;
                if *binds == 0 {
                    counts.remove(key);
                }
            }
        }
    }
}

impl OpenBinds {
    fn counts(&self) -> MutexGuard<'_, HashMap<Arc<str>, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A bind that concerns these begins; it ends when the result is dropped.
    #[must_use]
    pub fn begin(self: &Arc<Self>, keys: impl IntoIterator<Item = Arc<str>>) -> Open {
        let keys: Vec<_> = keys.into_iter().collect();
        let mut counts = self.counts();
        for key in &keys {
            *counts.entry(Arc::clone(key)).or_default() += 1;
        }
        drop(counts);
        Open {
            all: Arc::clone(self),
            keys,
        }
    }

    /// Whether a bind that concerns this is open.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.counts().contains_key(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_being_bound_until_all_its_binds_have_ended() {
        let (open, uid) = (Arc::<OpenBinds>::default(), Arc::from("u1"));
        let (first, second) = (open.begin([Arc::clone(&uid)]), open.begin([uid]));
        drop(first);
        assert!(open.has("u1") && !open.has("u2"));
        drop(second);
        assert!(!open.has("u1"));
    }
}
