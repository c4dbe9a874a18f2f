//! Resource claims of a pod, before its Binding: each is allocated and reserved for the pod, and released if the bind fails.
//!
//! Every step is idempotent. What a bind leaves behind is given back later ([`super::stray_claims`]). A claim for extended resources has a name derived from
//! the pod, so that it is found again. Absent: binding conditions; devices with them are never allocated.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClaim, ResourceClaim, ResourceClaimConsumerReference, ResourceClaimSpec,
    ResourceClaimStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::claim_turns::{ClaimTurns, TURN};
use crate::api::bind_request::ExtendedResourceClaimAllocation;
use crate::api::names::{annotation, finalizer};
use crate::components::Context;
use crate::components::bus::{OrderedBind, PodRef};
use crate::components::pods;
use crate::components::retry::{Backoff, Failure, LATE, failure};
use crate::components::watches::Key;
use crate::engine::placement::claims::MOST_CONSUMERS;
use crate::mirror::claims::requests;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts per step.
const TRIES: u32 = 6;
/// Backoff between attempts: initial and maximum.
const AGAIN: Backoff = Backoff {
    first: Duration::from_millis(10),
    longest: Duration::from_secs(1),
};

/// The fields of a claim that a bind reads, which are the same in all versions of the API.
#[derive(Clone, Debug, Deserialize)]
struct ClaimState {
    metadata: ObjectMeta,
    status: Option<ResourceClaimStatus>,
}

impl Resource for ClaimState {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        ResourceClaim::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        ResourceClaim::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        <ResourceClaim as Resource>::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        ResourceClaim::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The claims of one pod that is to be bound.
pub struct Claims<'a> {
    writer: ClaimWriter<'a>,
    bind: &'a OrderedBind,
}

impl<'a> Claims<'a> {
    /// The claims of a bind.
    #[must_use]
    pub fn of(context: &'a Context, bind: &'a OrderedBind, turns: Arc<ClaimTurns>) -> Self {
        let writer = ClaimWriter::new(context, &bind.placement.pod, turns);
        Self { writer, bind }
    }

    fn pod(&self) -> &'a PodRef {
        self.writer.pod
    }

    /// Names of the pod's claims, and the allocation of each.
    fn named(&self) -> impl Iterator<Item = (&'a str, Option<&'a AllocationResult>)> {
        let grants = self
            .bind
            .placement
            .claims
            .iter()
            .filter(|grant| grant.reference.is_some());
        let given = self.bind.given.named.iter().map(|given| given.allocation.as_ref());
        grants
            .zip(given)
            .map(|(grant, given)| (grant.claim.rsplit('/').next().unwrap_or_default(), given))
    }

    /// Allocates all claims and reserves them for the pod.
    ///
    /// # Errors
    /// If one fails; others may have been written.
    pub async fn reserve(&self) -> Result<(), String> {
        let writer = &self.writer;
        for (name, given) in self.named() {
            let given = given.ok_or_else(|| format!("claim {name} is given nothing"))?;
            writer.repeat(name, || writer.reserve_one(name, given)).await?;
        }
        if let Some(extended) = &self.bind.given.extended {
            let name = extended_name(self.pod());
            let given = extended
                .allocation
                .as_ref()
                .ok_or("the claim for extended resources is given nothing")?;
            writer.repeat(&name, || writer.create(&name, extended)).await?;
            writer.repeat(&name, || writer.reserve_one(&name, given)).await?;
            writer
                .repeat(&name, || writer.tell_pod(Some((&name, extended))))
                .await?;
        }
        Ok(())
    }

    /// Undoes [`Claims::reserve`]. What fails is found later among the claims that are reserved for pods without a node.
    pub async fn release(&self) {
        let writer = &self.writer;
        for (name, _) in self.named() {
            if let Err(error) = writer.repeat(name, || writer.release_one(name)).await {
                writer.not_released(name, &error);
            }
        }
        if self.bind.given.extended.is_some() {
            let name = extended_name(self.pod());
            if let Err(error) = writer.repeat(&name, || writer.remove(&name)).await {
                writer.not_released(&name, &error);
            }
        }
    }
}

/// Writes the claims of one pod.
pub struct ClaimWriter<'a> {
    context: &'a Context,
    pod: &'a PodRef,
    turns: Arc<ClaimTurns>,
}

impl<'a> ClaimWriter<'a> {
    /// For the claims of this pod.
    #[must_use]
    pub fn new(context: &'a Context, pod: &'a PodRef, turns: Arc<ClaimTurns>) -> Self {
        Self { context, pod, turns }
    }

    fn api(&self) -> Api<ClaimState> {
        Api::namespaced(self.context.writes.clone(), &self.pod.namespace)
    }

    fn key(&self, name: &str) -> Key {
        Key {
            namespace: self.pod.namespace.to_string(),
            name: name.to_owned(),
        }
    }

    /// Waits until no release of the claim that was given up can take effect any more: it would take the claim from the pod.
    async fn settled(&self, claim: &Key) {
        if let Some(at) = self.turns.unsettled_until(claim) {
            sleep_until(at).await;
        }
    }

