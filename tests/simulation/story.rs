//! What happened in a run: the requests of everybody with the time, their hash, and the first broken rule.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use unikai::rules;

/// Lines that are kept.
const KEPT: usize = 400;
/// Characters of a line that are kept.
const WIDTH: usize = 260;

/// The story of one run. Clones share it.
#[derive(Clone)]
pub struct Story {
    inner: Arc<Mutex<Inner>>,
    began: Instant,
}

struct Inner {
    hash: DefaultHasher,
    requests: u64,
    lines: VecDeque<String>,
    violation: Option<Violation>,
    all: Option<std::fs::File>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub rule: &'static str,
    pub what: String,
}

impl Inner {
    fn write(&mut self, line: &str) {
        if let Some(file) = &mut self.all {
            let _ = writeln!(file, "{line}");
        }
    }
}

impl Story {
    /// The story of what happens from now on; written to a file, too, to be read whole.
    pub fn begin(file: Option<&str>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                hash: DefaultHasher::new(),
                requests: 0,
                lines: VecDeque::new(),
                violation: None,
                all: file.map(|file| std::fs::File::create(file).expect("a file for the story")),
            })),
            began: Instant::now(),
        }
    }

    fn line(&self, text: &str) {
        let line = self.stamped(text);
        let mut inner = self.inner();
        line.hash(&mut inner.hash);
        inner.write(&line);
        if text.contains(" GET ") || text.contains(" WATCH ") || text.contains("/leases/") {
            return;
        }
        let cut = line.char_indices().nth(WIDTH).map_or(line.len(), |(at, _)| at);
        inner.lines.push_back(line[..cut].to_owned());
        if inner.lines.len() > KEPT {
            inner.lines.pop_front();
        }
    }

    /// A line of the operator's log. It is in the file only, and does not count for the hash.
    pub fn log(&self, text: &str) {
        let line = self.stamped(&format!("log: {text}"));
        self.inner().write(&line);
    }

    fn stamped(&self, text: &str) -> String {
        format!("{:>9.3} {text}", self.began.elapsed().as_secs_f64())
    }

    /// Whether the story is written to a file.
    pub fn is_kept(&self) -> bool {
        self.inner().all.is_some()
    }

    /// A request and its outcome.
    pub fn request(&self, who: &str, request: &str, fate: &str) {
        self.inner().requests += 1;
        self.line(&format!("{who}: {fate} {request}"));
    }

    /// A step of an actor.
    pub fn step(&self, number: usize, what: &str) {
        self.line(&format!("---- step {number}: {what}"));
    }

    /// A rule is broken. The first one counts.
    pub fn violation(&self, rule: &'static str, what: String) {
        debug_assert!(rules::by_id(rule).is_some(), "{rule} is not in the catalogue");
        self.line(&format!("**** {rule} is broken: {what}"));
        self.inner().violation.get_or_insert(Violation { rule, what });
    }

    /// How long the run has lasted, in ms.
    pub fn at(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub fn broken(&self) -> Option<Violation> {
        self.inner().violation.clone()
    }

    /// A number that is the same for runs in which the same happened at the same times.
    pub fn hash(&self) -> u64 {
        self.inner().hash.finish()
    }

    pub fn requests(&self) -> u64 {
        self.inner().requests
    }

    /// The last lines.
    pub fn last(&self, lines: usize) -> String {
        let inner = self.inner();
        let skipped = inner.lines.len().saturating_sub(lines);
        let mut text = String::new();
        for line in inner.lines.iter().skip(skipped) {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
