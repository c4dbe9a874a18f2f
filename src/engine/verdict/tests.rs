use crate::engine::Engine;
use crate::engine::decision::Cause;
use crate::engine::input::{Event, GroupInput, Time};
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::tests::scenario::{NOW, open_queue, placed, pod};
use crate::engine::tests::{group, node};

/// One pod of a pod group runs, and its eviction was refused; the bind of its other pod failed.
#[test]
fn the_retry_of_an_eviction_is_not_said_to_be_that_of_a_bind() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::Preempt],
        ..Policy::default()
    });
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    let waiting = GroupInput {
        min_member: Some(1),
        ..group("w", "q", 0)
    };
    let running = placed(pod(&waiting, 0, "1"), "n0");
    engine.apply(Event::Group(Box::new(waiting.clone())), NOW);
    engine.apply(Event::Pod(Box::new(running.clone())), NOW);
    let urgent = GroupInput {
        priority: 75,
        ..group("urgent", "q", 1)
    };
    let preemptor = pod(&urgent, 0, "1");
    engine.apply(Event::Group(Box::new(urgent)), NOW);
    engine.apply(Event::Pod(Box::new(preemptor.clone())), NOW);
    assert_eq!(engine.cycle(NOW).evict.len(), 1);
    let refused = Event::Unevicted {
        pod: running.pod.uid.clone(),
        retry_at: Some(Time(NOW.0 + 60_000)),
    };
    engine.apply(refused, NOW);
    engine.apply(Event::PodGone(preemptor.pod.uid.clone()), NOW);
    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    let second = pod(&waiting, 1, "1");
    engine.apply(Event::Pod(Box::new(second.clone())), NOW);
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    let retry = Time(NOW.0 + 5_000);
    let failed = Event::Unbound {
        pod: second.pod.uid.clone(),
        retry_at: Some(retry),
    };
    engine.apply(failed, NOW);
    let decisions = engine.cycle(NOW);
    let report = decisions.unschedulable.first().expect("it waits");
    assert_eq!(report.verdict.cause, Cause::BindRetry);
    let says = "The last bind failed; it is tried again at 13:46:45 UTC";
    let text = report.verdict.to_string();
    assert!(text.starts_with(says), "{text}");
}
