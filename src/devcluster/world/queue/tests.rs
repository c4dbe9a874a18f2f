use std::sync::Arc;

use kube::core::Status;
use tokio::sync::{Semaphore, mpsc};

use super::*;

/// A queue that is worked on in the background: each visit shows its key and waits for leave to go on.
struct Worked {
    queue: Arc<WorkQueue<String>>,
    visits: mpsc::UnboundedReceiver<String>,
    leave: Arc<Semaphore>,
}

/// Works a queue whose visits end, in their order, as `outcomes` say, and well after that.
fn work(clock: &Clock, outcomes: Vec<kube::Result<Again>>) -> Worked {
    let queue = Arc::new(WorkQueue::new());
    let leave = Arc::new(Semaphore::new(0));
    let (seen, visits) = mpsc::unbounded_channel();
    let (shared, clock, gate) = (Arc::clone(&queue), clock.clone(), Arc::clone(&leave));
    let outcomes = Mutex::new(VecDeque::from(outcomes));
    tokio::spawn(async move {
        shared
            .run(&clock, 4, |key| {
                let outcome = outcomes
                    .lock()
                    .expect("the outcomes")
                    .pop_front()
                    .unwrap_or(Ok(Again::OnChange));
                let (seen, gate) = (seen.clone(), Arc::clone(&gate));
                async move {
                    seen.send(key).expect("the test listens");
                    gate.acquire().await.expect("the gate is open").forget();
                    outcome
                }
            })
            .await;
    });
    Worked { queue, visits, leave }
}

#[tokio::test]
async fn a_key_added_while_it_is_worked_on_is_worked_on_once_more_and_never_twice_at_once() {
    let mut worked = work(&Clock::tokio(), Vec::new());
    worked.queue.add("a".to_owned());
    assert_eq!(worked.visits.recv().await.as_deref(), Some("a"));
    worked.queue.add("a".to_owned());
    worked.queue.add("a".to_owned());
    worked.queue.add("b".to_owned());
    assert_eq!(worked.visits.recv().await.as_deref(), Some("b"));
    worked.leave.add_permits(2);
    assert_eq!(worked.visits.recv().await.as_deref(), Some("a"));
    worked.leave.add_permits(1);
    worked.queue.add("c".to_owned());
    assert_eq!(worked.visits.recv().await.as_deref(), Some("c"));
}

#[tokio::test]
async fn a_failed_key_is_retried_and_a_later_visit_waits_for_the_clock() {
    let (clock, driver) = Clock::manual("2026-01-01T00:00:00Z".parse().expect("a timestamp"));
    let later = super::super::clock::later(clock.now(), Duration::from_secs(60));
    let stale = kube::Error::Api(Status::failure("no", "Conflict").with_code(409).boxed());
    let mut worked = work(&clock, vec![Err(stale), Ok(Again::At(later))]);
    worked.leave.add_permits(9);
    worked.queue.add("a".to_owned());
    assert_eq!(worked.visits.recv().await.as_deref(), Some("a"));
    assert_eq!(worked.visits.recv().await.as_deref(), Some("a"));
    driver.advance(Duration::from_secs(59));
    worked.queue.add("b".to_owned());
    assert_eq!(worked.visits.recv().await.as_deref(), Some("b"));
    driver.advance(Duration::from_secs(1));
    assert_eq!(worked.visits.recv().await.as_deref(), Some("a"));
}

#[test]
fn retries_grow_and_stale_views_are_retried_soon() {
    let refused = |code| kube::Error::Api(Status::failure("no", "x").with_code(code).boxed());
    assert_eq!(retry_delay(1, &refused(409)), Duration::from_millis(5));
    assert_eq!(retry_delay(1, &refused(403)), Duration::from_millis(50));
    assert_eq!(retry_delay(3, &refused(403)), Duration::from_millis(200));
    assert_eq!(retry_delay(u32::MAX, &refused(500)), Duration::from_secs(10));
}
