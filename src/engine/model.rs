//! The cluster as the scheduler sees it: dense arenas, changed in place.
//!
//! A pod's node is recorded in its [`State`] and nowhere else. The resources of nodes and the counters of pod groups and queues are sums over states, kept by the one function that
//! changes a state, [`Model::set_state`]. It also writes the old state to an undo log, so that simulated changes can be undone exactly: [`Model::mark`], then
//! [`Model::rollback`] or [`Model::commit`].

pub mod apply;
pub mod arena;
pub mod budget;
pub mod check;
pub mod class;
pub mod constraints;
pub mod devices;
pub mod digest;
pub mod directory;
pub mod epochs;
pub mod ids;
pub mod index;
pub mod node;
pub mod node_set;
pub mod numa;
pub mod pod;
pub mod pod_group;
pub mod pod_weight;
pub mod prepare;
pub mod queue;
pub mod read;
pub mod record;
pub mod relations;
pub mod resources;
pub mod selectors;
pub mod shape;
pub mod topology;
pub mod volumes;
pub mod weight;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::input::{Counts, Event, GroupKey, Name, Needs, Table, Time};

use budget::Budgets;
use class::Class;
use devices::Inventory;
use directory::Directory;
use epochs::{Cached, Change, Epochs, Seen};
use ids::{ClassId, NodeId, PodGroupId, PodId, QueueId, ShapeId};
use index::NodeIndex;
use node::Node;
use node_set::NodeSet;
use pod::{Place, Pod, State, Status};
use pod_group::{Member, PodGroup, PodIds};
use pod_weight::weight_of;
use queue::Queue;
use relations::{CountedPod, Index, Neighbours};
use resources::{ResourceNames, Resources, Shared, add};
use shape::Shape;
use topology::Topology;
use volumes::Storage;
use weight::Weight;

/// Cluster state used for scheduling.
///
/// Its fields are read by the functions of [`read`] and changed by functions of this module alone, which bump the [`Epochs`] of what they change.
#[derive(Debug, Default)]
pub struct Model {
    epochs: Epochs,
    nodes: Directory<NodeId, Node>,
    pods: Directory<PodId, Pod>,
    /// Pods by namespace. Most relations select in one namespace.
    by_namespace: Table<Name, BTreeSet<PodId>>,
    pod_groups: Directory<PodGroupId, PodGroup>,
    queues: Directory<QueueId, Queue>,
    /// Historical usage by queue name, also of queues whose event has not arrived yet.
    usage: BTreeMap<Name, Shared>,
    classes: Directory<ClassId, Class>,
    /// Requests of pods, and some without pods that are kept for reuse.
    shapes: Directory<ShapeId, Shape>,
    /// Number of shapes with and without pods.
    shapes_used: usize,
    shapes_unused: usize,
    resources: ResourceNames,
    /// Class and shape of the last pod, for pods of the same template that follow: they share the `Needs`.
    last_kind: Cached<Option<(Arc<Needs>, ClassId, ShapeId)>>,
    topologies: BTreeMap<Name, Topology>,
    budgets: Budgets,
    devices: Inventory,
    neighbours: Neighbours,
    /// Pods with relations of their own that were added since new counters were last counted.
    newly_related: BTreeSet<PodId>,
    storage: Storage,
    index: NodeIndex,
    /// Pod groups with pending pods.
    pending: BTreeSet<PodGroupId>,
    /// Pending pods that belong to no pod set of their pod group.
    unknown_sub_groups: BTreeSet<PodId>,
    node_summary: Cached<NodeSummary>,
    /// What the top queues share.
    total: Cached<Shared>,
    /// The trees of the topologies.
    topology_trees: Seen,
    /// The queue tree and the counters of queues; nothing is charged to queues while it is out of date.
    queue_tree: Seen,
    /// Pod groups that became non-preemptible while the queue tree was out of date: whether a quota covers them is judged with the next one.
    unjudged: BTreeSet<PodGroupId>,
    /// New queue names since unused ones were last removed.
    queues_named: usize,
    /// Number of reports on the NUMA zones of nodes.
    zone_reports: u64,
    /// Nodes on which GPU groups were opened since unused groups were last removed.
    opened_groups: Vec<NodeId>,
    /// Pod groups whose pods or settings changed since the last `take`. Read by `actions::stale`.
    changed_pod_groups: Vec<PodGroupId>,
    /// Pod groups whose sort key may have changed since the last `take`. Read by `fairshare::sorted`.
    moved: Vec<PodGroupId>,
    /// Nodes whose usage changed outside of statements since the last `take`. A set, since a standby never takes them.
    touched: NodeSet,
    /// Instants at which quota schedules change.
    schedules: BTreeSet<(Time, QueueId)>,
    /// Instants at which pods count as stuck.
    stuck_at: BTreeSet<(Time, PodId)>,
    /// Instants at which pods may be bound or evicted again.
    retry_at: BTreeSet<(Time, PodId)>,
    /// Instants at which GPUs of nodes may be opened for sharing again.
    sharing_at: BTreeSet<(Time, NodeId)>,
    stuck_after: i64,
    log: Vec<(PodId, State)>,
    /// Pods whose state was changed by a committed statement in this cycle, in order.
    decided: Vec<PodId>,
    /// Uids of pods that were evicted; some may be known to terminate, or be gone, since the list was read last.
    evicting: BTreeMap<Name, Option<PodGroupId>>,
}

