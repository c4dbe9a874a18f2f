//! Storage objects → the engine's input: claims of pods, unbound volumes, storage classes, drivers, storage capacities.
//!
//! A pod's claims are joined with their volumes and classes here, so that a change of these emits events for exactly the pods that use them.

mod disks;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, PodSpec, TopologySelectorTerm,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;

use super::identity::object_key;
use super::links::Links;
use super::{Entry, Mirror, Output, constraints, name, packed};
use crate::api::names::volume;
use crate::api::quantity::Amount;
use crate::engine::input::{
    CapacityInput, Claim, ClaimState, Event, Name, NodeRequirement, NodeTerm, PodVolumes, Provisioning, Reach,
    SelectorOp, Table, VolumeInput, Waiting,
};
use crate::engine::model::selectors::meets_one_of;

/// Storage objects.
#[derive(Default)]
pub struct Volumes {
    claims: Table<Box<str>, Arc<PersistentVolumeClaim>>,
    volumes: Table<Box<str>, Arc<PersistentVolume>>,
    classes: Table<Box<str>, Arc<StorageClass>>,
    /// Drivers, and whether they report storage capacity.
    drivers: Table<Box<str>, bool>,
    /// Attach limits per driver, by node.
    limits: Table<Box<str>, Vec<(Name, i64)>>,
    /// Pods by claim, whether it exists or not.
    users: Links,
    /// Claims by volume.
    claims_of: Links,
    /// Unbound volumes by the claim that they are meant for.
    meant_for: Links,
    /// As sent to the engine.
    offers: Table<Box<str>, VolumeInput>,
    capacities: Table<Box<str>, CapacityInput>,
    attachments: disks::Attachments,
}

/// The claims of a pod of that name: names, and whether they are ephemeral.
pub fn references<'p>(pod: &'p str, spec: Option<&'p PodSpec>) -> impl Iterator<Item = (String, bool)> + 'p {
    let volumes = spec.into_iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(
        move |volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some((claim.claim_name.clone(), false)),
            (None, Some(_)) => Some((format!("{pod}-{}", volume.name), true)),
            (None, None) => None,
        },
    )
}

impl Volumes {
    /// Records the claims of a pod.
    pub(super) fn join(&mut self, key: &str, pod: &packed::Pod) {
        for (claim, _) in references(&pod.pod.name, pod.spec()) {
            self.users.add(object_key(&pod.pod.namespace, &claim), key);
        }
    }

    /// Removes a pod.
    pub(super) fn leave(&mut self, key: &str, pod: &packed::Pod) {
        for (claim, _) in references(&pod.pod.name, pod.spec()) {
            self.users.remove(&object_key(&pod.pod.namespace, &claim), key);
        }
    }

    /// The volumes of a pod; `None` if it has none that matter.
    #[must_use]
    pub fn of(&self, pod: &packed::Pod) -> Option<PodVolumes> {
        let spec = pod.spec()?;
        spec.volumes.as_ref()?;
        let mut read = PodVolumes {
            disks: disks::named_by(spec),
            ..PodVolumes::default()
        };
        let mut unbound = false;
        let mut any = !read.disks.is_empty();
        for (claim_name, owned) in references(&pod.pod.name, Some(spec)) {
            any = true;
            let key = object_key(&pod.pod.namespace, &claim_name);
            let Some(claim) = self.claims.get(&key) else {
                let text = if owned {
                    format!(
                        "waiting for ephemeral volume controller to create the persistentvolumeclaim {claim_name:?}"
                    )
                } else {
                    format!("persistentvolumeclaim {claim_name:?} not found")
                };
                read.missing.get_or_insert_with(|| text.into());
                continue;
            };
            if let Some(text) = unusable(pod, claim, owned) {
                read.missing.get_or_insert_with(|| text.into());
            }
            match self.claim(&key, claim, owned) {
                None => unbound = true,
                Some(claim) if read.claims.iter().all(|other| other.key != claim.key) => read.claims.push(claim),
                Some(_) => {}
            }
        }
        if unbound {
            let text = "pod has unbound immediate PersistentVolumeClaims";
            read.missing.get_or_insert_with(|| text.into());
        }
        any.then_some(read)
    }

