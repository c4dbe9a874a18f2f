//! Bound pods whose pod group or sub-group is not there: what they hold is charged to their queue all the same, and may be taken back.

use super::scenario::{NOW, group, node, open_queue, placed, pod, queue};
use crate::engine::Engine;
use crate::engine::input::{Event, GroupInput, Name, PodInput, Time};
use crate::engine::policy::{ActionKind, Policy};

fn world(gpus: &str, limits: &str) -> Engine {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(open_queue("root"), NOW);
    engine.apply(Event::Queue(Box::new(queue("q", limits, Time(0)))), NOW);
    engine.apply(Event::Node(Box::new(node("n0", gpus))), NOW);
    engine
}

fn known(engine: &mut Engine, group: &GroupInput) {
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
}

fn see(engine: &mut Engine, pod: &PodInput) {
    engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
}

/// A pod that runs and is always to count.
fn running(group: &GroupInput, number: usize) -> PodInput {
    PodInput {
        home: Some("q".into()),
        ..placed(pod(group, number, "1"), "n0")
    }
}

/// How many pods are bound in a cycle.
fn bound(engine: &mut Engine) -> usize {
    let bound = engine.cycle(NOW).bind.len();
    assert!(
        engine.model().broken_rules().is_empty(),
        "{:?}",
        engine.model().broken_rules()
    );
    bound
}

#[test]
fn a_pod_of_a_group_that_is_not_there_counts_against_the_limit_of_its_queue() {
    let mut engine = world("4", "-1 L1");
    let (honest, nosuch) = (group("a", "q", 0), group("nosuch", "elsewhere", 0));
    known(&mut engine, &honest);
    let stray = running(&nosuch, 0);
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
    engine.apply(Event::PodGone(stray.pod.uid.clone()), NOW);
    assert_eq!(bound(&mut engine), 1);
}

#[test]
fn a_pod_of_a_sub_group_that_is_not_there_counts_against_the_limit_of_its_queue() {
    let mut engine = world("4", "-1 L1");
    let honest = group("a", "q", 0);
    known(&mut engine, &honest);
    let stray = PodInput {
        sub_group: Some(Name::from("bogus")),
        ..running(&honest, 0)
    };
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 1, "1"));
    assert_eq!(bound(&mut engine), 0, "the queue's only GPU is taken");
}

#[test]
fn what_a_group_holds_stays_charged_when_it_goes_and_nothing_more_of_it_is_tried_until_it_is_back() {
    let mut engine = world("4", "-1 L2");
    let (first, second) = (group("a", "q", 0), group("b", "q", 1));
    known(&mut engine, &first);
    known(&mut engine, &second);
    see(&mut engine, &running(&first, 0));
    engine.apply(Event::GroupGone(first.key.clone()), NOW);
    see(&mut engine, &pod(&first, 1, "1"));
    assert_eq!(bound(&mut engine), 0, "its group is not there");
    see(&mut engine, &pod(&second, 0, "1"));
    see(&mut engine, &pod(&second, 1, "1"));
    assert_eq!(bound(&mut engine), 1, "one of two GPUs is taken");
    known(&mut engine, &first);
    assert_eq!(bound(&mut engine), 0, "now both are");
    engine.apply(Event::PodGone("a-000".into()), NOW);
    assert_eq!(bound(&mut engine), 1);
}

#[test]
fn a_pod_of_a_group_that_is_not_there_is_a_victim_like_others() {
    let mut engine = world("1", "-1 L-1");
    let (urgent, nosuch) = (group("a", "q", 0), group("nosuch", "elsewhere", 0));
    let urgent = GroupInput { priority: 75, ..urgent };
    known(&mut engine, &urgent);
    let stray = running(&nosuch, 0);
    see(&mut engine, &stray);
    see(&mut engine, &pod(&urgent, 0, "1"));
    let evicted: Vec<_> = engine.cycle(NOW).evict.into_iter().map(|evict| evict.pod).collect();
    assert_eq!(evicted, [stray.pod]);
}

#[test]
fn without_a_queue_of_its_own_such_a_pod_counts_nowhere() {
    let mut engine = world("4", "-1 L1");
    let honest = group("a", "q", 0);
    known(&mut engine, &honest);
    let stray = PodInput {
        home: None,
        ..running(&group("nosuch", "q", 0), 0)
    };
    see(&mut engine, &stray);
    see(&mut engine, &pod(&honest, 0, "1"));
    assert_eq!(bound(&mut engine), 1, "as in KAI");
}
