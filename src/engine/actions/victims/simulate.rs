//! Simulation of a candidate: its victims are evicted, then the preemptor and the victims are placed in the order of queues and pod groups. Victims that come
//! before the preemptor in that order are placed first.

use std::cmp::Ordering;
use std::collections::VecDeque;

use crate::engine::fairshare::order::{QueueCandidate, compare_queues};
use crate::engine::fairshare::sorted::QueuePodGroups;
use crate::engine::fairshare::tree::{OrderEntry, OrderTree, Pick, Purpose, View, schedulable_queue};
use crate::engine::fairshare::{smallest_gpu, wanted};
use crate::engine::model::Mark;
use crate::engine::model::ids::{PodGroupId, PodId, QueueId};
use crate::engine::model::node_set::NodeSet;
use crate::engine::model::pod_group::{PodIds, Stage};

use super::search::VictimSearch;
use super::{Candidate, Case, node_of};
use crate::engine::actions::place::Mode;

impl VictimSearch<'_> {
    /// Simulates a candidate. On success the changes stay in the model, after the mark.
    pub fn simulate(&mut self, case: &Case, anywhere: bool, count: usize, candidate: &Candidate) -> Option<Mark> {
        self.log.work.candidates_simulated += 1;
        let mark = self.model.mark();
        let pods = &case.chunk[..count];
        let mut nodes = if anywhere {
            self.model.by_name().iter().fold(NodeSet::default(), |mut all, node| {
                all.add(node.at());
                all
            })
        } else {
            self.capacity.some.clone()
        };
        let mut victims: Vec<PodGroupId> = Vec::new();
        let evicted = candidate.in_order();
        self.log.work.pods_simulated += (evicted.len() + count) as u64;
        for pod in evicted {
            if let Some(node) = node_of(self.model, pod) {
                nodes.add(node.at());
            }
            victims.extend(self.model.pods()[pod].pod_group);
            self.model.evict(pod);
        }
        victims.sort_unstable();
        victims.dedup();
        self.caches.forget_lost_kinds();
        let placed = self.place_in_order(case, pods, &victims, &nodes);
        self.caches.forget_lost_kinds();
        if placed {
            match self.judge().acceptable(case, pods, candidate, self.reach) {
                Ok(()) => return Some(mark),
                Err(objection) => self.objections.note(objection),
            }
            self.log.work.candidates_refused += 1;
        }
        self.rollback(mark);
        None
    }

    /// Places the preemptor and the victims in the order of queues and pod groups. Other pending pod groups are not placed, but they count in the order of
    /// queues. False if the preemptor is not placed, or if the search has taken too many steps.
    fn place_in_order(&mut self, case: &Case, pods: &[PodId], victims: &[PodGroupId], nodes: &NodeSet) -> bool {
        let mut pod_groups: Vec<(QueueId, OrderEntry)> = Vec::with_capacity(victims.len() + 1);
        for &pod_group in victims {
            if let Some(queue) = schedulable_queue(self.model, pod_group) {
                pod_groups.push((queue, self.victim_entry(pod_group)));
            }
        }
        pod_groups.push((case.queue, self.preemptor_entry(case, pods)));
        pod_groups.sort_by(|left, right| (left.0, &left.1.order).cmp(&(right.0, &right.1.order)));
        let mut placed = false;
        let mut pod_groups = VecDeque::from(pod_groups);
        let mut contested = if self.put_first(case, &mut pod_groups) {
            None
        } else {
            self.contested(&pod_groups, victims, case.pod_group)
        };
        self.log.search_steps += contested.as_ref().map_or(0, OrderTree::steps);
        let takes_part =
            |pod_group: PodGroupId| pod_group == case.pod_group || victims.binary_search(&pod_group).is_ok();
        let mut others = |pod_group: PodGroupId| {
            if takes_part(pod_group) { Pick::Pass } else { Pick::Take }
        };
        while !pod_groups.is_empty() {
            let several = pod_groups.front().map(|(queue, _)| *queue) != pod_groups.back().map(|(queue, _)| *queue);
            let next = match &mut contested {
                // Among pod groups of one queue their own order decides.
                Some(tree) if several => {
                    let before = tree.steps();
                    let popped = tree.pop(&mut View::of(self.model, self.sorted, &mut others));
                    self.log.search_steps += tree.steps() - before;
                    if self.is_cut_off() {
                        return false;
                    }
                    let Some(entry) = popped else { break };
                    if !takes_part(entry.pod_group) {
                        continue;
                    }
                    let Some(at) = pod_groups
                        .iter()
                        .position(|(_, other)| other.pod_group == entry.pod_group)
                    else {
                        continue;
                    };
                    pod_groups.remove(at)
                }
                Some(_) | None => pod_groups.pop_front(),
            };
            let Some((_, next)) = next else { break };
            let own = next.pod_group == case.pod_group;
            let pods = if own {
                pods
            } else {
                next.pods.as_deref().unwrap_or_default()
            };
            let done = self.placer().place(next.pod_group, pods, Mode::Simulate(nodes));
            if own && !done {
                return false;
            }
            placed |= own;
        }
        placed
    }

    /// Fast path without a tree: puts the preemptor first if it is the first of its queue, and its queue comes before the only other one, a sibling.
    fn put_first(&self, case: &Case, pod_groups: &mut VecDeque<(QueueId, OrderEntry)>) -> bool {
        let Some(at) = pod_groups
            .iter()
            .position(|(_, entry)| entry.pod_group == case.pod_group)
        else {
            return false;
        };
        let mut others = pod_groups.iter().filter(|(queue, _)| *queue != case.queue);
        let Some((other, head)) = others.next() else {
            return false;
        };
        let alone = others.all(|(queue, _)| queue == other)
            && pod_groups.iter().filter(|(queue, _)| *queue == case.queue).count() == 1;
        let line = |queue: QueueId| self.sorted.of(queue);
        let quiet = line(*other).is_none_or(|line| line.waiting.is_empty());
        let own = &pod_groups[at].1;
        let ahead = |line: &QueuePodGroups| {
            let first = line.waiting.first_key_value();
            first.is_some_and(|(order, standing)| standing.pod_group != case.pod_group && *order < own.order)
        };
        let heads = line(case.queue).is_none_or(|line| !ahead(line));
        let siblings = self.model.queues()[case.queue].parent == self.model.queues()[*other].parent;
        if !(alone && quiet && heads && siblings && self.context.rules.shares) {
            return false;
        }
        let candidate = |queue: QueueId, entry: &OrderEntry| QueueCandidate {
            queue,
            entry: entry.amount,
            victims: [0; 3],
        };
        let order = compare_queues(self.model, &candidate(case.queue, own), &candidate(*other, head));
        if order == Ordering::Less
            && let Some(own) = pod_groups.remove(at)
        {
            pod_groups.push_front(own);
            return true;
        }
        false
    }

    /// The tree that orders pod groups of different queues; `None` if all are of one queue. Top queues without any of these pod groups
    /// do not change the order.
    fn contested(
        &self,
        pod_groups: &VecDeque<(QueueId, OrderEntry)>,
        victims: &[PodGroupId],
        preemptor: PodGroupId,
    ) -> Option<OrderTree> {
        let (first, last) = (pod_groups.front()?.0, pod_groups.back()?.0);
        if first == last {
            return None;
        }
        let top = |queue: QueueId| self.model.path_up(queue).last();
        let mut tops: Vec<_> = pod_groups.iter().map(|(queue, _)| top(*queue)).collect();
        tops.dedup();
        let mut pick = |pod_group: PodGroupId| {
            let takes_part = pod_group == preemptor || victims.binary_search(&pod_group).is_ok();
            if takes_part { Pick::Pass } else { Pick::Take }
        };
        let mut view = View::of(self.model, self.sorted, &mut pick);
        let mut tree = OrderTree::new(self.context.rules, Purpose::Pending).skimming();
        tree.add_queues(&mut view, |queue| tops.contains(&top(queue)));
        for (_, entry) in pod_groups {
            tree.push(&mut view, entry.clone());
        }
        Some(tree)
    }

    fn victim_entry(&self, pod_group: PodGroupId) -> OrderEntry {
        let pods = self.evicted_chunk(pod_group);
        let entry = &self.model.pod_groups()[pod_group];
        OrderEntry {
            order: self.context.rules.pod_group(entry, entry.stage(&entry.active())),
            pod_group,
            amount: wanted(self.model, &pods, smallest_gpu(self.model)),
            pods: Some(pods),
        }
    }

    fn preemptor_entry(&self, case: &Case, pods: &[PodId]) -> OrderEntry {
        let stage = self.partial_stage(case.pod_group, pods);
        OrderEntry {
            order: self
                .context
                .rules
                .pod_group(&self.model.pod_groups()[case.pod_group], stage),
            pod_group: case.pod_group,
            amount: wanted(self.model, pods, smallest_gpu(self.model)),
            pods: None,
        }
    }

    /// The pods of a victim to place again: its next pods, the evicted ones first.
    pub(in crate::engine) fn evicted_chunk(&self, pod_group: PodGroupId) -> PodIds {
        let entry = &self.model.pod_groups()[pod_group];
        let take = |member, most: usize| -> PodIds {
            let pods = entry.pods(member).map(|pods| &*pods.pods).unwrap_or_default();
            let wanting = |evicted: bool| {
                pods.iter().copied().filter(move |pod| {
                    self.model.wants_place(*pod, self.context.now)
                        && self.model.pods()[*pod].state.evicted_from.is_some() == evicted
                })
            };
            wanting(true).chain(wanting(false)).take(most).collect()
        };
        entry.chunk(&entry.active(), &take)
    }

    /// The stage of a pod group with its active pods and these pending ones.
    pub(in crate::engine) fn partial_stage(&self, pod_group: PodGroupId, pods: &[PodId]) -> Stage {
        let entry = &self.model.pod_groups()[pod_group];
        let mut stage = Stage::Exact;
        for (member, set) in entry.pod_sets() {
            let more = pods
                .iter()
                .filter(|pod| self.model.pods()[**pod].member == Some(member))
                .count();
            let active = set.active();
            if active < set.min.min(active + more) {
                return Stage::Below;
            }
            if active > set.min {
                stage = Stage::Above;
            }
        }
        stage
    }
}
