//! What a cycle records in the model beside pod states, and the lists of changes that it takes.

use std::sync::Arc;

use crate::engine::input::devices::AllocationInput;
use crate::engine::input::{Name, Time};

use super::Model;
use super::devices::Allocation;
use super::devices::claims::Used;
use super::epochs::Change;
use super::ids::{ClassId, NodeId, PodGroupId, PodId, QueueId};
use super::node_set::NodeSet;
use super::pod::{Assumed, GroupList, Status};
use super::resources::Shared;

impl Model {
    /// Makes the next cycle decide although no event came: time passed, resources were freed, or searches are left for the next cycle.
    pub fn decide_again(&mut self) {
        self.mark_changed(true);
    }

    /// Records that a pod is to be bound, which the API server does not show yet.
    pub fn assume_bound(&mut self, pod: PodId) {
        if let Some(pod_group) = self.pods[pod].pod_group {
            self.pod_groups[pod_group].evictions_for.bound();
        }
        self.pods[pod].assumed = Assumed::Bound;
    }

    /// Records that a pod is to be evicted, for a pod group if any, which the API server does not show yet.
    pub fn assume_evicted(&mut self, pod: PodId, preemptor: Option<PodGroupId>) {
        if let Some(pod_group) = self.pods[pod].pod_group
            && !self.queues_take_turns(pod_group, preemptor)
        {
            self.pod_groups[pod_group].evictions_for.evicted();
        }
        self.pods[pod].assumed = Assumed::Evicted;
        self.evicting.insert(self.pods[pod].input.pod.uid.clone(), preemptor);
    }

    /// Whether a pod is evicted for another queue while past usage of its own queue counts: queues then take turns, by intention.
    fn queues_take_turns(&self, victim: PodGroupId, preemptor: Option<PodGroupId>) -> bool {
        let queue = |pod_group: PodGroupId| self.pod_groups[pod_group].queue;
        let (Some(queue), Some(other)) = (queue(victim), preemptor.and_then(queue)) else {
            return false;
        };
        queue != other && self.path_up(queue).any(|at| self.queues[at].usage != [0; 3])
    }

    /// Pods whose eviction was decided, and which neither terminate yet nor are known to stay, in order of their uids.
    pub fn evicting(&mut self) -> Vec<PodId> {
        let pods = &self.pods;
        let evicting = |uid: &Name| pods.id(uid).filter(|id| pods[*id].assumed == Assumed::Evicted);
        self.evicting.retain(|uid, _| evicting(uid).is_some());
        self.evicting.keys().filter_map(evicting).collect()
    }

    /// Records the start of a pod group.
    pub fn started(&mut self, pod_group: PodGroupId, now: Time) {
        self.pod_groups[pod_group].started(now);
    }

    /// Records that pods are to be evicted for a pod group, of which so many pods have a place then.
    pub fn evicted_for(&mut self, pod_group: PodGroupId, places: usize, now: Time) {
        self.pod_groups[pod_group].evictions_for.decided(now, places);
    }

    /// Records that pods of a pod group are evicted for others.
    pub fn evicted(&mut self, pod_group: PodGroupId, now: Time) {
        self.pod_groups[pod_group].evicted(now);
    }

    /// Reverts the record of an eviction to the given times.
    pub fn not_evicted(&mut self, pod_group: PodGroupId, before: [Option<Time>; 2]) {
        self.pod_groups[pod_group].not_evicted(before);
    }

    /// Records whether a pod group is stale, since `now` if that is new. Returns whether anything changed. While it meets its minimum only with pods that
    /// are being bound or pipelined, the former time stays: their binds may fail, and others may get their places, again and again.
    pub fn set_stale(&mut self, pod_group: PodGroupId, stale: bool, now: Time) -> bool {
        let pod_group = &mut self.pod_groups[pod_group];
        let being_bound = pod_group.with(Status::Allocated) + pod_group.with(Status::Binding) > 0;
        let waits_for_plans = pod_group.with(Status::Pipelined) > 0 && pod_group.is_short_without_plans();
        let Some(input) = &mut pod_group.input else {
            return false;
        };
        if !stale && (being_bound || waits_for_plans) {
            return false;
        }
        let changed = stale != input.stale_since.is_some();
        if changed {
            input.stale_since = stale.then_some(now);
        }
        changed
    }

