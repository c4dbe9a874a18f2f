//! Events change the model in place. They may come in any order: an object that is referenced before its event arrives gets an empty entry that its event fills.

mod charge;
mod claims;
mod timers;
mod zones;

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::input::{Event, GroupInput, GroupKey, Name, NodeInput, PodInput, PodStatus, QueueInput, Time};

use super::Model;
use super::class::Class;
use super::constraints::Constraints;
use super::epochs::{Cached, Change};
use super::ids::{ClassId, NodeId, PodGroupId, PodId, QueueId, ShapeId};
use super::node::Node;
use super::pod::{Assumed, Extras, Place, Pod, State, Status, shown};
use super::pod_group::{PodGroup, placeholder};
use super::queue::Queue;
use super::relations::Counters;
use super::resources::{CPU, GPUS, MEMORY, PODS, Resources, Shared};
use super::shape::Shape;
use super::topology::Topology;

impl Model {
    /// Applies one change.
    pub fn apply(&mut self, event: Event, now: Time) {
        match event {
            Event::Node(input) => self.apply_node(input),
            Event::NodeGone(name) => self.node_gone(&name),
            Event::Queue(input) => self.apply_queue(input, now),
            Event::QueueGone(name) => self.queue_gone(&name, now),
            Event::Group(input) => self.apply_group(input, now),
            Event::GroupGone(key) => self.group_gone(&key),
            Event::Pod(input) => self.apply_pod(input, now),
            Event::PodGone(uid) => self.pod_gone(&uid),
            Event::Unbound { pod, retry_at } => self.unbound(&pod, retry_at),
            Event::SharingFailed { node, retry_at } => self.sharing_failed(&node, retry_at),
            Event::Unevicted { pod, retry_at } => self.unevicted(&pod, retry_at, now),
            Event::Topology(input) => {
                self.topologies.insert(input.name, Topology::new(input.levels));
                self.topologies_changed();
            }
            Event::TopologyGone(name) => {
                self.topologies.remove(&name);
                self.topologies_changed();
            }
            Event::Volume(input) => {
                let changed = self.storage.offer(input);
                self.mark_changed(changed);
            }
            Event::VolumeGone(name) => {
                let changed = self.storage.withdraw(&name);
                self.mark_changed(changed);
            }
            Event::Capacity(input) => {
                let changed = self.storage.set_capacity(input);
                self.mark_changed(changed);
            }
            Event::CapacityGone(key) => {
                let changed = self.storage.drop_capacity(&key);
                self.mark_changed(changed);
            }
            Event::Attachment(input) => {
                let changed = self.storage.attach(*input);
                self.mark_changed(changed);
            }
            Event::AttachmentGone(key) => {
                let changed = self.storage.detach(&key);
                self.mark_changed(changed);
            }
            Event::Budget(input) => {
                let pods = &self.pods;
                let changed = self.budgets.put(*input, |uid| Some(&*pods[pods.id(uid)?].input));
                self.mark_changed(changed);
            }
            Event::BudgetGone { namespace, name } => {
                let changed = self.budgets.remove(&namespace, &name);
                self.mark_changed(changed);
            }
            Event::Pool(input) => {
                self.devices.apply_pool(*input);
                self.devices_changed();
            }
            Event::PoolGone(driver, pool) => {
                self.devices.pool_gone(driver, pool);
                self.devices_changed();
            }
            Event::Claim(input) => self.claim_changed(&input.key.clone(), Some(input)),
            Event::ClaimGone(key) => self.claim_changed(&key, None),
            Event::Usage(usage) => self.apply_usage(usage),
        }
        self.devices.sweep();
    }

    /// Makes the next cycle decide again.
    pub(super) fn mark_changed(&mut self, changed: bool) {
        if changed {
            self.epochs.bump(Change::Any);
        }
    }

