//! The engine's input: plain data about nodes, queues, pod groups and pods, one event per change.
//!
//! No Kubernetes types, no strings left to parse except names. Amounts are exact integers in the units that each field states. An event about
//! an object replaces the previous one. Events may come in any order: a pod before its node, a group before its queue.

pub mod devices;
mod numa;
mod registry;
mod schedule;
mod volumes;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use devices::{ClaimInput, PodClaims, PoolInput};
pub use numa::{NumaInput, NumaPolicy, PodNuma, ZoneInput};
pub use registry::{Keyed, Registry};
pub use schedule::Schedule;
pub use volumes::{
    AttachmentInput, CapacityInput, Claim, ClaimState, Disk, PodVolumes, Provisioning, Reach, VolumeInput, Waiting,
};

/// An object's name. Cheap to clone.
pub type Name = Arc<str>;

/// A hash table with a hasher for short keys. For look-ups only, never iterated.
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

/// Numbers of objects, to reserve memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes.
    pub nodes: usize,
    /// Pod groups.
    pub groups: usize,
    /// Pods.
    pub pods: usize,
}

/// A change of the cluster.
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
    /// A pod group is gone; its pods stay, without a pod group, until it comes back.
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
    /// The reservation of a GPU failed: none is opened for sharing on the node before the given instant. Existing shared GPUs stay.
    SharingFailed {
        /// The node's name.
        node: Name,
        /// Not tried before this instant.
        retry_at: Time,
    },
    /// A decided eviction did not happen: the pod (by uid) has the state of its last `Pod` event.
    Unevicted {
        /// The pod's uid.
        pod: Name,
        /// Not evicted before this instant.
        retry_at: Option<Time>,
    },
    /// A topology appeared or changed.
    Topology(TopologyInput),
    /// A topology is gone.
    TopologyGone(Name),
    /// An unbound volume appeared or changed.
    Volume(Box<VolumeInput>),
    /// An unbound volume, by name, is gone or was bound.
    VolumeGone(Name),
    /// A storage capacity appeared or changed.
    Capacity(Box<CapacityInput>),
    /// A storage capacity is gone; its key.
    CapacityGone(Name),
    /// A volume is attached to a node.
    Attachment(Box<AttachmentInput>),
    /// A volume was detached; the key of the attachment.
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
    /// Historical usage per queue: (queue, cpu, memory, gpu) as parts per billion of the cluster. Replaces the previous event.
    Usage(Vec<(Name, [i64; 3])>),
}

impl Event {
    /// What failed is tried again at this instant at the latest.
    pub fn retry_by(&mut self, latest: Time) {
        match self {
            Self::Unbound { retry_at, .. } | Self::Unevicted { retry_at, .. } => {
                *retry_at = retry_at.map(|at| at.min(latest));
            }
            Self::SharingFailed { retry_at, .. } => *retry_at = (*retry_at).min(latest),
            _ => {}
        }
    }
}

/// Uid, namespace and name of a pod. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodRef(Arc<PodNames>);

/// The names of a pod.
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
    /// A reference with these names.
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

/// Sorts before every character of a name, so that a name sorts before its extensions.
const BETWEEN: u8 = b'\0';

impl GroupKey {
    /// The key of a name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(name.len() + 1 + namespace.len());
        text.push_str(name);
        text.push(char::from(BETWEEN));
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

    /// Its name and its namespace.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        // Names are short: faster than a search for a character.
        let between = self.0.bytes().position(|byte| byte == BETWEEN);
        between.map_or_else(Default::default, |at| (&self.0[..at], &self.0[at + 1..]))
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

/// A node, as far as scheduling depends on it.
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
    /// Why it is not ready: its Ready condition if that is present and not True, then pressure and network conditions that are present and not False.
    pub faults: Vec<NodeFault>,
    /// Allocatable resources: cpu, memory, whole GPUs (all vendors, and devices of resource slices), and the others by name.
    pub allocatable: Amounts,
    /// Largest number of pods; 0 if the node states none.
    pub pods: i64,
    /// MiB of memory per GPU, rounded to a multiple of 100; `None` if unknown.
    pub gpu_memory: Option<i64>,
    /// Physical GPU count for sharing, if the label states one.
    pub gpu_count: Option<i64>,
    /// Some of its GPUs are devices of resource slices (dynamic resource allocation).
    pub dra_gpus: bool,
    /// Resources as which its device plugins offer GPUs, requested by number.
    pub gpu_resources: Vec<Name>,
    /// MIG is enabled.
    pub mig: bool,
    /// NUMA zones, if the kubelet's alignment is predicted.
    pub numa: Option<Arc<NumaInput>>,
    /// How many volumes of a storage driver can be attached, for drivers that state it; sorted.
    pub attach_limits: Vec<(Name, i64)>,
}

