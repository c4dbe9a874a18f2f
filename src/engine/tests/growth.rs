//! How work grows: counted steps of searches, on clusters of 8-GPU nodes full of single-GPU pod groups of one queue.

use super::scenario::{NOW, group, node, placed, pod, queue};
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, GroupInput, PodStatus, Time};
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::stage::{SearchEnd, Stage};
use crate::engine::{Engine, WakeReason};

/// A full cluster, in which `pod_groups` pod groups of `pods` pods of `gpus` GPUs wait in another queue.
fn full(nodes: usize, quotas: [usize; 2], pod_groups: usize, pods: usize, gpus: &str) -> Vec<Event> {
    let mut events: Vec<Event> = (0..nodes)
        .map(|at| Event::Node(Box::new(node(&format!("n{at:04}"), "8"))))
        .collect();
    events.push(Event::Queue(Box::new(queue("root", "-1 L-1", Time(0)))));
    for (at, quota) in quotas.into_iter().enumerate() {
        events.push(Event::Queue(Box::new(queue(
            &format!("q{at}"),
            &quota.to_string(),
            Time(at as i64),
        ))));
    }
    for at in 0..8 * nodes {
        let runs = group(&format!("r{at:05}"), "q0", at);
        let mut one = pod(&runs, 0, "1");
        one.status = PodStatus::Running;
        one.node = Some(format!("n{:04}", at % nodes).into());
        events.extend([Event::Group(Box::new(runs)), Event::Pod(Box::new(one))]);
    }
    for at in 0..pod_groups {
        let mut waits: GroupInput = group(&format!("w{at:05}"), "q1", 8 * nodes + at);
        waits.min_member = Some(pods as i64);
        let all: Vec<_> = (0..pods)
            .map(|number| Event::Pod(Box::new(pod(&waits, number, gpus))))
            .collect();
        events.push(Event::Group(Box::new(waits)));
        events.extend(all);
    }
    events
}

/// Allocate and reclaim without the complete search, with a limit on the steps of searches in vain.
fn reclaiming(max_steps_without_result: u64) -> Policy {
    let mut policy = Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Reclaim],
        max_steps_without_result,
        ..Policy::default()
    };
    policy.plugins.complete_search_steps = 0;
    policy
}

/// An engine that was told these events.
fn told(policy: Policy, events: &[Event]) -> Engine {
    let mut engine = Engine::new(policy);
    for event in events {
        engine.apply(event.clone(), NOW);
    }
    engine
}

/// How pod groups were taken up, cycle by cycle, until no cycle is left.
fn ends(engine: &mut Engine) -> Vec<Vec<SearchEnd>> {
    let mut cycles = Vec::new();
    while engine.next_wakeup(NOW).is_some_and(|(at, _)| at <= NOW) {
        let mut ends = Vec::new();
        engine.cycle_seen_by(NOW, &mut |stage| {
            if let Stage::TakenUp { end, .. } = stage {
                ends.push(end);
            }
        });
        cycles.push(ends);
    }
    cycles
}

/// A pod group of `q1` whose pods want so many GPUs each, on a node if one is named.
fn waiting(name: &str, age: usize, pods: usize, gpus: &str, on: Option<&str>) -> Vec<Event> {
    let mut waits = group(name, "q1", age);
    waits.min_member = Some(pods as i64);
    let mut events = Vec::new();
    for number in 0..pods {
        let mut one = pod(&waits, number, gpus);
        let label = |on: &str| ("kubernetes.io/hostname".into(), on.into());
        one.needs_mut().node_selector = on.map(label).into_iter().collect();
        events.push(Event::Pod(Box::new(one)));
    }
    events.push(Event::Group(Box::new(waits)));
    events
}

fn decide(events: Vec<Event>) -> Decisions {
    let mut engine = Engine::new(Policy::default());
    for event in events {
        engine.apply(event, NOW);
    }
    engine.cycle(NOW)
}

/// One GPU less than the pod group needs may be taken from the other queue, and that is known before anything is tried.
#[test]
fn a_gang_that_cannot_be_placed_costs_no_simulation() {
    for nodes in [12, 100] {
        let decisions = decide(full(nodes, [8 * nodes - 79, 80], 1, 10, "8"));
        assert_eq!(decisions.work.candidates_simulated, 0);
        assert!(decisions.evict.is_empty() && decisions.pipeline.is_empty());
    }
}

