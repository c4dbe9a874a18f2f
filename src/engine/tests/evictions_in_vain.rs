//! Evictions for a workload that do not help it delay the next ones.

use super::carry::engine;
use super::scenario::{NOW, group, node, open_queue, placed, pod, queue};
use crate::engine::decision::{Cause, Decisions};
use crate::engine::input::{Event, PodInput, Time};
use crate::engine::policy::ActionKind;
use crate::engine::{Engine, WakeReason};

/// A node with one GPU, on which a preemptible pod runs while one of higher priority waits.
struct World {
    engine: Engine,
    victim: PodInput,
}

impl World {
    fn new() -> Self {
        let (mut high, low) = (group("high", "q", 0), group("low", "q", 1));
        high.priority = 100;
        let victim = placed(pod(&low, 0, "1"), "n0");
        let events = [
            open_queue("root"),
            Event::Queue(Box::new(queue("q", "-1", Time(0)))),
            Event::Node(Box::new(node("n0", "1"))),
            Event::Group(Box::new(high.clone())),
            Event::Group(Box::new(low)),
            Event::Pod(Box::new(pod(&high, 0, "1"))),
            Event::Pod(Box::new(victim.clone())),
        ];
        let engine = engine(&events, &[ActionKind::Allocate, ActionKind::Preempt]);
        Self { engine, victim }
    }

    /// The victim is gone.
    fn terminated(&mut self, now: Time) {
        self.engine.apply(Event::PodGone(self.victim.pod.uid.clone()), now);
    }

    /// The victim is gone, and one of its name runs in its place, where another client bound it.
    fn replaced(&mut self, now: Time) {
        self.terminated(now);
        self.engine.apply(Event::Pod(Box::new(self.victim.clone())), now);
    }

    /// Evicts the victim in vain until this is delayed. Returns the decisions without evictions.
    fn until_delayed(&mut self) -> Decisions {
        for times in 0..4 {
            assert_eq!(self.engine.cycle(NOW).evict.len(), 1, "after {times} times");
            self.replaced(NOW);
        }
        self.engine.cycle(NOW)
    }
}

#[test]
fn a_workload_that_loses_its_place_again_and_again_waits_longer_and_longer() {
    let mut world = World::new();
    let decisions = world.until_delayed();
    assert!(decisions.evict.is_empty());
    let report = &decisions.unschedulable[0];
    assert_eq!(report.verdict.cause, Cause::EvictionsInVain);
    assert!(
        report.verdict.sentence.contains("in vain 3 times"),
        "{}",
        report.verdict.sentence
    );

    let seconds = |seconds: i64| Time(NOW.0 + seconds * 1000);
    let due = Some((seconds(10), WakeReason::PreemptionDelay));
    assert_eq!(world.engine.next_wakeup(NOW), due);
    assert!(world.engine.cycle(seconds(9)).evict.is_empty());
    assert_eq!(world.engine.cycle(seconds(10)).evict.len(), 1);
    world.replaced(seconds(10));
    assert!(world.engine.cycle(seconds(10)).evict.is_empty());
    assert_eq!(
        world.engine.next_wakeup(seconds(10)),
        Some((seconds(30), WakeReason::PreemptionDelay))
    );
}

#[test]
fn evictions_that_the_api_server_refuses_are_not_in_vain() {
    let mut world = World::new();
    for times in 0..10 {
        assert_eq!(world.engine.cycle(NOW).evict.len(), 1, "after {times} times");
        let (pod, retry_at) = (world.victim.pod.uid.clone(), None);
        world.engine.apply(Event::Unevicted { pod, retry_at }, NOW);
    }
}

#[test]
fn a_workload_is_placed_during_the_delay_where_resources_are_free() {
    let mut world = World::new();
    world.until_delayed();
    world.terminated(NOW);
    assert_eq!(world.engine.cycle(NOW).bind.len(), 1);
}

#[test]
fn a_workload_that_gets_one_pod_after_another_by_evictions_is_not_delayed() {
    let (mut high, low) = (group("high", "q", 0), group("low", "q", 1));
    high.priority = 100;
    let mut events = vec![
        open_queue("root"),
        Event::Queue(Box::new(queue("q", "-1", Time(0)))),
        Event::Node(Box::new(node("n0", "8"))),
        Event::Group(Box::new(high.clone())),
        Event::Group(Box::new(low.clone())),
    ];
    for number in 0..8 {
        events.push(Event::Pod(Box::new(pod(&high, number, "1"))));
        events.push(Event::Pod(Box::new(placed(pod(&low, number, "1"), "n0"))));
    }
    let mut engine = engine(&events, &[ActionKind::Allocate, ActionKind::Preempt]);
    // The victims take their time, so that nothing is bound in between.
    let evicted: Vec<usize> = (0..9).map(|_| engine.cycle(NOW).evict.len()).collect();
    assert_eq!(evicted.iter().sum::<usize>(), 8, "{evicted:?}");
}
