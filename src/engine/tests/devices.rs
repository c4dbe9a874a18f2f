//! Random clusters with devices that pods claim: none is given twice, and what is taken back leaves no trace.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::carry::engine;
use super::scenario::{self, NOW, group, node, open_queue, pod, queue};
use crate::engine::decision::Decisions;
use crate::engine::input::devices::{
    AllocationInput, Capacity, ClaimInput, ClaimRef, DeviceInput, OptionInput, PodClaims, PoolInput, Reach,
    RequestInput, ResultInput,
};
use crate::engine::input::{Event, GPU, Name, PodStatus, Time};
use crate::engine::model::Model;
use crate::engine::model::ids::PodId;
use crate::engine::model::pod::{Extras, Place, Status};
use crate::engine::placement::claims;
use crate::engine::placement::devices::NoDevices;
use crate::engine::placement::devices::tests::found;
use crate::engine::policy::ActionKind;

#[derive(Clone, Debug)]
struct Cluster {
    /// Devices per node; an odd one has partitions that draw on a counter.
    nodes: Vec<u8>,
    /// Devices for all nodes, given in parts.
    network: u8,
    pod_groups: Vec<RandomJob>,
}

#[derive(Clone, Debug)]
struct RandomJob {
    queue: u8,
    pods: u8,
    count: u8,
    /// All pods use one claim.
    shared: bool,
    network: bool,
    priority: u8,
}

fn clusters() -> impl Strategy<Value = Cluster> {
    let entry = (
        0..2_u8,
        1..4_u8,
        0..4_u8,
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        0..2_u8,
    )
        .prop_map(|(queue, pods, count, shared, network, priority)| RandomJob {
            queue,
            pods,
            count,
            shared,
            network,
            priority,
        });
    (
        prop::collection::vec(0..5_u8, 1..4),
        0..2_u8,
        prop::collection::vec(entry, 1..8),
    )
        .prop_map(|(nodes, network, pod_groups)| Cluster {
            nodes,
            network,
            pod_groups,
        })
}

fn device(name: String, reach: Reach) -> DeviceInput {
    DeviceInput {
        multi: matches!(reach, Reach::All),
        ..scenario::device(name, reach)
    }
}

impl Cluster {
    fn pools(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, &count) in self.nodes.iter().enumerate() {
            let name: Name = format!("n{at}").into();
            let mut input = node(&name, "0");
            (input.dra_gpus, input.gpu_resources) = (count > 0, Vec::new());
            input.allocatable.gpu = i64::from(count) * GPU;
            events.push(Event::Node(Box::new(input)));
            let mut devices: Vec<DeviceInput> = (0..count)
                .map(|at| device(format!("d{at}"), Reach::Node(name.clone())))
                .collect();
            if count % 2 == 1 {
                devices.iter_mut().for_each(|device| device.draws = vec![(0, 2)]);
            }
            events.push(Event::Pool(Box::new(PoolInput {
                driver: "gpu.example.com".into(),
                pool: name,
                complete: true,
                counters: vec![i128::from(count)],
                devices,
            })));
        }
        let mut network = device("net".to_owned(), Reach::All);
        network.meets = vec![1];
        network.gpu = false;
        network.capacities = vec![("lanes".into(), Capacity { value: 4, policy: None })];
        events.push(Event::Pool(Box::new(PoolInput {
            driver: "net.example.com".into(),
            pool: "net".into(),
            complete: true,
            counters: Vec::new(),
            devices: vec![network; usize::from(self.network)],
        })));
        events
    }

    fn events(&self) -> Vec<Event> {
        let mut events = self.pools();
        events.push(open_queue("top"));
        for at in 0..2 {
            events.push(Event::Queue(Box::new(queue(&format!("q{at}"), "2 in top", Time(at)))));
        }
        for (at, entry) in self.pod_groups.iter().enumerate() {
            let mut group = group(&format!("j{at}"), &format!("q{}", entry.queue), at);
            group.min_member = Some(if at % 3 == 0 { i64::from(entry.pods) } else { 1 });
            group.priority = 50 + i64::from(entry.priority);
            for number in 0..usize::from(entry.pods) {
                let mut pod = pod(&group, number, "0");
                let claim: Name = if entry.shared {
                    group.key.name().into()
                } else {
                    pod.pod.name.clone()
                };
                if number == 0 || !entry.shared {
                    events.push(Event::Claim(Box::new(entry.claim(&claim))));
                }
                pod.needs_mut().gpu.dra = i64::from(entry.count);
                pod.needs_mut().gpu.dra_shared = if entry.shared { i64::from(entry.count) } else { 0 };
                pod.needs_mut().constraints = Some(if entry.shared {
                    claim.clone()
                } else {
                    format!("{}{}", entry.count, entry.network).into()
                });
                pod.claims = Some(Arc::new(PodClaims {
                    named: vec![ClaimRef {
                        reference: "gpu".into(),
                        claim: Some(claim),
                        shared: entry.shared,
                        promised: None,
                    }],
                    extended: None,
                }));
                events.push(Event::Pod(Box::new(pod)));
            }
            events.push(Event::Group(Box::new(group)));
        }
        events
    }
}

