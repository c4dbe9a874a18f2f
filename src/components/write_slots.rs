//! Slots for background writes (pod groups, statuses, events), shared by all components.
//!
//! A component waits for one slot at a time, when a write is due, and decides what to write only when it has the slot. So a write is never older than
//! its slot, writes that became needless are left out, and a component with many writes delays the next write of another by few of its own. No
//! component gets all slots: its writes may hang (in a webhook that does not answer, for example), and the others' must go on.
//!
//! Bindings go first: no slot is given while bindings are outstanding, in the quiet time after them, or for a while after an answer that shows that
//! the API server is overloaded. A write that has been due for longer than the component's `max_wait` waits for none of these. The time that the API
//! server asks for (`Retry-After`) is kept in any case.

use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::PollSemaphore;

use super::latency::Latency;
use super::retry::{Failure, asked_pause, failure};

/// Concurrent writes: enough to keep up with a thousand bindings a second, few enough not to delay bindings.
const WRITES_MAX: usize = 8;
/// Of these, the most of one component.
const OWN_MAX: usize = WRITES_MAX - 2;
/// The quiet time after bindings lasts as long as they did, within these bounds: it bridges the gaps in a burst, and a single binding delays nothing.
const QUIET: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// Margin of slow answers: bindings come first as soon as the API server is under pressure.
const SLOW: Duration = Duration::from_millis(50);
/// Upper bound of `max_wait`.
const MAX_WAIT_LIMIT: Duration = Duration::from_secs(3_600);

/// State shared by all background writers. Clones share it.
#[derive(Clone, Debug)]
pub struct Background {
    permits: Arc<Semaphore>,
    gate: watch::Sender<Gate>,
    max_wait: Duration,
}

/// What delays background writes.
#[derive(Clone, Copy, Debug)]
struct Gate {
    /// Since when bindings have been outstanding, without a gap longer than the quiet time.
    busy_since: Option<Instant>,
    /// Bindings are outstanding.
    outstanding: bool,
    /// No write before this time, unless it is overdue.
    quiet_until: Instant,
    /// No write before this time.
    paused_until: Instant,
    latency: Latency,
}

impl Background {
    /// `max_wait`: how long a write that is due waits for bindings.
    #[must_use]
    pub fn new(max_wait: Duration) -> Self {
        let now = Instant::now();
        Self {
            permits: Arc::new(Semaphore::new(WRITES_MAX)),
            gate: watch::Sender::new(Gate {
                busy_since: None,
                outstanding: false,
                quiet_until: now,
                paused_until: now,
                latency: Latency::with_margin(SLOW),
            }),
            // So that no instant is out of range.
            max_wait: max_wait.min(MAX_WAIT_LIMIT),
        }
    }

    /// How long a write that is due waits for bindings.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// The binder has bindings or evictions outstanding, or none any more.
    pub fn bindings(&self, outstanding: bool) {
        self.gate.send_if_modified(|gate| {
            if gate.outstanding == outstanding {
                return false;
            }
            let now = Instant::now();
            gate.outstanding = outstanding;
            if outstanding {
                let goes_on = gate.quiet_until > now;
                gate.busy_since = gate.busy_since.filter(|_| goes_on).or(Some(now));
            } else {
                let lasted = gate.busy_since.map_or(QUIET.0, |since| now - since);
                gate.quiet_until = gate.quiet_until.max(now + lasted.clamp(QUIET.0, QUIET.1));
            }
            true
        });
    }

    /// A background write was answered after this time.
    fn answered(&self, took: Duration, error: Option<&kube::Error>) {
        self.gate.send_if_modified(|gate| {
            let now = Instant::now();
            if let Some(error) = error {
                if failure(error) != Failure::Busy {
                    return false;
                }
                match asked_pause(error) {
                    Some(pause) => gate.paused_until = gate.paused_until.max(now + pause),
                    None => gate.quiet_until = gate.quiet_until.max(now + QUIET.1),
                }
                return true;
            }
            let slow = gate.latency.is_slow(took);
            if slow {
                gate.quiet_until = gate.quiet_until.max(now + QUIET.1);
            }
            slow
        });
    }
}

/// The right to send one write; released when dropped.
#[derive(Debug)]
pub struct WriteSlot {
    background: Background,
    began: Instant,
    _own: OwnedSemaphorePermit,
    _shared: OwnedSemaphorePermit,
}

impl WriteSlot {
    /// The write has ended, with this error if it failed.
    pub fn end(self, error: Option<&kube::Error>) {
        self.background.answered(self.began.elapsed(), error);
    }
}

/// A component's access to the slots.
#[derive(Debug)]
pub struct WriteSlots {
    background: Background,
    gate: watch::Receiver<Gate>,
    max_wait: Duration,
    own: PollSemaphore,
    shared: PollSemaphore,
    /// The component's own permit, while it waits for a shared one.
    held: Option<OwnedSemaphorePermit>,
}

impl WriteSlots {
    /// Access for a component.
    #[must_use]
    pub fn new(background: &Background) -> Self {
        Self::with_max_wait(background, Duration::MAX)
    }

    /// The same for writes that wait no longer than this for bindings.
    #[must_use]
    pub fn with_max_wait(background: &Background, max_wait: Duration) -> Self {
        Self {
            gate: background.gate.subscribe(),
            max_wait: max_wait.min(background.max_wait),
            own: PollSemaphore::new(Arc::new(Semaphore::new(OWN_MAX))),
            shared: PollSemaphore::new(Arc::clone(&background.permits)),
            held: None,
            background: background.clone(),
        }
    }

