//! Leaves steps out of a run that fails for as long as the same rule stays broken.

use std::time::{Duration, Instant};

use crate::plan::Timed;
use crate::run::{How, run};
use crate::story::Violation;

/// How long is tried.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// The steps that are left, and the last lines of their story.
pub fn shrink(seed: u64, steps: &[Timed], violation: &Violation, how: &How) -> (Vec<Timed>, String) {
    let until = Instant::now() + MAX_WAIT;
    let mut left = steps.to_vec();
    let mut last = String::new();
    let mut size = left.len().div_ceil(2);
    while size > 0 && Instant::now() < until {
        let mut at = 0;
        while at < left.len() && Instant::now() < until {
            let mut fewer = left.clone();
            fewer.drain(at..(at + size).min(left.len()));
            let outcome = run(seed, &fewer, how);
            if outcome.violation.is_some_and(|found| found.rule == violation.rule) {
                (left, last) = (fewer, outcome.last);
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    (left, last)
}
