//! The last known state of every watched object, for reads from any task. Written by the watches only.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use smol_str::SmolStr;
use tokio::sync::watch;

use super::kinds::Watched;
use super::recent::Recent;
use crate::components::compact::Compact;
use crate::kinds::{Kind, Object, kinds, types};

/// Namespace and name; the namespace is empty for cluster-scoped objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Namespace, or empty.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Key {
    /// The key of an object.
    #[must_use]
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        }
    }
}

/// Identifies a version of an object's spec: it does not change with the status. Kinds without generations have none.
#[derive(PartialEq, Eq)]
struct Stamp {
    uid: Option<String>,
    generation: i64,
}

impl Stamp {
    fn of(meta: &ObjectMeta) -> Option<Self> {
        let uid = meta.uid.clone();
        meta.generation.map(|generation| Self { uid, generation })
    }
}

/// An object in a store.
#[derive(Clone, Debug)]
pub enum Stored<K> {
    /// As a typed object.
    Whole(Arc<K>),
    /// Compressed, for kinds with many objects.
    Compact {
        /// Its uid.
        uid: Option<Box<str>>,
        /// Its resource version.
        version: Option<SmolStr>,
        /// Hashes of its labels, so that most objects without the selected labels need not be decompressed.
        labels: Box<[u32]>,
        /// The whole object.
        object: Compact<K>,
    },
}

impl<K: Watched> Stored<K> {
    /// The form in which the store keeps an object.
    fn of(object: K) -> (Self, Arc<K>) {
        let mut object = object;
        let json = K::COMPACT.then(|| Compact::json(&mut object)).flatten();
        let object = Arc::new(object);
        let Some(json) = json else {
            return (Self::Whole(Arc::clone(&object)), object);
        };
        let meta = object.meta();
        let labels = meta.labels.iter().flatten();
        let stored = Self::Compact {
            uid: meta.uid.as_deref().map(Box::from),
            version: meta.resource_version.as_deref().map(SmolStr::new),
            labels: labels.map(|(key, value)| hash(key, value)).collect(),
            object: Compact::of(&json),
        };
        (stored, object)
    }

    /// The object itself, which is decompressed unless it is kept.
    fn object(&self, recent: &Recent<K>) -> Option<Arc<K>> {
        match self {
            Self::Whole(object) => Some(Arc::clone(object)),
            Self::Compact {
                uid, object, version, ..
            } => recent.get(uid.as_deref(), object, version.as_deref()).or_else(|| {
                let mut object = object.object()?;
                object.meta_mut().resource_version = version.as_deref().map(str::to_owned);
                Some(Arc::new(object))
            }),
        }
    }

    /// Keeps the object itself.
    fn keep(&self, recent: &Recent<K>, itself: &Arc<K>) {
        if let Self::Compact { object, .. } = self {
            recent.keep(object, itself);
        }
    }

    /// Whether it may have all of these labels. False for most that do not.
    fn may_have(&self, wanted: &[(&str, &str)]) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Compact { labels, .. } => wanted.iter().all(|(key, value)| labels.contains(&hash(key, value))),
        }
    }

    /// Its uid.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        match self {
            Self::Whole(object) => object.meta().uid.as_deref(),
            Self::Compact { uid, .. } => uid.as_deref(),
        }
    }

    /// Its resource version.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        match self {
            Self::Whole(object) => object.meta().resource_version.as_deref(),
            Self::Compact { version, .. } => version.as_deref(),
        }
    }
}

fn hash(key: &str, value: &str) -> u32 {
    // Half of the hash is enough, as every match is compared afterwards.
    foldhash::fast::FixedState::default().hash_one((key, value)) as u32
}

type Objects<K> = HashMap<Box<str>, HashMap<Box<str>, Stored<K>>>;

/// All objects of one kind, as last seen.
#[derive(Debug)]
pub struct Store<K> {
    objects: RwLock<Objects<K>>,
    /// Number of changes so far. It changes while `objects` is locked.
    changes_made: AtomicU64,
    recent: Arc<Recent<K>>,
    changes: watch::Sender<()>,
    listed: watch::Sender<bool>,
}

impl<K: Watched> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::default(),
            changes_made: AtomicU64::default(),
            recent: Arc::default(),
            changes: watch::Sender::default(),
            listed: watch::Sender::default(),
        }
    }
}

