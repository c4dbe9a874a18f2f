//! Names that come in runs: pods of one namespace, pod groups of one queue. Who says what was said last shares it.

use std::cell::RefCell;

use super::name;
use crate::engine::input::Name;

/// A name that mostly is the one before.
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
