//! Dynamic resource allocation: claims, device classes and resource slices → the engine's input, and from its decisions back to the
//! allocations that are written.
//!
//! Selectors are evaluated here, once per device, and are numbers in the engine. Absent: DeviceTaintRules, and devices with binding
//! conditions, which are never allocated.

pub mod allocation;
mod cel;
mod evaluate;
mod extended;
mod pools;
pub mod requests;
mod selectors;
pub mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::ResourceExt;

use super::identity::object_key;
use super::links::Links;
use super::name;
use super::packed::Pod;
use crate::api::names::annotation;
use crate::api::{BindRequest, limits};
use crate::engine::input::devices::{ClaimInput, ClaimRef, PodClaims, RequestInput};
use crate::engine::input::{Event, GpuRequest, Name, Needs, Table};
use evaluate::Pools;
use pools::{PoolKey, Slices};
use selectors::Selectors;

/// What the name of a class as a user of selectors begins with. Keys of claims have no space.
const CLASS: &str = "class ";

/// All claims, classes and slices.
#[derive(Default)]
pub struct Claims {
    claims: Table<Box<str>, Arc<ResourceClaim>>,
    classes: BTreeMap<Box<str>, Arc<DeviceClass>>,
    slices: Slices,
    selectors: Selectors,
    /// Texts of selectors that each claim and each class uses.
    used: Table<Box<str>, Vec<String>>,
    /// As sent to the engine.
    sent: Table<Name, ClaimInput>,
    /// The engine's key of each claim.
    names: Table<Box<str>, Name>,
    pools: Pools,
    /// Claims by the namespace and uid of the pod that they were created for.
    for_pod: Links,
    /// Claims for extended resources, by the engine's key.
    stand_for: BTreeMap<Name, Box<str>>,
    /// Pods (`namespace/name`) by claim.
    named_by: Links,
    /// The device class of each extended resource.
    extended: BTreeMap<String, Box<str>>,
    /// The key of the label that names a claim's queue; `None`: the default one.
    queue_label_key: Option<String>,
}

impl Claims {
    /// No objects, and the key of the label that names a claim's queue; `None`: the default one.
    #[must_use]
    pub fn new(queue_label_key: Option<String>) -> Self {
        Self {
            queue_label_key,
            ..Self::default()
        }
    }

    // --- pods ---

    /// Records the claims of a pod, or removes them if the pod is gone.
    pub fn note_pod(&mut self, key: &str, old: Option<&Pod>, new: Option<&Pod>) {
        if [old, new].into_iter().flatten().all(|pod| pod.further.is_none()) {
            return;
        }
        let claims = |pod: Option<&Pod>| pod.map(named).unwrap_or_default();
        let (before, after) = (claims(old), claims(new));
        for claim in before.iter().filter(|claim| !after.contains(*claim)) {
            self.named_by.remove(claim, key);
        }
        for claim in after {
            self.named_by.add(claim, key);
        }
    }

    /// A pod's claims, and their effect on its needs: GPUs, and the part of its class key.
    #[must_use]
    pub fn of_pod(&self, pod: &Pod, request: Option<&BindRequest>, needs: &mut Arc<Needs>) -> Option<PodClaims> {
        if pod.further.is_none() && self.extended.is_empty() && self.claims.is_empty() {
            return None;
        }
        let named = references(pod).filter_map(|reference| {
            let own = reference.resource_claim_name.as_deref();
            let claim = match own {
                Some(claim) => Some(claim),
                None => generated(pod, &reference.name)?,
            };
            Some(ClaimRef {
                reference: name(&reference.name),
                claim: claim.map(|claim| Name::from(&*in_namespace(pod, claim))),
                shared: own.is_some(),
                promised: request.and_then(|request| allocation::promised(request, &reference.name)),
            })
        });
        let named = each_claim_once(named);
        let extended = extended::of_pod(self, pod, request);
        if !self.claims.is_empty() {
            let mut gpu = needs.gpu.clone();
            self.count_gpus(pod, &mut gpu);
            if gpu != needs.gpu {
                Arc::make_mut(needs).gpu = gpu;
            }
        }
        let by_class = extended::gpus(self, pod, &needs.request);
        if by_class > 0 {
            Arc::make_mut(needs).gpu.by_class = by_class;
        }
        if named.is_empty() && extended.is_none() {
            return None;
        }
        let claims = PodClaims { named, extended };
        let others = needs.constraints.as_deref().unwrap_or_default();
        let others = format!("{others}\n{}", self.kind(&claims));
        Arc::make_mut(needs).constraints = Some(others.into());
        Some(claims)
    }

