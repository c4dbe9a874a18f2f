//! The last known state of every watched object, for reads from any task. Written by the watches only.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Serialize;
use tokio::sync::watch;

use crate::kinds::{Object, kinds, types};

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

/// What changes with the spec and not with the status. Kinds without generations have none.
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

type Objects<K> = HashMap<String, HashMap<String, Arc<K>>>;

/// All objects of one kind, as last seen.
#[derive(Debug)]
pub struct Store<K> {
    objects: RwLock<Objects<K>>,
    changes: watch::Sender<()>,
    listed: watch::Sender<bool>,
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self {
            objects: RwLock::default(),
            changes: watch::Sender::default(),
            listed: watch::Sender::default(),
        }
    }
}

impl<K> Store<K> {
    fn read(&self) -> RwLockReadGuard<'_, Objects<K>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object by namespace (empty for cluster-scoped kinds) and name.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.read()
            .get(namespace)
            .and_then(|objects| objects.get(name))
            .cloned()
    }

    /// Every object, in order of namespace and name.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<K>> {
        let objects = self.read();
        let mut all: Vec<_> = objects
            .iter()
            .flat_map(|(ns, named)| named.iter().map(move |(name, k)| ((ns, name), k)))
            .collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        all.into_iter().map(|(_, object)| Arc::clone(object)).collect()
    }

    /// The matching objects of a namespace, in order of name.
    #[must_use]
    pub fn select(&self, namespace: &str, fits: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.read();
        let named = objects.get(namespace).into_iter().flatten();
        let mut found: Vec<_> = named.filter(|(_, object)| fits(object)).collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        found.into_iter().map(|(_, object)| Arc::clone(object)).collect()
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

    /// Notifies when an object was created or deleted, or its spec changed; many changes may become one notification. Changes of status are not
    /// notified.
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
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        for (namespace, named) in objects.iter_mut() {
            let mut key = Key {
                namespace: namespace.clone(),
                name: String::new(),
            };
            named.retain(|name, object| {
                key.name.clone_from(name);
                let keep = keep(&key);
                if !keep {
                    gone.push((key.clone(), Arc::clone(object)));
                }
                keep
            });
        }
        drop(objects);
        if !gone.is_empty() {
            self.changes.send_replace(());
        }
        gone.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        gone.into_iter().map(|(_, object)| object).collect()
    }

    /// Removes and returns an object.
    pub(super) fn remove(&self, key: &Key) -> Option<Arc<K>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let gone = objects.get_mut(&key.namespace)?.remove(&key.name)?;
        drop(objects);
        self.changes.send_replace(());
        Some(gone)
    }
}

impl<K: Resource> Store<K> {
    /// The version of every object.
    pub(super) fn versions(&self) -> HashMap<Key, Option<String>> {
        let objects = self.read();
        let all = objects.values().flat_map(HashMap::values);
        all.map(|object| (Key::of(object.meta()), object.meta().resource_version.clone()))
            .collect()
    }

    /// Inserts an object; returns the one that it replaces.
    pub fn insert(&self, object: Arc<K>) -> Option<Arc<K>> {
        let key = Key::of(object.meta());
        let (stamp, shown) = (Stamp::of(object.meta()), Arc::clone(&object));
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let previous = objects.entry(key.namespace).or_default().insert(key.name, object);
        drop(objects);
        // Annotations do not change the generation.
        let is_same = |previous: &Arc<K>| {
            Stamp::of(previous.meta()) == stamp && previous.meta().annotations == shown.meta().annotations
        };
        if stamp.is_none() || !previous.as_ref().is_some_and(is_same) {
            self.changes.send_replace(());
        }
        previous
    }
}

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
            /// Every object, kind by kind, in the order of their dependencies.
            pub fn each(&self, tell: &mut dyn FnMut(Object)) {
                $(for object in self.$store.list() {
                    tell(Object::$kind(object));
                })*
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