/// A condition by which a node is not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFault {
    /// Its type and status, as `Ready=Unknown`.
    pub condition: Name,
    /// When it became so.
    pub since: Option<Time>,
}

impl NodeFault {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.condition.split('=').next().unwrap_or_default()
    }
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
    /// Everything else by name: storage and huge pages in bytes, MIG profiles in instances, extended resources in thousandths. No zeros, no duplicates.
    pub other: Vec<(Name, i64)>,
}

/// The effect of a taint or toleration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// Pods without a toleration are not scheduled.
    NoSchedule,
    /// Pods without a toleration are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Pods without a toleration are not scheduled, and are evicted.
    NoExecute,
}

/// A taint on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Name,
    /// Its value, possibly empty.
    pub value: Name,
    /// Its effect.
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
    /// The label is present.
    Exists,
    /// The label is absent.
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
    /// The values to compare with.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueInput {
    /// Its name, which is its identity.
    pub name: Name,
    /// Its name in messages: the display name, else the name.
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
    /// Resources (cpu, memory, GPUs) without a limit in its spec: the limit is 0 then.
    pub limits_unset: [bool; 3],
    /// Minimum run time before preemption, if the queue sets one.
    pub preempt_min_runtime: Option<Millis>,
    /// Minimum run time before reclaim, if the queue sets one.
    pub reclaim_min_runtime: Option<Millis>,
    /// Its quota schedule.
    pub schedule: Option<Box<Schedule>>,
}

/// A queue's settings for one resource, in that resource's unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Quota; `None` = unlimited.
    pub quota: Option<i64>,
    /// Limit; `None` = no limit. `Some(0)`: nothing may run.
    pub limit: Option<i64>,
    /// Over-quota weight, in millionths; 0 = gets nothing beyond the quota.
    pub weight: i64,
}

/// A pod group.
///
/// `repr(C)`: the fields that cycles read of every pod group come first, in few cache lines.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct GroupInput {
    /// Creation time.
    pub created: Time,
    /// Its priority, resolved from the priority class.
    pub priority: i64,
    /// Whether it is preemptible, resolved.
    pub preemptible: bool,
    /// `spec.schedulingBackoff` is 1: messages name the node pool.
    pub back_off: bool,
    /// Marked unschedulable under back-off: not tried while this is true.
    pub backed_off: bool,
    /// Why its pods may not be placed, as a message: it is not tried while this is set. Running pods stay.
    pub refused: Option<Name>,
    /// Its hold: it is not tried while this is set, and its pending pods count as no demand of its queue. Running pods stay.
    pub held: Option<Box<Hold>>,
    /// `spec.preemptionDelay`.
    pub preemption_delay: Option<Millis>,
    /// When it last began to run.
    pub last_start: Option<Time>,
    /// When it was last evicted.
    pub last_eviction: Option<Time>,
    /// Since when it is stale.
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
    /// Whether it is not tried, even if it fits.
    #[must_use]
    pub fn is_excluded(&self) -> bool {
        self.backed_off || self.refused.is_some() || self.held.is_some()
    }
}

/// A hold on a pod group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The queue that is held, its own or one above it; `None`: the pod group itself.
    pub queue: Option<Name>,
    /// The reason given in the annotation.
    pub reason: Option<Name>,
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
    /// Preferably within one domain of this level.
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
    /// Pending.
    Pending,
    /// Pending with scheduling gates.
    Gated,
    /// A bind is in progress (a bind request that has not failed).
    Binding,
    /// Bound, not running yet.
    Bound,
    /// Running.
    Running,
    /// Is being deleted (phase Pending or Running).
    Releasing,
    /// Succeeded.
    Succeeded,
    /// Failed.
    Failed,
    /// Phase unknown.
    Unknown,
}

/// The kind of a GPU request or allocation.
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
    /// The kind.
    pub kind: GpuKind,
    /// Number of devices.
    pub count: i64,
    /// Portion of each device in billionths ([`WHOLE`] = a whole device). 0 for memory requests.
    pub portion: i64,
    /// MiB on each device; 0 unless requested by memory.
    pub memory: i64,
    /// GPUs in resource claims.
    pub dra: i64,
    /// Of these, those in claims that are allocated already or shared with other pods: they need not be free on the node.
    pub dra_shared: i64,
    /// GPUs requested as an extended resource of a device class. They count in queues; nodes provide them as devices.
    pub by_class: i64,
    /// Resources as which whole GPUs are requested, e.g. `nvidia.com/gpu`, or shared ones reserved.
    pub resources: Vec<Name>,
    /// MIG instances by profile resource name, e.g. `nvidia.com/mig-1g.5gb`.
    pub mig: Vec<(Name, i64)>,
    /// The MIG profile came from KAI's legacy annotation.
    pub legacy_mig: bool,
}

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// Host address; empty or `0.0.0.0` = all.
    pub ip: Name,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Name,
    /// The port.
    pub port: i32,
}

