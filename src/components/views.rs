//! Whether all watches of a new leader have caught up with the begin of its term. Until then it decides nothing: its objects may be
//! older than the last decisions of the previous leader.

use std::collections::BTreeMap;

use crate::components::bus::Kind;

/// The kinds that decisions depend on, and which of them have not caught up in each term.
#[derive(Debug)]
pub struct Views {
    kinds: Vec<Kind>,
    /// The kinds that have not caught up, by the number of the term.
    behind: BTreeMap<u64, Vec<Kind>>,
}

impl Views {
    /// No kind has caught up in any term.
    #[must_use]
    pub fn of(kinds: impl Into<Vec<Kind>>) -> Self {
        Self {
            kinds: kinds.into(),
            behind: BTreeMap::new(),
        }
    }

    /// A kind has caught up in that term. True if it was the last one.
    pub fn current(&mut self, kind: Kind, term: u64) -> bool {
        let behind = self.behind.entry(term).or_insert_with(|| self.kinds.clone());
        let before = behind.len();
        behind.retain(|behind| *behind != kind);
        behind.is_empty() && before > 0
    }

    /// Removes terms that are over.
    pub fn keep(&mut self, lasts: impl Fn(u64) -> bool) {
        self.behind.retain(|term, _| lasts(*term));
    }

    /// Whether all kinds have caught up in that term.
    #[must_use]
    pub fn are_current(&self, term: u64) -> bool {
        self.behind.get(&term).is_some_and(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_must_catch_up_in_every_term() {
        let mut views = Views::of([Kind::Pod, Kind::Node]);
        assert!(!views.are_current(1));
        assert!(!views.current(Kind::Pod, 1));
        assert!(!views.are_current(1));
        assert!(views.current(Kind::Node, 1));
        assert!(views.are_current(1) && !views.are_current(2));

        assert!(!views.current(Kind::Node, 2));
        assert!(views.are_current(1) && !views.are_current(2));
        views.keep(|term| term > 1);
        assert!(!views.are_current(1));
        // Late messages about the first term do not count for the second, nor do kinds that decisions do not depend on.
        assert!(!views.current(Kind::Pod, 1) && !views.current(Kind::Queue, 2));
        assert!(views.current(Kind::Pod, 2));
        assert!(views.are_current(2));
        assert!(!views.current(Kind::Pod, 2), "told once");
    }
}
