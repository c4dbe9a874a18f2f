//! Which answers of the API server are slow, compared with the fastest. Pure.

use std::time::Duration;

/// An answer is slow if it takes this many times as long as the fastest, and a margin longer.
const SLOW: f64 = 8.0;
/// The fastest drifts upwards by this factor, so that one fast answer does not count for ever.
const DRIFT: f64 = 1.001;

/// The latencies of a kind of request.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    margin: Duration,
    quickest: Option<Duration>,
}

impl Latency {
    /// Without answers so far.
    #[must_use]
    pub const fn with_margin(margin: Duration) -> Self {
        Self { margin, quickest: None }
    }

    /// Records an answer. Returns whether it was slow.
    pub fn is_slow(&mut self, took: Duration) -> bool {
        let quickest = self.quickest.map_or(took, |quickest| took.min(quickest.mul_f64(DRIFT)));
        self.quickest = Some(quickest);
        took > quickest.mul_f64(SLOW) + self.margin
    }
}
