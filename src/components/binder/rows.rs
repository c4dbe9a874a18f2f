//! What waits, one row per namespace: the rows take turns, and no more of one row is under way than its share. So what one tenant has a lot of, or what
//! takes long because of it, leaves the others their turns. Pure.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub struct Rows<T> {
    rows: HashMap<Arc<str>, Row<T>>,
    /// Namespaces of which something waits, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    share: usize,
}

#[derive(Debug)]
struct Row<T> {
    waiting: VecDeque<T>,
    under_way: usize,
}

impl<T> Rows<T> {
    /// So much of one row may be under way.
    #[must_use]
    pub fn new(share: usize) -> Self {
        Self {
            rows: HashMap::new(),
            turns: VecDeque::new(),
            share,
        }
    }

    /// Puts something behind what waits of a namespace.
    pub fn push(&mut self, namespace: &Arc<str>, thing: T) {
        let row = self.rows.entry(Arc::clone(namespace)).or_insert_with(|| Row {
            waiting: VecDeque::new(),
            under_way: 0,
        });
        if row.waiting.is_empty() {
            self.turns.push_back(Arc::clone(namespace));
        }
        row.waiting.push_back(thing);
    }

    /// Takes the next, which is under way from now on; [`Rows::done`] says when it is not any more.
    pub fn pop(&mut self) -> Option<T> {
        for _ in 0..self.turns.len() {
            let namespace = self.turns.pop_front()?;
            let Some(row) = self.rows.get_mut(&namespace) else {
                continue;
            };
            let thing = if row.under_way < self.share {
                row.waiting.pop_front()
            } else {
                None
            };
            row.under_way += usize::from(thing.is_some());
            if !row.waiting.is_empty() {
                self.turns.push_back(namespace);
            }
            if thing.is_some() {
                return thing;
            }
        }
        None
    }

    /// Something of a namespace is not under way any more.
    pub fn done(&mut self, namespace: &str) {
        let Some(row) = self.rows.get_mut(namespace) else {
            return;
        };
        row.under_way = row.under_way.saturating_sub(1);
        if row.under_way == 0 && row.waiting.is_empty() {
            self.rows.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_take_turns_and_none_has_more_than_its_share_under_way() {
        let (loud, quiet): (Arc<str>, Arc<str>) = ("loud".into(), "quiet".into());
        let mut rows = Rows::new(3);
        for number in 0..1_000 {
            rows.push(&loud, number);
        }
        rows.push(&quiet, 1_000);
        let taken: Vec<_> = std::iter::from_fn(|| rows.pop()).collect();
        assert_eq!(taken, [0, 1_000, 1, 2]);
        rows.push(&quiet, 1_001);
        assert_eq!((rows.pop(), rows.pop()), (Some(1_001), None));
        rows.done(&loud);
        assert_eq!((rows.pop(), rows.pop()), (Some(3), None));
        for _ in 0..2 {
            rows.done(&quiet);
        }
        assert_eq!(rows.rows.len(), 1, "who has nothing takes no room");
    }
}
