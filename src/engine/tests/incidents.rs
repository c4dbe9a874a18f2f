//! What went wrong in other schedulers when the cluster changed under them, and is shown by no other test. The reports are in `docs/incidents.md`.

use std::sync::Arc;

use super::scenario::{NOW, group, node, open_queue, placed, pod};
use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::{
    Event, GroupInput, NodeRequirement, PodInput, PodSelector, PodStatus, PodTerm, Relations, SelectorOp, Time,
};
use crate::engine::model::check::Rule;
use crate::engine::policy::{ActionKind, Policy};

/// Nodes with so many GPUs each, by name, and a queue without limits.
fn world(nodes: &[(&str, &str)]) -> Engine {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Preempt, ActionKind::StaleGangEviction],
        ..Policy::default()
    });
    engine.apply(open_queue("q"), NOW);
    for (name, gpus) in nodes {
        engine.apply(Event::Node(Box::new(node(name, gpus))), NOW);
    }
    engine
}

fn see(engine: &mut Engine, group: &GroupInput, pods: &[&PodInput]) {
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
    for pod in pods {
        engine.apply(Event::Pod(Box::new((*pod).clone())), NOW);
    }
}

/// A cycle, after which the model is sound.
fn cycle(engine: &mut Engine, now: Time) -> Decisions {
    let decisions = engine.cycle(now);
    assert!(
        engine.model().broken_rules().is_empty(),
        "{:?}",
        engine.model().broken_rules()
    );
    decisions
}

/// `pod node` of each bind.
fn binds(decisions: &Decisions) -> Vec<String> {
    let bind = decisions.bind.iter();
    bind.map(|bind| format!("{} {}", bind.pod.name, bind.node)).collect()
}

#[test]
fn a_recreated_node_still_has_its_pods() {
    let mut engine = world(&[("n0", "1")]);
    let (runs, waits) = (group("a", "q", 0), group("b", "q", 1));
    see(&mut engine, &runs, &[&placed(pod(&runs, 0, "1"), "n0")]);
    engine.apply(Event::NodeGone("n0".into()), NOW);
    see(&mut engine, &waits, &[&pod(&waits, 0, "1")]);
    assert!(cycle(&mut engine, NOW).bind.is_empty(), "there is no node");
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    assert!(cycle(&mut engine, NOW).bind.is_empty(), "its GPU is taken");
    engine.apply(Event::PodGone("a-000".into()), NOW);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["b-000 n0"]);
}

#[test]
fn lost_gpus_of_a_node_are_not_allocated_and_its_other_gpus_are() {
    let mut engine = world(&[("n0", "8")]);
    let [runs, wants, plain] = ["a", "b", "c"].map(|name| group(name, "q", 0));
    see(&mut engine, &runs, &[&placed(pod(&runs, 0, "8"), "n0")]);
    cycle(&mut engine, NOW);
    // Until the pod is gone, the node has less than it gave.
    let lost = |engine: &mut Engine| {
        let decisions = engine.cycle(NOW);
        assert_eq!(
            engine.model().broken_rules().into_keys().collect::<Vec<_>>(),
            [Rule::NodeNotOverGiven]
        );
        binds(&decisions)
    };
    engine.apply(Event::Node(Box::new(node("n0", "6"))), NOW);
    see(&mut engine, &wants, &[&pod(&wants, 0, "6")]);
    see(&mut engine, &plain, &[&pod(&plain, 0, "0")]);
    assert_eq!(lost(&mut engine), ["c-000 n0"]);
    engine.apply(Event::Node(Box::new(node("n0", "0"))), NOW);
    see(&mut engine, &plain, &[&pod(&plain, 1, "0")]);
    assert_eq!(
        lost(&mut engine),
        ["c-001 n0"],
        "such as the one that brings the GPUs back"
    );
    engine.apply(Event::Node(Box::new(node("n0", "6"))), NOW);
    assert!(lost(&mut engine).is_empty());
    engine.apply(Event::PodGone("a-000".into()), NOW);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["b-000 n0"]);
}

#[test]
fn a_node_that_is_ready_again_is_used_again() {
    let mut engine = world(&[("n0", "1 notready")]);
    let group = group("a", "q", 0);
    see(&mut engine, &group, &[&pod(&group, 0, "1")]);
    assert!(cycle(&mut engine, NOW).bind.is_empty());
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["a-000 n0"]);
}

#[test]
fn a_pod_bound_to_another_node_than_decided_counts_on_its_actual_node() {
    let mut engine = world(&[("n0", "1"), ("n1", "1")]);
    let group = group("a", "q", 0);
    let first = pod(&group, 0, "1");
    see(&mut engine, &group, &[&first]);
    let decided = cycle(&mut engine, NOW).bind.remove(0).node;
    let other = if &*decided == "n0" { "n1" } else { "n0" };
    see(
        &mut engine,
        &group,
        &[&placed(first, other), &pod(&group, 1, "1"), &pod(&group, 2, "1")],
    );
    assert_eq!(binds(&cycle(&mut engine, NOW)), [format!("a-001 {decided}")]);
}

