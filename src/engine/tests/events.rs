//! Events and assumptions: what is decided stays assumed until the API server shows it or it is taken back.

use super::scenario::{NOW, group, node, placed, pod};
use crate::api::calendar::{Calendar, Period};
use crate::engine::decision::Cause;
use crate::engine::input::{Event, GroupInput, Hold, PodInput, PodRef, PodStatus, QueueInput, Schedule, Share, Time};
use crate::engine::policy::{ActionKind, DisruptionBudgets, Policy};
use crate::engine::{Engine, WakeReason};

fn queue(name: &str) -> Event {
    let all = Share {
        quota: None,
        limit: None,
        weight: 1,
    };
    Event::Queue(Box::new(QueueInput {
        name: name.into(),
        display: name.into(),
        parent: None,
        priority: 100,
        created: NOW,
        cpu: all,
        memory: all,
        gpu: all,
        ..QueueInput::default()
    }))
}

/// One node with one GPU, one queue, one group with one pod that wants it.
fn small_world() -> (Engine, GroupInput, PodInput) {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::StaleGangEviction],
        ..Policy::default()
    });
    let group = group("a", "q", 0);
    let pod = pod(&group, 0, "1");
    engine.apply(queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
    engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
    (engine, group, pod)
}

#[test]
fn a_decided_bind_is_assumed_until_the_pod_shows_it() {
    let (mut engine, group, first) = small_world();
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    let mut relabelled = first.clone();
    relabelled.task_priority = Some(1);
    engine.apply(Event::Pod(Box::new(relabelled)), NOW);
    let second = pod(&group, 1, "1");
    engine.apply(Event::Pod(Box::new(second)), NOW);
    assert!(
        engine.cycle(NOW).bind.is_empty(),
        "the only GPU is taken, whatever the pod's object still says"
    );

    let running = PodInput {
        status: PodStatus::Running,
        node: Some("n0".into()),
        ..first
    };
    engine.apply(Event::Pod(Box::new(running)), NOW);
    assert!(engine.cycle(NOW).bind.is_empty());
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn a_pod_that_changes_while_its_node_is_gone_stays_as_decided_and_the_node_is_forgotten_after_it() {
    let (mut engine, _, pod) = small_world();
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    engine.apply(Event::NodeGone("n0".into()), NOW);
    let changed = PodInput {
        task_priority: Some(1),
        ..pod.clone()
    };
    engine.apply(Event::Pod(Box::new(changed)), NOW);
    assert_eq!(engine.model().nodes().iter().count(), 1);
    let unbound = Event::Unbound {
        pod: pod.pod.uid.clone(),
        retry_at: None,
    };
    engine.apply(unbound, NOW);
    assert_eq!(engine.model().nodes().iter().count(), 0);
}

#[test]
fn a_failed_bind_is_tried_again_when_its_time_comes() {
    let (mut engine, _, pod) = small_world();
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    let later = Time(NOW.0 + 5000);
    engine.apply(
        Event::Unbound {
            pod: pod.pod.uid.clone(),
            retry_at: Some(later),
        },
        NOW,
    );
    assert!(engine.cycle(NOW).bind.is_empty());
    assert_eq!(engine.next_wakeup(NOW), Some((later, WakeReason::BindRetry)));
    assert_eq!(engine.cycle(later).bind.len(), 1);
}

#[test]
fn a_bind_that_fails_after_its_bind_request_was_seen_is_also_delayed() {
    let (mut engine, _, pod) = small_world();
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    let binding = PodInput {
        status: PodStatus::Binding,
        node: Some("n0".into()),
        ..pod.clone()
    };
    engine.apply(Event::Pod(Box::new(binding)), NOW);
    let later = Time(NOW.0 + 5000);
    let unbound = Event::Unbound {
        pod: pod.pod.uid.clone(),
        retry_at: Some(later),
    };
    engine.apply(unbound, NOW);
    // The bind request is taken away.
    engine.apply(Event::Pod(Box::new(pod)), NOW);
    assert!(engine.cycle(NOW).bind.is_empty());
    assert_eq!(engine.next_wakeup(NOW), Some((later, WakeReason::BindRetry)));
    assert_eq!(engine.cycle(later).bind.len(), 1);
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn a_node_on_which_no_gpu_could_be_shared_is_passed_over_for_a_while() {
    let (mut engine, group, whole) = small_world();
    engine.apply(Event::PodGone(whole.pod.uid.clone()), NOW);
    let half = |number| pod(&group, number, "0.5");
    engine.apply(Event::Pod(Box::new(half(1))), NOW);
    assert_eq!(&*engine.cycle(NOW).bind[0].node, "n0");
    let later = Time(NOW.0 + 10_000);
    let failed = |retry_at| Event::SharingFailed {
        node: "n0".into(),
        retry_at,
    };
    let unbound = |number| Event::Unbound {
        pod: half(number).pod.uid.clone(),
        retry_at: None,
    };
    engine.apply(failed(later), NOW);
    engine.apply(unbound(1), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    let why = &decisions.unschedulable[0].message;
    assert!(why.contains("1 node(s) failed to reserve a GPU for sharing"), "{why}");
    assert_eq!(engine.next_wakeup(NOW), Some((later, WakeReason::BindRetry)));
    // Another node is not affected.
    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    assert_eq!(&*engine.cycle(NOW).bind[0].node, "n1");
    // Who asks for a whole GPU, or joins others, is not concerned.
    engine.apply(
        Event::SharingFailed {
            node: "n1".into(),
            retry_at: later,
        },
        NOW,
    );
    engine.apply(Event::Pod(Box::new(half(2))), NOW);
    engine.apply(Event::Pod(Box::new(pod(&group, 3, "1"))), NOW);
    let mut nodes: Vec<_> = engine
        .cycle(NOW)
        .bind
        .into_iter()
        .map(|bind| (bind.pod.uid.clone(), bind.node))
        .collect();
    nodes.sort();
    assert_eq!(
        nodes,
        [
            (half(2).pod.uid.clone(), "n1".into()),
            (half(3).pod.uid.clone(), "n0".into())
        ]
    );
    // It is tried again when its time comes, and that a node is gone is no harm.
    engine.apply(Event::PodGone(half(3).pod.uid.clone()), NOW);
    engine.apply(Event::Pod(Box::new(half(4))), NOW);
    assert!(engine.cycle(NOW).bind.is_empty());
    assert_eq!(&*engine.cycle(later).bind[0].node, "n0");
    engine.apply(failed(Time(later.0 + 10_000)), later);
    engine.apply(unbound(4), later);
    engine.apply(Event::NodeGone("n0".into()), later);
    assert!(engine.cycle(Time(later.0 + 20_000)).bind.is_empty());
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn a_device_is_taken_until_the_pod_that_reserves_it_is_gone() {
    let (mut engine, group, whole) = small_world();
    let reservation = PodInput {
        pod: PodRef::new("ns", "reservation", "reservation"),
        group: None,
        status: PodStatus::Running,
        node: Some("n0".into()),
        foreign: true,
        of_unikai: true,
        reservation: true,
        gpu_groups: vec!["g".into()],
        ..pod(&group, 1, "1")
    };
    engine.apply(Event::Pod(Box::new(reservation.clone())), NOW);
    assert!(
        engine.cycle(NOW).bind.is_empty(),
        "its last user has left, the device is not free yet"
    );
    assert!(engine.model().broken_rules().is_empty());
    engine.apply(Event::PodGone(reservation.pod.uid.clone()), NOW);
    assert_eq!(engine.cycle(NOW).bind[0].pod.uid, whole.pod.uid);
    assert!(engine.model().broken_rules().is_empty());
}

/// Two GPUs that two pod groups hold, and a third pod group of higher priority that needs one. Pods may be victims, the last pod group's first.
fn contended(budget: Option<&str>) -> (Engine, Vec<PodInput>) {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "2"))), NOW);
    let mut running = Vec::new();
    for (age, name) in ["a", "b"].into_iter().enumerate() {
        let group = group(name, "q", age);
        running.push(placed(pod(&group, 0, "1"), "n0"));
        engine.apply(Event::Group(Box::new(group)), NOW);
    }
    let urgent = GroupInput {
        priority: 100,
        ..group("p", "q", 2)
    };
    let waiting = pod(&urgent, 0, "1");
    engine.apply(Event::Group(Box::new(urgent)), NOW);
    for pod in running.iter().chain([&waiting]) {
        engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
    }
    if let Some(budget) = budget.map(super::scenario::budget) {
        engine.apply(budget, NOW);
    }
    (engine, running)
}

