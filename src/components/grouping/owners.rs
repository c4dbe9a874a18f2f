//! Reads the chain of a pod's owners from the API server, each owner once for all of its pods, and other objects that rules need.
//!
//! An owner that may not be read (403) ends the chain below it; that is how kinds without a right are grouped. So does a cluster-scoped
//! one: tenants did not create it, and its settings are not about their pods. Results are
//! cached for a while, so that a burst of pods costs one read and changes of an owner are noticed later.
//!
//! Owner references are written by tenants and not trusted: they are followed only if their strings are valid names, cache entries
//! are keyed by the whole reference and its namespace, every read has a deadline, and each namespace has a share of reads and of memory.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GetParams, GroupVersionKind, ListParams, Request};
use kube::discovery::{self, Scope};
use kube::{Api, Client};
use tokio::time::{Instant, timeout};
use tracing::warn;

mod cache;
mod reduced;

use super::defaults::Defaults;
use super::karta::Karta;
use super::rules::{KindName, Reference, RuleError, Wanted};
use super::workload::{Workload, split_api_version};
use crate::api::names::{annotation, label, third_party};
use crate::api::{PodGroup, limits};
use crate::components::bus::GroupKey;
use crate::components::shares::Shares;
use crate::components::weight;
use cache::NamespaceCache;

/// Limit on concurrent reads.
const READS_MAX: usize = 4 * limits::OWNER_READS_PER_NAMESPACE;
/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit on owners listed in a message.
const LISTED_MAX: usize = 8;
/// Bytes of the longest name that an object can have.
const NAME_BYTES: usize = limits::OWNER_NAME_BYTES - 1;
/// Characters of a longer name that a message shows.
const NAME_SHOWN: usize = 64;
/// The namespace under which cluster-wide reads are counted.
const EVERYBODY: &str = "";

/// What is known of a pod's owners.
#[derive(Clone, Debug, PartialEq)]
pub enum Chain {
    /// From the direct owner to the top; empty if the pod is its own top owner.
    Owned(Vec<Arc<Workload>>),
    /// An owner's annotation excludes its pods from grouping.
    OptedOut,
}

/// Why the owners of a pod are unknown. Retried later; the message is the user's event.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The owner does not exist, or another object has its name.
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
    /// The chain is a cycle, or too long.
    #[error(
        "the owners of pod {namespace}/{name} form a loop or a chain of more than {}",
        limits::OWNER_DEPTH
    )]
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
    /// It may not be read, or it is cluster-scoped.
    Forbidden,
    /// It was not found, and why.
    Failed(String),
}

/// An owner reference as a cache key. All fields count: a wrong reference must not affect a right one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Named {
    object: Reference,
    uid: String,
}

impl Named {
    fn new(namespace: &str, owner: &OwnerReference) -> Self {
        Self {
            object: Reference {
                api_version: owner.api_version.clone(),
                kind: owner.kind.clone(),
                namespace: namespace.to_owned(),
                name: owner.name.clone(),
            },
            uid: owner.uid.clone(),
        }
    }

    fn of(namespace: &str, owner: &Workload) -> Self {
        Self::new(namespace, &owner.owner_reference())
    }

    /// Whether an object can have these names. Other references are not looked up, and have no entry in the cache.
    fn check(&self) -> Result<(), String> {
        check_names(&self.object)?;
        let valid = self.uid.len() <= NAME_BYTES;
        valid.then_some(()).ok_or_else(|| no_name("uid", &self.uid))
    }
}

/// Reads and caches owners.
pub struct Owners {
    client: Client,
    reads: Shares,
    max_wait: Duration,
    owners: NamespaceCache<Named, Read>,
    objects: NamespaceCache<Reference, Arc<Workload>>,
    kartas: NamespaceCache<KindName, Arc<Vec<Karta>>>,
    defaults: NamespaceCache<(), Result<Arc<Defaults>, RuleError>>,
    default_priorities: Option<(String, String)>,
    /// A warning said that the defaults cannot be read, and they were not read since.
    warned_of_defaults: AtomicBool,
    resources: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

impl Owners {
    /// With a client, and the namespace and name of the ConfigMap with the defaults per kind.
    #[must_use]
    pub fn new(client: Client, default_priorities: Option<(String, String)>) -> Self {
        Self {
            client,
            reads: Shares::new(READS_MAX as u32, limits::OWNER_READS_PER_NAMESPACE as u32),
            max_wait: READ_TIMEOUT,
            owners: NamespaceCache::default(),
            objects: NamespaceCache::default(),
            kartas: NamespaceCache::default(),
            defaults: NamespaceCache::default(),
            default_priorities,
            warned_of_defaults: AtomicBool::new(false),
            resources: Mutex::default(),
        }
    }

