//! The selectors of claims and classes, by number, and a queue of those still to be evaluated on devices.
//!
//! Evaluation takes time, and a tenant with many selectors must not delay others: the steps at once are limited, and namespaces take
//! turns. A new selector waits, and claims with it. Pools are in the order of their last change; where a selector has got to among these is one number, and a
//! pool that changes is behind all others again. Until its turn comes such a pool has no device for the selector, and only claims for all devices wait.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use sha2::{Digest, Sha256};

use super::cel::Selector;
use crate::api::limits;
use crate::engine::input::Table;

/// Steps per device, beside those of loops.
const PER_DEVICE: usize = 100;
/// Steps of compiling a selector, beside those for its text.
const COMPILING: usize = 5_000;
/// Steps of compiling a byte of a selector.
const PER_BYTE: usize = 2;
/// The message of a claim whose selectors are not evaluated yet.
const WAITS: &str = "CEL expression waits for its turn to be evaluated";

/// The message of a claim with a selector beyond the limit.
const TOO_MANY: &str = "CEL expression is not evaluated, as the claims of this namespace have too many different ones";

/// The namespace of a user; none for a class.
fn namespace_of(user: &str) -> &str {
    user.split_once('/').map_or("", |(namespace, _)| namespace)
}

/// A selector that is used.
struct Known {
    text: String,
    /// The SHA-256 of the text.
    digest: [u8; 32],
    /// The namespace to whose limit it counts; empty: that of a class, without a limit.
    namespace: Box<str>,
    /// It is beyond the limits of its users' namespaces.
    refused: bool,
    /// `None` until compiled.
    compiled: Option<Result<Selector, String>>,
    /// The last change of a pool up to which it is evaluated.
    through: u64,
    /// What its users know.
    state: State,
    /// It is queued.
    queued: bool,
    /// Its users, with counts.
    users: BTreeMap<Box<str>, usize>,
}

/// What users know about a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It has not been evaluated on every device yet.
    New,
    /// It has been, but not on those of some pools that have changed since.
    Behind,
    /// It is evaluated on every device.
    Evaluated,
}

/// A queued evaluation of a selector.
pub struct Job {
    /// The selector.
    pub number: u32,
    /// The last change of a pool up to which it is evaluated.
    pub through: u64,
}

/// All selectors.
pub struct Selectors {
    numbers: Table<Box<str>, u32>,
    known: Vec<Option<Known>>,
    free: Vec<u32>,
    waiting: BTreeMap<Box<str>, VecDeque<u32>>,
    /// How many selectors count to the limit of a namespace.
    counts: BTreeMap<Box<str>, usize>,
    /// How many are refused.
    refused: usize,
    /// The namespace that was served last.
    last: Box<str>,
    /// Remaining steps.
    pub left: usize,
    /// Users of selectors that were evaluated on every device for the first time since the last call.
    pub finished: Vec<Box<str>>,
    /// Users of selectors that have fallen behind, or are not behind any more, since the last call.
    pub behind: Vec<Box<str>>,
}

impl Default for Selectors {
    fn default() -> Self {
        Self {
            numbers: Table::default(),
            known: Vec::new(),
            free: Vec::new(),
            waiting: BTreeMap::new(),
            counts: BTreeMap::new(),
            refused: 0,
            last: Box::default(),
            left: limits::CLAIM_SELECTOR_STEPS_AT_ONCE,
            finished: Vec::new(),
            behind: Vec::new(),
        }
    }
}

impl Selectors {
    /// Adds a use by a user (`namespace/name` of a claim, or a class). Returns whether the selector waits from now on. One beyond the limit of its user's
    /// namespace is refused until another user may have it.
    pub fn acquire(&mut self, text: &str, user: &str) -> bool {
        let number = self.number(text).unwrap_or_else(|| self.insert(text));
        let Some(known) = self.known_mut(number) else {
            return false;
        };
        *known.users.entry(user.into()).or_default() += 1;
        known.refused && self.admit(number, namespace_of(user))
    }

