//! Scenarios: classes, slices, claims and pods as the API server has them, and what the scheduler makes of them.
//!
//! What is wanted per pod: `n0: d0 d1` = bound to n0 with these devices, in the order of its claims; `wait n0` = planned; `out` = evicted; `-` = nothing;
//! `=` = runs on. `says`: part of what is reported about the pod.

mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::engine::Engine;
use crate::engine::input::Time;
use crate::engine::policy::{ActionKind, Policy};
use crate::mirror::{Change, Mirror, Object, Settings};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scenario {
    name: String,
    /// What nodes have beside cpu and pods.
    #[serde(default)]
    nodes: BTreeMap<String, BTreeMap<String, String>>,
    /// Spec of each class.
    classes: BTreeMap<String, Value>,
    /// Spec of each slice.
    slices: BTreeMap<String, Value>,
    /// What each claim asks for, with `status`, `labels` and `owner` where it has them.
    #[serde(default)]
    claims: BTreeMap<String, Map<String, Value>>,
    pods: BTreeMap<String, PodLine>,
    #[serde(default)]
    want: BTreeMap<String, String>,
    #[serde(default)]
    says: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodLine {
    #[serde(default)]
    claims: Vec<String>,
    #[serde(default)]
    requests: BTreeMap<String, String>,
    on: Option<String>,
    #[serde(default)]
    leaving: bool,
    queue: Option<String>,
    priority: Option<i32>,
    /// Names claims that are to be made from a template, and are not there yet.
    #[serde(default)]
    unmade: Vec<String>,
}

fn object<K: DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

impl Scenario {
    fn changes(&self) -> Vec<Change> {
        let mut objects = Vec::new();
        for queue in ["top", "q", "other"] {
            let parent = (queue != "top").then_some("top");
            let gpu = json!({"quota": if queue == "top" { 100 } else { 1 }, "limit": -1, "overQuotaWeight": 1});
            let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
            objects.push(Object::Queue(object(json!({
                "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": queue},
                "spec": {"parentQueue": parent, "resources": {"gpu": gpu, "cpu": open, "memory": open}}
            }))));
        }
        for (class, spec) in &self.classes {
            objects.push(Object::DeviceClass(object(
                json!({"metadata": {"name": class}, "spec": spec}),
            )));
        }
        for (slice, spec) in &self.slices {
            objects.push(Object::ResourceSlice(object(
                json!({"metadata": {"name": slice}, "spec": spec}),
            )));
        }
        for node in ["n0", "n1"] {
            let mut allocatable: Map<String, Value> =
                [("cpu".to_owned(), "64".into()), ("pods".to_owned(), "10".into())]
                    .into_iter()
                    .collect();
            let more = self.nodes.get(node).into_iter().flatten();
            allocatable.extend(more.map(|(name, amount)| (name.clone(), amount.as_str().into())));
            objects.push(Object::Node(object(json!({
                "metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}, "status": {"allocatable": allocatable}
            }))));
        }
        for (claim, fields) in &self.claims {
            let mut devices = fields.clone();
            let mut taken = |key: &str| devices.remove(key).unwrap_or(Value::Null);
            let (status, labels, owner) = (taken("status"), taken("labels"), taken("owner"));
            let labels = if labels.is_null() {
                json!({"kai.scheduler/queue": "q"})
            } else {
                labels
            };
            let annotations = taken("annotations");
            let owners = owner
                .as_str()
                .map(|pod| json!([{"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod}]));
            objects.push(Object::ResourceClaim(object(json!({
                "metadata": {"name": claim, "namespace": "ns", "uid": claim, "labels": labels, "annotations": annotations, "ownerReferences": owners},
                "spec": {"devices": devices}, "status": status
            }))));
        }
        for (name, pod) in &self.pods {
            objects.push(Object::PodGroup(object(json!({
                "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"queue": pod.queue.as_deref().unwrap_or("q"), "minMember": 1, "priorityClassName": pod.priority.map(|priority| format!("p{priority}"))}
            }))));
            objects.push(Object::Pod(object(self.pod(name, pod))));
        }
        for priority in [10, 20] {
            objects.insert(
                0,
                Object::PriorityClass(object(
                    json!({"metadata": {"name": format!("p{priority}")}, "value": priority}),
                )),
            );
        }
        objects.into_iter().map(Change::Applied).collect()
    }

    fn pod(&self, name: &str, pod: &PodLine) -> Value {
        let owned = |claim: &str| {
            self.claims
                .get(claim)
                .is_some_and(|fields| fields.contains_key("owner"))
        };
        let named = pod.claims.iter().map(|claim| {
            if owned(claim) {
                json!({"name": claim, "resourceClaimTemplateName": "t"})
            } else {
                json!({"name": claim, "resourceClaimName": claim})
            }
        });
        let unmade = pod
            .unmade
            .iter()
            .map(|claim| json!({"name": claim, "resourceClaimTemplateName": "t"}));
        let made = pod.claims.iter().filter(|claim| owned(claim));
        let made: Vec<Value> = made
            .map(|claim| json!({"name": claim, "resourceClaimName": claim}))
            .collect();
        json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {"pod-group-name": name}, "deletionTimestamp": pod.leaving.then_some("2026-01-01T00:00:00Z")},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": pod.on,
                "containers": [{"name": "main", "resources": {"requests": pod.requests}}],
                "resourceClaims": named.chain(unmade).collect::<Vec<_>>()},
            "status": {"phase": if pod.on.is_some() { "Running" } else { "Pending" }, "resourceClaimStatuses": made}
        })
    }

    fn outcome(&self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let mut mirror = Mirror::new(Settings::default());
        let mut engine = Engine::new(Policy {
            actions: vec![ActionKind::Allocate, ActionKind::Reclaim, ActionKind::Preempt],
            ..Policy::default()
        });
        let now = Time(1_767_225_601_000);
        for change in self.changes() {
            for event in mirror.apply(&change).events {
                engine.apply(event, now);
            }
        }
        let decisions = engine.cycle(now);
        let broken = engine.model().broken_rules();
        assert!(broken.is_empty(), "{}: {broken:?}", self.name);
        let words = self.pods.iter().map(|(name, pod)| {
            let bind = decisions.bind.iter().find(|bind| *bind.pod.name == **name);
            let plan = decisions.pipeline.iter().find(|plan| *plan.pod.name == **name);
            let evicted = decisions.evict.iter().any(|eviction| *eviction.pod.name == **name);
            let word = match (bind, plan) {
                (Some(bind), _) => {
                    let given = mirror.given(bind);
                    let extended = given.extended.and_then(|extended| extended.allocation);
                    let all = given
                        .named
                        .into_iter()
                        .filter_map(|named| named.allocation)
                        .chain(extended);
                    let results =
                        all.flat_map(|allocation| allocation.devices.unwrap_or_default().results.unwrap_or_default());
                    let devices: Vec<String> = results.map(|result| result.device).collect();
                    format!("{}: {}", bind.node, devices.join(" ")).trim_end().to_owned()
                }
                (None, Some(plan)) => format!("wait {}", plan.node),
                (None, None) if evicted => "out".to_owned(),
                (None, None) if pod.on.is_some() => "=".to_owned(),
                (None, None) => "-".to_owned(),
            };
            (name.clone(), word)
        });
        let reports = decisions
            .unschedulable
            .iter()
            .map(|report| (report.group.name().to_string(), report.message.clone()));
        (words.collect(), reports.collect())
    }
}

#[test]
fn scenarios() {
    let scenarios: Vec<Scenario> = serde_yaml_ng::from_str(include_str!("tests/scenarios.yaml")).expect("scenarios");
    let mut wrong = Vec::new();
    for scenario in scenarios {
        let (words, reports) = scenario.outcome();
        for (pod, wanted) in &scenario.want {
            if words.get(pod) != Some(wanted) {
                let report = reports.get(pod).map_or("", String::as_str);
                wrong.push(format!(
                    "{}: {pod}: wanted `{wanted}`, got {:?} {report}",
                    scenario.name,
                    words.get(pod)
                ));
            }
        }
        for (pod, wanted) in &scenario.says {
            let report = reports.get(pod).map_or("", String::as_str);
            if !report.contains(wanted) {
                wrong.push(format!("{}: {pod}: wanted `{wanted}`, got `{report}`", scenario.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