/// Facts derived from all nodes.
#[derive(Clone, Debug, Default, PartialEq)]
struct NodeSummary {
    /// Nodes in name order.
    by_name: Vec<NodeId>,
    /// Smallest and largest known MiB per GPU. The smallest is above [`shape::UNKNOWN_GPU_MEMORY`] if any is.
    gpu_memory: Option<(i64, i64)>,
    /// The largest amount of each resource on one node.
    largest: Resources,
    /// Most NUMA zones on one node, among nodes whose alignment is predicted; 0 if there are none.
    most_zones: usize,
    /// Device resources that some kubelet aligns to NUMA zones.
    zoned_devices: BTreeSet<Name>,
}

impl NodeSummary {
    /// The smallest known MiB per GPU.
    fn smallest_gpu(&self) -> Option<i64> {
        self.gpu_memory.map(|(smallest, _)| smallest)
    }
}

/// Entries that a list of changed pod groups may have beyond twice the number of pod groups before duplicates are removed.
const SPARE: usize = 1_024;

/// A position in the undo log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

impl Model {
    /// A model without anything.
    #[must_use]
    pub fn new(stuck_after: i64) -> Self {
        Self {
            stuck_after,
            ..Self::default()
        }
    }

    /// Reserves memory for so many more objects.
    pub fn reserve(&mut self, more: &Counts) {
        self.nodes.reserve(more.nodes);
        self.pod_groups.reserve(more.groups);
        self.pods.reserve(more.pods);
    }

    /// The id of the pod group with a key.
    #[must_use]
    pub fn pod_group_named(&self, group: &GroupKey) -> Option<PodGroupId> {
        self.pod_groups.id(group)
    }

    /// See [`Engine::retries`](crate::engine::Engine::retries).
    #[must_use]
    pub fn retries(&self) -> Vec<Event> {
        let pods = self.retry_at.iter().map(|(at, id)| Event::Unbound {
            pod: self.pods[*id].input.pod.uid.clone(),
            retry_at: Some(*at),
        });
        let nodes = self.sharing_at.iter().map(|(at, id)| Event::SharingFailed {
            node: self.nodes[*id].name.clone(),
            retry_at: *at,
        });
        pods.chain(nodes).collect()
    }

    /// No pod waits for a retry of a failed bind or eviction.
    #[must_use]
    pub fn nothing_refused(&self) -> bool {
        self.retry_at.is_empty()
    }

    /// Some of these pods wait for a retry of a failed bind or eviction.
    pub fn refused(&self, mut pods: impl Iterator<Item = PodId>) -> bool {
        !self.nothing_refused() && pods.any(|pod| self.pods[pod].retry_at.is_some())
    }

    /// The id of the node with a name, if the node exists.
    #[must_use]
    pub fn node_named(&self, name: &Name) -> Option<NodeId> {
        let id = self.nodes.id(name);
        id.filter(|id| self.nodes[*id].input.is_some())
    }

