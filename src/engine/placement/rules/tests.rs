use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::engine::Engine;
use crate::engine::explain::refusal::examine;
use crate::engine::input::{
    Event, GPU, GroupInput, HostPort, NodeFault, NodeInput, NumaInput, NumaPolicy, PodInput, PodRef, Taint,
    TaintEffect, Time, Toleration, WHOLE, ZoneInput,
};
use crate::engine::model::resources::GPUS;
use crate::engine::placement::choose::tests::asking;
use crate::engine::placement::choose::{Context, Scope as SearchScope};
use crate::engine::placement::neighbours::tests::made;
use crate::engine::placement::score::Scorers;
use crate::engine::placement::volumes::tests::claiming;
use crate::engine::tests::scenario::{NOW, group, node, open_queue, placed, pod, queue};

fn entry() -> GroupInput {
    group("job", "q", 0)
}

/// The conditions by which a node is not ready.
fn faults(conditions: &[&str]) -> Vec<NodeFault> {
    let fault = |condition: &&str| NodeFault {
        condition: (*condition).into(),
        since: None,
    };
    conditions.iter().map(fault).collect()
}

fn port() -> HostPort {
    HostPort {
        ip: "".into(),
        protocol: "TCP".into(),
        port: 80,
    }
}

fn taint() -> Taint {
    Taint {
        key: "dedicated".into(),
        value: "".into(),
        effect: TaintEffect::NoSchedule,
    }
}

/// A pod of the pod group that asks for so many GPUs, and for what `change` adds.
fn asks(gpus: &str, change: impl FnOnce(&mut PodInput)) -> PodInput {
    let mut pod = pod(&entry(), 0, gpus);
    change(&mut pod);
    pod
}

/// Cores in one NUMA zone.
fn aligned(pod: &mut PodInput, cores: i64) {
    pod.numa = pod_of(asking(0, (1, cores, 0))).numa;
}

fn pod_of(events: Vec<Event>) -> PodInput {
    let pods = events.into_iter().filter_map(|event| match event {
        Event::Pod(pod) => Some(*pod),
        _ => None,
    });
    pods.last().expect("a pod")
}

fn two_zones(policy: NumaPolicy) -> Arc<NumaInput> {
    let zone = |number| ZoneInput {
        name: format!("zone-{number}").into(),
        allocatable: vec![("nvidia.com/gpu".into(), 1), ("cpu".into(), 2_000)],
    };
    Arc::new(NumaInput {
        policy,
        pod_scope: true,
        zones: (0..2).map(zone).collect(),
        free: Vec::new(),
    })
}

/// The pod group's queue, in none.
fn top_queue(text: &str) -> Event {
    let mut queue = queue("q", text, Time(0));
    queue.parent = None;
    Event::Queue(Box::new(queue))
}

/// An engine without decisions that knows the pod group and the given objects.
fn engine(policy: Policy, events: impl IntoIterator<Item = Event>) -> Engine {
    let mut engine = Engine::new(Policy {
        actions: Vec::new(),
        ..policy
    });
    for event in events {
        engine.apply(event, NOW);
    }
    engine.cycle(NOW);
    engine
}

/// A case of [`each_rule_refuses_with_its_message`]: a node, a pod, and further input.
struct Case {
    rule: &'static str,
    node: NodeInput,
    pod: PodInput,
    policy: Policy,
    events: Vec<Event>,
    change: fn(&mut Engine),
    words: &'static [&'static str],
}

