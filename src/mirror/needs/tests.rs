use serde_json::{Value, json};

use super::*;

fn gpus() -> Vec<String> {
    vec!["nvidia.com/gpu".to_owned()]
}

fn base() -> Value {
    json!({
        "metadata": {"name": "a", "annotations": {"note": "x"}},
        "spec": {
            "containers": [{"name": "main", "image": "one", "resources": {"requests": {"cpu": "1"}}}],
            "volumes": [{"name": "token-abcde", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        },
    })
}

/// The base pod with another value at a place, a JSON pointer.
fn with(place: &str, value: &Value) -> Arc<Pod> {
    let mut pod = base();
    let (parent, key) = place.rsplit_once('/').expect("a place");
    let parent = pod.pointer_mut(parent).expect("a place that is there");
    match (parent, key.parse::<usize>()) {
        (Value::Array(list), Ok(at)) => list[at] = value.clone(),
        (parent, _) => parent[&*key.replace("~1", "/")] = value.clone(),
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

fn needs(templates: &Templates, pod: &Arc<Pod>) -> Arc<Needs> {
    templates.needs(pod, true, &gpus(), &mut Vec::new())
}

#[test]
fn pods_of_one_template_share_what_was_read() {
    let first = with("/metadata/name", &json!("a"));
    for (place, value) in [
        ("/metadata/name", json!("b")),
        ("/metadata/annotations/note", json!("y")),
        ("/metadata/labels", json!({"rank": "7"})),
        ("/spec/nodeName", json!("n1")),
        ("/spec/hostname", json!("b")),
        ("/spec/containers/0/env", json!([{"name": "RANK", "value": "7"}])),
        ("/spec/volumes/0/name", json!("token-vwxyz")),
        ("/status", json!({"phase": "Running"})),
    ] {
        let templates = Templates::default();
        let (one, other) = (needs(&templates, &first), needs(&templates, &with(place, &value)));
        assert!(Arc::ptr_eq(&one, &other), "{place} means nothing here");
    }
}

#[test]
fn all_differences_of_requests_are_noticed() {
    let first = with("/metadata/name", &json!("a"));
    let second = json!({"name": "more", "resources": {"requests": {"cpu": "1"}}});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}});
    for (place, value) in [
        ("/spec/containers/0/resources/requests/cpu", json!("2")),
        ("/spec/containers/0/resources/requests/memory", json!("1Gi")),
        ("/spec/containers/0/resources/requests/nvidia.com~1gpu", json!("1")),
        (
            "/spec/containers/0/ports",
            json!([{"containerPort": 80, "hostPort": 80}]),
        ),
        ("/spec/containers", json!([base()["spec"]["containers"][0], second])),
        (
            "/spec/initContainers",
            json!([{"name": "first", "resources": {"requests": {"cpu": "8"}}}]),
        ),
        ("/spec/overhead", json!({"cpu": "1"})),
        ("/spec/nodeSelector", json!({"zone": "a"})),
        ("/spec/affinity", affinity),
        ("/spec/tolerations", json!([{"operator": "Exists"}])),
        ("/spec/priorityClassName", json!("train")),
        ("/spec/priority", json!(50)),
        (
            "/spec/volumes/0",
            json!({"name": "token-abcde", "hostPath": {"path": "/data"}}),
        ),
        ("/metadata/annotations/gpu-fraction", json!("0.5")),
        ("/metadata/annotations/gpu-memory", json!("2000")),
        ("/metadata/annotations/nvidia.com~1mig-1g.5gb", json!("1")),
    ] {
        let templates = Templates::default();
        assert_ne!(
            needs(&templates, &first),
            needs(&templates, &with(place, &value)),
            "{place}"
        );
    }
    let ports = |network: bool| {
        let mut pod = base();
        pod["spec"]["hostNetwork"] = json!(network);
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
        Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
    };
    let templates = Templates::default();
    assert_ne!(needs(&templates, &ports(true)), needs(&templates, &ports(false)));
    let always = |policy: &str| {
        let request = json!({"requests": {"cpu": "1"}});
        with(
            "/spec/initContainers",
            &json!([{"name": "side", "restartPolicy": policy, "resources": request}]),
        )
    };
    assert_ne!(
        needs(&templates, &always("Always")),
        needs(&templates, &always("Never"))
    );
    let devices = |count: &str| {
        let mut pod = base();
        pod["metadata"]["annotations"] = json!({"gpu-fraction": "0.5", "gpu-fraction-num-devices": count});
        Arc::new(serde_json::from_value::<Pod>(pod).expect("a pod"))
    };
    assert_ne!(needs(&templates, &devices("2")), needs(&templates, &devices("3")));
}

#[test]
fn invalid_requests_are_reported_each_time() {
    let templates = Templates::default();
    let wild = with("/spec/containers/0/resources/requests/cpu", &json!("-1"));
    for _ in 0..2 {
        let mut problems = Vec::new();
        templates.needs(&wild, true, &gpus(), &mut problems);
        assert_eq!(problems.len(), 1);
    }
}

#[test]
fn the_cache_of_requests_is_bounded() {
    let templates = Templates::default();
    let cpu = |cpu: usize| with("/spec/containers/0/resources/requests/cpu", &json!(cpu.to_string()));
    let first = needs(&templates, &cpu(1));
    for other in 2..=REMEMBERED {
        needs(&templates, &cpu(other));
        assert!(Arc::ptr_eq(&first, &needs(&templates, &cpu(1))), "in use, and kept");
    }
    for other in 2..=REMEMBERED + 1 {
        needs(&templates, &cpu(other));
    }
    assert!(!Arc::ptr_eq(&first, &needs(&templates, &cpu(1))));
    assert_eq!(templates.last.borrow().len(), REMEMBERED);
}