/// The pods that a cycle evicts.
fn evicted(engine: &mut Engine, now: Time) -> Vec<String> {
    let decisions = engine.cycle(now);
    let names = decisions.evict.iter().map(|eviction| eviction.pod.name.to_string());
    names.collect()
}

fn refused(engine: &mut Engine, pod: &PodInput, retry_at: Option<Time>) {
    let pod = pod.pod.uid.clone();
    engine.apply(Event::Unevicted { pod, retry_at }, NOW);
}

#[test]
fn after_a_refused_eviction_other_victims_are_evicted() {
    let (mut engine, running) = contended(None);
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
    let (soon, later) = (Time(NOW.0 + 5_000), Time(NOW.0 + 10_000));
    refused(&mut engine, &running[1], Some(later));
    assert_eq!(evicted(&mut engine, NOW), ["a-000"]);
    refused(&mut engine, &running[0], Some(soon));
    assert!(evicted(&mut engine, NOW).is_empty());
    assert!(evicted(&mut engine, NOW).is_empty());
    assert_eq!(engine.next_wakeup(NOW), Some((soon, WakeReason::BindRetry)));
    assert_eq!(evicted(&mut engine, soon), ["a-000"]);
    refused(&mut engine, &running[0], Some(Time(NOW.0 + 30_000)));
    assert_eq!(evicted(&mut engine, later), ["b-000"]);
    assert!(engine.model().broken_rules().is_empty());
}