    /// A claim's input; `None` if it is to be bound immediately and is not bound.
    fn claim(&self, key: &str, claim: &PersistentVolumeClaim, owned: bool) -> Option<Claim> {
        let no_spec = k8s_openapi::api::core::v1::PersistentVolumeClaimSpec::default();
        let spec = claim.spec.as_ref().unwrap_or(&no_spec);
        let class = class_of(claim, spec.storage_class_name.as_deref());
        let requests = spec
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref());
        let size = bytes(requests.and_then(|requests| requests.get("storage"))).unwrap_or(0);
        let modes = modes(spec.access_modes.as_ref());
        let (state, attach) = match bound_to(claim) {
            Some(volume) => match self.volumes.get(volume) {
                None => (ClaimState::Lost, None),
                Some(volume) => (ClaimState::Bound(reach(volume)), disks::handle(volume)),
            },
            None => {
                let class = self.classes.get(class).filter(|class| waits(class))?;
                spec.volume_name.as_deref().is_none_or(str::is_empty).then_some(())?;
                let provisioner = &class.provisioner;
                let makes = !provisioner.is_empty() && provisioner != volume::NO_PROVISIONER;
                let waiting = Waiting {
                    class: name(&class.name_any()),
                    size,
                    modes,
                    block: spec.volume_mode.as_deref() == Some("Block"),
                    attributes_class: name(spec.volume_attributes_class_name.as_deref().unwrap_or_default()),
                    labels: spec.selector.as_ref().map(labels).unwrap_or_default(),
                    node: claim.annotations().get(volume::SELECTED_NODE).map(|node| name(node)),
                    provisioning: makes.then(|| Provisioning {
                        nodes: class.allowed_topologies.iter().flatten().map(topology).collect(),
                        tracked: self.drivers.get(disks::driver(provisioner)) == Some(&true),
                    }),
                };
                (
                    ClaimState::Waiting(waiting),
                    Some((name(disks::driver(provisioner)), name(key))),
                )
            }
        };
        Some(Claim {
            key: name(key),
            exclusive: modes & EXCLUSIVE != 0,
            owned,
            attach,
            class: name(class),
            size,
            state: Arc::new(state),
        })
    }

    /// The attach limits of a node, by driver.
    #[must_use]
    pub fn limits(&self, node: &str) -> Vec<(Name, i64)> {
        self.limits.get(node).cloned().unwrap_or_default()
    }

    /// Pods with a claim that meets a condition.
    fn users_where(&self, concerned: impl Fn(&PersistentVolumeClaim) -> bool) -> Vec<Box<str>> {
        self.users
            .to_those(|claim| self.claims.get(claim).is_some_and(|claim| concerned(claim)))
    }

    /// The input of an unbound volume; `None` if it is bound or not available.
    fn offer(&self, volume: &PersistentVolume) -> Option<VolumeInput> {
        let spec = volume.spec.as_ref()?;
        if volume.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let claim = match &spec.claim_ref {
            None => {
                let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
                (phase == Some("Available")).then_some(())?;
                None
            }
            Some(claim) => {
                let key = meant_for(volume)?;
                let known = self.claims.get(&*key).and_then(|claim| claim.metadata.uid.as_deref());
                let uid = claim.uid.as_deref().filter(|uid| !uid.is_empty());
                if uid.is_some_and(|uid| known.is_some_and(|known| known != uid)) {
                    return None;
                }
                Some(Name::from(key))
            }
        };
        Some(VolumeInput {
            name: name(&volume.name_any()),
            class: name(class_of(volume, spec.storage_class_name.as_deref())),
            size: bytes(spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"))).unwrap_or(0),
            modes: modes(spec.access_modes.as_ref()),
            block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: name(spec.volume_attributes_class_name.as_deref().unwrap_or_default()),
            labels: volume
                .labels()
                .iter()
                .map(|(key, value)| (name(key), name(value)))
                .collect(),
            nodes: reach(volume).nodes,
            claim,
        })
    }

    fn offer_changed(&mut self, key: &str, out: &mut Output) {
        match self.volumes.get(key).and_then(|volume| self.offer(volume)) {
            Some(offer) => {
                if self.offers.get(key) != Some(&offer) {
                    self.offers.insert(key.into(), offer.clone());
                    out.events.push(Event::Volume(Box::new(offer)));
                }
            }
            None => {
                if let Some(offer) = self.offers.remove(key) {
                    out.events.push(Event::VolumeGone(offer.name));
                }
            }
        }
    }
}

