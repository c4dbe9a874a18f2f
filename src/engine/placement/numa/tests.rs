use std::sync::Arc;

use super::*;
use crate::engine::Engine;
use crate::engine::input::{Event, NumaInput, PodStatus, ZoneInput};
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
    let mut ledger = Ledger::of(&Arc::new(input));
    let shares: Vec<ZoneShare> = taken
        .split('|')
        .enumerate()
        .map(|(zone, text)| ZoneShare {
            zone,
            amounts: amounts(text),
        })
        .collect();
    ledger.account(&shares, crate::engine::model::weight::Weight::Staying, 1);
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
    let mut engine = Engine::new(Policy {
        actions: vec![action],
        ..Policy::default()
    });
    let mut zoned = node("n0", "0 C8000");
    zoned.numa = Some(Arc::new(zones(policy, true, "4 cpu|4 cpu")));
    engine.apply(Event::Node(Box::new(zoned)), NOW);
    let own = if action == ActionKind::Reclaim {
        "claimants"
    } else {
        "holders"
    };
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
    let decisions = engine.cycle(NOW);
    assert!(engine.model().broken_rules().is_empty());
    let victims = decisions.evict.iter().map(|eviction| eviction.pod.name.clone());
    let plans = decisions.pipeline.iter().map(|plan| plan.pod.name.clone());
    let binds = decisions.bind.iter().map(|bind| bind.pod.name.clone());
    (victims.collect(), plans.chain(binds).collect())
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
fn reported_free_amounts_are_used_until_pods_change() {
    use crate::engine::model::weight::Weight;

    let mut input = zones(NumaPolicy::SingleNode, true, "4 cpu|4 cpu");
    input.free = vec![amounts("1 cpu"), amounts("3 cpu")];
    let mut ledger = Ledger::of(&Arc::new(input));
    let share = |zone, text| {
        [ZoneShare {
            zone,
            amounts: amounts(text),
        }]
    };
    // What is there already is in what the agent says.
    ledger.account(&share(0, "2 cpu"), Weight::Staying, 1);
    ledger.as_reported();
    assert_eq!(
        (&ledger.now, &ledger.later),
        (&vec![vec![1_000], vec![3_000]], &vec![vec![1_000], vec![3_000]])
    );
    ledger.account(&share(1, "2 cpu"), Weight::Staying, 1);
    ledger.account(&share(0, "2 cpu"), Weight::Staying, -1);
    ledger.account(&share(0, "2 cpu"), Weight::Leaving, 1);
    assert_eq!(ledger.now, [[1_000], [1_000]]);
    assert_eq!(ledger.later, [[3_000], [1_000]]);
    assert_eq!(ledger.allocatable, [[4_000], [4_000]], "widths go by what zones have");
}
