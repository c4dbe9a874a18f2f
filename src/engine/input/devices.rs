//! The engine's input on devices that pods claim: pools of devices, claims for them, and which pod names which claim.
//!
//! Selectors are numbers: the mirror evaluates them and lists for each device which of them it meets. Quantities are exact, in
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
    /// False while parts of its newest generation are missing: nothing is given out of it.
    pub complete: bool,
    /// Amounts that devices draw on together.
    pub counters: Vec<i128>,
    /// Its devices, in the order in which they are tried.
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
    /// Who uses it is bound to the node where it is used, wherever else it could have been.
    pub binds: bool,
    /// False: it is never given out (something about it is not understood).
    pub usable: bool,
    /// Counts as a GPU.
    pub gpu: bool,
    /// Several claims may use it, each of a part of its capacity.
    pub multi: bool,
    /// Attributes by full name, sorted.
    pub attributes: Vec<(Name, Attribute)>,
    /// Capacities by name, sorted.
    pub capacities: Vec<(Name, Capacity)>,
    /// What it draws from the pool's counters, by position.
    pub draws: Vec<(usize, i128)>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Numbers of the selectors that it meets, sorted.
    pub meets: Vec<u32>,
    /// Selectors that cannot be decided for it, and why; sorted.
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
    /// A truth value.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    Text(Name),
    /// A version.
    Version(Name),
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// How much there is.
    pub value: i128,
    /// What may be asked of it; `None`: a request that does not say takes all of it.
    pub policy: Option<CapacityPolicy>,
}

/// Which shares of a capacity may be taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CapacityPolicy {
    /// What a request takes that does not say.
    pub default: Option<i128>,
    /// The smallest share, the largest, and the step between.
    pub range: Option<(i128, Option<i128>, Option<i128>)>,
    /// The only shares there are, sorted; empty = no such list.
    pub values: Vec<i128>,
}

/// A claim for devices.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimInput {
    /// Its identity: `namespace/name`, or what [`Extended::key`] says.
    pub key: Name,
    /// The queue that its label names.
    pub queue: Option<Name>,
    /// GPUs that it asks for, as queues count them.
    pub gpus: i64,
    /// What it asks for.
    pub requests: Arc<[RequestInput]>,
    /// What must hold among its devices.
    pub constraints: Vec<ConstraintInput>,
    /// Why it cannot be given any devices. Whole sentence.
    pub problem: Option<Name>,
    /// What it has been given.
    pub allocation: Option<Arc<AllocationInput>>,
    /// Uids of the pods that may use it.
    pub reserved: Vec<Name>,
    /// Others than pods use it.
    pub foreign: bool,
}

/// One request of a claim: the first option that can be met.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RequestInput {
    /// Its name.
    pub name: Name,
    /// What would do, best first.
    pub options: Vec<OptionInput>,
}

/// One way to meet a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OptionInput {
    /// Its name, where there may be several.
    pub name: Option<Name>,
    /// Selectors that each device must meet.
    pub selectors: Vec<u32>,
    /// How many devices; `None` = all there are.
    pub count: Option<usize>,
    /// Only to look after devices: they may be in use, and stay free for others.
    pub admin: bool,
    /// Taints that do not matter.
    pub tolerations: Vec<Toleration>,
    /// Shares of capacities.
    pub capacity: Vec<(Name, i128)>,
}

/// What must hold among the devices of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConstraintInput {
    /// The requests that it is about, as `request` or `request/option`; none = all.
    pub requests: Vec<Name>,
    /// The attribute, by full name.
    pub attribute: Name,
    /// All values differ; else all are the same.
    pub distinct: bool,
}

/// What a claim is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AllocationInput {
    /// The devices.
    pub results: Vec<ResultInput>,
    /// From which nodes they can be used; `None` = from all.
    pub nodes: Option<Vec<NodeTerm>>,
}

/// One device that a claim is given.
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
    /// Only to look after it.
    pub admin: bool,
    /// The device is given in parts, and these are taken.
    pub taken: Option<Vec<(Name, i128)>>,
}

/// The claims of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodClaims {
    /// Claims that it names.
    pub named: Vec<ClaimRef>,
    /// Resources that it asks for by number and that device classes stand for.
    pub extended: Option<Extended>,
}

/// A pod's reference to a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClaimRef {
    /// What the pod calls it.
    pub reference: Name,
    /// The claim; `None` = not made yet.
    pub claim: Option<Name>,
    /// The pod names the claim itself, so others may use it too.
    pub shared: bool,
    /// What a bind under way is to give it.
    pub promised: Option<Arc<AllocationInput>>,
}

/// Resources asked for by number that device classes stand for. Where a node offers them itself, these devices are not needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extended {
    /// Identity of the claim that will be made for them.
    pub key: Name,
    /// Per resource: its name, whether it counts as GPUs, and what to request.
    pub wanted: Vec<(Name, bool, Vec<RequestInput>)>,
    /// What a bind under way is to give.
    pub promised: Option<Arc<AllocationInput>>,
}

/// Devices of a driver with such a name count as GPUs, and so do claims for a class with such a name.
#[must_use]
pub fn is_gpu(name: &str) -> bool {
    name.as_bytes().windows(3).any(|part| part.eq_ignore_ascii_case(b"gpu"))
}
