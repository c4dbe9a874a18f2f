//! Pods of the model: request, place, state.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::input::{Keyed, Name, PodInput, PodStatus, Time};

use super::devices::claims::Grants;
use super::ids::{ClassId, NodeId, PodGroupId, ShapeId};
use super::numa::ZoneShare;
use super::relations::Counters;
use super::volumes::Promises;
use super::weight::Weight;

/// A pod's state. `Allocated` and `Pipelined` exist only while a cycle decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Waits for a node.
    Pending,
    /// Waits for its scheduling gates.
    Gated,
    /// Bound by a decision of this cycle.
    Allocated,
    /// Planned for a node, where it waits for releasing pods.
    Pipelined,
    /// A bind is under way.
    Binding,
    /// Has a node.
    Bound,
    /// Runs.
    Running,
    /// Is being deleted or evicted.
    Releasing,
    /// Is being deleted for too long; its resources are not counted as free later.
    Stuck,
    /// Ended well.
    Succeeded,
    /// Failed.
    Failed,
    /// Phase Unknown.
    Unknown,
}

/// Number of states.
pub const STATUSES: usize = 12;

impl Status {
    /// Is on a node, or pipelined to one.
    #[must_use]
    pub const fn active_used(self) -> bool {
        self.active_allocated() || matches!(self, Self::Releasing | Self::Stuck)
    }

    /// Counts for its pod group's minimum, and may be a victim.
    #[must_use]
    pub const fn active_allocated(self) -> bool {
        self.allocated() || matches!(self, Self::Pipelined)
    }

    /// Holds resources and is not releasing.
    #[must_use]
    pub const fn allocated(self) -> bool {
        matches!(self, Self::Allocated | Self::Binding | Self::Bound | Self::Running)
    }

    /// Exists and can still run.
    #[must_use]
    pub const fn alive(self) -> bool {
        self.active_allocated() || matches!(self, Self::Pending | Self::Gated)
    }
}

/// The GPU groups of a place, as positions in [`Node::groups`](super::node::Node::groups).
pub type GroupList = SmallVec<[u32; 2]>;

/// A place on a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The node.
    pub node: NodeId,
    extras: Option<Arc<Extras>>,
}

/// Parts of a place beside resources and whole GPUs. Boxed, because most places have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extras {
    /// Shared GPUs used there.
    pub groups: GroupList,
    /// Shared GPUs used there for which the node keeps no group, because too many are in use. They count as whole ones.
    pub ungrouped: u32,
    /// NUMA zones used there.
    pub zones: Vec<ZoneShare>,
    /// The number of the last report on the node's zones before the pod was placed there, 0 if none is known or it uses no zones. Later reports include the
    /// pod.
    pub after_report: u64,
    /// Volumes promised to its unbound claims.
    pub volumes: Promises,
    /// Devices used there, by claim; `None` if it claims none.
    pub devices: Option<Arc<Grants>>,
}

static NO_EXTRAS: Extras = Extras {
    groups: SmallVec::new_const(),
    ungrouped: 0,
    zones: Vec::new(),
    after_report: 0,
    volumes: None,
    devices: None,
};

impl Place {
    /// A place with extras.
    #[must_use]
    pub fn new(node: NodeId, extras: Extras) -> Self {
        let extras = (extras != NO_EXTRAS).then(|| Arc::new(extras));
        Self { node, extras }
    }

    /// Its extras.
    #[must_use]
    pub fn extras(&self) -> &Extras {
        self.extras.as_deref().unwrap_or(&NO_EXTRAS)
    }

    /// Changes its extras.
    pub fn change(&mut self, change: impl FnOnce(&mut Extras)) {
        let mut extras = self.extras().clone();
        change(&mut extras);
        self.extras = (extras != NO_EXTRAS).then(|| Arc::new(extras));
    }
}

/// A pod's status and places; `Model::set_state` updates everything derived from it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Its status.
    pub status: Status,
    /// The status before an eviction in the open statement. Cleared by the commit.
    pub evicted_from: Option<Status>,
    /// The place that it holds.
    pub hold: Option<Place>,
    /// It is releasing what it holds.
    pub leaving: bool,
    /// The place that it is pipelined to.
    pub plan: Option<Place>,
}

