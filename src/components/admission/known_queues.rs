//! The leaf queues that the match conditions of the webhooks name, and when these are updated. Pure: no clock, no client.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// New leaf queues are added after this time without another new one: queues are created in bursts, and many get children right away.
const DELAY: Duration = Duration::from_secs(1);

/// The leaf queues that match conditions name.
#[derive(Debug, Default)]
pub struct KnownQueues {
    told: Option<BTreeSet<String>>,
    seen: BTreeSet<String>,
    due: Option<Instant>,
}

impl KnownQueues {
    /// Sets the current leaves. Returns whether an update is needed at once, because a named queue is no leaf any more.
    pub fn see(&mut self, leaves: BTreeSet<String>, now: Instant) -> bool {
        if leaves != self.seen {
            self.due = Some(now + DELAY);
            self.seen = leaves;
        }
        self.told.as_ref().is_some_and(|told| !told.is_subset(&self.seen))
    }

    /// When new leaves are to be added.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The queues to name now: those named before that are still leaves; all leaves once new ones are due, or the first time.
    pub fn tell(&mut self, now: Instant) -> &BTreeSet<String> {
        let seen = &self.seen;
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            self.told = Some(seen.clone());
        }
        let told = self.told.get_or_insert_with(|| seen.clone());
        told.retain(|queue| seen.contains(queue));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn new_queues_are_published_after_a_pause_and_deleted_ones_at_once() {
        let (mut known, start) = (KnownQueues::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert!(!known.see(leaves(["old"]), at(0)));
        assert_eq!(
            *known.tell(at(1)),
            leaves(["old"]),
            "what is there at the start is told"
        );

        assert!(!known.see(leaves(["old", "parent"]), at(2_000)));
        assert_eq!(*known.tell(at(2_100)), leaves(["old"]));
        assert!(
            !known.see(leaves(["child", "old"]), at(2_500)),
            "the parent was never told"
        );
        assert_eq!(known.due(), Some(at(3_500)));
        assert_eq!(*known.tell(at(3_500)), leaves(["child", "old"]));
        assert_eq!(known.due(), None);

        assert!(known.see(leaves(["child"]), at(4_000)));
        assert_eq!(*known.tell(at(4_000)), leaves(["child"]));
    }
}
