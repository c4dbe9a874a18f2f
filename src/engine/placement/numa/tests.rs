use std::sync::Arc;

use super::*;
use crate::engine::Engine;
use crate::engine::input::{Event, NodeInput, NumaInput, PodStatus, ZoneInput};
use crate::engine::model::epochs::Change;
use crate::engine::model::weight::Weight;
use crate::engine::policy::{ActionKind, Policy};
use crate::engine::tests::scenario::{NOW, group, node, placed, pod, queue};

/// `4 gpu 16 cpu 8 mem`.
fn amounts(text: &str) -> Vec<(Name, i64)> {
    let words: Vec<_> = text.split_whitespace().collect();
    let amount = |pair: &[&str]| {
        let (name, unit) = match pair[1] {
            "gpu" => ("nvidia.com/gpu", 1),
            "cpu" => ("cpu", 1000),
            "mem" => ("memory", 1 << 30),
            other => panic!("{other}"),
        };
        (name.into(), pair[0].parse::<i64>().unwrap() * unit)
    };
    words.chunks(2).map(amount).collect()
}

/// Zones divided by `|`.
fn zones(policy: NumaPolicy, pod_scope: bool, text: &str) -> NumaInput {
    let zone = |(number, text): (usize, &str)| ZoneInput {
        name: format!("zone-{number}").into(),
        allocatable: amounts(text),
    };
    NumaInput {
        policy,
        pod_scope,
        zones: text.split('|').enumerate().map(zone).collect(),
        free: Vec::new(),
    }
}

/// Containers divided by `+`, init containers behind `after`.
fn asks(text: &str) -> PodNuma {
    let (init, text) = text.split_once(" then ").unwrap_or(("", text));
    let together: Vec<_> = text.split('+').map(amounts).collect();
    let mut whole: Vec<(Name, i64)> = Vec::new();
    for (name, amount) in together.iter().flatten() {
        match whole.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum += amount,
            None => whole.push((name.clone(), *amount)),
        }
    }
    let alone: Vec<_> = if init.is_empty() {
        Vec::new()
    } else {
        vec![amounts(init)]
    };
    for (name, amount) in alone.iter().flatten() {
        match whole.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = (*sum).max(*amount),
            None => whole.push((name.clone(), *amount)),
        }
    }
    PodNuma {
        guaranteed: true,
        whole,
        together,
        alone,
        record: Vec::new(),
    }
}

/// The zones used as `0:gpu 4,cpu 16000 1:…`, or a word.
fn verdict(input: NumaInput, taken: &str, pod: &PodNuma) -> String {
    let mut known = Node::unknown("n".into());
    let mut ledger = Ledger::of(&Arc::new(input), 0);
    let shares: Vec<ZoneShare> = taken
        .split('|')
        .enumerate()
        .map(|(zone, text)| ZoneShare {
            zone,
            amounts: amounts(text),
        })
        .collect();
    ledger.account(&shares, 0, Weight::Staying, 1);
    known.numa = Some(ledger);
    match fit(&known, pod, false) {
        Fit::Refused => "refused".to_owned(),
        Fit::Unaligned => "unaligned".to_owned(),
        Fit::Zones(zones) => {
            let share = |share: &ZoneShare| {
                let amounts: Vec<_> = share
                    .amounts
                    .iter()
                    .map(|(name, amount)| format!("{name} {amount}"))
                    .collect();
                format!("{}:{}", share.zone, amounts.join(","))
            };
            zones
                .iter()
                .map(share)
                .collect::<Vec<_>>()
                .join(" ")
                .replace("nvidia.com/", "")
        }
    }
}

