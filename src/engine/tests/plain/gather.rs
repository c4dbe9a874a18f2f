//! Gathering victims from the worst on: worst queue, worst pod group in it, what that pod group can best do without.

use std::collections::BTreeSet;

use crate::engine::fairshare::order::Rules;
use crate::engine::fairshare::sorted::{active_of, requests};
use crate::engine::model::Model;
use crate::engine::model::ids::{NodeId, PodGroupId, PodId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::pod_group::{PodGroup, PodIds};
use crate::engine::model::resources::GPUS;

use super::Search;
use super::tree::{OrderEntry, OrderTree};
use crate::engine::actions::capacity::free_gpus;
use crate::engine::actions::victims::bounds::{asked_gpus, first_fit};
use crate::engine::actions::victims::search::VictimSearch;
use crate::engine::actions::victims::{Batch, node_of};
use crate::engine::fairshare::tree::Purpose;

/// Victims so far, and those still to come.
pub struct Gathering {
    /// Pods to place.
    pub pods: Vec<PodId>,
    /// Victims that earlier probes needed.
    pub recorded: Vec<Batch>,
    /// Victims gathered since.
    pub potential: Vec<Batch>,
    rules: Rules,
    taken: BTreeSet<PodId>,
    rest: OrderTree,
    /// Who is gathered after them.
    beyond: Vec<PodGroupId>,
    /// Free GPUs per node position, with all victims so far gone.
    capacity: Vec<i64>,
    needs: Vec<i64>,
    /// If all needs are equal: how many of them the capacities hold.
    slots: Option<i64>,
    nodes: NodeSet,
}

impl VictimSearch<'_> {
    /// Starts gathering for the first `count` pods.
    pub fn gather(&self, search: &Search, count: usize, recorded: &[Batch]) -> Gathering {
        let pods = search.case.chunk[..count].to_vec();
        let rest = lined_up(self.model, self.context.rules, &search.eligible);
        let mut capacity = vec![0; self.model.nodes().slots()];
        for &id in self.model.by_name() {
            capacity[id.at()] = free_gpus(&self.model.nodes()[id], self.model);
        }
        let needs: Vec<i64> = pods.iter().map(|pod| asked_gpus(self.model, *pod)).collect();
        let mut gathering = Gathering {
            taken: recorded.iter().flat_map(|batch| batch.pods.iter().copied()).collect(),
            pods,
            recorded: recorded.to_vec(),
            potential: Vec::new(),
            rules: self.context.rules,
            rest,
            beyond: search.beyond.clone(),
            capacity,
            slots: None,
            needs,
            nodes: search.feasible.clone(),
        };
        gathering.count_slots();
        for batch in recorded {
            gathering.free(self.model, batch);
        }
        gathering
    }
}

/// These pod groups as possible victims.
fn lined_up(model: &Model, rules: Rules, pod_groups: &[PodGroupId]) -> OrderTree {
    let mut tree = OrderTree::new(rules, Purpose::Victims);
    for &pod_group in pod_groups {
        let pods = model.pod_groups()[pod_group].pods.iter().copied();
        let pods: PodIds = pods.filter(|pod| evictable(model, *pod)).collect();
        if !pods.is_empty() {
            tree.push(model, victim_entry(model, rules, pod_group, pods));
        }
    }
    tree
}

/// A pod that eviction would remove from a known node.
fn evictable(model: &Model, id: PodId) -> bool {
    let pod = &model.pods()[id];
    let is_known = |node| model.nodes()[node].input.is_some();
    pod.member.is_some() && pod.state.status.active_allocated() && model.node_of(id).is_some_and(is_known)
}

fn victim_entry(model: &Model, rules: Rules, pod_group: PodGroupId, pods: PodIds) -> OrderEntry {
    let entry = &model.pod_groups()[pod_group];
    let stage = entry.stage(&active_of(model, entry, &pods));
    OrderEntry {
        order: rules.pod_group(entry, stage),
        pod_group,
        amount: requests(model, &next_chunk(model, entry, &pods)),
        pods: Some(pods),
    }
}