/// A pod that is evicted before its bind has ended holds its place until the bind fails or the eviction takes effect.
#[test]
fn a_bind_and_an_eviction_of_one_pod_may_both_fail() {
    for unbound_first in [true, false] {
        let mut engine = Engine::new(Policy {
            actions: vec![ActionKind::Allocate, ActionKind::Preempt],
            ..Policy::default()
        });
        engine.apply(queue("q"), NOW);
        engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
        let create = |name: &str, priority: i64, engine: &mut Engine| {
            let group = GroupInput {
                priority,
                ..group(name, "q", 0)
            };
            let pod = pod(&group, 0, "1");
            engine.apply(Event::Group(Box::new(group)), NOW);
            engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
            pod
        };
        let first = create("a", 50, &mut engine);
        let bound = |engine: &mut Engine| -> Vec<String> {
            let decisions = engine.cycle(NOW);
            assert!(engine.model().broken_rules().is_empty());
            decisions.bind.iter().map(|bind| bind.pod.name.to_string()).collect()
        };
        assert_eq!(bound(&mut engine), ["a-000"]);
        let urgent = create("p", 100, &mut engine);
        assert_eq!(evicted(&mut engine, NOW), ["a-000"]);
        let later = Time(NOW.0 + 60_000);
        let unbound = Event::Unbound {
            pod: first.pod.uid.clone(),
            retry_at: Some(later),
        };
        if unbound_first {
            engine.apply(unbound, NOW);
            assert_eq!(bound(&mut engine), ["p-000"], "nothing holds the place any more");
            refused(&mut engine, &first, Some(later));
        } else {
            refused(&mut engine, &first, Some(later));
            assert!(bound(&mut engine).is_empty(), "the place is held by the bind");
            engine.apply(unbound, NOW);
            assert_eq!(bound(&mut engine), ["p-000"]);
        }
        engine.apply(Event::PodGone(urgent.pod.uid.clone()), NOW);
        assert_eq!(evicted(&mut engine, NOW), [""; 0]);
        let decisions = engine.cycle(later);
        assert_eq!(decisions.bind.len(), 1, "it is scheduled again");
    }
}

