//! Which notes become writes: a new message at once, a repeated one rarely, and a limited number about one object. Pure.
//!
//! Pods that come and go leave entries for some minutes each, so the tables have hashes instead of names and messages.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use crate::components::bus::{Note, REPEATS, Subject};

/// A repeated note may come this much before its time and is still written.
const EARLY: Duration = Duration::from_secs(2);
/// Events about one object in a burst; after it one for each [`REFILL`].
const BURST: u32 = 25;
/// Time after which one more event about the object is allowed.
const REFILL: Duration = Duration::from_secs(300);
/// Limit on messages and objects in the tables. When there are more, entries are removed of which no repeat is expected any more.
const REMEMBERED: usize = 8_192;

/// A write of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new event.
    New {
        /// The part of its name that distinguishes events of one object.
        id: String,
    },
    /// The count of an existing one.
    Again {
        /// The id of the existing event.
        id: String,
        /// How many notes had the message, in all.
        count: i32,
    },
}

/// An earlier message.
#[derive(Debug)]
struct Said {
    /// Its hash.
    message: u64,
    id: u64,
    count: i32,
    written: Instant,
    /// How often it was written.
    writes: u32,
    /// The hash of the uid of its object.
    object: u64,
    /// Its event is being written, with that uid. Before, the object may not exist yet.
    is_sent: bool,
}

/// How many more events may be written about an object.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Instant,
}

/// Recent messages, and the allowance of each object.
#[derive(Debug, Default)]
pub struct Digest {
    /// Its keys are random, so that nobody can have two objects with the same hash.
    hasher: RandomState,
    /// By the hash of object and reason.
    said: HashMap<u64, Said>,
    /// By the hash of the object and its uid.
    allowances: HashMap<u64, Allowance>,
    /// Old entries are removed once there are so many.
    forget_from: usize,
}

impl Digest {
    /// Records a note about an object of this uid, if that is known; returns what to write. Another object of the same name gets an event of its own.
    pub fn take(&mut self, note: &Note, uid: Option<&str>, now: Instant) -> Option<Write> {
        self.forget_old(now);
        let key = self.key(note);
        let message = self.hasher.hash_one(&note.message);
        let object = self.hasher.hash_one(uid);
        let is_same = |said: &&mut Said| said.message == message && (said.object == object || !said.is_sent);
        if let Some(said) = self.said.get_mut(&key).filter(is_same) {
            said.count = said.count.saturating_add(1);
            if now.duration_since(said.written) + EARLY < REPEATS.wait(said.writes) {
                return None;
            }
            (said.written, said.writes) = (now, said.writes.saturating_add(1));
            return Some(Write::Again {
                id: text_of(said.id),
                count: said.count,
            });
        }
        if !self.allow(&note.subject, object, now) {
            metrics::counter!("unikai_events_suppressed_total").increment(1);
            return None;
        }
        let (id, _) = crate::random::uuid().as_u64_pair();
        self.said.insert(
            key,
            Said {
                message,
                id,
                count: 1,
                written: now,
                writes: 1,
                object,
                is_sent: false,
            },
        );
        Some(Write::New { id: text_of(id) })
    }

    /// A new event is being written, about an object of this uid. It may have been created after the note.
    pub fn sent(&mut self, note: &Note, uid: Option<&str>) {
        let (key, object) = (self.key(note), self.hasher.hash_one(uid));
        if let Some(said) = self.said.get_mut(&key) {
            (said.object, said.is_sent) = (object, true);
        }
    }

    fn key(&self, note: &Note) -> u64 {
        self.hasher.hash_one((&note.subject, note.reason))
    }

    fn allow(&mut self, subject: &Subject, object: u64, now: Instant) -> bool {
        let key = self.hasher.hash_one((subject, object));
        let allowance = self.allowances.entry(key).or_insert(Allowance {
            left: BURST,
            since: now,
        });
        let refills = now.duration_since(allowance.since).as_secs() / REFILL.as_secs();
        if refills > 0 {
            allowance.left = allowance
                .left
                .saturating_add(u32::try_from(refills).unwrap_or(BURST))
                .min(BURST);
            allowance.since = now;
        }
        let allowed = allowance.left > 0;
        allowance.left = allowance.left.saturating_sub(1);
        allowed
    }

