//! Gangs below their minimum: how long their remaining pods may stay.

use super::scenario::{NOW, group, node, open_queue, placed, pod, sub_group};
use crate::engine::decision::Wording;
use crate::engine::input::{Event, GroupInput, PodInput, PodStatus, Time};
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::{Engine, WakeReason};

/// A pod of this pod group runs on the GPU of the only node.
fn one_pod_runs(group: &GroupInput) -> Engine {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate, ActionKind::StaleGangEviction],
        ..Policy::default()
    });
    engine.apply(open_queue("q"), NOW);
    engine.apply(Event::Node(Box::new(node("n0", "1"))), NOW);
    engine.apply(Event::Group(Box::new(group.clone())), NOW);
    engine.apply(Event::Pod(Box::new(placed(pod(group, 0, "1"), "n0"))), NOW);
    engine
}

/// A gang of two of which one pod runs.
fn gang_below_its_minimum() -> (Engine, GroupInput) {
    let mut group = group("a", "q", 0);
    group.min_member = Some(2);
    (one_pod_runs(&group), group)
}

#[test]
fn a_gang_below_its_minimum_has_a_deadline() {
    let (mut engine, _) = gang_below_its_minimum();
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.times[0].stale_since, Some(NOW));
    let deadline = Time(NOW.0 + 60_000);
    assert_eq!(engine.next_wakeup(NOW), Some((deadline, WakeReason::StaleGang)));
    let decisions = engine.cycle(deadline);
    assert_eq!(decisions.evict.len(), 1);
    assert_eq!(
        decisions.evict[0].message(),
        "Workload doesn't meet the minimum required number of pods (2), evicting remaining pod: ns/a-000"
    );
}

#[test]
fn binds_that_fail_do_not_give_a_gang_below_its_minimum_more_time() {
    let (mut engine, group) = gang_below_its_minimum();
    let missing = pod(&group, 1, "1");
    let binding = PodInput {
        status: PodStatus::Binding,
        node: Some("n1".into()),
        ..missing.clone()
    };
    engine.cycle(NOW);
    let later = Time(NOW.0 + 30_000);
    engine.apply(Event::Pod(Box::new(binding)), later);
    assert!(engine.cycle(later).times.is_empty(), "it has been stale since then");
    let deadline = Time(NOW.0 + 60_000);
    engine.apply(Event::PodGone(missing.pod.uid.clone()), deadline);
    assert_eq!(engine.cycle(deadline).evict.len(), 1);
}

/// A node with a pod in termination, whose place the engine may plan for another.
fn a_place_becomes_free(engine: &mut Engine, now: Time) -> PodInput {
    let old = group("old", "q", 1);
    let leaves = PodInput {
        releasing_since: Some(now),
        ..placed(pod(&old, 0, "1"), "n1!")
    };
    engine.apply(Event::Node(Box::new(node("n1", "1"))), now);
    engine.apply(Event::Group(Box::new(old)), now);
    engine.apply(Event::Pod(Box::new(leaves.clone())), now);
    leaves
}

#[test]
fn plans_do_not_give_a_gang_below_its_minimum_more_time() {
    let (mut engine, gang) = gang_below_its_minimum();
    engine.cycle(NOW);
    let planned = Time(NOW.0 + 30_000);
    let leaves = a_place_becomes_free(&mut engine, planned);
    engine.apply(Event::Pod(Box::new(pod(&gang, 1, "1"))), planned);
    let decisions = engine.cycle(planned);
    assert_eq!(decisions.pipeline.len(), 1);
    let mut times = decisions.times.iter().filter(|times| times.group == gang.key);
    assert!(times.all(|times| times.stale_since == Some(NOW)));
    // Another pod gets the place.
    let taken = Time(NOW.0 + 40_000);
    let urgent = GroupInput {
        priority: 75,
        ..group("urgent", "q", 2)
    };
    engine.apply(Event::PodGone(leaves.pod.uid.clone()), taken);
    engine.apply(Event::Pod(Box::new(pod(&urgent, 0, "1"))), taken);
    engine.apply(Event::Group(Box::new(urgent)), taken);
    let decisions = engine.cycle(taken);
    assert_eq!(decisions.bind.len(), 1);
    assert_eq!(&*decisions.bind[0].pod.name, "urgent-000");
    assert_eq!(engine.cycle(Time(NOW.0 + 60_000)).evict.len(), 1);
}

#[test]
fn plans_for_further_pods_do_not_keep_a_deadline() {
    let mut gang = group("a", "q", 0);
    gang.min_member = Some(1);
    gang.stale_since = Some(Time(NOW.0 - 1000));
    let mut engine = one_pod_runs(&gang);
    a_place_becomes_free(&mut engine, NOW);
    engine.apply(Event::Pod(Box::new(pod(&gang, 1, "1"))), NOW);
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.pipeline.len(), 1);
    let times: Vec<_> = decisions.times.iter().filter(|times| times.group == gang.key).collect();
    assert_eq!(times.len(), 1);
    assert_eq!(times[0].stale_since, None);
}

#[test]
fn a_gang_that_was_whole_again_has_its_whole_grace_period() {
    let (mut engine, group) = gang_below_its_minimum();
    engine.apply(Event::Node(Box::new(node("n1", "1"))), NOW);
    engine.cycle(NOW);
    let late = Time(NOW.0 + 30_000);
    for status in [PodStatus::Binding, PodStatus::Running] {
        let second = PodInput {
            status,
            node: Some("n1".into()),
            ..pod(&group, 1, "1")
        };
        engine.apply(Event::Pod(Box::new(second)), late);
        assert_eq!(engine.next_wakeup(late), Some((late, WakeReason::Changed)));
        engine.cycle(late);
    }
    let later = Time(NOW.0 + 1_000_000);
    engine.apply(Event::PodGone(pod(&group, 0, "1").pod.uid.clone()), later);
    assert!(engine.cycle(later).evict.is_empty());
    let deadline = Time(later.0 + 60_000);
    assert_eq!(engine.next_wakeup(later), Some((deadline, WakeReason::StaleGang)));
    assert_eq!(engine.cycle(deadline).evict.len(), 1);
}

