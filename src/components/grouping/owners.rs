//! Who owns a pod: reads the chain of owners from the API server, each owner once for all of its pods.
//!
//! An owner that may not be read (403) ends the chain below it; that is how kinds unknown to our role are grouped. A read owner
//! is remembered for a while, so that a burst of pods costs one read and a changed owner is still noticed later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use tokio::sync::{OnceCell, Semaphore};

use super::workload::{Workload, split_api_version};
use crate::api::names::annotation;

/// How long an owner that was read counts as read.
const FRESH: Duration = Duration::from_secs(30);
/// More owners than this above one another are a loop or a mistake.
const DEPTH_MAX: usize = 16;
/// Owners read at the same time.
const READS_MAX: usize = 32;

/// What is known of a pod's owners.
#[derive(Clone, Debug, PartialEq)]
pub enum Chain {
    /// From the direct owner to the top; empty if the pod is its own top owner.
    Owned(Vec<Workload>),
    /// An owner is annotated so that its pods are left alone.
    OptedOut,
}

/// Why the owners of a pod are not known. Worth another try later; the sentence is the user's event.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The owner is not there, or another object has taken its name.
    #[error("failed to find {kind}: <{namespace}/{name}>, uid: <{uid}>: {cause}")]
    NotFound {
        /// Kind of the owner.
        kind: String,
        /// Namespace of the pod.
        namespace: String,
        /// Name of the owner.
        name: String,
        /// UID that the reference states.
        uid: String,
        /// What went wrong.
        cause: String,
    },
    /// An owner below the top has several owners and names no controller.
    #[error("found {kind} <{name} in namespace {namespace}> with multiple owners: {owners}")]
    ManyOwners {
        /// Kind of the object.
        kind: String,
        /// Its name.
        name: String,
        /// Its namespace.
        namespace: String,
        /// Its owners.
        owners: String,
    },
    /// The chain is a loop, or longer than any real one.
    #[error("the owners of pod {namespace}/{name} form a loop or a chain of more than {DEPTH_MAX}")]
    TooDeep {
        /// Namespace of the pod.
        namespace: String,
        /// Its name.
        name: String,
    },
}

#[derive(Clone, Debug)]
enum Read {
    Object(Arc<Workload>),
    Forbidden,
}

type Slot = Arc<OnceCell<Read>>;