    fn forget_old(&mut self, now: Instant) {
        let known = self.said.len().max(self.allowances.len());
        if known <= self.forget_from.max(REMEMBERED) {
            return;
        }
        // Whoever repeats a message does so when it is due.
        let kept = |said: &Said| REPEATS.wait(said.writes) + REFILL;
        self.said
            .retain(|_, said| now.duration_since(said.written) < kept(said));
        self.allowances
            .retain(|_, allowance| now.duration_since(allowance.since) < REFILL);
        // Grows with the remaining entries, so that they are not scanned again for each note.
        self.forget_from = 2 * self.said.len().max(self.allowances.len());
    }
}

/// An id as it stands in the names of events.
fn text_of(id: u64) -> String {
    format!("{id:016x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::components::bus::{GroupKey, Severity};

    fn note(message: &str) -> Note {
        Note {
            subject: Subject::PodGroup(GroupKey::new("ns", "pg")),
            severity: Severity::Normal,
            reason: "Unschedulable",
            message: message.to_owned(),
            source: "kai-scheduler".to_owned(),
            annotations: BTreeMap::new(),
        }
    }

    #[test]
    fn equal_events_are_written_once_and_counted_at_growing_intervals() {
        let (mut digest, start) = (Digest::default(), Instant::now());
        let Some(Write::New { id }) = digest.take(&note("no GPUs"), None, start) else {
            panic!("the first is written")
        };
        let mut counted = Vec::new();
        for second in 1..3_600 {
            let again = digest.take(&note("no GPUs"), None, start + Duration::from_secs(second));
            if let Some(Write::Again { id: again, count }) = again {
                assert_eq!((&again, i64::from(count)), (&id, second as i64 + 1));
                counted.push(second);
            }
        }
        assert_eq!(counted, [58, 176, 414, 892, 1_790, 2_688, 3_586]);
        assert!(
            matches!(digest.take(&note("no CPU"), None, start), Some(Write::New { .. })),
            "a new sentence is written at once"
        );
    }

    #[test]
    fn an_object_that_is_created_again_has_events_of_its_own() {
        let (mut digest, now) = (Digest::default(), Instant::now());
        let mut is_new = |uid: Option<&str>| matches!(digest.take(&note("no GPUs"), uid, now), Some(Write::New { .. }));
        assert!(is_new(None), "it is about to be created");
        assert!(!is_new(Some("1")), "its event is not written yet");
        digest.sent(&note("no GPUs"), Some("1"));
        let mut is_new = |uid: Option<&str>| matches!(digest.take(&note("no GPUs"), uid, now), Some(Write::New { .. }));
        assert!(!is_new(Some("1")));
        assert!(is_new(Some("2")));
    }

    #[test]
    fn events_of_one_object_are_limited_after_a_burst() {
        let (mut digest, start) = (Digest::default(), Instant::now());
        let written = |digest: &mut Digest, from: usize, at: Instant| {
            (from..from + 100)
                .filter(|n| digest.take(&note(&format!("{n}")), None, at).is_some())
                .count()
        };
        assert_eq!(written(&mut digest, 0, start), 25);
        assert_eq!(written(&mut digest, 100, start + Duration::from_secs(301)), 1);
    }

    #[test]
    fn messages_about_objects_that_went_are_forgotten() {
        let (mut digest, start) = (Digest::default(), Instant::now());
        for second in 0..3_600 {
            for number in 0..20 {
                let mut note = note("bound");
                note.subject = Subject::PodGroup(GroupKey::new("ns", &format!("{second}-{number}")));
                let written = digest.take(&note, None, start + Duration::from_secs(second));
                assert!(written.is_some());
            }
        }
        // 20 a second for six minutes, and as many again until the table is searched.
        assert!(digest.said.len() <= 2 * 20 * 361, "{}", digest.said.len());
        assert!(digest.allowances.len() <= 2 * 20 * 361, "{}", digest.allowances.len());
    }
}
