//! The decisions of one cycle, as plain data with names and uids.

mod verdict;

use std::sync::Arc;

use super::input::devices::AllocationInput;
use super::input::{GpuKind, GroupKey, Name, PodRef, Time};
use super::policy::ActionKind;
use crate::api::names::reason;

pub use super::model::volumes::Promise;
pub use verdict::{Cause, Verdict, Wording};

/// The net decisions of one cycle, in the order in which they were made. A pod is at most once in each list; one that is moved is in `evict` and
/// in `pipeline`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    /// Pods to bind now.
    pub bind: Vec<Bind>,
    /// Pods to evict.
    pub evict: Vec<Eviction>,
    /// Pipelined pods: planned for nodes where releasing pods must terminate first. Assumed for this cycle only.
    pub pipeline: Vec<Pipeline>,
    /// Pod groups with pending pods that fit nowhere, and why. A group is listed again only when its report changed.
    pub unschedulable: Vec<GroupReport>,
    /// Pod groups without pending pods: their last report in `unschedulable` no longer holds.
    pub cleared: Vec<GroupKey>,
    /// Pods that wait and name a sub-group which their pod group does not have, each reported once; and those that no longer do.
    pub unknown_sub_groups: Vec<UnknownSubGroup>,
    /// Timestamps of pod groups to write.
    pub times: Vec<GroupTimes>,
    /// The counted steps of the cycle.
    pub work: Work,
}

impl Decisions {
    /// Whether there is nothing to execute and nothing to report.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bind.is_empty()
            && self.evict.is_empty()
            && self.pipeline.is_empty()
            && self.unschedulable.is_empty()
            && self.cleared.is_empty()
            && self.unknown_sub_groups.is_empty()
            && self.times.is_empty()
    }
}

/// A pod that cannot be placed because it names a sub-group that does not exist. Other pods of its pod group are not affected.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownSubGroup {
    /// The pod that names the sub-group.
    pub pod: PodRef,
    /// The message for the pod; `None`: the last one no longer holds.
    pub message: Option<String>,
}

/// The decision to bind a pod to a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    /// The pod that is to run.
    pub pod: PodRef,
    /// Its pod group.
    pub group: GroupKey,
    /// The node on which it is to run.
    pub node: Name,
    /// The kind of its GPU allocation. `Regular` also for pods without GPUs; shared GPUs are `Fraction`, also when requested by memory.
    pub received: GpuKind,
    /// Number of GPU devices.
    pub gpu_count: i64,
    /// Portion of each device in billionths (a whole device: 1,000,000,000).
    pub gpu_portion: i64,
    /// For shared GPUs: the group of each device, new or joined.
    pub gpu_groups: Vec<Name>,
    /// NUMA zones that the kubelet is expected to use, with milli-cores and whole units of all else.
    pub zones: Vec<(Name, Vec<(Name, i64)>)>,
    /// The volumes promised to its unbound claims.
    pub volumes: Vec<Promise>,
    /// The allocations of the pod's claims, new or existing.
    pub claims: Vec<ClaimGrant>,
    /// Uids of pods whose evictions must be accepted first: as long as they stay, a queue has no room for this pod below its limit. They were decided in this
    /// cycle or before.
    pub after_evictions: Option<Arc<[Name]>>,
}

/// The allocation of one claim of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimGrant {
    /// The claim's name in the pod spec; `None` = the claim to create for its extended resources.
    pub reference: Option<Name>,
    /// The key of the claim.
    pub claim: Name,
    /// The devices that it gets.
    pub allocation: AllocationInput,
}

/// The decision to evict a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// The evicted pod.
    pub pod: PodRef,
    /// Its pod group.
    pub group: GroupKey,
    /// The action that decided it.
    pub action: ActionKind,
    /// The pod group that gets its place; `None` for stale pod groups.
    pub for_group: Option<GroupKey>,
    /// The cause. [`Eviction::message`] is its text in the event and the pod's condition.
    pub why: EvictionCause,
    /// Disruption budgets, by name, that do not allow it.
    pub exceeds: Vec<Name>,
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq)]
pub enum EvictionCause {
    /// A pod group of higher priority needs its resources.
    Preempted,
    /// Consolidation moves it to another node.
    Moved,
    /// Another queue reclaims its fair share; the figures of the two queues, where known.
    Reclaimed(Option<Arc<Sides>>),
    /// Its pod group is below its minimum.
    Broken {
        /// Pods that its pod set needs.
        min: usize,
        /// The pod set's name, unless it is the only one.
        sub_group: Option<Name>,
        /// The first sub-group with fewer pods than its minimum, by name, and that minimum. `None` without sub-groups, or if only `minSubGroup` is not met.
        lacking: Option<(Name, usize)>,
    },
}

