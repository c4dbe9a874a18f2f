//! The placement rules: the conditions under which a pod may be placed on a node.
//!
//! Each rule is one file with one function, `check`, and the type of its refusal; the rows below list them in the order in which reasons are reported.
//! `check` returns the form that the caller needs (see [`Verdict`]): the search needs only whether the pod fits ([`fits`]), a report needs the
//! reasons ([`refusals`]). To add a rule: write its file, declare it here, and give it a row.

use std::fmt;

use smallvec::SmallVec;

use crate::engine::model::Model;
use crate::engine::model::constraints::Constraints;
use crate::engine::model::ids::{ClassId, NodeId, PodId};
use crate::engine::model::node::Node;
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::pod::Pod;
use crate::engine::model::shape::Shape;
use crate::engine::policy::Policy;

use super::neighbours::Spreading;
use super::score::GpuOrder;

pub mod gpu_kind;
mod gpu_memory_known;
mod gpu_sharing;
pub mod host_ports;
mod node_affinity;
pub mod node_ready;
mod numa_alignment;
mod pod_affinity;
mod pod_slots;
pub mod queue_quota;
mod resource_claims;
pub mod resources;
mod shared_gpu_choice;
mod taints;
mod topology_spread;
mod volume_binding;
mod whole_gpu_source;
mod worker_nodes;

/// Input of rules beside the model, the pod and the node.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// The pod's topology spread constraints at this moment, if they count.
    pub spreading: Option<&'a Spreading>,
    /// Which GPUs of a node are shared first.
    pub gpu_order: GpuOrder,
}

/// A pod and a node that may take it.
#[derive(Clone, Copy)]
pub struct PodOnNode<'a> {
    /// The cluster.
    pub model: &'a Model,
    /// The settings.
    pub settings: Settings<'a>,
    /// The pod.
    pub pod_id: PodId,
    /// The pod's entry in the model.
    pub pod: &'a Pod,
    /// What the pod requests.
    pub shape: &'a Shape,
    /// The constraints of the pod's class.
    pub constraints: &'a Constraints,
    /// The node.
    pub id: NodeId,
    /// The node's entry in the model.
    pub node: &'a Node,
}

impl<'a> PodOnNode<'a> {
    /// A pod and a node by their ids.
    #[must_use]
    pub fn new(model: &'a Model, settings: Settings<'a>, pod_id: PodId, id: NodeId) -> Self {
        let pod = &model.pods()[pod_id];
        Self {
            model,
            settings,
            pod_id,
            pod,
            shape: &model.shapes()[pod.shape],
            constraints: &model.classes()[pod.class].constraints,
            id,
            node: &model.nodes()[id],
        }
    }
}

/// The form of a rule's answer: `bool`: whether the pod fits, without computing a reason; `Option<Reasons>`: why it does not fit, `None` if it does.
pub trait Verdict<R>: Sized {
    /// The rule does not refuse the node.
    const FITS: Self;

    /// The rule refuses the node for these reasons. A refusal may have no reason, where KAI reports none.
    fn refused_for<I: IntoIterator<Item = R>>(reasons: impl FnOnce() -> I) -> Self;

    /// The rule refuses the node for one reason.
    fn refused(reason: impl FnOnce() -> R) -> Self {
        Self::refused_for(|| [reason()])
    }

    /// The rule refuses the node unless something holds.
    fn fits_if(holds: bool, reason: impl FnOnce() -> R) -> Self {
        if holds { Self::FITS } else { Self::refused(reason) }
    }
}

impl<R> Verdict<R> for bool {
    const FITS: Self = true;

    fn refused_for<I: IntoIterator<Item = R>>(_: impl FnOnce() -> I) -> Self {
        false
    }
}

impl<R: Into<Refusal>> Verdict<R> for Option<Reasons> {
    const FITS: Self = None;

    fn refused_for<I: IntoIterator<Item = R>>(reasons: impl FnOnce() -> I) -> Self {
        Some(reasons().into_iter().map(Into::into).collect())
    }
}

/// Reasons of one node.
pub type Reasons = SmallVec<[Refusal; 1]>;

/// What a rule depends on, and so how long its answer can be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The pod's class and the node's specification: answered by [`refresh_class`] with one bit per node, until nodes change.
    Class,
    /// Also the pods of the node: a refusal holds until something is freed (`RejectedNodes` in `choose.rs`).
    Node,
    /// Also pods of other nodes: any placement may change the answer.
    Cluster,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name, which is that of its file.
    pub name: &'static str,
    /// What it depends on.
    pub scope: Scope,
    /// Why it refuses a node; `None`: it does not.
    pub reasons: fn(&PodOnNode) -> Option<Reasons>,
}

macro_rules! check {
    (Class, $rule:ident, $verdict:ty, $pair:expr) => {
        $rule::check::<$verdict>($pair.constraints, $pair.node)
    };
    ($scope:ident, $rule:ident, $verdict:ty, $pair:expr) => {
        $rule::check::<$verdict>($pair)
    };
}

/// `check` if the scopes are the same, else true.
macro_rules! fits_in {
    (Class Class $rule:ident $constraints:expr, $node:expr) => {
        $rule::check::<bool>($constraints, $node)
    };
    (Node Node $rule:ident $pair:expr) => {
        $rule::check::<bool>($pair)
    };
    (Cluster Cluster $rule:ident $pair:expr) => {
        $rule::check::<bool>($pair)
    };
    ($wanted:ident $scope:ident $rule:ident $($rest:tt)*) => {
        true
    };
}