#[test]
fn changes_of_a_pod_do_not_end_its_retry_delay() {
    let (mut engine, running) = contended(None);
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
    refused(&mut engine, &running[1], Some(Time(NOW.0 + 5_000)));
    let mut renamed = running[1].clone();
    renamed.task_priority = Some(7);
    engine.apply(Event::Pod(Box::new(renamed)), NOW);
    assert_eq!(evicted(&mut engine, NOW), ["a-000"]);
}

#[test]
fn an_eviction_that_was_not_tried_is_decided_again_at_once() {
    let (mut engine, running) = contended(None);
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
    refused(&mut engine, &running[1], None);
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
}

#[test]
fn after_a_refused_eviction_another_pod_of_the_gang_is_evicted() {
    let (mut engine, running) = contended(None);
    engine.apply(Event::PodGone(running[0].pod.uid.clone()), NOW);
    let elastic = group("b", "q", 1);
    let second = placed(pod(&elastic, 1, "1"), "n0");
    engine.apply(Event::Pod(Box::new(second.clone())), NOW);
    assert_eq!(evicted(&mut engine, NOW), ["b-001"]);
    refused(&mut engine, &second, Some(Time(NOW.0 + 5_000)));
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
}

#[test]
fn after_a_refused_eviction_the_next_pod_of_the_same_node_is_evicted() {
    let (mut engine, running) = contended(None);
    let oldest = GroupInput {
        created: Time(NOW.0 - 200_000_000),
        ..group("c", "q", 0)
    };
    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    let elsewhere = placed(pod(&oldest, 0, "1"), "n1");
    engine.apply(Event::Group(Box::new(oldest)), NOW);
    engine.apply(Event::Pod(Box::new(elsewhere)), NOW);
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
    refused(&mut engine, &running[1], Some(Time(NOW.0 + 5_000)));
    assert_eq!(evicted(&mut engine, NOW), ["a-000"]);
}

#[test]
fn pods_that_are_no_use_without_one_whose_eviction_was_refused_stay() {
    let (mut engine, running) = contended(None);
    engine.apply(Event::PodGone(running[0].pod.uid.clone()), NOW);
    let second = placed(pod(&group("b", "q", 1), 1, "1"), "n0");
    engine.apply(Event::Pod(Box::new(second.clone())), NOW);
    assert_eq!(evicted(&mut engine, NOW), ["b-001"]);
    let soon = Time(NOW.0 + 5_000);
    refused(&mut engine, &second, Some(soon));
    let needs_both = pod(&group("p", "q", 2), 0, "2");
    engine.apply(Event::Pod(Box::new(needs_both)), NOW);
    assert!(evicted(&mut engine, NOW).is_empty());
    let mut both = evicted(&mut engine, soon);
    both.sort_unstable();
    assert_eq!(both, ["b-000", "b-001"]);
}

#[test]
fn failed_evictions_are_returned_to_the_budget_unless_it_was_updated() {
    for (told_since, then) in [(false, vec!["a-000", "b-000"]), (true, Vec::new())] {
        let (mut engine, running) = contended(Some("* 2"));
        let mut policy = engine.policy.clone();
        policy.disruption_budgets = DisruptionBudgets::Respect;
        engine.set_policy(policy);
        assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
        if told_since {
            // The API server has counted an eviction that took effect although its response was lost.
            let Event::Budget(mut spent) = super::scenario::budget("* 2") else {
                panic!("a budget")
            };
            spent.allowed = 1;
            spent.disrupted = [running[1].pod.name.clone()].into();
            engine.apply(Event::Budget(spent), NOW);
        }
        refused(&mut engine, &running[1], None);
        let needs_both = pod(&group("p", "q", 2), 0, "2");
        engine.apply(Event::Pod(Box::new(needs_both)), NOW);
        let mut both = evicted(&mut engine, NOW);
        both.sort_unstable();
        assert_eq!(both, then, "told since: {told_since}");
    }
}

