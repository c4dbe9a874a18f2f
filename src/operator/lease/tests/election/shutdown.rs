//! Shutdowns: the Lease is released once no write can arrive any more, and nothing delays that for long.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_leader_that_shuts_down_hands_over_at_once_and_writes_nothing_more() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let mut b = lab.replica("b");
    sleep(Duration::from_secs(60)).await;
    assert!(!b.is_leading());
    assert_eq!(b.status.borrow().holder.as_deref(), Some("a"));
    let writes = a.writes();
    a.release.cancel();
    assert!(b.leads().await < MOMENT);
    assert!(!is_open(&writes).await, "the term is over");
    assert!(a.terms().of(&Scope::Cluster).is_none() && !a.is_leading());
    timeout(MOMENT, a.run).await.expect("it has ended").unwrap().unwrap();
    assert_eq!(lab.holder().await.as_deref(), Some("b"));
    assert_eq!(lab.lease().await.unwrap().spec.unwrap().lease_transitions, Some(1));
    assert_eq!(b.status.borrow().transitions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_shuts_down_at_once_without_touching_the_lease() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let b = lab.replica("b");
    sleep(Duration::from_secs(3)).await;
    b.release.cancel();
    timeout(MOMENT, b.run).await.expect("it has ended").unwrap().unwrap();
    assert!(a.is_leading());
    assert_eq!(lab.holder().await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_does_not_delay_the_release() {
    for effect in [Effect::Hang, Effect::HangAfter] {
        let lab = Lab::new().await;
        let mut a = lab.replica("a");
        a.leads().await;
        // The watch does not show a renewal that has taken effect, so the release conflicts with it.
        lab.server.faults().silence_watches(Match::verb_on("watch", "leases"));
        let renewal = lab.fault("update", "a", effect, Times::Always);
        while lab.server.faults().struck(renewal) == 0 {
            sleep(Duration::from_millis(50)).await;
        }
        lab.server.faults().remove(renewal);
        a.release.cancel();
        timeout(MOMENT, a.run).await.expect("it has ended").unwrap().unwrap();
        assert_eq!(lab.holder().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_long_for_an_attempt_to_take_the_lease() {
    for effect in [Effect::Hang, Effect::HangAfter, Effect::Delay(Duration::from_secs(1))] {
        let lab = Lab::new().await;
        let a = lab.replica("a");
        let attempt = lab.fault("create", "a", effect.clone(), Times::Always);
        while lab.server.faults().struck(attempt) == 0 {
            sleep(Duration::from_millis(50)).await;
        }
        a.release.cancel();
        let limit = Duration::from_secs(3);
        timeout(limit, a.run).await.expect("it has ended").unwrap().unwrap();
        if !matches!(effect, Effect::HangAfter) {
            assert_eq!(lab.holder().await, None, "{effect:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_only_when_no_sent_write_can_still_arrive() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    let hangs = Match::verb_on("patch", "namespaces");
    lab.server.faults().add(hangs, Effect::Hang, Times::Always);
    let writes = a.writes();
    let write = tokio::spawn(async move { is_open(&writes).await });
    sleep(MOMENT).await;
    let mut b = lab.replica("b");
    sleep(MOMENT).await;
    a.release.cancel();
    let handed_over = b.leads().await;
    let late = params("a").duration - params("a").renew_deadline;
    assert!(
        late - 3 * MOMENT < handed_over && handed_over < late + MOMENT,
        "{handed_over:?}"
    );
    write.abort();
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_refused_is_not_repeated() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    lab.fault("update", "a", Effect::Delay(MOMENT), Times::Always);
    let refusal = lab.fault("update", "a", refuse(403), Times::Always);
    a.release.cancel();
    a.run.await.unwrap().unwrap();
    assert_eq!(lab.server.faults().struck(refusal), 1);
    assert_eq!(lab.holder().await.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_shuts_down_does_not_try_to_take_a_lease_again_that_it_lost() {
    let lab = Lab::new().await;
    let mut a = lab.replica("a");
    a.leads().await;
    lab.fault("update", "a", Effect::Hang, Times::Always);
    // Once it has lost the Lease, this write may still arrive for a while.
    let hangs = Match::verb_on("patch", "namespaces");
    lab.server.faults().add(hangs, Effect::Hang, Times::Always);
    sleep(Duration::from_secs(5)).await;
    let writes = a.writes();
    let write = tokio::spawn(async move { is_open(&writes).await });
    a.follows().await;
    a.release.cancel();
    let attempts = lab.fault("get", "a", Effect::Hang, Times::Always);
    let late = params("a").duration - params("a").renew_deadline;
    let limit = late + params("a").retry_period + MOMENT;
    timeout(limit, a.run).await.expect("it has ended").unwrap().unwrap();
    assert_eq!(lab.server.faults().struck(attempts), 0);
    write.abort();
}
