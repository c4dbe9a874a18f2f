//! Resource claims that are reserved for pods without a node. A bind reserves the pod's claims before its Binding. If it fails, and the release of the
//! claims, too, or the process ends between the two writes, the devices stay with a pod that may never fit on their node, and no other pod gets them. Such a
//! claim is given back.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use tokio::time::Instant;

use super::claims::ClaimWriter;
use super::cleanup::Cleanup;
use super::requests::Caller;
use crate::components::agenda::Agenda;
use crate::components::leadership::Scope;
use crate::components::watches::{Key, Stores};
use crate::components::{Context, pods};

/// Time between two looks at a claim. It is given back if the pod had no node at both: another process may have decided about the pod shortly before, and its
/// bind may be under way.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How many claims are looked at in one go.
const LOOKS: usize = 64;
/// How many claims are given back at a time. They are few, and nobody waits for them.
const AT_ONCE: usize = 4;

/// A claim, and pods without a node that it is reserved for.
pub struct Stray {
    /// The claim.
    pub claim: Key,
    /// The pods.
    pub pods: Vec<Arc<Pod>>,
}

/// The claims to look at, and what was seen of each.
#[derive(Default)]
pub struct StrayClaims {
    agenda: Agenda<Key>,
    /// Uids of the pods without a node that a claim was reserved for at the last look.
    waiting: HashMap<Key, Vec<String>>,
}

impl StrayClaims {
    /// Those that are known when the terms of this process change. What was seen before does not count: a bind of the time before may be under way.
    #[must_use]
    pub fn of_term(stores: &Stores, now: Instant) -> Self {
        let mut all = Self::default();
        for claim in stores.resource_claims.objects() {
            all.claim(&claim, now);
        }
        all
    }

    /// A claim appeared or changed.
    pub fn claim(&mut self, claim: &ResourceClaim, now: Instant) {
        if consumers(claim).next().is_some() {
            self.agenda.plan(&Key::of(&claim.metadata), now + LOOK_AGAIN);
        }
    }

    /// When the next look is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.agenda.next().filter(|_| self.agenda.running() < AT_ONCE)
    }

    /// The claims that were reserved for pods without a node at this look and the last. Each ends with [`StrayClaims::done`].
    pub fn due(&mut self, stores: &Stores, now: Instant) -> Vec<Stray> {
        let mut strays = Vec::new();
        for _ in 0..LOOKS {
            if self.agenda.running() >= AT_ONCE {
                break;
            }
            let Some(key) = self.agenda.start(now) else { break };
            let before = self.waiting.remove(&key).unwrap_or_default();
            let claim = stores.resource_claims.get(&key.namespace, &key.name);
            let waiting = claim.map(|claim| without_node(&claim, stores)).unwrap_or_default();
            if waiting.is_empty() {
                self.agenda.finish(&key);
                continue;
            }
            let uids = waiting.iter().filter_map(|pod| pod.uid()).collect();
            self.waiting.insert(key.clone(), uids);
            let is_known = |pod: &Arc<Pod>| pod.metadata.uid.as_ref().is_some_and(|uid| before.contains(uid));
            let pods: Vec<_> = waiting.into_iter().filter(is_known).collect();
            if pods.is_empty() {
                self.done(&key, now);
            } else {
                strays.push(Stray { claim: key, pods });
            }
        }
        strays
    }

    /// A claim was given back, or could not be; it is looked at again.
    pub fn done(&mut self, claim: &Key, now: Instant) {
        self.agenda.finish(claim);
        self.agenda.plan(claim, now + LOOK_AGAIN);
    }
}

/// Names and uids of the pods that a claim is reserved for.
fn consumers(claim: &ResourceClaim) -> impl Iterator<Item = (&str, &str)> {
    let status = claim.status.iter();
    let consumers = status.flat_map(|status| status.reserved_for.iter().flatten());
    let pods = consumers.filter(|consumer| consumer.resource == "pods");
    pods.map(|consumer| (consumer.name.as_str(), consumer.uid.as_str()))
}

/// Those of them that have no node.
fn without_node(claim: &ResourceClaim, stores: &Stores) -> Vec<Arc<Pod>> {
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let known = consumers(claim).filter_map(|(name, uid)| stores.pods.get_same(namespace, name, Some(uid)));
    known
        .filter(|pod| !pods::is_bound(pod) && !pods::is_finished(pod))
        .collect()
}

/// The term in which a claim may be taken from a pod; `None`: another process decides about the pod.
#[must_use]
pub fn term(pod: &Pod, context: &Context, stores: &Stores, active: &BTreeMap<Scope, u64>) -> Option<u64> {
    if !pods::is_ours(pod, &context.settings) {
        return None;
    }
    let of_pod = *active.get(&context.scope_of(pod.metadata.labels.as_ref()))?;
    let group = pods::annotated_group(pod).and_then(|key| stores.pod_groups.get(key.namespace(), key.name()));
    match group {
        // It is bound in the scope of its pod group.
        Some(group) => active.get(&context.scope_of(group.metadata.labels.as_ref())).copied(),
        None => Some(of_pod),
    }
}

/// Takes a claim from pods, each in the term in which that may be done.
pub async fn give_back(caller: Caller, claim: Key, pods: Vec<(u64, Arc<Pod>)>) -> Cleanup {
    for (term, pod) in pods {
        let caller = caller.of_term(term);
        if caller.context.is_leading() {
            let pod = pods::pod_ref(&pod);
            let writer = ClaimWriter::new(&caller.context, &pod, Arc::clone(&caller.claim_turns));
            writer.give_back(&claim.name).await;
        }
    }
    Cleanup::ClaimDone(claim)
}
