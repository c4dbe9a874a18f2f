//! A one-entry cache of shared names: consecutive pods often have the same namespace, pod groups the same queue.

use std::cell::RefCell;

use super::name;
use crate::engine::input::Name;

/// The last name.
#[derive(Debug, Default)]
pub struct Repeated(RefCell<Option<Name>>);

impl Repeated {
    /// The shared name of a text.
    pub fn name(&self, text: &str) -> Name {
        let mut last = self.0.borrow_mut();
        match &*last {
            Some(last) if **last == *text => last.clone(),
            _ => last.insert(name(text)).clone(),
        }
    }
}
