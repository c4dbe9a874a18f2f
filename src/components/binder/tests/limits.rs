//! How many jobs are open at once, and what waits for them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::kept::{binder, done};
use super::running::Case;
use super::*;
use crate::components::binder::{Binder, Job};
use crate::components::bus::BindOrder;
use crate::components::write_slots::WriteSlots;

/// Binds of so many pods of a namespace.
fn binds(namespace: &str, count: usize, steps: &[Step]) -> Vec<OrderedBind> {
    let bind = |number| {
        let mut bind = bind_request::tests::decided();
        let name = format!("{namespace}-{number}");
        bind.placement.pod = PodRef::new(namespace, &name, &name);
        bind.steps = steps.to_vec();
        bind
    };
    (0..count).map(bind).collect()
}

fn order(binder: &mut Binder, binds: Vec<OrderedBind>) {
    binder.queue(BindOrder {
        binds,
        evictions: Vec::new(),
        term: 1,
    });
}

/// Starts jobs as if all open ones were slow. Returns how many are open.
fn start_beside_slow_ones(binder: &mut Binder) -> usize {
    let open = binder.under_way.len();
    binder.slow_jobs.count.store(open, Ordering::Relaxed);
    binder.start();
    binder.under_way.len()
}

#[tokio::test]
async fn slow_jobs_make_room_for_others_up_to_a_limit() {
    let mut binder = binder();
    order(&mut binder, binds("one", 700, &[]));
    let open: Vec<usize> = (0..40).map(|_| start_beside_slow_ones(&mut binder)).collect();
    assert_eq!(open[..3], [32, 64, 96]);
    assert_eq!(binder.under_way.len(), 256, "others need some");
    for namespace in ["two", "three", "four", "five"] {
        order(&mut binder, binds(namespace, 300, &[]));
    }
    for _ in 0..40 {
        start_beside_slow_ones(&mut binder);
    }
    assert_eq!(binder.under_way.len(), 1_024);
}

#[tokio::test]
async fn binds_that_ended_make_room_for_others_of_their_namespace() {
    let mut binder = binder();
    for _ in 0..3 {
        let binds = binds("team", 200, &[]);
        order(&mut binder, binds.clone());
        while start_beside_slow_ones(&mut binder) < 200 {}
        for bind in binds {
            let ended = (Job::Bind(Box::new(bind)), Report::new(Ending::Done));
            binder.ended(Ok(ended)).unwrap();
        }
        binder.under_way = JoinSet::new();
    }
}

#[tokio::test]
async fn binds_of_several_steps_are_limited_by_namespace_and_altogether() {
    let mut binder = binder();
    order(&mut binder, binds("one", 300, &[Step::GpuShare]));
    binder.start();
    assert_eq!(binder.multi_step_binds.len(), 256);
    for namespace in ["two", "three", "four", "five"] {
        order(&mut binder, binds(namespace, 300, &[Step::GpuShare]));
    }
    binder.start();
    assert_eq!(binder.multi_step_binds.len(), 1_024);
}

#[tokio::test]
async fn binds_of_several_steps_that_ended_make_room_for_others_of_their_namespace() {
    let mut binder = binder();
    let all = binds("team", 600, &[Step::GpuShare]);
    for binds in all.chunks(200).map(<[_]>::to_vec) {
        order(&mut binder, binds.clone());
        binder.start();
        assert_eq!(binder.multi_step_binds.len(), 200);
        for bind in binds {
            binder.multi_step_ended(Ok(done(bind))).unwrap();
        }
        binder.multi_step_binds = JoinSet::new();
    }
}

/// A binder whose background writes wait for binds, however long these take.
async fn patient() -> Case {
    let case = Case::starting_with(Settings {
        background_delay: Duration::from_secs(3_600),
        ..Settings::default()
    })
    .await;
    case.caught_up(1).await;
    case
}

/// Whether a background write may be sent now.
async fn may_write(case: &Case) -> bool {
    let mut slots = WriteSlots::new(&case.lab.context.background);
    timeout(MOMENT, slots.due(Some(Instant::now()))).await.is_ok()
}

/// The same in a quarter of a second: the quiet time after binds is over.
async fn may_write_soon(case: &Case) -> bool {
    sleep(Duration::from_millis(260)).await;
    may_write(case).await
}

#[tokio::test(start_paused = true)]
async fn background_writes_wait_for_open_binds_and_evictions() {
    let case = patient().await;
    assert!(may_write_soon(&case).await);
    let slow = Effect::Delay(Duration::from_millis(800));
    case.lab.fault(Match::verb_on("create", "pods"), slow, Times::Always);
    let (bind, victim) = (case.bind_of("a").await, case.lab.pod("b").await);
    for (binds, evictions) in [(vec![bind], Vec::new()), (Vec::new(), vec![evict(&victim)])] {
        case.order(binds, evictions).await;
        assert!(!may_write_soon(&case).await);
        sleep(Duration::from_millis(600)).await;
        assert!(may_write_soon(&case).await, "it has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn background_writes_do_not_wait_for_requests_that_hang() {
    let case = patient().await;
    let rule = case
        .lab
        .fault(Match::bindings(), Effect::Delay(Duration::from_secs(5)), Times::Always);
    let (first, second) = (case.bind_of("first").await, case.bind_of("second").await);
    case.order(vec![first], Vec::new()).await;
    assert!(!may_write_soon(&case).await);
    sleep(Duration::from_millis(750)).await;
    assert!(may_write_soon(&case).await, "it has taken a second");
    case.lab.server.faults().remove(rule);
    sleep(Duration::from_secs(5)).await;
    assert!(case.is_bound("first").await);
    case.lab.fault(
        Match::bindings(),
        Effect::Delay(Duration::from_millis(900)),
        Times::Always,
    );
    case.order(vec![second], Vec::new()).await;
    assert!(!may_write_soon(&case).await, "the first does not count any more");
}

#[tokio::test(start_paused = true)]
async fn background_writes_wait_for_what_waits_for_the_end_of_a_pause() {
    for evicts in [false, true] {
        let case = patient().await;
        case.lab.fault(Match::bindings(), busy(8), Times::Next(1));
        let first = case.bind_of("first").await;
        case.order(vec![first], Vec::new()).await;
        sleep(Duration::from_secs(9)).await;
        assert!(may_write(&case).await, "nothing waits");
        let second = case.bind_of("second").await;
        if evicts {
            let victim = case.lab.seen("second").await.unwrap();
            case.order(Vec::new(), vec![evict(&victim)]).await;
        } else {
            case.order(vec![second], Vec::new()).await;
        }
        assert!(!may_write_soon(&case).await, "evicts: {evicts}");
        sleep(Duration::from_secs(8)).await;
        assert!(may_write(&case).await, "evicts: {evicts}");
    }
}
