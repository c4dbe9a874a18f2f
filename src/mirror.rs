//! Kubernetes objects → engine events. Pure and synchronous: no client, no clock, no tasks.
//!
//! A [`Mirror`] gets every change of every watched object and returns the engine's events. It joins objects that depend on
//! others: priority classes → pod groups, bind requests → pods, topology aliases → pod groups, the shard's selector, and pods
//! that the in-process grouper has grouped before their PodGroup exists in the API server. A change that does not alter the engine's
//! input (a heartbeat, a status) produces no event.
//!
//! An object that cannot be used in full is listed in [`Output::rejections`] and never blocks others.

// Objects are untrusted: no panics.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice
)]

pub mod affinity;
pub mod aside;
pub mod bind_request;
pub mod bounds;
pub mod budget;
pub mod claims;
pub mod config_maps;
pub mod constraints;
mod groups;
pub mod identity;
mod links;
pub mod needs;
pub mod node;
pub mod numa;
pub mod packed;
pub mod pod;
pub mod pod_group;
pub mod policy;
pub mod priority;
pub mod queue;
pub mod relations;
mod repeated;
pub mod requests;
mod settings;
pub mod shard;
pub mod trim;
pub mod volumes;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::Value;
use smallvec::SmallVec;

use crate::api::names::annotation;
use crate::api::{PodGroup, Queue, gpu_request, limits};
use crate::engine::input::{Counts, Event, GroupKey, Name, NodeInput, PodInput, PodRef, QueueInput, Registry, Table};

use crate::kinds::{Object, kinds, types};

pub use groups::Groupings;
use identity::object_key;
pub use settings::{FallbackQueue, Settings};
pub use shard::Shard;

/// How the mirror handles a kind of object.
pub trait Entry: DeserializeOwned {
    /// The form in which objects are kept: mostly the object itself.
    type Packed: Packed<Self>;
    /// Reads an object from its JSON, which may be of an older API version.
    ///
    /// # Errors
    /// Those of the decoder.
    fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }
    /// Drops large fields that are never read, before the object is kept.
    fn trim(&mut self) {}
    /// Handles an object that was created or changed (`there`), or deleted.
    fn changed(object: &Arc<Self::Packed>, there: bool, mirror: &mut Mirror, out: &mut Output);
}

/// The form in which objects of a kind are kept.
pub trait Packed<K>: Sized {
    /// Converts an object to that form.
    fn pack(object: Arc<K>) -> Arc<Self>;
}

impl<K> Packed<K> for K {
    fn pack(object: Arc<K>) -> Arc<Self> {
        object
    }
}

