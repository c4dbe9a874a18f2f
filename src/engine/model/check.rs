//! The rules about the model, and a fingerprint of its state.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
#[cfg(test)]
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Model;
use super::ids::ClaimId;
use super::node::Tally;
use super::pod::{STATUSES, Status};
use super::pod_weight::weight_of;
#[cfg(test)]
use super::resources::Resources;
use crate::rules;

/// A rule about the model, of the catalogue in [`rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the catalogue has their sentences")]
pub enum Rule {
    NodeNotOverGiven,
    GpuNotOverGiven,
    GangCountersTrue,
    QueueCountersTrue,
    PendingTrue,
    NodeBooksTrue,
    NeighboursTrue,
    StorageTrue,
    DevicesTrue,
    DeviceNotOverGiven,
}

impl Rule {
    /// Its id in the catalogue.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::NodeNotOverGiven => "M-1",
            Self::GpuNotOverGiven => "M-2",
            Self::GangCountersTrue => "M-3",
            Self::QueueCountersTrue => "M-4",
            Self::PendingTrue => "M-5",
            Self::NodeBooksTrue => "M-6",
            Self::NeighboursTrue => "M-7",
            Self::StorageTrue => "M-8",
            Self::DevicesTrue => "M-9",
            Self::DeviceNotOverGiven => "M-10",
        }
    }

    /// It can be broken by what happens in the cluster: a node loses GPUs, or another scheduler binds pods to it.
    #[must_use]
    pub fn can_be_broken_from_outside(self) -> bool {
        matches!(
            self,
            Self::NodeNotOverGiven | Self::GpuNotOverGiven | Self::DeviceNotOverGiven
        )
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match rules::by_id(self.id()) {
            Some(rule) => rule.fmt(f),
            None => f.write_str(self.id()),
        }
    }
}

/// The invariants in parts that are short enough to be checked between two cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those of nodes.
    Nodes,
    /// Those of pod groups.
    PodGroups,
    /// Those of queues.
    Queues,
    /// Those of devices.
    Devices,
    /// Those of relations between pods.
    Neighbours,
    /// Those of storage.
    Storage,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Nodes,
        Self::PodGroups,
        Self::Queues,
        Self::Devices,
        Self::Neighbours,
        Self::Storage,
    ];
}

impl Model {
    /// Violated invariants, each with one example. M-1 and M-2 count only what the engine itself placed.
    #[cfg(test)]
    #[must_use]
    pub fn broken_rules(&self) -> BTreeMap<Rule, String> {
        Part::ALL
            .into_iter()
            .flat_map(|part| self.broken_rules_of(part))
            .collect()
    }

    /// The same for a part of them.
    #[must_use]
    pub fn broken_rules_of(&self, part: Part) -> BTreeMap<Rule, String> {
        let mut broken = BTreeMap::new();
        match part {
            Part::Nodes => self.check_nodes(&mut broken),
            Part::PodGroups => self.check_pod_groups(&mut broken),
            Part::Queues => self.check_queues(&mut broken),
            Part::Devices => self.check_devices(&mut broken),
            Part::Neighbours => self.check_neighbours(&mut broken),
            Part::Storage => self.check_storage(&mut broken),
        }
        broken
    }

    fn check_neighbours(&self, broken: &mut BTreeMap<Rule, String>) {
        let counted = self.neighbours_counted() && self.neighbours.has_counted_all();
        if counted && !self.neighbours_counted_anew().figures().eq(self.neighbours.figures()) {
            broken.insert(Rule::NeighboursTrue, format!("{:?}", self.neighbours));
        }
    }

    fn check_storage(&self, broken: &mut BTreeMap<Rule, String>) {
        let storage = self.storage_counted_anew();
        if storage.figures() != self.storage.figures() {
            let what = format!("{:?} against {:?}", storage.figures(), self.storage.figures());
            broken.insert(Rule::StorageTrue, what);
        }
    }

