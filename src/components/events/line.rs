//! Events that wait for their time and their turn: so many for each namespace, which take turns. Pure.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::Waiting;
use crate::components::agenda::Agenda;
use crate::components::fair::Of;

/// Events of one namespace that wait; what comes beyond is dropped.
const OWN_MAX: usize = 1_024;

/// An event by number, in the turn of its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ticket {
    namespace: Arc<str>,
    number: u64,
}

impl Of for Ticket {
    fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// See the module.
#[derive(Default)]
pub struct Line {
    agenda: Agenda<Ticket>,
    events: HashMap<u64, Waiting>,
    /// How many wait of each namespace.
    own: HashMap<Arc<str>, usize>,
    numbers: u64,
}

impl Line {
    /// Whether one more of a namespace may wait.
    #[must_use]
    pub fn has_room(&self, namespace: &str) -> bool {
        self.own.get(namespace).is_none_or(|own| *own < OWN_MAX)
    }

    /// Has an event wait until then.
    pub fn put(&mut self, at: Instant, event: Waiting) {
        let namespace: Arc<str> = event.namespace().into();
        self.numbers += 1;
        let ticket = Ticket {
            namespace: Arc::clone(&namespace),
            number: self.numbers,
        };
        self.agenda.plan(&ticket, at);
        self.events.insert(ticket.number, event);
        *self.own.entry(namespace).or_default() += 1;
    }

    /// When the next is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// Takes the next that is due.
    pub fn take(&mut self, now: Instant) -> Option<Waiting> {
        let ticket = self.agenda.start(now)?;
        self.agenda.finish(&ticket);
        if let Some(own) = self.own.get_mut(&ticket.namespace) {
            *own -= 1;
            if *own == 0 {
                self.own.remove(&ticket.namespace);
            }
        }
        self.events.remove(&ticket.number)
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
    fn a_namespace_of_which_much_is_said_delays_others_by_one_event_and_loses_its_own() {
        let (mut line, start) = (Line::default(), Instant::now());
        let mut dropped = 0;
        for number in 0..10_000 {
            if line.has_room("loud") {
                line.put(start, event("loud", number, start));
            } else {
                dropped += 1;
            }
        }
        assert_eq!(dropped, 10_000 - OWN_MAX);
        assert!(line.has_room("quiet"));
        let later = start + Duration::from_millis(1);
        line.put(later, event("quiet", 0, start));
        assert!(line.take(start).is_some());
        let next: Vec<_> = (0..3).filter_map(|_| line.take(later)).collect();
        let names: Vec<_> = next.iter().map(Waiting::namespace).collect();
        assert!(names[..2].contains(&"quiet"), "{names:?}");
        while line.take(later).is_some() {}
        assert!(line.events.is_empty() && line.own.is_empty() && line.next().is_none());
    }
}