impl Entry for PersistentVolumeClaim {
    type Packed = Self;
    fn changed(claim: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key = object_key(&claim.namespace().unwrap_or_default(), &claim.name_any());
        if there
            && mirror
                .volumes
                .claims
                .get(&key)
                .is_some_and(|known| reads_alike(known, claim))
        {
            return;
        }
        let volume = |claim: &Self| -> Option<Box<str>> {
            let volume = claim.spec.as_ref()?.volume_name.as_deref()?;
            Some(volume.into())
        };
        let before = mirror.volumes.claims.get(&key).and_then(|claim| volume(claim));
        let after = volume(claim).filter(|_| there);
        if before != after {
            if let Some(before) = before {
                mirror.volumes.claims_of.remove(&before, &key);
            }
            if let Some(after) = after {
                mirror.volumes.claims_of.add(after, &key);
            }
        }
        let pods: Vec<_> = mirror.volumes.users.to(&key).cloned().collect();
        mirror.with_these_pods(&pods, out, |mirror| {
            put(&mut mirror.volumes.claims, &key, claim, there);
        });
        // A claim of the same name with another uid does not get the volume of the one before.
        let meant: Vec<_> = mirror.volumes.meant_for.to(&key).cloned().collect();
        for volume in meant {
            mirror.volumes.offer_changed(&volume, out);
        }
    }
}

impl Entry for PersistentVolume {
    type Packed = Self;
    fn changed(volume: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key: Box<str> = volume.name_any().into();
        let claims = mirror.volumes.claims_of.to(&key);
        let pods: BTreeSet<_> = claims.flat_map(|claim| mirror.volumes.users.to(claim)).collect();
        let pods: Vec<_> = pods.into_iter().cloned().collect();
        if let Some(claim) = mirror.volumes.volumes.get(&key).and_then(|volume| meant_for(volume)) {
            mirror.volumes.meant_for.remove(&claim, &key);
        }
        if let Some(claim) = meant_for(volume).filter(|_| there) {
            mirror.volumes.meant_for.add(claim, &key);
        }
        mirror.with_these_pods(&pods, out, |mirror| {
            put(&mut mirror.volumes.volumes, &key, volume, there);
        });
        mirror.volumes.offer_changed(&key, out);
        mirror.volumes.tell_attachments_of(&key, out);
    }
}

impl Entry for VolumeAttachment {
    type Packed = Self;
    fn changed(attachment: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        mirror.volumes.attachment_changed(attachment, there, out);
    }
}

impl Entry for StorageClass {
    type Packed = Self;
    fn changed(class: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key: Box<str> = class.name_any().into();
        let pods = mirror.volumes.users_where(|claim| {
            let spec = claim.spec.as_ref();
            class_of(claim, spec.and_then(|spec| spec.storage_class_name.as_deref())) == &*key
        });
        mirror.with_these_pods(&pods, out, |mirror| {
            put(&mut mirror.volumes.classes, &key, class, there);
        });
    }
}

impl Entry for CSIDriver {
    type Packed = Self;
    fn changed(driver: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key: Box<str> = driver.name_any().into();
        let tracked = driver.spec.storage_capacity == Some(true);
        if there && mirror.volumes.drivers.get(&key) == Some(&tracked) {
            return;
        }
        let pods = mirror.volumes.users_where(|claim| bound_to(claim).is_none());
        mirror.with_these_pods(&pods, out, |mirror| {
            if there {
                mirror.volumes.drivers.insert(key, tracked);
            } else {
                mirror.volumes.drivers.remove(&key);
            }
        });
    }
}