    fn check_nodes(&self, broken: &mut BTreeMap<Rule, String>) {
        for (_, node) in self.nodes.iter().filter(|(_, node)| node.input.is_some()) {
            for (vector, what) in [(&node.idle, "now"), (&node.future, "later")] {
                if let Some((position, amount)) = vector.iter().find(|(_, amount)| *amount < 0) {
                    let name = self.resources.name(position);
                    broken.insert(
                        Rule::NodeNotOverGiven,
                        format!("{} has {amount} of {name} {what}", node.name),
                    );
                }
            }
            let memory = node.gpu_memory();
            if let Some(gpu) = node
                .groups
                .iter()
                .find(|gpu| gpu.free_now(memory) < 0 || gpu.free_later(memory) < 0)
            {
                broken.insert(
                    Rule::GpuNotOverGiven,
                    format!("GPU group {} on {}", gpu.name, node.name),
                );
            }
            let mut idle = node.allocatable.clone();
            for &pod in &node.pods {
                let pod = &self.pods[pod];
                let shape = &self.shapes[pod.shape];
                let place = pod.state.hold.as_ref().expect("it is listed on the node");
                let lighter = weight_of(node, &self.resources, pod, shape, place);
                let vector = lighter.as_ref().unwrap_or(&shape.vector);
                idle.add(vector, -1);
                if shape.shared || pod.input.reservation {
                    idle.bump(super::resources::GPUS, vector.get(super::resources::GPUS));
                }
            }
            let held = |tally: Tally| tally.pods > 0;
            let shared = node
                .groups
                .iter()
                .filter(|gpu| held(gpu.staying) || held(gpu.leaving) || gpu.reserved > 0)
                .count() as i64;
            let places = node.pods.iter().filter_map(|pod| self.pods[*pod].state.hold.as_ref());
            let ungrouped: i64 = places.map(|place| i64::from(place.extras().ungrouped)).sum();
            let devices = self.devices.gpus_taken(&node.name)[0];
            idle.bump(
                super::resources::GPUS,
                -(shared + ungrouped + devices) * crate::engine::input::GPU,
            );
            if idle != node.idle {
                broken.insert(
                    Rule::NodeBooksTrue,
                    format!("{}: {idle:?} against {:?}", node.name, node.idle),
                );
            }
        }
    }

    fn check_devices(&self, broken: &mut BTreeMap<Rule, String>) {
        if let Some(what) = self.devices.over_given() {
            broken.insert(Rule::DeviceNotOverGiven, what);
        }
        let mut uses: BTreeMap<(ClaimId, String), [u32; 3]> = BTreeMap::new();
        for (_, pod) in self.pods.iter() {
            let hold = pod
                .state
                .hold
                .iter()
                .map(|place| (place, usize::from(pod.state.leaving)));
            for (place, kind) in hold.chain(pod.state.plan.iter().map(|place| (place, 2))) {
                for used in place.extras().devices.iter().flat_map(|grants| &**grants) {
                    let key = (used.claim, format!("{:?}", used.allocation.given));
                    uses.entry(key).or_default()[kind] += 1;
                }
            }
        }
        for (id, claim) in self.devices.claims.iter() {
            for grant in &claim.grants {
                let key = (id, format!("{:?}", grant.allocation.given));
                let counted = uses.remove(&key).unwrap_or_default();
                if counted != [grant.staying, grant.leaving, grant.planned] {
                    broken.insert(
                        Rule::DevicesTrue,
                        format!("{}: {counted:?} against {grant:?}", claim.key),
                    );
                }
            }
        }
        if let Some((what, _)) = uses.first_key_value() {
            broken.insert(Rule::DevicesTrue, format!("{what:?} is not in the books"));
        }
    }

    fn check_pod_groups(&self, broken: &mut BTreeMap<Rule, String>) {
        for (id, pod_group) in self.pod_groups.iter() {
            for (member, pods) in pod_group.pod_sets() {
                let mut counts = [0; STATUSES];
                for &pod in &pods.pods {
                    counts[self.pods[pod].state.status as usize] += 1;
                }
                if counts != pods.counts {
                    let name = &pod_group.tree[member as usize].name;
                    broken.insert(
                        Rule::GangCountersTrue,
                        format!("{:?} {name}: {counts:?} against {:?}", pod_group.key, pods.counts),
                    );
                }
            }
            if self.pending.contains(&id) != (pod_group.with(Status::Pending) > 0 && !pod_group.placeholder) {
                broken.insert(Rule::PendingTrue, format!("{:?}", pod_group.key));
            }
        }
    }

