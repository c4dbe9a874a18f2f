//! Verdicts follow who holds what, though nothing of the workload that waits has changed.

use super::scenario::{NOW, Scenario, group, placed, pod};
use crate::engine::Engine;
use crate::engine::input::{Event, GroupKey, Time};

/// The verdict of the pod group `w` on request, and the verdicts in the list.
fn said(engine: &mut Engine, now: Time) -> [String; 2] {
    let details = engine.see_details(&GroupKey::new("ns", "w"), now).expect("it is there");
    let listed = engine
        .see_groups(0)
        .seen
        .into_iter()
        .find(|group| group.key.name() == "w");
    let (_, listed) = listed.and_then(|group| group.verdict).expect("it waits");
    let (_, asked) = details.group.verdict.expect("it waits");
    assert!(details.report.expect("a report").verdict.sentence.starts_with(&asked));
    [asked, listed]
}

/// One node with two GPUs, both held by `x`, and `w`, which waits for them.
fn world() -> Engine {
    let text = "name: it\nactions: [allocate, consolidation, reclaim, preempt]\nnodes: {n0: 2}\nqueues: [q 8 w1]\n\
        pod_groups: [x q T2@n0, w q T2]";
    let scenario: Scenario = serde_yaml_ng::from_str(text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    scenario.events().into_iter().for_each(|event| engine.apply(event, NOW));
    engine
}

/// `y` takes the place of `x`.
fn other_holder(engine: &mut Engine, now: Time) {
    let other = group("y", "q", 0);
    let running = placed(pod(&other, 0, "2"), "n0");
    engine.apply(Event::PodGone("x-000".into()), now);
    engine.apply(Event::Group(Box::new(other)), now);
    engine.apply(Event::Pod(Box::new(running)), now);
}

#[test]
fn verdicts_name_the_current_holders_of_the_requested_resources() {
    let mut engine = world();
    let first = engine.cycle(NOW);
    assert_eq!(first.unschedulable.len(), 1);
    let before = said(&mut engine, NOW);
    assert_eq!(before[0], before[1]);
    assert!(before[0].ends_with("(x)"), "{before:?}");
    assert!(engine.refresh_verdicts(NOW).reports.is_empty(), "nothing has changed");

    let then = Time(NOW.0 + 500);
    other_holder(&mut engine, then);
    assert!(
        engine.refresh_verdicts(then).reports.is_empty(),
        "the cycle comes first"
    );
    let second = engine.cycle(then);
    while engine.next_wakeup(then).is_some_and(|(at, _)| at <= then) {
        engine.cycle(then);
    }
    assert!(second.unschedulable.is_empty(), "nodes say what they said: {second:?}");
    let [asked, listed] = said(&mut engine, then);
    assert!(asked.ends_with("(y)") && listed.ends_with("(x)"), "{asked}\n{listed}");
    let early = engine.refresh_verdicts(then);
    assert_eq!((early.reports.len(), early.next), (0, Some(Time(NOW.0 + 1_000))));

    let due = Time(NOW.0 + 1_000);
    let refreshed = engine.refresh_verdicts(due);
    assert_eq!(refreshed.reports.len(), 1);
    assert!(refreshed.other_cause.is_empty(), "other holders, the same cause");
    assert_eq!(refreshed.next, None);
    let [asked, listed] = said(&mut engine, due);
    assert_eq!(asked, listed);
    assert!(
        asked.starts_with("Waits for 2 GPUs: queue q holds 2 of 2 GPUs") && asked.ends_with("(y)"),
        "{asked}"
    );
    assert!(
        engine.refresh_verdicts(Time(due.0 + 60_000)).reports.is_empty(),
        "nothing has changed since"
    );
}

/// 100 pod groups of different priorities wait, and 1,000 workloads hold what they wait for.
#[test]
fn a_refresh_looks_at_a_limited_number_of_workloads_and_the_next_ones_do_the_rest() {
    let (holders, waiting) = (1_000, 100);
    let text = format!("name: it\nnodes: {{n0: {holders}}}\nqueues: [q 8 w1]\npod_groups: []");
    let scenario: Scenario = serde_yaml_ng::from_str(&text).expect("a scenario");
    let mut engine = Engine::new(scenario.policy());
    scenario.events().into_iter().for_each(|event| engine.apply(event, NOW));
    let mut add = |name: &str, priority: i64, node: Option<&str>| {
        let mut workload = group(name, "q", 0);
        workload.priority = priority;
        let one = pod(&workload, 0, "1");
        engine.apply(Event::Group(Box::new(workload)), NOW);
        engine.apply(
            Event::Pod(Box::new(node.map_or(one.clone(), |node| placed(one, node)))),
            NOW,
        );
    };
    (0..holders).for_each(|at| add(&format!("x-{at:04}"), 1_000, Some("n0")));
    (0..waiting).for_each(|at| add(&format!("w-{at:04}"), at, None));
    assert_eq!(engine.cycle(NOW).unschedulable.len(), waiting as usize);
    // The verdicts name the first holders.
    engine.apply(Event::PodGone("x-0000-000".into()), NOW);
    let another = group("x-new", "q", 0);
    let running = placed(pod(&another, 0, "1"), "n0");
    engine.apply(Event::Group(Box::new(another)), NOW);
    engine.apply(Event::Pod(Box::new(running)), NOW);
    engine.cycle(NOW);

    let due = Time(NOW.0 + 5_000);
    let first = engine.refresh_verdicts(due);
    assert_eq!(first.next, Some(due), "more are due at once");
    let mut told = vec![first.reports.len()];
    loop {
        let refreshed = engine.refresh_verdicts(due);
        told.push(refreshed.reports.len());
        if refreshed.next.is_none() {
            break;
        }
    }
    assert_eq!(told, [80, 20]);
}