#[test]
fn zones_are_chosen_as_the_kubelet_does() {
    use NumaPolicy::{BestEffort, None, Restricted, SingleNode};
    for (policy, pod_scope, node, taken, asked, wanted) in [
        (
            SingleNode,
            true,
            "4 gpu 16 cpu|4 gpu 16 cpu",
            "",
            "2 gpu 4 cpu",
            "0:cpu 4000,gpu 2",
        ),
        (
            SingleNode,
            true,
            "4 gpu 16 cpu|4 gpu 16 cpu",
            "3 gpu",
            "2 gpu 4 cpu",
            "1:cpu 4000,gpu 2",
        ),
        (SingleNode, true, "4 gpu 16 cpu|4 gpu 16 cpu", "", "6 gpu", "refused"),
        (
            SingleNode,
            true,
            "2 gpu 4 cpu|2 gpu 4 cpu",
            "",
            "3 gpu 6 cpu",
            "refused",
        ),
        (SingleNode, true, "4 gpu|16 cpu", "", "1 gpu 1 cpu", "refused"),
        (
            SingleNode,
            false,
            "4 cpu|4 cpu",
            "",
            "3 cpu+3 cpu",
            "0:cpu 3000 1:cpu 3000",
        ),
        (SingleNode, false, "4 cpu|4 cpu", "", "3 cpu+3 cpu+2 cpu", "refused"),
        (
            SingleNode,
            true,
            "47 cpu 4 gpu|48 cpu 4 gpu",
            "",
            "44 cpu 1 gpu",
            "0:cpu 44000,gpu 1",
        ),
        (
            SingleNode,
            true,
            "47 cpu 4 gpu|48 cpu 4 gpu",
            "",
            "44 cpu 1 gpu+5 cpu",
            "refused",
        ),
        (SingleNode, false, "4 cpu|4 cpu", "", "4 cpu then 2 cpu", "0:cpu 2000"),
        (SingleNode, false, "4 cpu|4 cpu", "", "5 cpu then 2 cpu", "refused"),
        (
            Restricted,
            true,
            "4 gpu 16 cpu|4 gpu 16 cpu",
            "",
            "6 gpu 10 cpu",
            "refused",
        ),
        (
            Restricted,
            true,
            "4 gpu 16 cpu|4 gpu 16 cpu",
            "",
            "6 gpu 24 cpu",
            "0:cpu 16000,gpu 4 1:cpu 8000,gpu 2",
        ),
        (
            Restricted,
            true,
            "4 gpu 16 cpu|4 gpu 16 cpu",
            "",
            "2 gpu 8 cpu",
            "0:cpu 8000,gpu 2",
        ),
        (
            Restricted,
            true,
            "2 gpu 100 cpu|2 gpu 100 cpu",
            "",
            "4 gpu 1 cpu",
            "refused",
        ),
        (Restricted, true, "4 gpu|4 gpu", "1 gpu|1 gpu", "4 gpu", "refused"),
        (
            Restricted,
            true,
            "4 gpu|4 gpu|4 gpu",
            "3 gpu",
            "6 gpu",
            "1:gpu 4 2:gpu 2",
        ),
        (
            Restricted,
            false,
            "4 gpu 8 cpu 16 mem|4 gpu 8 cpu 16 mem",
            "",
            "3 gpu 8 mem+3 gpu 8 mem",
            "0:gpu 3,memory 8589934592 1:gpu 3,memory 8589934592",
        ),
        (
            Restricted,
            true,
            "4 gpu 8 cpu 16 mem|4 gpu 8 cpu 16 mem",
            "",
            "3 gpu 8 mem+3 gpu 8 mem",
            "refused",
        ),
        (Restricted, true, "4 gpu|4 gpu", "", "3 gpu+3 gpu", "0:gpu 4 1:gpu 2"),
        (
            Restricted,
            true,
            "4 gpu|4 gpu",
            "",
            "8 gpu then 2 gpu",
            "0:gpu 4 1:gpu 4",
        ),
        (Restricted, true, "4 gpu|4 gpu", "", "2 cpu", ""),
        (Restricted, true, "4 gpu|4 gpu", "", "9 gpu", "refused"),
        (
            BestEffort,
            true,
            "1 gpu|1 gpu|1 gpu|1 gpu",
            "",
            "2 gpu",
            "0:gpu 1 1:gpu 1",
        ),
        (BestEffort, true, "1 gpu|1 gpu|1 gpu|1 gpu", "", "5 gpu", "unaligned"),
        (BestEffort, true, "1 gpu|3 gpu", "", "3 gpu", "1:gpu 3"),
        (None, true, "1 gpu|1 gpu", "", "2 gpu", "unaligned"),
    ] {
        let input = zones(policy, pod_scope, node);
        // Amounts are listed in the order of the pod's requests.
        let sorted = |text: String| -> String {
            let zone = |zone: &str| {
                let Some((number, amounts)) = zone.split_once(':') else {
                    return zone.to_owned();
                };
                let mut amounts: Vec<_> = amounts.split(',').collect();
                amounts.sort_unstable();
                format!("{number}:{}", amounts.join(","))
            };
            let parts = text
                .replace("gpu ", "gpu_")
                .replace("cpu ", "cpu_")
                .replace("memory ", "memory_");
            parts
                .split(' ')
                .map(zone)
                .collect::<Vec<_>>()
                .join(" ")
                .replace('_', " ")
        };
        let got = sorted(verdict(input, taken, &asks(asked)));
        assert_eq!(got, wanted, "{policy:?} {node} less {taken}: {asked}");
    }
}

