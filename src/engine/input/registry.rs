//! Things that are found by a key of their own.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// What has a key of its own, which stays the same for as long as it is in a [`Registry`].
pub trait Keyed {
    /// The key.
    type Key: ?Sized + Eq + Hash;
    /// The key.
    fn key(&self) -> &Self::Key;
}

/// Things with keys, each key once. To look things up in, never to go through where order counts. Made for things of the size of a pointer: what is
/// searched then stays small, and with it what looking one up among many costs.
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
    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        let hasher = &self.hasher;
        self.table.reserve(more, |thing| hasher.hash_one(thing.key()));
    }

    /// What has that key.
    #[must_use]
    pub fn get(&self, key: &T::Key) -> Option<&T> {
        if self.table.is_empty() {
            return None;
        }
        self.table.find(self.hasher.hash_one(key), |thing| thing.key() == key)
    }

    /// What has that key, made first if there is nothing.
    pub fn get_or_insert_with(&mut self, key: &T::Key, make: impl FnOnce() -> T) -> &mut T {
        match self.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(make()).into_mut(),
        }
    }

    /// What has that key, to change.
    pub fn get_mut(&mut self, key: &T::Key) -> Option<&mut T> {
        self.table
            .find_mut(self.hasher.hash_one(key), |thing| thing.key() == key)
    }

    /// Takes a thing in, instead of what has the same key; gives that back.
    pub fn insert(&mut self, thing: T) -> Option<T> {
        match self.entry(thing.key()) {
            Entry::Occupied(mut entry) => Some(std::mem::replace(entry.get_mut(), thing)),
            Entry::Vacant(entry) => {
                entry.insert(thing);
                None
            }
        }
    }

    /// Takes out what has that key.
    pub fn remove(&mut self, key: &T::Key) -> Option<T> {
        match self.entry(key) {
            Entry::Occupied(entry) => Some(entry.remove().0),
            Entry::Vacant(_) => None,
        }
    }

    /// All things, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.table.iter()
    }

    fn entry(&mut self, key: &T::Key) -> Entry<'_, T> {
        let Self { table, hasher } = self;
        let hash = hasher.hash_one(key);
        table.entry(hash, |thing| thing.key() == key, |thing| hasher.hash_one(thing.key()))
    }
}
