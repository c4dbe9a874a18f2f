//! The engine's input: plain data about nodes, queues, pod groups and pods, one event per change.
//!
//! No Kubernetes types, no strings left to parse except names. Amounts are exact integers in the units that each field states. An event about
//! an object replaces all that was known about it. Events may come in any order: a pod before its node, a group before its queue.

pub mod devices;
mod registry;
mod schedule;
mod volumes;

use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use devices::{ClaimInput, PodClaims, PoolInput};
pub use registry::{Keyed, Registry};
pub use schedule::Schedule;
pub use volumes::{
    AttachmentInput, CapacityInput, Claim, ClaimState, Disk, Making, PodVolumes, Reach, VolumeInput, Waiting,
};

/// An object's name. Cheap to clone.
pub type Name = Arc<str>;

/// A hash table with a hasher for short keys. To look things up in, never to go through.
pub type Table<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Millionths of a GPU that make one whole GPU; the unit of every GPU amount in accounting.
pub const GPU: i64 = 1_000_000;

/// Billionths that make the portion 1, a whole device.
pub const WHOLE: i64 = 1_000_000_000;

/// An instant: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A length of time in milliseconds.
pub type Millis = i64;

/// How many there are of what there are many of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes.
    pub nodes: usize,
    /// Pod groups.
    pub groups: usize,
    /// Pods.
    pub pods: usize,
}

/// Something that changed outside.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node appeared or changed.
    Node(Box<NodeInput>),
    /// A node is gone; pods on it stay until their own events.
    NodeGone(Name),
    /// A queue appeared or changed.
    Queue(Box<QueueInput>),
    /// A queue is gone.
    QueueGone(Name),
    /// A pod group appeared or changed.
    Group(Box<GroupInput>),
    /// A pod group is gone; its pods stay as pods of no group until it comes back.
    GroupGone(GroupKey),
    /// A pod appeared or changed, as the API server shows it. What the engine assumes about it (a decided bind or eviction) stays assumed
    /// until the pod shows it, or until `Unbound` or `Unevicted`.
    Pod(Box<PodInput>),
    /// A pod is gone.
    PodGone(Name),
    /// A decided bind did not happen: the pod (by uid) is pending again, and is not tried before the given instant.
    Unbound {
        /// The pod's uid.
        pod: Name,
        /// Not tried before this instant.
        retry_at: Option<Time>,
    },
    /// A GPU of a node could not be had for sharing: none is opened for sharing there before the given instant. Those that are shared stay.
    SharingFailed {
        /// The node's name.
        node: Name,
        /// Not tried before this instant.
        retry_at: Time,
    },
    /// A decided eviction did not happen: the pod (by uid) is as its last `Pod` event says.
    Unevicted {
        /// The pod's uid.
        pod: Name,
        /// It is no victim before this instant.
        retry_at: Option<Time>,
    },
    /// A topology appeared or changed.
    Topology(TopologyInput),
    /// A topology is gone.
    TopologyGone(Name),
    /// A volume that no claim has yet appeared or changed.
    Volume(Box<VolumeInput>),
    /// A volume, by name, is gone or has its claim.
    VolumeGone(Name),
    /// How much storage could still be made somewhere.
    Capacity(Box<CapacityInput>),
    /// Nothing is said any more, under this key, about how much could be made.
    CapacityGone(Name),
    /// A volume is attached to a node.
    Attachment(Box<AttachmentInput>),
    /// It is not any more; its key.
    AttachmentGone(Name),
    /// A disruption budget appeared, changed, or was listed again.
    Budget(Box<BudgetInput>),
    /// A disruption budget is gone.
    BudgetGone {
        /// Its namespace.
        namespace: Name,
        /// Its name.
        name: Name,
    },
    /// A pool of devices appeared or changed.
    Pool(Box<PoolInput>),
    /// A pool of devices is gone: its driver and its name.
    PoolGone(Name, Name),
    /// A claim for devices appeared or changed.
    Claim(Box<ClaimInput>),
    /// A claim for devices is gone.
    ClaimGone(Name),
    /// Historical usage per queue: (queue, cpu, memory, gpu) as parts per billion of the cluster. Replaces what was known.
    Usage(Vec<(Name, [i64; 3])>),
}

/// A pod, by everything that callers use to find it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef(Arc<PodNames>);

/// What a pod is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodNames {
    /// Its uid, which is its identity.
    pub uid: Name,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
}

impl PodRef {
    /// The pod that is called so.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self(Arc::new(PodNames {
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
        }))
    }
}