impl<K: Watched> Store<K> {
    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        self.objects.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a change that is sent to the components.
    fn change(&self) -> RwLockWriteGuard<'_, Objects<K>> {
        let objects = self.write();
        self.changes_made.fetch_add(1, Ordering::Relaxed);
        objects
    }

    /// Number of changes so far.
    pub(super) fn changes_made(&self) -> u64 {
        self.changes_made.load(Ordering::Relaxed)
    }

    fn stored(&self, namespace: &str, name: &str) -> Option<Stored<K>> {
        self.read().get(namespace)?.get(name).cloned()
    }

    /// A stored object, which may be read again soon.
    fn read_again(&self, stored: &Stored<K>) -> Option<Arc<K>> {
        let object = stored.object(&self.recent)?;
        stored.keep(&self.recent, &object);
        Some(object)
    }

    /// An object by namespace (empty for cluster-scoped kinds) and name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read_again(&self.stored(namespace, name)?)
    }

    /// The same, if it has this uid.
    pub fn get_same(&self, namespace: &str, name: &str, uid: Option<&str>) -> Option<Arc<K>> {
        let stored = self.stored(namespace, name)?;
        (stored.uid() == uid).then(|| self.read_again(&stored))?
    }

    /// The same, if it has another uid.
    pub(super) fn get_other(&self, key: &Key, uid: Option<&str>) -> Option<Arc<K>> {
        let stored = self.stored(&key.namespace, &key.name)?;
        (stored.uid() != uid).then(|| stored.object(&self.recent))?
    }

    /// The uid of an object, which is not read for that.
    #[must_use]
    pub fn uid(&self, namespace: &str, name: &str) -> Option<String> {
        let objects = self.read();
        objects.get(namespace)?.get(name)?.uid().map(str::to_owned)
    }

    /// The resource version of an object, which is not read for that.
    #[must_use]
    pub fn version(&self, namespace: &str, name: &str) -> Option<String> {
        let objects = self.read();
        objects.get(namespace)?.get(name)?.version().map(str::to_owned)
    }

    /// Whether there is an object of that namespace, name and uid.
    #[must_use]
    pub fn has(&self, namespace: &str, name: &str, uid: &str) -> bool {
        self.uid(namespace, name).as_deref() == Some(uid)
    }

    /// Whether an object is stored in the version of this metadata.
    pub(super) fn is_at(&self, key: &Key, meta: &ObjectMeta) -> bool {
        let version = meta.resource_version.as_deref();
        let objects = self.read();
        let stored = objects.get(&*key.namespace).and_then(|named| named.get(&*key.name));
        version.is_some()
            && stored.is_some_and(|stored| stored.uid() == meta.uid.as_deref() && stored.version() == version)
    }

    /// Whether there is an object of that namespace and name.
    #[must_use]
    pub fn contains(&self, namespace: &str, name: &str) -> bool {
        self.read().get(namespace).is_some_and(|named| named.contains_key(name))
    }

    /// Every object as it is stored, in order of namespace and name, and the number of changes that they include.
    fn all(&self) -> (Vec<Stored<K>>, u64) {
        let objects = self.read();
        let changes = self.changes_made();
        let mut all: Vec<_> = objects
            .iter()
            .flat_map(|(namespace, named)| named.iter().map(move |(name, stored)| ((namespace, name), stored)))
            .collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        (all.into_iter().map(|(_, stored)| stored.clone()).collect(), changes)
    }

    /// Every object as it is now, in order of namespace and name. Compact ones are decompressed one at a time by the iterator.
    pub fn objects(&self) -> impl Iterator<Item = Arc<K>> + Send + use<K> {
        self.numbered().0
    }

    /// The same, and the number of changes that they include.
    fn numbered(&self) -> (impl Iterator<Item = Arc<K>> + Send + use<K>, u64) {
        // Those that are kept are not replaced by these.
        let recent = Arc::clone(&self.recent);
        let (all, changes) = self.all();
        (
            all.into_iter().filter_map(move |stored| stored.object(&recent)),
            changes,
        )
    }

    /// Every object, in order of namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        self.objects().collect()
    }

    /// The key of every object, in any order.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.by_key(|key, _| key)
    }

    /// The objects of a namespace that fit, in order of name. Those that fit have all of these labels: others are not read, and of these not more than `most`.
    #[must_use]
    pub fn select(
        &self,
        namespace: &str,
        labels: &[(&str, &str)],
        most: usize,
        fits: impl Fn(&K) -> bool,
    ) -> Vec<Arc<K>> {
        let mut named: Vec<_> = {
            let objects = self.read();
            let named = objects.get(namespace).into_iter().flatten();
            let named = named.filter(|(_, stored)| stored.may_have(labels));
            named.map(|(name, stored)| (name.clone(), stored.clone())).collect()
        };
        named.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        let objects = named.iter().take(most);
        let objects = objects.filter_map(|(_, stored)| stored.object(&self.recent));
        objects.filter(|object| fits(object)).collect()
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().values().map(HashMap::len).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Notifies when an object was created or deleted, or its spec changed; many changes may become one notification. Changes of status are
    /// notified for kinds that are kept compact only.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Waits until the first list is complete.
    pub async fn listed(&self) {
        // `self` has the sender, so the channel stays open.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// The first list is complete.
    pub(super) fn set_listed(&self) {
        self.listed.send_replace(true);
    }

    /// Removes and returns the objects whose key does not match.
    pub(super) fn retain(&self, keep: impl Fn(&Key) -> bool) -> Vec<Arc<K>> {
        let mut objects = self.change();
        let mut gone = Vec::new();
        for (namespace, named) in objects.iter_mut() {
            let mut key = Key {
                namespace: namespace.to_string(),
                name: String::new(),
            };
            named.retain(|name, object| {
                key.name.clear();
                key.name.push_str(name);
                let keep = keep(&key);
                if !keep {
                    gone.push((key.clone(), object.clone()));
                }
                keep
            });
        }
        objects.retain(|_, named| !named.is_empty());
        drop(objects);
        if !gone.is_empty() {
            self.changes.send_replace(());
        }
        gone.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        gone.iter().filter_map(|(_, stored)| self.last_read(stored)).collect()
    }

    /// An object that is stored no more.
    fn last_read(&self, gone: &Stored<K>) -> Option<Arc<K>> {
        let object = gone.object(&self.recent);
        self.recent.forget(gone.uid());
        object
    }

    /// Removes and returns an object.
    pub fn remove(&self, key: &Key) -> Option<Arc<K>> {
        let mut objects = self.change();
        let named = objects.get_mut(&*key.namespace)?;
        let gone = named.remove(&*key.name)?;
        if named.is_empty() {
            objects.remove(&*key.namespace);
        }
        drop(objects);
        self.changes.send_replace(());
        self.last_read(&gone)
    }

    /// The version of every object.
    pub(super) fn versions(&self) -> HashMap<Key, Option<String>> {
        self.by_key(|key, stored| (key, stored.version().map(str::to_owned)))
    }

    fn by_key<T, C: FromIterator<T>>(&self, make: impl Fn(Key, &Stored<K>) -> T) -> C {
        let objects = self.read();
        let all = objects.iter().flat_map(|(namespace, named)| {
            named.iter().map(|(name, stored)| {
                let (namespace, name) = (namespace.to_string(), name.to_string());
                (Key { namespace, name }, stored)
            })
        });
        all.map(|(key, stored)| make(key, stored)).collect()
    }

    /// Updates the resource version of a stored object that is equal otherwise; false if it differs or is new. Only objects of compact kinds are
    /// compared.
    pub(super) fn update_version(&self, key: &Key, object: &mut K) -> bool {
        if !K::COMPACT || !self.contains(&key.namespace, &key.name) {
            return false;
        }
        let Some(json) = Compact::json(object) else {
            return false;
        };
        let mut objects = self.write();
        let named = objects.get_mut(&*key.namespace);
        match named.and_then(|named| named.get_mut(&*key.name)) {
            Some(Stored::Compact {
                version, object: known, ..
            }) if known.is(&json) => {
                *version = object.meta().resource_version.as_deref().map(SmolStr::new);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Inserts an object; returns it with the one that it replaces.
    pub fn insert(&self, object: K) -> (Arc<K>, Option<Stored<K>>) {
        let Key { namespace, name } = Key::of(object.meta());
        let (stored, object) = Stored::of(object);
        stored.keep(&self.recent, &object);
        let mut objects = self.change();
        let named = objects.entry(namespace.into()).or_default();
        let previous = named.insert(name.into(), stored);
        drop(objects);
        // Annotations do not change the generation.
        let is_same = |previous: &K| {
            Stamp::of(previous.meta()) == Stamp::of(object.meta())
                && previous.meta().annotations == object.meta().annotations
        };
        match &previous {
            Some(Stored::Whole(previous)) if object.meta().generation.is_some() && is_same(previous) => {}
            _ => {
                self.changes.send_replace(());
            }
        }
        (object, previous)
    }
}

/// How many changes of each kind a set of objects includes.
pub type Included = BTreeMap<Kind, u64>;

macro_rules! stores {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
        /// The stores of all watched kinds.
        #[derive(Debug, Default)]
        pub struct Stores {
            $($(#[$doc])* pub $store: Store<types::$kind>,)*
        }

        /// Number of objects of each kind.
        #[derive(Debug, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct Counts {
            $($store: usize,)*
        }

        impl Stores {
            /// Every object as it is now, kind by kind, in the order of their dependencies. Compact ones are decompressed one at a time by the iterator.
            pub fn objects(&self) -> impl Iterator<Item = Object> + Send + use<> {
                self.numbered().0
            }

            /// Calls a function with each object as it is now, in that order; returns how many changes of each kind they include.
            pub fn tell_all(&self, tell: &mut dyn FnMut(Object)) -> Included {
                let (all, included) = self.numbered();
                all.for_each(tell);
                included
            }

            fn numbered(&self) -> (impl Iterator<Item = Object> + Send + use<>, Included) {
                let all = std::iter::empty();
                let mut included = Included::new();
                $(
                    let (objects, changes) = self.$store.numbered();
                    included.insert(Kind::$kind, changes);
                    let all = all.chain(objects.map(Object::$kind));
                )*
                (all, included)
            }

            /// Number of objects of each kind.
            #[must_use]
            pub fn counts(&self) -> Counts {
                Counts { $($store: self.$store.len(),)* }
            }
        }
    };
}
kinds!(stores);
