use serde_json::{Value, json};

use super::*;

fn pod(metadata: Value, spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn spec(mut rest: Value) -> Pod {
    if rest.get("containers").is_none() {
        rest["containers"] = json!([]);
    }
    pod(json!({}), rest)
}

fn list(count: usize, one: impl Fn(usize) -> Value) -> Value {
    (0..count).map(one).collect()
}

fn map(count: usize, prefix: &str) -> Value {
    let entries = (0..count).map(|at| (format!("{prefix}{at}"), json!("1")));
    Value::Object(entries.collect())
}

fn term(selector: Value) -> Value {
    json!({"topologyKey": "zone", "labelSelector": selector})
}

fn near(required: Value, preferred: Value) -> Pod {
    spec(json!({"affinity": {"podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }}}))
}

fn requirement(values: usize) -> Value {
    json!({"key": "k", "operator": "NotIn", "values": list(values, |at| json!(format!("v{at}")))})
}

fn node_affinity(requirements: Value) -> Pod {
    let term = json!([{"matchExpressions": requirements}]);
    let required = json!({"nodeSelectorTerms": term});
    spec(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}))
}

/// A limit, and a pod with so many of what it limits.
type Case = (&'static str, usize, fn(usize) -> Pod);

const CASES: &[Case] = &[
    ("labels that name a GPU group", limits::GPU_GROUPS_PER_POD, |count| {
        pod(
            json!({"labels": map(count, label::GPU_GROUP_PREFIX)}),
            json!({"containers": []}),
        )
    }),
    ("labels", limits::LABELS_PER_POD, |count| {
        pod(json!({"labels": map(count, "l")}), json!({"containers": []}))
    }),
    ("annotations", limits::ANNOTATIONS_PER_POD, |count| {
        pod(json!({"annotations": map(count, "a")}), json!({"containers": []}))
    }),
    ("containers", limits::CONTAINERS_PER_POD, |count| {
        let half = |from: usize| list(count / 2, |at| json!({"name": format!("c{}", from + at)}));
        let odd = list(count % 2, |_| json!({"name": "e"}));
        spec(json!({"containers": half(0), "initContainers": half(count), "ephemeralContainers": odd}))
    }),
    ("names of resources", limits::RESOURCE_NAMES_PER_POD, |count| {
        let container = |prefix: &str| json!({"name": prefix, "resources": {"requests": map(count / 2, prefix)}});
        let overhead = map(count % 2, "overhead");
        spec(
            json!({"containers": [container("a.com/r"), container("a.com/r"), container("b.com/r")], "overhead": overhead}),
        )
    }),
    ("names of resources", limits::RESOURCE_NAMES_PER_POD, |count| {
        let container = json!({"name": "c", "resources": {"requests": map(count - count / 2, "a.com/r")}});
        let pages = map(count / 2, "hugepages-");
        spec(json!({"containers": [container], "resources": {"requests": pages, "limits": pages}}))
    }),
    ("ports", limits::PORTS_PER_POD, |count| {
        spec(json!({"containers": [{"name": "c", "ports": list(count, |at| json!({"containerPort": at}))}]}))
    }),
    (
        "entries of the node selector",
        limits::NODE_SELECTORS_PER_POD,
        |count| spec(json!({"nodeSelector": map(count, "n")})),
    ),
    ("tolerations", limits::TOLERATIONS_PER_POD, |count| {
        spec(json!({"tolerations": list(count, |at| json!({"key": format!("t{at}"), "operator": "Exists"}))}))
    }),
    ("volumes", limits::VOLUMES_PER_POD, |count| {
        spec(json!({"volumes": list(count, |at| json!({"name": format!("v{at}"), "emptyDir": {}}))}))
    }),
    ("claims for devices", limits::CLAIMS_PER_POD, |count| {
        spec(json!({"resourceClaims": list(count, |at| json!({"name": format!("c{at}")}))}))
    }),
    (
        "requirements of the node affinity",
        limits::NODE_REQUIREMENTS_PER_POD,
        |count| node_affinity(list(count, |_| requirement(0))),
    ),
    ("values in the node affinity", limits::NODE_VALUES_PER_POD, |count| {
        node_affinity(json!([requirement(count / 2), requirement(count - count / 2)]))
    }),
    (
        "affinity terms to other pods",
        limits::AFFINITY_TERMS_PER_POD,
        |count| {
            let preferred = list(count / 2, |_| json!({"weight": 1, "podAffinityTerm": term(json!({}))}));
            near(list(count - count / 2, |_| term(json!({}))), preferred)
        },
    ),
    (
        "requirements in an affinity term",
        limits::SELECTOR_REQUIREMENTS,
        |count| near(json!([term(json!({"matchLabels": map(count, "l")}))]), json!([])),
    ),
    ("values in an affinity term", limits::SELECTOR_VALUES, |count| {
        near(
            json!([term(json!({"matchExpressions": [requirement(count)]}))]),
            json!([]),
        )
    }),
    (
        "topology spread constraints",
        limits::SPREAD_CONSTRAINTS_PER_POD,
        |count| {
            let one = |_| json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
            spec(json!({"topologySpreadConstraints": list(count, one)}))
        },
    ),
    (
        "values in a topology spread constraint",
        limits::SELECTOR_VALUES,
        |count| {
            let selector = json!({"matchExpressions": [requirement(count)]});
            let one = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector});
            spec(json!({"topologySpreadConstraints": [one]}))
        },
    ),
    (
        "requirements and values in affinity terms and spread constraints together",
        limits::SELECTOR_ENTRIES_PER_POD,
        |count| {
            let all = limits::AFFINITY_TERMS_PER_POD + limits::SPREAD_CONSTRAINTS_PER_POD;
            let selector = |at: usize| {
                let own = count / all + usize::from(at < count % all);
                json!({"matchExpressions": [requirement(own - 1)]})
            };
            let mut pod = near(list(limits::AFFINITY_TERMS_PER_POD, |at| term(selector(at))), json!([]));
            let spread = |at: usize| {
                json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": selector(limits::AFFINITY_TERMS_PER_POD + at)})
            };
            let spreads = list(limits::SPREAD_CONSTRAINTS_PER_POD, spread);
            let spec = pod.spec.get_or_insert_default();
            spec.topology_spread_constraints = serde_json::from_value(spreads).unwrap();
            pod
        },
    ),
    (
        "namespace selectors in affinity terms",
        limits::NAMESPACE_SELECTORS_PER_POD,
        |count| {
            let one = |at: usize| json!({"topologyKey": "zone", "namespaceSelector": {"matchLabels": {format!("l{at}"): "1"}}});
            near(list(count.min(limits::AFFINITY_TERMS_PER_POD), one), json!([]))
        },
    ),
];

#[test]
fn pods_at_the_limits_are_accepted() {
    for (what, limit, build) in CASES {
        assert_eq!(of_pod(&build(*limit)), None, "{what}");
        let one_more = build(limit + 1);
        let excess = Some(ExceededLimit { what, limit: *limit });
        assert_eq!(of_pod(&one_more), excess);
    }
}

#[test]
fn a_trimmed_pod_is_small_and_still_exceeds_the_limit() {
    for (what, limit, build) in CASES {
        let whole = build(*limit);
        let mut same = whole.clone();
        cut_pod(&mut same);
        assert_eq!(same, whole, "{what}: within the limit nothing is cut");
        let mut cut = build(40_000);
        cut_pod(&mut cut);
        let excess = of_pod(&cut).map(|excess| excess.limit);
        assert_eq!(excess, Some(*limit), "{what}");
        // Containers stay all: what a pod on a node is charged for is theirs.
        if *what != "containers" {
            let length = serde_json::to_string(&cut).unwrap().len();
            assert!(length < 200_000, "{what}: {length} bytes are left");
        }
    }
}

#[test]
fn annotations_that_a_pod_is_charged_by_are_cut_last() {
    let mut requests = map(20_000, "a.com/r");
    for name in ["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"] {
        requests[name] = json!("3");
    }
    let mut labels = map(20_000, "a");
    labels[label::GPU_GROUP] = json!("g");
    labels[label::SUBGROUP_NAME] = json!("s");
    let mut annotations = map(20_000, "a");
    annotations[annotation::POD_GROUP_NAME] = json!("pg");
    annotations[annotation::GPU_FRACTION] = json!("0.5");
    let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
    let mut cut = pod(
        json!({"labels": labels, "annotations": annotations}),
        json!({"containers": containers}),
    );
    cut_pod(&mut cut);
    let spec = cut.spec.unwrap();
    let left = spec.containers[0]
        .resources
        .as_ref()
        .unwrap()
        .requests
        .as_ref()
        .unwrap();
    assert_eq!(left.len(), limits::RESOURCE_NAMES_PER_POD + 1);
    for name in ["cpu", "memory", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"] {
        assert!(left.contains_key(name), "{name}");
    }
    let labels = cut.metadata.labels.unwrap();
    assert!(labels.contains_key(label::GPU_GROUP) && labels.contains_key(label::SUBGROUP_NAME));
    let annotations = cut.metadata.annotations.unwrap();
    assert!(annotations.contains_key(annotation::POD_GROUP_NAME) && annotations.contains_key(annotation::GPU_FRACTION));
}

#[test]
fn the_records_of_users_on_a_reservation_pod_do_not_count() {
    let with = |container: &str, others: usize| {
        let mut annotations = map(600, annotation::GPU_USER_PREFIX);
        let others = map(others, "a");
        annotations
            .as_object_mut()
            .unwrap()
            .extend(others.as_object().unwrap().clone());
        pod(
            json!({"annotations": annotations}),
            json!({"containers": [{"name": container}]}),
        )
    };
    let excess = Some(ExceededLimit {
        what: "annotations",
        limit: limits::ANNOTATIONS_PER_POD,
    });
    assert_eq!(of_pod(&with("resource-reservation", 500)), None);
    assert_eq!(of_pod(&with("main", 0)), excess);
    let mut cut = with("resource-reservation", 40_000);
    cut_pod(&mut cut);
    assert_eq!(of_pod(&cut), excess);
    let annotations = cut.metadata.annotations.unwrap();
    let records = annotations.keys().filter(|key| trim::is_user_record(key)).count();
    assert_eq!(
        (records, annotations.len() - records),
        (600, limits::ANNOTATIONS_PER_POD + 1)
    );
}

fn sub(name: usize, parent: Option<usize>) -> SubGroup {
    SubGroup {
        name: format!("s{name}"),
        parent: parent.map(|parent| format!("s{parent}")),
        ..SubGroup::default()
    }
}

#[test]
fn sub_groups_are_bounded_in_number_and_depth() {
    let chain = |length: usize| -> Vec<SubGroup> { (0..length).map(|at| sub(at, at.checked_sub(1))).collect() };
    let flat = |length: usize| -> Vec<SubGroup> { (0..length).map(|at| sub(at, None)).collect() };
    let said = |subs: &[SubGroup]| {
        let spec = PodGroupSpec {
            sub_groups: subs.to_vec(),
            ..PodGroupSpec::default()
        };
        of_group(&spec).map(|excess| excess.to_string())
    };
    assert_eq!(said(&chain(limits::SUB_GROUP_DEPTH)), None);
    let deep = Some("more than 16 levels of sub-groups".to_owned());
    assert_eq!(said(&chain(limits::SUB_GROUP_DEPTH + 1)), deep);
    assert_eq!(said(&chain(4_000)), deep);
    assert_eq!(said(&flat(limits::SUB_GROUPS_PER_POD_GROUP)), None);
    assert_eq!(said(&flat(10_000)).as_deref(), Some("more than 4096 sub-groups"));
    let circle = [sub(0, Some(1)), sub(1, Some(0))];
    assert_eq!(said(&circle), deep, "a circle has no end");
}

#[test]
fn texts_of_pod_groups_are_bounded() {
    let long = |length: usize| "ß".repeat(length / 2);
    let specs = |text: String| {
        [
            json!({"queue": text}),
            json!({"priorityClassName": text}),
            json!({"preemptionDelay": text}),
            json!({"topologyConstraint": {"topology": text}}),
            json!({"subGroups": [{"name": text}]}),
            json!({"subGroups": [{"name": "s", "parent": text}]}),
            json!({"subGroups": [{"name": "s", "topologyConstraint": {"topology": "t", "requiredTopologyLevel": text}}]}),
        ]
    };
    for spec in specs(long(limits::POD_GROUP_TEXT_BYTES)) {
        let spec: PodGroupSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(of_group(&spec), None);
    }
    for spec in specs(long(400_000)) {
        let mut group = PodGroup::new("g", serde_json::from_value(spec).unwrap());
        cut_group(&mut group);
        let said = of_group(&group.spec).map(|excess| excess.to_string());
        assert_eq!(
            said.as_deref(),
            Some("more than 317 bytes in a name or another text of the pod group")
        );
        assert!(serde_json::to_string(&group).unwrap().len() < 1_000);
    }
}
