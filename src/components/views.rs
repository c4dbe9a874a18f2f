//! Whether a new leader has seen what was current when its term began. Until then it decides nothing: what it believed may be from
//! before the last decisions of the leader before it.

use crate::components::bus::Kind;

/// The kinds that somebody decides by, and which of them are still shown as they were before the term.
#[derive(Debug)]
pub struct Views {
    kinds: Vec<Kind>,
    term: Option<u64>,
    behind: Vec<Kind>,
}

impl Views {
    /// Nothing has been seen yet.
    #[must_use]
    pub fn of(kinds: impl Into<Vec<Kind>>) -> Self {
        Self {
            kinds: kinds.into(),
            term: None,
            behind: Vec::new(),
        }
    }

    /// The watch has shown what was current of a kind when that term began. True if it was the last kind.
    pub fn current(&mut self, kind: Kind, term: u64) -> bool {
        if self.term < Some(term) {
            self.term = Some(term);
            self.behind.clone_from(&self.kinds);
        }
        if self.term != Some(term) || self.behind.is_empty() {
            return false;
        }
        self.behind.retain(|behind| *behind != kind);
        self.behind.is_empty()
    }

    /// Whether all kinds have been shown as they were when that term began.
    #[must_use]
    pub fn are_current(&self, term: u64) -> bool {
        self.term == Some(term) && self.behind.is_empty()
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
        assert!(!views.are_current(1) && !views.are_current(2));
        // What was still on its way from the first term says nothing of the second, and kinds that nobody asked for neither.
        assert!(!views.current(Kind::Pod, 1) && !views.current(Kind::Queue, 2));
        assert!(views.current(Kind::Pod, 2));
        assert!(views.are_current(2));
        assert!(!views.current(Kind::Pod, 2), "told once");
    }
}
