use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::engine::Engine;
use crate::engine::input::devices::{
    Attribute, ClaimInput, ClaimRef, DeviceInput, OptionInput, PodClaims, PoolInput, Reach, RequestInput,
};
use crate::engine::input::{
    Event, HostPort, Name, NumaInput, NumaPolicy, PodNuma, TopologyConstraint, TopologyInput, ZoneInput,
};
use crate::engine::model::devices::claims::Used;
use crate::engine::model::pod::{Extras, Place, Status};
use crate::engine::placement::neighbours::tests::{made, model_of, random_pod};
use crate::engine::placement::numa;
use crate::engine::policy::{ActionKind, DEVICE_LOCALITY, NodePlacement, Strategy as Way};
use crate::engine::tests::scenario::{self, NOW, group, node, open_queue, placed, pod};

const NODES: [(&str, &str); 6] = [
    ("n0", "zone=a rack=1"),
    ("n1", "zone=a rack=2"),
    ("n2", "zone=b rack=1"),
    ("n3", "rack=2"),
    ("n4", "zone=b"),
    ("n5", "zone=a rack=1"),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Pods with relations to others: with the caches filled by earlier pods, the node is the one that the
    /// plain scores give.
    #[test]
    fn caches_of_rejected_nodes_and_preferences_do_not_change_the_choice(
        running in prop::collection::vec(random_pod(), 0..6),
        waiting in prop::collection::vec(random_pod(), 1..4),
        nominated in prop::sample::select(vec![None, None, Some("n2"), Some("n9")]),
        copies in 1..7_usize,
        order in Just((0..24_usize).collect::<Vec<_>>()).prop_shuffle(),
        taken_back in prop::collection::vec(prop::bool::weighted(0.3), 20),
    ) {
        let running: Vec<(&str, &str, &str)> = running
            .iter()
            .map(|(on, labels, text)| (NODES[*on].0, *labels, text.as_str()))
            .collect();
        let pods = waiting.iter().enumerate();
        let pods = pods.flat_map(|(kind, (_, labels, text))| {
            (0..copies).map(move |copy| made(100 + 10 * kind + copy, labels, text))
        });
        let pods = pods.map(|mut pod| {
            pod.nominated_node = nominated.map(Into::into);
            pod
        });
        let mut model = model_of(&NODES, &running, pods.collect());
        let policy = Policy::default();
        let scorers = Scorers::of(&policy);
        let rejected = RefCell::default();
        let pending = model.pods().iter().filter(|(_, pod)| pod.state.status == Status::Pending);
        let mut pending: Vec<PodId> = pending.map(|(id, _)| id).collect();
        pending.sort_by_key(|pod| order[pod.at() % order.len()]);
        let start = model.mark();
        for (pod, take_back) in pending.into_iter().zip(taken_back) {
            let class = model.pods()[pod].class;
            rules::refresh_class(&mut model, class);
            let spreading = Spreading::of(&model, pod);
            let context = Context {
                policy: &policy,
                scorers: &scorers,
                scope: Scope::default(),
                spreading: spreading.as_ref(),
                rejected: Some(&rejected),
            };
            let mut work = Work::default();
            let found = best_node(&mut model, context, pod, &mut work);
            let wanted = scan(&model, Context { rejected: None, ..context }, pod, &mut work);
            prop_assert_eq!(found, wanted);
            if let Some(node) = found {
                model.allocate(pod, Place::new(node, Extras::default()));
            }
            if take_back {
                model.rollback(start);
            }
        }
    }
}

/// So many nodes that a few of them are tested without the index.
const MANY: usize = 40;

/// A model of nodes of 16 milli-cores in seven zones; pods of one milli-core that like those of `app=b`, by node, weight and node label; and so many of `app=b`
/// that wait for `cpu` milli-cores each.
fn liked(likes: &[(usize, i32, &str)], waiting: usize, cpu: i64) -> Model {
    let nodes = (0..MANY).map(|at| (format!("n{at:02}"), format!("C16 zone=z{}", at % 7)));
    let nodes: Vec<(String, String)> = nodes.collect();
    let nodes: Vec<(&str, &str)> = nodes.iter().map(|(name, text)| (&**name, &**text)).collect();
    let texts: Vec<String> = likes
        .iter()
        .map(|(_, weight, label)| format!("likes {weight} app=b by {label}"))
        .collect();
    let running = likes.iter().zip(&texts);
    let running: Vec<(&str, &str, &str)> = running
        .map(|((on, ..), text)| (nodes[*on].0, "app=a", &**text))
        .collect();
    let waiting = (0..waiting).map(|number| {
        let mut pod = made(100 + number, "app=b", "");
        pod.needs_mut().request.cpu = cpu;
        pod
    });
    model_of(&nodes, &running, waiting.collect())
}

