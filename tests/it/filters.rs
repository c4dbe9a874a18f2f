//! Random nodes and pods, many of them odd: the scheduler's decision about a pod and a node equals that of a simple reference implementation.
//!
//! `UNIKAI_FUZZ_PAIRS` sets how many pairs of a pod and a node, and how many clusters, are tried.

mod objects;
mod reference;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use unikai::api::lenient;
use unikai::engine::Engine;
use unikai::engine::input::Time;
use unikai::engine::policy::Policy;
use unikai::kinds::Object;
use unikai::mirror::{Mirror, PackedChange, Settings};

use objects::Random;

const NOW: Time = Time(1_767_225_600_000);
/// Pairs tried by default.
const PAIRS: u64 = 4_000;

/// A scheduler without a cluster: objects in, decisions out.
struct Scheduler {
    mirror: Mirror,
    engine: Engine,
}

impl Scheduler {
    fn new() -> Self {
        Self {
            mirror: Mirror::new(Settings::default()),
            engine: Engine::new(Policy::default()),
        }
    }

    fn see(&mut self, object: Object) -> Vec<String> {
        let output = self.mirror.apply(&PackedChange::Applied(object.into()));
        for event in output.events {
            self.engine.apply(event, NOW);
        }
        output.rejections.iter().map(ToString::to_string).collect()
    }
}

fn queue() -> Object {
    let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
    let queue = json!({
        "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"},
        "spec": {"resources": {"cpu": open, "memory": open, "gpu": open}},
    });
    Object::Queue(Arc::new(serde_json::from_value(queue).unwrap()))
}

fn group() -> Object {
    let group = json!({
        "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ns", "uid": "g"}, "spec": {"queue": "q", "minMember": 1},
    });
    Object::PodGroup(Arc::new(serde_json::from_value(group).unwrap()))
}

/// Whether the pod is bound, what is said about it if not, and what was told about odd values.
fn decide(node: &Node, there: &[Pod], pod: &Pod) -> (bool, Option<String>, Vec<String>) {
    let mut scheduler = Scheduler::new();
    for object in [queue(), group(), Object::Node(Arc::new(node.clone()))] {
        scheduler.see(object);
    }
    for other in there {
        scheduler.see(Object::Pod(Arc::new(other.clone())));
    }
    let told = scheduler.see(Object::Pod(Arc::new(pod.clone())));
    let decisions = scheduler.engine.cycle(NOW);
    let report = decisions.unschedulable.first().map(|report| report.message.clone());
    (!decisions.bind.is_empty(), report, told)
}

/// How many pairs, or clusters, to try.
fn many(default: u64) -> u64 {
    let asked = std::env::var("UNIKAI_FUZZ_PAIRS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Extreme numbers in queues and pod groups: every cycle terminates, the invariants hold, and every pending pod group has a reason.
#[test]
fn invalid_queues_and_groups_affect_no_others() {
    let read = |value: &Value| -> Object {
        match value["kind"].as_str() {
            Some("Queue") => Object::Queue(Arc::new(lenient::decode(value.clone()).expect("it decodes"))),
            Some("PodGroup") => Object::PodGroup(Arc::new(lenient::decode(value.clone()).expect("it decodes"))),
            Some("Node") => Object::Node(Arc::new(lenient::decode(value.clone()).expect("it decodes"))),
            _ => Object::Pod(Arc::new(lenient::decode(value.clone()).expect("it decodes"))),
        }
    };
    let (mut bound, mut told, mut astray) = (0, 0, 0);
    for seed in 0..many(400) {
        let random = &mut Random::new(!seed);
        let mut objects = vec![
            random.queue("root", None),
            random.queue("left", Some("root")),
            random.queue("right", Some("root")),
        ];
        objects.push(random.node());
        for at in 0..4 {
            objects.push(random.group(&format!("g{at}")));
            for pod in 0..2 {
                let running = random.below(2) == 0;
                let mut pod = random.pod(&format!("p{at}-{pod}"), running.then_some("n0"));
                pod["spec"]["schedulerName"] = json!("kai-scheduler");
                pod["metadata"]["annotations"]["pod-group-name"] = json!(format!("g{at}"));
                if random.below(3) == 0 {
                    pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] = json!("s0");
                }
                objects.push(pod);
            }
        }
        let mut scheduler = Scheduler::new();
        for object in &objects {
            scheduler.see(read(object));
        }
        for _ in 0..3 {
            let decisions = scheduler.engine.cycle(NOW);
            bound += decisions.bind.len();
            told += decisions.unschedulable.len();
            astray += decisions.unknown_sub_groups.len();
            assert!(
                decisions.unschedulable.iter().all(|report| !report.message.is_empty()),
                "seed {seed}"
            );
        }
    }
    assert!(
        bound.min(told).min(astray) > 0,
        "{bound} bound, {told} told, {astray} astray"
    );
}

#[test]
fn a_pod_is_bound_to_a_node_if_and_only_if_every_rule_allows_it() {
    let pairs = many(PAIRS);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..pairs {
        let random = &mut Random::new(seed);
        let (node, pod) = (random.node(), random.pod("waits", None));
        let there: Vec<Value> = (0..random.below(3))
            .map(|at| random.pod(&format!("runs-{at}"), Some("n0")))
            .collect();
        let describe = || format!("seed {seed}\nnode {node}\nthere {there:?}\npod {pod}");
        let typed = |value: &Value| lenient::decode::<Pod>(value.clone()).expect("it decodes");
        let (node_object, pod_object) = (lenient::decode(node.clone()).expect("it decodes"), typed(&pod));
        let others: Vec<Pod> = there.iter().map(typed).collect();
        let (bound, message, told) = decide(&node_object, &others, &pod_object);
        let refusal = reference::refusal(&node, &there, &pod);
        assert_eq!(
            bound,
            refusal.is_none(),
            "reference: {refusal:?}, {message:?}\n{}",
            describe()
        );
        *reasons.entry(refusal.unwrap_or("fits")).or_default() += 1;
        if let Some(refusal) = refusal {
            assert!(
                message.is_some_and(|message| !message.is_empty()),
                "no word about {refusal}\n{}",
                describe()
            );
        }
        if refusal == Some(reference::UNREADABLE) {
            assert!(
                !told.is_empty(),
                "nobody is told of the unreadable request\n{}",
                describe()
            );
        }
    }
    println!("{pairs} pairs: {reasons:?}");
    for reason in reference::REASONS {
        assert!(
            reasons.contains_key(reason),
            "no pair was refused for {reason}: {reasons:?}"
        );
    }
    assert!(reasons["fits"] * 20 > pairs, "too few pairs fit: {reasons:?}");
}
