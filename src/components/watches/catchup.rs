//! Catching up: whether a watch has delivered the state at the moment when this process began to lead.
//!
//! A list that is requested after that moment (without a resource version, so that the API server reads the current state) names every object with
//! its version. The watch has caught up when it has delivered each of them in that version or a later one, and when objects that are not in the list
//! are deleted, or newer than the list. Versions are compared within one kind only, where Kubernetes orders them. Bookmarks would do as well, but
//! come once a minute for a kind without changes. Where versions are not numbers, or the watch does not come closer for a while, as it may be broken, a
//! list of whole objects replaces the watch. A list that is under way is not replaced, however long it takes: it would never end.

use std::collections::HashMap;

use serde::Deserialize;
use tokio::time::Instant;

use super::Key;
use crate::api::lenient::null_as_default;

/// A list of metadata.
#[derive(Debug, Default, Deserialize)]
pub struct Listing {
    #[serde(default)]
    metadata: ListMeta,
    /// `null` where there are none.
    #[serde(default, deserialize_with = "null_as_default")]
    items: Vec<Listed>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    metadata: Meta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Meta {
    namespace: String,
    name: String,
    resource_version: String,
}

impl Listing {
    /// The continue token of the next page.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        self.metadata.next.clone().filter(|next| !next.is_empty())
    }

    /// Adds the next page.
    pub fn extend(&mut self, page: Self) {
        self.metadata = page.metadata;
        self.items.extend(page.items);
    }

    /// The version of the list, and of each object in it; `None` if one of them is no number.
    fn versions(self) -> Option<(u64, HashMap<Key, u64>)> {
        let whole = self.metadata.resource_version.parse().ok()?;
        let of = |Listed { metadata }: Listed| {
            let version = metadata.resource_version.parse().ok()?;
            let Meta { namespace, name, .. } = metadata;
            Some((Key { namespace, name }, version))
        };
        let objects = self.items.into_iter().map(of).collect::<Option<_>>()?;
        Some((whole, objects))
    }
}

/// What the watch is still to deliver of an object.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// This version, or a later one.
    Version(u64),
    /// Its deletion, or the object again in a later version.
    Gone(u64),
}

/// A watch that is catching up.
#[derive(Debug)]
pub struct CatchUp {
    /// The terms of leadership that wait for it.
    pub terms: Vec<u64>,
    /// When it began.
    pub began: Instant,
    /// Missing objects; `None` before the list is complete.
    behind: Option<HashMap<Key, Wanted>>,
    /// Objects that became deleted or unreadable meanwhile, with their versions.
    passed: HashMap<Key, u64>,
    /// The watch lists again, from the beginning.
    relisting: bool,
    /// It has come closer since that was last asked.
    came_closer: bool,
    done: bool,
}

impl CatchUp {
    /// Starts catching up.
    #[must_use]
    pub fn begin(terms: Vec<u64>, now: Instant) -> Self {
        Self {
            terms,
            began: now,
            behind: None,
            passed: HashMap::new(),
            relisting: false,
            came_closer: false,
            done: false,
        }
    }

    /// The list is complete. `shown`: what the watch has delivered so far. False: versions cannot be compared.
    pub fn listed(&mut self, listing: Listing, shown: &HashMap<Key, Option<u64>>) -> bool {
        let Some((list_version, listed)) = listing.versions() else {
            return false;
        };
        let mut behind = HashMap::new();
        for (key, version) in shown {
            let Some(version) = *version else { return false };
            if !listed.contains_key(key) && version <= list_version {
                behind.insert(key.clone(), Wanted::Gone(list_version));
            }
        }
        for (key, wanted) in listed {
            let seen = shown.get(&key).copied().flatten().max(self.passed.get(&key).copied());
            if seen < Some(wanted) {
                behind.insert(key, Wanted::Version(wanted));
            }
        }
        self.done |= behind.is_empty();
        self.behind = Some(behind);
        true
    }

    /// The watch has delivered an object or its deletion.
    pub fn saw(&mut self, key: &Key, version: Option<&str>, still_there: bool) {
        let version = version.and_then(|version| version.parse().ok()).unwrap_or_default();
        let Some(behind) = &mut self.behind else {
            self.came_closer = true;
            if !still_there {
                self.passed.insert(key.clone(), version);
            }
            return;
        };
        let has_come = match behind.get(key) {
            Some(Wanted::Version(wanted)) => version >= *wanted,
            Some(Wanted::Gone(list)) => !still_there || version > *list,
            None => false,
        };
        self.came_closer |= behind.contains_key(key);
        if has_come {
            behind.remove(key);
        }
        self.done |= behind.is_empty();
    }

    /// The watch begins a list of its own: when it is complete, the watch has caught up.
    pub fn relisting(&mut self) {
        self.relisting = true;
    }

    /// That list is complete.
    pub fn relisted(&mut self) {
        self.done |= self.relisting;
    }

    /// Whether the watch has shown changes of missing objects since the last call, or any as long as it is not known which are missing. Changes of others
    /// do not count: a watch that has lost a change shows them, too.
    pub fn came_closer(&mut self) -> bool {
        std::mem::take(&mut self.came_closer)
    }

    /// Number of missing objects; `None` before the list is complete.
    #[must_use]
    pub fn behind(&self) -> Option<usize> {
        self.behind.as_ref().map(HashMap::len)
    }

    /// Whether the watch has caught up.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }
}

#[cfg(test)]
mod tests;
