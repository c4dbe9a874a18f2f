//! Cycles that panic while they serve a pod group, as a fault of ours would make them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::engine::input::GroupKey;

thread_local! {
    static FAULTS: RefCell<BTreeMap<GroupKey, u32>> = RefCell::default();
}

/// The next so many times that an engine of this thread serves the group, it panics.
pub fn panic_when_served(group: &GroupKey, times: u32) {
    FAULTS.with_borrow_mut(|faults| faults.insert(group.clone(), times));
}

/// Panics if that was asked for.
pub fn panic_if_told(group: &GroupKey) {
    let told = FAULTS.with_borrow_mut(|faults| {
        let left = faults.get_mut(group)?;
        *left = left.checked_sub(1)?;
        Some(())
    });
    assert!(told.is_none(), "the fault");
}