/// The two queues of a reclaim.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides {
    /// The queue that loses.
    pub theirs: Side,
    /// The queue that gains.
    pub ours: Side,
}

/// A queue's figures before an eviction: cpu, memory, GPUs; `None` = unlimited.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its name in messages.
    pub queue: Name,
    /// The allocated amounts.
    pub used: [i64; 3],
    /// The quota.
    pub quota: [Option<i64>; 3],
    /// The fair share.
    pub fair: [i64; 3],
    /// The priority among its siblings.
    pub priority: i64,
}

/// The plan for a pod to run on a node where releasing pods must terminate first.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The pod that waits.
    pub pod: PodRef,
    /// Its pod group.
    pub group: GroupKey,
    /// The node.
    pub node: Name,
    /// For shared GPUs: the group of each device.
    pub gpu_groups: Vec<Name>,
}

/// A pending pod group in the report about scheduling order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingGroup {
    /// The group.
    pub group: GroupKey,
    /// Its queue.
    pub queue: Name,
    /// Its priority.
    pub priority: i64,
}

/// Why a pod group waits.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupReport {
    /// The pod group that waits.
    pub group: GroupKey,
    /// Too few pods exist for it to start: it was not tried, and only an event is written.
    pub not_ready: bool,
    /// Some of its pods have a node already: only the event is written, no condition.
    pub partly_runs: bool,
    /// Each reason found, in order.
    pub reasons: Vec<Reason>,
    /// The verdict. The texts of conditions and events are [`GroupReport::text`] and [`GroupReport::pod_texts`].
    pub verdict: Verdict,
    /// All reasons in one text, in KAI's words.
    pub message: String,
    /// The text for each pending pod, in KAI's words. Pods without a reason of their own share that of the group.
    pub pods: Vec<(PodRef, Name)>,
}

/// One reason, with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The kind.
    pub code: ReasonCode,
    /// The text.
    pub message: String,
    /// The figures behind the text.
    pub detail: Detail,
}

/// What blocks a pod group (queue, nodes or domain), with figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// No figures beside the text.
    Text,
    /// A queue's limit or quota.
    Queue(Box<QueueFigures>),
    /// A pod fits on no node.
    Nodes(Box<NodeFigures>),
    /// A domain of a topology has too little room.
    Domain(Box<DomainFigures>),
}

impl Detail {
    /// The queue's figures, if a queue blocks it.
    #[must_use]
    pub fn queue(&self) -> Option<&QueueFigures> {
        match self {
            Self::Queue(figures) => Some(figures),
            Self::Text | Self::Nodes(_) | Self::Domain(_) => None,
        }
    }
}

/// Figures of a pod that fits on no node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFigures {
    /// The first pod that fitted nowhere.
    pub pod: PodRef,
    /// The pod's sub-group.
    pub sub_group: Name,
    /// Pods of the sub-group that were placed before it.
    pub placed: usize,
    /// Pods that the sub-group needs.
    pub required: usize,
    /// The reason that holds for all nodes, if there is one.
    pub headline: Option<String>,
    /// Reasons why nodes refuse the pod, each with the number of nodes; a node may count for several.
    pub refusals: Vec<(String, usize)>,
}

/// Figures of a topology domain that is too small.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainFigures {
    /// The domain: the labels' values from the widest level on.
    pub domain: Name,
    /// Pods that are to be in it together.
    pub required: usize,
    /// Pods that fit in it, where they could be counted.
    pub slots: Option<i64>,
    /// Insufficient resources.
    pub short: Vec<Shortage>,
}