fn waiting_pods(model: &Model) -> Vec<PodId> {
    let waits = |pod: &PodId| model.pods()[*pod].state.status == Status::Pending;
    model.pods().ids().filter(waits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Most levels of preference have few nodes, and some have many: the node is the one that the plain scores give.
    #[test]
    fn levels_of_preference_are_tried_from_the_highest_on_whatever_their_size(
        likes in prop::collection::vec(
            (
                0..MANY,
                prop::sample::select(vec![-3, -1, 1, 2, 9]),
                prop::sample::select(vec!["zone", "kubernetes.io/hostname"]),
            ),
            1..12,
        ),
        cpu in 5..15_i64,
    ) {
        let mut model = liked(&likes, 12, cpu);
        let policy = Policy::default();
        let scorers = Scorers::of(&policy);
        let rejected = RefCell::default();
        for pod in waiting_pods(&model) {
            let class = model.pods()[pod].class;
            rules::refresh_class(&mut model, class);
            let context = Context { policy: &policy, scorers: &scorers, scope: Scope::default(), spreading: None, rejected: Some(&rejected) };
            let mut work = Work::default();
            let found = best_node(&mut model, context, pod, &mut work);
            prop_assert_eq!(found, scan(&model, Context { rejected: None, ..context }, pod, &mut work));
            if let Some(node) = found {
                model.allocate(pod, Place::new(node, Extras::default()));
            }
        }
    }
}

/// Each node is ranked once, and tested at most once.
#[test]
fn a_preference_of_its_own_on_each_node_costs_little_more_than_a_test_of_each() {
    let likes: Vec<(usize, i32, &str)> = (0..MANY)
        .map(|at| (at, at as i32 + 1, "kubernetes.io/hostname"))
        .collect();
    let steps = |cpu: i64| {
        let mut model = liked(&likes, 1, cpu);
        let pod = waiting_pods(&model)[0];
        let class = model.pods()[pod].class;
        rules::refresh_class(&mut model, class);
        let policy = Policy::default();
        let context = Context {
            policy: &policy,
            scorers: &Scorers::of(&policy),
            scope: Scope::default(),
            spreading: None,
            rejected: None,
        };
        let mut work = Work::default();
        let found = best_node(&mut model, context, pod, &mut work);
        let found = found.map(|id| model.nodes()[id].name.to_string());
        (found, work.nodes_tested as usize)
    };
    assert_eq!(steps(15), (Some("n39".to_owned()), MANY / 4 + 1));
    assert_eq!(steps(16), (None, MANY / 4 + MANY));
}

/// A node: whole GPUs, the policy of its kubelet (`None` = unknown), GPUs of each zone, and the NUMA nodes of devices that pods may claim.
type RandomNode = (u8, Option<NumaPolicy>, Vec<u8>, Vec<u8>);

fn random_node() -> impl Strategy<Value = RandomNode> {
    let policies = [
        NumaPolicy::None,
        NumaPolicy::BestEffort,
        NumaPolicy::Restricted,
        NumaPolicy::SingleNode,
    ];
    (
        0..5_u8,
        prop::option::weighted(0.7, prop::sample::select(policies.to_vec())),
        prop::collection::vec(0..3_u8, 1..4),
        prop::collection::vec(0..3_u8, 0..5),
    )
}

pub fn graded(nodes: &[RandomNode]) -> Vec<Event> {
    let mut events = vec![open_queue("q")];
    for (at, (gpus, policy, zones, devices)) in nodes.iter().enumerate() {
        let name: Name = format!("n{at}").into();
        let mut input = node(&name, &gpus.to_string());
        let zone = |(number, gpus): (usize, &u8)| ZoneInput {
            name: format!("zone-{number}").into(),
            allocatable: vec![("nvidia.com/gpu".into(), i64::from(*gpus)), ("cpu".into(), 4_000)],
        };
        input.numa = policy.map(|policy| {
            Arc::new(NumaInput {
                policy,
                pod_scope: true,
                zones: zones.iter().enumerate().map(zone).collect(),
                free: Vec::new(),
            })
        });
        events.push(Event::Node(Box::new(input)));
        let device = |(number, seat): (usize, &u8)| DeviceInput {
            gpu: false,
            attributes: vec![(DEVICE_LOCALITY[0].into(), Attribute::Int(i64::from(*seat)))],
            ..scenario::device(format!("d{number}"), Reach::Node(name.clone()))
        };
        events.push(Event::Pool(Box::new(PoolInput {
            driver: "card".into(),
            pool: name.clone(),
            complete: true,
            counters: Vec::new(),
            devices: devices.iter().enumerate().map(device).collect(),
        })));
    }
    events
}

/// A pod that requests GPUs and cores with NUMA alignment, and claims devices.
pub fn asking(number: usize, (gpus, cores, devices): (u8, i64, usize)) -> Vec<Event> {
    let group = group(&format!("g{number}"), "q", number);
    let mut pod = pod(&group, number, &gpus.to_string());
    let asked = vec![
        ("nvidia.com/gpu".into(), i64::from(gpus)),
        ("cpu".into(), cores * 1_000),
    ];
    pod.numa = (cores > 0).then(|| {
        Arc::new(PodNuma {
            guaranteed: true,
            whole: asked.clone(),
            together: vec![asked],
            alone: Vec::new(),
            record: Vec::new(),
        })
    });
    let mut events = vec![Event::Group(Box::new(group))];
    if devices > 0 {
        let claim: Name = format!("ns/c{number}").into();
        let request = RequestInput {
            name: "cards".into(),
            options: vec![OptionInput {
                selectors: vec![0],
                count: Some(devices),
                ..OptionInput::default()
            }],
        };
        events.push(Event::Claim(Box::new(ClaimInput {
            key: claim.clone(),
            queue: None,
            gpus: 0,
            requests: Arc::from([request]),
            constraints: Vec::new(),
            problem: None,
            allocation: None,
            reserved: Vec::new(),
            foreign: false,
        })));
        pod.claims = Some(Arc::new(PodClaims {
            named: vec![ClaimRef {
                reference: "cards".into(),
                claim: Some(claim.clone()),
                shared: false,
                promised: None,
            }],
            extended: None,
        }));
        pod.needs_mut().constraints = Some(claim);
    }
    events.push(Event::Pod(Box::new(pod)));
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Pods with NUMA or device locality scores: no node that the walk skips is better.
    #[test]
    fn node_by_node_scores_are_computed_until_no_later_node_can_be_better(
        nodes in prop::collection::vec(random_node(), 1..7),
        pods in prop::collection::vec((0..4_u8, 0..7_i64, 0..4_usize), 1..6),
        spread in any::<bool>(),
    ) {
        let mut policy = Policy { actions: Vec::new(), ..Policy::default() };
        let way = if spread { Way::Spread } else { Way::Binpack };
        policy.plugins.node_placement = Some(NodePlacement { gpu: way, cpu: way });
        let mut engine = Engine::new(policy.clone());
        let pods = pods.iter().enumerate().flat_map(|(number, pod)| asking(number, *pod));
        for event in graded(&nodes).into_iter().chain(pods) {
            engine.apply(event, NOW);
        }
        engine.cycle(NOW);
        let model = &mut engine.model;
        let scorers = Scorers::of(&policy);
        let pods: Vec<PodId> = model.pods().ids().collect();
        for pod in pods {
            let class = model.pods()[pod].class;
            rules::refresh_class(model, class);
            let context = Context { policy: &policy, scorers: &scorers, scope: Scope::default(), spreading: None, rejected: None };
            let mut work = Work::default();
            let found = best_node(model, context, pod, &mut work);
            prop_assert_eq!(found, scan(model, context, pod, &mut work));
            let Some(node) = found else { continue };
            let zones = match model.pods()[pod].input.numa.as_ref().map(|pod| numa::fit(&model.nodes()[node], pod, true)) {
                Some(numa::Fit::Zones(zones)) => zones,
                _ => Vec::new(),
            };
            let given = claims::choose(model, pod, node, true).unwrap_or_default();
            let used = given.into_iter().map(|given| given.used(model));
            let used: Vec<Used> = used.collect();
            let devices = (!used.is_empty()).then(|| Arc::new(used.into_iter().collect()));
            model.allocate(pod, Place::new(node, Extras { zones, devices, ..Extras::default() }));
        }
    }
}

#[test]
fn most_nodes_are_skipped_when_no_later_node_can_be_better() {
    let nodes = vec![(4, Some(NumaPolicy::SingleNode), vec![4, 4], Vec::new()); 40];
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Allocate],
        ..Policy::default()
    });
    for event in graded(&nodes).into_iter().chain(asking(0, (2, 2, 0))) {
        engine.apply(event, NOW);
    }
    let decisions = engine.cycle(NOW);
    assert_eq!(decisions.bind.len(), 1);
    assert!(decisions.work.nodes_tested < 5, "{:?}", decisions.work);
}

