//! Storage: what pods claim, what volumes are to be had, how much could still be made.

use std::sync::Arc;

use super::{Name, NodeRequirement, NodeTerm};

/// What a pod's volumes ask of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodVolumes {
    /// Why no node will do at present: a claim is missing, or cannot be used.
    pub missing: Option<Name>,
    /// Its claims, each once.
    pub claims: Vec<Claim>,
    /// Disks that it names itself and that the pods of a node cannot share freely, each once.
    pub disks: Vec<Disk>,
}

/// A disk that a pod names itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk {
    /// What it is: the same for all pods that name it.
    pub name: Name,
    /// It goes together with others that only read it.
    pub shared: bool,
}

/// A volume that is attached to a node, for pods of whichever scheduler.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentInput {
    /// Its identity.
    pub key: Name,
    /// The node.
    pub node: Name,
    /// The driver, and the name by which the volume counts once on a node.
    pub volume: (Name, Name),
}

/// A claim on storage, as one pod sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// `namespace/name`.
    pub key: Name,
    /// One pod at a time may use it.
    pub exclusive: bool,
    /// Made for this pod, and gone with it.
    pub owned: bool,
    /// The driver that attaches its volume, and a name by which the volume counts once on a node.
    pub attach: Option<(Name, Name)>,
    /// The storage class.
    pub class: Name,
    /// Bytes asked for.
    pub size: i64,
    /// Where it stands.
    pub state: Arc<ClaimState>,
}

/// Where a claim stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimState {
    /// It has a volume, which can be reached from some nodes.
    Bound(Reach),
    /// It has a volume that does not exist.
    Lost,
    /// It gets a volume when a pod that uses it has a node.
    Waiting(Waiting),
}

/// From where a volume can be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reach {
    /// Its node affinity: any of these terms. `None`: no requirement.
    pub nodes: Option<Vec<NodeTerm>>,
    /// Node labels of zones and regions, each with the values where it is.
    pub zones: Vec<(Name, Vec<Name>)>,
}

/// What a claim without a volume asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waiting {
    /// The storage class.
    pub class: Name,
    /// Bytes.
    pub size: i64,
    /// The volume must have all of these ways of access, one bit each.
    pub modes: u8,
    /// A raw block device.
    pub block: bool,
    /// What the volume's labels must be.
    pub labels: Vec<NodeRequirement>,
    /// A volume is being made for this node.
    pub node: Option<Name>,
    /// How a volume could be made; `None`: only what exists will do.
    pub making: Option<Making>,
}

/// How volumes of a class are made.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Making {
    /// For which nodes: any of these terms; empty = all.
    pub nodes: Vec<NodeTerm>,
    /// The driver says how much it has left.
    pub tracked: bool,
}

/// A volume that no claim has yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInput {
    /// Its name.
    pub name: Name,
    /// The storage class.
    pub class: Name,
    /// Bytes.
    pub size: i64,
    /// Ways of access, one bit each.
    pub modes: u8,
    /// A raw block device.
    pub block: bool,
    /// Its labels, sorted by key.
    pub labels: Vec<(Name, Name)>,
    /// From where it can be used: any of these terms. `None`: everywhere.
    pub nodes: Option<Vec<NodeTerm>>,
    /// The only claim that may have it, as `namespace/name`.
    pub claim: Option<Name>,
}

/// How much storage of a class could still be made for some nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityInput {
    /// `namespace/name`, its identity.
    pub key: Name,
    /// The storage class.
    pub class: Name,
    /// Bytes left.
    pub free: i64,
    /// Bytes of the largest volume that could be made, if the driver says so.
    pub largest: Option<i64>,
    /// Labels of the nodes in question; `None`: it is for no node.
    pub nodes: Option<Vec<NodeRequirement>>,
}