    /// A release failed, and may take effect later.
    fn not_released(&self, name: &str, error: &str) {
        warn!(ns = %self.pod.namespace, name, error, "claim not released");
        self.turns.not_settled(self.key(name), Instant::now() + LATE);
    }

    /// Takes a claim from the pod, unless the pod has a node or is being bound.
    pub async fn give_back(&self, name: &str) {
        // Every bind of the pod that begins from now on waits for this turn before it reads the claim.
        let _turn = self.turns.next(&self.key(name)).await;
        if self.turns.is_binding(&self.pod.uid) {
            return;
        }
        let (why, may_take_effect) = match timeout(TIMEOUT, self.take_from_waiting(name)).await {
            Ok(Ok(false)) => return,
            Ok(Ok(true)) => {
                info!(ns = %self.pod.namespace, name, pod = %self.pod.name, "claim given back: its pod has no node");
                return;
            }
            Ok(Err(StepError::Request(error))) => (error.to_string(), failure(&error) == Failure::Unknown),
            Ok(Err(StepError::Final(why))) => (why, false),
            Err(_) => ("no answer".to_owned(), true),
        };
        if may_take_effect {
            self.not_released(name, &why);
        } else {
            debug!(ns = %self.pod.namespace, name, why, "claim not given back; it is looked at again");
        }
    }

    async fn take_from_waiting(&self, name: &str) -> Result<bool, StepError> {
        let pods: Api<Pod> = Api::namespaced(self.context.reads.clone(), &self.pod.namespace);
        let pod = pods.get_opt(&self.pod.name).await?;
        let waits = |pod: &Pod| pod.metadata.uid.as_deref() == Some(&*self.pod.uid) && !pods::is_bound(pod);
        if !pod.is_some_and(|pod| waits(&pod)) {
            return Ok(false);
        }
        if name == extended_name(self.pod) {
            self.remove(name).await?;
        } else {
            self.release_one(name).await?;
        }
        Ok(true)
    }