impl RandomJob {
    fn claim(&self, key: &Name) -> ClaimInput {
        let request = |name: &str, selector: u32, option: OptionInput| RequestInput {
            name: name.into(),
            options: vec![OptionInput {
                selectors: vec![selector],
                ..option
            }],
        };
        let count = |count: u8| OptionInput {
            count: Some(usize::from(count)),
            ..OptionInput::default()
        };
        let lanes = |amount: i128| OptionInput {
            capacity: vec![("lanes".into(), amount)],
            ..count(1)
        };
        let gpus = (self.count > 0).then(|| request("gpus", 0, count(self.count)));
        // Two parts of one device.
        let network = self
            .network
            .then(|| [request("net", 1, lanes(2)), request("more", 1, lanes(1))]);
        ClaimInput {
            key: key.clone(),
            queue: Some(format!("q{}", self.queue).into()),
            gpus: i64::from(self.count),
            requests: gpus.into_iter().chain(network.into_iter().flatten()).collect(),
            constraints: Vec::new(),
            problem: None,
            allocation: None,
            reserved: Vec::new(),
            foreign: false,
        }
    }
}

/// Bound pods run and hold their claims; evicted ones wait again, and claims without users are given back.
fn carry_out(events: &mut [Event], decisions: &Decisions) {
    let mut given: BTreeMap<Name, (Name, AllocationInput)> = BTreeMap::new();
    let mut users: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
    for event in events.iter_mut() {
        let Event::Pod(pod) = event else { continue };
        let bind = decisions.bind.iter().find(|bind| bind.pod.uid == pod.pod.uid);
        if let Some(bind) = bind {
            (pod.status, pod.node) = (PodStatus::Running, Some(bind.node.clone()));
            for grant in &bind.claims {
                given.insert(grant.claim.clone(), (pod.pod.uid.clone(), grant.allocation.clone()));
            }
        }
        if decisions.evict.iter().any(|eviction| eviction.pod.uid == pod.pod.uid) {
            (pod.status, pod.node) = (PodStatus::Pending, None);
        }
        if pod.node.is_some() {
            for named in pod.claims.iter().flat_map(|claims| &claims.named) {
                users
                    .entry(named.claim.clone().expect("all are there"))
                    .or_default()
                    .push(pod.pod.uid.clone());
            }
        }
    }
    for event in events {
        let Event::Claim(claim) = event else { continue };
        claim.reserved = users.remove(&claim.key).unwrap_or_default();
        if let Some((_, allocation)) = given.remove(&claim.key) {
            claim.allocation = Some(Arc::new(allocation));
        }
        if claim.reserved.is_empty() {
            claim.allocation = None;
        }
    }
}

fn all_but_pods(event: &&Event) -> bool {
    !matches!(event, Event::Pod(_))
}