#[test]
fn decisions_about_a_group_are_assumed_until_its_object_shows_them() {
    let (mut engine, running) = contended(None);
    assert_eq!(evicted(&mut engine, NOW), ["b-000"]);
    engine.apply(Event::PodGone(running[1].pod.uid.clone()), NOW);
    let shown = GroupInput {
        last_eviction: None,
        preemption_delay: Some(60_000),
        ..group("b", "q", 1)
    };
    engine.apply(Event::Group(Box::new(shown.clone())), NOW);
    let of_b = |engine: &Engine| {
        let pod_group = engine.model().pod_group_named(&shown.key).expect("the gang");
        engine.model().pod_groups()[pod_group]
            .input
            .as_ref()
            .and_then(|input| input.last_eviction)
    };
    assert_eq!(of_b(&engine), Some(NOW));
    let another = GroupInput {
        uid: "another".into(),
        ..shown.clone()
    };
    engine.apply(Event::Group(Box::new(another)), NOW);
    assert_eq!(of_b(&engine), None, "another group of that name was never evicted");
}

#[test]
fn a_bind_to_a_node_that_vanished_can_be_taken_back() {
    let (mut engine, _, pod) = small_world();
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    engine.apply(Event::NodeGone("n0".into()), NOW);
    assert!(engine.cycle(NOW).is_empty());
    engine.apply(
        Event::Unbound {
            pod: pod.pod.uid.clone(),
            retry_at: None,
        },
        NOW,
    );
    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!(
        decisions.bind.iter().map(|bind| &*bind.node).collect::<Vec<_>>(),
        ["n1"]
    );
}

#[test]
fn references_to_unknown_objects_are_resolved_when_the_objects_appear() {
    let group = group("a", "q", 0);
    let running = PodInput {
        status: PodStatus::Running,
        node: Some("n0".into()),
        ..pod(&group, 0, "1")
    };
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate],
        ..Policy::default()
    });
    engine.apply(Event::Pod(Box::new(running)), NOW);
    engine.apply(Event::Pod(Box::new(pod(&group, 1, "1"))), NOW);
    engine.apply(Event::Group(Box::new(group)), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "2"))), NOW);
    assert!(engine.cycle(NOW).bind.is_empty(), "the queue is not known yet");
    engine.apply(queue("q"), NOW);
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn without_changes_a_cycle_does_nothing() {
    let (mut engine, ..) = small_world();
    engine.cycle(NOW);
    engine.apply(queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.is_empty());
    assert_eq!(decisions.work.groups_tried, 0);
    assert_eq!(engine.next_wakeup(NOW), None);
}

#[test]
fn freed_resources_are_used_in_the_next_cycle() {
    let (mut engine, group, first) = small_world();
    engine.cycle(NOW);
    engine.apply(Event::Pod(Box::new(pod(&group, 1, "1"))), NOW);
    let report = engine.cycle(NOW).unschedulable;
    assert_eq!(report.len(), 1);
    assert!(report[0].partly_runs);
    engine.apply(Event::PodGone(first.pod.uid.clone()), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.bind.len(), 1);
    assert_eq!(decisions.cleared.len(), 1);
}

#[test]
fn queues_that_form_a_cycle_are_ignored() {
    let (mut engine, ..) = small_world();
    for (name, parent) in [("q", "r"), ("r", "q")] {
        let Event::Queue(mut input) = queue(name) else {
            unreachable!("queue() makes queues")
        };
        input.parent = Some(parent.into());
        engine.apply(Event::Queue(input), NOW);
    }
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    assert_eq!(
        decisions.unschedulable[0].message,
        "QueueDoesNotExist: Queue 'q' does not exist."
    );
}

/// What the pods of a queue hold or request.
fn wanted(engine: &Engine) -> [i64; 3] {
    let id = engine.model().queues().id("q").expect("the queue");
    engine.model().queues()[id].wanted
}

