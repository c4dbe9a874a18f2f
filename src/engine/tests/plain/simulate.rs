//! Trying a candidate: its victims are evicted, then the preemptor and the victims are placed in the real order of queues and pod groups. Who outranks the
//! preemptor gets its place back first.

use std::collections::BTreeSet;

use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::ids::{PodGroupId, PodId};

use super::Search;
use super::tree::{OrderEntry, OrderTree};
use crate::engine::actions::place::Mode;
use crate::engine::actions::victims::search::VictimSearch;
use crate::engine::actions::victims::{Candidate, node_of};
use crate::engine::fairshare::tree::Purpose;

impl VictimSearch<'_> {
    /// On success the changes stay in the model from the mark on.
    pub fn simulate_plainly(&mut self, search: &Search, count: usize, candidate: &Candidate) -> Option<Mark> {
        self.log.work.candidates_simulated += 1;
        let mark = self.model.mark();
        let pods = &search.case.chunk[..count];
        let mut nodes = search.feasible.clone();
        let mut victims: BTreeSet<PodGroupId> = BTreeSet::new();
        for pod in candidate.in_order() {
            if let Some(node) = node_of(self.model, pod) {
                nodes.add(node.at());
            }
            victims.extend(self.model.pods()[pod].pod_group);
            self.model.evict(pod);
        }
        let mut pod_groups = self.all_pending(search, pods, &victims);
        let mut open = victims.len() + 1;
        let mut placed = false;
        while open > 0
            && let Some(entry) = pod_groups.pop(self.model)
        {
            if entry.pod_group == search.case.pod_group {
                open -= 1;
                self.caches.forget_lost_kinds();
                placed = self.placer().place(entry.pod_group, pods, Mode::Simulate(&nodes));
                if !placed {
                    break;
                }
            } else if victims.contains(&entry.pod_group) {
                open -= 1;
                self.caches.forget_lost_kinds();
                self.placer()
                    .place(entry.pod_group, &entry.pods.unwrap_or_default(), Mode::Simulate(&nodes));
            }
        }
        if placed {
            match self.judge().acceptable(&search.case, pods, candidate, self.reach) {
                Ok(()) => return Some(mark),
                Err(objection) => self.objections.note(objection),
            }
        }
        self.rollback(mark);
        None
    }

    /// A pending pod group as an entry of the tree; `None` if nothing of it can be placed.
    fn pending_job(&self, pod_group: PodGroupId) -> Option<OrderEntry> {
        let pods = self.model.next_chunk(pod_group, self.context.now);
        if pods.is_empty() {
            return None;
        }
        let amount = wanted(self.model, &pods, smallest_gpu(self.model));
        let entry = &self.model.pod_groups()[pod_group];
        let order = self.context.rules.pod_group(entry, entry.stage(&entry.active()));
        Some(OrderEntry {
            order,
            pod_group,
            amount,
            pods: Some(pods),
        })
    }

    /// The preemptor, the victims, and all who wait: they are not placed, but their claims decide which queue is next.
    fn all_pending(&self, search: &Search, pods: &[PodId], victims: &BTreeSet<PodGroupId>) -> OrderTree {
        let mut pod_groups = OrderTree::new(self.context.rules, Purpose::Pending);
        for &pod_group in self
            .model
            .pending()
            .iter()
            .filter(|pod_group| **pod_group != search.case.pod_group && !victims.contains(pod_group))
        {
            let entry = &self.model.pod_groups()[pod_group];
            if entry.ready()
                && !entry.is_excluded()
                && let Some(entry) = self.pending_job(pod_group)
            {
                pod_groups.push(self.model, entry);
            }
        }
        for &pod_group in victims {
            let pods = self.evicted_chunk(pod_group);
            let amount = wanted(self.model, &pods, smallest_gpu(self.model));
            let entry = &self.model.pod_groups()[pod_group];
            pod_groups.push(
                self.model,
                OrderEntry {
                    order: self.context.rules.pod_group(entry, entry.stage(&entry.active())),
                    pod_group,
                    amount,
                    pods: Some(pods),
                },
            );
        }
        let amount = wanted(self.model, pods, smallest_gpu(self.model));
        let order = self.context.rules.pod_group(
            &self.model.pod_groups()[search.case.pod_group],
            self.partial_stage(search.case.pod_group, pods),
        );
        pod_groups.push(
            self.model,
            OrderEntry {
                order,
                pod_group: search.case.pod_group,
                amount,
                pods: None,
            },
        );
        pod_groups
    }
}