    fn check_queues(&self, broken: &mut BTreeMap<Rule, String>) {
        if !self.queue_tree_current() {
            return;
        }
        let mut sums: BTreeMap<_, [i64; 3]> = self.queues.ids().map(|id| (id, [0; 3])).collect();
        for (id, pod) in self
            .pods
            .iter()
            .filter(|(_, pod)| pod.member.is_some() && pod.state.status.active_allocated())
        {
            let mut at = pod
                .pod_group
                .filter(|pod_group| self.pod_groups[*pod_group].input.is_some())
                .and_then(|pod_group| self.pod_groups[pod_group].queue);
            while let Some(queue) = at {
                super::resources::add(sums.entry(queue).or_default(), &self.accepted(id), 1);
                at = self.queues[queue].parent;
            }
        }
        for (id, sum) in sums {
            let queue = &self.queues[id];
            if sum != queue.allocated {
                broken.insert(
                    Rule::QueueCountersTrue,
                    format!("{}: {sum:?} against {:?}", queue.name, queue.allocated),
                );
            }
        }
    }

    /// Charges a queue for a GPU that no pod holds, as a fault would.
    #[cfg(test)]
    pub fn charge_wrongly(&mut self, queue: &str) {
        let id = self.queues.id(queue).expect("a known queue");
        self.queues[id].allocated[2] += crate::engine::input::GPU;
    }

    /// A hash of the state: every pod's place, every node's resources, every counter.
    #[cfg(test)]
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let amounts = |vector: &Resources| vector.iter().filter(|(_, amount)| *amount != 0).collect::<Vec<_>>();
        for (id, pod) in self.pods.iter() {
            (id, &pod.state).hash(&mut hasher);
        }
        for (id, node) in self.nodes.iter() {
            (
                id,
                amounts(&node.idle),
                amounts(&node.future),
                amounts(&node.planned),
                &node.pods,
                &node.coming,
            )
                .hash(&mut hasher);
            for gpu in node.groups.iter().filter(|gpu| gpu.used()) {
                let tally = |tally: Tally| (tally.pods, tally.memory);
                (&gpu.name, tally(gpu.staying), tally(gpu.leaving), tally(gpu.planned)).hash(&mut hasher);
            }
        }
        for (id, device) in self.devices.devices.iter() {
            (id, device.figures()).hash(&mut hasher);
        }
        for (id, pool) in self.devices.pools.iter() {
            (id, &pool.counters).hash(&mut hasher);
        }
        for (id, queue) in self.queues.iter() {
            (
                id,
                queue.allocated,
                queue.non_preemptible,
                queue.wanted,
                queue.wanted_memory,
            )
                .hash(&mut hasher);
        }
        for (id, pod_group) in self.pod_groups.iter() {
            let counts: Vec<_> = pod_group
                .pod_sets()
                .map(|(_, pods)| (pods.counts, pods.evicted_now))
                .collect();
            (id, counts).hash(&mut hasher);
        }
        self.pending.hash(&mut hasher);
        for figures in self.neighbours.figures() {
            figures.hash(&mut hasher);
        }
        self.storage.figures().hash(&mut hasher);
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_has_the_rules_about_the_model() {
        let here = [
            Rule::NodeNotOverGiven,
            Rule::GpuNotOverGiven,
            Rule::GangCountersTrue,
            Rule::QueueCountersTrue,
            Rule::PendingTrue,
            Rule::NodeBooksTrue,
            Rule::NeighboursTrue,
            Rule::StorageTrue,
            Rule::DevicesTrue,
            Rule::DeviceNotOverGiven,
        ];
        let listed: Vec<_> = rules::of(rules::Check::Model).map(|rule| rule.id).collect();
        assert_eq!(here.map(Rule::id).as_slice(), listed);
        assert_eq!(
            Rule::PendingTrue.to_string(),
            "M-5 (the set of pod groups with pending pods is complete and has no others)"
        );
    }
}
