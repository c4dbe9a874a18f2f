//! Slow jobs. They do not count against the limit of the binder, so that hanging requests do not block others.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use tokio::time::timeout;

use crate::components::retry::LAGGING;

/// How many jobs are slow.
#[derive(Debug, Default)]
pub struct SlowJobs {
    pub(super) count: AtomicUsize,
    news: Notify,
}

impl SlowJobs {
    /// Their number.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits until there is another one.
    pub async fn changed(&self) {
        self.news.notified().await;
    }

    /// Waits for the end of a job, and counts it as slow after a while.
    pub async fn watch<T>(&self, job: impl Future<Output = T>) -> T {
        let mut job = pin!(job);
        if let Ok(ended) = timeout(LAGGING, &mut job).await {
            return ended;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        self.news.notify_one();
        let ended = job.await;
        self.count.fetch_sub(1, Ordering::Relaxed);
        ended
    }
}