impl Entry for CSINode {
    type Packed = Self;
    fn changed(node: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key = node.name_any();
        let limits = if there { limits(node) } else { Vec::new() };
        if let Some(known) = mirror.nodes.get_mut(key.as_str())
            && known.attach_limits != limits
        {
            known.attach_limits.clone_from(&limits);
            out.events.push(Event::Node(Box::new(known.clone())));
        }
        if limits.is_empty() {
            mirror.volumes.limits.remove(key.as_str());
        } else {
            mirror.volumes.limits.insert(key.into(), limits);
        }
    }
}

impl Entry for CSIStorageCapacity {
    type Packed = Self;
    fn changed(capacity: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key = object_key(&capacity.namespace().unwrap_or_default(), &capacity.name_any());
        if !there {
            if let Some(known) = mirror.volumes.capacities.remove(&key) {
                out.events.push(Event::CapacityGone(known.key));
            }
            return;
        }
        let read = read_capacity(&key, capacity);
        if mirror.volumes.capacities.get(&key) != Some(&read) {
            out.events.push(Event::Capacity(Box::new(read.clone())));
            mirror.volumes.capacities.insert(key, read);
        }
    }
}

fn put<T>(table: &mut Table<Box<str>, Arc<T>>, key: &str, object: &Arc<T>, there: bool) {
    if there {
        table.insert(key.into(), Arc::clone(object));
    } else {
        table.remove(key);
    }
}

/// The claim that an unbound volume names, as `namespace/name`.
fn meant_for(volume: &PersistentVolume) -> Option<Box<str>> {
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, None | Some("" | "Pending" | "Available")).then_some(())?;
    Some(object_key(claim.namespace.as_deref()?, claim.name.as_deref()?))
}

