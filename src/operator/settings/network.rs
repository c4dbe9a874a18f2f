//! Flags of the connections to the API server: how long answers may take.

use std::time::Duration;

use super::super::client::Timeouts;
use super::super::lease::seconds;

/// Flags of the connections to the API server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// Timeout of requests to the API server, in seconds
    #[arg(long, env = "UNIKAI_REQUEST_TIMEOUT", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub request_timeout: Duration,

    /// A watch is ended and resumed after this time, in seconds, so that a watch whose connection is dead is replaced at most 5 seconds
    /// later
    #[arg(long, env = "UNIKAI_WATCH_TIMEOUT", value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=WATCH_MAX))]
    pub watch_timeout: u32,

    /// Pod groups, statuses and events are written when no binding is outstanding, at the latest after this time, in seconds
    #[arg(long, env = "UNIKAI_BACKGROUND_DELAY", value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub background_delay: Duration,
}

/// The client library ends watches that are silent for 295 s.
const WATCH_MAX: i64 = 290;

impl NetworkArgs {
    /// As the clients' timeouts.
    pub fn timeouts(&self) -> Timeouts {
        Timeouts {
            request: self.request_timeout,
            watch: Duration::from_secs(u64::from(self.watch_timeout)),
        }
    }
}