impl Deref for PodRef {
    type Target = PodNames;
    fn deref(&self) -> &PodNames {
        &self.0
    }
}

/// `namespace/name`.
impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identity of a pod group. Cheap to clone. Ordered by name, then by namespace, as pod groups are.
///
/// One text: the name, [`BETWEEN`], the namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(Name);

/// Comes before every character of a name, so that names which begin alike keep their order.
const BETWEEN: char = '\0';

impl GroupKey {
    /// The pod group of that name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(name.len() + 1 + namespace.len());
        text.push_str(name);
        text.push(BETWEEN);
        text.push_str(namespace);
        Self(text.into())
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.parts().1
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.parts().0
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once(BETWEEN).unwrap_or_default()
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace(), self.name())
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A node as far as scheduling sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeInput {
    /// Its name.
    pub name: Name,
    /// Its labels, sorted by key.
    pub labels: Vec<(Name, Name)>,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// False if the Ready condition is present and not True, or a pressure or network condition is present and not False.
    pub ready: bool,
    /// What pods may use: cpu, memory, whole GPUs (all vendors, and devices of resource slices), and the rest by name.
    pub allocatable: Amounts,
    /// Largest number of pods; 0 if the node states none.
    pub pods: i64,
    /// MiB of memory per GPU, cleaned (a multiple of 100); `None` if unknown.
    pub gpu_memory: Option<i64>,
    /// Physical GPU count for sharing, if the label states one.
    pub gpu_count: Option<i64>,
    /// Some of its GPUs are devices of resource slices (dynamic resource allocation).
    pub dra_gpus: bool,
    /// It also offers GPUs itself, to pods that ask for a number of them.
    pub plugin_gpus: bool,
    /// Multi-instance GPUs are on.
    pub mig: bool,
    /// NUMA zones, where the kubelet's alignment is to be foreseen.
    pub numa: Option<Arc<NumaInput>>,
    /// How many volumes of a storage driver can be attached, for drivers that state it; sorted.
    pub attach_limits: Vec<(Name, i64)>,
}

/// What a kubelet does about NUMA zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NumaPolicy {
    /// Nothing.
    None,
    /// Aligns where it can.
    BestEffort,
    /// Refuses pods that need not span more zones than one of their requests must.
    Restricted,
    /// Refuses pods that do not fit into one zone.
    SingleNode,
}

/// A node's NUMA zones. Amounts are milli-cores, and whole units of everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaInput {
    /// What the kubelet does.
    pub policy: NumaPolicy,
    /// It looks at pods as a whole; else at containers one by one.
    pub pod_scope: bool,
    /// The zones, in order of their numbers.
    pub zones: Vec<ZoneInput>,
}

/// A NUMA zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneInput {
    /// Its name.
    pub name: Name,
    /// What pods may use of each resource that the kubelet aligns.
    pub allocatable: Vec<(Name, i64)>,
}

/// What a pod asks of a kubelet that aligns, in the units of [`NumaInput`]. Cpu counts only where it is given out in whole cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNuma {
    /// Its quality of service is Guaranteed: cpu and memory are aligned too.
    pub guaranteed: bool,
    /// The pod as a whole.
    pub whole: Vec<(Name, i64)>,
    /// Containers that run together, in order.
    pub together: Vec<Vec<(Name, i64)>>,
    /// Init containers, each of which runs alone.
    pub alone: Vec<Vec<(Name, i64)>>,
    /// What it is recorded to use, by zone name, for a pod on a node.
    pub record: Vec<(Name, Vec<(Name, i64)>)>,
}

/// Amounts of resources, exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts {
    /// Milli-cores.
    pub cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Whole GPUs in millionths ([`GPU`]). On a pod: see [`GpuRequest`], this stays 0.
    pub gpu: i64,
    /// Everything else by name: storage in bytes, MIG profiles in instances, extended resources in thousandths. No zeros, no duplicates.
    pub other: Vec<(Name, i64)>,
}

/// What a taint or toleration does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// Keeps pods away.
    NoSchedule,
    /// Better not.
    PreferNoSchedule,
    /// Keeps pods away and evicts.
    NoExecute,
}

/// A taint on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Name,
    /// Its value, possibly empty.
    pub value: Name,
    /// What it does.
    pub effect: TaintEffect,
}

/// A toleration of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// `None`: every key (only with `exists`).
    pub key: Option<Name>,
    /// Operator `Exists`: the value does not matter.
    pub exists: bool,
    /// The value to equal.
    pub value: Name,
    /// `None`: every effect.
    pub effect: Option<TaintEffect>,
}

