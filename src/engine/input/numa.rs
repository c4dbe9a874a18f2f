//! The engine's input for NUMA zones: those of nodes, and what pods ask of them.

use super::Name;

/// The kubelet's Topology Manager policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumaPolicy {
    /// Nothing.
    None,
    /// Aligns where possible.
    BestEffort,
    /// Refuses pods that would span more zones than their requests need.
    Restricted,
    /// Refuses pods that do not fit in one zone.
    SingleNode,
}

/// A node's NUMA zones. Amounts are milli-cores, and whole units of everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaInput {
    /// The policy.
    pub policy: NumaPolicy,
    /// Scope `pod`; else `container`.
    pub pod_scope: bool,
    /// The zones, in order of their numbers.
    pub zones: Vec<ZoneInput>,
    /// What is free in each zone, as an agent on the node saw it last. Empty: what the pods on the node use is subtracted instead.
    pub free: Vec<Vec<(Name, i64)>>,
}

/// A NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneInput {
    /// Its name.
    pub name: Name,
    /// Allocatable amounts of the resources that the kubelet aligns.
    pub allocatable: Vec<(Name, i64)>,
}

/// A pod's requests as the Topology Manager counts them, in the units of [`NumaInput`]. Cpu counts only if it is allocated in whole cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNuma {
    /// QoS class Guaranteed: cpu and memory are aligned too.
    pub guaranteed: bool,
    /// The pod as a whole.
    pub whole: Vec<(Name, i64)>,
    /// Containers that run together, in order.
    pub together: Vec<Vec<(Name, i64)>>,
    /// Init containers, each of which runs alone.
    pub alone: Vec<Vec<(Name, i64)>>,
    /// Recorded usage by zone name, for a pod on a node.
    pub record: Vec<(Name, Vec<(Name, i64)>)>,
}
