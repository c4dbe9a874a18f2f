//! Volumes: of one class each is made by a driver once a scheduler has chosen a node, of the other they exist before their claims. Each stays on its node.

use serde_json::{Value, json};

use crate::plan::KEPT;

const MADE_CLASS: &str = "made";
const KEPT_CLASS: &str = "kept";

/// A claim for a volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeClaimSeen {
    pub uid: String,
    pub volume: Option<String>,
    /// It gets one of the volumes that exist before their claims.
    pub kept: bool,
}

impl VolumeClaimSeen {
    pub fn of(stored: &Value) -> Self {
        Self {
            uid: stored["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            volume: stored["spec"]["volumeName"].as_str().map(str::to_owned),
            kept: stored["spec"]["storageClassName"] == KEPT_CLASS,
        }
    }
}

/// A volume.
#[derive(Clone, Debug, Default)]
pub struct VolumeSeen {
    /// The node that it is on, if it is not everywhere.
    pub node: Option<String>,
    /// The uid of the claim that it is meant for.
    pub of: Option<String>,
    pub kept: bool,
}

impl VolumeSeen {
    pub fn of(stored: &Value) -> Self {
        let node = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0";
        let claim = &stored["spec"]["claimRef"];
        Self {
            node: stored.pointer(node).and_then(Value::as_str).map(str::to_owned),
            of: claim
                .is_object()
                .then(|| claim["uid"].as_str().unwrap_or_default().to_owned()),
            kept: stored["spec"]["storageClassName"] == KEPT_CLASS,
        }
    }
}

/// What is there from the beginning: the classes, and the volumes that exist before their claims.
pub fn installed() -> impl Iterator<Item = Value> {
    let classes = [
        (MADE_CLASS, "csi.example"),
        (KEPT_CLASS, "kubernetes.io/no-provisioner"),
    ];
    let classes = classes.map(|(name, provisioner)| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer", "reclaimPolicy": "Delete",
        })
    });
    classes.into_iter().chain((0..KEPT.len()).map(kept))
}

/// One of the volumes that exist before their claims.
pub fn kept(at: usize) -> Value {
    let on_node = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [KEPT[at]]});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": format!("kept-{at}")},
        "spec": {
            "storageClassName": KEPT_CLASS, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "persistentVolumeReclaimPolicy": "Retain", "local": {"path": format!("/disks/{at}")},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
        },
    })
}

/// A claim for a volume, by its number.
pub fn claim(number: u32, namespace: &str, kept: bool) -> Value {
    let (name, class) = if kept {
        ("kept", KEPT_CLASS)
    } else {
        ("volume", MADE_CLASS)
    };
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("{name}-{number}"), "namespace": namespace},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    })
}

/// Gives a pod the volume of that claim.
pub fn mount(pod: &mut Value, claim: &Value) {
    let name = &claim["metadata"]["name"];
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": name}}]);
}