/// Operators of node selector requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectorOp {
    /// The label's value is listed.
    In,
    /// The label is absent or its value is not listed.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label is a number above the one listed.
    Gt,
    /// The label is a number below the one listed.
    Lt,
}

/// One requirement on a node's labels (or, in `fields`, on `metadata.name`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeRequirement {
    /// The label's key.
    pub key: Name,
    /// How to compare.
    pub op: SelectorOp,
    /// What to compare with.
    pub values: Vec<Name>,
}

/// Requirements that must all hold. A term without any requirement matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTerm {
    /// On labels.
    pub labels: Vec<NodeRequirement>,
    /// On `metadata.name`.
    pub fields: Vec<NodeRequirement>,
}

/// A queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueInput {
    /// Its name, which is its identity.
    pub name: Name,
    /// What messages call it: the display name, or the name.
    pub display: Name,
    /// The parent queue; `None` for a top queue.
    pub parent: Option<Name>,
    /// Higher goes first. Default 100.
    pub priority: i64,
    /// Creation time.
    pub created: Time,
    /// Milli-cores.
    pub cpu: Share,
    /// Bytes.
    pub memory: Share,
    /// Millionths of a GPU.
    pub gpu: Share,
    /// Minimum run time before preemption, if the queue sets one.
    pub preempt_min_runtime: Option<Millis>,
    /// Minimum run time before reclaim, if the queue sets one.
    pub reclaim_min_runtime: Option<Millis>,
    /// What it may have at some times instead.
    pub schedule: Option<Box<Schedule>>,
}

/// A queue's settings for one resource, in that resource's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// What it deserves; `None` = unlimited.
    pub quota: Option<i64>,
    /// What it may never pass; `None` = no limit. `Some(0)`: nothing may run.
    pub limit: Option<i64>,
    /// Weight in sharing what is over, in millionths; 0 = receives none.
    pub weight: i64,
}

/// A pod group.
///
/// Laid out as written: what cycles ask of every pod group comes first, side by side.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct GroupInput {
    /// Creation time.
    pub created: Time,
    /// Its priority, resolved from the priority class.
    pub priority: i64,
    /// Whether it may be a victim, resolved.
    pub preemptible: bool,
    /// `spec.markUnschedulable` (absent = true).
    pub mark_unschedulable: bool,
    /// `spec.schedulingBackoff` is 1: messages name the node pool.
    pub back_off: bool,
    /// Marked unschedulable under back-off: not tried, until this is false again.
    pub backed_off: bool,
    /// Why its pods may not be given places, for people: it is not tried while this stands. What runs already stays.
    pub refused: Option<Name>,
    /// `spec.preemptionDelay`.
    pub preemption_delay: Option<Millis>,
    /// When it last began to run.
    pub last_start: Option<Time>,
    /// When it was last evicted.
    pub last_eviction: Option<Time>,
    /// Since when its pod group is broken.
    pub stale_since: Option<Time>,
    /// Its identity.
    pub key: GroupKey,
    /// Its uid.
    pub uid: Name,
    /// The queue it names.
    pub queue: Name,
    /// `spec.minMember`; `None` = 1.
    pub min_member: Option<i64>,
    /// `spec.minSubGroup` of the root.
    pub min_sub_group: Option<i64>,
    /// `spec.subGroups`, in order.
    pub sub_groups: Vec<SubGroupInput>,
    /// `spec.topologyConstraint`.
    pub topology: Option<TopologyConstraint>,
    /// `spec.stalenessGracePeriod`; `None` = the policy's.
    pub staleness_grace: Option<Millis>,
}

impl GroupInput {
    /// Whether it is left alone whatever the cluster has room for.
    #[must_use]
    pub fn left_alone(&self) -> bool {
        self.backed_off || self.refused.is_some()
    }
}

/// A sub-group of a pod group.
#[derive(Clone, Debug, PartialEq)]
pub struct SubGroupInput {
    /// Its name.
    pub name: Name,
    /// Its parent's name; `None` = the root.
    pub parent: Option<Name>,
    /// `minMember` (absent = 0).
    pub min_member: Option<i64>,
    /// `minSubGroup`.
    pub min_sub_group: Option<i64>,
    /// Its own topology constraint.
    pub topology: Option<TopologyConstraint>,
}

