//! How work grows: counted steps of searches, on clusters of 8-GPU nodes full of single-GPU pod groups of one queue.

use super::scenario::{NOW, group, node, pod, queue};
use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::{Event, GroupInput, PodStatus, Time};
use crate::engine::policy::Policy;

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