    /// Gives back what a pod's eviction deducted from disruption budgets.
    pub fn refund_budgets(&mut self, pod: PodId) {
        self.budgets.refund(&self.pods[pod].input.pod.uid);
    }

    /// Sets a queue's fair share.
    pub fn set_fair_share(&mut self, queue: QueueId, fair: Shared) {
        self.queues[queue].fair = fair;
    }

    /// Records a pod's use of a claim: of its allocated devices, or of some that it is to get.
    pub fn use_claim(
        &mut self,
        reference: Option<u32>,
        claim: &Name,
        known: Option<Arc<Allocation>>,
        fresh: &AllocationInput,
    ) -> Used {
        let claim = self.devices.claim_for(claim);
        Used {
            reference,
            claim,
            allocation: known.unwrap_or_else(|| self.devices.allocation(claim, fresh)),
        }
    }

    /// Opens GPUs of a node for sharing, each with a group named after the pod.
    pub fn open_gpus(&mut self, node: NodeId, pod: PodId, count: usize) -> GroupList {
        let uid = &self.pods[pod].input.pod.uid;
        let opened = &mut self.nodes[node];
        let mut groups = GroupList::new();
        let mut number = 0;
        for _ in 0..count {
            let name = loop {
                let name = Name::from(format!("{uid}-{number}"));
                number += 1;
                if !opened.groups.iter().any(|gpu| gpu.name == name && gpu.used()) {
                    break name;
                }
            };
            groups.push(opened.group(&name));
        }
        if count > 0 && self.opened_groups.last() != Some(&node) {
            self.opened_groups.push(node);
        }
        groups
    }

    /// Sets the nodes that meet the constraints of a class.
    pub fn set_class_nodes(&mut self, class: ClassId, nodes: NodeSet) {
        self.classes[class].nodes.set(self.epochs.of(Change::NodeSpecs), nodes);
    }

    /// Re-sorts the nodes whose usage changed in the index: to be done before a walk.
    pub fn catch_up_index(&mut self) {
        self.index.catch_up(&self.nodes);
    }

    /// Pods whose state was changed by a committed statement since the last call, in order.
    pub fn take_decided(&mut self) -> Vec<PodId> {
        std::mem::take(&mut self.decided)
    }

    /// Nodes whose usage changed outside of statements since the last call.
    pub fn take_touched(&mut self) -> NodeSet {
        std::mem::take(&mut self.touched)
    }

    /// Pod groups with a changed pod or settings since the last call, each once.
    pub fn take_changed_pod_groups(&mut self) -> Vec<PodGroupId> {
        let mut changed = std::mem::take(&mut self.changed_pod_groups);
        // A stable sort is fast here: the list consists of a few ascending runs.
        changed.sort();
        changed.dedup();
        changed
    }

    /// Pod groups whose sort key may have changed since the last call, each once, into a buffer.
    pub fn take_moved(&mut self, into: &mut Vec<PodGroupId>) {
        into.clear();
        std::mem::swap(&mut self.moved, into);
        if into.len() > 1 {
            into.sort();
            into.dedup();
        }
    }

    /// The sort key of every pod group may have changed. Pod groups that are gone since the list was read last stay in it.
    pub fn all_moved(&mut self) {
        self.moved.extend(self.pod_groups.ids());
    }

    /// Each pod group counts as changed.
    pub fn all_changed(&mut self) {
        self.changed_pod_groups.extend(self.pod_groups.ids());
    }

    /// A queue, for tests that set what it holds.
    #[cfg(test)]
    pub fn queue_mut(&mut self, queue: QueueId) -> &mut super::queue::Queue {
        &mut self.queues[queue]
    }

    /// A node, for tests that set what is on it.
    #[cfg(test)]
    pub fn node_mut(&mut self, node: NodeId) -> &mut super::node::Node {
        &mut self.nodes[node]
    }

    /// The capacity that the top queues share, for tests that set it.
    #[cfg(test)]
    pub fn set_total(&mut self, total: Shared) {
        self.total.set(self.total_epoch(), total);
    }
}