#[test]
fn a_refused_group_waits_with_its_reason_while_its_running_pods_stay() {
    let (mut engine, group, first) = small_world();
    let refuse = |why: Option<&str>| {
        Event::Group(Box::new(GroupInput {
            refused: why.map(Into::into),
            ..group.clone()
        }))
    };
    engine.apply(refuse(Some("Queue 'q' is not open to it")), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    let message = &decisions.unschedulable[0].message;
    assert_eq!(message, "PodSchedulingErrors: Queue 'q' is not open to it.");
    assert_eq!(wanted(&engine), [0; 3]);

    engine.apply(refuse(None), NOW);
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    let running = PodInput {
        status: PodStatus::Running,
        node: Some("n0".into()),
        ..first
    };
    engine.apply(Event::Pod(Box::new(running)), NOW);
    engine.apply(refuse(Some("Queue 'q' is not open to it")), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.evict.is_empty() && decisions.unschedulable.is_empty());
}

#[test]
fn a_held_group_waits_without_demand_while_its_running_pods_stay() {
    let (mut engine, group, first) = small_world();
    let hold = |held: bool| {
        let (queue, reason) = (None, None);
        Event::Group(Box::new(GroupInput {
            held: held.then(|| Box::new(Hold { queue, reason })),
            ..group.clone()
        }))
    };
    engine.apply(hold(true), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.bind.is_empty());
    assert_eq!(decisions.unschedulable[0].verdict.cause, Cause::Held);
    assert_eq!(wanted(&engine), [0; 3]);

    engine.apply(hold(false), NOW);
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    assert_ne!(wanted(&engine), [0; 3]);
    let running = PodInput {
        status: PodStatus::Running,
        node: Some("n0".into()),
        ..first
    };
    engine.apply(Event::Pod(Box::new(running)), NOW);
    let runs = wanted(&engine);
    engine.apply(hold(true), NOW);
    let decisions = engine.cycle(NOW);
    assert!(decisions.evict.is_empty() && decisions.unschedulable.is_empty());
    assert_eq!(wanted(&engine), runs);
}

/// A tenant may name a node that does not exist, and a pod may be seen before its node.
#[test]
fn a_pod_on_an_unknown_node_is_no_victim() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    let see = |engine: &mut Engine, group: &GroupInput, pod: PodInput| {
        engine.apply(Event::Group(Box::new(group.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod)), NOW);
    };
    let [low, elsewhere] = [("low", 0), ("elsewhere", 1)].map(|(name, age)| group(name, "q", age));
    see(&mut engine, &low, placed(pod(&low, 0, "1"), "n0"));
    engine.cycle(NOW);
    see(&mut engine, &elsewhere, placed(pod(&elsewhere, 0, "1"), "nosuch"));
    let urgent = GroupInput {
        priority: 100,
        ..group("urgent", "q", 2)
    };
    see(&mut engine, &urgent, pod(&urgent, 0, "1"));
    assert_eq!(evicted(&mut engine, NOW), ["low-000"]);
    assert!(engine.model().broken_rules().is_empty());
}

#[test]
fn a_pod_group_that_goes_while_the_size_of_gpus_changes_is_forgotten() {
    let [stays, goes] = ["stays", "goes"].map(|name| group(name, "q", 0));
    let (mut engine, ..) = small_world();
    for group in [&stays, &goes] {
        engine.apply(Event::Group(Box::new(group.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod(group, 0, "999"))), NOW);
    }
    assert_eq!(engine.cycle(NOW).unschedulable.len(), 2);
    engine.apply(Event::PodGone(pod(&goes, 0, "999").pod.uid.clone()), NOW);
    engine.apply(Event::GroupGone(goes.key), NOW);
    let mut small = node("small", "1");
    small.gpu_memory = Some(50);
    engine.apply(Event::Node(Box::new(small)), NOW);
    let unschedulable = engine.cycle(NOW).unschedulable;
    assert!(unschedulable.iter().all(|one| one.group == stays.key));
}

