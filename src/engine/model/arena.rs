//! An arena of slots addressed by dense ids; freed slots are reused.

use std::marker::PhantomData;

/// An id that an [`Arena`] hands out.
pub trait Slot: Copy {
    /// The position.
    fn position(self) -> usize;
    /// The id of a position.
    fn at_position(position: usize) -> Self;
}

macro_rules! slots {
    ($($id:ty),*) => {$(
        impl Slot for $id {
            fn position(self) -> usize { self.at() }
            fn at_position(position: usize) -> Self { Self::of(position) }
        }
    )*};
}
slots!(
    super::ids::NodeId,
    super::ids::PodId,
    super::ids::PodGroupId,
    super::ids::QueueId,
    super::ids::ClassId,
    super::ids::ShapeId,
    super::ids::CounterId,
    super::ids::PoolId,
    super::ids::DeviceId,
    super::ids::ClaimId
);

/// Values by id.
#[derive(Clone, Debug)]
pub struct Arena<I, T> {
    items: Vec<Option<T>>,
    free: Vec<usize>,
    id: PhantomData<I>,
}

impl<I, T> Default for Arena<I, T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            free: Vec::new(),
            id: PhantomData,
        }
    }
}

impl<I: Slot, T> Arena<I, T> {
    /// Reserves memory for so many more values.
    pub fn reserve(&mut self, more: usize) {
        self.items.reserve(more);
    }

    /// Puts a value into a free slot.
    pub fn insert(&mut self, item: T) -> I {
        if let Some(position) = self.free.pop() {
            self.items[position] = Some(item);
            return I::at_position(position);
        }
        self.items.push(Some(item));
        I::at_position(self.items.len() - 1)
    }

    /// Frees a slot.
    pub fn remove(&mut self, id: I) -> Option<T> {
        let item = self.items[id.position()].take();
        if item.is_some() {
            self.free.push(id.position());
        }
        item
    }

    /// Whether a slot is in use.
    #[must_use]
    pub fn contains(&self, id: I) -> bool {
        self.items.get(id.position()).is_some_and(Option::is_some)
    }

    /// All ids in use.
    pub fn ids(&self) -> impl Iterator<Item = I> + '_ {
        self.items
            .iter()
            .enumerate()
            .filter(|(_, item)| item.is_some())
            .map(|(position, _)| I::at_position(position))
    }

    /// All values with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.items
            .iter()
            .enumerate()
            .filter_map(|(position, item)| Some((I::at_position(position), item.as_ref()?)))
    }

    /// Number of slots, used or not.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.items.len()
    }
}

impl<I: Slot, T> std::ops::Index<I> for Arena<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        self.items[id.position()]
            .as_ref()
            .expect("ids are of things that exist")
    }
}

impl<I: Slot, T> std::ops::IndexMut<I> for Arena<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.items[id.position()]
            .as_mut()
            .expect("ids are of things that exist")
    }
}
