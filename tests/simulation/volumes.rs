//! Volumes: each is made by a driver once a scheduler has chosen a node, and stays there.

use serde_json::{Value, json};

const CLASS: &str = "made";

/// The class, which is there from the beginning.
pub fn class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "csi.example", "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
    })
}

/// A claim for a volume.
pub fn claim(name: &str, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"storageClassName": CLASS, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// Gives a pod that volume.
pub fn mount(pod: &mut Value, name: &str) {
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
}
