//! Bindings and evictions of one request: repeated until the end is certain.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::running::{Case, typed};
use super::*;
use crate::components::bus::GroupKey;
use crate::components::watches::recorded_group;
use crate::engine::policy::DisruptionBudgets;

#[tokio::test(start_paused = true)]
async fn a_plain_bind_is_one_request_with_the_annotations() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let report = lab.attempt().bind(&bind(&pod, "n1")).await;
    assert_eq!(
        (report.ending, report.answers.len(), report.refusals),
        (Ending::Done, 1, 0)
    );
    assert_eq!(lab.writes(), ["create pods/binding 201"]);
    let bound = lab.seen("a").await.unwrap();
    assert_eq!(bound.metadata.annotations.unwrap()["received-resource-type"], "Regular");
    assert_eq!(bound.spec.unwrap().node_name.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn missing_labels_are_written_before_the_binding_and_without_them_there_is_none() {
    let lab = Lab::new().await;
    let mut labelled = bind(&lab.pod("a").await, "n1");
    labelled.labels = [("pool".to_owned(), "blue".to_owned())].into();
    assert_eq!(lab.attempt().bind(&labelled).await.ending, Ending::Done);
    assert_eq!(lab.writes(), ["patch pods 200", "create pods/binding 201"]);
    assert_eq!(lab.seen("a").await.unwrap().metadata.labels.unwrap()["pool"], "blue");

    let mut labelled = bind(&lab.pod("b").await, "n1");
    labelled.labels = [("pool".to_owned(), "blue".to_owned())].into();
    lab.fault(Match::verb_on("patch", "pods"), refuse(403), Times::Always);
    assert!(failed(&lab.attempt().bind(&labelled).await));
    assert_eq!(lab.node_of("b").await, None);
}

/// The bind of a pod, as a member of the pod group `gang`.
fn bind_in_gang(pod: &Pod) -> OrderedBind {
    let mut bind = bind(pod, "n1");
    bind.annotations.insert("pod-group-name".to_owned(), "gang".to_owned());
    bind
}

#[tokio::test(start_paused = true)]
async fn a_pod_group_that_other_processes_would_not_find_is_recorded_before_the_binding() {
    let lab = Lab::new().await;
    let group = |name: String| read(json!({"metadata": {"namespace": "team", "name": name}, "spec": {}, "status": {}}));
    let show = |pod: &Pod| {
        lab.stores.pods.insert(pod.clone());
    };
    let recorded = async |name: &str| {
        let seen = lab.seen(name).await.unwrap();
        recorded_group(&seen).map(str::to_owned)
    };
    let usual = lab.pod("usual").await;
    show(&usual);
    assert_eq!(lab.attempt().bind(&bind_in_gang(&usual)).await.ending, Ending::Done);
    assert_eq!(lab.writes(), ["create pods/binding 201"], "nothing says otherwise");

    let grouped = lab.pod("grouped").await;
    show(&grouped);
    let mut bind = bind_in_gang(&grouped);
    bind.regrouped = true;
    assert_eq!(lab.attempt().bind(&bind).await.ending, Ending::Done);
    assert_eq!(lab.writes()[1..], ["patch pods/status 200", "create pods/binding 201"]);
    assert_eq!(recorded("grouped").await.as_deref(), Some("gang"));

    let own = lab.pod("own").await;
    show(&own);
    let uid = own.metadata.uid.as_deref().unwrap();
    lab.stores.pod_groups.insert(group(format!("pg-own-{uid}")));
    assert_eq!(lab.attempt().bind(&bind_in_gang(&own)).await.ending, Ending::Done);
    assert_eq!(recorded("own").await.as_deref(), Some("gang"));
}

#[tokio::test(start_paused = true)]
async fn a_record_of_a_bind_that_failed_is_corrected_by_the_next() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    lab.stores.pods.insert(pod.clone());
    let mut first = bind_in_gang(&pod);
    first.regrouped = true;
    let rule = lab.fault(Match::bindings(), refuse(403), Times::Always);
    assert!(failed(&lab.attempt().bind(&first).await));
    lab.server.faults().remove(rule);
    lab.stores.pods.insert(lab.seen("a").await.unwrap());
    let mut second = bind(&pod, "n1");
    second
        .annotations
        .insert("pod-group-name".to_owned(), "other".to_owned());
    assert_eq!(lab.attempt().bind(&second).await.ending, Ending::Done);
    assert_eq!(recorded_group(&lab.seen("a").await.unwrap()), Some("other"));
}

