//! When events about stale pod groups are due: a first one for each, and repeats while it stays stale. Pure.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::components::bus::GroupKey;
use crate::components::repeats::Repeats;

/// The pod groups that are known to be stale, and the repeats of their events.
#[derive(Debug, Default)]
pub struct StaleEvents {
    known: BTreeSet<GroupKey>,
    repeats: Repeats<GroupKey>,
}

impl StaleEvents {
    /// When the next repeat is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.repeats.next()
    }

    /// The pod groups for which an event is due. `stale`: all that are stale now.
    #[must_use]
    pub fn due(&mut self, stale: BTreeSet<GroupKey>, now: Instant) -> Vec<GroupKey> {
        for over in self.known.difference(&stale) {
            self.repeats.end(over);
        }
        let mut due: Vec<GroupKey> = stale.difference(&self.known).cloned().collect();
        for new in &due {
            self.repeats.begin(new, now);
        }
        self.known = stale;
        due.extend(std::iter::from_fn(|| self.repeats.take(now)));
        due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn events_are_repeated_while_a_pod_group_is_stale_and_begin_again_when_it_is_stale_again() {
        let (mut events, start) = (StaleEvents::default(), Instant::now());
        let group = |name: &str| GroupKey::new("ns", name);
        // Looks at the pod groups each minute; returns the minutes of events, and of which.
        let mut told = |minutes: std::ops::Range<u64>, stale: &[&str]| -> Vec<(u64, String)> {
            let mut told = Vec::new();
            for minute in minutes {
                let stale = stale.iter().map(|name| group(name)).collect();
                let due = events.due(stale, start + Duration::from_secs(60 * minute));
                told.extend(due.iter().map(|group| (minute, group.name().to_owned())));
            }
            told
        };
        let of = |name: &str, minutes: &[u64]| -> Vec<(u64, String)> {
            minutes.iter().map(|minute| (*minute, name.to_owned())).collect()
        };
        assert_eq!(told(0..60, &["a"]), of("a", &[0, 1, 3, 7, 15, 30, 45]));
        assert_eq!(told(60..64, &["b"]), of("b", &[60, 61, 63]), "only b is stale");
        assert_eq!(told(64..66, &["a"]), of("a", &[64, 65]));
        assert!(told(66..80, &[]).is_empty());
        assert_eq!(events.next(), None);
    }
}
