//! Gangs in sub-groups, and the topology by which each of them may be kept in one rack.

use serde_json::{Value, json};

use crate::actors::{group, member};

/// The label of a node that names its rack.
pub const RACK: &str = "rack";
/// The label of a pod that names its sub-group.
pub const SUB_GROUP: &str = "kai.scheduler/subgroup-name";
const TOPOLOGY: &str = "racks";

/// The topology, which is there from the beginning.
pub fn topology() -> Value {
    json!({
        "apiVersion": "kai.scheduler/v1alpha1", "kind": "Topology", "metadata": {"name": TOPOLOGY},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    })
}

fn name(number: u32) -> String {
    format!("sub-group-{number}")
}

/// A pod group with so many sub-groups, each with this minimum; `in_rack`: the pods of each are in one rack.
pub fn gang(gang: &str, namespace: &str, queue: &str, sub_groups: u32, min: u32, in_rack: bool) -> Value {
    let sub_group = |number: u32| {
        let mut sub_group = json!({"name": name(number), "minMember": min});
        if in_rack {
            sub_group["topologyConstraint"] = json!({"topology": TOPOLOGY, "requiredTopologyLevel": RACK});
        }
        sub_group
    };
    let mut group = group(gang, namespace, queue, 1);
    group["spec"] = json!({"queue": queue, "subGroups": (0..sub_groups).map(sub_group).collect::<Vec<_>>()});
    group
}

/// A pod of a sub-group.
pub fn pod(pod: &str, namespace: &str, queue: &str, gang: &str, sub_group: u32, gpus: u32) -> Value {
    let mut pod = member(pod, namespace, queue, gang, gpus);
    pod["metadata"]["labels"][SUB_GROUP] = json!(name(sub_group));
    pod
}