proptest! {
    // PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(300),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_device_is_allocated_twice(cluster in clusters()) {
        let actions = [ActionKind::Allocate, ActionKind::Consolidation, ActionKind::Reclaim, ActionKind::Preempt];
        let mut events = cluster.events();
        let mut engine = engine(&events, &actions);
        for round in 0..4 {
            let decisions = engine.cycle(NOW);
            prop_assert!(engine.model().broken_rules().is_empty(), "after cycle {}: {:?}", round, engine.model().broken_rules());
            for bind in &decisions.bind {
                prop_assert_eq!(bind.claims.len(), 1);
            }
            for eviction in &decisions.evict {
                engine.apply(Event::PodGone(eviction.pod.uid.clone()), NOW);
                prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
            }
            carry_out(&mut events, &decisions);
            // Pods and claims in either order.
            let (first, then): (Vec<&Event>, Vec<&Event>) = events.iter().partition(all_but_pods);
            let order = if round % 2 == 0 { [first, then] } else { [then, first] };
            for event in order.into_iter().flatten() {
                engine.apply(event.clone(), NOW);
            }
            prop_assert!(engine.model().broken_rules().is_empty(), "round {}: {:?}", round, engine.model().broken_rules());
        }
    }

    #[test]
    fn deleted_resource_pools_leave_nothing_behind(cluster in clusters()) {
        let mut engine = engine(&cluster.events(), &[ActionKind::Allocate]);
        engine.cycle(NOW);
        let before = engine.model().devices().plain();
        let pools = cluster.pools();
        for event in &pools {
            if let Event::Pool(pool) = event {
                engine.apply(Event::PoolGone(pool.driver.clone(), pool.pool.clone()), NOW);
                prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
            }
        }
        for event in pools {
            engine.apply(event, NOW);
            prop_assert!(engine.model().broken_rules().is_empty(), "{:?}", engine.model().broken_rules());
        }
        prop_assert_eq!(before, engine.model().devices().plain());
        let mut uids: Vec<Name> = engine.model().pods().iter().map(|(_, pod)| pod.input.pod.uid.clone()).collect();
        uids.sort();
        for uid in uids {
            engine.apply(Event::PodGone(uid), NOW);
        }
        let taken = engine.model().devices().devices.iter().filter(|(_, device)| device.in_use(0) || device.in_use(1));
        prop_assert_eq!(taken.count(), 0);
    }

    #[test]
    fn a_rollback_restores_the_model(cluster in clusters(), steps in prop::collection::vec((any::<u16>(), any::<u8>(), 0..4_u8), 1..30)) {
        let mut engine = engine(&cluster.events(), &[ActionKind::Allocate]);
        engine.cycle(NOW);
        let model = &mut engine.model;
        let before = model.fingerprint();
        let mark = model.mark();
        let pods: Vec<PodId> = model.pods().ids().collect();
        for (pod, place, step) in steps {
            let pod = pods[usize::from(pod) % pods.len()];
            let node = model.by_name()[usize::from(place) % model.by_name().len()];
            let status = model.pods()[pod].state.status;
            let now = step == 0;
            let given = claims::choose(model, pod, node, now).ok();
            let devices = given.map(|given| {
                let used = given.into_iter().map(|given| given.used(model));
                Arc::new(used.collect())
            });
            let place = |devices| Place::new(node, Extras { devices, ..Extras::default() });
            match (step, status) {
                (0, Status::Pending) if devices.is_some() => model.allocate(pod, place(devices)),
                (1, Status::Pending | Status::Releasing) if devices.is_some() => model.pipeline(pod, place(devices)),
                (2, Status::Binding | Status::Allocated | Status::Pipelined) => model.evict(pod),
                (3, Status::Releasing) if model.pods()[pod].state.evicted_from.is_some() && model.pods()[pod].state.hold.is_some() => {
                    // Nobody may have taken its devices meanwhile.
                    if devices.as_ref() == model.pods()[pod].state.hold.as_ref().and_then(|hold| hold.extras().devices.as_ref()) {
                        model.unevict(pod);
                    }
                }
                (_, _) => {}
            }
            let broken = model.broken_rules();
            prop_assert!(!broken.contains_key(&crate::engine::model::check::Rule::DeviceNotOverGiven), "{:?}", broken);
            prop_assert!(!broken.contains_key(&crate::engine::model::check::Rule::DevicesTrue), "{:?}", broken);
        }
        model.rollback(mark);
        prop_assert_eq!(before, model.fingerprint());
        prop_assert!(model.broken_rules().is_empty(), "{:?}", model.broken_rules());
    }
}

#[test]
fn a_pod_may_be_deleted_before_the_claim_that_is_reserved_for_it() {
    let entry = RandomJob {
        queue: 0,
        pods: 1,
        count: 1,
        shared: false,
        network: false,
        priority: 0,
    };
    let cluster = Cluster {
        nodes: vec![2],
        network: 0,
        pod_groups: vec![entry],
    };
    let mut events = cluster.events();
    let mut engine = engine(&events, &[ActionKind::Allocate]);
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.bind.len(), 1);
    carry_out(&mut events, &decisions);
    for event in &events {
        engine.apply(event.clone(), NOW);
    }
    let pod = decisions.bind[0].pod.uid.clone();
    engine.apply(Event::PodGone(pod), NOW);
    assert_eq!(engine.model().broken_rules(), BTreeMap::new());
    let in_use = |at: usize| {
        engine
            .model()
            .devices()
            .devices
            .iter()
            .filter(|(_, device)| device.in_use(at))
            .count()
    };
    assert_eq!(
        (in_use(0), in_use(1)),
        (1, 0),
        "until the API server shows the claim without devices, it has them"
    );
}