    /// A class key that is equal for pods with equal claims.
    fn kind(&self, claims: &PodClaims) -> String {
        let mut kind = String::new();
        for named in &claims.named {
            let own = named.claim.as_ref().filter(|_| !named.shared);
            let input = own.and_then(|claim| self.sent.get(claim));
            match input.filter(|input| input.allocation.is_none()) {
                Some(input) => {
                    kind += &format!("{}{:?};", self.text_of(&input.requests), input.constraints);
                }
                None => kind += &format!("{:?};", named.claim),
            }
        }
        for (resource, is_gpu, requests) in claims.extended.iter().flat_map(|extended| &extended.wanted) {
            kind += &format!("{resource:?}{is_gpu}{};", self.text_of(requests));
        }
        kind
    }

    /// Requests as a text. What number a selector has depends on what was there before it, so each has its place in a list of their digests instead.
    fn text_of(&self, requests: &[RequestInput]) -> String {
        let (mut requests, mut digests) = (requests.to_vec(), Vec::new());
        let options = requests.iter_mut().flat_map(|request| &mut request.options);
        for selector in options.flat_map(|option| &mut option.selectors) {
            let digest = self.selectors.digest(*selector);
            let known = digests.iter().position(|known| *known == digest);
            *selector = known.unwrap_or(digests.len()) as u32;
            if known.is_none() {
                digests.push(digest);
            }
        }
        format!("{requests:?}{digests:?}")
    }

    /// GPUs in claims: those created for the pod, and those that its spec names.
    fn count_gpus(&self, pod: &Pod, gpu: &mut GpuRequest) {
        let named: BTreeSet<Box<str>> = named(pod).into_iter().collect();
        let mut keys = named.clone();
        keys.extend(self.for_pod.to(&in_namespace(pod, &pod.pod.uid)).cloned());
        for (key, claim) in keys.iter().filter_map(|key| Some((key, self.claims.get(key)?))) {
            // Its devices are counted by the containers' requests. A tenant can annotate any claim like that, so a claim named in the pod spec counts in addition.
            if is_extended(claim) && !named.contains(key) {
                continue;
            }
            let gpus = requests::gpus(claim);
            let allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
            let owned = owner(claim).is_some();
            gpu.dra = gpu.dra.saturating_add(gpus).min(requests::MOST_GPUS);
            if allocated || !owned {
                gpu.dra_shared = gpu.dra_shared.saturating_add(gpus).min(requests::MOST_GPUS);
            }
        }
    }

    // --- claims ---