fn case(rule: &'static str, node: NodeInput, pod: PodInput, words: &'static [&'static str]) -> Case {
    Case {
        rule,
        node,
        pod,
        policy: Policy::default(),
        events: vec![open_queue("q")],
        change: |_| {},
        words,
    }
}

fn changed(text: &str, change: impl FnOnce(&mut NodeInput)) -> NodeInput {
    let mut node = node("n0", text);
    change(&mut node);
    node
}

fn related(text: &str) -> PodInput {
    PodInput {
        group: Some(entry().key),
        ..made(0, "app=b", text)
    }
}

fn cases() -> Vec<Case> {
    let running = |pod: PodInput| Event::Pod(Box::new(placed(pod, "n0")));
    let neighbour = |labels: &str, text: &str| running(made(7, labels, text));
    let limited = top_queue("-1 L1");
    let on_port = asks("0", |pod| {
        *pod = made(7, "", "");
        pod.needs_mut().host_ports = vec![port()];
    });
    let without = |rule, node, pod, words, events: Vec<Event>| {
        let mut case = case(rule, node, pod, words);
        case.events.extend(events);
        case
    };
    let claims = asking(0, (0, 0, 1)).into_iter();
    let claims: Vec<Event> = claims.filter(|event| matches!(event, Event::Claim(_))).collect();
    let claimant = PodInput {
        group: Some(entry().key),
        ..pod_of(asking(0, (0, 0, 1)))
    };
    let stored = |text: &str| PodInput {
        group: Some(entry().key),
        ..claiming(0, text)
    };
    vec![
        case(
            "resources",
            node("n0", "1 C0 M0"),
            asks("2", |_| {}),
            &[
                "node(s) didn't have enough resources: GPUs",
                "node(s) didn't have enough resources: CPU cores",
                "node(s) didn't have enough resources: memory",
            ],
        ),
        case(
            "resources",
            node("n0", "0 mig-1g.5gb*1"),
            asks("mig-1g.5gb*2", |_| {}),
            &["node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb"],
        ),
        Case {
            events: vec![limited],
            ..case(
                "queue_quota",
                node("n0", "4 of 1000"),
                asks("900M*2", |_| {}),
                &[
                    "node does not have enough capacity. Reason: OverLimit, Details: q quota has reached the allowable limit of GPUs. Limit is 1 GPUs, currently 0 GPUs allocated and workload requested 1.8 GPUs",
                ],
            )
        },
        case(
            "gpu_kind",
            node("n0", "4"),
            asks("1", |pod| pod.needs_mut().gpu.legacy_mig = true),
            &["Legacy MIG jobs cannot be scheduled on node n0"],
        ),
        case(
            "gpu_kind",
            changed("4", |node| node.dra_gpus = true),
            asks("0.5", |_| {}),
            &["fractional/shared GPU pods are not yet supported on DRA-only nodes"],
        ),
        case(
            "gpu_kind",
            changed("1 mig-1g.5gb*1", |node| node.mig = false),
            asks("mig-1g.5gb*1", |_| {}),
            &["MIG job cannot be scheduled on non-MIG node"],
        ),
        case(
            "gpu_kind",
            node("n0", "1 mig-1g.5gb*1 nvidia.com/mig.strategy=single"),
            asks("0.5", |_| {}),
            &["only whole gpu jobs can run on a node with MigStrategy='single'"],
        ),
        case(
            "gpu_kind",
            node("n0", "1 mig-1g.5gb*1 nvidia.com/mig.strategy=mixed"),
            asks("1", |_| {}),
            &["non MIG jobs cant run on a node with MigStrategy='mixed'"],
        ),
        case(
            "gpu_kind",
            node("n0", "1"),
            asks("1", |pod| pod.needs_mut().gpu.resources = vec!["amd.com/gpu".into()]),
            &["node(s) didn't offer amd.com/gpu"],
        ),
        case(
            "whole_gpu_source",
            changed("4", |node| (node.dra_gpus, node.gpu_resources) = (true, Vec::new())),
            asks("1", |_| {}),
            &["device-plugin GPU requests cannot be scheduled on DRA-only nodes"],
        ),
        case(
            "gpu_memory_known",
            changed("1", |node| node.gpu_memory = None),
            asks("40M", |_| {}),
            &[
                "node is not a gpu node or the gpu memory count on the node was not synced yet, task: <ns/job-000>, node: <n0>",
            ],
        ),
        without(
            "gpu_sharing",
            node("n0", "1"),
            asks("0.5", |_| {}),
            &["node(s) failed to reserve a GPU for sharing and will be tried again"],
            vec![Event::SharingFailed {
                node: "n0".into(),
                retry_at: Time(NOW.0 + 1),
            }],
        ),
        case(
            "pod_slots",
            changed("1", |node| node.pods = 1),
            asks("0.5", |_| {}),
            &["node(s) pod number exceeded"],
        ),
        case(
            "pod_slots",
            changed("2", |node| node.pods = 2),
            asks("0.5*2", |_| {}),
            &["node(s) pod number exceeded"],
        ),
        case(
            "node_ready",
            changed("1", |node| {
                node.faults = faults(&["Ready=False", "DiskPressure=True", "NetworkUnavailable=Unknown"]);
                node.unschedulable = true;
            }),
            asks("1", |_| {}),
            &[
                "node is unschedulable",
                "node has NotReady condition",
                "node has DiskPressure condition",
                "node has NetworkUnavailable condition",
            ],
        ),
        case(
            "taints",
            changed("1", |node| node.taints = vec![taint()]),
            asks("1", |_| {}),
            &["node(s) had untolerated taint(s)"],
        ),
        case(
            "node_affinity",
            node("n0", "1 zone=a"),
            asks("1", |pod| {
                pod.needs_mut().node_selector = vec![("zone".into(), "b".into())];
            }),
            &["node(s) didn't match Pod's node affinity/selector"],
        ),
        without(
            "host_ports",
            node("n0", "1"),
            asks("0", |pod| pod.needs_mut().host_ports = vec![port()]),
            &["node(s) didn't have free ports for the requested pod ports"],
            vec![running(on_port)],
        ),
        case(
            "pod_affinity",
            node("n0", "1 zone=a"),
            related("near app=a by zone"),
            &["node(s) didn't match pod affinity rules"],
        ),
        without(
            "pod_affinity",
            node("n0", "1 zone=a"),
            related("apart app=a by zone"),
            &["node(s) didn't match pod anti-affinity rules"],
            vec![neighbour("app=a", "")],
        ),
        without(
            "pod_affinity",
            node("n0", "1 zone=a"),
            related(""),
            &["node(s) didn't satisfy existing pods anti-affinity rules"],
            vec![neighbour("app=a", "apart app=b by zone")],
        ),
        case(
            "topology_spread",
            node("n0", "1"),
            related("spread 1 app=b by zone"),
            &["node(s) didn't match pod topology spread constraints (missing required label)"],
        ),
        without(
            "topology_spread",
            node("n0", "1 zone=a"),
            related("spread 1 app=b by zone"),
            &["node(s) didn't match pod topology spread constraints"],
            vec![Event::Node(Box::new(node("n1", "0 zone=b"))), neighbour("app=b", "")],
        ),
        case(
            "volume_binding",
            node("n0", "1 zone=a"),
            stored("data bound on zone=b"),
            &["node(s) didn't match PersistentVolume's node affinity"],
        ),
        case(
            "volume_binding",
            node("n0", "1"),
            stored("data wait"),
            &["node(s) didn't find available persistent volumes to bind"],
        ),
        Case {
            policy: Policy {
                restrict_nodes: true,
                ..Policy::default()
            },
            ..case(
                "worker_nodes",
                node("n0", "1"),
                asks("1", |_| {}),
                &["gpu task: <ns/job-000> can't run on non gpu nodes, node: <n0>"],
            )
        },
        without(
            "resource_claims",
            node("n0", "1"),
            claimant,
            &["cannot allocate all DRA claims on node n0"],
            claims,
        ),
        case(
            "numa_alignment",
            changed("2", |node| node.numa = Some(two_zones(NumaPolicy::SingleNode))),
            asks("1", |pod| aligned(pod, 3)),
            &["node cannot NUMA-align the pod's resources under its Topology Manager policy"],
        ),
        Case {
            // Halves of two GPUs: one is idle, one is half idle and half being released.
            change: |engine| {
                let id = engine.model.by_name()[0];
                engine.model.node_mut(id).idle.bump(GPUS, -GPU / 2);
            },
            ..case("shared_gpu_choice", node("n0", "2"), asks("0.5*2", |_| {}), &[])
        },
    ]
}

/// The rule that refuses a pod on a node first, and its words.
fn refusal(pair: &PodOnNode) -> Option<(&'static str, Vec<String>)> {
    RULES.iter().find_map(|rule| {
        let reasons = (rule.reasons)(pair)?;
        Some((rule.name, reasons.iter().map(ToString::to_string).collect()))
    })
}

#[test]
fn each_rule_refuses_with_its_message() {
    let mut covered = BTreeSet::new();
    for case in cases() {
        let uid = case.pod.pod.uid.clone();
        let node = Event::Node(Box::new(case.node));
        let pods = [Event::Group(Box::new(entry())), Event::Pod(Box::new(case.pod))];
        let mut engine = engine(case.policy, [node].into_iter().chain(case.events).chain(pods));
        (case.change)(&mut engine);
        let mut pods = engine.model.pods().iter();
        let pod = pods.find(|(_, pod)| pod.input.pod.uid == uid).expect("the pod").0;
        let scorers = Scorers::of(&engine.policy);
        let spreading = Spreading::of(&engine.model, pod);
        let context = context(&engine.policy, &scorers, spreading.as_ref());
        let found = refusal(&context.pair(&engine.model, pod, engine.model.by_name()[0]));
        let words = case.words.iter().map(ToString::to_string).collect();
        assert_eq!(found, Some((case.rule, words)));
        covered.insert(case.rule);
    }
    let all: BTreeSet<_> = RULES.iter().map(|rule| rule.name).collect();
    assert_eq!(covered, all, "a case for each rule");
}

fn context<'a>(policy: &'a Policy, scorers: &'a Scorers, spreading: Option<&'a Spreading>) -> Context<'a> {
    Context {
        policy,
        scorers,
        scope: SearchScope::default(),
        spreading,
        rejected: None,
    }
}

