//! A reverse index: keys by the key that they refer to. Unreferenced keys take no memory.

use std::collections::{BTreeMap, BTreeSet};

/// Keys by the key that they refer to.
#[derive(Debug, Default)]
pub struct Links(BTreeMap<Box<str>, BTreeSet<Box<str>>>);

impl Links {
    /// Adds a reference from `from` to `to`.
    pub fn add(&mut self, to: impl Into<Box<str>>, from: &str) {
        self.0.entry(to.into()).or_default().insert(from.into());
    }

    /// Removes the reference from `from` to `to`.
    pub fn remove(&mut self, to: &str, from: &str) {
        if let Some(all) = self.0.get_mut(to) {
            all.remove(from);
            if all.is_empty() {
                self.0.remove(to);
            }
        }
    }

    /// Removes and returns all references to a key, in order.
    pub fn take(&mut self, key: &str) -> BTreeSet<Box<str>> {
        self.0.remove(key).unwrap_or_default()
    }

    /// All that refer to a key, in order.
    pub fn to(&self, key: &str) -> impl Iterator<Item = &Box<str>> + use<'_> {
        self.0.get(key).into_iter().flatten()
    }

    /// All that refer to keys which meet a condition, in order, each once.
    pub fn to_those(&self, meets: impl Fn(&str) -> bool) -> Vec<Box<str>> {
        let met = self.0.iter().filter(|(key, _)| meets(key));
        let all: BTreeSet<&Box<str>> = met.flat_map(|(_, from)| from).collect();
        all.into_iter().cloned().collect()
    }

    /// There are no references.
    #[cfg(test)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