    /// The pod's owners, if all are cached: no request is sent.
    #[must_use]
    pub fn cached(&self, pod: &Pod) -> Option<Chain> {
        let mut walk = Walk::from(pod);
        while let Some(owner) = walk.next().ok()? {
            let named = Named::new(walk.namespace, owner);
            named.check().ok()?;
            match self.owners.slot(walk.namespace, &named).get()? {
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
    /// If an owner cannot be found, or the chain is invalid.
    pub async fn chain(&self, pod: &Pod) -> Result<Chain, OwnerError> {
        self.walk(pod, false).await
    }

    /// The same without what is cached, except for what was just read: owners may have changed, and so may other objects that rules ask for.
    ///
    /// # Errors
    /// The same.
    pub async fn chain_anew(&self, pod: &Pod) -> Result<Chain, OwnerError> {
        self.objects
            .invalidate_all(pod.metadata.namespace.as_deref().unwrap_or_default());
        self.walk(pod, true).await
    }

    async fn walk(&self, pod: &Pod, anew: bool) -> Result<Chain, OwnerError> {
        let mut walk = Walk::from(pod);
        while let Some(owner) = walk.next()? {
            let (namespace, named) = (walk.namespace, Named::new(walk.namespace, owner));
            named.check().map_err(|cause| walk.not_found(owner, cause))?;
            if anew || matches!(self.owners.slot(namespace, &named).get(), Some(Read::Failed(_))) {
                self.owners.invalidate(namespace, &named);
            }
            let slot = self.owners.slot(namespace, &named);
            match slot.get_or_init(|| self.read(&named)).await {
                Read::Forbidden => break,
                Read::Failed(cause) => return Err(walk.not_found(owner, cause.clone())),
                Read::Object(read) => walk.take(Arc::clone(read))?,
            }
        }
        Ok(walk.end())
    }

    /// Invalidates these owners of a pod of the namespace, and the other objects that rules have asked for there: one of them was invalid, or may have
    /// changed. False if all of them were just read.
    pub fn invalidate(&self, namespace: &str, chain: &[Arc<Workload>]) -> bool {
        let doubted = chain
            .iter()
            .filter(|owner| self.owners.invalidate(namespace, &Named::of(namespace, owner)));
        let owners = doubted.count() > 0;
        self.objects.invalidate_all(namespace) || owners
    }

    /// Whether these owners of a pod of the namespace, and all other objects that rules have asked for there, were read at that time or later, as far as is
    /// known.
    #[must_use]
    pub fn are_read_since(&self, namespace: &str, chain: &[Arc<Workload>], time: Instant) -> bool {
        let mut owners = chain.iter().map(|owner| Named::of(namespace, owner));
        owners.all(|owner| self.owners.is_since(namespace, &owner, time)) && self.objects.are_all_since(namespace, time)
    }

    /// Another object from the cache.
    ///
    /// # Errors
    /// If it is not cached.
    pub fn object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        let known = self.objects.slot(&wanted.namespace, wanted).get().cloned();
        known.ok_or_else(|| RuleError::Unknown(Wanted::Object(wanted.clone())))
    }

    /// The definitions for a kind from the cache.
    ///
    /// # Errors
    /// If they are not cached.
    pub fn kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        let known = self.kartas.slot(EVERYBODY, kind).get().cloned();
        known.ok_or_else(|| RuleError::Unknown(Wanted::Kartas(kind.clone())))
    }

    /// The defaults per kind from the cache.
    ///
    /// # Errors
    /// If they are not cached.
    pub fn defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        if self.default_priorities.is_none() {
            return Ok(Arc::default());
        }
        let known = self.defaults.slot(EVERYBODY, &()).get().cloned();
        known.and_then(Result::ok).ok_or(RuleError::Unknown(Wanted::Defaults))
    }