    fn apply_node(&mut self, input: Box<NodeInput>) {
        let id = self.node_id(&input.name);
        if self.nodes[id].input.as_ref() == Some(&input) {
            return;
        }
        if self.is_zone_report(id, &input) {
            self.zones_reported(id, input);
            return;
        }
        let mut allocatable = Resources::default();
        allocatable.set(CPU, input.allocatable.cpu);
        allocatable.set(MEMORY, input.allocatable.memory);
        allocatable.set(GPUS, input.allocatable.gpu);
        allocatable.set(PODS, input.pods);
        for (name, amount) in &input.allocatable.other {
            let position = self.resources.position(name);
            allocatable.bump(position, *amount);
        }
        // A report on free amounts is applied once, not again when something else of the node changes.
        let zones_changed = self.nodes[id].input.as_ref().map(|before| &before.numa) != Some(&input.numa);
        let zones = zones_changed.then(|| self.ledger_of(&input));
        self.change_node(id, |node| {
            node.set_allocatable(allocatable);
            if let Some(zones) = zones {
                node.numa = zones;
            }
            node.input = Some(input);
        });
    }

    fn node_gone(&mut self, name: &Name) {
        let Some(id) = self.nodes.id(name) else { return };
        self.change_node(id, |node| {
            node.set_allocatable(Resources::default());
            node.numa = None;
            node.input = None;
        });
        self.drop_empty_node(id);
    }