fn random_node() -> impl Strategy<Value = NodeInput> {
    let strategies = vec![
        "",
        " mig-1g.5gb*2",
        " mig-1g.5gb*2 nvidia.com/mig.strategy=single",
        " mig-1g.5gb*2 nvidia.com/mig.strategy=mixed",
    ];
    let labels = vec!["", " zone=a", " zone=b", " zone=b gpu-worker=1"];
    let rarely = || prop::bool::weighted(0.15);
    let numa = vec![None, None, Some(NumaPolicy::SingleNode), Some(NumaPolicy::Restricted)];
    (
        (
            0..4_u8,
            prop::sample::select(vec!["", " of 1000"]),
            prop::sample::select(strategies),
            prop::sample::select(labels),
        ),
        prop::sample::select(numa),
        [rarely(), rarely(), rarely(), rarely(), rarely(), rarely()],
    )
        .prop_map(
            |((gpus, memory, mig, labels), numa, [cordoned, unready, tainted, unknown, dra, slots])| {
                let mut node = node("n", &format!("{gpus}{memory}{mig}{labels}"));
                node.unschedulable = cordoned;
                node.faults = if unready { faults(&["Ready=False"]) } else { Vec::new() };
                node.taints = if tainted { vec![taint()] } else { Vec::new() };
                node.gpu_memory = node.gpu_memory.filter(|_| !unknown);
                node.dra_gpus = dra;
                node.gpu_resources.retain(|_| !dra);
                node.pods = if slots { 1 } else { node.pods };
                node.numa = numa.map(two_zones);
                node
            },
        )
}

