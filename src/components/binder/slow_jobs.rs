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
        let _slow = Slow::begin(self);
        self.news.notify_one();
        job.await
    }
}

/// A job that is slow. It counts until this is dropped, also if the job panics.
struct Slow<'a>(&'a SlowJobs);

impl<'a> Slow<'a> {
    fn begin(jobs: &'a SlowJobs) -> Self {
        jobs.count.fetch_add(1, Ordering::Relaxed);
        Self(jobs)
    }
}

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::components::panics;

    #[tokio::test(start_paused = true)]
    async fn a_slow_job_that_panics_is_counted_no_more() {
        let jobs = SlowJobs::default();
        let job = async {
            sleep(Duration::from_secs(2)).await;
            panic!("a fault");
        };
        let ended = panics::caught(jobs.watch::<()>(job)).await;
        assert_eq!(ended, Err("a fault".to_owned()));
        assert_eq!(jobs.count(), 0);
    }
}
