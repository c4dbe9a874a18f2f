//! The binder as a whole: orders in, writes and outcomes out.

use std::time::Duration;

use kube::api::ListParams;
use tokio::time::{Instant, sleep, timeout};

use super::running::Case;
use super::*;
use crate::api::BindRequest;
use crate::components::bus::{Change, Object, ToBinder};

#[tokio::test(start_paused = true)]
async fn evictions_and_binds_are_carried_out_and_have_events() {
    let mut case = Case::new().await;
    let victim = case.lab.pod("victim").await;
    let binds = vec![case.bind_of("a").await, case.bind_of("b").await];
    case.order(binds, vec![evict(&victim)]).await;
    assert_eq!(case.outcomes(MOMENT).await, [""; 0]);
    assert!(case.is_bound("a").await && case.is_bound("b").await);
    let writes = case.lab.writes();
    assert_eq!(
        writes,
        [
            "create pods/eviction 201",
            "create pods/binding 201",
            "create pods/binding 201"
        ]
    );
    assert_eq!(case.events().await, ["Evict", "Scheduled", "Scheduled"]);
}

#[tokio::test(start_paused = true)]
async fn jobs_start_only_after_the_retry_after_of_the_api_server() {
    let case = Case::new().await;
    case.lab.fault(Match::bindings(), busy(8), Times::Next(1));
    let first = case.bind_of("first").await;
    case.order(vec![first], Vec::new()).await;
    sleep(Duration::from_secs(9)).await;
    assert!(case.is_bound("first").await, "it was repeated");
    let second = case.bind_of("second").await;
    case.order(vec![second], Vec::new()).await;
    sleep(Duration::from_secs(5)).await;
    assert!(
        !case.is_bound("second").await,
        "the pause counts from the end of the first"
    );
    sleep(Duration::from_secs(3)).await;
    assert!(case.is_bound("second").await);
    let third = case.bind_of("third").await;
    case.order(vec![third], Vec::new()).await;
    sleep(MOMENT).await;
    assert!(case.is_bound("third").await, "the pause is over");
}

#[tokio::test(start_paused = true)]
async fn a_bind_that_fails_is_reported_with_a_growing_wait_until_it_succeeds() {
    let mut case = Case::new().await;
    let ordered = case.bind_of("a").await;
    case.watch().await;
    let rule = case.lab.fault(Match::bindings(), refuse(403), Times::Always);
    for wait in ["1", "2", "4"] {
        case.order(vec![ordered.clone()], Vec::new()).await;
        assert_eq!(case.outcomes(MOMENT).await, [format!("a not bound, {wait} s")]);
    }
    assert_eq!(case.events().await, ["BindingError"; 3]);
    case.lab.server.faults().remove(rule);
    case.order(vec![ordered], Vec::new()).await;
    assert!(case.outcomes(MOMENT).await.is_empty());
    assert!(case.is_bound("a").await);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_fails_is_reported_with_a_growing_wait() {
    let mut case = Case::new().await;
    let victim = case.lab.pod("a").await;
    case.watch().await;
    case.lab.fault(Match::evictions(), refuse(403), Times::Always);
    for wait in ["5", "10", "20"] {
        case.order(Vec::new(), vec![evict(&victim)]).await;
        assert_eq!(
            case.outcomes(MOMENT).await,
            [format!("a not evicted, Some({wait}.0) s")]
        );
    }
}

/// The stores are ahead of the changes that components get. If the request went first, the pod would be one that waits for the scheduler.
#[tokio::test(start_paused = true)]
async fn a_bind_request_goes_only_after_the_pod_was_shown_as_bound_and_the_pod_is_not_bound_again() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.order(vec![ordered.clone()], Vec::new()).await;
    sleep(MOMENT).await;
    case.report_device("GPU-1").await;
    // The Binding is not answered, so that the store shows it before the bind has ended.
    case.lab.fault(Match::bindings(), Effect::HangAfter, Times::Next(1));
    case.watch().await;
    sleep(MOMENT).await;
    case.store_pods().await;
    assert!(case.is_bound("a").await);
    case.outcomes(seconds(20)).await;
    case.watch_requests().await;
    assert_eq!(case.requests().await.len(), 1, "the schedulers would lose the bind");

    let (before, mut again) = (case.lab.writes().len(), ordered);
    again.placement.gpu_groups = vec!["h".into()];
    case.order(vec![again], Vec::new()).await;
    assert_eq!(case.outcomes(seconds(20)).await, [""; 0]);
    assert_eq!(case.lab.writes().split_off(before), [""; 0]);

    case.watch().await;
    assert_eq!(case.requests().await.len(), 0);
}