#[test]
fn a_failed_bind_leaves_nothing_on_its_node() {
    let mut engine = world(&[("n0", "1")]);
    let group = group("a", "q", 0);
    let first = pod(&group, 0, "1");
    see(&mut engine, &group, &[&first]);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["a-000 n0"]);
    engine.apply(
        Event::Unbound {
            pod: "a-000".into(),
            retry_at: None,
        },
        NOW,
    );
    let mut cordoned = node("n0", "1");
    cordoned.unschedulable = true;
    engine.apply(Event::Node(Box::new(cordoned)), NOW);
    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["a-000 n1"]);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    see(&mut engine, &group, &[&placed(first, "n1"), &pod(&group, 1, "1")]);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["a-001 n0"]);
}

#[test]
fn a_pod_whose_binding_is_always_refused_does_not_block_others() {
    let mut engine = world(&[("n0", "1")]);
    let (doomed, other) = (group("a", "q", 0), group("b", "q", 1));
    see(&mut engine, &doomed, &[&pod(&doomed, 0, "1")]);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["a-000 n0"]);
    let later = Time(NOW.0 + 5_000);
    engine.apply(
        Event::Unbound {
            pod: "a-000".into(),
            retry_at: Some(later),
        },
        NOW,
    );
    let next = pod(&other, 0, "1");
    see(&mut engine, &other, &[&next]);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["b-000 n0"]);
    see(&mut engine, &other, &[&placed(next, "n0")]);
    let decisions = cycle(&mut engine, later);
    assert!(decisions.bind.is_empty() && decisions.evict.is_empty());
}

#[test]
fn a_pod_that_is_bound_and_does_not_start_is_a_victim_like_others() {
    let mut engine = world(&[("n0", "1")]);
    let (bound, urgent) = (group("a", "q", 0), group("b", "q", 1));
    let urgent = GroupInput { priority: 75, ..urgent };
    let pulling = PodInput {
        status: PodStatus::Bound,
        ..placed(pod(&bound, 0, "1"), "n0")
    };
    see(&mut engine, &bound, &[&pulling]);
    see(&mut engine, &urgent, &[&pod(&urgent, 0, "1")]);
    let decisions = cycle(&mut engine, NOW);
    let evicted: Vec<_> = decisions.evict.iter().map(|eviction| &*eviction.pod.name).collect();
    assert_eq!(evicted, ["a-000"]);
    assert_eq!(&*decisions.pipeline[0].pod.name, "b-000");
}

/// A term about pods whose label `app` has that value, by the node they are on.
fn term(app: &str) -> PodTerm {
    let listed = NodeRequirement {
        key: "app".into(),
        op: SelectorOp::In,
        values: vec![app.into()],
    };
    let pods = PodSelector {
        labels: Some(vec![listed]),
        namespaces: Some(["ns".into()].into()),
    };
    PodTerm {
        pods,
        key: "kubernetes.io/hostname".into(),
    }
}

fn relating(pod: PodInput, relations: Relations) -> PodInput {
    PodInput {
        relations: Some(Arc::new(relations)),
        ..pod
    }
}

#[test]
fn pods_of_a_deleted_node_do_not_block_others() {
    let mut engine = world(&[("n0", "1")]);
    let group = group("a", "q", 0);
    let alone = |number| {
        let relations = Relations {
            apart: vec![term("a")],
            ..Relations::default()
        };
        relating(pod(&group, number, "1"), relations)
    };
    see(&mut engine, &group, &[&placed(alone(0), "n0")]);
    cycle(&mut engine, NOW);
    engine.apply(Event::NodeGone("n0".into()), NOW);
    engine.apply(Event::Node(Box::new(node("n1", "2"))), NOW);
    see(&mut engine, &group, &[&alone(1), &alone(2)]);
    assert_eq!(
        binds(&cycle(&mut engine, NOW)),
        ["a-001 n1"],
        "the third must be apart from the second"
    );
}

#[test]
fn a_selector_with_a_value_that_no_label_can_have_concerns_its_own_pod_only() {
    let mut engine = world(&[("n0", "2")]);
    let (odd, plain) = (group("a", "q", 0), group("b", "q", 1));
    let relations = Relations {
        near: vec![term("-api-gateway")],
        apart: vec![term("")],
        ..Relations::default()
    };
    see(&mut engine, &odd, &[&relating(pod(&odd, 0, "1"), relations)]);
    see(&mut engine, &plain, &[&pod(&plain, 0, "1")]);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["b-000 n0"]);
}

#[test]
fn a_queue_deleted_while_its_pods_run_does_not_affect_others() {
    let mut engine = world(&[("n0", "4")]);
    engine.apply(open_queue("other"), NOW);
    let (mine, others) = (group("a", "q", 0), group("b", "other", 1));
    see(
        &mut engine,
        &mine,
        &[&placed(pod(&mine, 0, "1"), "n0"), &pod(&mine, 1, "1")],
    );
    engine.apply(Event::QueueGone("q".into()), NOW);
    see(&mut engine, &others, &[&pod(&others, 0, "1")]);
    let decisions = cycle(&mut engine, NOW);
    assert_eq!(binds(&decisions), ["b-000 n0"]);
    assert!(decisions.evict.is_empty());
    let said: Vec<_> = decisions.unschedulable.iter().map(|report| &*report.message).collect();
    assert_eq!(said, ["QueueDoesNotExist: Queue 'q' does not exist."]);
    engine.apply(open_queue("q"), NOW);
    assert_eq!(binds(&cycle(&mut engine, NOW)), ["a-001 n0"]);
}
