//! The engine's input for storage: volume claims of pods, unbound volumes, storage capacities, attachments.

use std::sync::Arc;

use super::{Name, NodeRequirement, NodeTerm};

/// The volumes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// Why no node fits at present: a claim is missing, or cannot be used.
    pub missing: Option<Name>,
    /// Its claims, each once.
    pub claims: Vec<Claim>,
    /// Disks in its spec that pods of a node cannot share freely, each once.
    pub disks: Vec<Disk>,
}

/// A disk in a pod spec.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk {
    /// Its identity: the same for all pods that name it.
    pub name: Name,
    /// Read-only: it can be shared with other read-only users.
    pub shared: bool,
}

/// A VolumeAttachment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentInput {
    /// Its identity.
    pub key: Name,
    /// The node.
    pub node: Name,
    /// The driver, and the volume handle, which counts once on a node.
    pub volume: (Name, Name),
}

/// A PersistentVolumeClaim of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `namespace/name`.
    pub key: Name,
    /// `ReadWriteOncePod`.
    pub exclusive: bool,
    /// An ephemeral volume's claim: created for this pod, and deleted with it.
    pub owned: bool,
    /// The driver of its volume, and the volume handle, which counts once on a node.
    pub attach: Option<(Name, Name)>,
    /// The storage class.
    pub class: Name,
    /// Requested bytes.
    pub size: i64,
    /// Its binding state.
    pub state: Arc<ClaimState>,
}

/// The binding state of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimState {
    /// Bound to a volume, which can be used from some nodes.
    Bound(Reach),
    /// Bound to a volume that does not exist.
    Lost,
    /// Unbound, with `WaitForFirstConsumer`.
    Waiting(Waiting),
}

/// The nodes that can use a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// Its node affinity: any of these terms. `None`: no requirement.
    pub nodes: Option<Vec<NodeTerm>>,
    /// Zone and region labels, each with the volume's values.
    pub zones: Vec<(Name, Vec<Name>)>,
}

/// An unbound claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiting {
    /// The storage class.
    pub class: Name,
    /// Bytes.
    pub size: i64,
    /// Required access modes, one bit each.
    pub modes: u8,
    /// `volumeMode: Block`.
    pub block: bool,
    /// `volumeAttributesClassName`; empty = none.
    pub attributes_class: Name,
    /// Requirements on the volume's labels.
    pub labels: Vec<NodeRequirement>,
    /// A volume is being provisioned for this node.
    pub node: Option<Name>,
    /// Dynamic provisioning; `None`: only existing volumes.
    pub provisioning: Option<Provisioning>,
}

/// Dynamic provisioning of a storage class.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Provisioning {
    /// `allowedTopologies`: any of these terms; empty = all nodes.
    pub nodes: Vec<NodeTerm>,
    /// The driver reports storage capacity.
    pub tracked: bool,
}

/// An unbound volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInput {
    /// Its name.
    pub name: Name,
    /// The storage class.
    pub class: Name,
    /// Bytes.
    pub size: i64,
    /// Access modes, one bit each.
    pub modes: u8,
    /// `volumeMode: Block`.
    pub block: bool,
    /// `volumeAttributesClassName`; empty = none.
    pub attributes_class: Name,
    /// Its labels, sorted by key.
    pub labels: Vec<(Name, Name)>,
    /// Node affinity: any of these terms. `None`: all nodes.
    pub nodes: Option<Vec<NodeTerm>>,
    /// `claimRef`: the only claim that may be bound to it, as `namespace/name`.
    pub claim: Option<Name>,
}

/// A CSIStorageCapacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityInput {
    /// `namespace/name`, its identity.
    pub key: Name,
    /// The storage class.
    pub class: Name,
    /// Available bytes.
    pub free: i64,
    /// `maximumVolumeSize` in bytes, if reported.
    pub largest: Option<i64>,
    /// Node selector; `None`: no nodes.
    pub nodes: Option<Vec<NodeRequirement>>,
}
