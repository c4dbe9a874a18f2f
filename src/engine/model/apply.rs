//! Events change the model in place. They may come in any order: what is named before it is known gets an empty entry that its own event fills.

mod claims;

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::input::{Event, GroupInput, GroupKey, Name, NodeInput, PodInput, PodStatus, QueueInput, Time};

use super::Model;
use super::class::{Class, Constraints, NodeSet};
use super::gang::Gang;
use super::ids::{ClassId, GangId, NodeId, QueueId, ShapeId, TaskId};
use super::node::Node;
use super::numa::{Ledger, ZoneShare};
use super::queue::Queue;
use super::relations::Counters;
use super::resources::{CPU, GPUS, MEMORY, PODS, Resources};
use super::shape::Shape;
use super::task::{Assumed, Extras, Place, State, Status, Task, shown};
use super::topology::Topology;

impl Model {
    /// Takes in one change.
    pub fn apply(&mut self, event: Event, now: Time) {
        match event {
            Event::Node(input) => self.apply_node(input),
            Event::NodeGone(name) => self.node_gone(&name),
            Event::Queue(input) => self.apply_queue(input),
            Event::QueueGone(name) => self.queue_gone(&name),
            Event::Group(input) => self.apply_group(input),
            Event::GroupGone(key) => self.group_gone(&key),
            Event::Pod(input) => self.apply_pod(input, now),
            Event::PodGone(uid) => self.pod_gone(&uid),
            Event::Unbound { pod, retry_at } => self.unbound(&pod, retry_at, now),
            Event::SharingFailed { node, retry_at } => self.sharing_failed(&node, retry_at),
            Event::Unevicted { pod } => self.unevicted(&pod, now),
            Event::Topology(input) => {
                self.topologies.insert(input.name, Topology::new(input.levels));
                self.topologies_changed();
            }
            Event::TopologyGone(name) => {
                self.topologies.remove(&name);
                self.topologies_changed();
            }
            Event::Volume(input) => self.dirty |= self.storage.offer(input),
            Event::VolumeGone(name) => self.dirty |= self.storage.withdraw(&name),
            Event::Capacity(input) => self.dirty |= self.storage.set_capacity(input),
            Event::CapacityGone(key) => self.dirty |= self.storage.drop_capacity(&key),
            Event::Attachment(input) => self.dirty |= self.storage.attach(*input),
            Event::AttachmentGone(key) => self.dirty |= self.storage.detach(&key),
            Event::Budget(input) => self.dirty |= self.budgets.put(*input),
            Event::BudgetGone { namespace, name } => self.dirty |= self.budgets.remove(&namespace, &name),
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

    fn apply_node(&mut self, input: Box<NodeInput>) {
        let id = self.node_id(&input.name);
        if self.nodes[id].input.as_ref() == Some(&input) {
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
        self.change_node(id, |node| {
            node.set_allocatable(allocatable);
            node.numa = input.numa.as_ref().map(Ledger::of);
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

    /// Changes a node while nothing is on it, because what pods weigh depends on it.
    fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        self.index.stop();
        self.neighbours.stale = true;
        let tasks = self.nodes[id].tasks.clone();
        for &task in &tasks {
            self.account(task, -1);
        }
        change(&mut self.nodes[id]);
        for &task in &tasks {
            let record = self.recorded_zones(id, &self.tasks[task].input);
            if let Some(hold) = self.tasks[task].state.hold.as_mut().filter(|_| !record.is_empty()) {
                hold.change(|extras| extras.zones = record);
            }
            self.account(task, 1);
            if let Some(gang) = self.tasks[task].gang {
                self.gang_changed(gang);
            }
        }
        self.nodes_stale = true;
        self.dirty = true;
    }

    fn topologies_changed(&mut self) {
        self.topologies_stale = true;
        self.dirty = true;
    }

    fn drop_empty_node(&mut self, id: NodeId) {
        let node = &self.nodes[id];
        if node.input.is_none() && node.tasks.is_empty() && node.coming.is_empty() {
            self.sharing_at.retain(|(_, other)| *other != id);
            self.nodes.remove(id);
            self.neighbours.stale = true;
            self.index.stop();
            self.nodes_stale = true;
        }
    }

    fn apply_queue(&mut self, input: Box<QueueInput>) {
        let id = self.queue_id(&input.name);
        let old = self.queues[id].input.as_ref();
        if old == Some(&input) {
            return;
        }
        self.queues_stale |= old.is_none_or(|old| old.parent != input.parent);
        self.queues[id].input = Some(input);
        self.dirty = true;
    }

    fn queue_gone(&mut self, name: &Name) {
        let Some(id) = self.queues.id(name) else { return };
        self.queues[id].input = None;
        self.queues_stale = true;
        self.dirty = true;
    }

    fn apply_group(&mut self, input: Box<GroupInput>) {
        let id = self.gang_id(&input.key);
        let old = self.gangs[id].input.as_deref();
        if old == Some(&*input) {
            return;
        }
        if old.is_some_and(|old| same_but_times(old, &input)) {
            self.gangs[id].input = Some(input);
            self.gang_changed(id);
            return;
        }
        let queue = self.queue_id(&input.queue);
        self.change_gang(id, |gang| {
            gang.queue = Some(queue);
            gang.input = Some(input);
        });
    }

    fn group_gone(&mut self, key: &GroupKey) {
        let Some(id) = self.gangs.id(key) else { return };
        self.change_gang(id, |gang| {
            gang.queue = None;
            gang.input = None;
        });
        self.drop_empty_gang(id);
    }

    /// Changes a gang while no pod counts in it, and plants its tree anew.
    fn change_gang(&mut self, id: GangId, change: impl FnOnce(&mut Gang)) {
        let tasks = self.gangs[id].tasks.clone();
        for &task in &tasks {
            self.account(task, -1);
            self.tasks[task].member = None;
        }
        self.pending.remove(&id);
        let gang = &mut self.gangs[id];
        change(gang);
        gang.plant();
        for &task in &tasks {
            self.join_pod_set(task);
            self.account(task, 1);
        }
        self.gang_changed(id);
        self.dirty = true;
    }

    fn drop_empty_gang(&mut self, id: GangId) {
        let gang = &self.gangs[id];
        if gang.input.is_none() && gang.tasks.is_empty() {
            self.gangs.remove(id);
        }
    }

    /// Finds a task's pod set and its place in there.
    fn join_pod_set(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        let Some(gang_id) = task.gang else { return };
        let member = self.gangs[gang_id].pod_set(task.input.sub_group.as_ref());
        if let Some(member) = member {
            let tasks = &self.tasks;
            let pods = self.gangs[gang_id].pods_mut(member).expect("pod_set gives pod sets");
            let position = pods
                .tasks
                .partition_point(|other| tasks[*other].order() < tasks[id].order());
            pods.tasks.insert(position, id);
        }
        self.tasks[id].member = member;
    }

    fn apply_pod(&mut self, input: Box<PodInput>, now: Time) {
        let known = self.tasks.id(&input.pod.uid);
        if let Some(id) = known {
            if self.tasks[id].input == input {
                return;
            }
            if self.only_labels(id, &input) || self.only_progress(id, &input, now) {
                self.tasks[id].input = input;
                return;
            }
        }
        let (class, shape) = self.kind_of(&input);
        let assumed = known.and_then(|id| self.still_assumed(id, &input));
        let retry_at = known.and_then(|id| self.tasks[id].retry_at);
        let before = known.and_then(|id| self.tasks[id].state.hold.clone());
        if let Some(id) = known {
            self.take_out(id);
        }
        self.dirty = true;
        let counted = if self.neighbours.stale {
            Counters::new()
        } else {
            self.neighbours.counted(&input)
        };
        let gang = input.group.as_ref().map(|key| self.gang_id(key));
        let status = shown(&input, now, self.stuck_after);
        let (assumed, state) = match assumed {
            Some((assumed, state)) => (assumed, state),
            None => (Assumed::Nothing, self.state_of(&input, status, shape, before)),
        };
        let since = input.releasing_since.filter(|_| status == Status::Releasing);
        let id = self.put_in(Task {
            input,
            shape,
            class,
            counted,
            gang,
            member: None,
            state,
            retry_at,
            assumed,
        });
        if let Some(since) = since {
            self.stuck_at.insert((Time(since.0 + self.stuck_after + 1), id));
        }
    }

    fn put_in(&mut self, task: Task) -> TaskId {
        let gang = task.gang;
        let claims = task.input.claims.clone();
        let retry_at = task.retry_at;
        let id = self.tasks.insert(task);
        if let Some(claims) = &claims {
            self.join_claims(id, claims);
        }
        self.retry_at.extend(retry_at.map(|at| (at, id)));
        if let Some(gang) = gang {
            self.gangs[gang].tasks.push(id);
            self.gang_changed(gang);
            self.join_pod_set(id);
        }
        self.account(id, 1);
        id
    }

    /// Takes a task out of everything and frees its slot.
    fn take_out(&mut self, id: TaskId) {
        self.account(id, -1);
        let task = &self.tasks[id];
        if let Some(gang_id) = task.gang {
            let (member, tasks) = (task.member, &self.tasks);
            let gang = &mut self.gangs[gang_id];
            gang.tasks.retain(|other| *other != id);
            if let Some(pods) = member.and_then(|member| gang.pods_mut(member)) {
                let position = pods
                    .tasks
                    .partition_point(|other| tasks[*other].order() < tasks[id].order());
                debug_assert_eq!(pods.tasks[position], id);
                pods.tasks.remove(position);
            }
            self.gang_changed(gang_id);
        }
        let task = self.tasks.remove(id).expect("it was there");
        self.leave_class(task.class);
        if let Some(claims) = &task.input.claims {
            self.leave_claims(id, claims);
        }
        self.stuck_at.retain(|(_, other)| *other != id);
        self.retry_at.retain(|(_, other)| *other != id);
        for place in [task.state.hold, task.state.plan].into_iter().flatten() {
            if self.nodes[place.node].input.is_none() {
                self.drop_empty_node(place.node);
            }
        }
        if let Some(gang) = task.gang {
            self.drop_empty_gang(gang);
        }
    }

    fn pod_gone(&mut self, uid: &Name) {
        if let Some(id) = self.tasks.id(uid) {
            self.take_out(id);
            self.dirty = true;
        }
    }

    /// The change is in labels that mean nothing to other pods.
    fn only_labels(&self, id: TaskId, input: &PodInput) -> bool {
        let old = &self.tasks[id].input;
        old.labels != input.labels
            && self.same_relatives(id, input)
            && PodInput {
                labels: old.labels.clone(),
                ..input.clone()
            } == **old
    }

    /// With its labels as they are now, a pod is to other pods what it was.
    fn same_relatives(&self, id: TaskId, input: &PodInput) -> bool {
        self.neighbours.is_empty()
            || (!self.neighbours.stale && self.neighbours.counted(input) == self.tasks[id].counted)
    }

    /// The change is only that the pod got where the model has it already.
    fn only_progress(&mut self, id: TaskId, input: &PodInput, now: Time) -> bool {
        let task = &self.tasks[id];
        let old = &task.input;
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
            ..input.clone()
        };
        if same != **old || task.assumed == Assumed::Evicted {
            return false;
        }
        let status = shown(input, now, self.stuck_after);
        if !task.state.status.allocated() || !status.allocated() {
            return false;
        }
        let Some(hold) = &task.state.hold else { return false };
        let node = &self.nodes[hold.node];
        let groups: Vec<_> = hold
            .extras()
            .groups
            .iter()
            .map(|group| node.groups[usize::from(*group)].name.clone())
            .collect();
        if input.node.as_ref() != Some(&node.name)
            || (self.shapes[task.shape].shared && !input.gpu_groups.is_empty() && groups != input.gpu_groups)
        {
            return false;
        }
        let state = State {
            status,
            ..task.state.clone()
        };
        self.settle(id, state);
        self.tasks[id].assumed = Assumed::Nothing;
        true
    }

    /// What stays assumed although a pod's object does not show it (yet).
    fn still_assumed(&self, id: TaskId, input: &PodInput) -> Option<(Assumed, State)> {
        let task = &self.tasks[id];
        let kept = match task.assumed {
            Assumed::Nothing => false,
            Assumed::Bound => matches!(input.status, PodStatus::Pending) && input.node.is_none(),
            Assumed::Evicted => matches!(
                input.status,
                PodStatus::Pending | PodStatus::Binding | PodStatus::Bound | PodStatus::Running
            ),
        };
        kept.then(|| (task.assumed.clone(), task.state.clone()))
    }

    /// Where a pod is, as its object shows it. What it was promised there before still holds.
    fn state_of(&mut self, input: &PodInput, status: Status, shape: ShapeId, before: Option<Place>) -> State {
        let placed = status.active_used() || status == Status::Unknown;
        let Some(name) = input.node.as_ref().filter(|_| placed) else {
            return State::nowhere(status);
        };
        let node = self.node_id(name);
        let mut groups = SmallVec::new();
        if self.shapes[shape].shared || input.reservation {
            let unique: BTreeSet<_> = input.gpu_groups.iter().collect();
            groups.extend(unique.into_iter().map(|group| self.nodes[node].group(group)));
        }
        let zones = self.recorded_zones(node, input);
        let before = before.filter(|before| before.node == node);
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
            zones,
            volumes,
            devices,
        };
        State::on(status, Place::new(node, extras))
    }

    /// The NUMA zones of a node that a pod is recorded to use.
    fn recorded_zones(&self, node: NodeId, input: &PodInput) -> Vec<ZoneShare> {
        match (&self.nodes[node].numa, &input.numa) {
            (Some(ledger), Some(numa)) => ledger.recorded(&numa.record),
            _ => Vec::new(),
        }
    }

    fn unbound(&mut self, uid: &Name, retry_at: Option<Time>, _now: Time) {
        let Some(id) = self.tasks.id(uid) else { return };
        // Otherwise the pod is where its bind request says, and is free when that is gone.
        if self.tasks[id].assumed == Assumed::Bound {
            self.settle(id, State::nowhere(Status::Pending));
            self.tasks[id].assumed = Assumed::Nothing;
        }
        if let Some(old) = std::mem::replace(&mut self.tasks[id].retry_at, retry_at) {
            self.retry_at.remove(&(old, id));
        }
        if let Some(at) = retry_at {
            self.retry_at.insert((at, id));
        }
        self.dirty = true;
    }

    fn sharing_failed(&mut self, node: &Name, retry_at: Time) {
        let Some(id) = self.nodes.id(node) else { return };
        self.set_sharing(id, Some(retry_at));
    }

    /// Whether and from when GPUs of a node are opened for sharing again.
    fn set_sharing(&mut self, id: NodeId, from: Option<Time>) {
        if let Some(before) = std::mem::replace(&mut self.nodes[id].sharing_from, from) {
            self.sharing_at.remove(&(before, id));
        }
        self.sharing_at.extend(from.map(|at| (at, id)));
        self.dirty = true;
    }

    fn unevicted(&mut self, uid: &Name, now: Time) {
        let Some(id) = self.tasks.id(uid) else { return };
        if self.tasks[id].assumed != Assumed::Evicted {
            return;
        }
        let status = shown(&self.tasks[id].input, now, self.stuck_after);
        let state = State {
            status,
            evicted_from: None,
            leaving: false,
            plan: None,
            hold: self.tasks[id].state.hold.clone(),
        };
        self.settle(id, state);
        self.tasks[id].assumed = Assumed::Nothing;
        self.budgets.spend(&self.tasks[id].input, -1);
        self.dirty = true;
    }

    fn apply_usage(&mut self, usage: Vec<(Name, [i64; 3])>) {
        let ids: Vec<_> = self.queues.ids().collect();
        for id in ids {
            self.queues[id].usage = [0; 3];
        }
        for (name, amount) in usage {
            if let Some(id) = self.queues.id(&name) {
                self.queues[id].usage = amount;
            }
        }
        self.dirty = true;
    }

    /// Lets time pass: pods become stuck, pods and nodes may be tried again.
    pub fn pass_time(&mut self, now: Time) {
        while let Some(&(at, id)) = self.stuck_at.first()
            && at <= now
        {
            self.stuck_at.pop_first();
            if self.tasks[id].state.status == Status::Releasing {
                let state = State {
                    status: Status::Stuck,
                    leaving: false,
                    ..self.tasks[id].state.clone()
                };
                self.settle(id, state);
                self.dirty = true;
            }
        }
        while let Some(&(at, id)) = self.retry_at.first()
            && at <= now
        {
            self.retry_at.pop_first();
            self.tasks[id].retry_at = None;
            if let Some(gang) = self.tasks[id].gang {
                self.gang_changed(gang);
            }
            self.dirty = true;
        }
        while let Some(&(at, id)) = self.sharing_at.first()
            && at <= now
        {
            self.set_sharing(id, None);
        }
    }

    /// The next instants that [`Model::pass_time`] waits for: (stuck, retry).
    #[must_use]
    pub fn timers(&self) -> (Option<Time>, Option<Time>) {
        let pods = self.retry_at.first().map(|(at, _)| *at);
        let nodes = self.sharing_at.first().map(|(at, _)| *at);
        (
            self.stuck_at.first().map(|(at, _)| *at),
            [pods, nodes].into_iter().flatten().min(),
        )
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
        self.queues.insert(Queue::unknown(name.clone()))
    }

    fn gang_id(&mut self, key: &GroupKey) -> GangId {
        if let Some(id) = self.gangs.id(key) {
            return id;
        }
        self.gangs.insert(Gang::unknown(key.clone()))
    }

    /// The class of a pod, which counts in it from here on, and its shape.
    fn kind_of(&mut self, input: &PodInput) -> (ClassId, ShapeId) {
        let plain = input.relations.is_none() && input.volumes.is_none() && input.blocked.is_none();
        let last = self.last_kind.as_ref().filter(|_| plain);
        if let Some(&(_, class, shape)) = last.filter(|(needs, ..)| Arc::ptr_eq(needs, &input.needs)) {
            self.classes[class].pods += 1;
            return (class, shape);
        }
        let (class, shape) = (self.class_id(input), self.shape_id(input));
        if plain {
            self.last_kind = Some((Arc::clone(&input.needs), class, shape));
        }
        (class, shape)
    }

    fn shape_id(&mut self, input: &PodInput) -> ShapeId {
        let key = (input.needs.request.clone(), input.needs.gpu.clone());
        if let Some(&id) = self.shape_ids.get(&key) {
            return id;
        }
        let id = self.shapes.insert(Shape::new(&key.0, &key.1, &mut self.resources));
        self.shape_ids.insert(key, id);
        id
    }

    /// The class of a pod, which counts in it from here on.
    fn class_id(&mut self, input: &PodInput) -> ClassId {
        let constraints = Constraints::of(input);
        if let Some(id) = self.classes.id(&constraints) {
            self.classes[id].pods += 1;
            return id;
        }
        let asked = self.neighbours.ask(&constraints);
        self.classes.insert(Class {
            constraints,
            nodes: NodeSet::default(),
            as_of: 0,
            asked,
            pods: 1,
        })
    }
}

impl Model {
    /// A pod of a class is gone; the class goes with its last pod.
    fn leave_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id];
        class.pods -= 1;
        if class.pods == 0
            && let Some(class) = self.classes.remove(id)
        {
            self.classes_gone += 1;
            self.last_kind = None;
            if let Some(asked) = &class.asked {
                self.neighbours.release(asked);
            }
        }
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

impl Model {
    /// Everything that depends on settings is out of date.
    pub fn settings_changed(&mut self, stuck_after: i64) {
        self.stuck_after = stuck_after;
        self.nodes_stale = true;
        self.queues_stale = true;
        self.index.stop();
        self.dirty = true;
    }
}