fn random_pod() -> impl Strategy<Value = PodInput> {
    let gpus = vec![
        "0",
        "0",
        "1",
        "1",
        "2",
        "5",
        "0.5",
        "0.3*2",
        "40M",
        "900M*2",
        "mig-1g.5gb*1",
        "mig-1g.5gb*3",
    ];
    let texts = vec![
        "",
        "",
        "near app=b by zone",
        "apart app=b by zone",
        "spread 1 app=b by zone",
    ];
    let stored = vec![
        "",
        "",
        "",
        "a bound on zone=a",
        "a lost",
        "a wait",
        "a wait made",
        "a wait rwop made",
    ];
    let rarely = || prop::bool::weighted(0.2);
    (
        prop::sample::select(gpus),
        prop::sample::select(vec!["", "app=b"]),
        prop::sample::select(texts),
        prop::sample::select(stored),
        0..5_i64,
        [rarely(), rarely(), rarely(), rarely()],
    )
        .prop_map(
            |(gpus, labels, text, stored, cores, [port_80, tolerates, selects, legacy])| {
                let relations = made(0, labels, text);
                let mut one = PodInput {
                    labels: relations.labels.clone(),
                    relations: relations.relations.clone(),
                    ..pod(&entry(), 0, gpus)
                };
                if !stored.is_empty() {
                    one.volumes = claiming(0, stored).volumes;
                }
                if cores > 2 {
                    aligned(&mut one, cores);
                }
                let needs = one.needs_mut();
                needs.host_ports = if port_80 { vec![port()] } else { Vec::new() };
                needs.gpu.legacy_mig = legacy && gpus.starts_with("mig");
                if tolerates {
                    needs.tolerations = vec![Toleration {
                        key: None,
                        exists: true,
                        value: "".into(),
                        effect: None,
                    }];
                }
                if selects {
                    needs.node_selector = vec![("zone".into(), "b".into())];
                }
                one
            },
        )
}

