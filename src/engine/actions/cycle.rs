//! A cycle under way: the parts that actions work with.

use crate::engine::fairshare::sorted::SortedPodGroups;
use crate::engine::fairshare::tree::{OrderEntry, OrderTree, Purpose};
use crate::engine::model::Model;
use crate::engine::model::ids::PodGroupId;
use crate::engine::policy::ActionKind;
use crate::engine::stage::Observer;

use super::capacity::CapacityTables;
use super::context::CycleContext;
use super::cycle_log::CycleLog;
use super::node_scratch::NodeScratch;
use super::place::{PlacementCaches, Placer};

/// What is kept from cycle to cycle beside the model.
#[derive(Debug, Default)]
pub struct Kept {
    /// Pending pod groups and possible victims of each queue, in order.
    pub sorted: SortedPodGroups,
    /// Free resources per node.
    pub capacity: CapacityTables,
    /// See [`NodeScratch`].
    pub node_scratch: NodeScratch,
    /// The pod group that is being placed.
    pub placing: Option<PodGroupId>,
}

/// A cycle under way.
pub struct Cycle<'a> {
    /// The cluster.
    pub model: &'a mut Model,
    /// The settings and the time.
    pub context: CycleContext<'a>,
    /// See [`Kept`].
    pub kept: &'a mut Kept,
    /// What placing has found out so far.
    pub caches: PlacementCaches,
    /// What is noted for reports and decisions.
    pub log: CycleLog,
    /// Steps that the complete search may still take.
    pub steps_left: usize,
    /// Is called after each stage.
    pub observer: Observer<'a>,
}

impl<'a> Cycle<'a> {
    /// A cycle on a prepared model.
    pub fn new(model: &'a mut Model, kept: &'a mut Kept, context: CycleContext<'a>, observer: Observer<'a>) -> Self {
        // The order is needed only while pods are pending.
        if !model.pending().is_empty() {
            kept.sorted.update(model, context.rules, context.now);
        }
        kept.capacity.begin(model);
        Self {
            model,
            context,
            kept,
            caches: PlacementCaches::default(),
            log: CycleLog::default(),
            steps_left: context.policy.plugins.complete_search_steps,
            observer,
        }
    }

    /// Remembers which pod group is being placed, for the case that it makes the cycle panic.
    pub fn begin_placing(&mut self, pod_group: PodGroupId) {
        self.kept.placing = Some(pod_group);
        #[cfg(test)]
        crate::engine::tests::faults::panic_if_told(&self.model.pod_groups()[pod_group].key);
    }

    /// What places pods.
    pub fn placer(&mut self) -> Placer<'_> {
        Placer {
            model: self.model,
            context: self.context,
            caches: &mut self.caches,
            log: &mut self.log,
        }
    }

    /// A tree for pending pod groups, as deep as the policy wants an action to look. No queue has been added yet.
    #[must_use]
    pub fn pending_tree(&self, action: ActionKind) -> OrderTree {
        let tree = OrderTree::new(self.context.rules, Purpose::Pending);
        match self.context.policy.queue_depth.iter().find(|(of, _)| *of == action) {
            Some((_, most)) => tree.at_most(*most),
            None => tree,
        }
    }

    /// A pending pod group, to be pushed again.
    #[must_use]
    pub fn waiting_entry(&self, pod_group: PodGroupId) -> Option<OrderEntry> {
        let (_, order, amount) = self.kept.sorted.waiting(pod_group)?;
        let order = order.clone();
        Some(OrderEntry {
            order,
            pod_group,
            amount,
            pods: None,
        })
    }

    /// Keeps all changes.
    pub fn commit(&mut self) {
        self.kept.capacity.touch(self.model.nodes_in_log());
        self.model.commit();
        self.caches.committed();
        self.kept
            .sorted
            .update(self.model, self.context.rules, self.context.now);
    }
}
