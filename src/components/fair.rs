//! A queue in which namespaces take turns: what one tenant causes delays that tenant. Each thing waits in it once, however often it is put in.
//! Pure: no clock, no client.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::bus::GroupKey;
use super::watches::Key;

/// The namespace in whose turn something is done.
pub trait Of {
    /// Its name; empty for what belongs to no namespace.
    fn namespace(&self) -> &str;
}

impl Of for GroupKey {
    fn namespace(&self) -> &str {
        self.namespace()
    }
}

impl Of for Key {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// A thing of the whole cluster, by its name.
impl Of for String {
    fn namespace(&self) -> &str {
        ""
    }
}

/// See the module.
#[derive(Debug)]
pub struct Fair<T> {
    /// Namespaces of which something waits, in the order of their turns.
    turns: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<T>>,
    known: HashSet<T>,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self {
            turns: VecDeque::new(),
            waiting: HashMap::new(),
            known: HashSet::new(),
        }
    }
}

impl<T: Of + Clone + Eq + Hash> Fair<T> {
    /// Puts something behind what waits of its namespace, unless it waits already.
    pub fn push(&mut self, thing: T) {
        if !self.known.insert(thing.clone()) {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(thing.namespace()) {
            waiting.push_back(thing);
            return;
        }
        let namespace: Arc<str> = thing.namespace().into();
        self.turns.push_back(Arc::clone(&namespace));
        self.waiting.insert(namespace, [thing].into());
    }

    /// Takes what has waited the longest of the namespace whose turn it is.
    pub fn pop(&mut self) -> Option<T> {
        let namespace = self.turns.pop_front()?;
        let waiting = self.waiting.get_mut(&namespace)?;
        let thing = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&namespace);
        } else {
            self.turns.push_back(namespace);
        }
        thing.inspect(|thing| {
            self.known.remove(thing);
        })
    }

    /// Whether it waits.
    #[must_use]
    pub fn contains(&self, thing: &T) -> bool {
        self.known.contains(thing)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Of for (&str, u32) {
        fn namespace(&self) -> &str {
            self.0
        }
    }

    #[test]
    fn a_namespace_with_much_to_do_delays_others_by_one_thing_at_a_time() {
        let mut fair = Fair::default();
        for number in 0..10_000 {
            fair.push(("loud", number));
        }
        fair.push(("quiet", 1));
        fair.push(("quiet", 2));
        let next: Vec<_> = (0..5).filter_map(|_| fair.pop()).collect();
        assert_eq!(
            next,
            [("loud", 0), ("quiet", 1), ("loud", 1), ("quiet", 2), ("loud", 2)]
        );
    }

    #[test]
    fn what_is_put_in_again_keeps_its_place_and_is_done_once() {
        let mut fair = Fair::default();
        for _ in 0..1_000 {
            fair.push(("a", 1));
            fair.push(("a", 2));
        }
        assert!(fair.contains(&("a", 1)));
        assert_eq!(
            (fair.pop(), fair.pop(), fair.pop()),
            (Some(("a", 1)), Some(("a", 2)), None)
        );
        fair.push(("a", 1));
        assert_eq!(fair.pop(), Some(("a", 1)), "once it is taken, it may come again");
        assert!(fair.is_empty());
    }
}
