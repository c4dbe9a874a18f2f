//! The progress of long work: a line on standard error that is redrawn, if that is a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use super::show::bar;

/// Minimum interval of redrawing.
const INTERVAL: Duration = Duration::from_millis(100);

/// Escape sequence: moves to the beginning of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// See the module. The line is removed when this value is dropped.
pub struct ProgressLine {
    what: &'static str,
    is_terminal: bool,
    drawn: Option<Instant>,
}

impl ProgressLine {
    /// `what`: the counted parts of the work, such as `jobs have ended`.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        Self {
            what,
            is_terminal: std::io::stderr().is_terminal(),
            drawn: None,
        }
    }

    /// The same for work that prints results meanwhile: nothing is shown if standard output is a terminal, too.
    #[must_use]
    pub fn beside_output(what: &'static str) -> Self {
        let mut line = Self::new(what);
        line.is_terminal &= !std::io::stdout().is_terminal();
        line
    }

    /// Shows that `done` parts of `of` are done.
    pub fn show(&mut self, done: usize, of: usize) {
        let is_fresh = self.drawn.is_some_and(|drawn| drawn.elapsed() < INTERVAL);
        if self.is_terminal && !is_fresh {
            self.drawn = Some(Instant::now());
            // Errors are ignored: the work does not depend on the display.
            let _ = write!(std::io::stderr(), "{CLEAR}{}", words(self.what, done, of));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.drawn.is_some() {
            let _ = write!(std::io::stderr(), "{CLEAR}");
        }
    }
}

fn words(what: &str, done: usize, of: usize) -> String {
    format!("{} {done} of {of} {what}", bar(done as f64, of as f64, 30))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_progress_line_shows_the_part_that_is_done() {
        let words = super::words("jobs have ended", 1, 3);
        assert_eq!(words, "██████████░░░░░░░░░░░░░░░░░░░░ 1 of 3 jobs have ended");
    }
}
