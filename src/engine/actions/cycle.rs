//! The state of a running cycle, on which the actions work.

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
use super::turns::Turns;

/// State that is kept between cycles beside the model.
#[derive(Debug, Default)]
pub struct Kept {
    /// Pending pod groups and possible victims of each queue, in order.
    pub sorted: SortedPodGroups,
    /// Free resources per node.
    pub capacity: CapacityTables,
    /// See [`NodeScratch`].
    pub node_scratch: NodeScratch,
    /// See [`Turns`].
    pub turns: Turns,
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
    /// Results of placement attempts that are still valid.
    pub caches: PlacementCaches,
    /// Records for reports and decisions.
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

    /// Records the pod group that is being placed, so that it can be set aside if the cycle panics.
    pub fn begin_placing(&mut self, pod_group: PodGroupId) {
        self.kept.placing = Some(pod_group);
        #[cfg(test)]
        crate::engine::tests::faults::panic_if_told(&self.model.pod_groups()[pod_group].key);
    }

    /// A placer on this cycle's state.
    pub fn placer(&mut self) -> Placer<'_> {
        Placer {
            model: self.model,
            context: self.context,
            caches: &mut self.caches,
            log: &mut self.log,
        }
    }

    /// An empty order tree for pending pod groups, limited to the action's depth in the policy.
    #[must_use]
    pub fn pending_tree(&self, action: ActionKind) -> OrderTree {
        let tree = OrderTree::new(self.context.rules, Purpose::Pending);
        match self.context.policy.queue_depth.iter().find(|(of, _)| *of == action) {
            Some((_, most)) => tree.at_most(*most),
            None => tree,
        }
    }

    /// The tree entry of a pending pod group, to push it again.
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

    /// Commits all changes of the open statement.
    pub fn commit(&mut self) {
        self.kept.capacity.touch(self.model.nodes_in_log());
        self.model.commit();
        self.caches.committed();
        self.kept
            .sorted
            .update(self.model, self.context.rules, self.context.now);
    }
}
