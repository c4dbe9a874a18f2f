//! What the binder tells of its jobs: events, traces, metrics.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::kept::binder;
use super::running::Case;
use super::*;
use crate::components::Error;
use crate::components::binder::cleanup::Cleanup;
use crate::components::bus::{BindSeen, TraceEvent};
use crate::components::leadership::Terms;
use crate::components::tests::recorded::Metrics;
use crate::components::watches::Key;

#[tokio::test(start_paused = true)]
async fn jobs_are_counted_by_kind_and_ending_and_failed_binds_by_cause() {
    let metrics = Metrics::from_now_on();
    let case = Case::new().await;
    let good = case.bind_of("good").await;
    let victim = case.lab.pod("victim").await;
    case.order(vec![good], vec![evict(&victim)]).await;
    sleep(MOMENT).await;
    case.lab.fault(Match::bindings(), refuse(403), Times::Always);
    case.lab.fault(Match::evictions(), refuse(409), Times::Always);
    let bad = case.bind_of("bad").await;
    let other = case.lab.pod("other").await;
    case.order(vec![bad], vec![evict(&other)]).await;
    sleep(MOMENT).await;
    for kind in ["bind", "evict"] {
        for ending in ["done", "failed"] {
            let series = format!("unikai_binder_jobs_total{{kind=\"{kind}\",ending=\"{ending}\"}}");
            assert_eq!(metrics.of(&series), Some(1.0), "{series}");
        }
    }
    let failures = |cause: &str| metrics.of(&format!("unikai_bind_failures_total{{cause=\"{cause}\"}}"));
    assert_eq!(
        (failures("refused"), failures("conflict")),
        (Some(1.0), None),
        "evictions are no binds"
    );
    assert_eq!(metrics.of("kai_task_bind_latency_milliseconds_count"), Some(1.0));
    let evicted = case.lab.context.figures.render();
    assert!(
        evicted.contains("kai_pod_group_evicted_pods_total{podgroup=\"victim\","),
        "{evicted}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_open_jobs_grows_with_quick_answers_and_halves_when_the_api_server_is_overloaded() {
    let metrics = Metrics::from_now_on();
    let limit = || metrics.of("unikai_binder_concurrency_limit").unwrap();
    let case = Case::new().await;
    let mut binds = Vec::new();
    for number in 0..40 {
        binds.push(case.bind_of(&format!("p{number}")).await);
    }
    case.order(binds, Vec::new()).await;
    sleep(MOMENT).await;
    assert!((limit() - 33.0).abs() < 0.1, "{}", limit());
    case.lab.fault(Match::bindings(), refuse(503), Times::Next(1));
    let last = case.bind_of("last").await;
    case.order(vec![last], Vec::new()).await;
    sleep(Duration::from_secs(1)).await;
    assert!(case.is_bound("last").await);
    assert!((limit() - 16.0).abs() < 0.1, "{}", limit());
}

#[tokio::test(start_paused = true)]
async fn binds_are_traced_with_their_steps_and_why_they_failed() {
    let mut case = Case::new().await;
    let (plain, shared) = (case.bind_of("plain").await, case.sharing("shared").await);
    let refused = case.bind_of("refused").await;
    case.watch().await;
    case.lab.fault(
        Match {
            name: Some("refused".to_owned()),
            ..Match::bindings()
        },
        refuse(403),
        Times::Always,
    );
    case.order(vec![plain, shared, refused], Vec::new()).await;
    sleep(MOMENT).await;
    case.report_device("GPU-1").await;
    case.watch().await;
    sleep(Duration::from_secs(1)).await;
    let mut told = Vec::new();
    while let Ok(TraceEvent::Bound(seen)) = case.traced.try_recv() {
        let BindSeen { pod, steps, failed, .. } = *seen;
        let steps: Vec<&str> = steps.into_iter().map(|(name, ..)| name).collect();
        told.push((pod.name.to_string(), steps, failed.is_some()));
    }
    told.sort();
    let of_all = [
        "write bind request",
        "reserve devices",
        "look at devices again",
        "post binding",
    ];
    assert_eq!(
        told,
        [
            ("plain".to_owned(), vec!["post binding"], false),
            ("refused".to_owned(), vec!["post binding"], true),
            ("shared".to_owned(), of_all.to_vec(), false),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn binds_that_end_during_a_shutdown_have_their_events() {
    let mut case = Case::new().await;
    let (plain, shared) = (case.bind_of("plain").await, case.sharing("shared").await);
    case.watch().await;
    case.lab
        .fault(Match::bindings(), Effect::Delay(Duration::from_secs(2)), Times::Always);
    case.order(vec![shared], Vec::new()).await;
    sleep(MOMENT).await;
    case.report_device("GPU-1").await;
    case.watch().await;
    case.order(vec![plain], Vec::new()).await;
    sleep(Duration::from_secs(1)).await;
    case.lab.context.shutdown.cancel();
    sleep(Duration::from_secs(3)).await;
    assert!(case.run.is_finished() && case.is_bound("plain").await && case.is_bound("shared").await);
    assert_eq!(case.events().await, ["Scheduled", "Scheduled"]);
}

#[tokio::test(start_paused = true)]
async fn the_binder_ends_with_an_error_when_nobody_decides_about_leadership_any_more() {
    let mut case = Case::new().await;
    case.lab.leading = tokio::sync::watch::channel(Terms::default()).0;
    let ended = timeout(Duration::from_secs(1), case.run)
        .await
        .expect("it ends")
        .unwrap();
    assert!(matches!(ended, Err(Error::Closed)));
}

#[tokio::test]
async fn a_cleanup_that_panics_ends_and_is_counted() {
    let metrics = Metrics::from_now_on();
    let mut binder = binder();
    let key = Key {
        namespace: "team".to_owned(),
        name: "a".to_owned(),
    };
    binder.cleanup(Cleanup::RequestDone(key.clone()), async { panic!("a fault") });
    let ended = binder.cleanups.join_next().await.unwrap().unwrap();
    assert!(matches!(ended, Cleanup::RequestDone(ended) if ended == key));
    assert_eq!(
        metrics.of("unikai_object_panics_total{component=\"binder\"}"),
        Some(1.0)
    );
}
