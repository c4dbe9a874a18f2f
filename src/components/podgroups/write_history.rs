//! When the message of an object may be written again: another cause at once, other figures or other text in parentheses of the same cause with growing
//! delays. Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use crate::components::retry::Backoff;
use crate::engine::overview::first_sentence;

/// Delay before the same cause is written with other figures: first and longest.
const FIGURES: Backoff = Backoff {
    first: Duration::from_secs(10),
    longest: Duration::from_secs(900),
};
/// The first such delay where few wait, so that it costs the API server little.
const FIGURES_OF_FEW: Duration = Duration::from_secs(3);
/// So many pod groups that wait are few.
const FEW: usize = 64;
/// Delay before another cause is written after causes have changed often: first and longest.
const CAUSES: Backoff = Backoff {
    first: Duration::from_secs(2),
    longest: Duration::from_secs(300),
};
/// Causes that are written without a delay, one after the other.
const CAUSES_AT_ONCE: u32 = 6;
/// After this time without a write the delays start again.
const CALM: Duration = Duration::from_secs(1_800);

/// The writes of one object.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteHistory {
    last: Option<Written>,
    /// Writes since the last pause, by what they changed: figures, cause.
    figures: u32,
    causes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    at: Instant,
    cause: u64,
    text: u64,
}

impl WriteHistory {
    /// When a text may be written, where so many pod groups wait.
    #[must_use]
    pub fn due(&self, text: &str, now: Instant, waiting: usize) -> Instant {
        let Some(last) = self.last.filter(|last| last.text != hash(text)) else {
            return now;
        };
        let wait = if last.cause == cause(text) && self.figures == 0 && waiting <= FEW {
            FIGURES_OF_FEW
        } else if last.cause == cause(text) {
            FIGURES.wait(self.figures + 1)
        } else if self.causes < CAUSES_AT_ONCE {
            Duration::ZERO
        } else {
            CAUSES.wait(self.causes + 1 - CAUSES_AT_ONCE)
        };
        (last.at + wait).max(now)
    }

    /// Whether a text has another cause than the one that was written last.
    #[must_use]
    pub fn is_news(&self, text: &str) -> bool {
        self.last.is_none_or(|last| last.cause != cause(text))
    }

    /// Whether a text is another than the one that was written last.
    #[must_use]
    pub fn is_other(&self, text: &str) -> bool {
        self.last.is_none_or(|last| last.text != hash(text))
    }

    /// Records a write.
    pub fn wrote(&mut self, text: &str, now: Instant) {
        if !self.is_other(text) {
            return;
        }
        let new = Written {
            at: now,
            cause: cause(text),
            text: hash(text),
        };
        match self.last.replace(new) {
            Some(last) if now.duration_since(last.at) > CALM => (self.figures, self.causes) = (0, 0),
            Some(last) if last.cause == new.cause => self.figures += 1,
            Some(_) => (self.figures, self.causes) = (0, self.causes + 1),
            None => {}
        }
    }
}

/// The first sentence without its figures, and without what is in parentheses: details such as the names of workloads, which change all the time.
fn cause(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut figure = false;
    let mut parentheses = 0_usize;
    let mut letters = first_sentence(text).chars().peekable();
    while let Some(letter) = letters.next() {
        parentheses += usize::from(letter == '(');
        if parentheses > 0 {
            parentheses -= usize::from(letter == ')');
            continue;
        }
        let goes_on = |next: Option<&char>| next.is_some_and(char::is_ascii_digit);
        let digit = letter.is_ascii_digit() || (figure && ".,:".contains(letter) && goes_on(letters.peek()));
        if !(digit && figure) {
            (if digit { '#' } else { letter }).hash(&mut hasher);
        }
        figure = digit;
    }
    hasher.finish()
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_figures_are_written_at_growing_intervals_and_another_cause_at_once() {
        let (mut history, start) = (WriteHistory::default(), Instant::now());
        let text = |used: u32| format!("Queue a holds {used}.5 of 16 GPUs until 15:{used}. More of it.");
        let mut at = start;
        let mut writes = 0;
        for second in 0..3_600 {
            let now = start + Duration::from_secs(second);
            let text = text(10 + second as u32);
            if history.due(&text, now, FEW + 1) <= now {
                assert_eq!(history.is_news(&text), writes == 0);
                history.wrote(&text, now);
                (writes, at) = (writes + 1, now);
            }
        }
        assert_eq!(
            writes, 10,
            "at 0, 10, 30, 70, 150, 310, 630, 1270, 2170 and 3070 seconds"
        );
        assert!(history.is_news("Node a is cordoned."));
        assert_eq!(history.due("Node a is cordoned.", at, 1), at);
    }

    #[test]
    fn the_first_other_figures_are_written_soon_where_few_wait() {
        let (mut history, start) = (WriteHistory::default(), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        history.wrote("Queue a holds 1", start);
        assert_eq!(history.due("Queue a holds 2", start, FEW), after(3));
        assert_eq!(history.due("Queue a holds 2", start, FEW + 1), after(10));
        history.wrote("Queue a holds 2", after(3));
        assert_eq!(history.due("Queue a holds 3", after(3), FEW), after(23));
    }

    #[test]
    fn other_names_in_parentheses_are_written_as_other_figures() {
        let (mut history, start) = (WriteHistory::default(), Instant::now());
        let text =
            |queue: &str, names: &str| format!("Queue {queue} holds 8 of 8 GPUs, within its quota ({names}). More.");
        history.wrote(&text("b", "gang-7, gpu-4 and 2 more"), start);
        let other = text("b", "train and serve (old)");
        assert!(!history.is_news(&other) && history.is_other(&other));
        assert_eq!(history.due(&other, start, FEW), start + FIGURES_OF_FEW);
        let elsewhere = text("c", "gang-7, gpu-4 and 2 more");
        assert!(history.is_news(&elsewhere));
        assert_eq!(history.due(&elsewhere, start, FEW), start);
    }

    #[test]
    fn causes_that_take_turns_all_the_time_are_written_rarely() {
        let (mut history, start) = (WriteHistory::default(), Instant::now());
        let written = (0..600).filter(|second| {
            let (now, text) = (
                start + Duration::from_secs(*second),
                ["one", "other"][*second as usize % 2],
            );
            let due = history.is_other(text) && history.due(text, now, 1) <= now;
            if due {
                history.wrote(text, now);
            }
            due
        });
        assert!(written.count() < 25);
    }

    #[test]
    fn equal_content_needs_no_write() {
        let (mut history, now) = (WriteHistory::default(), Instant::now());
        for _ in 0..100 {
            assert_eq!(history.due("the same", now, 1), now);
            history.wrote("the same", now);
        }
    }
}
