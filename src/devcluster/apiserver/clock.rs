//! The time that the API server stamps on objects, which tests can move. Token life, latency and watch timeouts run on real time.

use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

/// A shared clock: the system's time plus what [`Clock::advance`] added.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    offset: Arc<Mutex<SignedDuration>>,
}

impl Clock {
    /// A clock with the system's time until it is moved.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let offset = *self.lock();
        crate::clock::now().saturating_add(offset).unwrap_or(Timestamp::MAX)
    }

    /// Moves the clock forward, or back with a negative duration.
    pub fn advance(&self, by: SignedDuration) {
        let mut offset = self.lock();
        *offset = offset.saturating_add(by);
    }

    /// The current time to the second in RFC 3339, as `metav1.Time` is written.
    pub(crate) fn stamp(&self) -> String {
        seconds(self.now())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SignedDuration> {
        self.offset.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A time to the second in RFC 3339.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