    /// Queues a selector that was refused so far, if the namespace may have one more. Returns whether it may.
    fn admit(&mut self, number: u32, namespace: &str) -> bool {
        let count = self.counts.get(namespace).copied().unwrap_or(0);
        if !namespace.is_empty() && count >= limits::CLAIM_SELECTORS_PER_NAMESPACE {
            return false;
        }
        let Some(known) = self.known_mut(number) else {
            return false;
        };
        known.refused = false;
        known.namespace = namespace.into();
        self.refused -= 1;
        if !namespace.is_empty() {
            self.counts.insert(namespace.into(), count + 1);
        }
        self.queue(number);
        true
    }

    /// Queues an evaluation.
    fn queue(&mut self, number: u32) {
        if let Some(known) = self.known_mut(number)
            && !std::mem::replace(&mut known.queued, true)
        {
            let namespace = known.namespace.clone();
            self.waiting.entry(namespace).or_default().push_back(number);
        }
    }

    /// Pools have changed: queues the selectors that have been evaluated.
    pub fn queue_evaluated(&mut self) {
        let due = |(at, known): (usize, &Option<Known>)| {
            let known = known.as_ref()?;
            (!known.refused && !known.queued && matches!(known.compiled, Some(Ok(_)))).then_some(at as u32)
        };
        let due: Vec<u32> = self.known.iter().enumerate().filter_map(due).collect();
        for number in due {
            self.queue(number);
        }
    }

    /// Notes whose selectors are behind after pools have changed and the steps at once are used.
    pub fn note_behind(&mut self) {
        for known in self.known.iter_mut().flatten() {
            if known.queued && known.state == State::Evaluated {
                known.state = State::Behind;
                self.behind.extend(known.users.keys().cloned());
            }
        }
    }

    /// Queues a selector of the namespace that was refused, if there is one.
    fn admit_next(&mut self, namespace: &str) {
        if self.refused == 0 {
            return;
        }
        let waits = |known: &Known| known.refused && known.users.keys().any(|user| namespace_of(user) == namespace);
        let next = self.known.iter().position(|known| known.as_ref().is_some_and(waits));
        if let Some(next) = next {
            self.admit(next as u32, namespace);
        }
    }

    /// Adds a selector without users, and returns its number.
    fn insert(&mut self, text: &str) -> u32 {
        let fresh = Some(Known {
            text: text.to_owned(),
            digest: Sha256::digest(text).into(),
            namespace: Box::default(),
            refused: true,
            compiled: None,
            through: 0,
            state: State::New,
            queued: false,
            users: BTreeMap::new(),
        });
        let number = self.free.pop().unwrap_or(self.known.len() as u32);
        match self.known.get_mut(number as usize) {
            Some(slot) => *slot = fresh,
            None => self.known.push(fresh),
        }
        self.numbers.insert(text.into(), number);
        self.refused += 1;
        number
    }