/// A node with one idle GPU and one that is shared, and pods that share one: the emptiest GPU comes first, if a slot is left for its reservation pod.
#[test]
fn no_gpu_is_opened_without_a_slot_for_its_reservation_pod() {
    let mut policy = Policy {
        actions: vec![ActionKind::Allocate],
        ..Policy::default()
    };
    let plugins = &mut policy.plugins;
    (plugins.gpu_pack, plugins.gpu_spread, plugins.gpu_sharing_order) = (false, true, false);
    let joins = |slots: i64| {
        let (runs, waits) = (group("a", "q", 0), group("b", "q", 1));
        let mut sharer = placed(pod(&runs, 0, "0.5"), "n0");
        sharer.gpu_groups = vec!["shared".into()];
        let mut node = node("n0", "2");
        node.pods = slots;
        let waiting = pod(&waits, 0, "0.5");
        let mut engine = Engine::new(policy.clone());
        for event in [
            open_queue("q"),
            Event::Node(Box::new(node)),
            Event::Group(Box::new(runs)),
            Event::Pod(Box::new(sharer)),
            Event::Group(Box::new(waits)),
            Event::Pod(Box::new(waiting)),
        ] {
            engine.apply(event, NOW);
        }
        let bind = engine.cycle(NOW).bind;
        bind.iter()
            .map(|bind| bind.gpu_groups.iter().any(|group| &**group == "shared"))
            .collect::<Vec<bool>>()
    };
    assert!(joins(1).is_empty(), "there is no slot");
    assert_eq!(joins(2), [true]);
    assert_eq!(joins(3), [false]);
}

