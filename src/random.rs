//! Random names, numbers and times. All code gets them here, so that the simulation of the whole world can be repeated.

use std::time::Duration;

use uuid::Uuid;

/// A random identifier.
#[must_use]
pub fn uuid() -> Uuid {
    #[cfg(feature = "devcluster")]
    if let Some(uuid) = seeded::uuid() {
        return uuid;
    }
    Uuid::new_v4()
}

/// A delay between two steps that other threads may come between. A simulation has one thread only and draws it; otherwise there is none.
pub async fn delay() {
    #[cfg(feature = "devcluster")]
    if let Some(delay) = seeded::delay() {
        tokio::time::sleep(delay).await;
    }
}

/// The time that a search for victims takes in a simulation, where computing takes none; otherwise it is measured, and this is zero.
#[must_use]
pub fn time_of_search() -> Duration {
    #[cfg(feature = "devcluster")]
    if let Some(time) = seeded::time_of_search() {
        return time;
    }
    Duration::ZERO
}

#[cfg(feature = "devcluster")]
pub use seeded::seed;

/// The numbers of a simulation, which runs on one thread.
#[cfg(feature = "devcluster")]
mod seeded {
    use std::cell::Cell;
    use std::time::Duration;

    use uuid::{Builder, Uuid};

    thread_local! {
        static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// From now on all that this thread gets here follows from the seed; with `None` it is random again.
    pub fn seed(seed: Option<u64>) {
        STATE.set(seed);
    }

    pub(super) fn uuid() -> Option<Uuid> {
        let (first, second) = (draw()?, draw()?);
        let bits = (u128::from(first) << 64) | u128::from(second);
        Some(Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
    }

    /// One step in 16 is delayed by some milliseconds, one in 2,048 for as long as a machine with too little CPU may take.
    pub(super) fn delay() -> Option<Duration> {
        let drawn = draw()?;
        let longest = match drawn % 2_048 {
            0 => 2_000,
            1..128 => 40,
            _ => return None,
        };
        Some(Duration::from_millis(1 + (drawn >> 32) % longest))
    }

    /// As on a cluster with many nodes and workloads.
    pub(super) fn time_of_search() -> Option<Duration> {
        Some(Duration::from_micros(draw()? % 5_000))
    }

    /// The next number of the generator `SplitMix64`, if this thread has a seed.
    fn draw() -> Option<u64> {
        let state = STATE.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
        STATE.set(Some(state));
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }
}
