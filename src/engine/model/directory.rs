//! An arena whose values are also found by key.

use std::hash::BuildHasher;
use std::ops::{Deref, Index, IndexMut};

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::arena::{Arena, Slot};
use crate::engine::input::Keyed;

/// An arena with unique keys. Keys are stored in the values; the hash table holds only ids, so that a look-up among
/// many values touches little memory.
#[derive(Clone, Debug)]
pub struct Directory<I, T> {
    things: Arena<I, T>,
    ids: HashTable<I>,
    hasher: RandomState,
}

impl<I, T> Default for Directory<I, T> {
    fn default() -> Self {
        Self {
            things: Arena::default(),
            ids: HashTable::new(),
            hasher: RandomState::default(),
        }
    }
}

impl<I: Slot + Eq, T: Keyed> Directory<I, T> {
    /// Reserves memory for so many more values.
    pub fn reserve(&mut self, more: usize) {
        let Self { things, ids, hasher } = self;
        things.reserve(more);
        ids.reserve(more, |id| hasher.hash_one(things[*id].key()));
    }

    /// The id of the value with a key.
    #[must_use]
    pub fn id(&self, key: &T::Key) -> Option<I> {
        let has_key = |id: &I| self.things[*id].key() == key;
        self.ids.find(self.hasher.hash_one(key), has_key).copied()
    }

    /// Inserts a value whose key is new.
    pub fn insert(&mut self, thing: T) -> I {
        debug_assert!(self.id(thing.key()).is_none(), "one thing for each key");
        let Self { things, ids, hasher } = self;
        let hash = hasher.hash_one(thing.key());
        let id = things.insert(thing);
        ids.insert_unique(hash, id, |id| hasher.hash_one(things[*id].key()));
        id
    }

    /// Removes a value.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let thing = self.things.remove(id)?;
        let hash = self.hasher.hash_one(thing.key());
        if let Ok(entry) = self.ids.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        Some(thing)
    }
}

impl<I, T> Deref for Directory<I, T> {
    type Target = Arena<I, T>;
    fn deref(&self) -> &Arena<I, T> {
        &self.things
    }
}

impl<I: Slot, T> Index<I> for Directory<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.things[id]
    }
}

impl<I: Slot, T> IndexMut<I> for Directory<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.things[id]
    }
}