    /// Reads what a rule needs into the cache.
    ///
    /// # Errors
    /// If an object does not exist or may not be read.
    pub async fn fetch(&self, wanted: &Wanted) -> Result<(), RuleError> {
        match wanted {
            Wanted::Object(reference) => {
                let slot = self.objects.slot(&reference.namespace, reference);
                slot.get_or_try_init(|| self.read_object(reference)).await?;
            }
            Wanted::Kartas(kind) => {
                let slot = self.kartas.slot(EVERYBODY, kind);
                slot.get_or_try_init(|| self.read_kartas(kind)).await?;
            }
            Wanted::Defaults => {
                if let Some(Err(_)) = self.defaults.slot(EVERYBODY, &()).get() {
                    self.defaults.invalidate(EVERYBODY, &());
                }
                let slot = self.defaults.slot(EVERYBODY, &());
                slot.get_or_init(|| self.read_defaults()).await.clone()?;
            }
        }
        Ok(())
    }

    /// Whether the API server has a pod group, which the watch may not show yet.
    ///
    /// # Errors
    /// If there is no answer.
    pub async fn has_pod_group(&self, key: &GroupKey) -> Result<bool, RuleError> {
        let (namespace, name) = (key.namespace(), key.name());
        // No object has another name, and this one becomes part of a selector.
        if !is_name(name, &['-', '.']) {
            return Ok(false);
        }
        let _permit = self.reads.take(namespace, 1).await;
        let api: Api<PodGroup> = Api::namespaced(self.client.clone(), namespace);
        // There is no right to get one.
        let of_name = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        let said =
            |cause: &str| RuleError::Workload(format!("failed to look for PodGroup {namespace}/{name}: {cause}"));
        let answer = timeout(self.max_wait, api.list_metadata(&of_name)).await;
        let found = answer.map_err(|_| said("the API server does not answer"))?;
        Ok(!found.map_err(|error| said(&words(&error)))?.items.is_empty())
    }

    async fn read_object(&self, wanted: &Reference) -> Result<Arc<Workload>, RuleError> {
        let Reference {
            kind, namespace, name, ..
        } = wanted;
        let said = |cause: &str| RuleError::Workload(format!("failed to get {kind} {namespace}/{name}: {cause}"));
        match self.get(wanted).await {
            Ok((object, weight)) => {
                self.objects.add_size(namespace, wanted, weight);
                Ok(object)
            }
            Err(error) => Err(said(&error.cause())),
        }
    }

    /// Missing definitions are no error: few clusters have any, or grant the right to read them.
    async fn read_kartas(&self, kind: &KindName) -> Result<Arc<Vec<Karta>>, RuleError> {
        // A definition names its kind in labels; the API server refuses a selector for other values.
        if ![&kind.group, &kind.version, &kind.kind]
            .into_iter()
            .all(|name| is_label_value(name))
        {
            return Ok(Arc::default());
        }
        let selector = [
            (third_party::KARTA_GROUP, &kind.group),
            (third_party::KARTA_VERSION, &kind.version),
            (third_party::KARTA_KIND, &kind.kind),
        ];
        let selector = selector.map(|(key, value)| format!("{key}={value}")).join(",");
        let _permit = self.reads.take(EVERYBODY, 1).await;
        let found = timeout(self.max_wait, async {
            let (resource, _) = self.resource("run.ai/v1alpha1", "Karta").await?;
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
            api.list(&ListParams::default().labels(&selector)).await
        });
        let late = |_| RuleError::Workload("failed to list Kartas: the API server does not answer".to_owned());
        let kartas = match found.await.map_err(late)? {
            Ok(list) => list.items,
            Err(error) if is_absent(&error) || is_forbidden(&error) => Vec::new(),
            Err(error) => return Err(RuleError::Workload(format!("failed to list Kartas: {error}"))),
        };
        let kartas = kartas.into_iter().filter_map(|karta| serde_json::to_value(karta).ok());
        Ok(Arc::new(super::valid_kartas(kartas, kind)))
    }