    /// Pods affected by a change of a claim, or by its end: the one that it was created for; and those that name it, unless it is the same for them.
    #[must_use]
    pub fn pods_of(&self, claim: &Arc<ResourceClaim>, there: bool) -> Vec<Box<str>> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let key = claim_key(claim);
        let known = self.claims.get(&key).map(Arc::as_ref);
        let mut pods: BTreeSet<Box<str>> = BTreeSet::new();
        for claim in known.into_iter().chain([&**claim]) {
            pods.extend(for_whom(claim).map(|(pod, _)| object_key(namespace, &pod)));
        }
        let others: Vec<_> = self.named_by.to(&key).filter(|pod| !pods.contains(*pod)).collect();
        let is_the_same = || there && known.is_some_and(|known| self.is_the_same_for_pods(known, claim));
        if !others.is_empty() && !is_the_same() {
            pods.extend(others.into_iter().cloned());
        }
        pods.into_iter().collect()
    }

    /// Whether all that pods read of a claim is as it was sent.
    fn is_the_same_for_pods(&self, known: &ResourceClaim, now: &Arc<ResourceClaim>) -> bool {
        let key = claim_key(now);
        let has_devices =
            |claim: &ResourceClaim| claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
        let sent = self.names.get(&key).and_then(|name| self.sent.get(name));
        known.spec == now.spec
            && has_devices(known) == has_devices(now)
            && (owner(known), is_extended(known)) == (owner(now), is_extended(now))
            && sent.is_some_and(|sent| {
                let now = requests::read(self, now, sent.key.clone());
                (sent.gpus, &sent.requests, &sent.constraints) == (now.gpus, &now.requests, &now.constraints)
            })
    }

    /// Records or removes a claim. [`Claims::tell_claim`] emits the events.
    pub fn put_claim(&mut self, claim: &Arc<ResourceClaim>, there: bool) {
        let key = claim_key(claim);
        if let Some(old) = self.claims.remove(&key)
            && let Some(pod) = beneficiary(&old)
        {
            self.for_pod.remove(&pod, &key);
        }
        if there {
            if let Some(pod) = beneficiary(claim) {
                self.for_pod.add(pod, &key);
            }
            self.claims.insert(key, claim.clone());
        }
    }

    /// The engine's events for a claim.
    pub fn tell_claim(&mut self, claim: &ResourceClaim, events: &mut Vec<Event>) {
        let key = claim_key(claim);
        let claim = self.claims.get(&key).cloned();
        let name = claim.as_ref().map(|claim| self.engine_name(claim, &key));
        if self.names.get(&key) != name.as_ref() {
            self.forget_name(&key, events);
        }
        let (Some(claim), Some(name)) = (claim, name) else {
            self.use_selectors(&key, Vec::new(), events);
            return;
        };
        self.use_selectors(&key, self.selectors_of(&claim), events);
        let input = requests::read(self, &claim, name.clone());
        if self.sent.get(&name) != Some(&input) {
            events.push(Event::Claim(Box::new(input.clone())));
            self.sent.insert(name.clone(), input);
        }
        self.names.insert(key, name);
    }

    /// The engine's key of a claim. Of several claims annotated for a pod's extended resources only the first is used.
    fn engine_name(&mut self, claim: &ResourceClaim, key: &str) -> Name {
        let extended = owner(claim).filter(|_| is_extended(claim));
        let Some((_, uid)) = extended else {
            return Name::from(key);
        };
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let extended = extended::key(namespace, &uid);
        let first = self.stand_for.entry(extended.clone()).or_insert_with(|| key.into());
        if **first == *key { extended } else { Name::from(key) }
    }

    /// Releases the engine's key of a claim. If it was that of a pod's extended resources, the next claim annotated for them gets it.
    fn forget_name(&mut self, key: &str, events: &mut Vec<Event>) {
        let Some(name) = self.names.remove(key) else { return };
        if self.sent.remove(&name).is_some() {
            events.push(Event::ClaimGone(name.clone()));
        }
        if self.stand_for.remove(&name).is_none() {
            return;
        }
        let others = self.for_pod.to(extended::pod(&name));
        let next = others
            .filter_map(|key| self.claims.get(key))
            .find(|claim| is_extended(claim) && owner(claim).is_some())
            .cloned();
        if let Some(next) = next {
            self.tell_claim(&next, events);
        }
    }

    fn selectors_of(&self, claim: &ResourceClaim) -> Vec<String> {
        let mut texts = Vec::new();
        if requests::has_too_many_selectors(claim) {
            return texts;
        }
        for (class, selectors) in requests::options(claim) {
            texts.extend(
                self.classes
                    .get(class)
                    .into_iter()
                    .flat_map(|class| requests::class_selectors(class)),
            );
            texts.extend(requests::expressions(selectors));
        }
        texts
    }

    /// Records the selectors in use. Pools are sent again if that changes them.
    fn use_selectors(&mut self, user: &str, texts: Vec<String>, events: &mut Vec<Event>) {
        let mut fresh = false;
        for text in &texts {
            fresh |= self.selectors.acquire(text, user);
        }
        let before = if texts.is_empty() {
            self.used.remove(user)
        } else {
            self.used.insert(user.into(), texts)
        };
        if fresh {
            self.evaluate_selectors(BTreeSet::new(), events);
            self.selectors.finished.retain(|other| **other != *user);
        }
        for text in before.into_iter().flatten() {
            self.selectors.release(&text, user);
        }
    }

    /// Evaluates waiting selectors on devices, up to the limit on steps. Pools are sent if that changes them, and those that changed otherwise.
    fn evaluate_selectors(&mut self, mut changed: BTreeSet<PoolKey>, events: &mut Vec<Event>) {
        changed.append(&mut self.pools.evaluate(&self.slices, &mut self.selectors));
        let pools = changed.iter().filter_map(|key| self.pools.get(key));
        events.extend(pools.map(|pool| Event::Pool(Box::new(pool.clone()))));
    }

    /// Whether selectors wait to be evaluated.
    #[must_use]
    pub fn selectors_wait(&self) -> bool {
        self.selectors.wait()
    }

    /// Evaluates waiting selectors, up to the step limit. Returns the claims and classes that waited for them.
    pub fn refill(&mut self, events: &mut Vec<Event>) -> (Vec<Arc<ResourceClaim>>, Vec<Arc<DeviceClass>>) {
        self.selectors.left = limits::CLAIM_SELECTOR_STEPS_AT_ONCE;
        self.evaluate_selectors(BTreeSet::new(), events);
        let mut finished = std::mem::take(&mut self.selectors.finished);
        finished.sort_unstable();
        finished.dedup();
        let claims = finished.iter().filter_map(|user| self.claims.get(user).cloned());
        let claims = claims.collect::<Vec<_>>().into_iter().chain(self.take_claims_behind());
        let classes = finished.iter().filter_map(|user| user.strip_prefix(CLASS));
        let classes = classes.filter_map(|class| self.classes.get(class).cloned());
        (claims.collect(), classes.collect())
    }

    /// The claims for all devices of which a selector has fallen behind, or is not behind any more, since the last call.
    pub fn take_claims_behind(&mut self) -> Vec<Arc<ResourceClaim>> {
        let mut users = std::mem::take(&mut self.selectors.behind);
        users.sort_unstable();
        users.dedup();
        let claims = users.iter().filter_map(|user| self.claims.get(user));
        claims.filter(|claim| requests::want_all(claim)).cloned().collect()
    }

    // --- classes ---

    /// A class was created, changed or deleted: all claims are read again.
    pub fn put_class(&mut self, class: &Arc<DeviceClass>, there: bool, events: &mut Vec<Event>) {
        let key = class.name_any();
        if there {
            self.classes.insert(key.as_str().into(), class.clone());
        } else {
            self.classes.remove(key.as_str());
        }
        let texts = if there {
            requests::class_selectors(class).collect()
        } else {
            Vec::new()
        };
        self.use_selectors(&format!("{CLASS}{key}"), texts, events);
        self.extended = extended::names(self.classes.values());
        let mut keys: Vec<Box<str>> = self.claims.keys().cloned().collect();
        keys.sort_unstable();
        for key in keys {
            if let Some(claim) = self.claims.get(&key).cloned() {
                self.tell_claim(&claim, events);
            }
        }
    }

    /// Selects the pods that must be read again when a class changes or is deleted.
    pub fn concerned_by(&self, class: &DeviceClass) -> impl Fn(&Pod) -> bool + use<> {
        let known = self.classes.get(class.name_any().as_str());
        let names: BTreeSet<String> = known
            .map(Arc::as_ref)
            .into_iter()
            .chain([class])
            .flat_map(extended::names_of)
            .collect();
        move |pod: &Pod| references(pod).next().is_some() || names.iter().any(|name| extended::asks(pod, name))
    }

    // --- slices ---

    /// A slice was created, changed or deleted. Returns the nodes whose number of GPUs changed, with the difference. Selectors are evaluated on devices that
    /// they see as others than before, up to the limit on steps; [`Claims::take_claims_behind`] has the claims that wait for the rest.
    pub fn put_slice(
        &mut self,
        slice: &Arc<ResourceSlice>,
        there: bool,
        events: &mut Vec<Event>,
    ) -> BTreeMap<Name, i64> {
        let shown = |key: PoolKey| {
            let slices = self.slices.shown(&key);
            (key, slices)
        };
        let mut shown: BTreeMap<PoolKey, _> = self.slices.pools_of(slice).into_iter().map(shown).collect();
        let changed = if there {
            self.slices.put(slice.clone())
        } else {
            self.slices.remove(&slice.name_any())
        };
        let (mut nodes, mut others, mut sent) = (BTreeMap::new(), false, BTreeSet::new());
        for key in changed {
            for (node, more) in self.slices.count(&key) {
                *nodes.entry(node).or_default() += more;
            }
            let Some(mut pool) = self.slices.read(&key) else {
                if self.pools.remove(&key) {
                    events.push(Event::PoolGone(key.0, key.1));
                }
                continue;
            };
            let (then, before) = (shown.remove(&key).unwrap_or_default(), self.pools.get(&key));
            let has_others = self.slices.take_over(&key, &then, before, &mut pool);
            if before != Some(&pool) {
                sent.insert(key.clone());
            }
            self.pools.put(key, pool, has_others);
            others |= has_others;
        }
        if others {
            self.selectors.queue_evaluated();
        }
        self.evaluate_selectors(sent, events);
        if others {
            self.selectors.note_behind();
        }
        nodes.retain(|_, more| *more != 0);
        nodes
    }

    /// GPUs that slices offer on a node.
    #[must_use]
    pub fn gpus_on(&self, node: &str) -> i64 {
        self.slices.gpus_on(node)
    }

    /// The claim object of an engine's key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<ResourceClaim>> {
        self.claims.get(key)
    }
}

