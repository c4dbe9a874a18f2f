use serde_json::{Value, json};
use tokio::time::{advance, sleep};

use super::*;
use crate::api::names::label;
use crate::components::bus::{self, Inboxes, ToEvents};
use crate::components::leadership::Term;
use crate::components::quantities::quantities;
use crate::components::tests::idle_context;
use crate::components::tests::lab::{Lab, read, seconds};
use crate::components::tests::recorded::Metrics;
use crate::components::{Parts, Settings};
use crate::engine::decision::{Cause, Verdict};

/// The component in a process that leads, after the first lists. Its API server refuses every request.
fn component() -> (PodGroups, Inboxes) {
    let idle = idle_context();
    let mut terms = Terms::default();
    let writes = idle.refused.clone();
    terms.begin(&Scope::Cluster, Term { number: 1, writes });
    let context = Context {
        leading: watch::channel(terms).1,
        ..idle
    };
    let (bus, inboxes) = bus::channels(1);
    let mut podgroups = PodGroups::new(context, Arc::default(), bus);
    podgroups.missing.clear();
    (podgroups, inboxes)
}

/// A pod group in the store.
fn stored_group(podgroups: &PodGroups, spec: Value) -> GroupKey {
    let group = json!({"metadata": {"namespace": "ns", "name": "pg"}, "spec": spec});
    podgroups.stores.pod_groups.insert(read(group));
    GroupKey::new("ns", "pg")
}

/// A pod in the store that waits.
fn stored_pod(podgroups: &PodGroups, name: &str, annotations: Value) -> PodRef {
    let pod: Pod = read(json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": "1", "annotations": annotations,
        },
        "spec": {"schedulerName": "kai-scheduler", "containers": []},
    }));
    let pod_ref = pods::pod_ref(&pod);
    podgroups.stores.pods.insert(pod);
    pod_ref
}

/// The watch shows a stored pod.
fn show(podgroups: &mut PodGroups, pod: &PodRef) {
    let pod = podgroups.stores.pods.get(&pod.namespace, &pod.name).expect("the pod");
    podgroups.take(ToPodGroups::Change(Change::Applied(Object::Pod(pod))));
}

/// The events since the last call, as the name of their object and the message.
fn told(inboxes: &mut Inboxes) -> Vec<String> {
    let told = std::iter::from_fn(|| inboxes.events.try_recv().ok());
    told.map(|told| match told {
        ToEvents::Ours(note) | ToEvents::SeenByAll(note) => format!("{}: {}", note.subject.name(), note.message),
    })
    .collect()
}