    /// A ConfigMap that does not exist, may not be read or is unusable has no defaults. Without an answer pods wait, since their groups would get other
    /// classes.
    async fn read_defaults(&self) -> Result<Arc<Defaults>, RuleError> {
        let Some((namespace, name)) = &self.default_priorities else {
            return Ok(Arc::default());
        };
        let wanted = Reference {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: namespace.clone(),
            name: name.clone(),
        };
        match self.get(&wanted).await {
            Ok((config_map, _)) => {
                self.warned_of_defaults.store(false, Ordering::Relaxed);
                Ok(Arc::new(Defaults::of(&config_map)))
            }
            Err(error) => {
                let cause = format!("failed to get ConfigMap {namespace}/{name}: {}", error.cause());
                if error.may_pass() {
                    return Err(RuleError::Workload(cause));
                }
                if !self.warned_of_defaults.swap(true, Ordering::Relaxed) {
                    warn!(
                        error = %cause,
                        "default priorities cannot be read, so workloads get none. In another namespace than the operator's, a Role must grant the right: see \
                         docs/configuration.md"
                    );
                }
                Ok(Arc::default())
            }
        }
    }

    async fn read(&self, named: &Named) -> Read {
        if is_no_workload(&named.object) {
            return Read::Forbidden;
        }
        match self.get(&named.object).await {
            Ok((object, weight)) if object.uid == named.uid => {
                self.owners.add_size(&named.object.namespace, named, weight);
                Read::Object(object)
            }
            Ok(_) => Read::Failed(format!("Owner resource with uid {} not found", named.uid)),
            Err(ReadError::Refused(error)) if is_forbidden(&error) => Read::Forbidden,
            Err(error) => Read::Failed(error.cause()),
        }
    }

    /// An object and its memory size.
    async fn get(&self, wanted: &Reference) -> Result<(Arc<Workload>, usize), ReadError> {
        check_names(wanted).map_err(ReadError::Unusable)?;
        let _permit = self.reads.take(&wanted.namespace, 1).await;
        let late = |_| ReadError::Unanswered("the API server does not answer".to_owned());
        let mut text = timeout(self.max_wait, self.text_of(wanted)).await.map_err(late)??;
        let failed = |why: &dyn std::fmt::Display| ReadError::Unusable(format!("it cannot be read: {why}"));
        let weigh = |text: &[u8]| weight::of(text, weight::Kind::Other, limits::OWNER_BYTES);
        let mut weight = weigh(&text);
        if weight.is_err()
            && let Some(reduced) = reduced::reduced(&text)
        {
            weight = weigh(&reduced);
            text = reduced;
        }
        let weight = weight.map_err(|why| failed(&why))?;
        let object = serde_json::from_slice(&text).map_err(|error| failed(&error))?;
        let workload = Workload::of_object(&wanted.api_version, &wanted.kind, object);
        Ok((Arc::new(workload), weight))
    }

    async fn text_of(&self, wanted: &Reference) -> Result<Vec<u8>, ReadError> {
        let (resource, scope) = self
            .resource(&wanted.api_version, &wanted.kind)
            .await
            .map_err(ReadError::Refused)?;
        if scope == Scope::Cluster {
            let forbidden = kube::core::Status::failure("it belongs to no namespace", "Forbidden").with_code(403);
            return Err(ReadError::Refused(kube::Error::Api(forbidden.boxed())));
        }
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &wanted.namespace, &resource);
        let request = Request::new(api.resource_url()).get(&wanted.name, &GetParams::default());
        let request = request.map_err(|error| ReadError::Unusable(error.to_string()))?;
        let answer = self.client.request_stream(request).await.map_err(ReadError::Refused)?;
        let (mut text, most) = (Vec::new(), limits::OWNER_BYTES as u64 + 1);
        let read = pin!(answer.take(most)).read_to_end(&mut text).await;
        read.map_err(|error| ReadError::Unanswered(error.to_string()))?;
        Ok(text)
    }