fn claim_key(claim: &ResourceClaim) -> Box<str> {
    object_key(
        claim.metadata.namespace.as_deref().unwrap_or_default(),
        &claim.name_any(),
    )
}

fn is_extended(claim: &ResourceClaim) -> bool {
    claim
        .annotations()
        .get(annotation::EXTENDED_RESOURCE_CLAIM)
        .is_some_and(|value| value == "true")
}

/// The pod that owns a claim: its name and uid.
fn owner(claim: &ResourceClaim) -> Option<(String, String)> {
    let mut owners = claim.owner_references().iter();
    let owner = owners.find(|owner| owner.kind == "Pod")?;
    Some((owner.name.clone(), owner.uid.clone()))
}

/// The pod of a claim: its owner, else the first that it is reserved for.
fn for_whom(claim: &ResourceClaim) -> Option<(String, String)> {
    owner(claim).or_else(|| {
        let reserved = claim.status.as_ref()?.reserved_for.iter().flatten();
        let first = reserved.into_iter().find(|consumer| consumer.resource == "pods")?;
        Some((first.name.clone(), first.uid.clone()))
    })
}

/// The namespace and uid of the pod that a claim was created for. Only in the claim's namespace: its author can name any owner.
fn beneficiary(claim: &ResourceClaim) -> Option<Box<str>> {
    let (_, uid) = for_whom(claim)?;
    Some(object_key(
        claim.metadata.namespace.as_deref().unwrap_or_default(),
        &uid,
    ))
}