#[tokio::test(start_paused = true)]
async fn without_its_record_a_pod_is_not_bound() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    lab.stores.pods.insert(pod.clone());
    let mut bind = bind_in_gang(&pod);
    bind.regrouped = true;
    lab.fault(Match::verb_on("patch", "pods"), refuse(403), Times::Always);
    assert!(failed(&lab.attempt().bind(&bind).await));
    assert_eq!(lab.node_of("a").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_or_was_made_anew_is_not_bound() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    lab.delete_pod("a").await;
    assert_eq!(lab.attempt().bind(&bind(&pod, "n1")).await.ending, Ending::Overtaken);
    lab.pod("a").await;
    assert_eq!(lab.attempt().bind(&bind(&pod, "n1")).await.ending, Ending::Overtaken);
    assert_eq!(lab.node_of("a").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_busy_api_server_is_asked_again_after_the_time_that_it_asks_for() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    lab.fault(Match::bindings(), busy(7), Times::Next(2));
    let began = Instant::now();
    let report = lab.attempt().bind(&bind(&pod, "n1")).await;
    assert_eq!((report.ending, report.refusals), (Ending::Done, 2));
    assert_eq!(report.pause, Some(Duration::from_secs(7)));
    assert!(began.elapsed() >= Duration::from_secs(14), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_stays_busy_is_asked_five_times_with_growing_pauses() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let rule = lab.fault(Match::bindings(), refuse(503), Times::Always);
    let began = Instant::now();
    let report = lab.attempt().bind(&bind(&pod, "n1")).await;
    assert!(failed(&report) && report.tried, "{report:?}");
    assert_eq!((report.refusals, report.cause), (5, "busy"));
    assert_eq!(lab.server.faults().struck(rule), 5);
    assert!(
        began.elapsed() >= Duration::from_millis(50 + 100 + 200 + 400),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_the_pod_is_read_before_it_is_bound_again() {
    let lab = Lab::new().await;
    let rule = lab.fault(Match::bindings(), Effect::FailAfter { code: 500 }, Times::Next(1));
    let report = lab.attempt().bind(&bind(&lab.pod("a").await, "n1")).await;
    assert_eq!((report.ending, report.refusals), (Ending::Done, 1));
    assert_eq!(lab.server.faults().struck(rule), 1);
    assert_eq!(lab.writes().len(), 1, "it was bound: {:?}", lab.writes());

    let began = Instant::now();
    lab.fault(Match::bindings(), refuse(500), Times::Next(1));
    let report = lab.attempt().bind(&bind(&lab.pod("b").await, "n1")).await;
    assert_eq!(report.ending, Ending::Done, "it was not bound");
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(lab.node_of("b").await.as_deref(), Some("n1"));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_is_given_up_after_ten_seconds() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    lab.fault(Match::bindings(), Effect::Hang, Times::Always);
    let began = Instant::now();
    let report = lab.attempt().bind(&bind(&pod, "n1")).await;
    assert_eq!(report.ending, Ending::Failed("no answer after 10 s".to_owned()));
    assert!(began.elapsed() >= Duration::from_secs(50), "five times");
}

#[tokio::test(start_paused = true)]
async fn a_conflict_ends_as_the_pod_shows() {
    let lab = Lab::new().await;
    for (name, other) in [("here", "n1"), ("elsewhere", "n2")] {
        let pod = lab.pod(name).await;
        lab.bind_to(name, other).await;
        let expected = if other == "n1" { Ending::Done } else { Ending::Overtaken };
        assert_eq!(lab.attempt().bind(&bind(&pod, "n1")).await.ending, expected, "{name}");
    }
    let rule = lab.fault(Match::bindings(), refuse(409), Times::Always);
    let report = lab.attempt().bind(&bind(&lab.pod("unbound").await, "n1")).await;
    assert!(failed(&report), "{report:?}");
    assert_eq!(
        (report.cause, lab.server.faults().struck(rule)),
        ("conflict", 1),
        "not repeated"
    );
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_the_pod_is_gone_counts_if_the_pod_shows_it() {
    let lab = Lab::new().await;
    let (waits, gone) = (lab.pod("waits").await, lab.pod("gone").await);
    lab.delete_pod("gone").await;
    let mut overruling = evict(&waits);
    overruling.overrules_budgets = true;
    for matching in [Match::bindings(), Match::evictions(), Match::verb_on("delete", "pods")] {
        lab.fault(matching, refuse(404), Times::Always);
    }
    for report in [
        lab.attempt().bind(&bind(&waits, "n1")).await,
        lab.attempt().evict(&evict(&waits)).await,
        lab.attempt().evict(&overruling).await,
    ] {
        assert!(failed(&report) && !report.uncertain, "{report:?}");
        assert_eq!(report.cause, "refused");
    }
    assert_eq!(lab.attempt().bind(&bind(&gone, "n1")).await.ending, Ending::Overtaken);
    assert_eq!(lab.attempt().evict(&evict(&gone)).await.ending, Ending::Overtaken);
}

#[tokio::test(start_paused = true)]
async fn while_the_pod_cannot_be_read_it_may_be_bound() {
    let lab = Lab::new().await;
    let reads = || Match::verb_on("get", "pods");
    // The first Binding takes effect, and neither its answer nor two reads say so.
    lab.fault(Match::bindings(), Effect::FailAfter { code: 504 }, Times::Next(1));
    lab.fault(reads(), refuse(429), Times::Next(2));
    let report = lab.attempt().bind(&bind(&lab.pod("a").await, "n1")).await;
    assert_eq!((report.ending, report.uncertain), (Ending::Done, false));

    lab.fault(Match::bindings(), refuse(409), Times::Always);
    let unreadable = lab.fault(reads(), refuse(500), Times::Always);
    let (attempt, ordered) = (lab.attempt(), bind(&lab.pod("b").await, "n1"));
    timeout(seconds(60), attempt.bind(&ordered))
        .await
        .expect_err("it goes on");
    lab.server.faults().remove(unreadable);
    let report = lab.attempt().bind(&bind(&lab.pod("c").await, "n1")).await;
    assert!(failed(&report) && !report.uncertain, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_was_not_answered_may_still_take_effect() {
    for late in [true, false] {
        let lab = Lab::new().await;
        let (attempt, ordered) = (lab.attempt(), bind(&lab.pod("a").await, "n1"));
        lab.fault(Match::bindings(), Effect::Drop, Times::Next(1));
        let rule = lab.fault(Match::bindings(), refuse(403), Times::Always);
        let began = Instant::now();
        let takes_effect = async {
            sleep(seconds(4)).await;
            if late {
                lab.server.faults().remove(rule);
                lab.bind_to("a", "n1").await;
            }
        };
        let (report, ()) = tokio::join!(attempt.bind(&ordered), takes_effect);
        if late {
            assert_eq!(report.ending, Ending::Done);
        } else {
            assert!(failed(&report) && !report.uncertain, "{report:?}");
            assert_eq!(report.cause, "refused");
            assert!(began.elapsed() >= seconds(10), "{:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_it_is_bound_needs_no_read() {
    let lab = Lab::new().await;
    lab.fault(Match::bindings(), Effect::Drop, Times::Next(1));
    let reads = lab.fault(Match::verb_on("get", "pods"), refuse(500), Times::Always);
    let report = lab.attempt().bind(&bind(&lab.pod("a").await, "n1")).await;
    assert_eq!((report.ending, report.uncertain), (Ending::Done, false));
    assert_eq!(
        lab.server.faults().struck(reads),
        1,
        "after the request that was not answered"
    );
}

#[tokio::test(start_paused = true)]
async fn a_bind_of_which_it_is_unknown_whether_it_took_effect_does_not_end() {
    for bound in [true, false] {
        let mut case = Case::new().await;
        let ordered = case.bind_of("a").await;
        case.watch().await;
        let effect = if bound {
            Effect::FailAfter { code: 500 }
        } else {
            refuse(500)
        };
        let posts = case.lab.fault(Match::bindings(), effect, Times::Next(1));
        let more = case.lab.fault(Match::bindings(), refuse(500), Times::Always);
        let reads = case
            .lab
            .fault(Match::verb_on("get", "pods"), refuse(500), Times::Always);
        case.order(vec![ordered], Vec::new()).await;
        assert_eq!(
            case.outcomes(seconds(60)).await,
            [""; 0],
            "the scheduler keeps its place"
        );
        for rule in [posts, more, reads] {
            case.lab.server.faults().remove(rule);
        }
        let expected: &[&str] = if bound { &[] } else { &["a not bound, 1 s"] };
        assert_eq!(case.outcomes(seconds(2)).await, expected);
        assert_eq!(case.is_bound("a").await, bound);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_names_another_pod_group_than_at_the_decision_is_not_bound() {
    for (named, binds) in [("pg-other", false), ("pg-own", true)] {
        let lab = Lab::new().await;
        let pod = lab.pod("a").await;
        let mut ordered = bind(&pod, "n1");
        ordered.placement.group = GroupKey::new(&ordered.placement.pod.namespace, "pg-own");
        let change = json!({"metadata": {"annotations": {"pod-group-name": named}}});
        lab.stores.pods.insert(read(lab.patch(&typed(&pod), change).await));
        let report = lab.attempt().bind(&ordered).await;
        assert_eq!(report.ending == Ending::Done, binds, "{report:?}");
        assert_eq!(lab.node_of("a").await.is_some(), binds);
    }
}

#[test]
fn metrics_count_jobs_by_these_words() {
    let words = [Ending::Done, Ending::Overtaken, Ending::Failed(String::new())].map(|ending| ending.word());
    assert_eq!(words, ["done", "overtaken", "failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_is_not_repeated() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let rule = lab.fault(Match::bindings(), refuse(403), Times::Always);
    let report = lab.attempt().bind(&bind(&pod, "n1")).await;
    assert!(failed(&report) && report.cause == "refused", "{report:?}");
    assert_eq!((report.refusals, lab.server.faults().struck(rule)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_does_not_repeat_a_bind() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let rule = lab.fault(Match::bindings(), refuse(503), Times::Always);
    lab.lose();
    assert!(failed(&lab.attempt().bind(&bind(&pod, "n1")).await));
    assert_eq!(lab.server.faults().struck(rule), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_evicted_by_the_api_that_respects_budgets_unless_they_are_overruled_or_ignored() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    assert_eq!(lab.attempt().evict(&evict(&pod)).await.ending, Ending::Done);
    assert_eq!(lab.writes(), ["create pods/eviction 201"]);

    let mut overruling = evict(&lab.pod("b").await);
    overruling.overrules_budgets = true;
    assert_eq!(lab.attempt().evict(&overruling).await.ending, Ending::Done);
    assert_eq!(lab.writes()[1..], ["patch pods/status 200", "delete pods 200"]);

    let ignoring = Lab::with(Settings {
        disruption_budgets: DisruptionBudgets::Ignore,
        ..Settings::default()
    })
    .await;
    let pod = ignoring.pod("a").await;
    assert_eq!(ignoring.attempt().evict(&evict(&pod)).await.ending, Ending::Done);
    assert_eq!(ignoring.writes(), ["patch pods/status 200", "delete pods 200"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_instead_of_evicted_is_marked_first_for_the_failure_policies_of_jobs() {
    let lab = Lab::new().await;
    let mut overruling = evict(&lab.pod("a").await);
    (overruling.overrules_budgets, overruling.message) = (true, "q1 reclaims".to_owned());
    lab.fault(Match::verb_on("delete", "pods"), refuse(403), Times::Always);
    assert!(failed(&lab.attempt().evict(&overruling).await));
    let status = lab.seen("a").await.expect("not deleted").status.expect("a status");
    let conditions = status.conditions.unwrap_or_default();
    let mark = conditions
        .iter()
        .find(|one| one.type_ == "DisruptionTarget")
        .expect("marked");
    assert_eq!(mark.status, "True");
    assert_eq!(mark.reason.as_deref(), Some("PreemptionByScheduler"));
    assert_eq!(mark.message.as_deref(), Some("q1 reclaims"));

    // Another pod of the same name is neither marked nor deleted.
    lab.server.faults().clear();
    lab.delete_pod("a").await;
    lab.pod("a").await;
    assert_eq!(lab.attempt().evict(&overruling).await.ending, Ending::Overtaken);
    let other = lab.seen("a").await.expect("not deleted");
    assert!(
        other.status.is_none_or(|status| status.conditions.is_none()),
        "not marked"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_ends_as_the_pod_shows() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    let rule = lab.fault(Match::evictions(), refuse(500), Times::Always);
    let report = lab.attempt().evict(&evict(&pod)).await;
    assert!(failed(&report), "{report:?}");
    assert_eq!(
        lab.server.faults().struck(rule),
        2,
        "twice, since others may be evicted"
    );
    lab.server.faults().clear();

    lab.delete_pod("a").await;
    assert_eq!(
        lab.attempt().evict(&evict(&pod)).await.ending,
        Ending::Overtaken,
        "gone"
    );
    let again = lab.pod("a").await;
    assert_eq!(
        lab.attempt().evict(&evict(&pod)).await.ending,
        Ending::Overtaken,
        "made anew"
    );
    lab.bind_to("a", "n1").await;
    lab.fault(Match::evictions(), Effect::FailAfter { code: 500 }, Times::Next(1));
    assert_eq!(
        lab.attempt().evict(&evict(&again)).await.ending,
        Ending::Overtaken,
        "it is leaving"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_a_budget_forbids_says_so() {
    let lab = Lab::new().await;
    let pod = lab.pod("a").await;
    lab.patch(&json!(pod), json!({"metadata": {"labels": {"app": "a"}}}))
        .await;
    lab.bind_to("a", "n1").await;
    lab.create(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "team", "name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1},
    }))
    .await;
    lab.set_status(
        &json!(pod),
        json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
    )
    .await;
    let report = lab.attempt().evict(&evict(&pod)).await;
    assert!(failed(&report), "{report:?}");
    assert_eq!(report.cause, "budget");
}