/// A topology constraint, levels as node label keys (aliases resolved).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopologyConstraint {
    /// The topology's name.
    pub topology: Name,
    /// All pods within one domain of this level.
    pub required: Option<Name>,
    /// Better within one domain of this level.
    pub preferred: Option<Name>,
}

/// A topology: levels from the widest to the narrowest, as node label keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyInput {
    /// Its name.
    pub name: Name,
    /// Node label keys.
    pub levels: Vec<Name>,
}

/// A pod's state as its object shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodStatus {
    /// Waits for a node.
    Pending,
    /// Pending with scheduling gates.
    Gated,
    /// A bind is under way (a bind request that has not failed).
    Binding,
    /// Has a node, does not run yet.
    Bound,
    /// Runs.
    Running,
    /// Is being deleted (phase Pending or Running).
    Releasing,
    /// Ended well.
    Succeeded,
    /// Failed.
    Failed,
    /// Phase unknown.
    Unknown,
}

/// How a GPU was asked for, or given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuKind {
    /// Whole devices, or none.
    #[default]
    Regular,
    /// A portion of each of `count` devices.
    Fraction,
    /// An amount of memory on each of `count` devices.
    Memory,
    /// Instances of multi-instance GPU profiles.
    Mig,
}

/// The GPU part of a pod's request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuRequest {
    /// What is asked for.
    pub kind: GpuKind,
    /// Devices.
    pub count: i64,
    /// Portion of each device in billionths ([`WHOLE`] = a whole device). 0 for memory requests.
    pub portion: i64,
    /// MiB on each device; 0 unless asked for by memory.
    pub memory: i64,
    /// GPUs in resource claims.
    pub dra: i64,
    /// Of these, those in claims that have devices already, or that others may use too: a node need not have so many free.
    pub dra_shared: i64,
    /// GPUs that containers ask for by the name of a resource that a device class stands for. They count in queues; what node has them, its devices tell.
    pub by_class: i64,
    /// MIG instances by profile resource name, e.g. `nvidia.com/mig-1g.5gb`.
    pub mig: Vec<(Name, i64)>,
    /// The MIG profile came from an annotation (old style).
    pub legacy_mig: bool,
}

/// A host port that a pod wants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Host address; empty or `0.0.0.0` = all.
    pub ip: Name,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Name,
    /// The port.
    pub port: i32,
}

/// Pods by their labels and namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSelector {
    /// Requirements on labels, of which all must hold; `None` selects no pod.
    pub labels: Option<Vec<NodeRequirement>>,
    /// Their namespaces, sorted; `None` = any.
    pub namespaces: Option<Vec<Name>>,
}

/// A limit on how many pods may be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetInput {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The pods that it protects.
    pub pods: PodSelector,
    /// How many of them may be evicted now.
    pub allowed: i64,
}

/// Pods, and the node label at whose values they are near one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// Which pods.
    pub pods: PodSelector,
    /// The node label; pods on nodes with the same value of it are near one another.
    pub key: Name,
}

/// A limit on how unevenly pods may lie over the values of a node label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// Which pods are counted.
    pub pods: PodSelector,
    /// The node label over whose values they are to be spread.
    pub key: Name,
    /// Largest difference to the value with the fewest pods.
    pub max_skew: i64,
    /// With fewer values than these, the fewest pods count as none.
    pub min_domains: i64,
    /// Only nodes that the pod's node selector and affinity allow count.
    pub honor_affinity: bool,
    /// Only nodes whose taints the pod tolerates count.
    pub honor_taints: bool,
}

/// Where a pod must or had better be, as seen from other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relations {
    /// Must be near a pod that all of these select, by each label.
    pub near: Vec<PodTerm>,
    /// Must not be near any of these.
    pub apart: Vec<PodTerm>,
    /// Had better be near these; with a negative weight, had better not.
    pub preferred: Vec<(i32, PodTerm)>,
    /// Must be spread.
    pub spread: Vec<Spread>,
}

/// Texts by key in one piece, in the order given: labels, annotations, quantities. Most objects have some, and few are ever asked for them.
///
/// Each key and each value stands behind its length in bytes, which is written as a character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Option<Name>);

/// The codes from here up are not characters, [`GAP`] of them.
const GAP_FROM: usize = 0xD800;
const GAP: usize = 0x800;

impl Pairs {
    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut rest = self.0.as_deref().unwrap_or_default();
        std::iter::from_fn(move || Some((part(&mut rest)?, part(&mut rest)?)))
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == key).map(|(_, value)| value)
    }
}