/// Makes of the rows: [`RULES`], [`Refusal`], and the checks of all rules of one scope, which are resolved at compile time because the search runs them.
macro_rules! rules {
    ($($(#[$doc:meta])* $variant:ident: $rule:ident, $scope:ident;)+) => {
        /// All rules, in the order in which reasons are reported.
        const RULES: &[Rule] = &[$(Rule {
            name: stringify!($rule),
            scope: Scope::$scope,
            reasons: |pair| check!($scope, $rule, Option<Reasons>, pair),
        }),+];

        /// Why a rule refuses a node, in the order of the rules.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Refusal {
            $($(#[$doc])* $variant($rule::Refusal)),+
        }

        $(impl From<$rule::Refusal> for Refusal {
            fn from(refusal: $rule::Refusal) -> Self {
                Self::$variant(refusal)
            }
        })+

        impl fmt::Display for Refusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(refusal) => refusal.fmt(f)),+
                }
            }
        }

        fn class_fits(constraints: &Constraints, node: &Node) -> bool {
            true $(&& fits_in!(Class $scope $rule constraints, node))+
        }

        fn node_fits(pair: &PodOnNode) -> bool {
            true $(&& fits_in!(Node $scope $rule pair))+
        }

        fn cluster_fits(pair: &PodOnNode) -> bool {
            true $(&& fits_in!(Cluster $scope $rule pair))+
        }
    };
}

rules! {
    /// Cpu, memory, GPUs, pod slots, extended resources.
    Resources: resources, Node;
    /// The queue's limit and quota, for requests whose amount depends on the node.
    QueueQuota: queue_quota, Node;
    /// Whole GPUs, shared GPUs and MIG instances on nodes that offer them.
    GpuKind: gpu_kind, Node;
    /// Whole GPUs by device plugin or by resource claim.
    WholeGpuSource: whole_gpu_source, Node;
    /// Requests by GPU memory on nodes whose GPU memory is known.
    GpuMemoryKnown: gpu_memory_known, Node;
    /// GPUs that may be opened for sharing.
    GpuSharing: gpu_sharing, Node;
    /// Slots for the pod and a reservation pod.
    PodSlots: pod_slots, Node;
    /// Cordons and node conditions.
    NodeReady: node_ready, Class;
    /// Taints and tolerations.
    Taints: taints, Class;
    /// Node selector and required node affinity.
    NodeAffinity: node_affinity, Class;
    /// Host ports.
    HostPorts: host_ports, Node;
    /// Required pod affinity and anti-affinity.
    PodAffinity: pod_affinity, Node;
    /// Topology spread constraints.
    TopologySpread: topology_spread, Cluster;
    /// Volumes.
    VolumeBinding: volume_binding, Node;
    /// Nodes that are kept for pods with or without GPUs.
    WorkerNodes: worker_nodes, Node;
    /// Resource claims (dynamic resource allocation).
    ResourceClaims: resource_claims, Node;
    /// NUMA alignment by the kubelet's Topology Manager.
    NumaAlignment: numa_alignment, Node;
    /// The GPUs that a pod would share.
    SharedGpuChoice: shared_gpu_choice, Cluster;
}

/// Whether a pod fits a node, and if not, how long that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// No rule refuses it.
    Fits,
    /// Not until something is freed.
    RefusedUntilFreed,
    /// A rule of [`Scope::Cluster`] refuses it, and no other.
    RefusedForNow,
}

/// Whether any rule refuses a pod on a node. The bits of the pod's class must be up to date.
#[must_use]
pub fn fits(pair: &PodOnNode) -> Fit {
    // Fast path: the bit answers all rules of [`Scope::Class`].
    let class_fits = pair.model.class_nodes(pair.pod.class).has(pair.id.at());
    if !class_fits || !node_fits(pair) {
        Fit::RefusedUntilFreed
    } else if cluster_fits(pair) {
        Fit::Fits
    } else {
        Fit::RefusedForNow
    }
}

/// Why a node refuses a pod: the reasons of the first rule that refuses it, as KAI reports them. `None`: no rule refuses it.
#[must_use]
pub fn refusals(pair: &PodOnNode) -> Option<Reasons> {
    RULES.iter().find_map(|rule| (rule.reasons)(pair))
}

/// Brings a class's bits up to date: which nodes the rules of [`Scope::Class`] allow, without those that [`volume_binding`] refuses by their labels alone.
pub fn refresh_class(model: &mut Model, id: ClassId) {
    if let Some(known) = model.known_class_nodes(id) {
        debug_assert!(*known == class_nodes(model, id), "the nodes of a class");
        return;
    }
    let nodes = class_nodes(model, id);
    model.set_class_nodes(id, nodes);
}

fn class_nodes(model: &Model, id: ClassId) -> NodeSet {
    let constraints = &model.classes()[id].constraints;
    let allowed = |id: &NodeId| {
        let node = &model.nodes()[*id];
        class_fits(constraints, node) && volume_binding::reaches(constraints, node)
    };
    let nodes = model.by_name().iter().copied().filter(allowed);
    nodes.map(NodeId::at).collect()
}

#[cfg(test)]
mod tests;