/// A pod that needs two GPUs of one node displaces a pod of a gang that prefers racks. That pod cannot go to the rack that is tried first, because another pod
/// of the gang uses the same host port there. The other one may stay.
#[test]
fn a_preferred_rack_that_refuses_a_pod_for_the_host_port_of_another_is_open_to_that_one() {
    let mut engine = Engine::new(Policy {
        actions: vec![ActionKind::Consolidation],
        ..Policy::default()
    });
    for (name, text) in [("n0", "2 rack=r0"), ("n1", "1 rack=r9"), ("n2", "1 rack=r1")] {
        engine.apply(Event::Node(Box::new(node(name, text))), NOW);
    }
    let topology = TopologyInput {
        name: "net".into(),
        levels: vec!["rack".into()],
    };
    engine.apply(Event::Topology(topology), NOW);
    engine.apply(open_queue("q"), NOW);
    let mut gang = group("gang", "q", 0);
    gang.min_member = Some(2);
    gang.topology = Some(TopologyConstraint {
        topology: "net".into(),
        required: None,
        preferred: Some("rack".into()),
    });
    engine.apply(Event::Group(Box::new(gang.clone())), NOW);
    for (number, on) in ["n0", "n1"].into_iter().enumerate() {
        let mut runs = placed(pod(&gang, number, "1"), on);
        runs.needs_mut().host_ports = vec![HostPort {
            ip: Name::default(),
            protocol: "TCP".into(),
            port: 80,
        }];
        engine.apply(Event::Pod(Box::new(runs)), NOW);
    }
    let mut large = group("large", "q", 1);
    large.priority = 75;
    engine.apply(Event::Group(Box::new(large.clone())), NOW);
    engine.apply(Event::Pod(Box::new(pod(&large, 0, "2"))), NOW);
    let decisions = engine.cycle(NOW);
    let evicted: Vec<&str> = decisions.evict.iter().map(|eviction| &*eviction.pod.uid).collect();
    assert_eq!(evicted, ["gang-000"]);
    let planned = decisions.pipeline.iter().map(|plan| (&*plan.pod.uid, &*plan.node));
    let mut planned: Vec<(&str, &str)> = planned.collect();
    planned.sort_unstable();
    assert_eq!(planned, [("gang-000", "n2"), ("large-000", "n0")]);
}
