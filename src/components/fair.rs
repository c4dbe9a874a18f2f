//! Queues that serve namespaces in turn: work of one tenant delays that tenant only. Pure: no clock, no client.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::sync::Arc;

use super::bus::GroupKey;
use super::watches::Key;

/// An item that belongs to a namespace, or to none.
pub trait InNamespace {
    /// Its name; empty for what belongs to no namespace.
    fn namespace(&self) -> &str;
}

impl InNamespace for GroupKey {
    fn namespace(&self) -> &str {
        self.namespace()
    }
}

impl InNamespace for Key {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// A cluster-scoped object, by its name.
impl InNamespace for String {
    fn namespace(&self) -> &str {
        ""
    }
}

/// A queue per namespace. Namespaces are served in turn, and no more items of one are in progress than its share.
#[derive(Debug)]
pub struct NamespaceQueues<T> {
    queues: HashMap<Arc<str>, Queue<T>>,
    /// Namespaces with waiting items, in the order in which they are served.
    turns: VecDeque<Arc<str>>,
    share: usize,
}

#[derive(Debug)]
struct Queue<T> {
    waiting: VecDeque<T>,
    in_progress: usize,
}

impl<T> NamespaceQueues<T> {
    /// `share`: items of one namespace that may be in progress.
    #[must_use]
    pub fn new(share: usize) -> Self {
        Self {
            queues: HashMap::new(),
            turns: VecDeque::new(),
            share,
        }
    }

    /// Appends an item to the queue of a namespace.
    pub fn push(&mut self, namespace: &str, thing: T) {
        if let Some(queue) = self.queues.get_mut(namespace)
            && !queue.waiting.is_empty()
        {
            queue.waiting.push_back(thing);
            return;
        }
        let namespace: Arc<str> = namespace.into();
        self.turns.push_back(Arc::clone(&namespace));
        let queue = self.queues.entry(namespace).or_insert_with(|| Queue {
            waiting: VecDeque::new(),
            in_progress: 0,
        });
        queue.waiting.push_back(thing);
    }

    /// Takes the next item, which is in progress until [`NamespaceQueues::done`].
    pub fn pop(&mut self) -> Option<T> {
        for _ in 0..self.turns.len() {
            let namespace = self.turns.pop_front()?;
            let Some(queue) = self.queues.get_mut(&namespace) else {
                continue;
            };
            let thing = if queue.in_progress < self.share {
                queue.waiting.pop_front()
            } else {
                None
            };
            queue.in_progress += usize::from(thing.is_some());
            if !queue.waiting.is_empty() {
                self.turns.push_back(namespace);
            }
            if thing.is_some() {
                return thing;
            }
        }
        None
    }

    /// An item of a namespace is no longer in progress.
    pub fn done(&mut self, namespace: &str) {
        let Some(queue) = self.queues.get_mut(namespace) else {
            return;
        };
        queue.in_progress = queue.in_progress.saturating_sub(1);
        if queue.in_progress == 0 && queue.waiting.is_empty() {
            self.queues.remove(namespace);
        }
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

/// A queue that serves namespaces in turn, and holds each item once.
#[derive(Debug)]
pub struct Fair<T> {
    queues: NamespaceQueues<T>,
    known: HashSet<T>,
}

impl<T> Default for Fair<T> {
    fn default() -> Self {
        Self {
            queues: NamespaceQueues::new(usize::MAX),
            known: HashSet::new(),
        }
    }
}

impl<T: InNamespace + Clone + Eq + Hash> Fair<T> {
    /// Appends an item to the queue of its namespace, unless it waits already.
    pub fn push(&mut self, thing: T) {
        if self.known.insert(thing.clone()) {
            self.queues.push(thing.clone().namespace(), thing);
        }
    }

    /// Takes the oldest item of the namespace that is served next.
    pub fn pop(&mut self) -> Option<T> {
        self.queues.pop().inspect(|thing| {
            self.known.remove(thing);
            self.queues.done(thing.namespace());
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
        self.queues.is_empty()
    }

    /// Removes all items.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl InNamespace for (&str, u32) {
        fn namespace(&self) -> &str {
            self.0
        }
    }

    #[test]
    fn a_namespace_with_much_work_delays_others_by_one_object_at_a_time() {
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
    fn an_object_added_again_keeps_its_position_and_is_handled_once() {
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

    #[test]
    fn no_namespace_has_more_than_its_share_in_progress() {
        let mut queues = NamespaceQueues::new(3);
        for number in 0..1_000 {
            queues.push("loud", number);
        }
        queues.push("quiet", 1_000);
        let taken: Vec<_> = std::iter::from_fn(|| queues.pop()).collect();
        assert_eq!(taken, [0, 1_000, 1, 2]);
        queues.push("quiet", 1_001);
        assert_eq!((queues.pop(), queues.pop()), (Some(1_001), None));
        queues.done("loud");
        assert_eq!((queues.pop(), queues.pop()), (Some(3), None));
        for _ in 0..2 {
            queues.done("quiet");
        }
        assert_eq!(queues.queues.len(), 1, "a namespace that has nothing takes no memory");
    }
}