/// Why a pod cannot use a claim.
fn unusable(pod: &packed::Pod, claim: &PersistentVolumeClaim, owned: bool) -> Option<String> {
    let own_name = claim.name_any();
    if phase(claim) == Some("Lost") {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let volume = volume.unwrap_or_default();
        return Some(format!(
            "persistentvolumeclaim {own_name:?} bound to non-existent persistentvolume {volume:?}"
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Some(format!("persistentvolumeclaim {own_name:?} is being deleted"));
    }
    let mut owners = claim.owner_references().iter();
    let is_owner = owners.any(|owner| owner.controller == Some(true) && *owner.uid == *pod.pod.uid);
    (owned && !is_owner).then(|| {
        let (namespace, pod) = (&pod.pod.namespace, &pod.pod.name);
        format!("PVC {namespace}/{own_name} was not created for pod {namespace}/{pod} (pod is not owner)")
    })
}

/// Whether two states of a claim are equal in all that is read here. Its pods are not read again for other changes, such as labels.
fn reads_alike(left: &PersistentVolumeClaim, right: &PersistentVolumeClaim) -> bool {
    let (one, other) = (&left.metadata, &right.metadata);
    let annotations = [volume::SELECTED_NODE, volume::BIND_COMPLETED, volume::CLASS];
    left.spec == right.spec
        && phase(left) == phase(right)
        && (&one.uid, &one.deletion_timestamp) == (&other.uid, &other.deletion_timestamp)
        && one.owner_references == other.owner_references
        && annotations
            .iter()
            .all(|key| left.annotations().get(*key) == right.annotations().get(*key))
}

fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

/// The volume of a claim, once they are bound to one another.
#[must_use]
pub fn bound_to(claim: &PersistentVolumeClaim) -> Option<&str> {
    let volume = claim.spec.as_ref()?.volume_name.as_deref()?;
    let bound = claim.annotations().contains_key(volume::BIND_COMPLETED) || phase(claim) == Some("Bound");
    (bound && !volume.is_empty()).then_some(volume)
}

/// The storage class of an object, from the legacy annotation or the field.
fn class_of<'a>(object: &'a impl ResourceExt, named: Option<&'a str>) -> &'a str {
    let annotated = object.annotations().get(volume::CLASS);
    annotated.map(String::as_str).or(named).unwrap_or_default()
}

fn waits(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// `ReadWriteOncePod`.
const EXCLUSIVE: u8 = 8;

/// Access modes, one bit each.
fn modes(modes: Option<&Vec<String>>) -> u8 {
    let bit = |mode: &String| match mode.as_str() {
        "ReadWriteOnce" => 1,
        "ReadOnlyMany" => 2,
        "ReadWriteMany" => 4,
        "ReadWriteOncePod" => EXCLUSIVE,
        _ => 16,
    };
    modes.into_iter().flatten().map(bit).fold(0, |all, bit| all | bit)
}

fn bytes(quantity: Option<&Quantity>) -> Option<i64> {
    Some(Amount::of(quantity?).ok()?.units())
}

/// The requirements of a label selector.
fn labels(selector: &LabelSelector) -> Vec<NodeRequirement> {
    let equal = selector
        .match_labels
        .iter()
        .flatten()
        .map(|(key, value)| NodeRequirement {
            key: name(key),
            op: SelectorOp::In,
            values: vec![name(value)],
        });
    let others = selector.match_expressions.iter().flatten().map(|one| {
        let op = match one.operator.as_str() {
            "NotIn" => SelectorOp::NotIn,
            "Exists" => SelectorOp::Exists,
            "DoesNotExist" => SelectorOp::DoesNotExist,
            // `In`; an operator that does not exist lists no value either, so nothing is selected.
            _ => SelectorOp::In,
        };
        NodeRequirement {
            key: name(&one.key),
            op,
            values: one.values.iter().flatten().map(|value| name(value)).collect(),
        }
    });
    equal.chain(others).collect()
}

fn topology(term: &TopologySelectorTerm) -> NodeTerm {
    let listed = term
        .match_label_expressions
        .iter()
        .flatten()
        .map(|one| NodeRequirement {
            key: name(&one.key),
            op: SelectorOp::In,
            values: one.values.iter().map(|value| name(value)).collect(),
        });
    NodeTerm {
        labels: listed.collect(),
        fields: Vec::new(),
    }
}

/// Whether the node affinity of a volume lets it be used from a node.
#[must_use]
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let label = |key: &str| node.labels().get(key).map(String::as_str);
    let terms = reach(volume).nodes;
    terms.is_none_or(|terms| meets_one_of(&terms, &node.name_any(), label))
}

/// The node constraints of a volume.
fn reach(volume: &PersistentVolume) -> Reach {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let terms = |terms: &Vec<NodeSelectorTerm>| terms.iter().filter_map(constraints::term).collect();
    let zone = |key: &&str| {
        let values = volume.labels().get(*key)?;
        Some((name(key), values.split(volume::ZONES_BETWEEN).map(name).collect()))
    };
    Reach {
        nodes: required.map(|required| terms(&required.node_selector_terms)),
        zones: volume::PLACES.iter().filter_map(zone).collect(),
    }
}

fn limits(node: &CSINode) -> Vec<(Name, i64)> {
    let limit = |driver: &k8s_openapi::api::storage::v1::CSINodeDriver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((name(&driver.name), i64::from(count)))
    };
    let mut limits: Vec<_> = node.spec.drivers.iter().filter_map(limit).collect();
    limits.sort();
    limits
}

fn read_capacity(key: &str, capacity: &CSIStorageCapacity) -> CapacityInput {
    let largest = bytes(capacity.maximum_volume_size.as_ref());
    // With `maximumVolumeSize` alone the total is unlimited.
    let free = bytes(capacity.capacity.as_ref()).or(largest.map(|_| i64::MAX >> 1));
    CapacityInput {
        key: name(key),
        class: name(&capacity.storage_class_name),
        free: free.unwrap_or(0),
        largest,
        nodes: capacity.node_topology.as_ref().map(labels),
    }
}

#[cfg(test)]
mod tests;
