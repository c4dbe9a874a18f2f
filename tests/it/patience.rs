//! How tests wait: for something that is looked at again and again, or for something to end. In both cases for so long that no slow machine fails
//! a test, and no longer.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks, at first; looking costs time that others need.
const SOON: Duration = Duration::from_millis(5);
/// Between two looks, later.
const LATER: Duration = Duration::from_millis(100);

/// What a look has come to.
pub trait Look {
    /// What is waited for.
    type Found;
    /// It, or why it is not there.
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

/// Looks until it is found; after [`PATIENCE`] fails the test with why it was not.
pub async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    match in_time(look).await {
        Ok(found) => found,
        Err(why) => panic!("not in time: {what}: {why}"),
    }
}

/// Looks until it is found, or says why it was not for all of [`PATIENCE`].
pub async fn in_time<L: Look>(mut look: impl AsyncFnMut() -> L) -> Result<L::Found, String> {
    let deadline = Instant::now() + PATIENCE;
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

/// Waits for something to end; after [`PATIENCE`] fails the test.
pub async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(ended) => ended,
        Err(_) => panic!("not in time: {what}"),
    }
}