/// Bounds: name, whether it excludes a node, and the rules of which some then refuses.
type Bound = (&'static str, fn(&PodOnNode) -> bool, &'static [&'static str]);

const BOUNDS: [Bound; 3] = [
    (
        "the bits of the class",
        |pair| !pair.model.class_nodes(pair.pod.class).has(pair.id.at()),
        &["node_ready", "taints", "node_affinity", "volume_binding"],
    ),
    (
        "larger than all nodes",
        |pair| {
            // Pods may run on overcommitted nodes.
            let overcommitted = pair.node.idle.iter().any(|(_, amount)| amount < 0);
            !overcommitted && resources::larger_than_all_nodes(pair.model, pair.pod_id).is_some()
        },
        &["resources"],
    ),
    (
        "capacity tables",
        |pair| !gpu_kind::judge::<bool>(pair.shape, pair.node),
        &["gpu_kind"],
    ),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// The search and the report agree on every node, and the report about all nodes is the sum of those about each.
    #[test]
    fn a_pod_fits_if_and_only_if_no_rule_refuses_it(
        nodes in prop::collection::vec(random_node(), 1..6),
        running in prop::collection::vec((0..6_usize, random_pod()), 0..6),
        waiting in prop::collection::vec(random_pod(), 1..4),
        restrict_nodes in prop::bool::weighted(0.2),
        limit in prop::sample::select(vec!["-1", "-1 L1"]),
    ) {
        let policy = Policy { restrict_nodes, gpu_worker_label: "gpu-worker".to_owned(), ..Policy::default() };
        let named = |(number, pod): (usize, PodInput)| PodInput {
            pod: PodRef::new("ns", &format!("p{number}"), &format!("p{number}")),
            ..pod
        };
        let count = nodes.len();
        let nodes = nodes.into_iter().enumerate().map(|(number, mut node)| {
            node.name = format!("n{number}").into();
            Event::Node(Box::new(node))
        });
        let running = running.into_iter().enumerate().map(|(number, (on, mut pod))| {
            pod.gpu_groups = if pod.needs.gpu.portion % WHOLE == 0 { Vec::new() } else { vec![format!("g{number}").into()] };
            Event::Pod(Box::new(placed(named((100 + number, pod)), &format!("n{}", on % count))))
        });
        let waiting = waiting.into_iter().enumerate().map(|one| Event::Pod(Box::new(named(one))));
        let events = nodes.chain([top_queue(limit), Event::Group(Box::new(entry()))]).chain(running).chain(waiting);
        let Engine { mut model, policy, .. } = engine(policy, events);
        let scorers = Scorers::of(&policy);
        for pod in model.pods().ids().collect::<Vec<_>>() {
            let class = model.pods()[pod].class;
            refresh_class(&mut model, class);
            let spreading = Spreading::of(&model, pod);
            let context = context(&policy, &scorers, spreading.as_ref());
            let mut counts: BTreeMap<Refusal, usize> = BTreeMap::new();
            for &id in model.by_name() {
                let pair = context.pair(&model, pod, id);
                let reasons = refusals(&pair);
                prop_assert_eq!(fits(&pair) == Fit::Fits, reasons.is_none(), "{:?}", reasons);
                let refusing: Vec<_> = RULES.iter().filter(|rule| (rule.reasons)(&pair).is_some()).collect();
                let for_now = refusing.iter().all(|rule| rule.scope == Scope::Cluster);
                prop_assert_eq!(fits(&pair) == Fit::RefusedForNow, for_now && !refusing.is_empty());
                for (bound, ruled_out, implied) in BOUNDS {
                    let holds = !ruled_out(&pair) || refusing.iter().any(|rule| implied.contains(&rule.name));
                    prop_assert!(holds, "{}: {:?}", bound, refusing);
                }
                for reason in reasons.into_iter().flatten() {
                    *counts.entry(reason).or_insert(0) += 1;
                }
            }
            prop_assert_eq!(examine(&model, context, pod).counts, counts);
        }
    }
}
