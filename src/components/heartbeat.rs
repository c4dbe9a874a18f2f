//! Detects a stuck thread: the thread marks the beginning and the end of each piece of work, and others read how long it has been busy with the
//! current one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

/// The heartbeat of one thread and of its [parts](Self::part). Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    start: Instant,
    /// When the work began: milliseconds after `start`, plus one; 0 while the thread waits.
    began: Arc<AtomicU64>,
    parts: Arc<Mutex<Vec<Weak<AtomicU64>>>>,
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            began: Arc::default(),
            parts: Arc::default(),
        }
    }
}

impl Heartbeat {
    /// The heartbeat of another thread, which counts in this one until it is dropped.
    #[must_use]
    pub fn part(&self) -> Self {
        let part = Self {
            start: self.start,
            ..Self::default()
        };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.retain(|part| part.strong_count() > 0);
        parts.push(Arc::downgrade(&part.began));
        part
    }

    /// Marks the begin of a piece of work.
    pub fn work(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.began.store(now.saturating_add(1), Ordering::Relaxed);
    }

    /// Marks its end.
    pub fn wait(&self) {
        self.began.store(0, Ordering::Relaxed);
    }

    /// How long the current piece of work has taken; of this thread and its parts the longest.
    #[must_use]
    pub fn busy_for(&self) -> Duration {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let parts = parts.iter().filter_map(Weak::upgrade);
        let began = parts
            .chain([Arc::clone(&self.began)])
            .map(|began| began.load(Ordering::Relaxed))
            .filter(|began| *began > 0);
        began.min().map_or(Duration::ZERO, |began| {
            self.start.elapsed().saturating_sub(Duration::from_millis(began - 1))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_busy_time_counts() {
        let heartbeat = Heartbeat::default();
        assert_eq!(heartbeat.busy_for(), Duration::ZERO);
        heartbeat.work();
        std::thread::sleep(Duration::from_millis(20));
        assert!(heartbeat.clone().busy_for() >= Duration::from_millis(15));
        heartbeat.wait();
        assert_eq!(heartbeat.busy_for(), Duration::ZERO);
    }

    #[test]
    fn the_thread_that_is_stuck_longest_counts() {
        let heartbeat = Heartbeat::default();
        let (stuck, idle) = (heartbeat.part(), heartbeat.part());
        stuck.work();
        idle.wait();
        std::thread::sleep(Duration::from_millis(20));
        heartbeat.work();
        assert!(heartbeat.busy_for() >= Duration::from_millis(15));
        drop(stuck);
        heartbeat.wait();
        assert_eq!(heartbeat.busy_for(), Duration::ZERO);
    }
}
