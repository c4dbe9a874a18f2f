//! Nobody goes without need: over random clusters, no eviction or move can be dropped from what a cycle decides without something decided being lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::carry::{carry_out, engine};
use super::properties::{ALL_ACTIONS, Cluster, clusters_of, look_again, part};
use super::scenario::{NOW, Scenario, check};
use crate::engine::Engine;
use crate::engine::decision::Decisions;
use crate::engine::input::{
    Event, GPU, GroupKey, Name, NumaInput, NumaPolicy, PodInput, PodNuma, PodStatus, ZoneInput,
};
use crate::engine::policy::ActionKind;

#[test]
fn victims_that_are_not_needed_are_not_evicted() {
    check(include_str!("tables/spare.yaml"));
}

#[test]
fn no_pod_is_evicted_and_pipelined_to_its_own_node_even_without_the_plugin() {
    assert_eq!(evicted_without_the_plugin(|_| {}), ["v", "v"]);
}

#[test]
fn nor_if_an_agent_reports_what_is_free_in_the_zones_of_its_node() {
    let cpu = |amount: i64| -> Vec<(Name, i64)> { vec![("cpu".into(), amount)] };
    let zoned = |event: &mut Event| match event {
        Event::Node(node) if &*node.name == "n2" => {
            node.numa = Some(Arc::new(NumaInput {
                policy: NumaPolicy::SingleNode,
                pod_scope: true,
                zones: vec![ZoneInput {
                    name: "zone-0".into(),
                    allocatable: cpu(4_000),
                }],
                free: vec![cpu(1_000)],
            }));
        }
        Event::Pod(pod) if pod.group.as_ref().is_some_and(|group| group.name() == "a") => {
            pod.numa = Some(Arc::new(PodNuma {
                guaranteed: true,
                whole: cpu(3_000),
                together: vec![cpu(3_000)],
                alone: Vec::new(),
                record: vec![("zone-0".into(), cpu(3_000))],
            }));
        }
        _ => {}
    };
    assert_eq!(evicted_without_the_plugin(zoned), ["v", "v"]);
}

/// The pod groups of the pods that are evicted in the first scenario of the table, with changed events.
fn evicted_without_the_plugin(change: impl Fn(&mut Event)) -> Vec<String> {
    let scenarios: Vec<Scenario> = serde_yaml_ng::from_str(include_str!("tables/spare.yaml")).expect("a table");
    let first = &scenarios[0];
    let mut policy = first.policy();
    policy.plugins.spare = false;
    let mut engine = Engine::new(policy);
    for mut event in first.events() {
        change(&mut event);
        engine.apply(event, NOW);
    }
    let evicted = engine.cycle(NOW).evict;
    let names = evicted.iter().map(|eviction| eviction.group.name().to_string());
    names.collect()
}

/// A pod's place: its node, and the shared GPUs there.
type Place = (Name, Vec<Name>);

/// Who is where once everything is done that is decided, as far as GPUs go.
struct Outcome<'a> {
    gpus: BTreeMap<Name, i64>,
    limits: BTreeMap<Name, (Option<Name>, Option<i64>)>,
    queues: BTreeMap<GroupKey, Name>,
    minima: BTreeMap<GroupKey, i64>,
    pods: BTreeMap<Name, &'a PodInput>,
    places: BTreeMap<Name, Place>,
}

impl<'a> Outcome<'a> {
    fn of(events: &'a [Event], decisions: &Decisions) -> Self {
        let mut outcome = Self {
            gpus: BTreeMap::new(),
            limits: BTreeMap::new(),
            queues: BTreeMap::new(),
            minima: BTreeMap::new(),
            pods: BTreeMap::new(),
            places: BTreeMap::new(),
        };
        for event in events {
            match event {
                Event::Node(node) => drop(outcome.gpus.insert(node.name.clone(), node.allocatable.gpu)),
                Event::Queue(queue) => {
                    let limit = (queue.parent.clone(), queue.gpu.limit);
                    outcome.limits.insert(queue.name.clone(), limit);
                }
                Event::Group(group) => {
                    outcome.queues.insert(group.key.clone(), group.queue.clone());
                    outcome.minima.insert(group.key.clone(), group.min_member.unwrap_or(1));
                }
                Event::Pod(pod) => {
                    let place = pod.node.clone().map(|node| (node, pod.gpu_groups.clone()));
                    if let Some(place) = place.filter(|_| pod.status == PodStatus::Running) {
                        outcome.places.insert(pod.pod.uid.clone(), place);
                    }
                    outcome.pods.insert(pod.pod.uid.clone(), pod);
                }
                _ => {}
            }
        }
        for eviction in &decisions.evict {
            outcome.places.remove(&eviction.pod.uid);
        }
        let binds = decisions
            .bind
            .iter()
            .map(|bind| (&bind.pod, &bind.node, &bind.gpu_groups));
        let plans = decisions
            .pipeline
            .iter()
            .map(|plan| (&plan.pod, &plan.node, &plan.gpu_groups));
        for (pod, node, groups) in binds.chain(plans) {
            outcome.places.insert(pod.uid.clone(), (node.clone(), groups.clone()));
        }
        outcome
    }

    /// The places with some pods where they were instead.
    fn with(&self, stay: &[&PodInput]) -> BTreeMap<Name, Place> {
        let mut places = self.places.clone();
        for pod in stay {
            let node = pod.node.clone().expect("only pods that run are evicted");
            places.insert(pod.pod.uid.clone(), (node, pod.gpu_groups.clone()));
        }
        places
    }

