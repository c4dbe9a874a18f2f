use super::*;
use crate::engine::Engine;
use crate::engine::input::{Event, GPU, PodStatus};
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::stage::SearchEnd;
use crate::engine::tests::scenario::{NOW, group, node, open_queue, placed, pod, search_ends, sub_group};

/// A pod group's pods, divided by `|`: `GPUS CPU MEMORY`; `done` for one that has finished. `needs 2:` before them: so many at least. `a>` before one: it is in
/// sub-group a, which needs one.
fn pod_group(engine: &mut Engine, name: &str, text: &str) {
    let (least, pods) = match text.split_once(": ") {
        Some((least, pods)) => (least.strip_prefix("needs ").unwrap().parse().ok(), pods),
        None => (None, text),
    };
    let mut pod_group = group(name, "q", 0);
    pod_group.min_member = least;
    let sub_groups = pods.split('|').filter_map(|text| text.split_once('>'));
    pod_group.sub_groups = sub_groups.map(|(sub, _)| sub_group(&format!("{sub}:1"))).collect();
    engine.apply(Event::Group(Box::new(pod_group.clone())), NOW);
    for (number, text) in pods.split('|').enumerate() {
        let (sub, text) = text
            .split_once('>')
            .map_or((None, text), |(sub, text)| (Some(sub), text));
        let mut added = pod(
            &pod_group,
            number,
            text.split(' ').next().filter(|gpus| *gpus != "done").unwrap_or("0"),
        );
        added.sub_group = sub.map(Into::into);
        if text == "done" {
            added.status = PodStatus::Succeeded;
        } else {
            let amounts: Vec<i64> = text.split(' ').skip(1).map(|amount| amount.parse().unwrap()).collect();
            let request = &mut added.needs_mut().request;
            (request.cpu, request.memory) = (amounts[0], amounts[1]);
        }
        engine.apply(Event::Pod(Box::new(added)), NOW);
    }
}

/// Whether a pod group is passed over once another has failed.
fn skipped(failed: &str, other: &str) -> bool {
    let mut engine = Engine::new(Policy {
        actions: Vec::new(),
        ..Policy::default()
    });
    engine.apply(Event::Node(Box::new(node("n0", "8"))), NOW);
    for queue in ["q", "r"] {
        engine.apply(open_queue(queue), NOW);
    }
    pod_group(&mut engine, "failed", failed);
    pod_group(&mut engine, "other", other);
    engine.cycle(NOW);
    let pod_group = |name: &str| {
        let found = engine
            .model
            .pod_groups()
            .iter()
            .find(|(_, pod_group)| pod_group.key.name() == name);
        found.unwrap().0
    };
    let asked = |table: Option<QueueId>, name: &str| {
        let pods = engine.model.next_chunk(pod_group(name), NOW);
        Asked::of(&engine.model, table, pod_group(name), &pods).expect("it has no pods elsewhere")
    };
    let mut failed_before = FailedPodGroups::default();
    failed_before.failed(asked(None, "failed"));
    let other_queue = engine.model.queues().iter().find(|(_, queue)| &*queue.name == "r");
    let table = other_queue.map(|(id, _)| id);
    assert!(!failed_before.must_fail(&asked(table, "other")), "another table");
    failed_before.must_fail(&asked(None, "other"))
}

#[test]
fn only_requests_at_least_as_large_as_a_failed_one_are_skipped() {
    let cases = [
        ("the same", "0 100 0", "0 100 0", true),
        ("more", "0 100 0", "0 200 0", true),
        ("less", "0 100 0", "0 50 0", false),
        ("more memory, less cpu", "0 100 100", "0 50 200", false),
        ("more cpu, less memory", "0 100 100", "0 200 50", false),
        ("fewer GPUs", "2 1 1", "1 1 1", false),
        ("more GPUs", "1 1 1", "2 1 1", true),
        ("less GPU memory", "40M 1 1", "10M 1 1", false),
        ("more GPU memory", "10M 1 1", "40M 1 1", true),
        ("halves of two GPUs, and one GPU", "0.5*2 1 1", "1 1 1", false),
        ("of one GPU what two had together", "10M*2 1 1", "20M 1 1", false),
        ("a resource more, which may have other donors", "0 4 1", "1 4 1", false),
        (
            "three halves of one large",
            "0 1000 0|0 100 0|0 100 0",
            "0 500 0|0 500 0|0 500 0",
            false,
        ),
        ("each as much", "0 100 0|0 100 0", "0 100 0|0 200 0", true),
        ("one of two has finished", "0 100 0|0 100 0", "0 100 0|done", true),
        ("the next one is smaller", "4 1 1|1 1 1", "1 1 1|4 1 1", false),
        (
            "needs fewer of as many",
            "needs 4: 0 1 1|0 1 1|0 1 1|0 1 1",
            "needs 1: 0 1 1|0 1 1|0 1 1|0 1 1",
            false,
        ),
        ("needs as many", "needs 2: 0 1 1|0 1 1", "needs 2: 0 1 1|0 1 1", true),
        (
            "the larger pod in the other sub-group",
            "a>2 1 1|b>1 1 1",
            "a>1 1 1|b>2 1 1",
            false,
        ),
        ("sub-groups of other names", "a>2 1 1|b>1 1 1", "c>2 1 1|d>1 1 1", true),
    ];
    let wrong: Vec<_> = cases
        .into_iter()
        .filter(|(_, failed, other, wanted)| skipped(failed, other) != *wanted)
        .map(|(what, ..)| what)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_search_for_moves_that_failed_is_not_repeated_for_the_same_pods_of_another_queue() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Consolidation],
        ..Policy::default()
    });
    for name in ["n0", "n1"] {
        engine.apply(Event::Node(Box::new(node(name, "4"))), NOW);
        let running = group(name, "q0", 0);
        engine.apply(Event::Group(Box::new(running.clone())), NOW);
        engine.apply(Event::Pod(Box::new(placed(pod(&running, 0, "3"), name))), NOW);
    }
    for queue in ["q0", "q1"] {
        engine.apply(open_queue(queue), NOW);
        let waiting = group(&format!("of-{queue}"), queue, 1);
        engine.apply(Event::Group(Box::new(waiting.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod(&waiting, 0, "2"))), NOW);
    }
    let (ends, _) = search_ends(&mut engine);
    assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Skipped]);
}