/// Reads owners, and remembers them.
pub struct Owners {
    client: Client,
    reads: Semaphore,
    slots: Mutex<HashMap<String, (Instant, Slot)>>,
    resources: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

impl Owners {
    /// Reads through the client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            reads: Semaphore::new(READS_MAX),
            slots: Mutex::default(),
            resources: Mutex::default(),
        }
    }

    /// The pod's owners, if all of them are remembered: no request is made.
    #[must_use]
    pub fn remembered(&self, pod: &Pod) -> Option<Chain> {
        let mut chain = Vec::new();
        let mut next = controller(pod.metadata.owner_references.as_deref().unwrap_or_default()).cloned();
        while let Some(owner) = next.take() {
            match self.slot(&owner.uid).get()? {
                Read::Forbidden => break,
                Read::Object(read) if opted_out(read) => return Some(Chain::OptedOut),
                Read::Object(_) if chain.len() == DEPTH_MAX => return None,
                Read::Object(read) => {
                    next = next_owner(read).ok()?.cloned();
                    chain.push(Workload::clone(read));
                }
            }
        }
        Some(Chain::Owned(chain))
    }

    /// Walks from the pod to its top owner.
    ///
    /// # Errors
    /// If an owner cannot be found, or the chain makes no sense.
    pub async fn chain(&self, pod: &Pod) -> Result<Chain, OwnerError> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut chain: Vec<Workload> = Vec::new();
        let mut next = controller(pod.metadata.owner_references.as_deref().unwrap_or_default()).cloned();
        while let Some(owner) = next.take() {
            if chain.len() == DEPTH_MAX || chain.iter().any(|seen| seen.uid == owner.uid) {
                let name = pod.metadata.name.clone().unwrap_or_default();
                return Err(OwnerError::TooDeep {
                    namespace: namespace.to_owned(),
                    name,
                });
            }
            let slot = self.slot(&owner.uid);
            let Read::Object(read) = slot.get_or_try_init(|| self.read(namespace, &owner)).await? else {
                break;
            };
            if opted_out(read) {
                return Ok(Chain::OptedOut);
            }
            next = next_owner(read)
                .map_err(|owners| many_owners(namespace, read, &owners))?
                .cloned();
            chain.push(Workload::clone(read));
        }
        Ok(Chain::Owned(chain))
    }

    /// The place of an owner: remembered, or new and empty.
    fn slot(&self, uid: &str) -> Slot {
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, slot)) = slots.get(uid)
            && now.duration_since(*since) < FRESH
        {
            return Arc::clone(slot);
        }
        slots.retain(|_, (since, _)| now.duration_since(*since) < FRESH);
        let slot = Slot::default();
        slots.insert(uid.to_owned(), (now, Arc::clone(&slot)));
        slot
    }

    async fn read(&self, namespace: &str, owner: &OwnerReference) -> Result<Read, OwnerError> {
        let not_found = |cause: String| OwnerError::NotFound {
            kind: owner.kind.clone(),
            namespace: namespace.to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            cause,
        };
        let _permit = self.reads.acquire().await;
        let (resource, scope) = match self.resource(owner).await {
            Ok(found) => found,
            Err(error) if is_forbidden(&error) => return Ok(Read::Forbidden),
            Err(error) => return Err(not_found(error.to_string())),
        };
        let api: Api<DynamicObject> = match scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
        };
        match api.get(&owner.name).await {
            Ok(object) if object.metadata.uid.as_deref() == Some(&owner.uid) => Ok(Read::Object(Arc::new(
                Workload::new(&owner.api_version, &owner.kind, &object.metadata),
            ))),
            Ok(_) => Err(not_found(format!("Owner resource with uid {} not found", owner.uid))),
            Err(error) if is_forbidden(&error) => Ok(Read::Forbidden),
            Err(error) => Err(not_found(error.to_string())),
        }
    }

    /// Where objects of the owner's kind are served. Workload kinds of Kubernetes itself need no discovery.
    async fn resource(&self, owner: &OwnerReference) -> Result<(ApiResource, Scope), kube::Error> {
        let (group, version) = split_api_version(&owner.api_version);
        let gvk = GroupVersionKind::gvk(group, version, &owner.kind);
        if matches!((group, version), ("apps" | "batch" | "", "v1")) && !matches!(&*owner.kind, "Node" | "Namespace") {
            return Ok((ApiResource::from_gvk(&gvk), Scope::Namespaced));
        }
        let key = (owner.api_version.clone(), owner.kind.clone());
        if let Some(found) = self.resources.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(found.clone());
        }
        let (resource, capabilities) = discovery::pinned_kind(&self.client, &gvk).await?;
        let found = (resource, capabilities.scope);
        self.resources
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key, found.clone());
        Ok(found)
    }
}

/// The owner that counts: the controller, else the first.
fn controller(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners
        .iter()
        .find(|owner| owner.controller == Some(true))
        .or_else(|| owners.first())
}

/// The owner above an owner; several without a controller among them are an error.
fn next_owner(owner: &Workload) -> Result<Option<&OwnerReference>, String> {
    match owner.owners.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        several => several
            .iter()
            .find(|owner| owner.controller == Some(true))
            .map(Some)
            .ok_or_else(|| {
                several
                    .iter()
                    .map(|owner| format!("{} {}", owner.kind, owner.name))
                    .collect::<Vec<_>>()
                    .join(", ")
            }),
    }
}

fn many_owners(namespace: &str, of: &Workload, owners: &str) -> OwnerError {
    OwnerError::ManyOwners {
        kind: of.kind.clone(),
        name: of.name.clone(),
        namespace: namespace.to_owned(),
        owners: format!("[{owners}]"),
    }
}

fn opted_out(owner: &Workload) -> bool {
    owner
        .annotations
        .get(annotation::SKIP_POD_GROUPER)
        .is_some_and(|value| value == "true")
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

#[cfg(test)]
mod tests;