#[test]
fn a_change_of_an_unrelated_label_causes_no_new_search() {
    let group = group("g", "q", 0);
    let mut waiting = pod(&group, 0, "4");
    let mut engine = Engine::new(Policy::default());
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    engine.apply(Event::Group(Box::new(group)), NOW);
    engine.apply(Event::Pod(Box::new(waiting.clone())), NOW);
    engine.cycle(NOW);
    waiting.labels = [("x", "y")].into_iter().collect();
    engine.apply(Event::Pod(Box::new(waiting)), NOW);
    assert_eq!(engine.next_wakeup(NOW), None);
}

#[test]
fn a_pod_of_a_missing_sub_group_is_reported_once_and_blocks_no_other() {
    let (mut engine, group, lost) = small_world();
    let lost = PodInput {
        sub_group: Some("workers".into()),
        ..lost
    };
    engine.apply(Event::Pod(Box::new(lost.clone())), NOW);
    engine.apply(Event::Pod(Box::new(pod(&group, 1, "1"))), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.bind.len(), 1, "the other pod of the group is bound");
    let said: Vec<_> = decisions
        .unknown_sub_groups
        .iter()
        .map(|stray| (&*stray.pod.name, stray.message.as_deref()))
        .collect();
    let sentence = "Pod references subgroup \"workers\", which does not exist in PodGroup ns/a";
    assert_eq!(said, [(&*lost.pod.name, Some(sentence))]);

    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    assert!(engine.cycle(NOW).unknown_sub_groups.is_empty(), "it was told before");

    let found = PodInput {
        sub_group: None,
        ..lost
    };
    engine.apply(Event::Pod(Box::new(found.clone())), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.bind.len(), 1);
    let said: Vec<_> = decisions
        .unknown_sub_groups
        .iter()
        .map(|stray| (&*stray.pod.name, stray.message.as_deref()))
        .collect();
    assert_eq!(said, [(&*found.pod.name, None)], "what was said is over");
}

#[test]
fn a_schedule_entry_applies_from_its_first_minute() {
    let (mut engine, ..) = small_world();
    let Event::Queue(mut scheduled) = queue("q") else {
        unreachable!()
    };
    let open = [scheduled.cpu, scheduled.memory, scheduled.gpu];
    scheduled.gpu.limit = Some(0);
    let time = |text: &str| text.parse().expect("a time of day");
    // On that Sunday clocks in Berlin go from two to three: half past two is half past three, which is half past one UTC.
    let sundays = Period {
        days: [false, false, false, false, false, false, true],
        from: time("02:30"),
        to: time("05:00"),
    };
    scheduled.schedule = Some(Box::new(Schedule {
        calendar: Calendar {
            zone: jiff::tz::TimeZone::get("Europe/Berlin").expect("a time zone"),
            periods: vec![sundays],
        },
        entries: vec![open],
    }));
    let at = |text: &str| {
        let instant: jiff::Timestamp = text.parse().expect("an instant");
        Time(instant.as_millisecond())
    };
    let before = at("2025-03-30T00:59:00Z");
    engine.apply(Event::Queue(scheduled), before);
    assert!(engine.cycle(before).bind.is_empty(), "its limit is 0");
    let begins = at("2025-03-30T01:30:00Z");
    engine.cycle(before);
    assert_eq!(engine.next_wakeup(before), Some((begins, WakeReason::QuotaSchedule)));
    assert!(engine.cycle(Time(begins.0 - 1)).bind.is_empty());
    assert_eq!(engine.cycle(begins).bind.len(), 1);
    engine.cycle(begins);
    let ends = at("2025-03-30T03:00:00Z");
    assert_eq!(engine.next_wakeup(begins), Some((ends, WakeReason::QuotaSchedule)));
    assert_eq!(engine.queues().next().expect("the queue").limit[2], None);
    engine.cycle(ends);
    assert_eq!(engine.queues().next().expect("the queue").limit[2], Some(0));
    engine.apply(Event::QueueGone("q".into()), ends);
    engine.cycle(ends);
    assert_eq!(engine.next_wakeup(ends), None);
}
