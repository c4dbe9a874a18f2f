//! What the searches for devices of a cycle have cost and found out, by class: pods of one class have equal claims.
//!
//! This is no part of the cluster's state. It bounds the time of a cycle, in which many nodes are searched for the same claims, by many callers.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::engine::model::ids::ClassId;

/// The searches since the cycle began.
#[derive(Debug, Default)]
pub struct Searches {
    /// Steps of searches without a result, also by which devices counted as free.
    in_vain: RefCell<BTreeMap<(ClassId, usize), usize>>,
    /// Whether some node could satisfy the claims if no devices were allocated.
    possible: RefCell<BTreeMap<ClassId, bool>>,
}

impl Searches {
    /// A cycle begins.
    pub(in crate::engine::model) fn forget(&mut self) {
        self.in_vain.get_mut().clear();
        self.possible.get_mut().clear();
    }

    /// Steps of searches without a result.
    #[must_use]
    pub fn in_vain(&self, class: ClassId, free: usize) -> usize {
        self.in_vain.borrow().get(&(class, free)).copied().unwrap_or(0)
    }

    /// Adds the steps of a search without a result.
    pub fn add_in_vain(&self, class: ClassId, free: usize, steps: usize) {
        *self.in_vain.borrow_mut().entry((class, free)).or_insert(0) += steps;
    }

    /// What is known about a class, else what `find` finds.
    pub fn is_possible(&self, class: ClassId, find: impl FnOnce() -> bool) -> bool {
        let known = self.possible.borrow().get(&class).copied();
        known.unwrap_or_else(|| {
            let found = find();
            self.possible.borrow_mut().insert(class, found);
            found
        })
    }
}
