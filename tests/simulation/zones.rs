//! NUMA zones: what the agent of the nodes reports, and pods that have whole CPUs for themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::plan::ZONED;

/// The kind, without the parts that are not used here.
fn kind() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "noderesourcetopologies.topology.node.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved"},
        },
        "spec": {
            "group": "topology.node.k8s.io", "scope": "Cluster",
            "names": {
                "kind": "NodeResourceTopology", "plural": "noderesourcetopologies", "singular": "noderesourcetopology",
            },
            "versions": [
                {"name": "v1alpha2", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    })
}

/// What is there from the beginning: the kind, and the zones of each node that has some.
pub fn installed() -> impl Iterator<Item = Value> {
    let of_node = |&(node, cores): &(&str, u32)| {
        let cores = cores.to_string();
        let cpu = json!([{"name": "cpu", "capacity": cores, "allocatable": cores, "available": cores}]);
        let zones = ["node-0", "node-1"].map(|zone| json!({"name": zone, "type": "Node", "resources": cpu}));
        json!({
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "metadata": {"name": node},
            "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}], "zones": zones,
        })
    };
    std::iter::once(kind()).chain(ZONED.iter().map(of_node))
}

/// Gives a pod so many CPUs for itself: all that it requests is also its limit.
pub fn exclude(pod: &mut Value, cores: u32) {
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    for (resource, amount) in [("cpu", cores.to_string()), ("memory", "64Mi".to_owned())] {
        resources["requests"][resource] = json!(amount);
        resources["limits"][resource] = json!(amount);
    }
}

/// The CPUs of each zone that a stored pod is expected to use.
pub fn predicted(stored: &Value) -> BTreeMap<String, i64> {
    let text = stored["metadata"]["annotations"]["kai.scheduler/numa-placement-predicted"].as_str();
    let zones: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
    by_zone(zones.as_ref(), "zone", |zone| &zone["amount"]["cpu"])
}

/// The CPUs of each zone of a node, by what its agent has stored.
pub fn reported(stored: &Value) -> BTreeMap<String, i64> {
    by_zone(
        Some(&stored["zones"]),
        "name",
        |zone| &zone["resources"][0]["allocatable"],
    )
}

fn by_zone(zones: Option<&Value>, name: &str, amount: fn(&Value) -> &Value) -> BTreeMap<String, i64> {
    let zones = zones.and_then(Value::as_array).into_iter().flatten();
    let named = zones.filter_map(|zone| Some((zone[name].as_str()?.to_owned(), amount(zone).as_str()?.parse().ok()?)));
    named.collect()
}