/// A bound pod of the pod group.
fn running_pod(annotations: Value) -> Pod {
    let mut annotations = annotations;
    annotations["pod-group-name"] = json!("pg");
    read(json!({
        "metadata": {"namespace": "ns", "name": "p", "uid": "uid-p", "annotations": annotations},
        "spec": {
            "schedulerName": "kai-scheduler", "nodeName": "n1",
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running"},
    }))
}

fn report(message: &str, pods: &[&PodRef]) -> GroupReport {
    GroupReport {
        group: GroupKey::new("ns", "pg"),
        not_ready: false,
        partly_runs: false,
        reasons: Vec::new(),
        verdict: Verdict::new(Cause::QueueLimit, message),
        message: message.to_owned(),
        pods: pods.iter().map(|pod| ((*pod).clone(), message.into())).collect(),
    }
}

/// Handles all that is due. Returns how many statuses of pod groups would be written.
fn handle_due(podgroups: &mut PodGroups) -> usize {
    let mut writes = 0;
    while let Some(target) = podgroups.agenda.start(Instant::now()) {
        match &target {
            Target::Group(key) => writes += usize::from(podgroups.write_group(key).is_some()),
            Target::Pod(pod) => drop(podgroups.write_pod(pod)),
        }
        podgroups.agenda.finish(&target);
    }
    writes
}

#[tokio::test(start_paused = true)]
async fn a_pod_counts_for_its_portion_of_a_gpu_though_its_node_is_listed_later() {
    let (mut podgroups, _inboxes) = component();
    let pod = running_pod(json!({"gpu-memory": "2000", "received-resource-type": "Fraction"}));
    podgroups.stores.pods.insert(pod.clone());
    podgroups.take(ToPodGroups::Change(Change::Applied(Object::Pod(Arc::new(pod)))));
    let held = |podgroups: &PodGroups| {
        let sums = podgroups.ledger.sums(&GroupKey::new("ns", "pg"));
        let gpus = quantities(&sums.allocated.amounts()).get("nvidia.com/gpu").cloned();
        gpus.map(|gpus| gpus.0)
    };
    assert_eq!(held(&podgroups), None);
    for (memory, expected) in [("4000", "500m"), ("8000", "250m")] {
        let labels = json!({"nvidia.com/gpu.memory": memory});
        let node: Node = read(json!({"metadata": {"name": "n1", "labels": labels}}));
        podgroups.stores.nodes.insert(node.clone());
        podgroups.take(ToPodGroups::Change(Change::Applied(Object::Node(Arc::new(node)))));
        assert_eq!(held(&podgroups).as_deref(), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_group_counts_as_set_aside_until_it_is_not_any_more() {
    let (mut podgroups, _inboxes) = component();
    let key = stored_group(&podgroups, json!({"minMember": 1}));
    let mut tell = |group: &GroupKey, why: Option<&str>| {
        podgroups.take(ToPodGroups::SetAside(group.clone(), why.map(str::to_owned)));
        podgroups.known.set_aside.len()
    };
    assert_eq!(tell(&GroupKey::new("ns", "gone"), Some("too large")), 0);
    assert_eq!(tell(&key, Some("too large")), 1);
    assert_eq!(tell(&key, None), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_said_that_its_pod_group_does_not_exist_says_that_it_is_set_aside() {
    let (mut podgroups, mut inboxes) = component();
    for (name, group) in [("member", "pg"), ("other", "other")] {
        let pod = stored_pod(&podgroups, name, json!({"pod-group-name": group}));
        show(&mut podgroups, &pod);
    }
    advance(UNREPORTED_AFTER).await;
    handle_due(&mut podgroups);
    let remedy = "create it or correct the pod's annotation pod-group-name";
    assert_eq!(
        told(&mut inboxes),
        [
            format!("member: Pod group 'pg' does not exist in namespace 'ns'; {remedy}"),
            format!("other: Pod group 'other' does not exist in namespace 'ns'; {remedy}"),
        ]
    );
    let key = stored_group(&podgroups, json!({"minMember": 1}));
    podgroups.take(ToPodGroups::SetAside(key, Some("it is too large".to_owned())));
    advance(REASONS_AFTER).await;
    handle_due(&mut podgroups);
    assert_eq!(told(&mut inboxes), ["member: Pod group 'pg': it is too large"]);
}

/// The watch of pods is often complete before others.
#[tokio::test(start_paused = true)]
async fn a_reason_that_is_due_before_all_lists_are_complete_is_written_after_them() {
    let (mut podgroups, mut inboxes) = component();
    podgroups.missing = vec![Kind::Node];
    let pod = stored_pod(&podgroups, "a", json!({"pod-group-name": "pg"}));
    show(&mut podgroups, &pod);
    advance(seconds(60)).await;
    let mut slots = WriteSlots::with_max_wait(&podgroups.context.background, MAX_WAIT);
    let slot = slots.due(podgroups.agenda.next()).await;
    podgroups.write_next(slot);
    assert_eq!(told(&mut inboxes), [""; 0]);
    podgroups.take(ToPodGroups::Change(Change::Synced(Kind::Node)));
    advance(REASONS_AFTER).await;
    handle_due(&mut podgroups);
    let message =
        "Pod group 'pg' does not exist in namespace 'ns'; create it or correct the pod's annotation pod-group-name";
    assert_eq!(told(&mut inboxes), [format!("a: {message}")]);
}

/// Another process may have decided since.
#[tokio::test(start_paused = true)]
async fn a_report_of_an_earlier_term_is_not_written() {
    let (mut podgroups, mut inboxes) = component();
    stored_group(&podgroups, json!({"minMember": 1}));
    let pod = stored_pod(&podgroups, "a", json!({"pod-group-name": "pg"}));
    for (term, writes) in [(0, 0), (1, 1)] {
        podgroups.waiting(term, report("Waits for 1 GPU", &[&pod]));
        advance(seconds(1)).await;
        assert_eq!(handle_due(&mut podgroups), writes, "in term {term}");
        let of_pod_and_group = 2 * writes;
        assert_eq!(told(&mut inboxes).len(), of_pod_and_group, "events in term {term}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_of_an_earlier_term_is_not_written() {
    let (mut podgroups, _inboxes) = component();
    stored_group(&podgroups, json!({"minMember": 1}));
    let pod = stored_pod(&podgroups, "a", json!({"pod-group-name": "pg"}));
    podgroups.obstacle(Obstacle {
        pod: pod.clone(),
        kind: ObstacleKind::Place,
        reason: reason::PIPELINED,
        message: Some("Waits for its place on node n1".to_owned()),
    });
    assert!(podgroups.write_pod(&pod).is_some());
    podgroups.leading_changed();
    assert!(podgroups.write_pod(&pod).is_none());
}

#[tokio::test(start_paused = true)]
async fn events_are_repeated_again_after_leadership_was_lost_and_regained() {
    let (mut podgroups, mut inboxes) = component();
    let (terms, leading) = watch::channel(Terms::default());
    podgroups.context.leading = leading;
    stored_group(&podgroups, json!({"minMember": 1}));
    let pod = stored_pod(&podgroups, "a", json!({"pod-group-name": "pg"}));
    let of_pod_and_group = 2;
    for number in [1, 2] {
        let writes = podgroups.context.refused.clone();
        terms.send_modify(|terms| terms.begin(&Scope::Cluster, Term { number, writes }));
        podgroups.leading_changed();
        podgroups.waiting(number, report("Waits for 1 GPU", &[&pod]));
        advance(seconds(1)).await;
        handle_due(&mut podgroups);
        assert_eq!(told(&mut inboxes).len(), of_pod_and_group, "in term {number}");
        advance(seconds(61)).await;
        podgroups.repeat_events();
        assert_eq!(told(&mut inboxes).len(), of_pod_and_group, "repeated in term {number}");

        terms.send_modify(|terms| terms.end(&Scope::Cluster, number));
        podgroups.leading_changed();
        advance(seconds(16 * 60)).await;
        podgroups.repeat_events();
        assert_eq!(told(&mut inboxes), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_group_is_not_written_is_told_nothing_once_another_process_leads_its_node_pool() {
    let (mut podgroups, _inboxes) = component();
    let mut settings = Settings::clone(&podgroups.context.settings);
    settings.pools.with_shard = ["blue".into()].into();
    podgroups.context.settings = Arc::new(settings);
    let (terms, leading) = watch::channel(Terms::default());
    podgroups.context.leading = leading;
    let blue = Scope::Pool("blue".into());
    for (number, scope) in [(1, Scope::Cluster), (2, blue.clone())] {
        let writes = podgroups.context.refused.clone();
        terms.send_modify(|terms| terms.begin(&scope, Term { number, writes }));
    }
    podgroups.leading_changed();
    let pod = stored_pod(&podgroups, "a", json!({"pod-group-name": "pg"}));
    let mut labelled = Pod::clone(&podgroups.stores.pods.get("ns", "a").expect("the pod"));
    labelled.metadata.labels = Some([(label::NODE_POOL.to_owned(), "blue".to_owned())].into());
    podgroups.stores.pods.insert(labelled);
    podgroups.waiting(2, report("Waits for 1 GPU", &[&pod]));
    assert!(podgroups.write_pod(&pod).is_some());

    terms.send_modify(|terms| terms.end(&blue, 2));
    podgroups.leading_changed();
    assert!(podgroups.write_pod(&pod).is_none());
}

/// Its messages may come later than the first ones of the scheduler of the node pool in which the pod group is now.
#[tokio::test(start_paused = true)]
async fn a_scheduler_of_a_former_node_pool_does_not_change_a_report() {
    let (mut podgroups, _inboxes) = component();
    let key = stored_group(&podgroups, json!({"minMember": 1}));
    podgroups.waiting(1, report("Waits for 1 GPU", &[]));
    let told = |podgroups: &PodGroups| {
        podgroups
            .reports
            .get(&key)
            .map(|reported| reported.report.message.clone())
    };
    podgroups.cleared(2, key.clone());
    podgroups.waiting(2, report("Waits in the other pool", &[]));
    assert_eq!(told(&podgroups).as_deref(), Some("Waits for 1 GPU"));
    podgroups.cleared(1, key.clone());
    assert_eq!(told(&podgroups), None);
}

#[tokio::test(start_paused = true)]
async fn a_report_at_which_it_panics_is_counted_and_those_after_it_are_handled() {
    let metrics = Metrics::from_now_on();
    let (mut podgroups, _inboxes) = component();
    let keys = ["a", "b", "c"].map(|name| GroupKey::new("ns", name));
    let reported = |podgroups: &PodGroups| keys.clone().map(|key| podgroups.reports.contains_key(&key));
    let reports = keys.clone().map(|group| GroupReport {
        group,
        ..report("Waits for 1 GPU", &[])
    });
    let panics_at_the_second = || panics::tests::fail_after(1);
    panics_at_the_second();
    podgroups.take(ToPodGroups::Waiting(1, reports.to_vec()));
    assert_eq!(reported(&podgroups), [true, false, true]);
    podgroups.take(ToPodGroups::Waiting(1, reports.to_vec()));
    panics_at_the_second();
    podgroups.take(ToPodGroups::Cleared(1, keys.to_vec()));
    assert_eq!(reported(&podgroups), [false, true, false]);

    let pods = ["a", "b", "c"].map(|name| stored_pod(&podgroups, name, json!({})));
    pods.iter().for_each(|pod| show(&mut podgroups, pod));
    let obstacles = pods.clone().map(|pod| Obstacle {
        pod,
        kind: ObstacleKind::SubGroup,
        reason: reason::UNSCHEDULABLE,
        message: Some("Pod references subgroup \"a\"".to_owned()),
    });
    panics_at_the_second();
    podgroups.take(ToPodGroups::Obstacles(obstacles.to_vec()));
    let says = pods.map(|pod| {
        podgroups
            .waiting
            .get(&pod.uid)
            .is_some_and(|waiting| waiting.said().is_some())
    });
    assert_eq!(says, [true, false, true]);
    let counted = metrics.of("unikai_object_panics_total{component=\"podgroups\"}");
    assert_eq!(counted, Some(3.0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_pod_group_that_was_never_written() {
    let (mut podgroups, _inboxes) = component();
    let group = json!({
        "metadata": {
            "namespace": "ns", "name": "pg",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}],
        },
        "spec": {"queue": "q"},
    });
    let group: Arc<PodGroup> = Arc::new(read(group));
    let key = pods::group_key(&group.metadata);
    for is_placed in [false, true] {
        let pod = stored_pod(&podgroups, "p", json!({}));
        podgroups.take(ToPodGroups::Unwritten(Arc::clone(&group)));
        podgroups.waiting(1, report("Waits for 1 GPU", &[&pod]));
        if is_placed {
            podgroups.cleared(1, key.clone());
        }
        podgroups.usage.clear();
        let stored = podgroups.stores.pods.get("ns", "p").expect("the pod");
        podgroups.stores.pods.remove(&Key::of(&stored.metadata));
        podgroups.take(ToPodGroups::Change(Change::Deleted(Object::Pod(stored))));
        assert!(podgroups.unwritten.is_empty() && podgroups.unwritten_of.is_empty());
        assert!(podgroups.reports.is_empty() && podgroups.cleared.is_empty() && podgroups.histories.is_empty());
        assert!(podgroups.usage.contains(&key), "its queue is told");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_group_that_waits_and_is_placed_in_turns_is_written_rarely() {
    let (mut podgroups, _inboxes) = component();
    let key = stored_group(&podgroups, json!({"minMember": 1}));
    let mut writes = 0;
    for _ in 0..300 {
        podgroups.waiting(1, report("Waits for 1 GPU", &[]));
        advance(seconds(1)).await;
        writes += handle_due(&mut podgroups);
        podgroups.cleared(1, key.clone());
        advance(seconds(1)).await;
        writes += handle_due(&mut podgroups);
    }
    assert!((3..20).contains(&writes), "{writes}");

    let group = podgroups.stores.pod_groups.get("ns", "pg").expect("the pod group");
    podgroups.stores.pod_groups.remove(&Key::of(&group.metadata));
    podgroups.take(ToPodGroups::Change(Change::Deleted(Object::PodGroup(group))));
    assert!(podgroups.histories.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reason_is_planned_for_the_time_from_which_it_may_be_written() {
    let (mut podgroups, _inboxes) = component();
    stored_group(&podgroups, json!({"minMember": 1}));
    let pod = stored_pod(&podgroups, "a", json!({"pod-group-name": "pg"}));
    podgroups.waiting(1, report("Queue team holds 1 of 2 GPUs", &[&pod]));
    advance(seconds(1)).await;
    assert_eq!(handle_due(&mut podgroups), 1);
    podgroups.waiting(1, report("Queue team holds 2 of 2 GPUs", &[&pod]));
    assert_eq!(podgroups.agenda.next(), Some(Instant::now() + seconds(3)));
    podgroups.waiting(1, report("Queue team does not exist", &[&pod]));
    assert_eq!(podgroups.agenda.next(), Some(Instant::now() + REASONS_AFTER));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_to_be_marked_gets_events_and_no_condition_except_about_its_sub_group() {
    let (mut podgroups, mut inboxes) = component();
    stored_group(&podgroups, json!({"minMember": 1, "markUnschedulable": false}));
    // Its annotation is not written yet.
    let new = stored_pod(&podgroups, "new", json!({}));
    podgroups.waiting(1, report("Queue team is at its limit", &[&new]));
    assert!(podgroups.write_pod(&new).is_none());
    let lost = stored_pod(&podgroups, "lost", json!({"pod-group-name": "pg"}));
    podgroups.obstacle(Obstacle {
        pod: lost.clone(),
        kind: ObstacleKind::SubGroup,
        reason: reason::UNSCHEDULABLE,
        message: Some("Pod references subgroup \"a\"".to_owned()),
    });
    assert!(podgroups.write_pod(&lost).is_some());
    assert_eq!(
        told(&mut inboxes),
        ["new: Queue team is at its limit", "lost: Pod references subgroup \"a\""]
    );
}

#[tokio::test(start_paused = true)]
async fn queues_get_what_pod_groups_hold_while_the_part_is_switched_off_and_nothing_is_written() {
    let parts = Parts {
        pod_groups: false,
        ..Parts::default()
    };
    let settings = Settings {
        parts,
        ..Settings::default()
    };
    let lab = Lab::start(settings, &["ns"]).await;
    lab.install_definitions().await;
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"namespace": "ns", "name": "pg"}, "spec": {"minMember": 1, "queue": "team"},
    });
    lab.stores.pod_groups.insert(read(lab.create(group).await));
    let pod = running_pod(json!({}));
    lab.stores.pods.insert(pod.clone());
    let (bus, inboxes) = bus::channels(1);
    let Inboxes {
        podgroups, mut queues, ..
    } = inboxes;
    let runs = tokio::spawn(run(
        lab.context.clone(),
        podgroups,
        Arc::clone(&lab.stores),
        bus.clone(),
    ));
    let applied = Change::Applied(Object::Pod(Arc::new(pod)));
    let synced = Kind::told_to(&[Listener::PodGroups]).into_iter().map(Change::Synced);
    for change in std::iter::once(applied).chain(synced) {
        bus.podgroups.send(ToPodGroups::Change(change)).await.expect("it runs");
    }
    sleep(seconds(10)).await;
    let told: Vec<_> = std::iter::from_fn(|| queues.try_recv().ok()).collect();
    let [ToQueues::Usage(usage), ToQueues::UsageComplete] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(usage[0].queue.as_deref(), Some("team"));
    assert_eq!(quantities(&usage[0].allocated)["cpu"].0, "1");
    assert!(lab.writes().is_empty(), "{:?}", lab.writes());
    lab.context.shutdown.cancel();
    runs.await.expect("no panic").expect("no failure");
}
