//! The queue of events that are to be written: a limited number for each namespace, and namespaces take turns. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::Waiting;
use crate::components::agenda::Agenda;
use crate::components::fair::InNamespace;

/// Events of one namespace that wait; what comes beyond is dropped.
const OWN_MAX: usize = 1_024;

/// Identifies an event in the queue. Namespaces take turns by it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct EventId {
    namespace: Arc<str>,
    number: u64,
}

impl InNamespace for EventId {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// Events that are to be written, each at its time.
#[derive(Default)]
pub struct EventQueue {
    agenda: Agenda<EventId>,
    events: HashMap<u64, Waiting>,
    /// How many wait of each namespace.
    own: HashMap<Arc<str>, usize>,
    numbers: u64,
}

impl EventQueue {
    /// Whether one more of a namespace may wait.
    #[must_use]
    pub fn has_space(&self, namespace: &str) -> bool {
        self.own.get(namespace).is_none_or(|own| *own < OWN_MAX)
    }

    /// Adds an event that is due at that time.
    pub fn put(&mut self, at: Instant, event: Waiting) {
        let namespace: Arc<str> = event.namespace().into();
        self.numbers += 1;
        let id = EventId {
            namespace: Arc::clone(&namespace),
            number: self.numbers,
        };
        self.agenda.plan(&id, at);
        self.events.insert(id.number, event);
        *self.own.entry(namespace).or_default() += 1;
    }

    /// When the next is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// Takes the next that is due.
    pub fn take(&mut self, now: Instant) -> Option<Waiting> {
        let id = self.agenda.start(now)?;
        self.agenda.finish(&id);
        if let Some(own) = self.own.get_mut(&id.namespace) {
            *own -= 1;
            if *own == 0 {
                self.own.remove(&id.namespace);
            }
        }
        self.events.remove(&id.number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::components::bus::{GroupKey, Note, Severity, Subject};
    use crate::components::events::digest::Write;

    fn event(namespace: &str, number: usize, since: Instant) -> Waiting {
        let note = Note {
            subject: Subject::PodGroup(GroupKey::new(namespace, &format!("{namespace}-{number}"))),
            severity: Severity::Normal,
            reason: "Unschedulable",
            message: String::new(),
            source: String::new(),
            annotations: BTreeMap::new(),
        };
        let write = Write::New { id: String::new() };
        Waiting { note, write, since }
    }

    #[test]
    fn a_namespace_with_many_events_delays_others_by_one_event_and_drops_its_own() {
        let (mut queue, start) = (EventQueue::default(), Instant::now());
        let mut dropped = 0;
        for number in 0..10_000 {
            if queue.has_space("loud") {
                queue.put(start, event("loud", number, start));
            } else {
                dropped += 1;
            }
        }
        assert_eq!(dropped, 10_000 - OWN_MAX);
        assert!(queue.has_space("quiet"));
        let later = start + Duration::from_millis(1);
        queue.put(later, event("quiet", 0, start));
        assert!(queue.take(start).is_some());
        let next: Vec<_> = (0..3).filter_map(|_| queue.take(later)).collect();
        let names: Vec<_> = next.iter().map(Waiting::namespace).collect();
        assert!(names[..2].contains(&"quiet"), "{names:?}");
        while queue.take(later).is_some() {}
        assert!(queue.events.is_empty() && queue.own.is_empty() && queue.next().is_none());
    }
}
