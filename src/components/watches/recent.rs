//! The objects that a store of compact ones wrote or read last, as they are: most are read several times within moments, and not again for long after that.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kinds::Watched;
use crate::components::compact::Compact;

/// How many objects are kept for each compact kind, at most. A typed pod takes 23 KiB.
const SLOTS: usize = 128;

/// Kept objects, each in the slot that its uid determines.
#[derive(Debug)]
pub(super) struct Recent<K> {
    slots: Box<[Mutex<Option<Kept<K>>>]>,
}

#[derive(Debug)]
struct Kept<K> {
    /// What it was read from.
    compact: Compact<K>,
    object: Arc<K>,
}

impl<K: Watched> Default for Recent<K> {
    fn default() -> Self {
        let slots = if K::COMPACT { SLOTS } else { 0 };
        Self {
            slots: (0..slots).map(|_| Mutex::default()).collect(),
        }
    }
}

impl<K: Watched> Recent<K> {
    fn slot(&self, uid: Option<&str>) -> Option<MutexGuard<'_, Option<Kept<K>>>> {
        let hash = foldhash::fast::FixedState::default().hash_one(uid?) as usize;
        let slot = self.slots.get(hash.checked_rem(self.slots.len())?)?;
        Some(slot.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps an object with this compact form, in the place of another.
    pub fn keep(&self, compact: &Compact<K>, object: &Arc<K>) {
        if let Some(mut slot) = self.slot(object.meta().uid.as_deref()) {
            *slot = Some(Kept {
                compact: compact.clone(),
                object: Arc::clone(object),
            });
        }
    }

    /// The object of this uid, compact form and resource version, if it is kept.
    pub fn get(&self, uid: Option<&str>, compact: &Compact<K>, version: Option<&str>) -> Option<Arc<K>> {
        let slot = self.slot(uid)?;
        let kept = slot.as_ref().filter(|kept| kept.compact.has_text_of(compact))?;
        // The compact form does not have the resource version.
        (kept.object.meta().resource_version.as_deref() == version).then(|| Arc::clone(&kept.object))
    }

    /// Drops the object of this uid, which is gone.
    pub fn forget(&self, uid: Option<&str>) {
        if let Some(mut slot) = self.slot(uid)
            && slot
                .as_ref()
                .is_some_and(|kept| kept.object.meta().uid.as_deref() == uid)
        {
            *slot = None;
        }
    }
}
