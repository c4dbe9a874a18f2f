use super::*;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a timestamp")
}

#[tokio::test]
async fn a_manual_clock_wakes_its_sleepers_only_when_driven_past_them() {
    let (clock, driver) = Clock::manual(start());
    let due = later(start(), Duration::from_secs(5));
    let sleeper = tokio::spawn({
        let clock = clock.clone();
        async move { clock.sleep_until(due).await }
    });
    driver.advance(Duration::from_secs(4));
    tokio::task::yield_now().await;
    assert!(!sleeper.is_finished());
    driver.advance(Duration::from_secs(1));
    sleeper.await.expect("the sleeper wakes");
    assert_eq!(clock.now(), due);
}

#[tokio::test]
async fn the_default_clock_moves_and_what_is_past_needs_no_wait() {
    let clock = Clock::tokio();
    let before = clock.now();
    clock.sleep_until(before).await;
    let soon = later(before, Duration::from_millis(5));
    clock.sleep_until(soon).await;
    assert!(clock.now() >= soon);
}

#[test]
fn later_never_overflows() {
    assert_eq!(later(start(), Duration::MAX), Timestamp::MAX);
}
