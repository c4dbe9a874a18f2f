use serde_json::{Value, json};

use super::*;

fn node() -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n1", "labels": {"zone": "a", "gpus": "8"}},
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}, {"key": "soft", "effect": "PreferNoSchedule"}]},
    }))
    .expect("a node")
}

fn pod(spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([]);
    serde_json::from_value(json!({"spec": spec})).expect("a pod")
}

fn with_affinity(term: Value) -> Pod {
    pod(
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}}),
    )
}

#[test]
fn selectors_and_required_affinity() {
    let expression = |key: &str, operator: &str, values: &[&str]| {
        with_affinity(json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
    };
    let cases = [
        ("nothing asked", pod(json!({})), true),
        ("selector", pod(json!({"nodeSelector": {"zone": "a"}})), true),
        ("other selector", pod(json!({"nodeSelector": {"zone": "b"}})), false),
        ("in", expression("zone", "In", &["b", "a"]), true),
        ("not in", expression("zone", "NotIn", &["a"]), false),
        ("not in, absent", expression("rack", "NotIn", &["a"]), true),
        ("exists", expression("rack", "Exists", &[]), false),
        ("does not exist", expression("rack", "DoesNotExist", &[]), true),
        ("greater", expression("gpus", "Gt", &["7"]), true),
        ("less", expression("gpus", "Lt", &["8"]), false),
        (
            "field",
            with_affinity(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})),
            true,
        ),
        ("empty term", with_affinity(json!({})), false),
    ];
    for (name, pod, expected) in cases {
        assert_eq!(selects(&pod, &node()), expected, "{name}");
    }
}

#[test]
fn taints_and_tolerations() {
    let cases = [
        (json!([]), false),
        (json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]), true),
        (json!([{"key": "gpu", "operator": "Exists"}]), true),
        (json!([{"key": "gpu", "value": "no"}]), false),
        (
            json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}]),
            false,
        ),
        (json!([{"operator": "Exists"}]), true),
    ];
    for (tolerations, expected) in cases {
        assert_eq!(
            tolerates(&pod(json!({"tolerations": tolerations})), &node()),
            expected,
            "{tolerations}"
        );
    }
}
