//! A hash set of values that contain their key.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// A value with a key that does not change while it is in a [`Registry`].
pub trait Keyed {
    /// The key.
    type Key: ?Sized + Eq + Hash;
    /// The key.
    fn key(&self) -> &Self::Key;
}

/// Values with unique keys. Never iterated where order matters. Meant for values of the size of a pointer, so that
/// the table stays small and look-ups touch little memory.
#[derive(Clone, Debug)]
pub struct Registry<T> {
    table: HashTable<T>,
    hasher: RandomState,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self {
            table: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<T: Keyed> Registry<T> {
    /// Reserves memory for so many more values.
    pub fn reserve(&mut self, more: usize) {
        let hasher = &self.hasher;
        self.table.reserve(more, |thing| hasher.hash_one(thing.key()));
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        if self.table.is_empty() {
            return None;
        }
        self.table.find(self.hasher.hash_one(key), |thing| thing.key() == key)
    }

    /// The value of a key; inserted first if there is none.
    pub fn get_or_insert_with(&mut self, key: &T::Key, make: impl FnOnce() -> T) -> &mut T {
        match self.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(make()).into_mut(),
        }
    }

    /// The value of a key, mutable.
    pub fn get_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        self.table
            .find_mut(self.hasher.hash_one(key), |thing| thing.key() == key)
    }

    /// Inserts a value; returns the one that it replaces.
    pub fn insert(&mut self, thing: T) -> Option<T> {
        match self.entry(thing.key()) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(entry.get_mut(), thing)),
            Entry::Vacant(entry) => {
                entry.insert(thing);
                None
            }
        }
    }

    /// Removes the value of a key.
    pub fn remove(&mut self, key: &T::Key) -> Option<T> {
        match self.entry(key) {
            Entry::Occupied(entry) => Some(entry.remove().0),
            Entry::Vacant(_) => None,
        }
    }

    /// All values, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.table.iter()
    }

    fn entry(&mut self, key: &T::Key) -> Entry<'_, T> {
        let Self { table, hasher } = self;
        let hash = hasher.hash_one(key);
        table.entry(hash, |thing| thing.key() == key, |thing| hasher.hash_one(thing.key()))
    }
}