#[test]
fn pods_without_guarantee_are_aligned_for_their_devices_only() {
    let besteffort = PodNuma {
        guaranteed: false,
        ..asks("1 gpu 8 cpu")
    };
    let node = || zones(NumaPolicy::SingleNode, true, "1 gpu 4 cpu|1 gpu 4 cpu");
    assert_eq!(verdict(node(), "", &besteffort), "0:gpu 1");
    let no_device = PodNuma {
        guaranteed: false,
        ..asks("8 cpu")
    };
    assert_eq!(verdict(node(), "", &no_device), "unaligned");
}

/// An engine with one node of two zones of 4 cpu, single zone per pod.
fn engine() -> Engine {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate],
        ..Policy::default()
    });
    let mut zoned = node("n0", "8");
    zoned.numa = Some(Arc::new(zones(NumaPolicy::SingleNode, true, "4 cpu|4 cpu")));
    engine.apply(Event::Node(Box::new(zoned)), NOW);
    engine.apply(crate::engine::tests::scenario::open_queue("q"), NOW);
    engine
}

fn add(
    engine: &mut Engine,
    name: &str,
    age: usize,
    asked: &str,
    change: impl FnOnce(&mut crate::engine::input::PodInput),
) {
    let pod_group = group(name, "q", age);
    let mut added = pod(&pod_group, 0, "0");
    let mut numa = asks(asked);
    change(&mut added);
    if added.node.is_some() {
        numa.record = vec![("zone-0".into(), amounts(asked))];
    }
    added.numa = Some(Arc::new(numa));
    engine.apply(Event::Group(Box::new(pod_group)), NOW);
    engine.apply(Event::Pod(Box::new(added)), NOW);
}

#[test]
fn pods_of_one_cycle_see_one_anothers_zones() {
    let mut engine = engine();
    for (age, name) in ["a", "b", "c"].into_iter().enumerate() {
        add(&mut engine, name, age, "3 cpu", |_| {});
    }
    let decisions = engine.cycle(NOW);
    let bound: Vec<_> = decisions
        .bind
        .iter()
        .map(|bind| (&*bind.pod.name, &*bind.zones[0].0))
        .collect();
    assert_eq!(bound, [("a-000", "zone-0"), ("b-000", "zone-1")]);
    let message = &decisions.unschedulable[0].message;
    assert!(
        message.contains("1 node cannot NUMA-align the pod's resources"),
        "{message}"
    );
}

#[test]
fn a_recorded_zone_is_taken_and_one_that_is_left_must_be_waited_for() {
    let mut engine = engine();
    add(&mut engine, "r", 0, "3 cpu", |pod| {
        pod.status = PodStatus::Running;
        pod.node = Some("n0".into());
    });
    add(&mut engine, "a", 1, "4 cpu", |_| {});
    let decisions = engine.cycle(NOW);
    assert_eq!(&*decisions.bind[0].zones[0].0, "zone-1");

    let mut engine = self::engine();
    for (age, name) in ["l", "m"].into_iter().enumerate() {
        add(&mut engine, name, age, "3 cpu", |pod| {
            pod.status = PodStatus::Releasing;
            pod.releasing_since = Some(NOW);
            pod.node = Some("n0".into());
        });
    }
    add(&mut engine, "a", 2, "4 cpu", |_| {});
    add(&mut engine, "b", 3, "4 cpu", |_| {});
    let decisions = engine.cycle(NOW);
    assert_eq!(
        decisions.bind.iter().map(|bind| &*bind.zones[0].0).collect::<Vec<_>>(),
        ["zone-1"]
    );
    assert_eq!(decisions.pipeline.len(), 1);
}

/// The victims for a pod that requests so much cpu, and the pods that get a place. Each zone has a victim of 3 cpu; `v0` goes before `v1`.
fn after_eviction(action: ActionKind, asked: &str) -> (Vec<Name>, Vec<Name>) {
    after_eviction_with(NumaPolicy::SingleNode, true, action, asked)
}

