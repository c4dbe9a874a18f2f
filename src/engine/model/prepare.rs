//! What is derived from nodes and queues as a whole, brought up to date before a cycle decides.

use std::collections::BTreeSet;

use crate::engine::input::{GPU, NumaPolicy};
use crate::engine::policy::{NodePlacement, Policy};

use super::Model;
use super::ids::{PodGroupId, PodId, QueueId};
use super::node::Node;
use super::numa::is_device;
use super::resources::{CPU, GPUS, MEMORY, Resources, Shared, add, mig_slices};

impl Model {
    /// Brings everything derived up to date.
    pub fn prepare(&mut self, policy: &Policy) {
        self.devices.heed_locality(&policy.plugins.device_locality);
        for id in std::mem::take(&mut self.opened_groups) {
            if self.nodes.contains(id) {
                self.nodes[id].forget_unused_groups();
            }
        }
        if self.nodes_stale {
            self.order_nodes(policy);
        }
        if self.nodes_stale || self.totals_stale {
            self.sum_up(policy);
        }
        if self.nodes_stale || self.topologies_stale {
            for topology in self.topologies.values_mut() {
                topology.grow(&self.nodes, &self.by_name);
            }
        }
        if self.neighbours.stale && !self.neighbours.is_empty() {
            self.count_neighbours();
        }
        let (nodes, by_name) = (&self.nodes, &self.by_name);
        self.storage.refresh(nodes, by_name, self.generation, self.nodes_stale);
        self.nodes_stale = false;
        self.topologies_stale = false;
        self.totals_stale = false;
        if self.queues_stale {
            self.grow_queues(policy);
        }
    }

    fn order_nodes(&mut self, policy: &Policy) {
        self.generation += 1;
        let mut by_name: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.input.is_some())
            .map(|(id, _)| id)
            .collect();
        by_name.sort_by(|left, right| self.nodes[*left].name.cmp(&self.nodes[*right].name));
        self.largest = Resources::default();
        self.gpu_memory = None;
        (self.most_zones, self.zoned_devices) = (0, BTreeSet::new());
        for (rank, &id) in by_name.iter().enumerate() {
            let node = &mut self.nodes[id];
            node.rank = rank as u32;
            self.largest.raise(&node.allocatable);
            if let Some(ledger) = &node.numa {
                self.most_zones = self.most_zones.max(ledger.input.zones.len());
                if ledger.input.policy != NumaPolicy::None {
                    let devices = ledger.resources.iter().filter(|name| is_device(name));
                    self.zoned_devices.extend(devices.cloned());
                }
            }
            if let Some(memory) = node.input.as_ref().and_then(|input| input.gpu_memory) {
                let (least, most) = self.gpu_memory.unwrap_or((memory, memory));
                self.gpu_memory = Some((least.min(memory), most.max(memory)));
            }
        }
        let NodePlacement { gpu, cpu } = policy.plugins.node_placement.unwrap_or_default();
        self.by_name = by_name;
        self.index.rebuild(gpu, cpu, &self.nodes, &self.by_name);
    }

    /// Sums up what the top queues share.
    fn sum_up(&mut self, policy: &Policy) {
        let mut total = [0; 3];
        for &id in &self.by_name {
            let node = &self.nodes[id];
            if node.ready() {
                add(&mut total, &self.offers(node, policy), 1);
                add(&mut total, &node.foreign, -1);
            }
        }
        self.total = total;
    }

    fn offers(&self, node: &Node, policy: &Policy) -> Shared {
        let slices = node
            .allocatable
            .iter()
            .map(|(at, amount)| mig_slices(self.resources.name(at)) * amount * GPU);
        let mut gpus = node.allocatable.get(GPUS) + slices.sum::<i64>();
        if policy.restrict_nodes && !has_label(node, &policy.gpu_worker_label) {
            gpus = 0;
        }
        [node.allocatable.get(CPU), node.allocatable.get(MEMORY), gpus]
    }

    /// Builds the queue tree and counts everything in it anew.
    fn grow_queues(&mut self, policy: &Policy) {
        let ids: Vec<_> = self.queues.ids().collect();
        for &id in &ids {
            let parent = self.queues[id].input.as_ref().and_then(|input| input.parent.clone());
            let parent_id = parent.as_ref().and_then(|name| self.queues.id(name));
            let queue = &mut self.queues[id];
            queue.children.clear();
            queue.valid = queue.input.is_some() && (parent.is_none() || parent_id.is_some());
            queue.parent = parent_id;
            queue.allocated = [0; 3];
            queue.non_preemptible = [0; 3];
            queue.wanted = [0; 3];
            queue.wanted_memory = 0;
        }
        let sound: Vec<bool> = ids.iter().map(|&id| self.reaches_top(id, ids.len())).collect();
        for (&id, sound) in ids.iter().zip(sound) {
            self.queues[id].valid = sound;
            if !sound {
                self.queues[id].parent = None;
            } else if !policy.full_hierarchy {
                self.flatten(id);
            }
        }
        for &id in &ids {
            if let Some(parent) = self.queues[id].parent {
                self.queues[parent].children.push(id);
            }
        }
        for &id in &ids {
            let mut children = std::mem::take(&mut self.queues[id].children);
            children.sort_by(|left, right| self.queues[*left].name.cmp(&self.queues[*right].name));
            self.queues[id].children = children;
        }
        // While they are stale nothing is charged to queues.
        let pod_groups: Vec<PodGroupId> = self.pod_groups.ids().collect();
        for pod_group in pod_groups {
            if self.find_queue(pod_group) {
                self.pod_group_changed(pod_group);
            }
        }
        self.queues_stale = false;
        let pods: Vec<PodId> = self.pods.ids().collect();
        for pod in pods {
            self.charge(pod, 1);
        }
    }

    /// Two levels only: what has a parent hangs right below the (implied) root, top queues take no part.
    fn flatten(&mut self, id: QueueId) {
        let queue = &mut self.queues[id];
        queue.valid = queue.parent.is_some();
        queue.parent = None;
    }

    fn reaches_top(&self, id: QueueId, most: usize) -> bool {
        let mut at = id;
        for _ in 0..=most {
            if !self.queues[at].valid {
                return false;
            }
            match self.queues[at].parent {
                Some(parent) => at = parent,
                None => return true,
            }
        }
        false
    }

    /// A queue and all above it, upwards.
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

/// Whether a node carries a label, whatever its value.
#[must_use]
pub fn has_label(node: &Node, key: &str) -> bool {
    node.label(key).is_some()
}