    /// The API resource of a kind. Built-in workload kinds need no discovery.
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

/// Whether it is of a kind that the binder reads, such as a claim for a volume, and KAI's grouper may not.
fn is_no_workload(wanted: &Reference) -> bool {
    match split_api_version(&wanted.api_version).0 {
        "" => wanted.kind != "Pod",
        group => group == "resource.k8s.io",
    }
}

/// A walk from a pod upwards, one owner at a time; the caller reads the owners.
pub struct Walk<'a> {
    namespace: &'a str,
    name: &'a str,
    chain: Vec<Arc<Workload>>,
    next: Option<OwnerReference>,
    opted_out: bool,
}

impl<'a> Walk<'a> {
    /// Starts at the pod.
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
    /// If the owners form a cycle.
    pub fn next(&self) -> Result<Option<&OwnerReference>, OwnerError> {
        let Some(owner) = &self.next else { return Ok(None) };
        if self.chain.len() == limits::OWNER_DEPTH || self.chain.iter().any(|seen| seen.uid == owner.uid) {
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
    /// If it has several owners and none of them is its controller.
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

    /// The error for an owner that does not exist.
    #[must_use]
    pub fn not_found(&self, owner: &OwnerReference, cause: String) -> OwnerError {
        OwnerError::NotFound {
            kind: shown(&owner.kind),
            namespace: self.namespace.to_owned(),
            name: shown(&owner.name),
            uid: shown(&owner.uid),
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
                let named = several
                    .iter()
                    .map(|owner| format!("{} {}", shown(&owner.kind), shown(&owner.name)));
                let mut listed: Vec<String> = named.take(LISTED_MAX).collect();
                if several.len() > LISTED_MAX {
                    listed.push("…".to_owned());
                }
                listed.join(", ")
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

/// Why a read failed.
enum ReadError {
    /// The API server answered with an error, or there was no connection.
    Refused(kube::Error),
    /// The request timed out, or the answer broke off; the reason.
    Unanswered(String),
    /// No request was sent, or the answer could not be parsed; the reason.
    Unusable(String),
}

impl ReadError {
    /// The reason, in words.
    fn cause(&self) -> String {
        match self {
            Self::Refused(error) => words(error),
            Self::Unanswered(cause) | Self::Unusable(cause) => cause.clone(),
        }
    }

    /// Whether a later read may succeed without a change of the object or of a right.
    fn may_pass(&self) -> bool {
        match self {
            Self::Refused(error) => !is_absent(error) && !is_forbidden(error),
            Self::Unanswered(_) => true,
            Self::Unusable(_) => false,
        }
    }
}

/// Whether a text can be a name, and so a part of a request path, with these characters beside letters and digits.
#[must_use]
pub fn is_name(text: &str, others: &[char]) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || others.contains(&c);
    !text.is_empty() && text.len() <= NAME_BYTES && text.chars().all(fits) && !text.starts_with('.')
}

/// Whether the strings of a reference are valid names: they become part of a request path.
fn check_names(wanted: &Reference) -> Result<(), String> {
    let (group, version) = split_api_version(&wanted.api_version);
    let parts = [
        (
            "apiVersion",
            &*wanted.api_version,
            (group.is_empty() || is_name(group, &['-', '.'])) && is_name(version, &[]),
        ),
        ("kind", &*wanted.kind, is_name(&wanted.kind, &[])),
        ("namespace", &*wanted.namespace, is_name(&wanted.namespace, &['-'])),
        ("name", &*wanted.name, is_name(&wanted.name, &['-', '.', '_', ':'])),
    ];
    match parts.iter().find(|(_, _, valid)| !valid) {
        Some((what, text, _)) => Err(no_name(what, text)),
        None => Ok(()),
    }
}

/// Whether it can be the value of a label, if it is a name.
fn is_label_value(name: &str) -> bool {
    name.len() <= label::VALUE_LENGTH_MAX && !name.starts_with('-') && !name.ends_with(['-', '.'])
}

fn no_name(what: &str, text: &str) -> String {
    let start: String = text.chars().take(NAME_SHOWN).collect();
    format!("{what} {start:?} is no valid name")
}

/// A name as messages show it: whole, unless no object has one as long.
fn shown(name: &str) -> String {
    if name.len() <= NAME_BYTES {
        return name.to_owned();
    }
    let start: String = name.chars().take(NAME_SHOWN).collect();
    start + "…"
}

/// The message of an error, without the rest of the status that the API server answered with.
fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
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
