//! Bound pods that request a part of a GPU by its memory, by node: how much of a GPU they hold depends on the node, which may be listed or labelled
//! later than they are. Pure.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::api::names::{annotation, node_label};
use crate::api::quantity;
use crate::components::pods;
use crate::components::watches::Key;
use crate::mirror::node::gpu_memory_mib;

/// Which of these pods are on which node.
#[derive(Debug, Default)]
pub struct PodsByNode {
    nodes: HashMap<String, OnNode>,
    /// The node of each pod.
    nodes_of: HashMap<Key, String>,
}

/// A node with such pods.
#[derive(Debug)]
struct OnNode {
    pods: BTreeSet<Key>,
    /// MiB of one GPU, as they were last counted with.
    memory: Option<i64>,
}

impl PodsByNode {
    /// Records a pod. Returns MiB of one GPU of its node, if they are known and the pod counts by them. `memory_of` is asked about a node without
    /// such pods so far.
    pub fn see(&mut self, pod: &Pod, memory_of: impl FnOnce(&str) -> Option<i64>) -> Option<i64> {
        let (key, node) = (Key::of(&pod.metadata), node_that_counts(pod));
        if self.nodes_of.get(&key).map(String::as_str) != node {
            self.forget(&key);
        }
        let node = node?;
        let new = || OnNode {
            pods: BTreeSet::new(),
            memory: memory_of(node),
        };
        let on = self.nodes.entry(node.to_owned()).or_insert_with(new);
        if on.pods.insert(key.clone()) {
            self.nodes_of.insert(key, node.to_owned());
        }
        on.memory
    }

    /// The pod was deleted.
    pub fn forget(&mut self, pod: &Key) {
        let Some(node) = self.nodes_of.remove(pod) else { return };
        if let Some(on) = self.nodes.get_mut(&node) {
            on.pods.remove(pod);
            if on.pods.is_empty() {
                self.nodes.remove(&node);
            }
        }
    }

    /// A node appeared or changed. Returns the pods to recount: none if the memory of its GPUs is as before.
    pub fn changed(&mut self, node: &Node) -> Vec<Key> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let Some(on) = self.nodes.get_mut(name) else {
            return Vec::new();
        };
        let memory = of_one_gpu(node);
        if on.memory == memory {
            return Vec::new();
        }
        on.memory = memory;
        on.pods.iter().cloned().collect()
    }
}

/// The node of a bound pod that requests a part of a GPU by its memory.
fn node_that_counts(pod: &Pod) -> Option<&str> {
    let by_memory = pod.metadata.annotations.as_ref()?.contains_key(annotation::GPU_MEMORY);
    pods::node(pod).filter(|_| by_memory)
}

/// MiB of one GPU of the node.
#[must_use]
pub fn of_one_gpu(node: &Node) -> Option<i64> {
    let labels = node.metadata.labels.as_ref()?;
    if let Some(memory) = labels.get(node_label::GPU_MEMORY) {
        return gpu_memory_mib(memory).filter(|memory| *memory > 0);
    }
    let size = labels
        .keys()
        .find_map(|key| key.strip_prefix(node_label::AMD_VRAM_PREFIX))?;
    let (bytes, _) = quantity::parse(size).ok()?;
    Some(bytes.units() / 1_000_000).filter(|memory| *memory > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, node: Option<&str>, annotations: Value) -> Pod {
        let metadata = json!({"namespace": "ns", "name": name, "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"nodeName": node, "containers": []}})).unwrap()
    }

    fn node(name: &str, memory: &str) -> Node {
        let labels = json!({"nvidia.com/gpu.memory": memory});
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).unwrap()
    }

    fn names(keys: Vec<Key>) -> Vec<String> {
        keys.into_iter().map(|key| key.name).collect()
    }

    #[test]
    fn pods_are_recounted_when_the_gpu_memory_of_their_node_changes() {
        let (mut pods, by_memory) = (PodsByNode::default(), json!({"gpu-memory": "2000"}));
        let unknown = |_: &str| None;
        assert_eq!(pods.see(&pod("a", Some("n1"), by_memory.clone()), unknown), None);
        assert_eq!(pods.see(&pod("b", Some("n1"), by_memory.clone()), unknown), None);
        assert_eq!(names(pods.changed(&node("n1", "4000"))), ["a", "b"]);
        assert!(pods.changed(&node("n1", "4000")).is_empty(), "it is as it was");
        assert!(pods.changed(&node("n2", "4000")).is_empty(), "no pod is there");
        // What was read of the node last counts, so it is not read again.
        assert_eq!(pods.see(&pod("a", Some("n1"), by_memory.clone()), unknown), Some(4_000));
        assert_eq!(pods.see(&pod("c", Some("n2"), by_memory), |_| Some(8_000)), Some(8_000));
        for name in ["a", "b", "c"] {
            pods.forget(&Key::of(&pod(name, None, json!({})).metadata));
        }
        assert!(pods.nodes.is_empty() && pods.nodes_of.is_empty());
    }

    #[test]
    fn a_label_in_bytes_is_read_as_by_the_scheduler() {
        for (label, expected) in [
            ("16384", Some(16_384)),
            ("17179869184", Some(16_384)),
            ("0", None),
            ("a", None),
        ] {
            assert_eq!(of_one_gpu(&node("n1", label)), expected, "{label}");
        }
    }

    #[test]
    fn the_node_is_not_read_for_other_pods() {
        let mut pods = PodsByNode::default();
        for (node, annotations) in [
            (None, json!({"gpu-memory": "2000"})),
            (Some("n1"), json!({"gpu-fraction": "0.5"})),
            (Some("n1"), json!(null)),
        ] {
            assert_eq!(pods.see(&pod("a", node, annotations), |_| Some(4_000)), None);
        }
        assert!(pods.nodes.is_empty() && pods.nodes_of.is_empty());
    }
}