    /// Changes a node while its pods are not accounted, because what they use depends on the node.
    fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        self.index.stop();
        self.epochs.bump(Change::NodeSpecs);
        let pods = self.nodes[id].pods.clone();
        for &pod in &pods {
            self.account(pod, -1);
        }
        change(&mut self.nodes[id]);
        for &pod in &pods {
            let zones = self.zones_of(id, &self.pods[pod].input);
            if let (Some(hold), Some(zones)) = (&mut self.pods[pod].state.hold, zones) {
                hold.change(|extras| extras.zones = zones);
            }
            self.account(pod, 1);
            if let Some(pod_group) = self.pods[pod].pod_group {
                self.pod_group_changed(pod_group);
            }
        }
        self.mark_changed(true);
    }

    fn topologies_changed(&mut self) {
        self.epochs.bump(Change::Topologies);
        self.mark_changed(true);
    }

    fn drop_empty_node(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        if node.input.is_none() && node.pods.is_empty() && node.coming.is_empty() {
            if let Some(from) = node.sharing_from {
                self.sharing_at.remove(&(from, id));
            }
            self.nodes.remove(id);
            self.epochs.bump(Change::NodeSpecs);
            self.index.stop();
        }
    }

    fn apply_queue(&mut self, input: Box<QueueInput>, now: Time) {
        let id = self.queue_id(&input.name);
        let old = self.queues[id].input.as_ref();
        if old == Some(&input) {
            return;
        }
        if old.is_none_or(|old| old.parent != input.parent) {
            self.epochs.bump(Change::QueueTree);
        }
        self.queues[id].input = Some(input);
        self.follow_schedule(id, now);
        self.mark_changed(true);
    }

    fn queue_gone(&mut self, name: &Name, now: Time) {
        let Some(id) = self.queues.id(name) else { return };
        self.queues[id].input = None;
        self.follow_schedule(id, now);
        self.epochs.bump(Change::QueueTree);
        self.mark_changed(true);
    }

    fn apply_group(&mut self, mut input: Box<GroupInput>, now: Time) {
        let id = self.pod_group_id(&input.key);
        self.pod_groups[id].recall(&mut input, now);
        let claims_protection = !input.preemptible && self.stays_victim(id);
        input.preemptible |= claims_protection;
        self.pod_groups[id].claims_protection = claims_protection;
        let old = self.pod_groups[id].input.as_deref();
        if old == Some(&*input) && !self.pod_groups[id].placeholder {
            return;
        }
        if !self.pod_groups[id].placeholder && old.is_some_and(|old| same_but_times(old, &input)) {
            let stale = self.pod_groups[id].stale_since() != input.stale_since;
            self.pod_groups[id].input = Some(input);
            self.pod_group_changed(id);
            // An earlier staleness may be shown late.
            self.mark_changed(stale);
            return;
        }
        self.forget_queues();
        let named = self.queue_id(&input.queue);
        let queue = self.charged_to(id, named, input.refused.is_some());
        self.change_pod_group(id, |pod_group| {
            pod_group.queue = Some(queue);
            pod_group.charged_elsewhere = queue != named;
            pod_group.input = Some(input);
            pod_group.placeholder = false;
        });
    }

    /// Whether pods of a pod group are charged to a queue although the PodGroup is unknown.
    fn is_held_for(&self, id: PodGroupId) -> bool {
        let mut pods = self.pod_groups[id].pods.iter();
        pods.any(|pod| self.pods[*pod].always_charged())
    }

    fn forget_group(&mut self, id: PodGroupId) {
        self.change_pod_group(id, |pod_group| {
            pod_group.queue = None;
            pod_group.input = None;
            (
                pod_group.placeholder,
                pod_group.charged_elsewhere,
                pod_group.claims_protection,
            ) = (false, false, false);
        });
    }

    /// Charges bound pods of an unknown PodGroup to the queue that they name.
    fn add_placeholder(&mut self, id: PodGroupId, fallback_queue: &Name) {
        if self.pod_groups[id].input.is_some() {
            return;
        }
        let queue = self.queue_id(fallback_queue);
        self.change_pod_group(id, |pod_group| {
            pod_group.queue = Some(queue);
            pod_group.input = Some(Box::new(placeholder(pod_group.key.clone(), fallback_queue.clone())));
            pod_group.placeholder = true;
        });
    }

    fn group_gone(&mut self, key: &GroupKey) {
        let Some(id) = self.pod_groups.id(key) else { return };
        if self.is_held_for(id) {
            // What its pods hold stays charged to its queue.
            self.change_pod_group(id, |pod_group| pod_group.placeholder = true);
        } else {
            self.forget_group(id);
        }
        self.drop_empty_pod_group(id);
    }

    /// Changes a pod group while its pods are not counted, and rebuilds its tree.
    fn change_pod_group(&mut self, id: PodGroupId, change: impl FnOnce(&mut PodGroup)) {
        let pods = self.pod_groups[id].pods.clone();
        for &pod in &pods {
            self.account(pod, -1);
            self.pods[pod].member = None;
        }
        self.pending.remove(&id);
        let pod_group = &mut self.pod_groups[id];
        change(pod_group);
        pod_group.build_tree();
        for &pod in &pods {
            self.join_pod_set(pod);
            self.account(pod, 1);
        }
        self.pod_group_changed(id);
        self.mark_changed(true);
    }

    fn drop_empty_pod_group(&mut self, id: PodGroupId) {
        let pod_group = &self.pod_groups[id];
        if (pod_group.input.is_none() || pod_group.placeholder) && pod_group.pods.is_empty() {
            self.pod_groups.remove(id);
        }
    }

    /// Whether the sub-group that a pod names exists.
    pub(super) fn names_pod_set(&self, pod: &Pod) -> bool {
        let named = |id: PodGroupId| self.pod_groups[id].pod_set(pod.input.sub_group.as_ref());
        pod.pod_group.and_then(named).is_some()
    }

    /// Finds a pod's pod set and its position there.
    fn join_pod_set(&mut self, id: PodId) {
        let pod = &self.pods[id];
        let Some(pod_group_id) = pod.pod_group else { return };
        let pod_group = &self.pod_groups[pod_group_id];
        let member = pod_group.pod_set(pod.input.sub_group.as_ref());
        let member = member.or_else(|| pod_group.any_pod_set().filter(|_| pod.always_charged()));
        if let Some(member) = member {
            let pods = &self.pods;
            let pod_set = self.pod_groups[pod_group_id]
                .pods_mut(member)
                .expect("pod_set gives pod sets");
            let position = pod_set
                .pods
                .partition_point(|other| pods[*other].order() < pods[id].order());
            pod_set.pods.insert(position, id);
        }
        self.pods[id].member = member;
    }

    fn apply_pod(&mut self, input: Box<PodInput>, now: Time) {
        let known = self.pods.id(&input.pod.uid);
        if let Some(id) = known {
            if self.pods[id].input == input {
                return;
            }
            if self.only_labels(id, &input) || self.only_progress(id, &input, now) {
                self.pods[id].input = input;
                return;
            }
        }
        let (class, shape) = self.kind_of(&input);
        let assumed = known.and_then(|id| self.still_assumed(id, &input));
        let retry_at = known.and_then(|id| self.pods[id].retry_at);
        let before = known.and_then(|id| self.pods[id].state.hold.clone());
        let reported = known.and_then(|id| self.in_zone_report(id));
        let nodes = known.map(|id| self.nodes_of(id)).unwrap_or_default();
        let left = known.and_then(|id| self.take_out(id));
        self.mark_changed(true);
        let counted = if self.neighbours.is_compared() {
            self.neighbours.counted(&input)
        } else {
            Counters::new()
        };
        let pod_group = input.group.as_ref().map(|key| self.pod_group_id(key));
        let status = shown(&input, now, self.stuck_after);
        let (assumed, state) = assumed.unwrap_or_else(|| {
            let state = self.state_of(&input, status, shape, known.is_some(), before.as_ref());
            (Assumed::Nothing, state)
        });
        let since = input.releasing_since.filter(|_| status == Status::Releasing);
        let id = self.put_in(Pod {
            input,
            shape,
            class,
            counted,
            pod_group,
            member: None,
            state,
            retry_at,
            assumed,
        });
        if let Some(since) = since {
            self.stuck_at.insert((self.stuck_from(since), id));
        }
        let gone = |(place, _): &(Place, bool)| !self.nodes_of(id).contains(&place.node);
        if let Some((place, leaving)) = reported.filter(gone) {
            self.left_zones(&place, leaving);
        }
        // Here, as it may be assumed to be on the same node.
        self.drop_empty_nodes(&nodes);
        if let Some(pod_group) = left {
            self.left(pod_group);
        }
    }

    /// When a terminating pod begins to count as stuck.
    fn stuck_from(&self, since: Time) -> Time {
        Time(since.0.saturating_add(self.stuck_after).saturating_add(1))
    }

    fn put_in(&mut self, pod: Pod) -> PodId {
        let pod_group = pod.pod_group;
        let claims = pod.input.claims.clone();
        let retry_at = pod.retry_at;
        let id = self.pods.insert(pod);
        let (namespace, class) = (&self.pods[id].input.pod.namespace, self.pods[id].class);
        self.by_namespace.entry(namespace.clone()).or_default().insert(id);
        if self.classes[class].asked.is_some() && !self.neighbours.has_counted_all() {
            self.newly_related.insert(id);
        }
        if let Some(claims) = &claims {
            self.join_claims(id, claims);
        }
        self.retry_at.extend(retry_at.map(|at| (at, id)));
        if let Some(pod_group) = pod_group {
            if let Some(fallback_queue) = self.pods[id].input.fallback_queue.clone() {
                self.add_placeholder(pod_group, &fallback_queue);
            }
            self.pod_groups[pod_group].pods.push(id);
            self.pod_group_changed(pod_group);
            self.join_pod_set(id);
        }
        self.account(id, 1);
        if let Some(pod_group) = pod_group
            .filter(|pod_group| self.pods[id].input.fallback_queue.is_some() && self.must_move_queue(*pod_group))
        {
            self.move_queue(pod_group);
        }
        id
    }

    /// Removes a pod and frees its slot. The caller removes it from its pod group.
    #[must_use]
    fn take_out(&mut self, id: PodId) -> Option<PodGroupId> {
        self.account(id, -1);
        let pod = &self.pods[id];
        if let Some(pod_group_id) = pod.pod_group {
            let (member, pods) = (pod.member, &self.pods);
            let pod_group = &mut self.pod_groups[pod_group_id];
            pod_group.pods.retain(|other| *other != id);
            if let Some(pod_set) = member.and_then(|member| pod_group.pods_mut(member)) {
                let position = pod_set
                    .pods
                    .partition_point(|other| pods[*other].order() < pods[id].order());
                debug_assert_eq!(pod_set.pods[position], id);
                pod_set.pods.remove(position);
            }
            self.pod_group_changed(pod_group_id);
        }
        let pod = self.pods.remove(id).expect("it was there");
        self.newly_related.remove(&id);
        if let Some(pods) = self.by_namespace.get_mut(&pod.input.pod.namespace) {
            pods.remove(&id);
            if pods.is_empty() {
                self.by_namespace.remove(&pod.input.pod.namespace);
            }
        }
        self.leave_class(pod.class);
        self.leave_shape(pod.shape);
        if let Some(claims) = &pod.input.claims {
            self.leave_claims(id, claims);
        }
        if let Some(since) = pod.input.releasing_since {
            self.stuck_at.remove(&(self.stuck_from(since), id));
        }
        if let Some(at) = pod.retry_at {
            self.retry_at.remove(&(at, id));
        }
        pod.pod_group
    }

    /// The nodes of a pod's places.
    pub(super) fn nodes_of(&self, pod: PodId) -> SmallVec<[NodeId; 2]> {
        let state = &self.pods[pod].state;
        let places = state.hold.iter().chain(&state.plan);
        places.map(|place| place.node).collect()
    }

    /// Removes those of the nodes that do not exist and have no pods any more.
    pub(super) fn drop_empty_nodes(&mut self, nodes: &[NodeId]) {
        for &node in nodes {
            if self.nodes.contains(node) {
                self.drop_empty_node(node);
            }
        }
    }

    fn pod_gone(&mut self, uid: &Name) {
        if let Some(id) = self.pods.id(uid) {
            let nodes = self.nodes_of(id);
            let reported = self.in_zone_report(id);
            let left = self.take_out(id);
            if let Some((place, leaving)) = reported {
                self.left_zones(&place, leaving);
            }
            self.drop_empty_nodes(&nodes);
            if let Some(pod_group) = left {
                self.left(pod_group);
            }
            self.budgets.refund(uid);
            self.mark_changed(true);
        }
    }

    /// Only labels changed, and no selector of another pod depends on them.
    fn only_labels(&self, id: PodId, input: &PodInput) -> bool {
        let old = &self.pods[id].input;
        old.labels != input.labels
            && self.same_relatives(id, input)
            && PodInput {
                labels: old.labels.clone(),
                ..input.clone()
            } == **old
    }

    /// The changed labels affect no selector of another pod.
    fn same_relatives(&self, id: PodId, input: &PodInput) -> bool {
        self.neighbours.is_empty()
            || (self.neighbours.is_compared() && self.neighbours.counted(input) == self.pods[id].counted)
    }

    /// The event only confirms the node that the model assumes.
    fn only_progress(&mut self, id: PodId, input: &PodInput, now: Time) -> bool {
        let pod = &self.pods[id];
        let old = &pod.input;
        let same = PodInput {
            status: old.status,
            labels: if self.same_relatives(id, input) {
                old.labels.clone()
            } else {
                input.labels.clone()
            },
            node: old.node.clone(),
            received: old.received,
            gpu_groups: old.gpu_groups.clone(),
            fallback_queue: old.fallback_queue.clone(),
            ..input.clone()
        };
        if same != **old || pod.assumed == Assumed::Evicted {
            return false;
        }
        // A pod group of which only pods are known is charged to the queue that they name; a pod of an unknown sub-group is in a pod set only while it is
        // charged.
        let is_known = |group: &PodGroup| group.input.is_some() && !group.placeholder;
        let known = |id: PodGroupId| is_known(&self.pod_groups[id]) && self.names_pod_set(pod);
        if old.fallback_queue != input.fallback_queue && !pod.pod_group.is_some_and(known) {
            return false;
        }
        let status = shown(input, now, self.stuck_after);
        if !pod.state.status.allocated() || !status.allocated() {
            return false;
        }
        let Some(hold) = &pod.state.hold else { return false };
        let node = &self.nodes[hold.node];
        let groups: Vec<_> = hold
            .extras()
            .groups
            .iter()
            .map(|group| node.groups[*group as usize].name.clone())
            .collect();
        if input.node.as_ref() != Some(&node.name)
            || (self.shapes[pod.shape].shared && !input.gpu_groups.is_empty() && groups != input.gpu_groups)
        {
            return false;
        }
        let state = State {
            status,
            ..pod.state.clone()
        };
        self.settle(id, state);
        self.pods[id].assumed = Assumed::Nothing;
        // A gang that is above its minimum by this pod is no longer stale, which the next cycle records.
        self.mark_changed(self.pod_group_of(id).is_some_and(|group| group.stale_since().is_some()));
        true
    }

    /// The assumption that still holds although a pod's object does not show it yet.
    fn still_assumed(&self, id: PodId, input: &PodInput) -> Option<(Assumed, State)> {
        let pod = &self.pods[id];
        let kept = match pod.assumed {
            Assumed::Nothing => false,
            Assumed::Bound => matches!(input.status, PodStatus::Pending) && input.node.is_none(),
            Assumed::Evicted => matches!(
                input.status,
                PodStatus::Pending | PodStatus::Binding | PodStatus::Bound | PodStatus::Running
            ),
        };
        kept.then(|| (pod.assumed.clone(), pod.state.clone()))
    }

    /// A pod's state as its object shows it. Volumes and devices promised on the same node stay promised.
    fn state_of(
        &mut self,
        input: &PodInput,
        status: Status,
        shape: ShapeId,
        is_known: bool,
        before: Option<&Place>,
    ) -> State {
        let placed = status.active_used() || status == Status::Unknown;
        let Some(name) = input.node.as_ref().filter(|_| placed) else {
            return State::nowhere(status);
        };
        let node = self.node_id(name);
        let (mut groups, mut ungrouped) = (SmallVec::new(), 0);
        if self.shapes[shape].shared || input.reservation {
            let unique: BTreeSet<_> = input.gpu_groups.iter().collect();
            if !unique.is_empty() {
                self.nodes[node].forget_unused_groups();
            }
            for group in unique {
                match self.nodes[node].group_of_bound(group) {
                    Some(group) => groups.push(group),
                    None => ungrouped += 1,
                }
            }
        }
        let zones = self.zones_of(node, input).unwrap_or_default();
        let before = before.filter(|before| before.node == node);
        let after_report = match before {
            Some(before) if !zones.is_empty() => before.extras().after_report,
            // No decision here placed it: its bind, by the leader before or another scheduler, came after the last report on the zones.
            None if is_known => self.zone_report(node, &zones),
            Some(_) | None => 0,
        };
        let Extras {
            volumes: promised,
            devices: held,
            ..
        } = before.map(|before| before.extras().clone()).unwrap_or_default();
        let volumes = input.volumes.as_ref();
        let volumes = volumes.and_then(|volumes| self.storage.recorded(volumes, promised.as_deref()));
        let devices = input.claims.as_ref().and_then(|claims| self.grants_of(claims, held));
        let extras = Extras {
            groups,
            ungrouped,
            after_report,
            zones,
            volumes,
            devices,
        };
        State::on(status, Place::new(node, extras))
    }

    fn apply_usage(&mut self, usage: Vec<(Name, [i64; 3])>) {
        let usage = usage.into_iter().collect();
        if self.usage == usage {
            return;
        }
        self.usage = usage;
        let ids: Vec<_> = self.queues.ids().collect();
        for id in ids {
            self.queues[id].usage = self.used(&self.queues[id].name);
        }
        self.mark_changed(true);
    }

    fn used(&self, queue: &str) -> Shared {
        self.usage.get(queue).copied().unwrap_or_default()
    }

    fn node_id(&mut self, name: &Name) -> NodeId {
        if let Some(id) = self.nodes.id(name) {
            return id;
        }
        let mut node = Node::unknown(name.clone());
        node.charge_devices(self.devices.gpus_taken(name));
        self.nodes.insert(node)
    }

    fn queue_id(&mut self, name: &Name) -> QueueId {
        if let Some(id) = self.queues.id(name) {
            return id;
        }
        self.queues_named += 1;
        let usage = self.used(name);
        self.queues.insert(Queue {
            usage,
            ..Queue::unknown(name.clone())
        })
    }

    fn pod_group_id(&mut self, key: &GroupKey) -> PodGroupId {
        if let Some(id) = self.pod_groups.id(key) {
            return id;
        }
        self.pod_groups.insert(PodGroup::unknown(key.clone()))
    }

    /// The class and shape of a pod, which is counted in both.
    fn kind_of(&mut self, input: &PodInput) -> (ClassId, ShapeId) {
        let plain = input.relations.is_none() && input.volumes.is_none() && input.blocked.is_none();
        let epoch = self.epochs.of(Change::ReusedIds);
        let known = plain && self.last_kind.is_current(epoch);
        let last = self.last_kind.last().as_ref().filter(|_| known);
        if let Some(&(_, class, shape)) = last.filter(|(needs, ..)| Arc::ptr_eq(needs, &input.needs)) {
            debug_assert!(self.classes[class].constraints == Constraints::of(input));
            debug_assert_eq!(
                self.shapes.id(&(input.needs.request.clone(), input.needs.gpu.clone())),
                Some(shape)
            );
            self.classes[class].pods += 1;
            self.join_shape(shape);
            return (class, shape);
        }
        let (class, shape) = (self.class_id(input), self.shape_id(input));
        self.join_shape(shape);
        if plain {
            self.last_kind
                .set(epoch, Some((Arc::clone(&input.needs), class, shape)));
        }
        (class, shape)
    }

    fn shape_id(&mut self, input: &PodInput) -> ShapeId {
        let key = (input.needs.request.clone(), input.needs.gpu.clone());
        if let Some(id) = self.shapes.id(&key) {
            return id;
        }
        self.shapes_unused += 1;
        self.shapes.insert(Shape::new(&key.0, &key.1, &mut self.resources))
    }

    /// Adds a pod to a shape.
    fn join_shape(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id];
        shape.pods += 1;
        if shape.pods == 1 {
            self.shapes_used += 1;
            self.shapes_unused -= 1;
        }
    }

    /// The class of a pod, which is counted in it.
    fn class_id(&mut self, input: &PodInput) -> ClassId {
        let constraints = Constraints::of(input);
        if let Some(id) = self.classes.id(&constraints) {
            self.classes[id].pods += 1;
            return id;
        }
        let asked = self.neighbours.ask(&constraints);
        self.classes.insert(Class {
            constraints,
            nodes: Cached::default(),
            asked,
            pods: 1,
        })
    }
}

