//! Compact forms of pods and pod groups: fields that all of them have are in few allocations, so that iterating over a cluster
//! causes few cache misses. Further relevant fields are kept beside it, and shared between pods that have the same ones.
//!
//! All strings are unparsed.

mod further;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use smallvec::SmallVec;
use smol_str::SmolStr;

use super::bounds;
use super::identity::{annotated_group, group_key, object_key, pod_ref};
use super::{Packed, PackedChange, name, packed_change, queue};
use crate::api::limits::ExceededLimit;
use crate::api::names::{annotation, condition};
use crate::api::quantity::Amount;
use crate::api::{PodGroup, QuantityMap};
use crate::engine::input::{GroupKey, Keyed, Name, Pairs, PodRef, Time};
use crate::kinds::Object;
pub use further::Further;

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its names; empty where the object has none.
    pub pod: PodRef,
    /// `namespace/name`.
    pub key: Box<str>,
    /// The object's resource version.
    pub version: Option<SmolStr>,
    /// Creation time.
    pub created: Time,
    /// Deletion timestamp.
    pub deleted: Option<Time>,
    /// Its labels.
    pub labels: Pairs,
    /// Its annotations.
    pub annotations: Pairs,
    /// The pod group of its annotation.
    pub group: Option<GroupKey>,
    /// It has owners.
    pub owned: bool,
    /// Its phase.
    pub phase: Phase,
    /// The scheduler that it names.
    pub scheduler: SmolStr,
    /// The node that it is on.
    pub node: Option<Name>,
    /// The node nominated in its status.
    pub nominated: Option<Name>,
    /// Its priority.
    pub priority: Option<i32>,
    /// Its priority class.
    pub priority_class: Option<SmolStr>,
    /// It has scheduling gates.
    pub gated: bool,
    /// QoS class `Guaranteed`.
    pub guaranteed: bool,
    /// Its service account; `None`: the namespace's default one.
    pub account: Option<SmolStr>,
    /// Its containers, in order.
    pub containers: Containers,
    /// Its init containers, in order.
    pub init_containers: Containers,
    /// The limit that it exceeds; it is truncated then.
    pub excess: Option<Box<ExceededLimit>>,
    /// Further relevant fields, if it has any.
    pub further: Option<Arc<Further>>,
}

/// Containers of a pod. Most pods have one.
pub type Containers = SmallVec<[Container; 1]>;

/// The requests of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: SmolStr,
    /// Quantities by resource.
    pub requests: Pairs,
    /// A native sidecar: an init container with `restartPolicy: Always`.
    pub stays: bool,
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Pending.
    Pending,
    /// Running.
    Running,
    /// Succeeded.
    Succeeded,
    /// Failed.
    Failed,
    /// None of these.
    Unknown,
}

impl Keyed for Arc<Pod> {
    type Key = str;
    fn key(&self) -> &str {
        &self.key
    }
}

impl Keyed for Arc<Group> {
    type Key = GroupKey;
    fn key(&self) -> &GroupKey {
        &self.key
    }
}

impl Pod {
    /// Whether it has a namespace, a name and a uid.
    #[must_use]
    pub fn is_identified(&self) -> bool {
        !self.pod.namespace.is_empty() && !self.pod.name.is_empty() && !self.pod.uid.is_empty()
    }

    /// A reduced copy with nothing but its node and resources.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self {
            labels: Pairs::default(),
            annotations: Pairs::default(),
            group: None,
            nominated: None,
            priority_class: None,
            excess: None,
            further: None,
            ..self.clone()
        }
    }

    /// The part of its spec that is kept, if any.
    #[must_use]
    pub fn spec(&self) -> Option<&core::PodSpec> {
        self.further.as_ref().map(|further| &*further.spec)
    }
}

impl Packed<core::Pod> for Pod {
    fn pack(pod: Arc<core::Pod>) -> Arc<Self> {
        Arc::new(pod.into())
    }
}

