//! Signals: the first SIGTERM or SIGINT starts a graceful shutdown, the second exits at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// The exit status after the second signal.
const ABORTED: i32 = 130;

/// Cancels the token at the first signal and ends the process at the second. Never returns.
///
/// # Errors
/// When the signals cannot be listened to.
pub async fn on_signal(shutdown: CancellationToken) -> std::io::Result<std::convert::Infallible> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        if shutdown.is_cancelled() {
            warn!(
                signal = name,
                "second signal: exiting without finishing work in progress"
            );
            std::process::exit(ABORTED);
        }
        info!(
            signal = name,
            "finishing work in progress; another signal ends the process at once"
        );
        shutdown.cancel();
    }
}
