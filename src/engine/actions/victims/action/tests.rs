use super::*;
use crate::engine::Engine;
use crate::engine::input::Event;
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::tests::scenario::{NOW, group, node, open_queue, placed, pod, search_ends};

/// How an action ends for a pod group that waits for so many GPUs. A pod of lower priority has both GPUs of the only node; their queue's quota is 0.
fn end(action: ActionKind, gpus: &str, preemptible: bool) -> Vec<SearchEnd> {
    let mut engine = Engine::new(Policy {
        actions: vec![action],
        ..Policy::default()
    });
    let Event::Queue(mut queue) = open_queue("q") else {
        panic!("it is a queue")
    };
    queue.gpu.quota = Some(0);
    engine.apply(Event::Queue(queue), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "2"))), NOW);
    let runs = group("runs", "q", 0);
    engine.apply(Event::Group(Box::new(runs.clone())), NOW);
    engine.apply(Event::Pod(Box::new(placed(pod(&runs, 0, "2"), "n0"))), NOW);
    let mut waits = group("waits", "q", 1);
    (waits.priority, waits.preemptible) = (runs.priority + 1, preemptible);
    engine.apply(Event::Group(Box::new(waits.clone())), NOW);
    engine.apply(Event::Pod(Box::new(pod(&waits, 0, gpus))), NOW);
    search_ends(&mut engine).0
}

#[test]
fn a_pod_group_is_searched_for_or_ruled_out_or_skipped() {
    for (action, gpus, preemptible, wanted) in [
        (ActionKind::Preempt, "1", true, SearchEnd::Solved),
        // It would exceed the quota.
        (ActionKind::Preempt, "1", false, SearchEnd::RuledOut),
        // No GPU is free, so no moves help.
        (ActionKind::Consolidation, "1", true, SearchEnd::RuledOut),
        // No node has three.
        (ActionKind::Preempt, "3", true, SearchEnd::Skipped),
        (ActionKind::Consolidation, "3", true, SearchEnd::Skipped),
    ] {
        let ends = end(action, gpus, preemptible);
        assert_eq!(ends, [wanted], "{action:?} for {gpus} GPUs, preemptible: {preemptible}");
    }
}