impl From<Arc<core::Pod>> for Pod {
    fn from(mut pod: Arc<core::Pod>) -> Self {
        let excess = bounds::of_pod(&pod).map(Box::new);
        if excess.is_some() {
            bounds::cut_pod(Arc::make_mut(&mut pod));
        }
        let (meta, status) = (&pod.metadata, pod.status.as_ref());
        let spec = pod.spec.as_ref();
        let own = pod_ref(&pod);
        Self {
            key: object_key(&own.namespace, &own.name),
            pod: own,
            version: meta.resource_version.as_deref().map(SmolStr::new),
            created: queue::created(&*pod),
            deleted: meta.deletion_timestamp.as_ref().map(|at| Time(at.0.as_millisecond())),
            labels: meta.labels.iter().flatten().collect(),
            annotations: meta.annotations.iter().flatten().collect(),
            group: annotated_group(&pod),
            owned: any(&meta.owner_references),
            phase: Phase::of(status.and_then(|status| status.phase.as_deref())),
            scheduler: short(spec.and_then(|spec| spec.scheduler_name.as_deref())),
            node: some(spec.and_then(|spec| spec.node_name.as_deref())),
            nominated: status
                .and_then(|status| status.nominated_node_name.as_deref())
                .map(name),
            priority: spec.and_then(|spec| spec.priority),
            priority_class: spec
                .and_then(|spec| spec.priority_class_name.as_deref())
                .map(SmolStr::new),
            gated: spec.is_some_and(|spec| any(&spec.scheduling_gates)),
            guaranteed: status.is_some_and(|status| status.qos_class.as_deref() == Some("Guaranteed")),
            account: spec
                .and_then(|spec| spec.service_account_name.as_deref())
                .filter(|account| !matches!(*account, "" | "default"))
                .map(SmolStr::new),
            containers: spec
                .map(|spec| containers(&spec.containers, status, |status| &status.container_statuses))
                .unwrap_or_default(),
            init_containers: spec
                .and_then(|spec| spec.init_containers.as_deref())
                .map(|all| containers(all, status, |status| &status.init_container_statuses))
                .unwrap_or_default(),
            excess,
            further: further::of(&pod),
        }
    }
}

impl Phase {
    fn of(text: Option<&str>) -> Self {
        match text {
            Some("Pending") => Self::Pending,
            Some("Running") => Self::Running,
            Some("Succeeded") => Self::Succeeded,
            Some("Failed") => Self::Failed,
            Some(_) | None => Self::Unknown,
        }
    }
}

/// Statuses of containers of one kind.
type Statuses = fn(&core::PodStatus) -> &Option<Vec<core::ContainerStatus>>;

fn containers(all: &[core::Container], status: Option<&core::PodStatus>, of: Statuses) -> Containers {
    let statuses = status.and_then(|status| of(status).as_deref()).unwrap_or_default();
    // Without a resize, allocated resources equal the requests.
    let resizable = statuses.iter().any(|status| status.allocated_resources.is_some());
    let refused = resizable && status.is_some_and(resize_refused);
    let container = |container: &core::Container| {
        let requests = container.resources.iter().flat_map(|resources| &resources.requests);
        let held = statuses
            .iter()
            .find(|status| resizable && status.name == container.name);
        Container {
            name: SmolStr::new(&container.name),
            requests: match held {
                Some(held) => resized(requests.flat_map(texts), held, refused),
                None => requests.flat_map(texts).collect(),
            },
            stays: container.restart_policy.as_deref() == Some("Always"),
        }
    };
    all.iter().map(container).collect()
}

/// Whether the kubelet reports a resize as infeasible.
fn resize_refused(status: &core::PodStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    conditions
        .filter(|condition| condition.type_ == condition::POD_RESIZE_PENDING && condition.status == "True")
        .any(|condition| condition.reason.as_deref() == Some("Infeasible"))
}

/// What a container holds during a resize: the maximum of requested, allocated and actual resources; without the requested ones if infeasible.
fn resized<'o>(
    asked: impl Iterator<Item = (&'o str, &'o str)>,
    held: &'o core::ContainerStatus,
    refused: bool,
) -> Pairs {
    let given = held.allocated_resources.iter();
    let given = given.chain(
        held.resources
            .iter()
            .filter_map(|resources| resources.requests.as_ref()),
    );
    let mut most: BTreeMap<&str, &str> = BTreeMap::new();
    let given: Vec<(&str, &str)> = given.flat_map(texts).collect();
    let is_given = |name: &str| given.iter().any(|(other, _)| *other == name);
    let asked = asked.filter(|(name, _)| !refused || !is_given(name));
    for (name, quantity) in asked.chain(given.iter().copied()) {
        let known = most.entry(name).or_insert(quantity);
        let amount = |text: &str| text.parse::<Amount>().unwrap_or_default();
        if amount(known) < amount(quantity) {
            *known = quantity;
        }
    }
    most.into_iter().collect()
}

