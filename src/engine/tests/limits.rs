//! Limits of queues while evictions are not known to be accepted, and without the plugin `proportion`.

use super::scenario::{NOW, group, node, open_queue, placed, pod, queue};
use crate::engine::Engine;
use crate::engine::decision::Bind;
use crate::engine::input::{Event, GroupInput, PodInput, PodStatus, Time};
use crate::engine::policy::{ActionKind, Policy, Proportion};

/// A queue with two pods on two nodes of one GPU each.
fn world(limits: &str) -> (Engine, Vec<PodInput>) {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(open_queue("root"), NOW);
    engine.apply(Event::Queue(Box::new(queue("q", limits, Time(0)))), NOW);
    let mut running = Vec::new();
    for (age, name) in ["a", "b"].into_iter().enumerate() {
        let on = format!("n{age}");
        engine.apply(Event::Node(Box::new(node(&on, "1"))), NOW);
        let group = group(name, "q", age);
        running.push(placed(pod(&group, 0, "1"), &on));
        engine.apply(Event::Group(Box::new(group)), NOW);
    }
    for pod in &running {
        engine.apply(Event::Pod(Box::new(pod.clone())), NOW);
    }
    (engine, running)
}

fn waits(engine: &mut Engine, name: &str, priority: i64) {
    let group = GroupInput {
        priority,
        ..group(name, "q", 9)
    };
    let pod = pod(&group, 0, "1");
    engine.apply(Event::Group(Box::new(group)), NOW);
    engine.apply(Event::Pod(Box::new(pod)), NOW);
}

/// The binds of a cycle, each with the pods whose eviction it awaits.
fn bound(engine: &mut Engine) -> Vec<String> {
    let text = |bind: Bind| {
        let awaited = bind.after_evictions.iter().flat_map(|uids| uids.iter());
        let awaited: Vec<&str> = awaited.map(|uid| &**uid).collect();
        format!("{} after {awaited:?}", bind.pod.name)
    };
    engine.cycle(NOW).bind.into_iter().map(text).collect()
}

/// A pod is evicted for another, which waits for its node. Then a node comes, and a pod that comes before both.
fn evicted_and_then_another(limits: &str) -> (Engine, Vec<PodInput>) {
    let (mut engine, running) = world(limits);
    waits(&mut engine, "p", 75);
    let decisions = engine.cycle(NOW);
    assert_eq!((decisions.bind.len(), decisions.evict.len()), (0, 1));
    assert_eq!(decisions.evict[0].pod, running[1].pod);
    engine.apply(Event::Node(Box::new(node("n2", "1"))), NOW);
    waits(&mut engine, "urgent", 80);
    (engine, running)
}

#[test]
fn a_bind_awaits_the_evictions_without_which_its_queue_exceeds_its_limit() {
    let (mut engine, _) = evicted_and_then_another("-1 L2");
    // The other pod is evicted for the one that waited first.
    assert_eq!(bound(&mut engine), ["urgent-000 after [\"a-000\", \"b-000\"]"]);
}

#[test]
fn a_bind_awaits_nothing_where_the_limit_has_room() {
    let (mut engine, _) = evicted_and_then_another("-1 L3");
    assert_eq!(bound(&mut engine), ["urgent-000 after []"]);
}

#[test]
fn a_bind_awaits_nothing_where_limits_do_not_count() {
    let (mut engine, _) = evicted_and_then_another("-1 L2");
    let mut policy = Policy {
        actions: vec![ActionKind::Allocate],
        ..Policy::default()
    };
    policy.plugins.proportion = None;
    engine.set_policy(policy);
    assert_eq!(bound(&mut engine), ["urgent-000 after []"]);
}

#[test]
fn a_bind_awaits_no_pod_that_is_seen_to_terminate() {
    let (mut engine, running) = evicted_and_then_another("-1 L2");
    let terminating = PodInput {
        status: PodStatus::Releasing,
        releasing_since: Some(NOW),
        ..running[1].clone()
    };
    engine.apply(Event::Pod(Box::new(terminating)), NOW);
    assert_eq!(bound(&mut engine), ["urgent-000 after []"]);
}

#[test]
fn once_an_eviction_is_refused_its_queue_is_full_again() {
    let (mut engine, running) = evicted_and_then_another("-1 L2");
    let (pod, retry_at) = (running[1].pod.uid.clone(), Some(Time(NOW.0 + 5_000)));
    engine.apply(Event::Unevicted { pod, retry_at }, NOW);
    assert!(bound(&mut engine).is_empty());
}

/// The binds beside a non-preemptible gang of two pods of 4 GPUs, of which one is left and about to be evicted, for a pod that asks for 8 GPUs.
fn bound_beside_a_broken_gang(quota: &str, preemptible: bool) -> Vec<String> {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::StaleGangEviction],
        ..Policy::default()
    });
    engine.apply(open_queue("root"), NOW);
    engine.apply(Event::Queue(Box::new(queue("q", quota, Time(0)))), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "4"))), NOW);
    engine.apply(Event::Node(Box::new(node("n1", "8"))), NOW);
    let gang = GroupInput {
        preemptible: false,
        min_member: Some(2),
        stale_since: Some(Time(NOW.0 - 61_000)),
        ..group("gang", "q", 0)
    };
    let left = placed(pod(&gang, 0, "4"), "n0");
    engine.apply(Event::Group(Box::new(gang)), NOW);
    engine.apply(Event::Pod(Box::new(left.clone())), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.evict.len(), 1);
    assert_eq!(decisions.evict[0].pod, left.pod);
    let next = GroupInput {
        preemptible,
        ..group("next", "q", 1)
    };
    let pod = pod(&next, 0, "8");
    engine.apply(Event::Group(Box::new(next)), NOW);
    engine.apply(Event::Pod(Box::new(pod)), NOW);
    bound(&mut engine)
}

#[test]
fn a_non_preemptible_bind_awaits_the_evictions_without_which_its_queue_exceeds_its_quota() {
    assert_eq!(
        bound_beside_a_broken_gang("8", false),
        ["next-000 after [\"gang-000\"]"]
    );
    assert_eq!(bound_beside_a_broken_gang("12", false), ["next-000 after []"]);
    assert_eq!(bound_beside_a_broken_gang("8", true), ["next-000 after []"]);
}

#[test]
fn without_the_plugin_proportion_there_is_no_limit_on_requests_by_gpu_memory() {
    let binds = |proportion: Option<Proportion>| {
        let mut policy = Policy::default();
        policy.plugins.proportion = proportion;
        let mut engine = Engine::new(policy);
        engine.apply(open_queue("root"), NOW);
        engine.apply(Event::Queue(Box::new(queue("q", "-1 L0", Time(0)))), NOW);
        engine.apply(Event::Node(Box::new(node("n0", "1 of 1000"))), NOW);
        let group = group("a", "q", 0);
        engine.apply(Event::Pod(Box::new(pod(&group, 0, "400M"))), NOW);
        engine.apply(Event::Group(Box::new(group)), NOW);
        engine.cycle(NOW).bind.len()
    };
    assert_eq!(binds(Some(Proportion::default())), 0);
    assert_eq!(binds(None), 1);
}
