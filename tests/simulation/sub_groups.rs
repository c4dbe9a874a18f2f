//! Gangs in sub-groups, and the topology by which each of them may be kept in one rack.

use serde_json::{Value, json};

use crate::actors::{group, member};

/// The label of a node that names its rack.
pub const RACK: &str = "rack";
/// The label of a pod that names its sub-group.
pub const SUB_GROUP: &str = "kai.scheduler/subgroup-name";
const TOPOLOGY: &str = "racks";

/// How the pods of a gang in sub-groups are to be together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Together {
    /// They may be anywhere.
    No,
    /// Those of a sub-group are in one rack.
    InRack,
    /// Those of a sub-group are in one rack if possible.
    PreferRack,
    /// There are sub-groups above these, each above every second one, and the pods below each are in one rack.
    AboveInRack,
}

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

/// A pod group with so many sub-groups that have pods, each with this minimum.
pub fn gang(gang: &str, namespace: &str, queue: &str, sub_groups: u32, min: u32, together: Together) -> Value {
    let required = json!({"topology": TOPOLOGY, "requiredTopologyLevel": RACK});
    let above = |number: u32| format!("above-{}", number % 2);
    let with_pods = (0..sub_groups).map(|number| {
        let mut sub_group = json!({"name": name(number), "minMember": min});
        match together {
            Together::No => {}
            Together::InRack => sub_group["topologyConstraint"] = required.clone(),
            Together::PreferRack => {
                sub_group["topologyConstraint"] = json!({"topology": TOPOLOGY, "preferredTopologyLevel": RACK});
            }
            Together::AboveInRack => sub_group["parent"] = json!(above(number)),
        }
        sub_group
    });
    let number_above = if together == Together::AboveInRack {
        sub_groups.min(2)
    } else {
        0
    };
    let above = (0..number_above).map(|number| json!({"name": above(number), "topologyConstraint": required}));
    let all: Vec<Value> = with_pods.chain(above).collect();
    let mut group = group(gang, namespace, queue, 1);
    group["spec"] = json!({"queue": queue, "subGroups": all});
    group
}

/// All sub-groups of a pod group but one are enough, if there are several and none above them.
pub fn need_all_but_one(group: &mut Value, sub_groups: u32) {
    let listed = group["spec"]["subGroups"].as_array().map_or(0, Vec::len);
    if sub_groups > 1 && listed == sub_groups as usize {
        group["spec"]["minSubGroup"] = json!(sub_groups - 1);
    }
}

/// A pod of a sub-group.
pub fn pod(pod: &str, namespace: &str, queue: &str, gang: &str, sub_group: u32, gpus: u32) -> Value {
    let mut pod = member(pod, namespace, queue, gang, gpus);
    pod["metadata"]["labels"][SUB_GROUP] = json!(name(sub_group));
    pod
}