    /// Current position in the undo log.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.log.len())
    }

    /// Undoes everything since a mark.
    pub fn rollback(&mut self, mark: Mark) {
        while self.log.len() > mark.0 {
            let (pod, old) = self.log.pop().expect("longer than the mark");
            self.exchange(pod, old);
        }
    }

    /// Makes all changes permanent and empties the undo log.
    pub fn commit(&mut self) {
        let log = std::mem::take(&mut self.log);
        for (id, _) in &log {
            self.decided.push(*id);
            if let Some(pod_group) = self.pods[*id].pod_group {
                self.pod_group_changed(pod_group);
            }
            let pod = &mut self.pods[*id];
            let from = pod.state.evicted_from.take();
            if from.is_some_and(|status| status != Status::Pipelined) {
                self.budgets.spend(&pod.input);
            }
            if from.is_some()
                && let (Some(pod_group), Some(member)) = (pod.pod_group, pod.member)
                && let Some(pods) = self.pod_groups[pod_group].pods_mut(member)
            {
                pods.evicted_now -= 1;
            }
        }
        self.log = log;
        self.log.clear();
    }

    /// A pod group's pods or settings changed permanently.
    pub(super) fn pod_group_changed(&mut self, pod_group: PodGroupId) {
        self.pod_groups[pod_group].changed = self.epochs.bump(Change::PodGroups);
        let most = 2 * self.pod_groups.slots() + SPARE;
        for list in [&mut self.moved, &mut self.changed_pod_groups] {
            if list.last() != Some(&pod_group) {
                list.push(pod_group);
                // The lists are not read while no pod is pending, nor on a standby.
                if list.len() > most {
                    // A stable sort is fast here: the list consists of a few ascending runs.
                    list.sort();
                    list.dedup();
                }
            }
        }
    }

    /// Nodes on which the open statement changed anything, with duplicates.
    pub fn nodes_in_log(&self) -> impl Iterator<Item = NodeId> + '_ {
        let states = self.log.iter().flat_map(|(pod, old)| [old, &self.pods[*pod].state]);
        let places = states.flat_map(|state| [state.hold.as_ref(), state.plan.as_ref()]);
        places.flatten().map(|place| place.node)
    }

    /// Pods changed since a mark, in order, once per change.
    pub fn changed_since(&self, mark: Mark) -> impl Iterator<Item = PodId> + '_ {
        self.log[mark.0..].iter().map(|(pod, _)| *pod)
    }

    /// Pods changed since a mark, in order, each with its state before the change.
    pub fn states_before(&self, mark: Mark) -> impl Iterator<Item = (PodId, &State)> {
        self.log[mark.0..].iter().map(|(pod, old)| (*pod, old))
    }

    /// Pods that the open statement changed.
    pub fn changed_in_statement(&self) -> impl Iterator<Item = PodId> + '_ {
        self.changed_since(Mark(0))
    }

    /// Changes a pod's state and everything derived from it. Undoable.
    pub fn set_state(&mut self, pod: PodId, state: State) {
        let old = self.exchange(pod, state);
        self.log.push((pod, old));
    }

    /// Changes a state permanently, outside any statement.
    pub fn settle(&mut self, pod: PodId, state: State) {
        debug_assert!(self.log.is_empty(), "nothing is settled while a statement is open");
        if self.pods[pod].state != state {
            self.exchange(pod, state);
        }
        if let Some(pod_group) = self.pods[pod].pod_group {
            self.pod_group_changed(pod_group);
        }
    }

    /// Turns `Allocated` into `Binding`, permanently. Nodes, queues and the order of pod groups count both alike.
    pub fn binding(&mut self, pod: PodId) {
        debug_assert!(self.log.is_empty(), "nothing is settled while a statement is open");
        let pod = &mut self.pods[pod];
        debug_assert_eq!(pod.state.status, Status::Allocated);
        pod.state.status = Status::Binding;
        if let (Some(pod_group), Some(member)) = (pod.pod_group, pod.member)
            && let Some(pods) = self.pod_groups[pod_group].pods_mut(member)
        {
            pods.counts[Status::Allocated as usize] -= 1;
            pods.counts[Status::Binding as usize] += 1;
        }
    }

    fn exchange(&mut self, pod: PodId, state: State) -> State {
        self.account(pod, -1);
        let old = std::mem::replace(&mut self.pods[pod].state, state);
        self.account(pod, 1);
        old
    }

    /// Adds (`sign` 1) or subtracts (-1) everything derived from a pod's state.
    fn account(&mut self, id: PodId, sign: i64) {
        self.account_nodes(id, sign);
        let pod = &self.pods[id];
        let (Some(pod_group_id), Some(member)) = (pod.pod_group, pod.member) else {
            if pod.pod_group.is_some() && pod.state.status == Status::Pending {
                if sign > 0 {
                    self.unknown_sub_groups.insert(id);
                } else {
                    self.unknown_sub_groups.remove(&id);
                }
            }
            return;
        };
        let (status, evicted_now) = (pod.state.status, pod.state.evicted_from.is_some());
        let shift = |count: &mut u32| *count = count.wrapping_add_signed(sign as i32);
        let pod_group = &mut self.pod_groups[pod_group_id];
        if let Some(pods) = pod_group.pods_mut(member) {
            shift(&mut pods.counts[status as usize]);
            if evicted_now {
                shift(&mut pods.evicted_now);
            }
        }
        if status == Status::Pending {
            if sign > 0 {
                if !pod_group.placeholder {
                    self.pending.insert(pod_group_id);
                }
            } else if pod_group.with(Status::Pending) == 0 {
                self.pending.remove(&pod_group_id);
            }
        }
        self.charge(id, sign);
    }

    /// Applies to nodes the GPUs that claims took or gave back.
    fn take_charges(&mut self) {
        for (name, charge) in std::mem::take(&mut self.devices.charges) {
            let Some(id) = self.nodes.id(&name) else { continue };
            if self.log.is_empty() {
                self.touched.add(id.at());
            }
            self.epochs.node_used(id);
            self.nodes[id].charge_devices(charge);
            self.index.changed(id);
        }
    }

    fn account_nodes(&mut self, id: PodId, sign: i64) {
        self.account_places(id, sign);
        if !self.devices.charges.is_empty() {
            self.take_charges();
        }
    }

    fn account_places(&mut self, id: PodId, sign: i64) {
        let neighbours_counted = self.neighbours_counted();
        let pod = &self.pods[id];
        let shape = &self.shapes[pod.shape];
        let reservation = pod.input.reservation;
        let places = [
            pod.state.hold.as_ref().map(|place| (place, pod.state.weight())),
            pod.state.plan.as_ref().map(|place| (place, Weight::Planned)),
        ];
        for (place, weight) in places.into_iter().flatten() {
            if self.log.is_empty() {
                self.touched.add(place.node.at());
            }
            self.epochs.node_used(place.node);
            if sign < 0 {
                self.epochs.bump(Change::CapacityFreed);
            }
            let lighter = weight_of(&self.nodes[place.node], &self.resources, pod, shape, place);
            let vector = lighter.as_ref().unwrap_or(&shape.vector);
            let node = &mut self.nodes[place.node];
            node.account(id, (shape, vector), &place.extras().groups, reservation, weight, sign);
            if place.extras().ungrouped > 0 {
                node.charge_whole(i64::from(place.extras().ungrouped), weight, sign);
            }
            for used in place.extras().devices.iter().flat_map(|grants| &**grants) {
                self.devices.account(used.claim, &used.allocation, weight, sign);
            }
            if pod.input.foreign && !pod.input.of_unikai && weight != Weight::Planned {
                add(&mut node.foreign, &shape.quota, sign);
                self.epochs.bump(Change::ForeignUsage);
            }
            if let Some(ledger) = node.numa.as_mut().filter(|_| !place.extras().zones.is_empty()) {
                let extras = place.extras();
                ledger.account(&extras.zones, extras.after_report, weight, sign);
            }
            if let Some(volumes) = &pod.input.volumes {
                self.storage
                    .account(volumes, place.node, &place.extras().volumes, weight, sign);
            }
            self.index.changed(place.node);
            let asked = self.classes[pod.class].asked.as_ref();
            if neighbours_counted && (asked.is_some() || !pod.counted.is_empty()) {
                let presence = CountedPod {
                    counted: &pod.counted,
                    asked,
                    leaving: weight != Weight::Planned && pod.state.terminates(),
                };
                self.neighbours.account(presence, place.node, sign);
            }
        }
    }

    /// The counters of relations between pods are up to date, but for new ones.
    fn neighbours_counted(&self) -> bool {
        self.neighbours.is_current(self.epochs.of(Change::NodeSpecs))
    }

    /// Brings the counters of relations between pods up to date, and finds those that each pod belongs to.
    fn count_neighbours(&mut self) {
        let mut neighbours = std::mem::take(&mut self.neighbours);
        let mut newly_related = std::mem::take(&mut self.newly_related);
        let (index, all) = neighbours.to_compare();
        for id in self.pods_to_compare(&index, all) {
            let pod = &mut self.pods[id];
            let found = neighbours.selecting(&index, &pod.input);
            if all {
                pod.counted = found;
            } else if !found.is_empty() {
                pod.counted.extend(found);
                pod.counted.sort_unstable();
                newly_related.insert(id);
            }
        }
        let node_specs = self.epochs.of(Change::NodeSpecs);
        if neighbours.is_current(node_specs) {
            neighbours.begin_new(&self.nodes);
            for pod in newly_related.into_iter().map(|id| &self.pods[id]) {
                for (pod, node) in self.related_places(pod) {
                    neighbours.account_new(pod, node);
                }
            }
            neighbours.end_new();
        } else {
            neighbours.restart(&self.nodes, node_specs);
            self.add_places(&mut neighbours);
        }
        self.neighbours = neighbours;
    }

    /// The pods that may belong to counters of an index; `all`: every pod.
    fn pods_to_compare(&self, index: &Index, all: bool) -> Vec<PodId> {
        match index.namespaces() {
            Some(namespaces) if !all => {
                let pods = namespaces.filter_map(|namespace| self.by_namespace.get(namespace));
                pods.flatten().copied().collect()
            }
            _ => self.pods.ids().collect(),
        }
    }

    /// The counters of relations between pods, recounted from the places of all pods.
    #[must_use]
    fn neighbours_counted_anew(&self) -> Neighbours {
        let mut neighbours = self.neighbours.clone();
        neighbours.restart(&self.nodes, self.epochs.of(Change::NodeSpecs));
        self.add_places(&mut neighbours);
        neighbours
    }

    /// Counts the places of all pods in empty counters.
    fn add_places(&self, neighbours: &mut Neighbours) {
        if neighbours.is_empty() {
            return;
        }
        for (pod, node) in self.pods.iter().flat_map(|(_, pod)| self.related_places(pod)) {
            neighbours.account(pod, node, 1);
        }
    }

    /// The places of a pod with relations.
    fn related_places<'m>(&'m self, pod: &'m Pod) -> impl Iterator<Item = (CountedPod<'m>, NodeId)> {
        let asked = self.classes[pod.class].asked.as_ref();
        let related = asked.is_some() || !pod.counted.is_empty();
        let places = [(&pod.state.hold, pod.state.terminates()), (&pod.state.plan, false)];
        let places = places.into_iter().filter(move |_| related);
        places.filter_map(move |(place, leaving)| {
            let presence = CountedPod {
                counted: &pod.counted,
                asked,
                leaving,
            };
            Some((presence, place.as_ref()?.node))
        })
    }

    /// Storage used and promised, recounted from the places of all pods.
    #[must_use]
    pub fn storage_counted_anew(&self) -> Storage {
        let mut storage = self.storage.unused();
        for (_, pod) in self.pods.iter() {
            let Some(volumes) = &pod.input.volumes else { continue };
            let held = if pod.state.leaving {
                Weight::Leaving
            } else {
                Weight::Staying
            };
            for (place, weight) in [(&pod.state.hold, held), (&pod.state.plan, Weight::Planned)] {
                if let Some(place) = place {
                    storage.account(volumes, place.node, &place.extras().volumes, weight, 1);
                }
            }
        }
        storage
    }

    /// Charges a pod to its queue and all above, according to its state.
    fn charge(&mut self, id: PodId, sign: i64) {
        let pod = &self.pods[id];
        let Some(pod_group) = pod.pod_group.map(|pod_group| &self.pod_groups[pod_group]) else {
            return;
        };
        let (Some(queue), Some(input), Some(_)) = (pod_group.queue, &pod_group.input, pod.member) else {
            return;
        };
        if !self.queue_tree_current() {
            return;
        }
        let status = pod.state.status;
        // What is not tried must not raise its queue's fair share.
        let (held, memory) = if status.active_allocated() {
            (Some(self.accepted(id)), 0)
        } else if status == Status::Pending && pod_group.has_demand() {
            (None, self.shapes[pod.shape].memory_sum())
        } else {
            return;
        };
        let wanted = held.unwrap_or(self.shapes[pod.shape].quota);
        let preemptible = input.preemptible;
        let mut next = Some(queue);
        while let Some(id) = next {
            let queue = &mut self.queues[id];
            if let Some(held) = &held {
                add(&mut queue.allocated, held, sign);
                if !preemptible {
                    add(&mut queue.non_preemptible, held, sign);
                }
            }
            add(&mut queue.wanted, &wanted, sign);
            queue.wanted_memory += sign * memory;
            next = queue.parent;
        }
    }

    /// A pod's pod group.
    #[must_use]
    pub fn pod_group_of(&self, pod: PodId) -> Option<&PodGroup> {
        self.pods[pod].pod_group.map(|pod_group| &self.pod_groups[pod_group])
    }

    /// Whether some of these pods request GPU memory: how many GPUs that counts depends on the node.
    #[must_use]
    pub fn some_by_memory(&self, pods: &[PodId]) -> bool {
        pods.iter().any(|pod| self.shapes[self.pods[*pod].shape].gpu.memory > 0)
    }

    /// What a pod counts in its queue, given the node that it is on or pipelined to. If that is unknown: what it requests, with the size of the
    /// smallest GPU by which queues were last counted.
    #[must_use]
    pub fn accepted(&self, id: PodId) -> Shared {
        let pod = &self.pods[id];
        let shape = &self.shapes[pod.shape];
        let place = pod.state.plan.as_ref().or(pod.state.hold.as_ref());
        match place.map(|place| &self.nodes[place.node]) {
            Some(node) if node.input.is_some() => shape.accepted(node.gpu_memory()),
            Some(_) | None => shape.requested(self.node_summary.last().smallest_gpu()),
        }
    }

    /// The node that a pod is pipelined to, else the one that it is on.
    #[must_use]
    pub fn node_of(&self, id: PodId) -> Option<NodeId> {
        let state = &self.pods[id].state;
        state.plan.as_ref().or(state.hold.as_ref()).map(|place| place.node)
    }

    /// Whether a pod is to be placed: pending and not waiting for a retry, or evicted in the open statement.
    #[must_use]
    pub fn wants_place(&self, id: PodId, now: Time) -> bool {
        let pod = &self.pods[id];
        match pod.state.status {
            Status::Pending => pod.retry_at.is_none_or(|at| at <= now),
            _ => pod.state.evicted_from.is_some() && pod.state.plan.is_none(),
        }
    }

    /// The pods of a pod group to place next.
    #[must_use]
    pub fn next_chunk(&self, pod_group: PodGroupId, now: Time) -> PodIds {
        self.next_chunk_without(pod_group, now, &[])
    }

    /// The same without these pod sets.
    #[must_use]
    pub fn next_chunk_without(&self, pod_group: PodGroupId, now: Time, without: &[Member]) -> PodIds {
        let pod_group = &self.pod_groups[pod_group];
        let take = |member: Member, most: usize| -> PodIds {
            let pods = pod_group.pods(member).expect("only pod sets are asked for pods");
            if (pods.with(Status::Pending) == 0 && pods.evicted_now == 0) || without.contains(&member) {
                return PodIds::new();
            }
            pods.pods
                .iter()
                .copied()
                .filter(|&pod| self.wants_place(pod, now))
                .take(most)
                .collect()
        };
        pod_group.chunk(&pod_group.active(), &take)
    }

    /// Allocates a pod to a node. Undoable.
    pub fn allocate(&mut self, pod: PodId, place: Place) {
        self.set_state(pod, State::on(Status::Allocated, place));
    }

    /// Pipelines a pod to a node. Undoable.
    pub fn pipeline(&mut self, pod: PodId, place: Place) {
        let old = &self.pods[pod].state;
        let state = State {
            status: Status::Pipelined,
            evicted_from: old.evicted_from,
            hold: old.hold.clone(),
            leaving: old.leaving,
            plan: Some(place),
        };
        self.set_state(pod, state);
    }

    /// Evicts a pod. Undoable.
    pub fn evict(&mut self, pod: PodId) {
        let old = &self.pods[pod].state;
        let state = State {
            status: Status::Releasing,
            evicted_from: Some(old.status),
            hold: old.hold.clone(),
            leaving: old.hold.is_some(),
            plan: None,
        };
        self.set_state(pod, state);
    }

    /// Reverts an eviction of the open statement: the pod stays where it is. Undoable.
    pub fn unevict(&mut self, pod: PodId) {
        let old = &self.pods[pod].state;
        let status = old
            .evicted_from
            .expect("only what was evicted in this statement is taken back");
        let state = State {
            status,
            evicted_from: None,
            hold: old.hold.clone(),
            leaving: false,
            plan: None,
        };
        self.set_state(pod, state);
    }
}
