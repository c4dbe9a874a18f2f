//! Resource claims that are reserved for pods without a node. A bind reserves the pod's claims before its Binding. If it fails, and the release of the claims, too, or the
//! process ends between the two writes, the devices stay with a pod that may never fit on their node, and no other pod gets them. Such a claim is given back.

use std::collections::HashMap;
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
use crate::components::pods;
use crate::components::watches::{Key, Stores};

/// Time between two looks at a claim. It is given back if the pod had no node at both: another process may have decided about the pod shortly before, and its
/// bind may be under way.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How many claims are looked at in one go.
const AT_ONCE: usize = 64;

/// A claim, and a pod without a node that it is reserved for.
pub struct Stray {
    claim: String,
    /// The pod.
    pub pod: Arc<Pod>,
}

/// The claims to look at, and what was seen of each.
#[derive(Default)]
pub struct StrayClaims {
    agenda: Agenda<Key>,
    /// Uids of the pods without a node that a claim was reserved for at the last look.
    waiting: HashMap<Key, Vec<String>>,
}

impl StrayClaims {
    /// A claim appeared or changed.
    pub fn claim(&mut self, claim: &ResourceClaim, now: Instant) {
        if consumers(claim).next().is_some() {
            self.agenda.plan(&Key::of(&claim.metadata), now + LOOK_AGAIN);
        }
    }

    /// Looks at all claims.
    pub fn look_at_all(&mut self, stores: &Stores, now: Instant) {
        for claim in stores.resource_claims.objects() {
            self.claim(&claim, now);
        }
    }

    /// When the next look is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.agenda.next()
    }

    /// The claims that were reserved for a pod without a node at this look and the last.
    pub fn due(&mut self, stores: &Stores, now: Instant) -> Vec<Stray> {
        let mut strays = Vec::new();
        for _ in 0..AT_ONCE {
            let Some(key) = self.agenda.start(now) else { break };
            self.agenda.finish(&key);
            let before = self.waiting.remove(&key).unwrap_or_default();
            let Some(claim) = stores.resource_claims.get(&key.namespace, &key.name) else {
                continue;
            };
            let waiting = without_node(&claim, stores);
            if waiting.is_empty() {
                continue;
            }
            let uids = waiting.iter().filter_map(|pod| pod.uid()).collect();
            let lasting = waiting
                .into_iter()
                .filter(|pod| pod.metadata.uid.as_ref().is_some_and(|uid| before.contains(uid)));
            strays.extend(lasting.map(|pod| Stray {
                claim: key.name.clone(),
                pod,
            }));
            self.agenda.plan(&key, now + LOOK_AGAIN);
            self.waiting.insert(key, uids);
        }
        strays
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

/// Gives a claim back.
pub async fn give_back(caller: Caller, stray: Stray) -> Cleanup {
    let _turn = caller.turn().await;
    let pod = pods::pod_ref(&stray.pod);
    if caller.context.is_leading() {
        let writer = ClaimWriter::new(&caller.context, &pod, Arc::clone(&caller.claim_turns));
        writer.give_back(&stray.claim).await;
    }
    Cleanup::ClaimDone
}
