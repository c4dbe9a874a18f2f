//! What the engine decides in one cycle: plain data, names and uids, nothing to look up.

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
    /// Pods to delete.
    pub evict: Vec<Eviction>,
    /// Pods that have a place as soon as what is leaving it has left. Assumed for this cycle only.
    pub pipeline: Vec<Pipeline>,
    /// Pod groups with pending pods that found no place, and why. A group is listed again only when its report changed.
    pub unschedulable: Vec<GroupReport>,
    /// Pod groups that have nothing pending any more: what `unschedulable` said about them is over.
    pub cleared: Vec<GroupKey>,
    /// Pods that wait and name a sub-group which their pod group does not have, each reported once; and those that no longer do.
    pub unknown_sub_groups: Vec<UnknownSubGroup>,
    /// Timestamps on pod groups to write down.
    pub times: Vec<GroupTimes>,
    /// What the cycle cost, in counted steps.
    pub work: Work,
}

impl Decisions {
    /// Nothing decided, nothing to tell.
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

/// A pod that cannot be placed because it names a sub-group that is not there. Nothing else of its pod group is affected.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownSubGroup {
    /// The pod that names the sub-group.
    pub pod: PodRef,
    /// The message for its owner; `None`: the last one no longer holds.
    pub message: Option<String>,
}

/// A pod gets a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Bind {
    /// The pod that is to run.
    pub pod: PodRef,
    /// Its pod group.
    pub group: GroupKey,
    /// The node on which it is to run.
    pub node: Name,
    /// How its GPUs are given. `Regular` also for pods without GPUs; shared GPUs are `Fraction`, also when asked for by memory.
    pub received: GpuKind,
    /// Number of GPU devices.
    pub gpu_count: i64,
    /// Portion of each device in billionths (a whole device: 1,000,000,000).
    pub gpu_portion: i64,
    /// For shared GPUs: the group of each device, new or joined.
    pub gpu_groups: Vec<Name>,
    /// NUMA zones that the kubelet is expected to use, with milli-cores and whole units of all else.
    pub zones: Vec<(Name, Vec<(Name, i64)>)>,
    /// What its claims without a volume get.
    pub volumes: Vec<Promise>,
    /// What the pod's claims are given, or have already.
    pub claims: Vec<ClaimGrant>,
}

/// What a claim of a pod is given.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimGrant {
    /// What the pod calls the claim; `None` = the one to be made for its extended resources.
    pub reference: Option<Name>,
    /// The key of the claim.
    pub claim: Name,
    /// The devices that it gets.
    pub allocation: AllocationInput,
}

/// A pod must leave.
#[derive(Clone, Debug, PartialEq)]
pub struct Eviction {
    /// The pod that is to be evicted.
    pub pod: PodRef,
    /// Its pod group.
    pub group: GroupKey,
    /// The action that decided it.
    pub action: ActionKind,
    /// The pod group that gets its place; `None` for stale pod groups.
    pub for_group: Option<GroupKey>,
    /// The reason; [`Eviction::message`] says it for the event and the pod's condition.
    pub why: EvictionCause,
    /// Disruption budgets, by name, that do not allow it.
    pub exceeds: Vec<Name>,
}

/// Why a pod is evicted.
#[derive(Clone, Debug, PartialEq)]
pub enum EvictionCause {
    /// A workload of higher priority needs its place.
    Preempted,
    /// It is moved, so that another fits.
    Moved,
    /// A queue takes back what it may have; the two queues, where they are known.
    Reclaimed(Option<Arc<Sides>>),
    /// Its pod group lacks pods.
    Broken {
        /// Pods that its pod set needs.
        min: usize,
        /// The pod set's name, unless it is the only one.
        sub_group: Option<Name>,
    },
}

/// Two queues between which something changes hands.
#[derive(Clone, Debug, PartialEq)]
pub struct Sides {
    /// The one that loses.
    pub theirs: Side,
    /// The one that wins.
    pub ours: Side,
}

/// A queue's figures before an eviction: cpu, memory, GPUs; `None` = unlimited.
#[derive(Clone, Debug, PartialEq)]
pub struct Side {
    /// Its name in messages.
    pub queue: Name,
    /// What it holds.
    pub used: [i64; 3],
    /// What it deserves.
    pub quota: [Option<i64>; 3],
    /// What it may hold, by its fair share.
    pub fair: [i64; 3],
    /// The priority among its siblings.
    pub priority: i64,
}

/// A pod waits for a place that is being vacated.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipeline {
    /// The pod that waits.
    pub pod: PodRef,
    /// Its pod group.
    pub group: GroupKey,
    /// The node on which its place becomes free.
    pub node: Name,
    /// For shared GPUs: the group of each device.
    pub gpu_groups: Vec<Name>,
}

/// A pod group that waits, in the report on their order.
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
    /// Too few pods exist for it to start; nothing was tried, and only an event says so.
    pub not_ready: bool,
    /// Some of its pods have a place already: no condition is written on the group, only the event.
    pub partly_runs: bool,
    /// Each reason found, in order.
    pub reasons: Vec<Reason>,
    /// What the pod group waits for, for people; [`GroupReport::text`] and [`GroupReport::pod_texts`] are what conditions and events say.
    pub verdict: Verdict,
    /// All reasons in one text, in KAI's words.
    pub message: String,
    /// The text for each pending pod, in KAI's words. Empty if pods are not to be marked.
    pub pods: Vec<(PodRef, String)>,
}

