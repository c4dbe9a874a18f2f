//! Scenarios: classes, slices, claims and pods as the API server has them, and what the scheduler makes of them.
//!
//! What is wanted per pod: `n0: d0 d1` = bound to n0 with these devices, in the order of its claims; `wait n0` = planned; `out` = evicted; `-` = nothing;
//! `=` = runs on. `says`: part of what is reported about the pod.

mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::engine::Engine;
use crate::engine::input::{Event, Time};
use crate::engine::policy::{ActionKind, Policy};
use crate::mirror::{FallbackQueue, Mirror, PackedChange, PackedObject, Settings, packed};

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
    /// Each by its own name, or by that of a reference: `reference=claim`.
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
    fn changes(&self) -> Vec<PackedChange> {
        let mut objects = Vec::new();
        for queue in ["top", "q", "other"] {
            let parent = (queue != "top").then_some("top");
            let gpu = json!({"quota": if queue == "top" { 100 } else { 1 }, "limit": -1, "overQuotaWeight": 1});
            let open = json!({"quota": -1, "limit": -1, "overQuotaWeight": 1});
            objects.push(PackedObject::Queue(object(json!({
                "apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": queue},
                "spec": {"parentQueue": parent, "resources": {"gpu": gpu, "cpu": open, "memory": open}}
            }))));
        }
        for (class, spec) in &self.classes {
            objects.push(PackedObject::DeviceClass(object(
                json!({"metadata": {"name": class}, "spec": spec}),
            )));
        }
        for (slice, spec) in &self.slices {
            objects.push(PackedObject::ResourceSlice(object(
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
            objects.push(PackedObject::Node(object(json!({
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
            objects.push(PackedObject::ResourceClaim(object(json!({
                "metadata": {"name": claim, "namespace": "ns", "uid": claim, "labels": labels, "annotations": annotations, "ownerReferences": owners},
                "spec": {"devices": devices}, "status": status
            }))));
        }
        for (name, pod) in &self.pods {
            objects.push(PackedObject::PodGroup(object(json!({
                "apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": name, "namespace": "ns", "uid": name},
                "spec": {"queue": pod.queue.as_deref().unwrap_or("q"), "minMember": 1, "priorityClassName": pod.priority.map(|priority| format!("p{priority}"))}
            }))));
            objects.push(PackedObject::Pod(object(self.pod(name, pod))));
        }
        for priority in [10, 20] {
            objects.insert(
                0,
                PackedObject::PriorityClass(object(
                    json!({"metadata": {"name": format!("p{priority}")}, "value": priority}),
                )),
            );
        }
        objects.into_iter().map(PackedChange::Applied).collect()
    }

    fn pod(&self, name: &str, pod: &PodLine) -> Value {
        let owned = |claim: &str| {
            self.claims
                .get(claim)
                .is_some_and(|fields| fields.contains_key("owner"))
        };
        let named = pod.claims.iter().map(|text| {
            let (reference, claim) = text.split_once('=').unwrap_or((text.as_str(), text.as_str()));
            if owned(claim) {
                json!({"name": reference, "resourceClaimTemplateName": "t"})
            } else {
                json!({"name": reference, "resourceClaimName": claim})
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
                    let mut shares = BTreeSet::new();
                    let devices: Vec<String> = results
                        .map(|result| {
                            let share = result.share_id;
                            assert!(
                                share.is_none_or(|share| shares.insert(share)),
                                "each share has its own id"
                            );
                            result.device
                        })
                        .collect();
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

/// These pods run with one claim that is reserved for them, and `late` waits for it, too.
fn sharing(users: Range<usize>) -> Scenario {
    let names: Vec<String> = users.map(|number| format!("user-{number}")).collect();
    let reserved = names
        .iter()
        .map(|name| json!({"resource": "pods", "name": name, "uid": name}));
    let reserved: Vec<Value> = reserved.collect();
    let runs = names
        .iter()
        .map(|name| (name.clone(), json!({"claims": ["shared"], "on": "n0"})));
    let mut pods: Map<String, Value> = runs.collect();
    pods.insert("late".to_owned(), json!({"claims": ["shared"]}));
    let (driver, pool) = ("net.example.com", "net");
    let allocated = json!([{"request": "net", "driver": driver, "pool": pool, "device": "card"}]);
    let scenario = json!({
        "name": "a shared claim",
        "nodes": {"n0": {"pods": "300"}},
        "classes": {"net": {}},
        "slices": {"all": {"driver": driver, "allNodes": true, "devices": [{"name": "card"}],
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}}},
        "claims": {"shared": {"requests": [{"name": "net", "exactly": {"deviceClassName": "net"}}],
            "status": {"allocation": {"devices": {"results": allocated}}, "reservedFor": reserved}}},
        "pods": pods,
    });
    serde_json::from_value(scenario).expect("a scenario")
}

#[test]
fn a_pod_waits_while_the_claim_that_it_shares_has_all_consumers_that_kubernetes_allows() {
    let (mut mirror, mut engine) = (Mirror::new(Settings::default()), Engine::new(Policy::default()));
    let now = Time(1_767_225_601_000);
    let mut cycle = |changes: &[PackedChange]| {
        for event in changes.iter().flat_map(|change| mirror.apply(change).events) {
            engine.apply(event, now);
        }
        let decisions = engine.cycle(now);
        let bound = decisions.bind.iter().map(|bind| bind.pod.name.to_string());
        let said = decisions.unschedulable.iter().map(|report| report.message.clone());
        (bound.collect::<Vec<_>>(), said.collect::<String>())
    };
    let full = sharing(0..256).changes();
    let (bound, said) = cycle(&full);
    assert_eq!(bound, [""; 0]);
    let why = "resource claim ns/shared has reached its maximum number of consumers (256)";
    assert!(said.contains(why), "{said}");

    let of_first = |change: &&PackedChange| match change {
        PackedChange::Applied(PackedObject::Pod(pod)) => &*pod.key == "ns/user-0",
        _ => false,
    };
    let mut changes: Vec<PackedChange> = full.iter().filter(of_first).map(gone).collect();
    let is_claim = |change: &PackedChange| matches!(change, PackedChange::Applied(PackedObject::ResourceClaim(_)));
    changes.extend(sharing(1..256).changes().into_iter().filter(is_claim));
    assert_eq!(cycle(&changes).0, ["late"], "one is gone");
}

fn claim(
    namespace: &str,
    name: &str,
    owner: Option<&str>,
    marked: bool,
    requests: &Value,
    status: &Value,
) -> PackedChange {
    let owners = owner.map(|uid| json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}]));
    let marked = marked.then(|| json!({"resource.kubernetes.io/extended-resource-claim": "true"}));
    PackedChange::Applied(PackedObject::ResourceClaim(object(json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name, "ownerReferences": owners, "annotations": marked},
        "spec": {"devices": {"requests": requests}}, "status": status
    }))))
}

/// The deletion of an object.
fn gone(applied: &PackedChange) -> PackedChange {
    match applied {
        PackedChange::Applied(object) => PackedChange::Deleted(object.clone()),
        other => other.clone(),
    }
}

/// A pod `p` of namespace `ns` that names these claims.
fn naming(claims: &[&str]) -> PackedChange {
    let named: Vec<Value> = claims
        .iter()
        .map(|claim| json!({"name": claim, "resourceClaimName": claim}))
        .collect();
    PackedChange::Applied(PackedObject::Pod(Arc::new(packed::Pod::from(object::<Pod>(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "victim"},
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main"}], "resourceClaims": named}
    }))))))
}

