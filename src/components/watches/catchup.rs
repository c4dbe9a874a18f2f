//! Proof that a watch has shown everything that was current at some moment: when this process began to lead.
//!
//! A list that is made after that moment (without a resource version, so that the API server answers no older state) names every
//! object with its version. The watch has caught up when each of them has been shown in that version or a later one, and when
//! whatever the list does not name is gone, or from after the list. Versions are compared within one kind only, where Kubernetes
//! says that they are ordered; those of different kinds, such as the Lease's, need not be. Bookmarks would say the same, but of a
//! quiet kind they come once a minute. Where versions are no numbers, a list of whole objects takes the place of the watch instead: so it does
//! where the watch does not catch up in time, for it may be dead.

use std::collections::HashMap;
use std::time::Instant;

use serde::Deserialize;

use super::Key;
use crate::api::lenient::null_as_default;

/// What a list of metadata says.
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
    /// Where the next page begins.
    #[must_use]
    pub fn next(&self) -> Option<String> {
        self.metadata.next.clone().filter(|next| !next.is_empty())
    }

    /// Adds the next page.
    pub fn extend(&mut self, page: Self) {
        self.metadata.next = page.metadata.next;
        self.items.extend(page.items);
    }

    /// The version of the list, and of each object in it; none if one of them is no number.
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

/// What the watch is still to show of an object.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// This version, or a later one.
    Version(u64),
    /// That it is gone; or it is there again, in a version after this one.
    Gone(u64),
}

/// A watch that is to catch up.
#[derive(Debug)]
pub struct CatchUp {
    /// The terms of leadership that wait for it.
    pub terms: Vec<u64>,
    /// When it began.
    pub began: Instant,
    /// What the watch is still to show; none before the list is there.
    behind: Option<HashMap<Key, Wanted>>,
    /// What the watch has shown to be gone or unreadable meanwhile, in which version.
    passed: HashMap<Key, u64>,
    /// The watch lists anew, from the beginning.
    relisting: bool,
    done: bool,
}

impl CatchUp {
    /// From now on the watch is looked at.
    #[must_use]
    pub fn begin(terms: Vec<u64>, now: Instant) -> Self {
        Self {
            terms,
            began: now,
            behind: None,
            passed: HashMap::new(),
            relisting: false,
            done: false,
        }
    }

    /// The list is there. `shown` is what the watch has shown so far. False: its versions say nothing.
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

    /// The watch has shown an object, or that it is gone.
    pub fn saw(&mut self, key: &Key, version: Option<&str>, still_there: bool) {
        let version = version.and_then(|version| version.parse().ok()).unwrap_or_default();
        let Some(behind) = &mut self.behind else {
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
        if has_come {
            behind.remove(key);
        }
        self.done |= behind.is_empty();
    }

    /// The watch begins a list of its own: once it is complete, it has shown everything.
    pub fn relisting(&mut self) {
        self.relisting = true;
    }

    /// Such a list is complete.
    pub fn relisted(&mut self) {
        self.done |= self.relisting;
    }

    /// How many objects the watch is still to show; none before that is known.
    #[must_use]
    pub fn behind(&self) -> Option<usize> {
        self.behind.as_ref().map(HashMap::len)
    }

    /// Whether everything has been shown.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }
}

#[cfg(test)]
mod tests;
