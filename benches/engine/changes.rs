//! One change of an object that many others depend on, as the scheduler's thread takes it: what it costs, and how many events the engine gets.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use unikai::engine::policy::Policy;
use unikai::mirror::{PackedChange, PackedObject, Settings, packed};
use unikai::scheduler_core::SchedulerCore;

use crate::objects::NOW;
use crate::{median_and_longest, ms, timed};

/// Devices of each node.
const DEVICES: usize = 8;
/// Different device selectors of claims.
const SELECTORS: usize = 200;
/// How often a change is measured.
const TIMES: usize = 21;

/// Runs the shapes; there are as many nodes, pods of a claim, bind requests and namespaces.
pub fn measure(shape: &str, size: usize) {
    slices(shape, size);
    claim(shape, size);
    bind_requests(shape, size);
    namespaces(shape, size);
}

fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

/// What is measured, with the events that the engine got.
struct Core {
    core: SchedulerCore,
    events: usize,
}

impl Core {
    fn new() -> Self {
        Self {
            core: SchedulerCore::new(Settings::default(), Policy::default()),
            events: 0,
        }
    }

    fn apply(&mut self, object: impl Into<PackedObject>) {
        let output = self.core.mirror.apply(&PackedChange::Applied(object.into()));
        self.events += output.events.len();
        self.core.forward(output, NOW);
    }

    /// The median and the longest of some changes, and the events of all of them.
    fn measure(&mut self, change: impl Fn(usize) -> PackedObject) -> String {
        let before = self.events;
        let times = (0..TIMES).map(change).map(|object| timed(|| self.apply(object)).0);
        let (median, longest) = median_and_longest(times);
        let events = self.events - before;
        format!("{:.3} ms (longest {:.3}, {events} events)", ms(median), ms(longest))
    }

    /// Until each selector is evaluated.
    fn evaluate(&mut self) {
        while self.core.mirror.selectors_wait() {
            let output = self.core.mirror.ask_selectors();
            self.core.forward(output, NOW);
        }
    }
}

fn node(at: usize, label: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{at}"), "labels": {"a": format!("v{label}")}},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}}})
}

fn slice(at: usize, generation: usize, model: &str, taint: bool) -> PackedObject {
    let taints = json!([{"key": "sick", "effect": "NoSchedule"}]);
    let device = |device: usize| {
        json!({"name": format!("d{device}"), "taints": if taint { &taints } else { &Value::Null },
            "attributes": {"uuid": {"string": format!("{at}-{device}")}, "model": {"string": model}, "index": {"int": device}}})
    };
    let spec = json!({"driver": "d.example.com", "nodeName": format!("n{at}"), "devices": (0..DEVICES).map(device).collect::<Vec<_>>(),
        "pool": {"name": format!("p{at}"), "generation": generation, "resourceSliceCount": 1}});
    PackedObject::ResourceSlice(object(json!({"metadata": {"name": format!("s{at}")}, "spec": spec})))
}

fn claim_of(name: &str, expression: &str, note: usize) -> PackedObject {
    let exactly = json!({"deviceClassName": "any", "selectors": [{"cel": {"expression": expression}}]});
    PackedObject::ResourceClaim(object(json!({
        "metadata": {"name": name, "namespace": "bench", "uid": name, "annotations": {"note": format!("{note}")}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    })))
}

fn slices(shape: &str, nodes: usize) {
    let mut core = Core::new();
    core.apply(PackedObject::DeviceClass(object(
        json!({"metadata": {"name": "any"}, "spec": {}}),
    )));
    for at in 0..nodes {
        core.apply(PackedObject::Node(object(node(at, 0))));
        core.apply(slice(at, 0, "large", false));
    }
    for at in 0..SELECTORS {
        let text = format!(
            "device.attributes['d.example.com'].model == 'large' && device.attributes['d.example.com'].index == {at}"
        );
        core.apply(claim_of(&format!("c{at}"), &text, 0));
    }
    core.evaluate();
    let again = core.measure(|at| slice(at, 1, "large", false));
    let taint = core.measure(|at| slice(at, 2, "large", true));
    let model = core.measure(|at| slice(at, 3, "small", false));
    core.evaluate();
    println!(
        "{shape:<20} {SELECTORS} selectors: a slice published again {again}; with taints {taint}; with another model {model}"
    );
}

fn pod(name: &str, namespace: &str, spec: Value) -> PackedObject {
    let mut pod =
        json!({"metadata": {"name": name, "namespace": namespace, "uid": format!("{namespace}-{name}")}, "spec": spec});
    pod["spec"]["schedulerName"] = "kai-scheduler".into();
    pod["spec"]["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
    PackedObject::Pod(Arc::new(packed::Pod::from(object(pod))))
}

fn claim(shape: &str, pods: usize) {
    let mut core = Core::new();
    core.apply(claim_of("shared", "true", 0));
    for at in 0..pods {
        let spec = json!({"resourceClaims": [{"name": "r", "resourceClaimName": "shared"}]});
        core.apply(pod(&format!("p{at}"), "bench", spec));
    }
    core.evaluate();
    let note = core.measure(|at| claim_of("shared", "true", at));
    println!("{shape:<20} {pods} pods of a claim: an annotation of it {note}");
}

fn bind_requests(shape: &str, requests: usize) {
    let mut core = Core::new();
    core.apply(PackedObject::Node(object(node(0, 0))));
    for at in 0..requests {
        let name = format!("p{at}");
        core.apply(pod(&name, "bench", json!({})));
        let spec = json!({"podName": name, "selectedNode": format!("n{at}"), "receivedResourceType": "Regular"});
        core.apply(PackedObject::BindRequest(object(
            json!({"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest",
            "metadata": {"name": name, "namespace": "bench"}, "spec": spec}),
        )));
    }
    let changed = core.measure(|at| PackedObject::Node(object(node(0, at + 1))));
    println!("{shape:<20} {requests} bind requests: a label of a node {changed}");
}

fn namespaces(shape: &str, namespaces: usize) {
    let mut core = Core::new();
    let namespace = |at: usize, team: usize| {
        let labels = json!({"team": format!("t{team}"), "kubernetes.io/metadata.name": format!("ns{at}")});
        PackedObject::Namespace(object(
            json!({"metadata": {"name": format!("ns{at}"), "labels": labels}}),
        ))
    };
    for at in 0..namespaces {
        core.apply(namespace(at, at % 10));
    }
    let relating = |at: usize| {
        let term = |team: usize| {
            json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}},
                "namespaceSelector": {"matchLabels": {"team": format!("t{team}")}}})
        };
        let terms: Vec<Value> = (0..8).map(term).collect();
        let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        pod(&format!("p{at}"), "bench", json!({"affinity": affinity}))
    };
    let first = core.measure(relating);
    let changed = core.measure(|at| namespace(0, at + 1));
    println!("{shape:<20} {namespaces} namespaces: a pod with 8 selectors of them {first}; a label of one {changed}");
}