#[test]
fn a_similar_gang_that_can_be_placed_takes_few_simulations() {
    let mut steps = Vec::new();
    for nodes in [12, 100] {
        let decisions = decide(full(nodes, [8 * nodes - 80, 80], 1, 10, "8"));
        assert_eq!((decisions.evict.len(), decisions.pipeline.len()), (80, 10));
        steps.push(decisions.work.candidates_simulated);
    }
    assert_eq!(steps[0], steps[1], "the cluster's size does not matter");
    assert!(steps[0] <= 12, "{steps:?}");
}

#[test]
fn many_searches_take_one_simulation_each() {
    for nodes in [4, 20] {
        let decisions = decide(full(nodes, [0, 8 * nodes], 8 * nodes, 1, "1"));
        assert_eq!(
            (decisions.evict.len(), decisions.pipeline.len()),
            (8 * nodes, 8 * nodes)
        );
        assert_eq!(decisions.work.candidates_simulated, 8 * nodes as u64);
    }
}

/// Two pods of a whole node each that must be on the same node, and one that may be anywhere.
#[test]
fn a_search_in_vain_delays_the_others_by_one_cycle_at_most() {
    let mut events = full(2, [0, 16], 0, 0, "");
    let mut first = group("first", "q1", 20);
    first.min_member = Some(2);
    let second = group("second", "q1", 21);
    for number in 0..2 {
        let mut one = pod(&first, number, "8");
        one.needs_mut().node_selector = vec![("kubernetes.io/hostname".into(), "n0000".into())];
        events.push(Event::Pod(Box::new(one)));
    }
    events.push(Event::Pod(Box::new(pod(&second, 0, "8"))));
    events.extend([first, second].map(|group| Event::Group(Box::new(group))));
    let cycles = |max_steps_without_result: u64| -> (Vec<usize>, Vec<SearchEnd>) {
        let mut policy = Policy::default();
        (policy.max_steps_without_result, policy.plugins.complete_search_steps) = (max_steps_without_result, 0);
        policy.actions = vec![ActionKind::Allocate, ActionKind::Reclaim];
        let mut engine = Engine::new(policy);
        for event in &events {
            engine.apply(event.clone(), NOW);
        }
        let (mut evictions, mut ends) = (Vec::new(), Vec::new());
        while engine.next_wakeup(NOW).is_some_and(|(at, _)| at <= NOW) {
            let decisions = engine.cycle_seen_by(NOW, &mut |stage| {
                if let Stage::TakenUp { end, .. } = stage {
                    ends.push(end);
                }
            });
            evictions.push(decisions.evict.len());
        }
        (evictions, ends)
    };
    // The cycle after evictions tries once more.
    let (evictions, ends) = cycles(u64::MAX);
    assert_eq!(evictions, [8, 0]);
    assert!(!ends.contains(&SearchEnd::NotAttempted), "{ends:?}");
    let (evictions, ends) = cycles(0);
    assert_eq!(evictions, [0, 8, 0]);
    let solved = |end: &SearchEnd| *end == SearchEnd::Solved;
    let first = ends.iter().position(solved).expect("one has victims");
    assert_eq!(ends[..first], [SearchEnd::Exhausted, SearchEnd::NotAttempted]);
}

/// Gangs of two pods of a whole node each that must be on the same node, of two kinds, and one pod that may be anywhere.
#[test]
fn gangs_that_are_alike_cost_one_search_in_all_cycles_of_a_round() {
    use SearchEnd::{Exhausted, NotAttempted, Skipped, Solved};
    let mut events = full(2, [0, 16], 0, 0, "");
    for (at, on) in ["n0000", "n0001", "n0000", "n0001"].into_iter().enumerate() {
        events.extend(waiting(&format!("gang-{at}"), 20 + at, 2, "8", Some(on)));
    }
    events.extend(waiting("last", 30, 1, "8", None));
    let cycles = ends(&mut told(reclaiming(0), &events));
    let wanted = [
        vec![Exhausted, NotAttempted],
        vec![Exhausted, Skipped, Skipped, NotAttempted],
        vec![Skipped, Skipped, Solved],
    ];
    assert_eq!(cycles[..3], wanted);
}

/// Pods for a node from which none can be evicted, each with a smaller request than the one before, while many victims are elsewhere.
fn for_a_full_node(pods: usize) -> Vec<Event> {
    let mut events = full(10, [0, 80], 0, 0, "");
    events.push(Event::Node(Box::new(node("full", "8"))));
    events.push(Event::Queue(Box::new(queue("q2", "8", Time(2)))));
    let mut fixed = group("fixed", "q2", 0);
    (fixed.priority, fixed.preemptible) = (100, false);
    let holds = placed(pod(&fixed, 0, "8"), "full");
    events.extend([Event::Group(Box::new(fixed)), Event::Pod(Box::new(holds))]);
    for at in 0..pods {
        let mut waits = waiting(&format!("w{at:03}"), 100 + at, 1, "1", Some("full"));
        if let Event::Pod(pod) = &mut waits[0] {
            pod.needs_mut().request.cpu = 1_000 - at as i64;
        }
        events.extend(waits);
    }
    events
}

