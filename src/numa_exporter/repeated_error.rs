//! Logs an error once while it repeats.

use std::fmt::Display;

use tracing::{info, warn};

/// An operation that may fail repeatedly.
#[derive(Debug)]
pub struct RepeatedError {
    what: &'static str,
    /// The logged error, and how often it occurred.
    said: Option<(String, u64)>,
}

impl RepeatedError {
    pub fn new(what: &'static str) -> Self {
        Self { what, said: None }
    }

    /// Records a failure.
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

    /// Records a success.
    pub fn passed(&mut self) {
        if let Some((said, times)) = self.said.take() {
            info!(times, was = said, "resolved: {}", self.what);
        }
    }
}
