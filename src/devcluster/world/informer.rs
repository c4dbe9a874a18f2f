//! One shared watch per kind: a store of what the API server holds, and the changes to it, in order.
//!
//! The world's own writes can be put into the store before the watch brings them ([`Informer::observe`]), so that a controller
//! reads its own writes and never acts twice on a stale view. Resource versions decide which of two views is newer.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use futures::{Stream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher;
use tokio::sync::watch;

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub ns: String,
    pub name: String,
}

impl Key {
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            ns: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }

    pub fn new(ns: &str, name: &str) -> Self {
        Self {
            ns: ns.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ns.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.ns, self.name)
        }
    }
}

/// One object before and after; never both absent.
pub(super) struct Change<'a, K> {
    pub key: &'a Key,
    pub old: Option<&'a Arc<K>>,
    pub new: Option<&'a Arc<K>>,
}

impl<K> Change<'_, K> {
    /// The object as it is, or as it last was.
    pub fn newest(&self) -> Option<&Arc<K>> {
        self.new.or(self.old)
    }
}

type Handler<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// The shared view of one kind.
pub(super) struct Informer<K> {
    store: RwLock<Store<K>>,
    handlers: RwLock<Vec<Handler<K>>>,
    /// Held from the change of the store to the end of its handlers, so that all handlers see all changes in the same order.
    order: Mutex<()>,
    synced: watch::Sender<bool>,
}

struct Store<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Controller's uid → what it controls.
    controlled: HashMap<String, BTreeSet<Key>>,
    /// The newest resource version that the watch has brought.
    newest: u64,
    /// `None` between lists.
    listing: Option<Listing<K>>,
}

/// A list that is being read.
struct Listing<K> {
    objects: Vec<K>,
    /// Keys that the world wrote meanwhile.
    written: HashSet<Key>,
}

impl<K> Informer<K>
where
    K: Resource + Clone + Debug + Send + Sync + 'static,
{
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            store: RwLock::new(Store {
                objects: BTreeMap::new(),
                controlled: HashMap::new(),
                newest: 0,
                listing: None,
            }),
            handlers: RwLock::new(Vec::new()),
            order: Mutex::new(()),
            synced: watch::Sender::new(false),
        })
    }

    /// Calls `handler` on every change from here on. It must be quick and must not write to this informer.
    pub fn on_change(&self, handler: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.handlers
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Box::new(handler));
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    pub fn list(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// What the object with this uid controls, by key.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let store = self.read();
        store
            .controlled
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|key| store.objects.get(key).cloned())
            .collect()
    }

    /// Waits for the first complete list.
    pub async fn synced(&self) {
        // The sender lives as long as self, so this cannot fail.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Puts the response of an own write into the store, unless the store has a newer version.
    pub fn observe(&self, object: K) {
        self.apply(object, false);
    }

    /// Removes an object from the store after an own deletion.
    pub fn forget(&self, object: &K) {
        self.remove(object);
    }

    /// Feeds the store from a watch until the watch ends, which it never does by itself.
    pub async fn run<S, V>(&self, events: S)
    where
        S: Stream<Item = Result<watcher::Event<V>, watcher::Error>>,
        V: Into<K>,
    {
        let mut events = std::pin::pin!(events.default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Init) => {
                    self.write().listing = Some(Listing {
                        objects: Vec::new(),
                        written: HashSet::new(),
                    });
                }
                Ok(watcher::Event::InitApply(object)) => self.listed(object.into()),
                Ok(watcher::Event::Apply(object)) => self.apply(object.into(), true),
                Ok(watcher::Event::Delete(object)) => {
                    let object = object.into();
                    self.note_version(&object);
                    self.remove(&object);
                }
                Ok(watcher::Event::InitDone) => self.finish_list(),
                Err(error) => tracing::warn!(%error, "watch of the simulated world failed, retrying"),
            }
        }
    }

    fn listed(&self, object: K) {
        if let Some(listing) = &mut self.write().listing {
            listing.objects.push(object);
        }
    }

    fn apply(&self, object: K, from_watch: bool) {
        let _order = self.order();
        let key = Key::of(object.meta());
        let version = version(object.meta());
        let object = Arc::new(object);
        let mut store = self.write();
        if let Some(listing) = &mut store.listing {
            listing.written.insert(key.clone());
        }
        let known = store.objects.get(&key).map(|known| self::version(known.meta()));
        // The watch is past the version of our write and does not have the object: it was deleted since.
        let passed_by = !from_watch && known.is_none() && version <= store.newest;
        if from_watch {
            store.newest = store.newest.max(version);
        }
        if passed_by || known.is_some_and(|known| version <= known) {
            return;
        }
        let old = store.insert(key.clone(), Arc::clone(&object));
        drop(store);
        self.notify(&Change {
            key: &key,
            old: old.as_ref(),
            new: Some(&object),
        });
    }

    fn note_version(&self, object: &K) {
        let mut store = self.write();
        store.newest = store.newest.max(version(object.meta()));
    }

    fn remove(&self, object: &K) {
        let _order = self.order();
        let key = Key::of(object.meta());
        let mut store = self.write();
        let same = store
            .objects
            .get(&key)
            .is_some_and(|known| known.meta().uid == object.meta().uid);
        let old = if same { store.take(&key) } else { None };
        drop(store);
        if let Some(old) = old {
            self.notify(&Change {
                key: &key,
                old: Some(&old),
                new: None,
            });
        }
    }

    /// Drops what the list that just ended did not hold, applies what it held in the order of the changes, and wakes those who wait for the first list. Like a real
    /// kubelet, ours admits no new pods before those are gone that were deleted.
    fn finish_list(&self) {
        let Some(Listing { mut objects, written }) = self.write().listing.take() else {
            return;
        };
        let listed: HashSet<Key> = objects.iter().map(|object| Key::of(object.meta())).collect();
        let gone: Vec<Arc<K>> = {
            let store = self.read();
            let gone = store
                .objects
                .iter()
                .filter(|(key, _)| !listed.contains(key) && !written.contains(key));
            gone.map(|(_, object)| Arc::clone(object)).collect()
        };
        for object in gone {
            self.remove(&object);
        }
        objects.sort_by_key(|object| version(object.meta()));
        for object in objects {
            self.apply(object, true);
        }
        self.synced.send_replace(true);
    }

    fn notify(&self, change: &Change<'_, K>) {
        for handler in self.handlers.read().unwrap_or_else(PoisonError::into_inner).iter() {
            handler(change);
        }
    }

    fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Store<K>> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store<K>> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Resource> Store<K> {
    fn insert(&mut self, key: Key, object: Arc<K>) -> Option<Arc<K>> {
        let old = self.take(&key);
        if let Some(owner) = controller_of(object.meta()) {
            self.controlled
                .entry(owner.uid.clone())
                .or_default()
                .insert(key.clone());
        }
        self.objects.insert(key, object);
        old
    }

    fn take(&mut self, key: &Key) -> Option<Arc<K>> {
        let old = self.objects.remove(key)?;
        if let Some(owner) = controller_of(old.meta())
            && let Some(controlled) = self.controlled.get_mut(&owner.uid)
        {
            controlled.remove(key);
            if controlled.is_empty() {
                self.controlled.remove(&owner.uid);
            }
        }
        Some(old)
    }
}

/// The owner that controls this object, if any.
pub(super) fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// The resource version as the number that it is on every API server since Kubernetes 1.35.
fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
