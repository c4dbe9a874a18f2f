//! What goes wrong again and again, said once.

use std::fmt::Display;

use tracing::{info, warn};

/// Something that may fail at every turn.
#[derive(Debug)]
pub struct RepeatedError {
    what: &'static str,
    /// What was said, and how often it has been so.
    said: Option<(String, u64)>,
}

impl RepeatedError {
    pub fn new(what: &'static str) -> Self {
        Self { what, said: None }
    }

    /// It failed.
    pub fn failed(&mut self, error: &dyn Display) {
        let error = error.to_string();
        match &mut self.said {
            Some((said, times)) if *said == error => *times += 1,
            said => {
                warn!(error, "{}; trying again", self.what);
                *said = Some((error, 1));
            }
        }
    }

    /// It did not fail.
    pub fn passed(&mut self) {
        if let Some((said, times)) = self.said.take() {
            info!(times, was = said, "no longer so: {}", self.what);
        }
    }
}