/// GPUs that the pod counts for once all this has happened.
fn gpus_of_the_pod(changes: &[PackedChange]) -> i64 {
    let mut mirror = Mirror::new(Settings::default());
    let events = changes.iter().flat_map(|change| mirror.apply(change).events);
    let told = events.filter_map(|event| match event {
        Event::Pod(pod) => Some(pod.needs.gpu.dra),
        _ => None,
    });
    told.last().expect("the pod was told of")
}

fn gpus(count: i64) -> Value {
    json!([{"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}])
}

#[test]
fn a_claim_never_counts_for_a_pod_of_another_namespace() {
    let none = Value::Null;
    let own = claim("ns", "own", None, false, &gpus(1), &none);
    let forged = claim("evil", "forged", Some("victim"), false, &gpus(1_000), &none);
    assert_eq!(gpus_of_the_pod(&[own, forged, naming(&["own"])]), 1);
}

#[test]
fn the_queue_of_a_claim_is_that_of_the_configured_label() {
    let queue = |key: Option<&str>| {
        let mut mirror = Mirror::new(Settings {
            fallback_queue: key.map(|key| FallbackQueue {
                label: key.to_owned(),
                default: "default-queue".to_owned(),
            }),
            ..Settings::default()
        });
        let labels = json!({"example.com/queue": "team", "kai.scheduler/queue": "q"});
        let claim = PackedObject::ResourceClaim(object(json!({
            "metadata": {"name": "c", "namespace": "ns", "uid": "c", "labels": labels},
            "spec": {"devices": {"requests": gpus(1)}}
        })));
        let events = mirror.apply(&PackedChange::Applied(claim)).events.into_iter();
        let mut claims = events.filter_map(|event| match event {
            Event::Claim(claim) => Some(claim.queue.map(|queue| queue.to_string())),
            _ => None,
        });
        claims.next().expect("the claim was told of")
    };
    assert_eq!(queue(Some("example.com/queue")).as_deref(), Some("team"));
    assert_eq!(queue(Some("example.com/other")), None);
    assert_eq!(queue(None).as_deref(), Some("q"), "replays know no other key");
}

#[test]
fn a_claim_with_the_extended_resource_mark_still_counts() {
    let none = Value::Null;
    let marked = claim("ns", "marked", Some("victim"), true, &gpus(8), &none);
    assert_eq!(gpus_of_the_pod(&[marked.clone(), naming(&["marked"])]), 8);
    assert_eq!(
        gpus_of_the_pod(&[marked, naming(&[])]),
        0,
        "its containers ask for them"
    );
}

#[test]
fn amounts_of_a_claim_without_a_fixed_count_count_once_allocated() {
    let choice = json!([{"name": "r", "firstAvailable": [
        {"name": "many", "deviceClassName": "gpu.example.com", "count": 8}, {"name": "few", "deviceClassName": "gpu.example.com", "count": 2}]}]);
    let all = json!([{"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "All"}}]);
    let given = |request: &str, count: usize| {
        let result = json!({"request": request, "driver": "gpu.example.com", "pool": "n0", "device": "d"});
        json!({"allocation": {"devices": {"results": vec![result; count]}}})
    };
    let count = |requests: &Value, status: &Value| {
        gpus_of_the_pod(&[claim("ns", "c", None, false, requests, status), naming(&["c"])])
    };
    assert_eq!(count(&choice, &Value::Null), 2, "the least that it may come to");
    assert_eq!(count(&choice, &given("r/many", 8)), 8);
    assert_eq!(count(&choice, &given("r/few", 2)), 2);
    assert_eq!((count(&all, &Value::Null), count(&all, &given("r", 7))), (1, 7));
}

#[test]
fn only_one_claim_provides_the_extended_resources_of_a_pod() {
    let none = Value::Null;
    let mut mirror = Mirror::new(Settings::default());
    let mut told = |change: &PackedChange| -> Vec<String> {
        let events = mirror.apply(change).events.into_iter();
        let keys = events.filter_map(|event| match event {
            Event::Claim(claim) => Some(claim.key.to_string()),
            Event::ClaimGone(key) => Some(format!("without {key}")),
            _ => None,
        });
        keys.collect()
    };
    let real = claim("ns", "real", Some("victim"), true, &gpus(1), &none);
    assert_eq!(told(&real), ["extended:ns/victim"]);
    let second = claim("ns", "second", Some("victim"), true, &gpus(1), &none);
    assert_eq!(told(&second), ["ns/second"]);
    assert_eq!(
        told(&claim("evil", "x", Some("victim"), true, &gpus(1), &none)),
        ["extended:evil/victim"]
    );
    assert_eq!(told(&gone(&second)), ["without ns/second"]);
    assert_eq!(told(&gone(&real)), ["without extended:ns/victim"]);
    assert_eq!(told(&real), ["extended:ns/victim"]);
    assert_eq!(told(&second), ["ns/second"]);
    let unmarked = claim("ns", "real", Some("victim"), false, &gpus(1), &none);
    assert_eq!(
        told(&unmarked),
        [
            "without extended:ns/victim",
            "without ns/second",
            "extended:ns/victim",
            "ns/real"
        ],
        "the next one stands for them, and the engine keeps no name that nobody has"
    );
    assert_eq!(told(&gone(&unmarked)), ["without ns/real"]);
    let moved = claim("ns", "second", Some("other"), true, &gpus(1), &none);
    assert_eq!(told(&moved), ["without extended:ns/victim", "extended:ns/other"]);
    assert_eq!(told(&gone(&moved)), ["without extended:ns/other"]);
}

#[test]
fn gpus_that_are_asked_for_by_the_name_of_their_class_count() {
    let class = |name: &str| {
        PackedChange::Applied(PackedObject::DeviceClass(object(
            json!({"metadata": {"name": name}, "spec": {}}),
        )))
    };
    let pod = |resource: &str| {
        PackedChange::Applied(PackedObject::Pod(Arc::new(packed::Pod::from(object::<Pod>(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
            "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "resources": {"requests": {resource: "8"}}}]}
        }))))))
    };
    let count = |changes: &[PackedChange]| {
        let mut mirror = Mirror::new(Settings::default());
        let events = changes.iter().flat_map(|change| mirror.apply(change).events);
        let told = events.filter_map(|event| match event {
            Event::Pod(pod) => Some((pod.needs.gpu.by_class, pod.needs.gpu.count)),
            _ => None,
        });
        told.last().expect("the pod was told of")
    };
    let gpu = class("gpu.example.com");
    let by_class = pod("deviceclass.resource.kubernetes.io/gpu.example.com");
    assert_eq!(count(&[gpu.clone(), by_class.clone()]), (8, 0));
    assert_eq!(count(&[by_class, gpu.clone()]), (8, 0), "in any order");
    assert_eq!(count(&[gpu, pod("nvidia.com/gpu")]), (0, 8), "once");
    let nic = class("nic.example.com");
    assert_eq!(
        count(&[nic, pod("deviceclass.resource.kubernetes.io/nic.example.com")]),
        (0, 0)
    );
}

#[test]
fn a_node_has_gpus_of_slices_as_long_as_slices_publish_some() {
    for plugin in ["0", "8"] {
        let mut mirror = Mirror::new(Settings::default());
        let status = json!({"allocatable": {"nvidia.com/gpu": plugin, "cpu": "8", "memory": "8Gi", "pods": "10"}});
        let node = json!({"metadata": {"name": "n"}, "status": status});
        mirror.apply(&PackedChange::Applied(PackedObject::Node(object(node))));
        let spec = json!({"driver": "gpu.nvidia.com", "nodeName": "n", "devices": [{"name": "d0"}],
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}});
        let slice = PackedObject::ResourceSlice(object(json!({"metadata": {"name": "s"}, "spec": spec})));
        let mut changed = |change: PackedChange| {
            let events = mirror.apply(&change).events;
            let mut nodes = events.into_iter().filter_map(|event| match event {
                Event::Node(node) => Some((node.dra_gpus, node.allocatable.gpu)),
                _ => None,
            });
            nodes.next_back().expect("the node changes")
        };
        let (there, more) = changed(PackedChange::Applied(slice.clone()));
        let (left, fewer) = changed(PackedChange::Deleted(slice));
        assert_eq!((there, left), (true, false), "{plugin} GPUs of a device plugin");
        assert!(more > fewer);
    }
}

#[test]
fn a_pod_that_names_a_claim_is_read_again_only_if_the_claim_changes_for_it() {
    let mut mirror = Mirror::new(Settings::default());
    mirror.apply(&naming(&["shared"]));
    let mut is_told = |change: &PackedChange| {
        let events = mirror.apply(change).events;
        events.iter().any(|event| matches!(event, Event::Pod(_)))
    };
    let shared = |count: i64, status: &Value| claim("ns", "shared", None, false, &gpus(count), status);
    let reserved = json!({"reservedFor": [{"resource": "pods", "name": "q", "uid": "q"}]});
    assert!(is_told(&shared(1, &json!({}))), "it exists");
    assert!(!is_told(&shared(1, &reserved)), "another pod has it reserved");
    assert!(is_told(&shared(2, &reserved)), "it is for more GPUs");
    assert!(is_told(&gone(&shared(2, &reserved))), "it is gone");
}
