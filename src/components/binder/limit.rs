//! Limit on concurrent requests: grows while answers are fast, and drops at once when the API server throttles or
//! is slow. Additive increase, multiplicative decrease. Pure.

use std::time::Duration;

use crate::components::latency::Latency;

/// Initial limit: enough for a burst.
const START: f64 = 32.0;
/// Minimum.
const LOWEST: f64 = 2.0;
/// Maximum: a larger number only moves the queue into the API server.
const HIGHEST: f64 = 192.0;
/// Margin of slow answers. While others create pods in a burst, an API server on few cores takes some 100 ms for each request, whoever sends
/// it; with fewer bindings at a time only the others would be faster.
const SLOW: Duration = Duration::from_millis(500);
/// Factor after throttling.
const AFTER_REFUSAL: f64 = 0.5;
/// Factor after a slow answer.
const AFTER_SLOW: f64 = 0.97;

/// The limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    allowed: f64,
    latency: Latency,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            allowed: START,
            latency: Latency::with_margin(SLOW),
        }
    }
}

impl Limit {
    /// Whether one more may start.
    #[must_use]
    pub fn admits(&self, under_way: usize) -> bool {
        f64::from(u32::try_from(under_way).unwrap_or(u32::MAX)) + 1.0 <= self.allowed
    }

    /// The limit.
    #[must_use]
    pub fn allowed(&self) -> f64 {
        self.allowed.floor()
    }

    /// Records an answer with its latency.
    pub fn answered(&mut self, latency: Duration) {
        let next = if self.latency.is_slow(latency) {
            self.allowed * AFTER_SLOW
        } else {
            self.allowed + 1.0 / self.allowed
        };
        self.allowed = next.clamp(LOWEST, HIGHEST);
    }

    /// Records throttling or a timeout.
    pub fn refused(&mut self) {
        self.allowed = (self.allowed * AFTER_REFUSAL).max(LOWEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(limit: &Limit) -> usize {
        (0..).find(|under_way| !limit.admits(*under_way)).unwrap()
    }

    #[test]
    fn the_limit_grows_with_quick_responses_and_halves_on_refusals() {
        let mut limit = Limit::default();
        assert_eq!(allowed(&limit), 32);
        assert!((limit.allowed() - 32.0).abs() < f64::EPSILON, "{limit:?}");
        for _ in 0..32 * 20 {
            limit.answered(Duration::from_millis(2));
        }
        assert!((45..=60).contains(&allowed(&limit)), "{limit:?}");
        limit.refused();
        assert!((22..=30).contains(&allowed(&limit)), "{limit:?}");
    }

    #[test]
    fn slow_responses_lower_the_limit_but_never_to_zero() {
        let mut limit = Limit::default();
        limit.answered(Duration::from_millis(2));
        for _ in 0..1000 {
            limit.answered(Duration::from_secs(2));
        }
        assert!(allowed(&limit) < 32, "{limit:?}");
        for _ in 0..1000 {
            limit.refused();
        }
        assert_eq!(allowed(&limit), 2);
    }
}