impl Model {
    /// Removes a pod from a class; the class is removed with its last pod.
    fn leave_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id];
        class.pods -= 1;
        if class.pods == 0
            && let Some(class) = self.classes.remove(id)
        {
            self.epochs.bump(Change::ReusedIds);
            if let Some(asked) = &class.asked {
                self.neighbours.release(asked);
            }
        }
    }
}

/// Unused shapes that are always kept: many are used again soon.
const SPARE_SHAPES: usize = 64;

impl Model {
    /// Removes a pod from a shape. Shapes without pods, and their resource names, are dropped when they outnumber those with pods.
    fn leave_shape(&mut self, id: ShapeId) {
        let shape = &mut self.shapes[id];
        shape.pods -= 1;
        if shape.pods > 0 {
            return;
        }
        self.shapes_used -= 1;
        self.shapes_unused += 1;
        if self.shapes_unused <= SPARE_SHAPES + self.shapes_used {
            return;
        }
        let unused = self.shapes.iter().filter(|(_, shape)| shape.pods == 0);
        let unused: Vec<ShapeId> = unused.map(|(id, _)| id).collect();
        for id in unused {
            self.shapes.remove(id);
        }
        self.shapes_unused = 0;
        self.epochs.bump(Change::ReusedIds);
        let nodes = self.nodes.iter();
        let on_nodes = nodes.flat_map(|(_, node)| [&node.allocatable, &node.idle, &node.future, &node.planned]);
        let asked = self.shapes.iter().map(|(_, shape)| &shape.vector);
        let used = on_nodes.chain(asked).chain([&self.node_summary.last().largest]);
        self.resources.forget_unused(used);
    }
}

fn same_but_times(old: &GroupInput, new: &GroupInput) -> bool {
    let times = GroupInput {
        last_start: old.last_start,
        last_eviction: old.last_eviction,
        stale_since: old.stale_since,
        ..new.clone()
    };
    times == *old
}