#[test]
fn searches_that_only_gather_victims_count_too() {
    let mut engine = told(reclaiming(1_000), &for_a_full_node(20));
    let cycles = ends(&mut engine);
    let searches = |ends: &Vec<SearchEnd>| ends.iter().filter(|end| **end == SearchEnd::Exhausted).count();
    assert!(cycles.iter().map(searches).all(|searches| searches <= 3), "{cycles:?}");
    let last = cycles.last().expect("there was a cycle");
    assert!(!last.contains(&SearchEnd::NotAttempted), "{cycles:?}");
}

#[test]
fn tables_for_kinds_of_pods_are_dropped_when_there_are_many() {
    let mut engine = told(reclaiming(u64::MAX), &for_a_full_node(100));
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.work.pods_simulated, 0);
    let tables = engine.kept.capacity.tables();
    assert!(tables < 70, "{tables} tables");
}

/// The others come before the pod, and are too large for any node.
#[test]
fn a_search_counts_the_pod_groups_that_it_puts_in_order() {
    let end = |others: usize| {
        let mut events = full(2, [0, 16], 0, 0, "");
        for at in 0..others {
            let mut waits = waiting(&format!("large-{at:03}"), 20 + at, 1, "9", None);
            if let Event::Pod(pod) = &mut waits[0] {
                pod.needs_mut().request.cpu = 1 + at as i64;
            }
            events.extend(waits);
        }
        events.extend(waiting("last", 1_000, 1, "1", None));
        let policy = Policy {
            max_steps_per_search: 500,
            ..reclaiming(u64::MAX)
        };
        let first = ends(&mut told(policy, &events)).remove(0);
        first.last().copied()
    };
    assert_eq!(end(0), Some(SearchEnd::Solved));
    assert_eq!(end(200), Some(SearchEnd::OutOfSteps));
}

/// As many pods of other queues as fit, and others that wait for their places in vain.
#[test]
fn after_searches_in_vain_there_is_none_for_a_while_and_pods_that_fit_do_not_wait() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Reclaim],
        ..Policy::default()
    });
    for event in full(100, [720, 80], 0, 10, "8") {
        engine.apply(event, NOW);
    }
    let mut in_vain = group("in-vain", "q1", 40);
    in_vain.min_member = Some(2);
    for number in 0..2 {
        let mut one = pod(&in_vain, number, "8");
        one.needs_mut().node_selector = vec![("kubernetes.io/hostname".into(), "n0000".into())];
        engine.apply(Event::Pod(Box::new(one)), NOW);
    }
    engine.apply(Event::Group(Box::new(in_vain)), NOW);
    let searched = engine.cycle(NOW).work;
    assert!(searched.pods_simulated > 0, "{searched:?}");
    let later = Time(NOW.0 + 200);
    engine.pause_searches(later);
    let small = group("small", "q1", 41);
    engine.apply(Event::Pod(Box::new(pod(&small, 0, "0"))), NOW);
    engine.apply(Event::Group(Box::new(small)), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!((decisions.bind.len(), decisions.work.pods_simulated), (1, 0));
    assert_eq!(
        engine.next_wakeup(NOW),
        Some((later, WakeReason::Changed)),
        "searches are left"
    );
    // Set again, it moves that cycle.
    let later = Time(NOW.0 + 500);
    engine.pause_searches(later);
    assert_eq!(engine.next_wakeup(NOW), Some((later, WakeReason::Changed)));
    let searched = engine.cycle(later).work;
    assert!(searched.pods_simulated > 0, "{searched:?}");
}

#[test]
fn a_search_that_takes_too_long_is_cut_off() {
    let evictions = |max_steps_per_search: u64| {
        let mut policy = Policy::default();
        (policy.max_steps_per_search, policy.plugins.complete_search_steps) = (max_steps_per_search, 0);
        let mut engine = Engine::new(policy);
        for event in full(12, [8 * 12 - 80, 80], 1, 10, "8") {
            engine.apply(event, NOW);
        }
        engine.cycle(NOW).evict.len()
    };
    assert_eq!(evictions(u64::MAX), 80);
    assert_eq!(evictions(1_000), 0);
}