    /// Waits until that time (for ever, if nothing is due), then for a slot. May be dropped and called again: the position in the queue is kept.
    pub async fn due(&mut self, at: Option<Instant>) -> WriteSlot {
        match at {
            Some(at) => {
                sleep_until(at).await;
                self.after_bindings(at + self.max_wait).await;
            }
            None => pending().await,
        }
        if self.held.is_none() {
            self.held = poll_fn(|context| self.own.poll_acquire(context)).await;
        }
        let shared = poll_fn(|context| self.shared.poll_acquire(context)).await;
        match (self.held.take(), shared) {
            (Some(own), Some(shared)) => WriteSlot {
                background: self.background.clone(),
                began: Instant::now(),
                _own: own,
                _shared: shared,
            },
            // The semaphores are never closed.
            (None, _) | (_, None) => pending().await,
        }
    }

    /// Waits until nothing delays background writes, or until `latest`.
    async fn after_bindings(&mut self, latest: Instant) {
        loop {
            let gate = *self.gate.borrow_and_update();
            let free = if gate.outstanding {
                latest
            } else {
                gate.quiet_until.min(latest)
            };
            let free = free.max(gate.paused_until);
            if free <= Instant::now() {
                return;
            }
            tokio::select! {
                changed = self.gate.changed() => if changed.is_err() { return },
                () = sleep_until(free) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::core::Status;
    use serde_json::json;
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn background(permits: usize) -> Background {
        Background {
            permits: Arc::new(Semaphore::new(permits)),
            ..Background::new(Duration::from_secs(60))
        }
    }

    fn busy(seconds: u32) -> kube::Error {
        let status = json!({"code": 429, "reason": "TooManyRequests", "details": {"retryAfterSeconds": seconds}});
        let status: Status = serde_json::from_value(status).unwrap();
        kube::Error::Api(Box::new(status))
    }

    fn overdue() -> Option<Instant> {
        Instant::now().checked_sub(Duration::from_secs(61))
    }

    #[tokio::test]
    async fn writes_wait_while_bindings_are_outstanding_unless_they_are_overdue() {
        let shared = background(1);
        let mut slots = WriteSlots::new(&shared);
        shared.bindings(true);
        let now = Some(Instant::now());
        assert!(timeout(SOON, slots.due(now)).await.is_err());
        assert!(timeout(SOON, slots.due(overdue())).await.is_ok());
        shared.bindings(false);
        assert!(timeout(QUIET.1 * 2, slots.due(now)).await.is_ok());
    }

    #[tokio::test]
    async fn each_writer_waits_at_most_its_own_delay() {
        let shared = background(1);
        let mut slots = WriteSlots::with_max_wait(&shared, SOON / 4);
        shared.bindings(true);
        assert!(timeout(SOON * 10, slots.due(Some(Instant::now()))).await.is_ok());
    }

    #[tokio::test]
    async fn the_quiet_time_is_as_long_as_the_preceding_burst_of_bindings() {
        let shared = background(1);
        for _ in 0..3 {
            shared.bindings(true);
            tokio::time::sleep(SOON).await;
            shared.bindings(false);
        }
        let quiet = shared.gate.borrow().quiet_until - Instant::now();
        assert!(quiet > SOON * 2 && quiet <= QUIET.1, "{quiet:?}");
    }

    #[tokio::test]
    async fn a_slow_response_causes_a_quiet_time_and_a_refusal_the_requested_pause() {
        let shared = background(2);
        let mut slots = WriteSlots::new(&shared);
        let now = Some(Instant::now());
        slots.due(now).await.end(None);
        assert!(timeout(SOON, slots.due(now)).await.is_ok());
        shared.answered(Duration::from_secs(3), None);
        assert!(timeout(SOON, slots.due(now)).await.is_err());
        assert!(timeout(SOON, slots.due(overdue())).await.is_ok());
        slots.due(overdue()).await.end(Some(&busy(1)));
        assert!(timeout(SOON, slots.due(overdue())).await.is_err());
        assert!(timeout(Duration::from_secs(5), slots.due(overdue())).await.is_ok());
    }

    #[tokio::test]
    async fn writers_get_slots_in_turn_whatever_they_have_to_write() {
        let shared = background(1);
        let (mut busy, mut other) = (WriteSlots::new(&shared), WriteSlots::new(&shared));
        let now = Some(Instant::now());
        let held = busy.due(now).await;
        // Polled repeatedly, as in a loop whose other branches come first.
        assert!(timeout(SOON, other.due(now)).await.is_err());
        assert!(timeout(SOON, busy.due(now)).await.is_err());
        assert!(timeout(SOON, other.due(now)).await.is_err());
        drop(held);
        let held = timeout(SOON, other.due(now)).await.unwrap();
        drop(held);
        assert!(timeout(SOON, busy.due(now)).await.is_ok());
    }

    #[tokio::test]
    async fn a_writer_with_hanging_writes_leaves_slots_to_others() {
        let shared = background(WRITES_MAX);
        let (mut hangs, mut other) = (WriteSlots::new(&shared), WriteSlots::new(&shared));
        let now = Some(Instant::now());
        let mut held = Vec::new();
        while let Ok(slot) = timeout(SOON, hangs.due(now)).await {
            held.push(slot);
        }
        assert_eq!(held.len(), OWN_MAX);
        assert!(timeout(SOON, other.due(now)).await.is_ok());
        held.pop();
        assert!(timeout(SOON, hangs.due(now)).await.is_ok());
    }

    #[tokio::test]
    async fn a_writer_without_due_writes_gets_no_slot() {
        let shared = background(1);
        let mut slots = WriteSlots::new(&shared);
        assert!(timeout(SOON, slots.due(None)).await.is_err());
        let later = Instant::now() + Duration::from_secs(60);
        assert!(timeout(SOON, slots.due(Some(later))).await.is_err());
        assert_eq!(shared.permits.available_permits(), 1);
    }
}
