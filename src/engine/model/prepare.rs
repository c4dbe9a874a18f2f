//! Values derived from all nodes and all queues, updated before a cycle decides.

use crate::engine::input::{GPU, NumaPolicy};
use crate::engine::policy::{NodePlacement, Policy};

use super::epochs::{Change, Epoch};
use super::ids::{PodGroupId, PodId, QueueId};
use super::node::Node;
use super::numa::is_device;
use super::queue::QueuePlace;
use super::resources::{CPU, GPUS, MEMORY, Shared, add, mig_slices};
use super::shape::UNKNOWN_GPU_MEMORY;
#[cfg(debug_assertions)]
use super::topology::Topology;
use super::{Model, NodeSummary};

impl Model {
    /// Updates all derived values.
    pub fn prepare(&mut self, policy: &Policy) {
        self.devices.set_locality(&policy.plugins.device_locality);
        self.devices.searches.forget();
        for id in std::mem::take(&mut self.opened_groups) {
            if self.nodes.contains(id) {
                self.nodes[id].forget_unused_groups();
            }
        }
        if !self.node_summary.is_current(self.node_summary_epoch()) {
            self.order_nodes(policy);
        }
        let epoch = self.total_epoch();
        if !self.total.is_current(epoch) {
            self.total.set(epoch, self.summed_up(policy));
        }
        let by_name = &self.node_summary.last().by_name;
        let epoch = self.epochs.of_any([Change::NodeSpecs, Change::Topologies]);
        if self.topology_trees.catch_up(epoch) {
            for topology in self.topologies.values_mut() {
                topology.sort_nodes(&self.nodes, by_name);
            }
        }
        let node_specs = self.epochs.of(Change::NodeSpecs);
        self.storage.refresh(&self.nodes, by_name, node_specs);
        if !self.neighbours_counted() || !self.neighbours.has_counted_all() {
            self.count_neighbours();
        }
        if !self.queue_tree_current() {
            self.build_queue_tree(policy);
            self.judge();
        }
        #[cfg(debug_assertions)]
        self.assert_derived(policy);
    }

    /// The epoch of what [`NodeSummary`] and the index are derived from.
    pub(super) fn node_summary_epoch(&self) -> Epoch {
        self.epochs.of_any([Change::NodeSpecs, Change::Settings])
    }

    /// The epoch of what the total is derived from.
    pub(super) fn total_epoch(&self) -> Epoch {
        self.epochs
            .of_any([Change::NodeSpecs, Change::ForeignUsage, Change::Settings])
    }

    /// The epoch of what the queue tree is derived from.
    fn queue_tree_epoch(&self) -> Epoch {
        self.epochs
            .of_any([Change::QueueTree, Change::SmallestGpu, Change::Settings])
    }

    /// Whether the queue tree and the counters of queues are up to date.
    pub(super) fn queue_tree_current(&self) -> bool {
        self.queue_tree.is_current(self.queue_tree_epoch())
    }

    /// Compares all values that are up to date with recomputed ones.
    #[cfg(debug_assertions)]
    fn assert_derived(&self, policy: &Policy) {
        assert_eq!(
            *self.node_summary.last(),
            self.summarise_nodes(),
            "the summary of nodes"
        );
        assert!(self.index.is_true(&self.nodes), "the index of nodes");
        assert_eq!(*self.total.last(), self.summed_up(policy), "what the top queues share");
        for topology in self.topologies.values() {
            let mut anew = Topology::new(topology.levels.clone());
            anew.sort_nodes(&self.nodes, self.by_name());
            assert_eq!(*topology, anew, "a topology's tree");
        }
        let places = self.queue_places(policy);
        for (id, queue) in self.queues.iter() {
            assert_eq!(queue.place(), places[id.at()], "the place of queue {}", queue.name);
        }
        for (_, pod) in self.pods.iter() {
            let counted = self.neighbours.counted(&pod.input);
            assert_eq!(pod.counted, counted, "the counters of pod {}", pod.input.pod.name);
        }
    }

    /// Facts derived from all nodes.
    fn summarise_nodes(&self) -> NodeSummary {
        let mut summary = NodeSummary::default();
        let present = self.nodes.iter().filter(|(_, node)| node.input.is_some());
        summary.by_name = present.map(|(id, _)| id).collect();
        summary
            .by_name
            .sort_by(|left, right| self.nodes[*left].name.cmp(&self.nodes[*right].name));
        for &id in &summary.by_name {
            let node = &self.nodes[id];
            summary.largest.raise(&node.allocatable);
            if let Some(ledger) = &node.numa {
                summary.most_zones = summary.most_zones.max(ledger.input.zones.len());
                if ledger.input.policy != NumaPolicy::None {
                    let devices = ledger.resources.iter().filter(|name| is_device(name));
                    summary.zoned_devices.extend(devices.cloned());
                }
            }
            if let Some(memory) = node.input.as_ref().and_then(|input| input.gpu_memory) {
                let (least, most) = summary.gpu_memory.unwrap_or((memory, memory));
                // A label of so little is wrong: as the smallest size it would turn each request by memory into hundreds of GPUs. It counts only if
                // no node has another.
                let wrong_ones_last = |memory: i64| (memory <= UNKNOWN_GPU_MEMORY, memory);
                let (_, least) = wrong_ones_last(least).min(wrong_ones_last(memory));
                summary.gpu_memory = Some((least, most.max(memory)));
            }
        }
        summary
    }