/// The same, by the node's policy and whether the pods are guaranteed what they ask for.
fn after_eviction_with(
    policy: NumaPolicy,
    guaranteed: bool,
    action: ActionKind,
    asked: &str,
) -> (Vec<Name>, Vec<Name>) {
    let own = if action == ActionKind::Reclaim {
        "claimants"
    } else {
        "holders"
    };
    let zones = zones(policy, true, "4 cpu|4 cpu");
    let mut engine = crowded(zones, guaranteed, vec![action], (own, asked));
    let decisions = engine.cycle(NOW);
    assert!(engine.model().broken_rules().is_empty());
    let victims = decisions.evict.iter().map(|eviction| eviction.pod.name.clone());
    let plans = decisions.pipeline.iter().map(|plan| plan.pod.name.clone());
    let binds = decisions.bind.iter().map(|bind| bind.pod.name.clone());
    (victims.collect(), plans.chain(binds).collect())
}

/// A node with two zones and a victim in each, and a pod that waits: its queue, and what it requests.
fn crowded(zones: NumaInput, guaranteed: bool, actions: Vec<ActionKind>, (own, asked): (&str, &str)) -> Engine {
    let mut engine = Engine::new(Policy {
        actions,
        ..Policy::default()
    });
    let mut zoned = node("n0", "0 C8000");
    zoned.numa = Some(Arc::new(zones));
    engine.apply(Event::Node(Box::new(zoned)), NOW);
    for (name, share) in [("holders", "0 c0"), ("claimants", "0 c8000")] {
        let mut shared = queue(name, share, NOW);
        shared.parent = None;
        engine.apply(Event::Queue(Box::new(shared)), NOW);
    }
    let pod_groups = [("v0", 50, Some("zone-0")), ("v1", 75, Some("zone-1")), ("p", 99, None)];
    for (age, (name, priority, zone)) in pod_groups.into_iter().enumerate() {
        let asked = if zone.is_some() { "3 cpu" } else { asked };
        let mut pod_group = group(name, if zone.is_some() { "holders" } else { own }, age);
        pod_group.priority = priority;
        let mut added = pod(&pod_group, 0, "0");
        added.needs_mut().request.cpu = amounts(asked)[0].1;
        let mut numa = PodNuma {
            guaranteed,
            ..asks(asked)
        };
        if let Some(zone) = zone {
            added = placed(added, "n0");
            numa.record = vec![(zone.into(), amounts(asked))];
        }
        added.numa = Some(Arc::new(numa));
        engine.apply(Event::Group(Box::new(pod_group)), NOW);
        engine.apply(Event::Pod(Box::new(added)), NOW);
    }
    engine
}

#[test]
fn a_zone_is_freed_by_evicting_the_pods_that_hold_it() {
    for action in [ActionKind::Reclaim, ActionKind::Preempt] {
        let (victims, planned) = after_eviction(action, "3 cpu");
        assert_eq!(victims, ["v0-000".into()], "{action:?}");
        assert_eq!(planned, ["p-000".into()], "{action:?}");
    }
}

#[test]
fn no_pod_is_evicted_for_a_request_above_the_capacity_of_a_zone() {
    for action in [ActionKind::Reclaim, ActionKind::Preempt] {
        assert_eq!(after_eviction(action, "5 cpu"), (Vec::new(), Vec::new()), "{action:?}");
    }
}

#[test]
fn recorded_zones_are_ignored_where_the_kubelet_does_not_align() {
    for (policy, guaranteed) in [(NumaPolicy::None, true), (NumaPolicy::SingleNode, false)] {
        for action in [ActionKind::Reclaim, ActionKind::Preempt] {
            let (victims, planned) = after_eviction_with(policy, guaranteed, action, "2 cpu");
            assert_eq!(victims, Vec::<Name>::new(), "{policy:?} {action:?}: all three fit");
            assert_eq!(planned, ["p-000".into()], "{policy:?} {action:?}");
        }
    }
}