    /// Removes a use by a user.
    pub fn release(&mut self, text: &str, user: &str) {
        let Some(&number) = self.numbers.get(text) else { return };
        let Some(slot) = self.known.get_mut(number as usize) else {
            return;
        };
        let Some(known) = slot else { return };
        if let Some(uses) = known.users.get_mut(user) {
            *uses -= 1;
            if *uses == 0 {
                known.users.remove(user);
            }
        }
        if known.users.is_empty() {
            self.numbers.remove(text);
            if known.queued {
                for jobs in self.waiting.values_mut() {
                    jobs.retain(|job| *job != number);
                }
                self.waiting.retain(|_, jobs| !jobs.is_empty());
            }
            let (refused, namespace) = (known.refused, std::mem::take(&mut known.namespace));
            *slot = None;
            self.free.push(number);
            if refused {
                self.refused -= 1;
            } else if let Some(count) = self.counts.get_mut(&namespace) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&namespace);
                }
                self.admit_next(&namespace);
            }
        }
    }

    /// The number of an expression in use.
    #[must_use]
    pub fn number(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    fn known(&self, number: u32) -> Option<&Known> {
        self.known.get(number as usize)?.as_ref()
    }

    fn known_mut(&mut self, number: u32) -> Option<&mut Known> {
        self.known.get_mut(number as usize)?.as_mut()
    }

    /// What identifies a selector in every process; `None` if there is none of this number.
    #[must_use]
    pub fn digest(&self, number: u32) -> Option<[u8; 32]> {
        self.known(number).map(|known| known.digest)
    }

    /// Why a selector has no results, finally or until it is evaluated; where a request is for all devices, they must be known for every device.
    #[must_use]
    pub fn error(&self, text: &str, all: bool) -> Option<&str> {
        let known = self.known(self.number(text)?)?;
        if known.refused {
            return Some(TOO_MANY);
        }
        match &known.compiled {
            Some(Err(error)) => Some(error),
            Some(Ok(_)) => match known.state {
                State::New => Some(WAITS),
                State::Behind => all.then_some(WAITS),
                State::Evaluated => None,
            },
            None => Some(WAITS),
        }
    }

    /// The number of an expression whose results are known.
    #[must_use]
    pub fn evaluated(&self, text: &str) -> Option<u32> {
        self.number(text).filter(|_| self.error(text, false).is_none())
    }

    /// A compiled selector.
    #[must_use]
    pub fn sound_one(&self, number: u32) -> Option<&Selector> {
        self.known(number)?.compiled.as_ref()?.as_ref().ok()
    }

    /// Whether selectors wait, or claims are to be notified.
    #[must_use]
    pub fn wait(&self) -> bool {
        !self.waiting.is_empty() || !self.finished.is_empty() || !self.behind.is_empty()
    }

    /// Whether selectors can be evaluated now.
    #[must_use]
    pub fn are_due(&self) -> bool {
        self.left > 0 && !self.waiting.is_empty()
    }

    /// The next selector to evaluate, compiled if possible: namespaces take turns.
    pub fn next(&mut self) -> Option<Job> {
        if self.left == 0 {
            return None;
        }
        let after = (Bound::Excluded(self.last.clone()), Bound::Unbounded);
        let next = self
            .waiting
            .range(after)
            .next()
            .or_else(|| self.waiting.first_key_value());
        let namespace = next?.0.clone();
        let jobs = self.waiting.get_mut(&namespace)?;
        let number = jobs.pop_front()?;
        if jobs.is_empty() {
            self.waiting.remove(&namespace);
        }
        self.last = namespace;
        let known = self.known.get_mut(number as usize)?.as_mut()?;
        known.queued = false;
        if known.compiled.is_none() {
            known.compiled = Some(Selector::compile(&known.text));
            self.left = self.left.saturating_sub(COMPILING + PER_BYTE * known.text.len());
        }
        let through = known.through;
        Some(Job { number, through })
    }

    /// Steps of evaluating a selector on so many devices.
    #[must_use]
    pub fn cost(&self, number: u32, devices: usize) -> usize {
        let steps = self.sound_one(number).map_or(0, |selector| selector.steps);
        devices.saturating_mul(PER_DEVICE.saturating_add(steps))
    }

    /// A selector is evaluated up to this change: the first of its namespace to go on.
    pub fn put_back(&mut self, number: u32, through: u64) {
        if let Some(known) = self.known_mut(number) {
            known.through = through;
            known.queued = true;
            let namespace = known.namespace.clone();
            self.waiting.entry(namespace).or_default().push_front(number);
        }
    }

    /// Marks a selector as evaluated on every device; the last change is given.
    pub fn finish(&mut self, number: u32, last: u64) {
        if let Some(known) = self.known.get_mut(number as usize).and_then(Option::as_mut) {
            known.through = last;
            match std::mem::replace(&mut known.state, State::Evaluated) {
                State::New => self.finished.extend(known.users.keys().cloned()),
                State::Behind => self.behind.extend(known.users.keys().cloned()),
                State::Evaluated => {}
            }
        }
    }
}
