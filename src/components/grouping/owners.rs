//! Who owns a pod: reads the chain of owners from the API server, each owner once for all of its pods, and what else rules ask for.
//!
//! An owner that may not be read (403) ends the chain below it; that is how kinds unknown to our role are grouped. What was read
//! is remembered for a while, so that a burst of pods costs one read and a changed owner is still noticed later.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use tokio::sync::{OnceCell, Semaphore};
use tracing::warn;

use super::defaults::Defaults;
use super::karta::Karta;
use super::rules::{KindName, Reference, RuleError, Wanted};
use super::workload::{Workload, split_api_version};
use crate::api::names::{annotation, third_party};

/// How long an owner that was read counts as read.
const FRESH: Duration = Duration::from_secs(30);
/// How long it does if reading it failed, or made no sense: a burst of its pods is one read also then.
const DOUBTFUL: Duration = Duration::from_secs(1);
/// More owners than this above one another are a loop or a mistake.
const DEPTH_MAX: usize = 16;
/// Owners read at the same time.
const READS_MAX: usize = 32;

/// What is known of a pod's owners.
#[derive(Clone, Debug, PartialEq)]
pub enum Chain {
    /// From the direct owner to the top; empty if the pod is its own top owner.
    Owned(Vec<Arc<Workload>>),
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
    /// It was not found, and why.
    Failed(String),
}

/// An object, and its place among the remembered ones.
type Slot<T> = Arc<OnceCell<T>>;

/// What was read, for a while.
struct Remembered<K, T> {
    slots: Mutex<HashMap<K, (Instant, Slot<T>)>>,
}

impl<K, T> Default for Remembered<K, T> {
    fn default() -> Self {
        Self {
            slots: Mutex::default(),
        }
    }
}

impl<K: Clone + Eq + Hash, T> Remembered<K, T> {
    /// The place of an object: remembered, or new and empty.
    fn slot(&self, key: &K) -> Slot<T> {
        let now = Instant::now();
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, slot)) = slots.get(key)
            && now.duration_since(*since) < FRESH
        {
            return Arc::clone(slot);
        }
        // Old ones are thrown out when the map would grow, so that not each of a burst of new ones sweeps it.
        if slots.len() == slots.capacity() {
            slots.retain(|_, (since, _)| now.duration_since(*since) < FRESH);
        }
        let slot = Slot::default();
        slots.insert(key.clone(), (now, Arc::clone(&slot)));
        slot
    }

    /// The object is read again when it is asked for next, unless that was just done; whether it will be.
    fn doubt(&self, key: &K) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = slots.get(key).is_some_and(|(since, _)| since.elapsed() >= DOUBTFUL);
        is_old && slots.remove(key).is_some()
    }
}

/// Reads owners, and remembers them.
pub struct Owners {
    client: Client,
    reads: Semaphore,
    owners: Remembered<String, Read>,
    objects: Remembered<Reference, Arc<Workload>>,
    kartas: Remembered<KindName, Arc<Vec<Karta>>>,
    defaults: Remembered<(), Arc<Defaults>>,
    default_priorities: Option<(String, String)>,
    resources: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

impl Owners {
    /// Reads through the client. The defaults per kind are in the ConfigMap of that namespace and name.
    #[must_use]
    pub fn new(client: Client, default_priorities: Option<(String, String)>) -> Self {
        Self {
            client,
            reads: Semaphore::new(READS_MAX),
            owners: Remembered::default(),
            objects: Remembered::default(),
            kartas: Remembered::default(),
            defaults: Remembered::default(),
            default_priorities,
            resources: Mutex::default(),
        }
    }

    /// The pod's owners, if all of them are remembered: no request is made.
    #[must_use]
    pub fn remembered(&self, pod: &Pod) -> Option<Chain> {
        let mut walk = Walk::from(pod);
        while let Some(owner) = walk.next().ok()? {
            match self.owners.slot(&owner.uid).get()? {
                Read::Forbidden => break,
                Read::Failed(_) => return None,
                Read::Object(read) => walk.take(Arc::clone(read)).ok()?,
            }
        }
        Some(walk.end())
    }