#[test]
fn what_pods_use_is_subtracted_from_the_report_before_which_they_were_placed() {
    let mut input = zones(NumaPolicy::SingleNode, true, "4 cpu|4 cpu");
    input.free = vec![amounts("1 cpu"), amounts("3 cpu")];
    let mut ledger = Ledger::of(&Arc::new(input), 7);
    let share = |zone, text| {
        [ZoneShare {
            zone,
            amounts: amounts(text),
        }]
    };
    // What was placed after an earlier report is in what the agent says.
    ledger.account(&share(0, "2 cpu"), 6, Weight::Staying, 1);
    assert_eq!(ledger.free(true), [[1_000], [3_000]]);
    assert_eq!(ledger.free(false), [[1_000], [3_000]]);
    ledger.account(&share(1, "2 cpu"), 7, Weight::Staying, 1);
    ledger.account(&share(0, "2 cpu"), 6, Weight::Staying, -1);
    ledger.account(&share(0, "2 cpu"), 6, Weight::Leaving, 1);
    assert_eq!(ledger.free(true), [[1_000], [1_000]]);
    assert_eq!(ledger.free(false), [[3_000], [1_000]]);
    assert_eq!(ledger.allocatable, [[4_000], [4_000]], "widths go by what zones have");
}

#[test]
fn a_pod_that_ends_makes_room_for_one_that_was_placed_since_the_report() {
    let mut input = zones(NumaPolicy::SingleNode, true, "4 cpu");
    input.free = vec![amounts("2 cpu")];
    let mut ledger = Ledger::of(&Arc::new(input), 7);
    let share = [ZoneShare {
        zone: 0,
        amounts: amounts("2 cpu"),
    }];
    ledger.account(&share, 6, Weight::Staying, 1);
    ledger.account(&share, 7, Weight::Staying, 1);
    assert_eq!(ledger.free(true), [[0]]);
    ledger.account(&share, 6, Weight::Staying, -1);
    ledger.gone(&share, false);
    assert_eq!(
        ledger.free(true),
        [[2_000]],
        "the agent has nothing new to report when both are counted"
    );
    ledger.account(&share, 7, Weight::Staying, -1);
    assert_eq!(ledger.free(true), [[2_000]], "no more than was reported");
}

#[test]
fn a_pod_that_is_placed_where_one_has_ended_since_the_report_takes_its_room() {
    let mut engine = engine();
    run(&mut engine, "a", "2 cpu");
    report(&mut engine, "2 cpu|0 cpu");
    engine.apply(Event::PodGone("a-000".into()), NOW);
    assert_eq!(free(&engine), [2, 0], "not before the agent says so");
    add(&mut engine, "b", 1, "2 cpu", |_| {});
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    assert_eq!(free(&engine), [2, 0], "the next report will be the same");
    report(&mut engine, "2 cpu|0 cpu");
    assert_eq!(free(&engine), [2, 0]);
}

#[test]
fn a_pod_whose_end_is_in_the_report_makes_room_once() {
    let mut engine = engine();
    run(&mut engine, "a", "2 cpu");
    run(&mut engine, "r", "2 cpu");
    // The agent notices that a has ended before its object shows that.
    report(&mut engine, "2 cpu|0 cpu");
    engine.apply(Event::PodGone("a-000".into()), NOW);
    for (age, name) in ["b", "c"].into_iter().enumerate() {
        add(&mut engine, name, age, "2 cpu", |_| {});
    }
    let decisions = engine.cycle(NOW);
    assert_eq!((decisions.bind.len(), decisions.pipeline.len()), (1, 0));
    assert_eq!(free(&engine), [0, 0]);
}

#[test]
fn a_pod_that_another_leader_binds_is_subtracted_until_the_next_report() {
    let mut engine = engine();
    report(&mut engine, "4 cpu|4 cpu");
    add(&mut engine, "a", 0, "3 cpu", |_| {});
    run(&mut engine, "a", "3 cpu");
    assert_eq!(free(&engine), [1, 4]);
    report(&mut engine, "1 cpu|4 cpu");
    assert_eq!(free(&engine), [1, 4]);
}

/// The node of [`engine`] with these free amounts.
fn reporting(free: &str) -> NodeInput {
    let mut reported = zones(NumaPolicy::SingleNode, true, "4 cpu|4 cpu");
    reported.free = free.split('|').map(amounts).collect();
    let mut zoned = node("n0", "0 C8000");
    zoned.numa = Some(Arc::new(reported));
    zoned
}

/// Cores that are free now in each zone of the node.
fn free(engine: &Engine) -> Vec<i64> {
    let model = engine.model();
    let node = model.node_named(&"n0".into()).expect("the node");
    let ledger = model.nodes()[node].numa.as_ref().expect("it has zones");
    ledger.free(true).iter().map(|zone| zone[0] / 1000).collect()
}