/// One reason, with its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// What kind.
    pub code: ReasonCode,
    /// The text.
    pub message: String,
    /// The figures behind the text.
    pub detail: Detail,
}

/// The level at which a pod group is held up, and the figures there.
#[derive(Clone, Debug, PartialEq)]
pub enum Detail {
    /// The text says it all.
    Text,
    /// A queue's limit or quota.
    Queue(Box<QueueFigures>),
    /// The nodes: a pod fits on none.
    Nodes(Box<NodeFigures>),
    /// A domain of a topology has too little room.
    Domain(Box<DomainFigures>),
}

impl Detail {
    /// The queue, where that is the level.
    #[must_use]
    pub fn queue(&self) -> Option<&QueueFigures> {
        match self {
            Self::Queue(figures) => Some(figures),
            Self::Text | Self::Nodes(_) | Self::Domain(_) => None,
        }
    }
}

/// The nodes' side of a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFigures {
    /// The first pod that fitted nowhere.
    pub pod: PodRef,
    /// The sub-group that this pod is in.
    pub sub_group: Name,
    /// Pods of the sub-group that found a place before.
    pub placed: usize,
    /// Pods that the sub-group needs.
    pub required: usize,
    /// What is wrong on all nodes alike, if anything is.
    pub headline: Option<String>,
    /// Why nodes refuse the pod, and how many do for that reason; a node may have several.
    pub refusals: Vec<(String, usize)>,
}

/// A topology domain's side of a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct DomainFigures {
    /// The domain: the labels' values from the widest level on.
    pub domain: Name,
    /// Pods that are to be in it together.
    pub required: usize,
    /// Pods that it has room for, where they could be counted.
    pub slots: Option<i64>,
    /// What it has too little of.
    pub short: Vec<Shortage>,
}

/// Too little of a resource. Cpu in milli-cores, memory in bytes, GPUs in millionths, others as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortage {
    /// The name of the resource.
    pub resource: Name,
    /// What is asked for.
    pub asked: i64,
    /// What is free.
    pub free: i64,
}

/// Kinds of reasons. [`ReasonCode::as_str`] gives the word in a pod group's condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    /// A non-preemptible workload would pass a queue's quota.
    NonPreemptibleOverQuota,
    /// A queue's limit would be passed.
    OverLimit,
    /// The queue is not there.
    QueueDoesNotExist,
    /// Pods fit on no node.
    PodSchedulingErrors,
    /// The workload may not evict others yet.
    PreemptionDelayNotElapsed,
    /// No topology domain has room.
    NotEnoughResources,
}

impl ReasonCode {
    /// The word, as KAI writes it.
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

/// What a queue holds, and what its share is.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStanding {
    /// The queue's name.
    pub queue: Name,
    /// What its workloads hold.
    pub allocated: [i64; 3],
    /// Its fair share at present.
    pub fair: [i64; 3],
    /// What it deserves.
    pub quota: Figures,
    /// The most that it may hold.
    pub limit: Figures,
    /// What it used over time, in billionths of the cluster.
    pub usage: [i64; 3],
}

/// Amounts of the three shared resources: milli-cores, bytes, millionths of a GPU. `None` = unlimited.
pub type Figures = [Option<i64>; 3];

/// A queue's side of a refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueFigures {
    /// The queue's name.
    pub name: Name,
    /// What all its workloads ask for.
    pub requested: Figures,
    /// What it deserves by its quota.
    pub deserved: Figures,
    /// What its workloads hold.
    pub allocated: Figures,
    /// What its non-preemptible workloads hold.
    pub allocated_non_preemptible: Figures,
    /// The most that it may hold.
    pub limit: Figures,
    /// What the pod group asks for.
    pub group_requested: Figures,
    /// The same if the pod group is non-preemptible, else zeros.
    pub group_requested_non_preemptible: Figures,
}

/// Timestamps of a pod group after a cycle; written as annotations if they differ from what is there.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupTimes {
    /// The pod group that they belong to.
    pub group: GroupKey,
    /// Since when its pod group is broken.
    pub stale_since: Option<Time>,
    /// When it last began to run.
    pub last_start: Option<Time>,
    /// When it was last evicted.
    pub last_eviction: Option<Time>,
}

/// Counted steps of a cycle: bounds and tests look at these, never at a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pod groups tried.
    pub groups_tried: u64,
    /// Nodes tested for a pod.
    pub nodes_tested: u64,
    /// Candidate victim sets simulated.
    pub candidates_simulated: u64,
    /// Candidate victim sets that had failed before.
    pub candidates_repeated: u64,
    /// Candidate victim sets that gave the places, but may not be taken.
    pub candidates_refused: u64,
}

impl Work {
    /// What was done since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            groups_tried: self.groups_tried - before.groups_tried,
            nodes_tested: self.nodes_tested - before.nodes_tested,
            candidates_simulated: self.candidates_simulated - before.candidates_simulated,
            candidates_repeated: self.candidates_repeated - before.candidates_repeated,
            candidates_refused: self.candidates_refused - before.candidates_refused,
        }
    }
}