/// An insufficient resource. Cpu in milli-cores, memory in bytes, GPUs in millionths, others as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortage {
    /// The name of the resource.
    pub resource: Name,
    /// The requested amount.
    pub asked: i64,
    /// The free amount.
    pub free: i64,
}

/// Kinds of reasons. [`ReasonCode::as_str`] is the reason in a pod group's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    /// A non-preemptible pod group would exceed a queue's quota.
    NonPreemptibleOverQuota,
    /// The pod group would exceed a queue's limit.
    OverLimit,
    /// The queue does not exist.
    QueueDoesNotExist,
    /// Pods fit on no node.
    PodSchedulingErrors,
    /// The preemption delay of the pod group, or the delay after evictions in vain, has not elapsed.
    PreemptionDelayNotElapsed,
    /// No topology domain has enough free resources.
    NotEnoughResources,
}

impl ReasonCode {
    /// The reason as KAI writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NonPreemptibleOverQuota => reason::NON_PREEMPTIBLE_OVER_QUOTA,
            Self::OverLimit => reason::OVER_LIMIT,
            Self::QueueDoesNotExist => reason::QUEUE_DOES_NOT_EXIST,
            Self::PodSchedulingErrors => reason::POD_SCHEDULING_ERRORS,
            Self::PreemptionDelayNotElapsed => reason::PREEMPTION_DELAY_NOT_ELAPSED,
            Self::NotEnoughResources => reason::NOT_ENOUGH_RESOURCES,
        }
    }
}

/// A queue's allocation and shares.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStanding {
    /// The queue's name.
    pub queue: Name,
    /// The allocated amounts.
    pub allocated: [i64; 3],
    /// The fair share.
    pub fair: [i64; 3],
    /// The quota.
    pub quota: Figures,
    /// The limit.
    pub limit: Figures,
    /// The usage over the window of time, in billionths of the cluster.
    pub usage: [i64; 3],
}

/// Amounts of the three shared resources: milli-cores, bytes, millionths of a GPU. `None` = unlimited.
pub type Figures = [Option<i64>; 3];

/// Figures of a queue whose limit or quota blocks a pod group.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueFigures {
    /// The queue's name.
    pub name: Name,
    /// Requested by all its pods.
    pub requested: Figures,
    /// The quota.
    pub deserved: Figures,
    /// Allocated to its pods.
    pub allocated: Figures,
    /// Allocated to its non-preemptible pods.
    pub allocated_non_preemptible: Figures,
    /// The limit.
    pub limit: Figures,
    /// Requested by the pod group.
    pub group_requested: Figures,
    /// `group_requested` if the pod group is non-preemptible, else zeros.
    pub group_requested_non_preemptible: Figures,
}

/// Timestamps of a pod group after a cycle; written as annotations where these differ.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupTimes {
    /// The pod group that they belong to.
    pub group: GroupKey,
    /// Since when it is stale.
    pub stale_since: Option<Time>,
    /// When it last began to run.
    pub last_start: Option<Time>,
    /// When it was last evicted.
    pub last_eviction: Option<Time>,
}

/// So many nodes of which only one figure is looked at, such as what is free, count as much as one that is tested.
pub const LOOKS_PER_TEST: usize = 4;

/// Counted steps of a cycle. Limits and tests use these, never a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pod groups tried.
    pub groups_tried: u64,
    /// Nodes tested or ranked for a pod; [`LOOKS_PER_TEST`] of which only the preference is looked at count one.
    pub nodes_tested: u64,
    /// Candidate victim sets simulated.
    pub candidates_simulated: u64,
    /// Pods that these evicted and placed again.
    pub pods_simulated: u64,
    /// Candidate victim sets that had failed before.
    pub candidates_repeated: u64,
    /// Candidate victim sets with which the pods fitted, but that are not acceptable.
    pub candidates_refused: u64,
}

impl Work {
    /// The difference to `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            groups_tried: self.groups_tried - before.groups_tried,
            nodes_tested: self.nodes_tested - before.nodes_tested,
            candidates_simulated: self.candidates_simulated - before.candidates_simulated,
            pods_simulated: self.pods_simulated - before.pods_simulated,
            candidates_repeated: self.candidates_repeated - before.candidates_repeated,
            candidates_refused: self.candidates_refused - before.candidates_refused,
        }
    }
}
