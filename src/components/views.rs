//! Whether a new leader has seen what was current when its term began. Until then it decides nothing: what it believed may be from
//! before the last decisions of the leader before it.

use std::collections::BTreeMap;

use crate::components::bus::Kind;

/// The kinds that are decided by, and which of them are still shown as they were before each term.
#[derive(Debug)]
pub struct Views {
    kinds: Vec<Kind>,
    /// By the number of the term.
    behind: BTreeMap<u64, Vec<Kind>>,
}

impl Views {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn of(kinds: impl Into<Vec<Kind>>) -> Self {
        Self {
            kinds: kinds.into(),
            behind: BTreeMap::new(),
        }
    }

    /// The watch has shown what was current of a kind when that term began. True if it was the last kind.
    pub fn current(&mut self, kind: Kind, term: u64) -> bool {
        let behind = self.behind.entry(term).or_insert_with(|| self.kinds.clone());
        let before = behind.len();
        behind.retain(|behind| *behind != kind);
        behind.is_empty() && before > 0
    }

    /// Forgets terms that are over.
    pub fn keep(&mut self, lasts: impl Fn(u64) -> bool) {
        self.behind.retain(|term, _| lasts(*term));
    }

    /// Whether all kinds have been shown as they were when that term began.
    #[must_use]
    pub fn are_current(&self, term: u64) -> bool {
        self.behind.get(&term).is_some_and(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_to_be_seen_anew_in_every_term() {
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
        // What was still on its way from the first term says nothing of the second, and kinds that were not asked for neither.
        assert!(!views.current(Kind::Pod, 1) && !views.current(Kind::Queue, 2));
        assert!(views.current(Kind::Pod, 2));
        assert!(views.are_current(2));
        assert!(!views.current(Kind::Pod, 2), "told once");
    }
}