fn report(engine: &mut Engine, free: &str) {
    engine.apply(Event::Node(Box::new(reporting(free))), NOW);
}

/// A pod that runs in the first zone.
fn run(engine: &mut Engine, name: &str, asked: &str) {
    add(engine, name, 0, asked, |pod| {
        pod.status = PodStatus::Running;
        pod.node = Some("n0".into());
    });
}

#[test]
fn free_amounts_are_those_of_the_report_whichever_comes_first_the_node_or_its_pods() {
    let mut node_first = engine();
    report(&mut node_first, "1 cpu|4 cpu");
    run(&mut node_first, "r", "3 cpu");
    assert_eq!(free(&node_first), [1, 4]);
    let mut pod_first = engine();
    run(&mut pod_first, "r", "3 cpu");
    report(&mut pod_first, "1 cpu|4 cpu");
    assert_eq!(free(&pod_first), [1, 4]);
}

#[test]
fn a_pod_that_is_gone_frees_nothing_that_was_not_reported() {
    let mut engine = engine();
    report(&mut engine, "1 cpu|4 cpu");
    run(&mut engine, "r", "2 cpu");
    run(&mut engine, "f", "1 cpu");
    // The agent notices that f has finished before its object shows that.
    report(&mut engine, "2 cpu|4 cpu");
    let mut finished = pod(&group("f", "q", 0), 0, "0");
    finished.status = PodStatus::Succeeded;
    engine.apply(Event::Pod(Box::new(finished)), NOW);
    assert_eq!(free(&engine), [2, 4]);
    engine.apply(Event::PodGone("r-000".into()), NOW);
    assert_eq!(free(&engine), [2, 4], "not before the agent says so");
    report(&mut engine, "4 cpu|4 cpu");
    assert_eq!(free(&engine), [4, 4]);
}

#[test]
fn a_bound_pod_is_subtracted_until_the_next_report() {
    let mut engine = engine();
    report(&mut engine, "4 cpu|1 cpu");
    add(&mut engine, "a", 0, "3 cpu", |_| {});
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
    assert_eq!(free(&engine), [1, 1]);
    run(&mut engine, "a", "3 cpu");
    assert_eq!(free(&engine), [1, 1], "its object shows the bind");
    report(&mut engine, "1 cpu|0 cpu");
    assert_eq!(free(&engine), [1, 0]);
}

#[test]
fn a_report_of_free_amounts_leaves_what_follows_from_nodes_as_it_is() {
    let mut engine = engine();
    report(&mut engine, "4 cpu|4 cpu");
    engine.cycle(NOW);
    let specs = |engine: &Engine| engine.model().epochs().of(Change::NodeSpecs);
    let before = specs(&engine);
    report(&mut engine, "2 cpu|4 cpu");
    assert_eq!((specs(&engine), free(&engine)), (before, vec![2, 4]));
    let mut labelled = reporting("1 cpu|4 cpu");
    labelled.labels.push(("zone".into(), "a".into()));
    engine.apply(Event::Node(Box::new(labelled)), NOW);
    assert!(specs(&engine) > before, "its labels have changed, too");
    assert_eq!(free(&engine), [1, 4]);
}

#[test]
fn no_second_pod_is_evicted_before_the_agent_reports_the_end_of_the_first() {
    let mut zoned = zones(NumaPolicy::SingleNode, true, "4 cpu|4 cpu");
    zoned.free = vec![amounts("1 cpu"), amounts("1 cpu")];
    let actions = vec![ActionKind::Allocate, ActionKind::Preempt];
    let mut engine = crowded(zoned, true, actions, ("holders", "3 cpu"));
    let victims = |engine: &mut Engine| -> Vec<Name> {
        let decisions = engine.cycle(NOW);
        assert_eq!(decisions.pipeline.len(), 1);
        let victims = decisions.evict.iter().map(|eviction| eviction.pod.name.clone());
        victims.collect()
    };
    assert_eq!(victims(&mut engine), ["v0-000".into()]);
    engine.apply(Event::PodGone("v0-000".into()), NOW);
    assert_eq!(victims(&mut engine), Vec::<Name>::new(), "its zone is not free yet");
    report(&mut engine, "4 cpu|1 cpu");
    assert_eq!(engine.cycle(NOW).bind.len(), 1);
}