    /// Walks from the pod to its top owner.
    ///
    /// # Errors
    /// If an owner cannot be found, or the chain makes no sense.
    pub async fn chain(&self, pod: &Pod) -> Result<Chain, OwnerError> {
        let mut walk = Walk::from(pod);
        while let Some(owner) = walk.next()? {
            if let Some(Read::Failed(_)) = self.owners.slot(&owner.uid).get() {
                self.owners.doubt(&owner.uid);
            }
            let slot = self.owners.slot(&owner.uid);
            match slot.get_or_init(|| self.read(walk.namespace, owner)).await {
                Read::Forbidden => break,
                Read::Failed(cause) => return Err(walk.not_found(owner, cause.clone())),
                Read::Object(read) => walk.take(Arc::clone(read))?,
            }
        }
        Ok(walk.end())
    }

    /// Reads these owners again next time: one of them did not make sense, or may have changed since. False if all of them were
    /// just read.
    pub fn doubt(&self, chain: &[Arc<Workload>]) -> bool {
        let doubted = chain.iter().filter(|owner| self.owners.doubt(&owner.uid));
        doubted.count() > 0
    }

    /// What is remembered of another object.
    ///
    /// # Errors
    /// If it is not remembered.
    pub fn object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        let known = self.objects.slot(wanted).get().cloned();
        known.ok_or_else(|| RuleError::Unknown(Wanted::Object(wanted.clone())))
    }

    /// What is remembered of the definitions for a kind.
    ///
    /// # Errors
    /// If nothing is remembered.
    pub fn kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        let known = self.kartas.slot(kind).get().cloned();
        known.ok_or_else(|| RuleError::Unknown(Wanted::Kartas(kind.clone())))
    }

    /// What is remembered of the defaults per kind.
    ///
    /// # Errors
    /// If they are not remembered.
    pub fn defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        if self.default_priorities.is_none() {
            return Ok(Arc::default());
        }
        let known = self.defaults.slot(&()).get().cloned();
        known.ok_or(RuleError::Unknown(Wanted::Defaults))
    }

    /// Reads what a rule asks for, so that it is remembered.
    ///
    /// # Errors
    /// If an object is not there, or may not be read.
    pub async fn fetch(&self, wanted: &Wanted) -> Result<(), RuleError> {
        match wanted {
            Wanted::Object(reference) => {
                let slot = self.objects.slot(reference);
                slot.get_or_try_init(|| self.read_object(reference)).await?;
            }
            Wanted::Kartas(kind) => {
                let slot = self.kartas.slot(kind);
                slot.get_or_try_init(|| self.read_kartas(kind)).await?;
            }
            Wanted::Defaults => {
                let slot = self.defaults.slot(&());
                slot.get_or_init(|| self.read_defaults()).await;
            }
        }
        Ok(())
    }

    async fn read_object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        let Reference {
            api_version,
            kind,
            namespace,
            name,
        } = wanted;
        let said =
            |error: kube::Error| RuleError::Workload(format!("failed to get {kind} {namespace}/{name}: {error}"));
        let _permit = self.reads.acquire().await;
        let api = self.api(api_version, kind, namespace).await.map_err(said)?;
        let object = api.get(name).await.map_err(said)?;
        Ok(Arc::new(Workload::of_object(api_version, kind, object)))
    }

    /// No definitions are no failure: few clusters have any, or let us read them.
    async fn read_kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        let selector = [
            (third_party::KARTA_GROUP, &kind.group),
            (third_party::KARTA_VERSION, &kind.version),
            (third_party::KARTA_KIND, &kind.kind),
        ];
        let selector = selector.map(|(key, value)| format!("{key}={value}")).join(",");
        let _permit = self.reads.acquire().await;
        let found = match self.api("run.ai/v1alpha1", "Karta", "").await {
            Ok(api) => api.list(&ListParams::default().labels(&selector)).await,
            Err(error) => Err(error),
        };
        let kartas = match found {
            Ok(list) => list.items,
            Err(error) if is_absent(&error) || is_forbidden(&error) => Vec::new(),
            Err(error) => return Err(RuleError::Workload(format!("failed to list Kartas: {error}"))),
        };
        let kartas = kartas.into_iter().filter_map(|karta| serde_json::to_value(karta).ok());
        Ok(Arc::new(super::valid_kartas(kartas, kind)))
    }

    async fn read_defaults(&self) -> Arc<Defaults> {
        let Some((namespace, name)) = &self.default_priorities else {
            return Arc::default();
        };
        let wanted = Reference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
        };
        match self.read_object(&wanted).await {
            Ok(config_map) => Arc::new(Defaults::of(&config_map)),
            Err(error) => {
                warn!(%error, "default priorities cannot be read");
                Arc::default()
            }
        }
    }

    async fn read(&self, namespace: &str, owner: &OwnerReference) -> Read {
        let _permit = self.reads.acquire().await;
        let found = match self.api(&owner.api_version, &owner.kind, namespace).await {
            Ok(api) => api.get(&owner.name).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(object) if object.metadata.uid.as_deref() == Some(&owner.uid) => {
                Read::Object(Arc::new(Workload::of_object(&owner.api_version, &owner.kind, object)))
            }
            Ok(_) => Read::Failed(format!("Owner resource with uid {} not found", owner.uid)),
            Err(error) if is_forbidden(&error) => Read::Forbidden,
            Err(error) => Read::Failed(error.to_string()),
        }
    }

    /// Where objects of the kind are read.
    async fn api(&self, api_version: &str, kind: &str, namespace: &str) -> Result<Api<DynamicObject>, kube::Error> {
        let (resource, scope) = self.resource(api_version, kind).await?;
        Ok(match scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
        })
    }

    /// Where objects of the kind are served. Workload kinds of Kubernetes itself need no discovery.
    async fn resource(&self, api_version: &str, kind: &str) -> Result<(ApiResource, Scope), kube::Error> {
        let (group, version) = split_api_version(api_version);
        let gvk = GroupVersionKind::gvk(group, version, kind);
        if matches!((group, version), ("apps" | "batch" | "", "v1")) && !matches!(kind, "Node" | "Namespace") {
            return Ok((ApiResource::from_gvk(&gvk), Scope::Namespaced));
        }
        let key = (api_version.to_owned(), kind.to_owned());
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

/// A walk from a pod upwards, one owner at a time; whoever walks reads the owners.
pub struct Walk<'a> {
    namespace: &'a str,
    name: &'a str,
    chain: Vec<Arc<Workload>>,
    next: Option<OwnerReference>,
    opted_out: bool,
}

