//! The engine's input for dynamic resource allocation: pools of devices, resource claims, and the claims of each pod.
//!
//! CEL selectors are numbered: the mirror evaluates them and lists for each device which of them it meets. Quantities are exact, in
//! billionths.

use std::sync::Arc;

use super::{Name, NodeTerm, Taint, Toleration};

/// The devices that one driver offers under one pool name.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolInput {
    /// The driver.
    pub driver: Name,
    /// The pool's name, one among the driver's.
    pub pool: Name,
    /// False while slices of its newest generation are missing: nothing is allocated from it.
    pub complete: bool,
    /// Shared counters.
    pub counters: Vec<i128>,
    /// Its devices, in allocation order.
    pub devices: Vec<DeviceInput>,
}

/// From which nodes a device can be used.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// From one node.
    Node(Name),
    /// From the nodes that match any of these.
    Selected(Vec<NodeTerm>),
    /// From all nodes.
    All,
}

/// A device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInput {
    /// Its name in the pool.
    pub name: Name,
    /// Where it can be used.
    pub reach: Reach,
    /// `bindsToNode`: its allocation is restricted to the node where it is used.
    pub binds: bool,
    /// False: it is never allocated, because it uses features that are not supported.
    pub usable: bool,
    /// Counts as a GPU.
    pub gpu: bool,
    /// `allowMultipleAllocations`: several claims may each take a share of its capacity.
    pub multi: bool,
    /// Attributes by full name, sorted.
    pub attributes: Vec<(Name, Attribute)>,
    /// Capacities by name, sorted.
    pub capacities: Vec<(Name, Capacity)>,
    /// What it consumes of the pool's counters, by index.
    pub draws: Vec<(usize, i128)>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Numbers of the selectors that it meets, sorted.
    pub meets: Vec<u32>,
    /// Selectors whose evaluation failed for it, and why; sorted.
    pub fails: Vec<(u32, Name)>,
}

impl DeviceInput {
    /// An attribute by its full name.
    #[must_use]
    pub fn attribute(&self, name: &Name) -> Option<&Attribute> {
        let found = self.attributes.binary_search_by(|(other, _)| other.cmp(name)).ok()?;
        Some(&self.attributes[found].1)
    }
}

/// An attribute's value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attribute {
    /// A boolean.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A string.
    Text(Name),
    /// A version.
    Version(Name),
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// The total.
    pub value: i128,
    /// The request policy; `None`: a request without an amount takes all of it.
    pub policy: Option<CapacityPolicy>,
}

/// A request policy: the shares of a capacity that can be taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapacityPolicy {
    /// The share of a request without an amount.
    pub default: Option<i128>,
    /// Minimum, maximum and step.
    pub range: Option<(i128, Option<i128>, Option<i128>)>,
    /// Valid shares, sorted; empty = any.
    pub values: Vec<i128>,
}

/// A resource claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimInput {
    /// Its identity: `namespace/name`, or what [`Extended::key`] says.
    pub key: Name,
    /// The queue of its label.
    pub queue: Option<Name>,
    /// GPUs that it requests, as queues count them.
    pub gpus: i64,
    /// Its requests.
    pub requests: Arc<[RequestInput]>,
    /// Its constraints among devices.
    pub constraints: Vec<ConstraintInput>,
    /// Why it cannot be allocated. A whole sentence.
    pub problem: Option<Name>,
    /// Its allocation.
    pub allocation: Option<Arc<AllocationInput>>,
    /// Uids of the pods that may use it.
    pub reserved: Vec<Name>,
    /// It is reserved for consumers other than pods.
    pub foreign: bool,
}

/// One request of a claim: the first option that can be met.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestInput {
    /// Its name.
    pub name: Name,
    /// Alternatives, best first.
    pub options: Vec<OptionInput>,
}

/// One way to meet a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptionInput {
    /// Its name, if there are alternatives.
    pub name: Option<Name>,
    /// Selectors that each device must meet.
    pub selectors: Vec<u32>,
    /// Number of devices; `None` = all matching.
    pub count: Option<usize>,
    /// Admin access: the devices may be in use, and stay free for others.
    pub admin: bool,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Requested shares of capacities.
    pub capacity: Vec<(Name, i128)>,
}

/// A constraint among the devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConstraintInput {
    /// The requests that it applies to, as `request` or `request/option`; empty = all.
    pub requests: Vec<Name>,
    /// The attribute, by full name.
    pub attribute: Name,
    /// `distinctAttribute`; else `matchAttribute`.
    pub distinct: bool,
}

/// An allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllocationInput {
    /// The devices.
    pub results: Vec<ResultInput>,
    /// The nodes from which they can be used; `None` = all.
    pub nodes: Option<Vec<NodeTerm>>,
}

/// One allocated device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResultInput {
    /// The request that it meets, as `request` or `request/option`.
    pub request: Name,
    /// The driver.
    pub driver: Name,
    /// The pool.
    pub pool: Name,
    /// The device.
    pub device: Name,
    /// Admin access.
    pub admin: bool,
    /// The shares of its capacities that are taken, if it can be allocated in parts.
    pub taken: Option<Vec<(Name, i128)>>,
}

/// The claims of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodClaims {
    /// Claims that it names.
    pub named: Vec<ClaimRef>,
    /// Extended resources of device classes that it requests.
    pub extended: Option<Extended>,
}

/// A pod's reference to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// Its name in the pod spec.
    pub reference: Name,
    /// The claim; `None` = not created yet.
    pub claim: Option<Name>,
    /// The pod spec names the claim itself, so other pods may use it.
    pub shared: bool,
    /// The allocation that a bind in progress writes.
    pub promised: Option<Arc<AllocationInput>>,
}

/// Extended resources of device classes. Not needed on nodes whose device plugin offers the resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extended {
    /// Identity of the claim that will be created for them.
    pub key: Name,
    /// Per resource: name, whether it counts as GPUs, and the device requests.
    pub wanted: Vec<(Name, bool, Vec<RequestInput>)>,
    /// The allocation that a bind in progress writes.
    pub promised: Option<Arc<AllocationInput>>,
}

/// Devices of a driver with such a name count as GPUs, and so do claims for a class with such a name.
#[must_use]
pub fn is_gpu(name: &str) -> bool {
    name.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"gpu"))
}