macro_rules! packed_object {
    ($($(#[$doc:meta])* $kind:ident, $store:ident, $presence:ident, $condition:ident, $form:ident, $listeners:tt;)*) => {
        /// A watched object as the mirror keeps it. Shared with the watch's store, where it is kept as it is.
        #[derive(Clone, Debug)]
        pub enum PackedObject {
            $($(#[$doc])* $kind(Arc<<types::$kind as Entry>::Packed>),)*
        }

        impl From<Object> for PackedObject {
            fn from(object: Object) -> Self {
                match object {
                    $(Object::$kind(object) => Self::$kind(Packed::pack(object)),)*
                }
            }
        }

        impl Object {
            /// Its kind, key, uid and version.
            #[must_use]
            pub fn identity(&self) -> aside::Identity {
                match self {
                    $(Self::$kind(object) => aside::Identity::of_resource(&**object),)*
                }
            }
        }

        impl PackedObject {
            /// Its kind, key, uid and version.
            pub fn identity(&self) -> aside::Identity {
                match self {
                    $(Self::$kind(object) => aside::Identified::identity(&**object),)*
                }
            }

            fn changed(&self, there: bool, mirror: &mut Mirror, out: &mut Output) {
                match self {
                    $(Self::$kind(object) => types::$kind::changed(object, there, mirror, out),)*
                }
            }
        }
    };
}
kinds!(packed_object);

/// A change of an object.
#[derive(Clone, Debug)]
pub enum PackedChange {
    /// An object was created or changed.
    Applied(PackedObject),
    /// An object was deleted; carries its last known state.
    Deleted(PackedObject),
    /// The in-process grouper has found a pod's pod group. It counts until the API server shows another: the annotation of a pod that has a node
    /// or no owners overrides it, and a PodGroup object of that name overrides the one given here, except for minimums and sub-groups, which count
    /// before they are written. The pod is known before its grouping: an unknown one has been deleted.
    Grouped(GroupDraft),
    /// The grouper does not group a pod any more.
    Ungrouped(PodRef),
    /// A pod is about to be created by this process, with a uid that stands for it until then. It has no effect if a pod of its name is known, and a pod of
    /// its name that the API server shows replaces it.
    Requested(Arc<packed::Pod>),
}

/// A change of an object: created or changed (`there`), or deleted.
#[must_use]
pub fn packed_change(object: Object, there: bool) -> PackedChange {
    #[cfg(test)]
    tests::panic_if_unpackable(&object);
    let object = object.into();
    if there {
        PackedChange::Applied(object)
    } else {
        PackedChange::Deleted(object)
    }
}

/// A pod's pod group and sub-group, before either is written.
#[derive(Clone, Debug)]
pub struct GroupDraft {
    /// The pod's namespace, which is also the pod group's.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// The pod group as it is about to be written.
    pub group: Arc<PodGroup>,
    /// The sub-group that the pod belongs to.
    pub sub_group: Option<String>,
}

/// The result of a change.
#[derive(Clone, Debug, Default)]
pub struct Output {
    /// Events for the engine, in order. Mostly one.
    pub events: SmallVec<[Event; 1]>,
    /// Parts of objects that cannot be used.
    pub rejections: Vec<Rejection>,
    /// Objects that are not set aside any more.
    pub released: Vec<aside::ObjectKey>,
}

/// Part of an object, or all of it, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The object's kind.
    pub kind: &'static str,
    /// Its namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            namespace,
            name,
            problem,
        } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        write!(f, "{kind} {namespace}{slash}{name}: {problem}")
    }
}

/// A problem of an object. The messages are for users.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The object has no name, or a pod has no uid or namespace.
    #[error("the object has no identity")]
    NoIdentity,
    /// A quantity does not parse, is negative or is too large. On a pod: the pod is held back; on a node: the resource is left out.
    #[error("{field}: quantity {} of {resource} cannot be used", gpu_request::shown(.value))]
    Quantity {
        /// The field.
        field: &'static str,
        /// The resource.
        resource: String,
        /// The text.
        value: String,
    },
    /// An annotation or label has a value that is ignored.
    #[error("{key}: value {} is not {expected} and is ignored", gpu_request::shown(.value))]
    Ignored {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// A limit is exceeded: the object is set aside until it changes.
    #[error("there are {0}: set aside until that changes")]
    ExceededLimit(limits::ExceededLimit),
    /// Requests that contradict one another; the pod is held back.
    #[error("{0}")]
    Contradiction(&'static str),
    /// An invalid GPU sharing request; the pod is held back.
    #[error(transparent)]
    Share(#[from] gpu_request::InvalidRequest),
    /// The quota schedule of a queue is invalid and ignored.
    #[error("annotation {key}: {reason}; what the queue says itself holds at all times", key = annotation::QUOTA_SCHEDULE)]
    Schedule {
        /// What is wrong with it.
        reason: String,
    },
    /// A duration does not parse and counts as absent.
    #[error("{field}: {} is not a duration such as 90s or 1h30m and is ignored", gpu_request::shown(.value))]
    Duration {
        /// The field.
        field: &'static str,
        /// The text.
        value: String,
    },
}

/// The join of Kubernetes objects into engine events, for one shard.
pub struct Mirror {
    settings: Settings,
    pods: Registry<Arc<packed::Pod>>,
    nodes: Table<Box<str>, NodeInput>,
    queues: Table<Box<str>, QueueInput>,
    /// Pod groups as the API server shows them.
    groups: Registry<Arc<packed::Group>>,
    /// Pod groups as the grouper is about to write them.
    drafts: Registry<Box<groups::Draft>>,
    memberships: Table<Box<str>, pod::Membership>,
    requests: bind_request::Requests,
    lookups: groups::Lookups,
    namespaces: relations::Namespaces,
    /// Room for relations between pods.
    room: relations::room::Room,
    budgets: budget::Budgets,
    /// Bound pods by their node, if that is none of the shard.
    elsewhere: links::Links,
    zones: numa::Zones,
    volumes: volumes::Volumes,
    config_maps: config_maps::ConfigMaps,
    claims: claims::Claims,
    templates: needs::Templates,
    last_node: node::Last,
    /// Objects that are set aside.
    pub aside: aside::Aside,
    started: bool,
}

impl Mirror {
    /// An empty mirror.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let queue_label_key = settings.fallback_queue.as_ref().map(|queue| queue.label.clone());
        Self {
            settings,
            pods: Registry::default(),
            nodes: Table::default(),
            queues: Table::default(),
            groups: Registry::default(),
            drafts: Registry::default(),
            memberships: Table::default(),
            requests: bind_request::Requests::default(),
            lookups: groups::Lookups::default(),
            namespaces: relations::Namespaces::default(),
            room: relations::room::Room::default(),
            budgets: budget::Budgets::default(),
            elsewhere: links::Links::default(),
            zones: numa::Zones::default(),
            volumes: volumes::Volumes::default(),
            config_maps: config_maps::ConfigMaps::default(),
            claims: claims::Claims::new(queue_label_key),
            templates: needs::Templates::default(),
            last_node: node::Last::default(),
            aside: aside::Aside::default(),
            started: false,
        }
    }

    /// Reserves memory for so many more objects.
    pub fn reserve(&mut self, more: &Counts) {
        self.pods.reserve(more.pods);
        self.nodes.reserve(more.nodes);
        self.groups.reserve(more.groups);
    }

    /// Applies a change, and returns the engine's events.
    pub fn apply(&mut self, change: &PackedChange) -> Output {
        let mut out = Output::default();
        self.change(change, &mut out);
        out.released = self.aside.released();
        out
    }

    fn change(&mut self, change: &PackedChange, out: &mut Output) {
        if !self.started {
            self.started = true;
            if !self.settings.full_hierarchy {
                out.events.push(Event::Queue(Box::new(queue::flat_root())));
            }
        }
        if self.aside.ignores(change) {
            if let PackedChange::Applied(PackedObject::Pod(pod)) = change
                && pod.node.is_some()
                && self.aside.counts_on_its_node(&pod.key)
            {
                self.pod_applied(&Arc::new(pod.bare()), out);
            }
            return;
        }
        #[cfg(test)]
        tests::panic_if_told(change);
        match change {
            PackedChange::Applied(object) => object.changed(true, self, out),
            PackedChange::Deleted(object) => object.changed(false, self, out),
            PackedChange::Grouped(grouping) => self.grouped(grouping, out),
            PackedChange::Ungrouped(pod) => self.ungrouped(pod, out),
            PackedChange::Requested(pod) if self.pods.get(&pod.key).is_none() => self.pod_applied(pod, out),
            PackedChange::Requested(_) => {}
        }
    }

    /// A known pod.
    #[must_use]
    pub fn pod(&self, pod: &PodRef) -> Option<&packed::Pod> {
        let known = self.pods.get(&object_key(&pod.namespace, &pod.name)).map(Arc::as_ref);
        known.filter(|known| known.pod.uid == pod.uid)
    }

    /// The pod group that the grouper found for a pod, whatever the pod's annotation says.
    #[must_use]
    pub fn membership(&self, pod: &PodRef) -> Option<&pod::Membership> {
        self.memberships.get(&*pod.uid)
    }

    /// The claim allocations of a bind, in the API's form.
    #[must_use]
    pub fn given(&self, bind: &crate::engine::decision::Bind) -> claims::allocation::GivenAllocations {
        let pod = self.pods.get(&object_key(&bind.pod.namespace, &bind.pod.name));
        self.claims.given(pod.map(Arc::as_ref), &bind.claims)
    }

    fn pod_applied(&mut self, pod: &Arc<packed::Pod>, out: &mut Output) {
        let (key, uid) = (&*pod.key, &*pod.pod.uid);
        if !pod.is_identified() {
            return out.reject("Pod", &pod.pod.namespace, &pod.pod.name, Problem::NoIdentity);
        }
        if pod.phase == packed::Phase::Failed {
            return self.pod_deleted(pod, out);
        }
        let mut old = self.pods.get(key).cloned();
        if let Some(known) = &old {
            if *known.pod.uid != *uid {
                self.pod_deleted(known, out);
                old = None;
            } else if known.version.is_some()
                && known.version == pod.version
                && (&known.labels, &known.annotations) == (&pod.labels, &pod.annotations)
            {
                return;
            }
        }
        let admission = self.room.note_pod(key, old.as_deref(), Some(pod));
        let excess = pod.excess.as_deref().copied();
        let excess = excess.or_else(|| self.room.excess(&pod.pod.namespace, key));
        self.aside.limit("Pod", || key.into(), excess);
        self.claims.note_pod(key, old.as_deref(), Some(pod));
        let new = self.read_pod(pod, Some(out));
        // Its volumes do not change, but a pod that was set aside was recorded without them.
        if old.as_ref().is_none_or(|old| old.further.is_none()) {
            self.volumes.join(key, pod);
        }
        if self.settings.config_maps {
            self.config_maps.note_pod(key, old.as_deref(), Some(pod));
        }
        let same = !admission.turned && old.is_some_and(|old| self.read_pod(&old, None) == new);
        if let Some(node) = pod.node.as_deref()
            && self.settings.fallback_queue.is_some()
            && !new.foreign
            && self.is_elsewhere(pod)
        {
            self.elsewhere.add(node, key);
        }
        self.pods.insert(Arc::clone(pod));
        if !same {
            out.events.push(Event::Pod(Box::new(new)));
        }
        self.pods_admitted(&admission.admitted, out);
    }

    /// There is room now for the relations of these pods.
    fn pods_admitted(&mut self, keys: &[Box<str>], out: &mut Output) {
        for pod in keys.iter().filter_map(|key| self.pods.get(key)) {
            self.aside.limit("Pod", || pod.key.clone(), None);
            out.events.push(Event::Pod(Box::new(self.read_pod(pod, None))));
        }
    }

    fn pod_deleted(&mut self, pod: &packed::Pod, out: &mut Output) {
        if !pod.is_identified() {
            return;
        }
        let (key, uid) = (&*pod.key, &*pod.pod.uid);
        if self.pods.get(key).is_some_and(|known| *known.pod.uid == *uid) {
            let known = self.pods.remove(key);
            self.aside.limit("Pod", || key.into(), None);
            if let Some(node) = known.as_ref().and_then(|known| known.node.as_deref()) {
                self.elsewhere.remove(node, key);
            }
            let admission = self.room.note_pod(key, known.as_deref(), None);
            self.claims.note_pod(key, known.as_deref(), None);
            // Its last state may be without its volumes, and so may the known one if it was set aside.
            for state in known.as_deref().into_iter().chain([pod]) {
                self.volumes.leave(key, state);
            }
            if self.settings.config_maps {
                self.config_maps.note_pod(key, known.as_deref(), None);
            }
            out.events.push(Event::PodGone(uid.into()));
            self.pods_admitted(&admission.admitted, out);
        }
        if let Some(membership) = self.memberships.remove(uid) {
            self.leave_draft(&membership.group, out);
        }
    }

    fn read_pod(&self, pod: &Arc<packed::Pod>, out: Option<&mut Output>) -> PodInput {
        let request = self
            .requests
            .of(&pod.key, &pod.pod.uid, |node| self.nodes.contains_key(node));
        let decided = request
            .filter(|_| pod.node.is_none())
            .and_then(|request| bind_request::as_decided(request, pod))
            .map(Arc::new);
        let pod = decided.as_ref().unwrap_or(pod);
        let membership = self.memberships.get(&*pod.pod.uid);
        let mut problems = Vec::new();
        let mut input = pod::read(
            pod,
            request,
            membership,
            &self.settings,
            pod::PodContext {
                namespaces: &self.namespaces,
                claims: &self.claims,
                templates: &self.templates,
            },
            &mut problems,
        );
        self.belong(pod, &mut input);
        if let Some(excess) = self.room.excess(&pod.pod.namespace, &pod.key) {
            let problem = Problem::ExceededLimit(excess);
            input.relations = None;
            input.blocked.get_or_insert_with(|| problem.to_string().into());
            problems.push(problem);
        }
        input.volumes = self.volumes.of(pod).map(Arc::new);
        if self.settings.config_maps && input.blocked.is_none() {
            input.blocked = self.config_maps.missing(pod);
        }
        if let Some(out) = out {
            for problem in problems {
                out.reject("Pod", &input.pod.namespace, &input.pod.name, problem);
            }
        }
        input
    }

    /// A pod of ours that is bound, or is being bound, to a node of the shard always has a pod group: if neither its annotation nor the grouper names one, one of its own.
    /// On another node it is charged only as a member of a known pod group. Nothing here depends on which PodGroups exist, so pods need not be read again when these
    /// come and go.
    fn belong(&self, pod: &packed::Pod, input: &mut PodInput) {
        if input.foreign {
            return;
        }
        if self.is_elsewhere(pod) {
            input.fallback_queue = None;
        } else if input.group.is_none() && input.fallback_queue.is_some() {
            let name = identity::default_group_name(&input.pod.name, &input.pod.uid);
            input.group = Some(GroupKey::new(&input.pod.namespace, &name));
        }
    }

    /// Whether a pod is bound to a node that is not one of the shard.
    fn is_elsewhere(&self, pod: &packed::Pod) -> bool {
        pod.node.as_ref().is_some_and(|node| !self.nodes.contains_key(&**node))
    }

    /// Applies a change on which one pod's input may depend, and emits an event for the pod if it changed.
    fn with_pod(&mut self, key: &str, out: &mut Output, change: impl FnOnce(&mut Self)) {
        let pod = self.pods.get(key).cloned();
        let before = pod.as_ref().map(|pod| self.read_pod(pod, None));
        change(self);
        let after = pod.as_ref().map(|pod| self.read_pod(pod, None));
        if let Some(after) = after.filter(|after| before.as_ref() != Some(after)) {
            out.events.push(Event::Pod(Box::new(after)));
        }
    }

    /// The keys of the pods that a condition applies to, in order.
    fn pods_where(&self, concerned: impl Fn(&packed::Pod) -> bool) -> Vec<Box<str>> {
        let pods = self.pods.iter().filter(|pod| concerned(pod));
        let mut keys: Vec<Box<str>> = pods.map(|pod| pod.key.clone()).collect();
        keys.sort_unstable();
        keys
    }

    fn node_applied(&mut self, node: &Arc<Node>, out: &mut Output) {
        let name = node.name_any();
        let label = |key: &str| node.labels().contains_key(key);
        let worker = label(&self.settings.cpu_worker_label) || label(&self.settings.gpu_worker_label);
        if !self.settings.shard.selects(&**node) || (self.settings.restrict_nodes && !worker) {
            return self.node_gone(&name, out);
        }
        let mut problems = Vec::new();
        let mut input = node::read(node, &self.settings, &self.last_node, &mut problems);
        input.numa = self.zones.of(&name);
        input.attach_limits = self.volumes.limits(&name);
        let gpus = self.claims.gpus_on(&name);
        node::add_devices(&mut input, gpus, gpus);
        for problem in problems {
            out.reject("Node", "", &name, problem);
        }
        if self.nodes.get(name.as_str()) == Some(&input) {
            return;
        }
        out.events.push(Event::Node(Box::new(input.clone())));
        let mut keys = self.requests.pods_bound_for(&name);
        keys.extend(self.elsewhere.take(&name));
        keys.sort_unstable();
        keys.dedup();
        self.with_these_pods(&keys, out, |mirror| {
            mirror.nodes.insert(name.as_str().into(), input);
        });
    }

    fn claim_changed(&mut self, claim: &Arc<ResourceClaim>, there: bool, out: &mut Output) {
        let keys = self.claims.pods_of(claim, there);
        let (mut pods, mut events) = (Output::default(), Vec::new());
        self.with_these_pods(&keys, &mut pods, |mirror| {
            mirror.claims.put_claim(claim, there);
            mirror.claims.tell_claim(claim, &mut events);
        });
        out.events.extend(events);
        out.events.append(&mut pods.events);
    }

    /// Pods with claims or extended resources are read again: a device class may provide the latter.
    fn class_changed(&mut self, class: &Arc<DeviceClass>, there: bool, out: &mut Output) {
        let keys = self.pods_concerned_by(class);
        let (mut pods, mut events) = (Output::default(), Vec::new());
        self.with_these_pods(&keys, &mut pods, |mirror| {
            mirror.claims.put_class(class, there, &mut events);
        });
        out.events.extend(events);
        out.events.append(&mut pods.events);
    }

    /// The pods that are read again when a class changes, in order of their keys.
    fn pods_concerned_by(&self, class: &DeviceClass) -> Vec<Box<str>> {
        self.pods_where(self.claims.concerned_by(class))
    }

    /// Whether device selectors wait to be evaluated.
    #[must_use]
    pub fn selectors_wait(&self) -> bool {
        self.claims.selectors_wait()
    }

    /// Evaluates waiting device selectors, up to a limit.
    pub fn ask_selectors(&mut self) -> Output {
        let (mut out, mut events) = (Output::default(), Vec::new());
        let (claims, classes) = self.claims.refill(&mut events);
        out.events.extend(events);
        for claim in claims {
            self.claim_changed(&claim, true, &mut out);
        }
        for class in classes {
            let pods = self.pods_concerned_by(&class);
            let pods = pods.iter().filter_map(|key| self.pods.get(key));
            let inputs = pods.map(|pod| Event::Pod(Box::new(self.read_pod(pod, None))));
            out.events.extend(inputs);
        }
        out
    }

    fn slice_changed(&mut self, slice: &Arc<ResourceSlice>, there: bool, out: &mut Output) {
        let mut events = Vec::new();
        for (node, more) in self.claims.put_slice(slice, there, &mut events) {
            let all = self.claims.gpus_on(&node);
            if let Some(known) = self.nodes.get_mut(&*node) {
                node::add_devices(known, more, all);
                out.events.push(Event::Node(Box::new(known.clone())));
            }
        }
        out.events.extend(events);
        for claim in self.claims.take_claims_behind() {
            self.claim_changed(&claim, true, out);
        }
    }

    fn node_gone(&mut self, name: &str, out: &mut Output) {
        if self.nodes.contains_key(name) {
            let mut keys = self.requests.pods_bound_for(name);
            if self.settings.fallback_queue.is_some() {
                for pod in self.pods.iter().filter(|pod| pod.node.as_deref() == Some(name)) {
                    self.elsewhere.add(name, &pod.key);
                    keys.push(pod.key.clone());
                }
            }
            keys.sort_unstable();
            keys.dedup();
            self.with_these_pods(&keys, out, |mirror| {
                mirror.nodes.remove(name);
            });
            out.events.push(Event::NodeGone(name.into()));
        }
    }

    /// Applies a change on which some pods may depend, and emits events for those that changed.
    fn with_these_pods(&mut self, keys: &[Box<str>], out: &mut Output, change: impl FnOnce(&mut Self)) {
        let read = |mirror: &Self| -> Vec<_> {
            keys.iter()
                .map(|key| mirror.pods.get(key).map(|pod| mirror.read_pod(pod, None)))
                .collect()
        };
        let before = read(self);
        change(self);
        let after = read(self);
        let changed = after.into_iter().zip(before).filter(|(after, before)| after != before);
        out.events.extend(
            changed
                .filter_map(|(after, _)| after)
                .map(|pod| Event::Pod(Box::new(pod))),
        );
    }

    fn queue_applied(&mut self, queue: &Queue, out: &mut Output) {
        let name = queue.name_any();
        let mut problems = Vec::new();
        let ours = Some(queue).filter(|queue| self.settings.shard.selects(*queue));
        let read = ours.and_then(|queue| queue::read(queue, self.settings.full_hierarchy, &mut problems));
        for problem in problems {
            out.reject("Queue", "", &name, problem);
        }
        let Some(input) = read else {
            return self.queue_gone(&name, out);
        };
        if self.queues.get(name.as_str()) != Some(&input) {
            out.events.push(Event::Queue(Box::new(input.clone())));
            self.queues.insert(name.into(), input);
        }
    }

    fn queue_gone(&mut self, name: &str, out: &mut Output) {
        if self.queues.remove(name).is_some() {
            out.events.push(Event::QueueGone(name.into()));
        }
    }
}

impl Entry for Node {
    type Packed = Self;
    fn trim(&mut self) {
        node::trim(self);
    }
    fn changed(node: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        if there {
            mirror.node_applied(node, out);
        } else {
            mirror.node_gone(&node.name_any(), out);
        }
    }
}

impl Entry for Queue {
    type Packed = Self;
    fn changed(queue: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        if there {
            mirror.queue_applied(queue, out);
        } else {
            mirror.queue_gone(&queue.name_any(), out);
        }
        mirror.access_changed(&queue.name_any(), Some(&**queue).filter(|_| there), out);
    }
}

/// An object whose JSON is converted first if it is of an older API version.
fn upgraded<K: DeserializeOwned>(text: &str, convert: fn(&str) -> Option<Value>) -> serde_json::Result<K> {
    match convert(text) {
        Some(converted) => serde_json::from_value(converted),
        None => serde_json::from_str(text),
    }
}

impl Entry for ResourceClaim {
    type Packed = Self;
    fn read(text: &str) -> serde_json::Result<Self> {
        upgraded(text, claims::versions::claim)
    }
    fn changed(claim: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        mirror.claim_changed(claim, there, out);
    }
}

impl Entry for DeviceClass {
    type Packed = Self;
    fn read(text: &str) -> serde_json::Result<Self> {
        upgraded(text, claims::versions::class)
    }
    fn changed(class: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        mirror.class_changed(class, there, out);
    }
}

impl Entry for ResourceSlice {
    type Packed = Self;
    fn read(text: &str) -> serde_json::Result<Self> {
        upgraded(text, claims::versions::slice)
    }
    fn changed(slice: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        mirror.slice_changed(slice, there, out);
    }
}

impl Output {
    fn reject(&mut self, kind: &'static str, namespace: &str, name: &str, problem: Problem) {
        self.rejections.push(Rejection {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            problem,
        });
    }
}

/// Copies a name.
fn name(text: &str) -> Name {
    Name::from(text)
}

#[cfg(test)]
mod tests;