#[test]
fn pods_beyond_the_limit_of_their_queue_stop_no_moves_for_those_of_another_queue() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Consolidation],
        ..Policy::default()
    });
    for queue in ["q0", "full", "open"] {
        engine.apply(open_queue(queue), NOW);
    }
    let Event::Queue(mut full) = open_queue("full") else {
        panic!("it is a queue")
    };
    (full.gpu.limit, full.priority) = (Some(GPU), 200);
    engine.apply(Event::Queue(full), NOW);
    for name in ["n0", "n1"] {
        engine.apply(Event::Node(Box::new(node(name, "4"))), NOW);
        for (number, gpus) in ["2", "1"].into_iter().enumerate() {
            let running = group(&format!("{name}-{gpus}"), "q0", 0);
            engine.apply(Event::Group(Box::new(running.clone())), NOW);
            engine.apply(Event::Pod(Box::new(placed(pod(&running, number, gpus), name))), NOW);
        }
    }
    for queue in ["full", "open"] {
        let waiting = group(&format!("of-{queue}"), queue, 1);
        engine.apply(Event::Group(Box::new(waiting.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod(&waiting, 0, "2"))), NOW);
    }
    let (ends, decisions) = search_ends(&mut engine);
    assert_eq!(ends, [SearchEnd::RuledOut, SearchEnd::Solved]);
    assert_eq!(decisions.evict.len(), 1);
}

/// The limit is 0.3 GPUs. What is requested are 0.1 of the largest GPU, which is full, and 0.5 of each other one.
#[test]
fn memory_beyond_the_limit_of_a_queue_on_some_nodes_stops_no_moves_for_another_queue() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Consolidation],
        ..Policy::default()
    });
    for queue in ["q0", "full", "open"] {
        engine.apply(open_queue(queue), NOW);
    }
    let Event::Queue(mut full) = open_queue("full") else {
        panic!("it is a queue")
    };
    (full.gpu.limit, full.priority) = (Some(3 * GPU / 10), 200);
    engine.apply(Event::Queue(full), NOW);
    for (name, text) in [("big", "1 of 2000"), ("s0", "1 of 400"), ("s1", "1 of 400")] {
        engine.apply(Event::Node(Box::new(node(name, text))), NOW);
    }
    let running = [("1", "big"), ("0.3", "s0"), ("0.3", "s0"), ("0.3", "s1"), ("0.3", "s1")];
    for (number, (gpus, on)) in running.into_iter().enumerate() {
        let mut running = group(&format!("runs-{number}"), "q0", 0);
        running.preemptible = on != "big";
        let mut runs = placed(pod(&running, number, gpus), on);
        if gpus == "0.3" {
            runs.gpu_groups = vec![format!("of-{on}").into()];
        }
        engine.apply(Event::Group(Box::new(running)), NOW);
        engine.apply(Event::Pod(Box::new(runs)), NOW);
    }
    for queue in ["full", "open"] {
        let waiting = group(&format!("of-{queue}"), queue, 1);
        engine.apply(Event::Group(Box::new(waiting.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod(&waiting, 0, "200M"))), NOW);
    }
    let (ends, decisions) = search_ends(&mut engine);
    assert_eq!(ends, [SearchEnd::Exhausted, SearchEnd::Solved]);
    assert_eq!(decisions.evict.len(), 1);
}

#[test]
fn the_smallest_requests_that_failed_are_kept() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Consolidation],
        ..Policy::default()
    });
    engine.apply(open_queue("q"), NOW);
    for name in ["n0", "n1", "n2", "n3"] {
        engine.apply(Event::Node(Box::new(node(name, "4"))), NOW);
        let running = group(name, "q", 0);
        engine.apply(Event::Group(Box::new(running.clone())), NOW);
        engine.apply(Event::Pod(Box::new(placed(pod(&running, 0, "3"), name))), NOW);
    }
    for (number, gpus) in ["3", "2", "2", "3"].into_iter().enumerate() {
        let waiting = group(&format!("waits-{number}"), "q", 1 + number);
        engine.apply(Event::Group(Box::new(waiting.clone())), NOW);
        engine.apply(Event::Pod(Box::new(pod(&waiting, 0, gpus))), NOW);
    }
    let (ends, _) = search_ends(&mut engine);
    let searched = SearchEnd::Exhausted;
    assert_eq!(ends, [searched, searched, SearchEnd::Skipped, SearchEnd::Skipped]);
}