    /// Repeats a step after a conflict, throttling or a timeout. Each step reads the current state first.
    async fn repeat<F>(&self, name: &str, step: impl Fn() -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), StepError>>,
    {
        let claim = self.key(name);
        let mut last = String::new();
        for tries in 1..=TRIES {
            let turn = timeout(TURN, self.turns.next(&claim)).await.ok();
            self.settled(&claim).await;
            let answer = timeout(TIMEOUT, step()).await;
            drop(turn);
            let error = match answer {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(StepError::Final(why))) => return Err(why),
                Ok(Err(StepError::Request(error))) => match failure(&error) {
                    Failure::Gone | Failure::Refused => return Err(format!("claim {name}: {error}")),
                    Failure::Conflict | Failure::Busy | Failure::Unknown => error.to_string(),
                },
                Err(_) => format!("no answer after {} s", TIMEOUT.as_secs()),
            };
            debug!(ns = %self.pod.namespace, name, error, tries, "claim not written");
            last = format!("claim {name}: {error}");
            sleep(AGAIN.wait(tries)).await;
            if !self.context.is_leading() {
                break;
            }
        }
        Err(last)
    }

    async fn reserve_one(&self, name: &str, given: &AllocationResult) -> Result<(), StepError> {
        let mut claim = self.api().get(name).await?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(StepError::Final(format!("claim {name} is being deleted")));
        }
        let status = claim.status.get_or_insert_default();
        let mut consumers = status.reserved_for.iter().flatten();
        let is_reserved = consumers.clone().any(|consumer| consumer.uid == *self.pod.uid);
        // The scheduler does not know of reservations that other schedulers write at the same time.
        if !is_reserved && consumers.nth(MOST_CONSUMERS - 1).is_some() {
            return Err(StepError::Final(format!(
                "claim {name} has reached its maximum number of consumers ({MOST_CONSUMERS})"
            )));
        }
        if let Some(has) = &status.allocation {
            if requests::allocated(has) != requests::allocated(given) {
                return Err(StepError::Final(format!(
                    "claim {name} has been given other devices meanwhile"
                )));
            }
            if is_reserved {
                return Ok(());
            }
        } else {
            let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
            if finalizers
                .iter()
                .all(|finalizer| finalizer != finalizer::DELETE_PROTECTION)
            {
                finalizers.push(finalizer::DELETE_PROTECTION.to_owned());
                claim = self.set_finalizers(name, &claim, &finalizers).await?;
            }
        }
        let status = claim.status.get_or_insert_default();
        status.allocation.get_or_insert_with(|| given.clone());
        let consumers = status.reserved_for.get_or_insert_default();
        if consumers.iter().all(|consumer| consumer.uid != *self.pod.uid) {
            consumers.push(self.consumer());
        }
        self.set_status(name, &claim).await.map(drop)
    }

    fn consumer(&self) -> ResourceClaimConsumerReference {
        ResourceClaimConsumerReference {
            api_group: None,
            resource: "pods".to_owned(),
            name: self.pod.name.to_string(),
            uid: self.pod.uid.to_string(),
        }
    }

    async fn release_one(&self, name: &str) -> Result<(), StepError> {
        let Some(mut claim) = self.api().get_opt(name).await? else {
            return Ok(());
        };
        let Some(status) = &mut claim.status else { return Ok(()) };
        let consumers = status.reserved_for.get_or_insert_default();
        let before = consumers.len();
        consumers.retain(|consumer| consumer.uid != *self.pod.uid);
        if consumers.len() == before {
            return Ok(());
        }
        if consumers.is_empty() {
            status.reserved_for = None;
            status.allocation = None;
        }
        self.set_status(name, &claim).await.map(drop)
    }

    /// Writes the claim's allocation and reservation, unless the claim has changed since it was read. No other field is written, since other versions
    /// of the API have other fields.
    async fn set_status(&self, name: &str, claim: &ClaimState) -> Result<ClaimState, StepError> {
        let status = claim.status.as_ref();
        let status = json!({
            "allocation": status.and_then(|status| status.allocation.as_ref()),
            "reservedFor": status.and_then(|status| status.reserved_for.as_ref()),
        });
        let metadata = json!({"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version});
        let patch = json!({"metadata": metadata, "status": status});
        let api = self.api();
        Ok(api
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?)
    }

    async fn set_finalizers(
        &self,
        name: &str,
        claim: &ClaimState,
        finalizers: &[String],
    ) -> Result<ClaimState, StepError> {
        let metadata = &claim.metadata;
        let metadata =
            json!({"uid": metadata.uid, "resourceVersion": metadata.resource_version, "finalizers": finalizers});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        Ok(self.api().patch(name, &PatchParams::default(), &patch).await?)
    }

    // --- the claim for extended resources ---

    async fn create(&self, name: &str, extended: &ExtendedResourceClaimAllocation) -> Result<(), StepError> {
        if self.api().get_metadata_opt(name).await?.is_some() {
            return Ok(());
        }
        let claim = ResourceClaim {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(self.pod.namespace.to_string()),
                annotations: Some(BTreeMap::from([(
                    annotation::EXTENDED_RESOURCE_CLAIM.to_owned(),
                    "true".to_owned(),
                )])),
                finalizers: Some(vec![finalizer::DELETE_PROTECTION.to_owned()]),
                owner_references: Some(vec![OwnerReference {
                    api_version: Pod::api_version(&()).into_owned(),
                    kind: Pod::kind(&()).into_owned(),
                    name: self.pod.name.to_string(),
                    uid: self.pod.uid.to_string(),
                    controller: Some(true),
                    // Blocking the pod's deletion would need a right to its finalizers, where the API server checks that.
                    block_owner_deletion: None,
                }]),
                ..ObjectMeta::default()
            },
            spec: ResourceClaimSpec {
                devices: Some(DeviceClaim {
                    requests: Some(extended.device_requests.clone()),
                    ..DeviceClaim::default()
                }),
            },
            status: None,
        };
        let api: Api<ResourceClaim> = Api::namespaced(self.context.writes.clone(), &self.pod.namespace);
        api.create(&PostParams::default(), &claim).await?;
        Ok(())
    }

    /// Writes the claim for extended resources into the pod's status, or removes it.
    async fn tell_pod(&self, claim: Option<(&str, &ExtendedResourceClaimAllocation)>) -> Result<(), StepError> {
        let pods: Api<Pod> = Api::namespaced(self.context.writes.clone(), &self.pod.namespace);
        let status = claim
            .map(|(name, extended)| json!({"resourceClaimName": name, "requestMappings": extended.container_mappings}));
        let patch = json!({"metadata": {"uid": *self.pod.uid}, "status": {"extendedResourceClaimStatus": status}});
        pods.patch_status(&self.pod.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    /// Removes the claim for the pod's extended resources.
    async fn remove(&self, name: &str) -> Result<(), StepError> {
        self.tell_pod(None).await?;
        self.delete(name).await
    }

    async fn delete(&self, name: &str) -> Result<(), StepError> {
        let Some(mut claim) = self.api().get_opt(name).await? else {
            return Ok(());
        };
        if claim.status.as_ref().is_some_and(|status| status.allocation.is_some()) {
            claim.status = None;
            claim = self.set_status(name, &claim).await?;
        }
        let uid = claim.metadata.uid.clone();
        let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|one| one != finalizer::DELETE_PROTECTION);
        self.set_finalizers(name, &claim, &finalizers).await?;
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match self.api().delete(name, &params).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop).map_err(StepError::Request),
        }
    }
}

/// Why a step was not done.
enum StepError {
    /// The request failed.
    Request(kube::Error),
    /// The step is impossible, with the reason.
    Final(String),
}

impl From<kube::Error> for StepError {
    fn from(error: kube::Error) -> Self {
        Self::Request(error)
    }
}

/// The name of the claim for a pod's extended resources, derived from the pod.
fn extended_name(pod: &PodRef) -> String {
    let digest = Sha256::digest(pod.uid.as_bytes());
    let short: String = digest.iter().take(5).map(|byte| format!("{byte:02x}")).collect();
    // Names end at 253 characters.
    let start: String = pod.name.chars().take(220).collect();
    format!("{start}-extended-resources-{short}")
}