impl State {
    /// Without any place.
    #[must_use]
    pub fn nowhere(status: Status) -> Self {
        Self {
            status,
            evicted_from: None,
            hold: None,
            leaving: false,
            plan: None,
        }
    }

    /// Pipelined, and holds no place.
    #[must_use]
    pub fn pipelined(plan: Option<Place>) -> Self {
        Self {
            plan,
            ..Self::nowhere(Status::Pipelined)
        }
    }

    /// On a node.
    #[must_use]
    pub fn on(status: Status, place: Place) -> Self {
        Self {
            status,
            evicted_from: None,
            hold: Some(place),
            leaving: status == Status::Releasing,
            plan: None,
        }
    }

    /// How what it holds counts on its node.
    #[must_use]
    pub fn weight(&self) -> Weight {
        if self.leaving { Weight::Leaving } else { Weight::Staying }
    }

    /// It is being deleted or evicted, however long that takes: also if it is stuck, although its resources count as used then.
    #[must_use]
    pub fn terminates(&self) -> bool {
        self.leaving || self.status == Status::Stuck
    }
}

/// What the engine has decided about a pod and the API server has not shown yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Assumed {
    /// Nothing.
    #[default]
    Nothing,
    /// Bound to the place in its state.
    Bound,
    /// Evicted.
    Evicted,
}

/// Order among the pods of a pod set: masters, heads, pod priority, age, uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodOrder<'a> {
    /// 0 = kubeflow master.
    pub kubeflow: u8,
    /// 0 = ray head.
    pub ray: u8,
    /// Negated pod priority; pods without one come last.
    pub priority: i128,
    /// Age.
    pub created: Time,
    /// Breaks the last ties.
    pub uid: &'a Name,
}

/// A pod.
#[derive(Debug)]
pub struct Pod {
    /// What is known about it.
    pub input: Box<PodInput>,
    /// Its request.
    pub shape: ShapeId,
    /// Its static placement constraints.
    pub class: ClassId,
    /// Counters of pods to which it belongs.
    pub counted: Counters,
    /// Its pod group, known or not.
    pub pod_group: Option<PodGroupId>,
    /// Its pod set in the pod group's tree; `None` if it names one that is not there.
    pub member: Option<u32>,
    /// Its status and places.
    pub state: State,
    /// Its last bind or eviction failed: neither is tried before this instant.
    pub retry_at: Option<Time>,
    /// What is assumed about it.
    pub assumed: Assumed,
}

impl Keyed for Pod {
    type Key = str;
    fn key(&self) -> &str {
        &self.input.pod.uid
    }
}

impl Pod {
    /// Its sort key in its pod set.
    #[must_use]
    pub fn order(&self) -> PodOrder<'_> {
        let input = &self.input;
        PodOrder {
            kubeflow: u8::from(!input.kubeflow_master),
            ray: u8::from(!input.ray_head),
            // Wider than the label, so that every label comes before none.
            priority: input.task_priority.map_or(i128::MAX, |priority| -i128::from(priority)),
            created: input.created,
            uid: &input.pod.uid,
        }
    }

    /// Whether what it holds, or is about to, is charged whatever pod group or sub-group it names, known or not.
    #[must_use]
    pub fn always_charged(&self) -> bool {
        self.input.fallback_queue.is_some() || self.state.status == Status::Binding
    }
}

/// The status that a pod's object shows, as the model names it.
#[must_use]
pub fn shown(input: &PodInput, now: Time, stuck_after: i64) -> Status {
    match input.status {
        PodStatus::Pending => Status::Pending,
        PodStatus::Gated => Status::Gated,
        PodStatus::Binding => Status::Binding,
        PodStatus::Bound => Status::Bound,
        PodStatus::Running => Status::Running,
        PodStatus::Releasing => match input.releasing_since {
            Some(since) if now.0 - since.0 > stuck_after => Status::Stuck,
            Some(_) | None => Status::Releasing,
        },
        PodStatus::Succeeded => Status::Succeeded,
        PodStatus::Failed => Status::Failed,
        PodStatus::Unknown => Status::Unknown,
    }
}
