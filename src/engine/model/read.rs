//! Read access to the fields of the model. Derived values are up to date from [`Model::prepare`] until the next event.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::input::Name;

use super::budget::Budgets;
use super::class::Class;
use super::devices::Inventory;
use super::directory::Directory;
use super::epochs::{Change, Epochs};
use super::ids::{ClassId, NodeId, PodGroupId, PodId, QueueId, ShapeId};
use super::index::NodeIndex;
use super::node::Node;
use super::node_set::NodeSet;
use super::pod::Pod;
use super::pod_group::PodGroup;
use super::queue::Queue;
use super::relations::Neighbours;
use super::resources::{ResourceNames, Resources, Shared};
use super::shape::Shape;
use super::topology::Topology;
use super::volumes::Storage;
use super::{Model, NodeSummary};

impl Model {
    /// The epochs of all kinds of change.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Nodes.
    #[must_use]
    pub fn nodes(&self) -> &Directory<NodeId, Node> {
        &self.nodes
    }

    /// Pods.
    #[must_use]
    pub fn pods(&self) -> &Directory<PodId, Pod> {
        &self.pods
    }

    /// Pod groups.
    #[must_use]
    pub fn pod_groups(&self) -> &Directory<PodGroupId, PodGroup> {
        &self.pod_groups
    }

    /// Queues.
    #[must_use]
    pub fn queues(&self) -> &Directory<QueueId, Queue> {
        &self.queues
    }

    /// Classes of static constraints.
    #[must_use]
    pub fn classes(&self) -> &Directory<ClassId, Class> {
        &self.classes
    }

    /// Requests of pods, and some without pods that are kept for reuse.
    #[must_use]
    pub fn shapes(&self) -> &Directory<ShapeId, Shape> {
        &self.shapes
    }

    /// Names of resources.
    #[must_use]
    pub fn resources(&self) -> &ResourceNames {
        &self.resources
    }

    /// Topologies by name.
    #[must_use]
    pub fn topologies(&self) -> &BTreeMap<Name, Topology> {
        &self.topologies
    }

    /// PodDisruptionBudgets.
    #[must_use]
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// Devices that pods claim, and the claims.
    #[must_use]
    pub fn devices(&self) -> &Inventory {
        &self.devices
    }

    /// Counters of relations between pods.
    #[must_use]
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Volumes, and the pods that use them.
    #[must_use]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Nodes in score order. See [`Model::catch_up_index`].
    #[must_use]
    pub fn index(&self) -> &NodeIndex {
        &self.index
    }

    /// Pod groups with pending pods.
    #[must_use]
    pub fn pending(&self) -> &BTreeSet<PodGroupId> {
        &self.pending
    }

    /// Pending pods that belong to no pod set of their pod group.
    #[must_use]
    pub fn unknown_sub_groups(&self) -> &BTreeSet<PodId> {
        &self.unknown_sub_groups
    }

    /// Pods whose state was changed by a committed statement in this cycle, in order.
    #[must_use]
    pub fn decided(&self) -> &[PodId] {
        &self.decided
    }

    fn node_summary(&self) -> &NodeSummary {
        self.node_summary.get(self.node_summary_epoch())
    }

    /// Nodes in name order.
    #[must_use]
    pub fn by_name(&self) -> &[NodeId] {
        &self.node_summary().by_name
    }

    /// Smallest and largest known MiB per GPU.
    #[must_use]
    pub fn gpu_memory(&self) -> Option<(i64, i64)> {
        self.node_summary().gpu_memory
    }

    /// The largest amount of each resource on one node.
    #[must_use]
    pub fn largest(&self) -> &Resources {
        &self.node_summary().largest
    }

    /// Most NUMA zones on one node, among nodes whose alignment is predicted; 0 if there are none.
    #[must_use]
    pub fn most_zones(&self) -> usize {
        self.node_summary().most_zones
    }

    /// Device resources that some kubelet aligns to NUMA zones.
    #[must_use]
    pub fn zoned_devices(&self) -> &BTreeSet<Name> {
        &self.node_summary().zoned_devices
    }

    /// The capacity that the top queues share.
    #[must_use]
    pub fn total(&self) -> Shared {
        *self.total.get(self.total_epoch())
    }

    /// The nodes that meet the constraints of a class, if up to date.
    #[must_use]
    pub fn known_class_nodes(&self, class: ClassId) -> Option<&NodeSet> {
        let nodes = &self.classes[class].nodes;
        nodes
            .is_current(self.epochs.of(Change::NodeSpecs))
            .then(|| nodes.last())
    }

    /// The nodes that meet the constraints of a class, which must be up to date.
    #[must_use]
    pub fn class_nodes(&self, class: ClassId) -> &NodeSet {
        self.classes[class].nodes.get(self.epochs.of(Change::NodeSpecs))
    }
}
