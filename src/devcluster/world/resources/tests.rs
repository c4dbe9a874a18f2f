use serde_json::json;

use super::*;

#[test]
fn a_pod_holds_its_containers_and_sidecars_or_the_largest_init_step() {
    let pod: Pod = serde_json::from_value(json!({
        "spec": {
            "initContainers": [
                {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                {"name": "big", "resources": {"requests": {"cpu": "8", "memory": "1"}}},
            ],
            "containers": [
                {"name": "a", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "4", "nvidia.com/gpu": "2"}}},
                {"name": "b", "resources": {"requests": {"cpu": "500m"}}},
            ],
        },
    }))
    .expect("a pod");
    let held = Amounts::of_pod(&pod);
    let shown: Vec<_> = held.iter().collect();
    assert_eq!(
        shown,
        [
            ("cpu", 9_000),
            ("memory", 1_000),
            ("nvidia.com/gpu", 2_000),
            ("pods", 1_000)
        ]
    );
}

#[test]
fn what_a_pod_requests_as_a_whole_replaces_the_requests_of_its_containers() {
    let pod: Pod = serde_json::from_value(json!({
        "spec": {
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "2"}}}],
            "initContainers": [{"name": "big", "resources": {"requests": {"cpu": "8"}}}],
            "resources": {"requests": {"cpu": "4", "memory": "2", "nvidia.com/gpu": "9"}},
            "overhead": {"cpu": "500m"},
        },
    }))
    .expect("a pod");
    let held = Amounts::of_pod(&pod);
    let shown: Vec<_> = held.iter().collect();
    assert_eq!(
        shown,
        [
            ("cpu", 4_500),
            ("memory", 2_000),
            ("nvidia.com/gpu", 2_000),
            ("pods", 1_000)
        ]
    );
}