/// Takes the first text off.
fn part<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let mut chars = rest.chars();
    let code = chars.next()? as usize;
    let length = if code < GAP_FROM { code } else { code - GAP };
    let text;
    (text, *rest) = chars.as_str().split_at_checked(length)?;
    Some(text)
}

/// The character for a length; `None` for more than a million, which no API server lets through.
fn length(text: &str) -> Option<char> {
    let length = text.len();
    let code = if length < GAP_FROM { length } else { length + GAP };
    char::from_u32(u32::try_from(code).ok()?)
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Pairs {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(pairs: T) -> Self {
        // Room for most, so that it does not grow; what is kept is cut to size.
        let mut text = String::with_capacity(256);
        for (key, value) in pairs {
            let (key, value) = (key.as_ref(), value.as_ref());
            if let (Some(before), Some(between)) = (length(key), length(value)) {
                text.push(before);
                text.push_str(key);
                text.push(between);
                text.push_str(value);
            }
        }
        Self((!text.is_empty()).then(|| text.into()))
    }
}

/// What a pod asks of the node that it runs on. Pods from one template ask the same, and share it where that is seen at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Requests of all containers, native sidecars, init containers and overhead, without GPUs and without the pod itself.
    pub request: Amounts,
    /// The GPU part of the request.
    pub gpu: GpuRequest,
    /// Node selector, sorted by key.
    pub node_selector: Vec<(Name, Name)>,
    /// Required node affinity: any of these terms. `None`: no requirement.
    pub affinity_required: Option<Vec<NodeTerm>>,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
    /// Host ports.
    pub host_ports: Vec<HostPort>,
    /// Further parts of the pod that bear on where it may run (volumes, priority class), as one opaque text;
    /// pods that differ here are never taken for equals.
    pub constraints: Option<Name>,
}

/// A pod.
///
/// Laid out as written: what cycles ask of every pod comes first, side by side.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct PodInput {
    /// Its state.
    pub status: PodStatus,
    /// How its GPUs were given, for a pod on a node.
    pub received: Option<GpuKind>,
    /// Belongs to another scheduler: its resources are not the queues' to share (set also for pods of no scheduler of ours).
    pub foreign: bool,
    /// A utility pod of this system (GPU reservation, scaling pod): never taken out of what the queues share.
    pub utility: bool,
    /// A GPU reservation pod: its GPU belongs to the sharing books, not to itself.
    pub reservation: bool,
    /// Label `training.kubeflow.org/entry-role` is `master` or `launcher`.
    pub kubeflow_master: bool,
    /// Label `ray.io/node-type` is `head`.
    pub ray_head: bool,
    /// The devices that it claims; `None` if it claims none.
    pub claims: Option<Arc<PodClaims>>,
    /// What its volumes ask for; `None` if it has no claims.
    pub volumes: Option<Arc<PodVolumes>>,
    /// What it asks of a kubelet that aligns to NUMA zones, where that is to be foreseen.
    pub numa: Option<Arc<PodNuma>>,
    /// Affinity and anti-affinity to other pods, and spreading; `None` if it asks for none.
    pub relations: Option<Arc<Relations>>,
    /// The node nominated in its status.
    pub nominated_node: Option<Name>,
    /// What it asks of its node.
    pub needs: Arc<Needs>,
    /// Who it is.
    pub pod: PodRef,
    /// Creation time.
    pub created: Time,
    /// Its labels.
    pub labels: Pairs,
    /// The pod group it belongs to, whether known yet or not.
    pub group: Option<GroupKey>,
    /// The sub-group label.
    pub sub_group: Option<Name>,
    /// For `Releasing` with phase Running: the deletion timestamp (the end of the grace period).
    pub releasing_since: Option<Time>,
    /// The node it is on or being bound to.
    pub node: Option<Name>,
    /// The shared GPU groups that it uses, for a pod on a node.
    pub gpu_groups: Vec<Name>,
    /// Label `kai.scheduler/pod-priority`: order within its group, higher first, before those without.
    pub task_priority: Option<i64>,
    /// Of a bound pod that is always to count: the queue that is charged while its pod group is not known. `None`: a pod counts only in a pod group
    /// and sub-group that are known.
    pub home: Option<Name>,
    /// Why this pod can be placed nowhere at present, found outside the engine (an object that it needs is missing). Whole sentence.
    pub blocked: Option<Name>,
}

impl PodInput {
    /// Its needs, to be changed for this pod alone.
    pub fn needs_mut(&mut self) -> &mut Needs {
        Arc::make_mut(&mut self.needs)
    }
}

#[cfg(test)]
mod tests;
