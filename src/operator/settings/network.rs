//! Flags of the connections to the API server: how long answers may take.

use std::time::Duration;

use super::super::client::Patience;
use super::super::lease::seconds;

/// Flags of the connections to the API server.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Network")]
pub struct NetworkArgs {
    /// A request to the API server that has no answer after this time has failed, in seconds
    #[arg(long, env = "UNIKAI_REQUEST_TIMEOUT", value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub request_timeout: Duration,

    /// A watch is ended and taken up again after this time, in seconds, so that one that has died unnoticed is replaced 5 seconds
    /// later at most
    #[arg(long, env = "UNIKAI_WATCH_TIMEOUT", value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=WATCH_MAX))]
    pub watch_timeout: u32,

    /// Pod groups, statuses and events are written when no binding is outstanding, or have waited for so many seconds
    #[arg(long, env = "UNIKAI_BACKGROUND_DELAY", value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub background_delay: Duration,
}

/// The client library gives up on watches that are silent for 295 s.
const WATCH_MAX: i64 = 290;

impl NetworkArgs {
    /// As the clients' timeouts.
    pub fn patience(&self) -> Patience {
        Patience {
            request: self.request_timeout,
            watch: Duration::from_secs(u64::from(self.watch_timeout)),
        }
    }
}