impl<'a> Walk<'a> {
    /// Stands at the pod.
    #[must_use]
    pub fn from(pod: &'a Pod) -> Self {
        let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let next = owners.iter().find(|owner| owner.controller == Some(true));
        Self {
            namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
            name: pod.metadata.name.as_deref().unwrap_or_default(),
            chain: Vec::new(),
            next: next.or_else(|| owners.first()).cloned(),
            opted_out: false,
        }
    }

    /// The owner to read next; none at the top.
    ///
    /// # Errors
    /// If the way goes in a circle.
    pub fn next(&self) -> Result<Option<&OwnerReference>, OwnerError> {
        let Some(owner) = &self.next else { return Ok(None) };
        if self.chain.len() == DEPTH_MAX || self.chain.iter().any(|seen| seen.uid == owner.uid) {
            return Err(OwnerError::TooDeep {
                namespace: self.namespace.to_owned(),
                name: self.name.to_owned(),
            });
        }
        Ok(Some(owner))
    }

    /// Steps up to the owner that was read.
    ///
    /// # Errors
    /// If several objects own it and none of them is said to be its controller.
    pub fn take(&mut self, owner: Arc<Workload>) -> Result<(), OwnerError> {
        if opted_out(&owner) {
            (self.opted_out, self.next) = (true, None);
            return Ok(());
        }
        let next = next_owner(&owner).map_err(|owners| many_owners(self.namespace, &owner, &owners))?;
        self.next = next.cloned();
        self.chain.push(owner);
        Ok(())
    }

    /// What to say of an owner that is not there.
    #[must_use]
    pub fn not_found(&self, owner: &OwnerReference, cause: String) -> OwnerError {
        OwnerError::NotFound {
            kind: owner.kind.clone(),
            namespace: self.namespace.to_owned(),
            name: owner.name.clone(),
            uid: owner.uid.clone(),
            cause,
        }
    }

    /// Where the walk ended: at the top, or below an owner that may not be read.
    #[must_use]
    pub fn end(self) -> Chain {
        if self.opted_out {
            Chain::OptedOut
        } else {
            Chain::Owned(self.chain)
        }
    }
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

/// The kind is not served.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Discovery(_)) || matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

#[cfg(test)]
mod tests;