#[test]
fn a_device_that_a_pool_lists_twice_does_not_stay_with_a_node_that_lost_it() {
    let mut model = Model::new(0);
    model.apply(Event::Node(Box::new(node("n0", "0"))), NOW);
    let pool = |nodes: &[&str], complete: bool| {
        let of_node = |name: &&str| device("d0".to_owned(), Reach::Node((*name).into()));
        Event::Pool(Box::new(PoolInput {
            driver: "gpu".into(),
            pool: "gpus".into(),
            complete,
            counters: Vec::new(),
            devices: nodes.iter().map(of_node).collect(),
        }))
    };
    model.apply(pool(&["n0", "n1"], false), NOW);
    model.apply(pool(&["n1"], true), NOW);
    let count = |model: &Model, name: &str| model.devices().of_node(&name.into()).len();
    assert_eq!([count(&model, "n0"), count(&model, "n1")], [0, 1]);
    model.apply(Event::PoolGone("gpu".into(), "gpus".into()), NOW);
    assert_eq!([count(&model, "n0"), count(&model, "n1")], [0, 0]);
    let request = RequestInput {
        name: "gpu".into(),
        options: vec![OptionInput {
            count: Some(1),
            ..OptionInput::default()
        }],
    };
    assert_eq!(found(&model, &request), Err(NoDevices::None));
}

/// A pod that waits, with this claim.
fn claiming(number: usize, claim: ClaimInput) -> [Event; 3] {
    let group = group(&format!("g{number}"), "q", number);
    let mut pod = pod(&group, 0, "0");
    pod.claims = Some(Arc::new(PodClaims {
        named: vec![ClaimRef {
            reference: "net".into(),
            claim: Some(claim.key.clone()),
            shared: false,
            promised: None,
        }],
        extended: None,
    }));
    [
        Event::Claim(Box::new(claim)),
        Event::Group(Box::new(group)),
        Event::Pod(Box::new(pod)),
    ]
}

#[test]
fn parts_of_one_device_in_one_allocation_count_together() {
    let mut card = device("card".to_owned(), Reach::All);
    card.gpu = false;
    card.capacities = vec![(
        "lanes".into(),
        Capacity {
            value: 10,
            policy: None,
        },
    )];
    card.draws = vec![(0, 2)];
    let pool = PoolInput {
        driver: "net".into(),
        pool: "net".into(),
        complete: true,
        counters: vec![2],
        devices: vec![card],
    };
    let request = |name: &str| RequestInput {
        name: name.into(),
        options: vec![OptionInput {
            count: Some(1),
            capacity: vec![("lanes".into(), 4)],
            ..OptionInput::default()
        }],
    };
    let result = |request: &str| ResultInput {
        request: request.into(),
        driver: "net".into(),
        pool: "net".into(),
        device: "card".into(),
        admin: false,
        taken: Some(vec![("lanes".into(), 4)]),
    };
    let claim = |key: &str, requests: &[RequestInput], allocation: Option<AllocationInput>| ClaimInput {
        key: key.into(),
        queue: None,
        gpus: 0,
        requests: requests.into(),
        constraints: Vec::new(),
        problem: None,
        allocation: allocation.map(Arc::new),
        reserved: Vec::new(),
        foreign: false,
    };
    let both = AllocationInput {
        results: vec![result("x"), result("y")],
        nodes: None,
    };
    let mut events = vec![
        Event::Node(Box::new(node("n0", "0"))),
        Event::Pool(Box::new(pool)),
        open_queue("q"),
    ];
    events.extend(claiming(0, claim("ns/two", &[request("x"), request("y")], Some(both))));
    events.extend(claiming(1, claim("ns/one", &[request("x")], None)));
    let mut engine = engine(&events, &[ActionKind::Allocate]);
    let model = &mut engine.model;
    let node = model.nodes().ids().next().expect("a node");
    let pods: Vec<PodId> = model.pods().ids().collect();
    // Of the counter, the device takes 2 once.
    let known = claims::choose(model, pods[0], node, true).expect("its devices are free");
    assert!(known[0].known.is_some());
    let given = claims::choose(model, pods[1], node, false).expect("its devices are free later");
    let used = given.into_iter().map(|given| given.used(model)).collect();
    let extras = Extras {
        devices: Some(Arc::new(used)),
        ..Extras::default()
    };
    model.pipeline(pods[1], Place::new(node, extras));
    let refused = claims::choose(model, pods[0], node, true).expect_err("8 and 4 of 10");
    assert_eq!(refused, "devices of claim ns/two are promised to another");
}

#[test]
fn a_free_device_is_used_before_that_of_a_running_pod() {
    let entry = |priority| RandomJob {
        queue: 0,
        pods: 1,
        count: 1,
        shared: false,
        network: false,
        priority,
    };
    let cluster = |pod_groups| Cluster {
        nodes: vec![2],
        network: 0,
        pod_groups,
    };
    let running = engine(&cluster(vec![entry(0)]).events(), &[ActionKind::Allocate]).cycle(NOW);
    assert_eq!(running.bind.len(), 1);
    let mut events = cluster(vec![entry(0), entry(1)]).events();
    carry_out(&mut events, &running);
    let decisions = engine(&events, &[ActionKind::Preempt]).cycle(NOW);
    assert_eq!((decisions.evict.len(), decisions.bind.len()), (0, 1), "{decisions:?}");
}