#[test]
fn an_earlier_staleness_that_is_shown_late_does_not_count() {
    let (mut engine, group) = gang_below_its_minimum();
    engine.apply(Event::Pod(Box::new(placed(pod(&group, 1, "1"), "n0"))), NOW);
    engine.cycle(NOW);
    let shown_late = GroupInput {
        stale_since: Some(Time(NOW.0 - 100_000)),
        ..group.clone()
    };
    engine.apply(Event::Group(Box::new(shown_late)), NOW);
    engine.cycle(NOW);
    engine.apply(Event::PodGone(pod(&group, 0, "1").pod.uid.clone()), NOW);
    assert!(engine.cycle(NOW).evict.is_empty());
}

#[test]
fn the_eviction_of_a_gang_below_its_minimum_begins_its_preemption_delay_anew() {
    let (mut engine, _) = gang_below_its_minimum();
    engine.cycle(NOW);
    let deadline = Time(NOW.0 + 60_000);
    let decisions = engine.cycle(deadline);
    assert_eq!(decisions.evict.len(), 1);
    let times = decisions.times.last().expect("the times of the gang");
    assert_eq!(times.last_eviction, Some(deadline));
}

#[test]
fn evictions_name_the_sub_group_that_lacks_pods() {
    let gang = GroupInput {
        sub_groups: vec![sub_group("workers:1"), sub_group("master:2")],
        stale_since: Some(Time(NOW.0 - 61_000)),
        ..group("a", "q", 0)
    };
    let mut engine = one_pod_runs(&gang);
    let worker = PodInput {
        sub_group: Some("workers".into()),
        ..placed(pod(&gang, 0, "1"), "n0")
    };
    engine.apply(Event::Pod(Box::new(worker)), NOW);
    let evicted = engine.cycle(NOW).evict;
    assert_eq!(evicted.len(), 1);
    assert_eq!(
        evicted[0].text(Wording::Plain),
        "Its gang is broken: sub-group master of a needs 2 pods at once and has had fewer for too long"
    );
    assert_eq!(
        evicted[0].text(Wording::Kai),
        "Workload doesn't meet the minimum required number of pods (1) in sub-group workers, evicting remaining pod: ns/a-000"
    );
}

/// While the action is switched off, gangs come and go.
#[test]
fn the_eviction_of_gangs_below_their_minimum_can_be_switched_off_and_on() {
    let (mut engine, group) = gang_below_its_minimum();
    let on = Policy {
        actions: vec![ActionKind::Allocate, ActionKind::StaleGangEviction],
        ..Policy::default()
    };
    let off = Policy {
        actions: vec![ActionKind::Allocate],
        ..Policy::default()
    };
    engine.cycle(NOW);
    let deadline = Some((Time(NOW.0 + 60_000), WakeReason::StaleGang));
    assert_eq!(engine.next_wakeup(NOW), deadline);
    engine.set_policy(off.clone());
    engine.cycle(NOW);
    assert_eq!(engine.next_wakeup(NOW), None);
    engine.set_policy(on);
    engine.cycle(NOW);
    assert_eq!(engine.next_wakeup(NOW), deadline);
    engine.set_policy(off);
    engine.apply(Event::PodGone(pod(&group, 0, "1").pod.uid.clone()), NOW);
    engine.apply(Event::GroupGone(group.key), NOW);
    engine.cycle(NOW);
    assert_eq!(engine.next_wakeup(NOW), None);
}

/// Another process wrote the time, and sent the event.
#[test]
fn a_gang_below_its_minimum_is_named_also_if_another_engine_found_it() {
    let mut group = group("a", "q", 0);
    group.min_member = Some(2);
    group.stale_since = Some(Time(NOW.0 - 1000));
    let mut engine = one_pod_runs(&group);
    assert!(engine.cycle(NOW).times.is_empty(), "nothing is new");
    let named = |engine: &Engine| engine.stale_groups().into_iter().collect::<Vec<_>>();
    assert_eq!(named(&engine), std::slice::from_ref(&group.key));
    engine.apply(Event::Pod(Box::new(placed(pod(&group, 1, "1"), "n0"))), NOW);
    assert!(named(&engine).is_empty());
    engine.apply(Event::PodGone(pod(&group, 1, "1").pod.uid.clone()), NOW);
    assert_eq!(named(&engine), std::slice::from_ref(&group.key));
    engine.apply(Event::PodGone(pod(&group, 0, "1").pod.uid.clone()), NOW);
    engine.apply(Event::GroupGone(group.key), NOW);
    assert!(named(&engine).is_empty());
}

#[test]
fn a_gang_that_reaches_its_minimum_again_has_no_deadline() {
    let mut group = group("g", "q", 0);
    group.min_member = Some(1);
    group.stale_since = Some(Time(NOW.0 - 1000));
    let mut engine = one_pod_runs(&group);
    let decisions = engine.cycle(NOW);
    let times: Vec<_> = decisions
        .times
        .iter()
        .filter(|times| times.group == group.key)
        .collect();
    assert_eq!(times.len(), 1);
    assert_eq!(times[0].stale_since, None);
    assert_eq!(engine.next_wakeup(NOW), None);
}