/// What a pod group of which these pods are left can best do without.
fn next_chunk(model: &Model, pod_group: &PodGroup, pods: &[PodId]) -> PodIds {
    let remaining: BTreeSet<PodId> = pods.iter().copied().collect();
    let pods_of = |member| -> PodIds {
        let pods = pod_group.pods(member).map(|pods| &*pods.pods).unwrap_or_default();
        pods.iter().copied().filter(|pod| remaining.contains(pod)).collect()
    };
    pod_group.evict_chunk(&active_of(model, pod_group, pods), &pods_of)
}

impl Gathering {
    fn count_slots(&mut self) {
        let size = self.needs[0];
        if size > 0 && self.needs.iter().all(|need| *need == size) {
            self.slots = Some(self.capacity.iter().map(|free| (free / size).max(0)).sum());
        }
    }

    /// Counts a batch as gone.
    fn free(&mut self, model: &Model, batch: &Batch) {
        for &pod in &batch.pods {
            let Some(node) = node_of(model, pod) else { continue };
            self.nodes.add(node.at());
            let size = self.needs[0];
            let capacity = &mut self.capacity[node.at()];
            let before = *capacity;
            *capacity += model.accepted(pod)[GPUS];
            if let Some(slots) = &mut self.slots {
                *slots += (*capacity / size).max(0) - (before / size).max(0);
            }
        }
    }

    /// Takes the next victims. False if there are none left.
    pub fn step(&mut self, model: &Model) -> bool {
        if self.next(model) {
            return true;
        }
        self.rest = lined_up(model, self.rules, &std::mem::take(&mut self.beyond));
        self.next(model)
    }

    fn next(&mut self, model: &Model) -> bool {
        while let Some(entry) = self.rest.pop(model) {
            let pods = entry.pods.clone().unwrap_or_default();
            let pod_group = &model.pod_groups()[entry.pod_group];
            let chunk = next_chunk(model, pod_group, &pods);
            let known = chunk.iter().any(|pod| self.taken.contains(pod));
            let gone = |pod: &PodId| {
                if known {
                    self.taken.contains(pod)
                } else {
                    chunk.contains(pod)
                }
            };
            let (taken, left): (PodIds, PodIds) = pods.iter().copied().partition(gone);
            self.rest.took(model, &entry, &requests(model, &taken));
            if !left.is_empty() {
                self.rest
                    .push(model, victim_entry(model, self.rules, entry.pod_group, left));
            }
            if !known {
                let batch = Batch {
                    pod_group: entry.pod_group,
                    pods: chunk,
                };
                self.free(model, &batch);
                self.potential.push(batch);
                return true;
            }
        }
        false
    }

    /// Whether the pods could find room with all victims so far gone, if only GPUs and node affinity counted.
    #[must_use]
    pub fn passes(&self, model: &Model) -> bool {
        let gpus = match self.slots {
            Some(slots) => slots >= self.needs.len() as i64,
            None => self.needs.iter().all(|need| *need <= 0) || first_fit(&self.needs, self.capacity.clone()),
        };
        gpus && self.pods.iter().all(|pod| self.affinity_met(model, *pod))
    }

    fn affinity_met(&self, model: &Model, pod: PodId) -> bool {
        let constraints = &model.classes()[model.pods()[pod].class].constraints;
        (constraints.selector.is_empty() && constraints.required.is_none())
            || model
                .by_name()
                .iter()
                .any(|id| self.nodes.has(id.at()) && constraints.selects(&model.nodes()[*id]))
    }

    /// GPUs free on a node once all victims so far are gone.
    #[must_use]
    pub fn capacity(&self, node: NodeId) -> i64 {
        self.capacity[node.at()]
    }

    /// GPUs that the pods ask for: together, and the smallest need.
    #[must_use]
    pub fn demand(&self) -> (i64, i64) {
        (self.needs.iter().sum(), self.needs.iter().copied().min().unwrap_or(0))
    }
}