/// As a validating webhook or a proxy may say. No watch would show how it ended.
#[tokio::test(start_paused = true)]
async fn a_bind_and_an_eviction_fail_if_a_pod_is_there_that_is_said_to_be_gone() {
    let mut case = Case::new().await;
    let waits = case.bind_of("waits").await;
    let runs = case.lab.pod("runs").await;
    case.lab.bind_to("runs", "n1").await;
    case.watch().await;
    for matching in [Match::bindings(), Match::evictions()] {
        case.lab.fault(matching, refuse(404), Times::Always);
    }
    case.order(vec![waits], vec![evict(&runs)]).await;
    let mut outcomes = case.outcomes(seconds(1)).await;
    outcomes.sort();
    assert_eq!(outcomes, ["runs not evicted, Some(5.0) s", "waits not bound, 1 s"]);
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_deleted_pod_are_forgotten() {
    let mut case = Case::new().await;
    let ordered = case.bind_of("a").await;
    case.watch().await;
    case.lab.fault(Match::bindings(), refuse(403), Times::Always);
    case.order(vec![ordered.clone()], Vec::new()).await;
    case.outcomes(MOMENT).await;
    let pod = Arc::new(case.lab.seen("a").await.unwrap());
    case.tell(ToBinder::Change(Change::Deleted(Object::Pod(pod)))).await;
    case.order(vec![ordered], Vec::new()).await;
    assert_eq!(case.outcomes(MOMENT).await, ["a not bound, 1 s"]);
}

#[tokio::test(start_paused = true)]
async fn decisions_of_an_earlier_term_are_not_carried_out() {
    let mut case = Case::new().await;
    let victim = case.lab.pod("victim").await;
    let binds = vec![case.bind_of("a").await, case.sharing("b").await];
    case.order_of(7, binds, vec![evict(&victim)]).await;
    let mut outcomes = case.outcomes(MOMENT).await;
    outcomes.sort();
    assert_eq!(
        outcomes,
        ["a not bound, 1 s", "b not bound, 1 s", "victim not evicted, None s"]
    );
    assert_eq!(case.lab.writes(), [""; 0]);
    assert!(case.events().await.is_empty(), "nothing was tried");
}

#[tokio::test(start_paused = true)]
async fn bindings_that_hang_hold_up_no_others_for_long() {
    let case = Case::new().await;
    let rule = case.lab.fault(Match::bindings(), Effect::Hang, Times::Next(32));
    let mut binds = Vec::new();
    for number in 0..40 {
        binds.push(case.bind_of(&format!("p{number}")).await);
    }
    case.order(binds, Vec::new()).await;
    sleep(MOMENT).await;
    assert_eq!(case.lab.struck(rule), 32, "the limit at first");
    sleep(Duration::from_secs(5)).await;
    let mut bound = 0;
    for number in 0..40 {
        bound += usize::from(case.is_bound(&format!("p{number}")).await);
    }
    assert_eq!(bound, 8);
}

#[tokio::test(start_paused = true)]
async fn a_shared_gpu_is_reserved_used_and_given_back() {
    let mut case = Case::new().await;
    let binds = vec![case.sharing("a").await, case.sharing("b").await];
    case.watch().await;
    case.order(binds, Vec::new()).await;
    sleep(MOMENT).await;
    assert_eq!((case.reservations().await.len(), case.requests().await.len()), (1, 2));
    case.report_device("GPU-1").await;
    case.watch().await;
    sleep(Duration::from_secs(1)).await;
    assert!(case.is_bound("a").await && case.is_bound("b").await);
    assert_eq!(
        case.requests().await.len(),
        2,
        "the watch does not show the pods bound yet"
    );
    let mut events = case.events().await;
    events.sort_unstable();
    assert_eq!(events, ["Scheduled", "Scheduled"]);
    sleep(Duration::from_secs(20)).await;
    case.watch().await;
    sleep(Duration::from_secs(20)).await;
    assert!(case.requests().await.is_empty());
    assert_eq!(case.reservations().await.len(), 1, "it is used");
    for name in ["a", "b"] {
        let pod = Arc::new(case.lab.seen(name).await.unwrap());
        case.lab.delete_pod(name).await;
        case.tell(ToBinder::Change(Change::Deleted(Object::Pod(pod)))).await;
    }
    sleep(Duration::from_secs(2)).await;
    assert!(case.reservations().await.is_empty(), "nobody uses it");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_device_for_a_reservation_gets_no_other_for_a_while() {
    let mut case = Case::new().await;
    case.lab.fault(
        Match {
            namespace: Some("kai-resource-reservation".to_owned()),
            ..Match::verb_on("create", "pods")
        },
        refuse(403),
        Times::Always,
    );
    let ordered = case.sharing("a").await;
    case.watch().await;
    for (node, pod) in [("10", "1"), ("20", "2")] {
        case.order(vec![ordered.clone()], Vec::new()).await;
        let outcomes = case.outcomes(MOMENT).await;
        assert_eq!(
            outcomes,
            [format!("n1 without device, {node} s"), format!("a not bound, {pod} s")]
        );
        assert!(case.requests().await.is_empty(), "it is undone");
    }
    assert_eq!(case.events().await, ["BindingError"; 2]);
    let conditions = case.lab.seen("a").await.unwrap().status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "PodBound" && condition.status == "False")
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_multi_step_bind_of_a_pod_is_refused() {
    let mut case = Case::new().await;
    let ordered = case.sharing("a").await;
    case.watch().await;
    case.order(vec![ordered.clone()], Vec::new()).await;
    sleep(MOMENT).await;
    for _ in 0..2 {
        case.order(vec![ordered.clone()], Vec::new()).await;
        assert_eq!(case.outcomes(MOMENT).await, ["a not bound, 1 s"]);
    }
    assert_eq!(case.requests().await.len(), 1);
    case.report_device("GPU-1").await;
    case.watch().await;
    sleep(Duration::from_secs(1)).await;
    assert!(case.is_bound("a").await, "the first goes on");
}

#[tokio::test(start_paused = true)]
async fn existing_bind_requests_are_carried_out_once_the_watches_are_complete() {
    let case = Case::starting().await;
    let ordered = case.sharing("a").await;
    let request = bind_request::request(&ordered, &Settings::default());
    let api: Api<BindRequest> = Api::namespaced(case.lab.admin.clone(), "team");
    api.create(&PostParams::default(), &request).await.unwrap();
    case.watch().await;
    sleep(Duration::from_secs(30)).await;
    assert!(case.reservations().await.is_empty(), "the watches have not caught up");
    case.caught_up(1).await;
    sleep(MOMENT).await;
    assert_eq!(case.reservations().await.len(), 1);
    case.report_device("GPU-1").await;
    case.watch().await;
    sleep(Duration::from_secs(1)).await;
    assert!(case.is_bound("a").await);
    case.watch().await;
    sleep(Duration::from_secs(20)).await;
    assert!(case.requests().await.is_empty(), "it is done");
}

#[tokio::test(start_paused = true)]
async fn bind_requests_of_other_clients_are_tried_up_to_their_backoff_limit() {
    let case = Case::new().await;
    let ordered = case.sharing("a").await;
    let mut request = bind_request::request(&ordered, &Settings::default());
    (request.metadata.labels, request.spec.backoff_limit) = (None, Some(2));
    let api: Api<BindRequest> = Api::namespaced(case.lab.admin.clone(), "team");
    api.create(&PostParams::default(), &request).await.unwrap();
    let refused = Match {
        namespace: Some("kai-resource-reservation".to_owned()),
        ..Match::verb_on("create", "pods")
    };
    case.lab.fault(refused, refuse(403), Times::Next(1));
    case.watch().await;
    let status = case.requests().await[0].status.clone().unwrap();
    assert_eq!(
        (status.phase.as_deref(), status.failed_attempts),
        (Some("Failed"), Some(1))
    );
    case.watch().await;
    assert!(case.reservations().await.is_empty(), "not at once");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(case.reservations().await.len(), 1, "the second attempt");
    case.report_device("GPU-1").await;
    case.watch().await;
    sleep(Duration::from_secs(1)).await;
    case.watch().await;
    sleep(Duration::from_secs(20)).await;
    assert!(case.is_bound("a").await);
    let status = case.requests().await[0].status.clone().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Succeeded"));
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_running_jobs_finish_and_waiting_binds_are_not_started() {
    let case = Case::new().await;
    let waits = case.sharing("waits").await;
    case.watch().await;
    case.order(vec![waits], Vec::new()).await;
    sleep(MOMENT).await;
    case.lab
        .fault(Match::bindings(), Effect::Delay(Duration::from_secs(1)), Times::Always);
    let slow = case.bind_of("slow").await;
    case.order(vec![slow], Vec::new()).await;
    sleep(MOMENT).await;
    case.lab.context.shutdown.cancel();
    let began = Instant::now();
    timeout(Duration::from_secs(5), case.run)
        .await
        .expect("it ends")
        .unwrap()
        .unwrap();
    assert!(began.elapsed() >= Duration::from_millis(900));
    let bound: Option<String> = case.lab.node_of("slow").await;
    assert_eq!(bound.as_deref(), Some("n1"));
    let api: Api<BindRequest> = Api::all(case.lab.admin.clone());
    assert_eq!(
        api.list(&ListParams::default()).await.unwrap().items.len(),
        1,
        "for the next leader"
    );
}

#[tokio::test(start_paused = true)]
async fn jobs_that_never_end_do_not_hold_up_a_shutdown_for_long() {
    let case = Case::new().await;
    case.lab.fault(Match::bindings(), Effect::Hang, Times::Always);
    let hangs = case.bind_of("hangs").await;
    case.order(vec![hangs], Vec::new()).await;
    sleep(MOMENT).await;
    case.lab.context.shutdown.cancel();
    timeout(Duration::from_secs(16), case.run)
        .await
        .expect("it ends")
        .unwrap()
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_bind_waits_for_the_evictions_that_a_limit_demands_and_fails_if_one_is_refused() {
    let mut case = Case::new().await;
    let (x, y) = (case.lab.pod("x").await, case.lab.pod("y").await);
    let (mut one, mut shared) = (case.bind_of("one").await, case.sharing("shared").await);
    let other = case.bind_of("other").await;
    let mut refused = case.bind_of("refused").await;
    case.watch().await;
    let uids = |pods: &[&Pod]| pods.iter().map(|pod| Arc::clone(&pods::pod_ref(pod).uid)).collect();
    one.placement.after_evictions = Some(uids(&[&x]));
    shared.placement.after_evictions = one.placement.after_evictions.clone();
    refused.placement.after_evictions = Some(uids(&[&x, &y]));
    let evictions = |name: &str| Match {
        name: Some(name.to_owned()),
        ..Match::evictions()
    };
    case.lab
        .fault(evictions("x"), Effect::Delay(Duration::from_secs(2)), Times::Always);
    case.lab.fault(evictions("y"), refuse(403), Times::Always);
    case.order(vec![one, shared, other, refused], vec![evict(&x), evict(&y)])
        .await;
    sleep(Duration::from_secs(1)).await;
    assert!(case.is_bound("other").await && !case.is_bound("one").await);
    assert!(case.requests().await.is_empty());
    let outcomes = case.outcomes(Duration::from_secs(2)).await;
    assert!(case.is_bound("one").await && !case.is_bound("refused").await);
    assert_eq!(case.requests().await.len(), 1, "the bind in steps has begun");
    assert!(
        outcomes.iter().any(|outcome| outcome.starts_with("refused not bound")),
        "{outcomes:?}"
    );
}
