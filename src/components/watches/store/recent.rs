//! The compact objects that were inserted or read last, decoded. Several components read an object within a moment of its change, one after another.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use kube::Resource;

use crate::components::compact::Compact;

/// Places, each for one object.
const PLACES: usize = 256;
/// Larger objects, in bytes of their JSON, are not kept: a tenant can write many.
const BYTES_MAX: usize = 8 << 10;

/// See the module. An object has its place by namespace and name.
#[derive(Debug)]
pub struct Recent<K> {
    /// Empty for kinds that are not kept compact.
    places: OnceLock<Box<[Place<K>]>>,
}

type Place<K> = Mutex<Option<Decoded<K>>>;

/// An object, and the form in which the store had it.
#[derive(Debug)]
struct Decoded<K> {
    stored: Compact<K>,
    object: Arc<K>,
}

impl<K> Default for Recent<K> {
    fn default() -> Self {
        Self {
            places: OnceLock::new(),
        }
    }
}

impl<K: Resource> Recent<K> {
    /// The object of this compact form and resource version, if it is known.
    pub fn get(&self, namespace: &str, name: &str, stored: &Compact<K>, version: Option<&str>) -> Option<Arc<K>> {
        let place = self.place(namespace, name)?;
        let decoded = place.as_ref().filter(|decoded| decoded.stored.is_same(stored))?;
        let is_current = decoded.object.meta().resource_version.as_deref() == version;
        is_current.then(|| Arc::clone(&decoded.object))
    }

    /// Keeps an object.
    pub fn put(&self, namespace: &str, name: &str, stored: &Compact<K>, object: &Arc<K>) {
        if stored.bytes() > BYTES_MAX {
            return;
        }
        let decoded = Decoded {
            stored: stored.clone(),
            object: Arc::clone(object),
        };
        if let Some(mut place) = self.place(namespace, name) {
            let before = place.replace(decoded);
            // The object that was there is dropped outside the lock.
            drop(place);
            drop(before);
        }
    }

    fn place(&self, namespace: &str, name: &str) -> Option<MutexGuard<'_, Option<Decoded<K>>>> {
        let hash = foldhash::fast::FixedState::default().hash_one((namespace, name));
        let places = self
            .places
            .get_or_init(|| (0..PLACES).map(|_| Mutex::default()).collect());
        let place = places.get(hash as usize % PLACES)?;
        Some(place.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