/// A pod selector with namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodSelector {
    /// Requirements on labels, of which all must hold; `None` selects no pod.
    pub labels: Option<Vec<NodeRequirement>>,
    /// Namespaces, sorted; `None` = any.
    pub namespaces: Option<Arc<[Name]>>,
}

/// A PodDisruptionBudget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetInput {
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The pods that it protects.
    pub pods: PodSelector,
    /// `status.disruptionsAllowed`.
    pub allowed: i64,
    /// The names in `status.disruptedPods`: their evictions are included in `allowed`, although they may not be shown as terminating yet.
    pub disrupted: BTreeSet<Name>,
}

/// A pod affinity or anti-affinity term.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTerm {
    /// The selected pods.
    pub pods: PodSelector,
    /// The topology key: a node label.
    pub key: Name,
}

/// A topology spread constraint with `DoNotSchedule`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spread {
    /// The counted pods.
    pub pods: PodSelector,
    /// The topology key: a node label.
    pub key: Name,
    /// `maxSkew`.
    pub max_skew: i64,
    /// `minDomains`: with fewer values the minimum counts as 0.
    pub min_domains: i64,
    /// `nodeAffinityPolicy: Honor`.
    pub honor_affinity: bool,
    /// `nodeTaintsPolicy: Honor`.
    pub honor_taints: bool,
}

/// Relations to other pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Relations {
    /// Required affinity; a pod counts if it matches the selectors of all terms.
    pub near: Vec<PodTerm>,
    /// Required anti-affinity.
    pub apart: Vec<PodTerm>,
    /// Preferred affinity; anti-affinity has negative weights.
    pub preferred: Vec<(i32, PodTerm)>,
    /// Topology spread constraints.
    pub spread: Vec<Spread>,
}

/// Key-value strings in one allocation, in the given order: labels, annotations, quantities. Most objects have some, and they are seldom read.
///
/// Each key and each value is preceded by its length in bytes, encoded as a character.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(Option<Name>);

/// Start of the surrogates, [`GAP`] codes that are not characters.
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

/// Splits off the first string.
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
        // Reserves enough for most, and shrinks at the end.
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

/// A pod's requirements on its node. Pods of one template share the allocation where that is cheap to detect.
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
    /// Further parts of the pod that affect placement (volumes, priority class), as one opaque string;
    /// pods that differ here are in different classes.
    pub constraints: Option<Name>,
}

/// A pod.
///
/// `repr(C)`: the fields that cycles read of every pod come first, in few cache lines.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct PodInput {
    /// Its state.
    pub status: PodStatus,
    /// How its GPUs were given, for a pod on a node.
    pub received: Option<GpuKind>,
    /// Belongs to another scheduler: its resources are subtracted from what queues share.
    pub foreign: bool,
    /// A reservation or scaling pod: not subtracted from what queues share.
    pub of_unikai: bool,
    /// A reservation pod: its GPU is accounted as a shared GPU, not as the pod's own.
    pub reservation: bool,
    /// Label `training.kubeflow.org/entry-role` is `master` or `launcher`.
    pub kubeflow_master: bool,
    /// Label `ray.io/node-type` is `head`.
    pub ray_head: bool,
    /// The devices that it claims; `None` if it claims none.
    pub claims: Option<Arc<PodClaims>>,
    /// Its volumes; `None` if it has no claims.
    pub volumes: Option<Arc<PodVolumes>>,
    /// Its requests for NUMA alignment, if that is predicted.
    pub numa: Option<Arc<PodNuma>>,
    /// Pod affinity, anti-affinity and spread constraints; `None` if it has none.
    pub relations: Option<Arc<Relations>>,
    /// The node nominated in its status.
    pub nominated_node: Option<Name>,
    /// Its requirements on the node.
    pub needs: Arc<Needs>,
    /// Its names.
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
    /// Of a pod that is bound or has a bind request: the queue that is charged while its pod group is unknown. `None`: a pod counts only in a known pod
    /// group and sub-group.
    pub fallback_queue: Option<Name>,
    /// Why this pod fits no node at present, as found by the mirror (an object that it needs is missing). A whole sentence.
    pub blocked: Option<Name>,
}

impl PodInput {
    /// Its needs, copied for this pod alone if shared.
    pub fn needs_mut(&mut self) -> &mut Needs {
        Arc::make_mut(&mut self.needs)
    }
}

#[cfg(test)]
mod tests;