    fn amount(pod: &PodInput) -> i64 {
        match part(pod) {
            0 => pod.needs.gpu.count * GPU,
            part => part * pod.needs.gpu.count,
        }
    }

    fn fits(&self, places: &BTreeMap<Name, Place>) -> bool {
        let mut taken: BTreeMap<&Name, i64> = BTreeMap::new();
        let mut shared: BTreeMap<(&Name, &Name), i64> = BTreeMap::new();
        for (uid, (node, groups)) in places {
            let pod = self.pods[uid];
            if groups.is_empty() {
                *taken.entry(node).or_insert(0) += Self::amount(pod);
            }
            for group in groups {
                *shared.entry((node, group)).or_insert(0) += part(pod);
            }
        }
        for (node, _) in shared.keys() {
            *taken.entry(node).or_insert(0) += GPU;
        }
        shared.values().all(|part| *part <= GPU) && taken.iter().all(|(node, taken)| *taken <= self.gpus[*node])
    }

    /// Whether the queues of some pods, and all above, keep their limits.
    fn within_limits(&self, places: &BTreeMap<Name, Place>, stay: &[&PodInput]) -> bool {
        let path = |pod: &PodInput| {
            let leaf = pod.group.as_ref().and_then(|group| self.queues.get(group)).cloned();
            std::iter::successors(leaf, |queue| {
                self.limits.get(queue).and_then(|(parent, _)| parent.clone())
            })
        };
        let mut held: BTreeMap<Name, i64> = BTreeMap::new();
        for uid in places.keys() {
            for queue in path(self.pods[uid]) {
                *held.entry(queue).or_insert(0) += Self::amount(self.pods[uid]);
            }
        }
        let asks = stay.iter().filter(|pod| Self::amount(pod) > 0);
        asks.flat_map(|pod| path(pod)).all(|queue| {
            let limit = self.limits.get(&queue).and_then(|(_, limit)| *limit);
            limit.is_none_or(|limit| held[&queue] <= limit)
        })
    }

    /// Whether these pods of one pod group might as well have stayed.
    fn could_stay(&self, stay: &[&PodInput]) -> bool {
        let lost: Vec<&PodInput> = stay
            .iter()
            .copied()
            .filter(|pod| !self.places.contains_key(&pod.pod.uid))
            .collect();
        let places = self.with(stay);
        let whole = lost.first().is_none_or(|pod| {
            let pod_group = pod.group.as_ref().expect("all have one");
            let active = places
                .keys()
                .filter(|uid| self.pods[*uid].group.as_ref() == Some(pod_group))
                .count();
            active as i64 >= self.minima[pod_group]
        });
        whole && self.fits(&places) && self.within_limits(&places, &lost)
    }
}

/// Sets of pods that go without need: single ones that move or are lost, and parts of pod groups that are lost.
fn needless(events: &[Event], decisions: &Decisions) -> Vec<Vec<Name>> {
    let outcome = Outcome::of(events, decisions);
    let reclaimers: BTreeSet<_> = (decisions.evict.iter())
        .filter(|eviction| eviction.action == ActionKind::Reclaim)
        .map(|eviction| &eviction.for_group)
        .collect();
    let mut sets: Vec<Vec<&PodInput>> = Vec::new();
    let mut lost: BTreeMap<&GroupKey, Vec<&PodInput>> = BTreeMap::new();
    for eviction in decisions
        .evict
        .iter()
        .filter(|eviction| eviction.action != ActionKind::StaleGangEviction)
    {
        let pod = outcome.pods[&eviction.pod.uid];
        if outcome.places.contains_key(&pod.pod.uid) {
            sets.push(vec![pod]);
        } else if reclaimers.len() < 2 {
            // Where several reclaim, the later ones may have counted on what a queue had lost.
            lost.entry(&eviction.group).or_default().push(pod);
        }
    }
    for pod_group in lost.values() {
        let part = |bits: usize| {
            (0..pod_group.len())
                .filter(|at| bits & (1 << at) != 0)
                .map(|at| pod_group[at])
                .collect()
        };
        sets.extend((1..1_usize << pod_group.len()).map(part));
    }
    sets.retain(|set| outcome.could_stay(set));
    let names = |set: &Vec<&PodInput>| set.iter().map(|pod| pod.pod.name.clone()).collect();
    sets.iter().map(names).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// And where no pod is bound or goes, no pod waits for a place. Else a pod that is given a place and loses it again in each cycle would keep another
    /// waiting for ever.
    #[test]
    fn no_eviction_can_be_dropped_without_losing_a_decision(cluster in clusters_of(4..16)) {
        let mut events = Cluster::events(&cluster);
        let mut engine = engine(&events, &ALL_ACTIONS);
        for round in 0..4 {
            let decisions = engine.cycle(NOW);
            let goes = !decisions.evict.is_empty() || !decisions.bind.is_empty();
            prop_assert!(goes || decisions.pipeline.is_empty(), "in round {}: {:?}", round, decisions);
            let needless = needless(&events, &decisions);
            prop_assert!(needless.is_empty(), "{:?} might have stayed in round {}: {:?}", needless, round, decisions);
            prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
            carry_out(&mut engine, &mut events, &decisions);
            look_again(&mut engine);
        }
    }
}