fn any<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(|list| !list.is_empty())
}

fn short(text: Option<&str>) -> SmolStr {
    SmolStr::new(text.unwrap_or_default())
}

/// A text as a name; an empty one counts as absent.
fn some(text: Option<&str>) -> Option<Name> {
    text.filter(|text| !text.is_empty()).map(name)
}

/// The annotations of pod groups that are read; one that a reader needs is added here. Most others are copies of what tenants write on their workloads.
const GROUP_ANNOTATIONS: [&str; 4] = [
    annotation::LAST_START_TIMESTAMP,
    annotation::LAST_EVICTION_TIMESTAMP,
    annotation::STALE_TIMESTAMP,
    annotation::HOLD,
];

/// A pod group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its identity; its namespace or name is empty if the object has none.
    pub key: GroupKey,
    /// Its uid.
    pub uid: Name,
    /// The object's resource version.
    pub version: Option<SmolStr>,
    /// The limit that it exceeds; it is truncated then.
    pub excess: Option<Box<ExceededLimit>>,
    /// Creation time.
    pub created: Time,
    /// Its labels.
    pub labels: Pairs,
    /// Those of its annotations that are read.
    pub annotations: Pairs,
    /// The queue it names; may be empty.
    pub queue: SmolStr,
    /// Its priority class.
    pub priority_class: Option<SmolStr>,
    /// `spec.preemptibility`.
    pub preemptibility: Option<SmolStr>,
    /// `spec.minMember`.
    pub min_member: Option<i32>,
    /// `spec.minSubGroup`.
    pub min_sub_group: Option<i32>,
    /// The whole object, if it has further relevant fields: sub-groups, topology, durations, back-off.
    pub whole: Option<Arc<PodGroup>>,
}

impl Packed<PodGroup> for Group {
    fn pack(group: Arc<PodGroup>) -> Arc<Self> {
        Arc::new(group.into())
    }
}

impl From<Arc<PodGroup>> for Group {
    fn from(mut group: Arc<PodGroup>) -> Self {
        let excess = bounds::of_group(&group.spec).map(Box::new);
        if excess.is_some() {
            bounds::cut_group(Arc::make_mut(&mut group));
        }
        let (meta, spec) = (&group.metadata, &group.spec);
        let says_more = !spec.sub_groups.is_empty()
            || spec.topology_constraint.is_some()
            || spec.preemption_delay.is_some()
            || spec.staleness_grace_period.is_some()
            || spec.scheduling_backoff.is_some();
        Self {
            key: group_key(meta),
            uid: name(meta.uid.as_deref().unwrap_or_default()),
            version: meta.resource_version.as_deref().map(SmolStr::new),
            excess,
            created: queue::created(&*group),
            labels: group.labels().iter().collect(),
            annotations: (group.annotations().iter())
                .filter(|(key, _)| GROUP_ANNOTATIONS.contains(&key.as_str()))
                .collect(),
            queue: short(spec.queue.as_deref()),
            priority_class: spec.priority_class_name.as_deref().map(SmolStr::new),
            preemptibility: spec.preemptibility.as_deref().map(SmolStr::new),
            min_member: spec.min_member,
            min_sub_group: spec.min_sub_group,
            whole: says_more.then_some(group),
        }
    }
}

/// The deletion of an object whose last state cannot be packed: only its names, uid and version are read.
#[must_use]
pub fn bare_deletion(object: Object) -> PackedChange {
    let identity = |metadata: &ObjectMeta| ObjectMeta {
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
        ..ObjectMeta::default()
    };
    let bare = match object {
        Object::Pod(pod) => Object::Pod(Arc::new(core::Pod {
            metadata: identity(&pod.metadata),
            ..core::Pod::default()
        })),
        Object::PodGroup(group) => Object::PodGroup(Arc::new(PodGroup {
            metadata: identity(&group.metadata),
            ..PodGroup::default()
        })),
        // The others are kept as they are.
        other => other,
    };
    packed_change(bare, false)
}

/// Quantities by resource, as texts.
pub(super) fn texts(quantities: &QuantityMap) -> impl Iterator<Item = (&str, &str)> {
    quantities
        .iter()
        .map(|(resource, quantity)| (&**resource, &*quantity.0))
}

#[cfg(test)]
mod tests;
