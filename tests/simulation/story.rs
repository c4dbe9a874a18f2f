//! What happened in a run: the requests of everybody with the time, their hash, and the first broken rule.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

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
    breach: Option<Breach>,
    all: Option<std::fs::File>,
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    pub rule: &'static str,
    pub what: String,
}

impl Story {
    /// The story of what happens from now on; written to a file, too, for whoever wants to read it whole.
    pub fn begin(file: Option<&str>) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                hash: DefaultHasher::new(),
                requests: 0,
                lines: VecDeque::new(),
                breach: None,
                all: file.map(|file| std::fs::File::create(file).expect("a file for the story")),
            })),
            began: Instant::now(),
        }
    }

    fn line(&self, text: &str) {
        let at = self.began.elapsed();
        let line = format!("{:>9.3} {text}", at.as_secs_f64());
        let mut inner = self.inner();
        line.hash(&mut inner.hash);
        if let Some(file) = &mut inner.all {
            use std::io::Write as _;
            let _ = writeln!(file, "{line}");
        }
        if text.contains(" GET ") || text.contains(" WATCH ") || text.contains("/leases/") {
            return;
        }
        let cut = line.char_indices().nth(WIDTH).map_or(line.len(), |(at, _)| at);
        inner.lines.push_back(line[..cut].to_owned());
        if inner.lines.len() > KEPT {
            inner.lines.pop_front();
        }
    }

    /// A line of the operator's log, for who reads the story whole.
    pub fn log(&self, text: &str) {
        let at = self.began.elapsed();
        if let Some(file) = &mut self.inner().all {
            use std::io::Write as _;
            let _ = writeln!(file, "{:>9.3} log: {text}", at.as_secs_f64());
        }
    }

    /// Whether the story is written to a file.
    pub fn is_kept(&self) -> bool {
        self.inner().all.is_some()
    }

    /// A request and its fate.
    pub fn tell(&self, who: &str, request: &str, fate: &str) {
        self.inner().requests += 1;
        self.line(&format!("{who}: {fate} {request}"));
    }

    /// A step of an actor.
    pub fn step(&self, number: usize, what: &str) {
        self.line(&format!("---- step {number}: {what}"));
    }

    /// A rule is broken. The first one counts.
    pub fn breach(&self, rule: &'static str, what: String) {
        self.line(&format!("**** {rule} is broken: {what}"));
        self.inner().breach.get_or_insert(Breach { rule, what });
    }

    /// How long the run has lasted, in ms.
    pub fn at(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub fn broken(&self) -> Option<Breach> {
        self.inner().breach.clone()
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