    /// Ranks the nodes by name, and builds the index.
    fn order_nodes(&mut self, policy: &Policy) {
        let summary = self.summarise_nodes();
        for (rank, &id) in summary.by_name.iter().enumerate() {
            self.nodes[id].rank = rank as u32;
        }
        if summary.smallest_gpu() != self.node_summary.last().smallest_gpu() {
            // Queues count requests by GPU memory on unknown nodes by it, and must be counted again with the new one before a pod is charged.
            self.epochs.bump(Change::SmallestGpu);
        }
        let NodePlacement { gpu, cpu } = policy.plugins.node_placement.unwrap_or_default();
        self.index.rebuild(gpu, cpu, &self.nodes, &summary.by_name);
        self.node_summary.set(self.node_summary_epoch(), summary);
    }

    /// Sums the capacity that the top queues share.
    fn summed_up(&self, policy: &Policy) -> Shared {
        let mut total = [0; 3];
        for &id in self.by_name() {
            let node = &self.nodes[id];
            if node.ready() {
                let mut foreign = node.foreign;
                if !counts_gpus(node, policy) {
                    foreign[GPUS] = 0;
                }
                add(&mut total, &self.offers(node, policy), 1);
                add(&mut total, &foreign, -1);
            }
        }
        total
    }

    fn offers(&self, node: &Node, policy: &Policy) -> Shared {
        let slices = node
            .allocatable
            .iter()
            .map(|(at, amount)| mig_slices(self.resources.name(at)) * amount * GPU);
        let mut gpus = node.allocatable.get(GPUS) + slices.sum::<i64>();
        if !counts_gpus(node, policy) {
            gpus = 0;
        }
        [node.allocatable.get(CPU), node.allocatable.get(MEMORY), gpus]
    }

    /// Each queue's position in the tree, by index.
    fn queue_places(&self, policy: &Policy) -> Vec<QueuePlace> {
        let mut places = vec![QueuePlace::default(); self.queues.slots()];
        for (id, queue) in self.queues.iter() {
            let parent = queue.input.as_ref().and_then(|input| input.parent.as_ref());
            let known = parent.and_then(|name| self.queues.id(name));
            places[id.at()] = QueuePlace {
                valid: queue.input.is_some() && parent.is_some() == known.is_some(),
                parent: known,
                children: Vec::new(),
            };
        }
        let sound: Vec<bool> = (0..places.len()).map(|at| reaches_top(&places, at)).collect();
        for (place, sound) in places.iter_mut().zip(sound) {
            place.valid = sound;
            if !sound {
                place.parent = None;
            } else if !policy.full_hierarchy {
                // Two levels only: queues with a parent are right below the implied root, top queues take no part.
                place.valid = place.parent.take().is_some();
            }
        }
        let mut ids: Vec<QueueId> = self.queues.ids().collect();
        ids.sort_by(|left, right| self.queues[*left].name.cmp(&self.queues[*right].name));
        for id in ids {
            if let Some(parent) = places[id.at()].parent {
                places[parent.at()].children.push(id);
            }
        }
        places
    }

    /// Rebuilds the queue tree and recounts its counters.
    fn build_queue_tree(&mut self, policy: &Policy) {
        let mut places = self.queue_places(policy);
        let ids: Vec<_> = self.queues.ids().collect();
        for id in ids {
            let queue = &mut self.queues[id];
            queue.set_place(std::mem::take(&mut places[id.at()]));
            queue.allocated = [0; 3];
            queue.non_preemptible = [0; 3];
            queue.wanted = [0; 3];
            queue.wanted_memory = 0;
        }
        // While the tree is out of date nothing is charged to queues.
        let pod_groups: Vec<PodGroupId> = self.pod_groups.ids().collect();
        for pod_group in pod_groups {
            if self.find_queue(pod_group) {
                self.pod_group_changed(pod_group);
            }
        }
        self.queue_tree.catch_up(self.queue_tree_epoch());
        let pods: Vec<PodId> = self.pods.ids().collect();
        for pod in pods {
            self.charge(pod, 1);
        }
    }

    /// A queue and its ancestors, upwards.
    pub fn path_up(&self, queue: QueueId) -> impl Iterator<Item = QueueId> + '_ {
        std::iter::successors(Some(queue), |at| self.queues[*at].parent)
    }

    /// Top queues of the tree, by name.
    #[must_use]
    pub fn top_queues(&self) -> Vec<QueueId> {
        let mut top: Vec<_> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.valid && queue.parent.is_none())
            .map(|(id, _)| id)
            .collect();
        top.sort_by(|left, right| self.queues[*left].name.cmp(&self.queues[*right].name));
        top
    }
}

/// Whether a queue and all its ancestors are known, without a cycle.
fn reaches_top(places: &[QueuePlace], mut at: usize) -> bool {
    for _ in 0..=places.len() {
        if !places[at].valid {
            return false;
        }
        match places[at].parent {
            Some(parent) => at = parent.at(),
            None => return true,
        }
    }
    false
}

/// Whether a node's GPUs count.
fn counts_gpus(node: &Node, policy: &Policy) -> bool {
    !policy.restrict_nodes || has_label(node, &policy.gpu_worker_label)
}

/// Whether a node carries a label, whatever its value.
#[must_use]
pub fn has_label(node: &Node, key: &str) -> bool {
    node.label(key).is_some()
}
