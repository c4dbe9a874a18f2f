//! How tests wait: by polling, or for a future to end. In both cases with a timeout that is long enough for slow machines.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// The timeout of every wait.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// The interval of polling at first.
const SOON: Duration = Duration::from_millis(5);
/// The interval later, as polling costs time that other tests need.
const LATER: Duration = Duration::from_millis(100);

/// The result of a poll.
pub trait Look {
    /// What is waited for.
    type Found;
    /// The value, or why it is not there.
    fn found(self) -> Result<Self::Found, String>;
}

impl<T> Look for Option<T> {
    type Found = T;
    fn found(self) -> Result<T, String> {
        self.ok_or_else(|| "it is not so".to_owned())
    }
}

impl<T> Look for Result<T, String> {
    type Found = T;
    fn found(self) -> Self {
        self
    }
}

/// Polls until there is a value; fails the test after [`MAX_WAIT`], with the reason why there is none.
pub async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    match in_time(look).await {
        Ok(found) => found,
        Err(why) => panic!("not in time: {what}: {why}"),
    }
}

/// Polls until there is a value, for at most [`MAX_WAIT`]; else returns the reason why there is none.
pub async fn in_time<L: Look>(mut look: impl AsyncFnMut() -> L) -> Result<L::Found, String> {
    let deadline = Instant::now() + MAX_WAIT;
    let mut pause = SOON;
    loop {
        match look().await.found() {
            Ok(found) => return Ok(found),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 3 / 2).min(LATER);
    }
}

/// Waits for something to end; after [`MAX_WAIT`] fails the test.
pub async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(MAX_WAIT, work).await {
        Ok(ended) => ended,
        Err(_) => panic!("not in time: {what}"),
    }
}