fn references(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    let spec = pod.spec();
    spec.into_iter().flat_map(|spec| spec.resource_claims.iter().flatten())
}

/// The claims of a pod, including those created for it.
fn named(pod: &Pod) -> Vec<Box<str>> {
    let claims = references(pod).filter_map(|reference| {
        let own = reference.resource_claim_name.as_deref();
        own.or_else(|| generated(pod, &reference.name).flatten())
    });
    claims.map(|claim| in_namespace(pod, claim)).collect()
}

/// The claim created for a reference of a pod; `None` = none is needed, `Some(None)` = not created yet.
#[allow(clippy::option_option)]
fn generated<'p>(pod: &'p Pod, reference: &str) -> Option<Option<&'p str>> {
    let mut made = pod.further.iter().flat_map(|further| &further.claims);
    match made.find(|made| made.name == reference) {
        Some(made) => made.resource_claim_name.as_deref().map(Some),
        None => Some(None),
    }
}

/// Without further references to the same claim: it has one allocation, and one reservation for the pod.
fn each_claim_once(references: impl Iterator<Item = ClaimRef>) -> Vec<ClaimRef> {
    let mut named: Vec<ClaimRef> = Vec::new();
    for reference in references {
        let mut before = named.iter_mut();
        match before.find(|known| known.claim.is_some() && known.claim == reference.claim) {
            Some(known) => known.shared |= reference.shared,
            None => named.push(reference),
        }
    }
    named
}

fn in_namespace(pod: &Pod, claim: &str) -> Box<str> {
    object_key(&pod.pod.namespace, claim)
}

#[cfg(test)]
mod tests;
