//! The owner graph over all kinds. Synchronous; returns actions and performs none.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::discovery::Scope;
use kube::core::{ApiResource, discovery::ApiCapabilities};

use crate::devcluster::world::informer::Key;

/// The finalizer of foreground deletion.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphaning deletion.
pub(super) const ORPHAN: &str = "orphan";

/// The uid of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::devcluster::world) struct Uid(pub String);

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A kind of object as the API server serves it.
#[derive(Debug)]
pub(in crate::devcluster::world) struct Kind {
    pub resource: ApiResource,
    pub namespaced: bool,
}

impl Kind {
    pub fn of(resource: ApiResource, capabilities: &ApiCapabilities) -> Self {
        Self {
            resource,
            namespaced: capabilities.scope == Scope::Namespaced,
        }
    }
}

/// The metadata of an object.
#[derive(Clone, Debug)]
pub(in crate::devcluster::world) struct Entry {
    pub kind: Arc<Kind>,
    pub key: Key,
    pub owners: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

/// The action for one object.
#[derive(Debug)]
pub(in crate::devcluster::world) enum Plan {
    Nothing,
    /// Remove this owner from these dependents' references, then remove the finalizer.
    Orphan {
        dependents: Vec<Uid>,
    },
    /// All blocking dependents are gone: remove the finalizer.
    LetGo {
        finalizer: &'static str,
    },
    /// Process these dependents first.
    Await {
        dependents: Vec<Uid>,
    },
    /// Check its owners: those that exist, those in foreground deletion, and unknown ones.
    CheckOwners {
        live: Vec<OwnerReference>,
        waiting: Vec<OwnerReference>,
        unknown: Vec<OwnerReference>,
        has_dependents: bool,
    },
}

/// All objects by uid, with their dependents.
#[derive(Default)]
pub(in crate::devcluster::world) struct Graph {
    entries: HashMap<Uid, Entry>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
    by_namespace: HashMap<String, BTreeSet<Uid>>,
}

impl Graph {
    /// Adds or updates an object; returns the objects to process because of it.
    pub fn observe(&mut self, kind: &Arc<Kind>, meta: &ObjectMeta) -> Vec<Uid> {
        let Some(uid) = meta.uid.clone().map(Uid) else {
            return Vec::new();
        };
        let entry = Entry {
            kind: Arc::clone(kind),
            key: Key::of(meta),
            owners: meta.owner_references.clone().unwrap_or_default(),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
        };
        self.unlink(&uid);
        for owner in &entry.owners {
            self.dependents
                .entry(Uid(owner.uid.clone()))
                .or_default()
                .insert(uid.clone());
        }
        if !entry.key.ns.is_empty() {
            self.by_namespace
                .entry(entry.key.ns.clone())
                .or_default()
                .insert(uid.clone());
        }
        let held_back = entry.deleting && entry.finalizers.iter().any(|f| f == FOREGROUND || f == ORPHAN);
        let relevant = held_back || !entry.owners.is_empty();
        self.entries.insert(uid.clone(), entry);
        if relevant { vec![uid] } else { Vec::new() }
    }

    /// Removes a deleted object; returns the objects to process because of it: its dependents, and owners that waited for it.
    pub fn remove(&mut self, uid: &Uid) -> Vec<Uid> {
        self.unlink(uid);
        let owners = self.entries.remove(uid).map(|entry| entry.owners).unwrap_or_default();
        let waiting = owners
            .into_iter()
            .map(|owner| Uid(owner.uid))
            .filter(|owner| self.entries.get(owner).is_some_and(|entry| entry.deleting));
        self.dependents_of(uid).into_iter().chain(waiting).collect()
    }

    pub fn entry(&self, uid: &Uid) -> Option<Entry> {
        self.entries.get(uid).cloned()
    }

    /// All objects of a namespace.
    pub fn in_namespace(&self, ns: &str) -> Vec<(Uid, Entry)> {
        let uids = self.by_namespace.get(ns).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.clone(), self.entries.get(uid)?.clone())))
            .collect()
    }

    /// The action for an object.
    pub fn plan(&self, uid: &Uid) -> Plan {
        let Some(entry) = self.entries.get(uid) else {
            return Plan::Nothing;
        };
        let held_by = |finalizer: &str| entry.deleting && entry.finalizers.iter().any(|own| own == finalizer);
        if held_by(ORPHAN) {
            return Plan::Orphan {
                dependents: self.dependents_of(uid),
            };
        }
        if held_by(FOREGROUND) {
            let blocking = self.blocking_dependents(uid);
            return if blocking.is_empty() {
                Plan::LetGo { finalizer: FOREGROUND }
            } else {
                Plan::Await { dependents: blocking }
            };
        }
        if entry.deleting || entry.owners.is_empty() {
            return Plan::Nothing;
        }
        let (mut live, mut waiting, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for owner in entry.owners.clone() {
            match self.entries.get(&Uid(owner.uid.clone())) {
                None => unknown.push(owner),
                Some(known) if known.deleting && known.finalizers.iter().any(|f| f == FOREGROUND) => {
                    waiting.push(owner);
                }
                Some(_) => live.push(owner),
            }
        }
        if waiting.is_empty() && unknown.is_empty() {
            return Plan::Nothing;
        }
        Plan::CheckOwners {
            live,
            waiting,
            unknown,
            has_dependents: !self.dependents_of(uid).is_empty(),
        }
    }

    /// Dependents that block their owner's deletion.
    fn blocking_dependents(&self, uid: &Uid) -> Vec<Uid> {
        let blocks = |dependent: &Uid| {
            let owners = self
                .entries
                .get(dependent)
                .map(|entry| entry.owners.as_slice())
                .unwrap_or_default();
            owners
                .iter()
                .any(|owner| owner.uid == uid.0 && owner.block_owner_deletion == Some(true))
        };
        self.dependents_of(uid).into_iter().filter(blocks).collect()
    }

    fn dependents_of(&self, uid: &Uid) -> Vec<Uid> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    fn unlink(&mut self, uid: &Uid) {
        let Some(entry) = self.entries.get(uid) else { return };
        for owner in &entry.owners {
            drop_from(&mut self.dependents, &Uid(owner.uid.clone()), uid);
        }
        let ns = entry.key.ns.clone();
        drop_from(&mut self.by_namespace, &ns, uid);
    }
}

fn drop_from<K: std::hash::Hash + Eq>(sets: &mut HashMap<K, BTreeSet<Uid>>, key: &K, uid: &Uid) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(uid);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
