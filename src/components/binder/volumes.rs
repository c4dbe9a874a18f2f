//! Volumes of `WaitForFirstConsumer` claims: an existing volume gets its `claimRef`, for any other the claim gets the selected-node annotation; then waits
//! until all claims are bound.
//!
//! Each step is idempotent. If the bind fails, unbound volumes lose their `claimRef`
//! again, and claims the annotation, so that the pod may be placed on another node; if other open binds wait for the claim, the last of them does that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::requests::{Caller, RequestError};
use super::volume_turns::Write;
use crate::api::names::volume as names;
use crate::components::bus::OrderedBind;
use crate::components::pods;
use crate::components::retry::Failure;
use crate::components::watches::Stores;
use crate::engine::decision::Promise;
use crate::mirror::volumes::{bound_to, reaches, references};

/// Maximum interval between checks of the claims and of the pod while waiting.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Attempts after conflicts.
const ATTEMPTS: usize = 4;

/// The volumes of one bind.
pub struct Volumes<'a> {
    /// Sends the requests.
    pub caller: &'a Caller,
    /// The watched objects.
    pub stores: &'a Stores,
    /// The ordered bind.
    pub bind: &'a OrderedBind,
}

/// Writes to undo if the bind fails, by namespace and name of the claim.
#[derive(Debug, Default)]
pub struct Written(Vec<(Arc<str>, Write)>);

/// The promises of an interrupted bind, recovered from its writes. `None`: they are incomplete. A claim that has its volume by now is one of them, as it may have
/// got it by the bind of another pod, where this pod's node cannot use it.
#[must_use]
pub fn promised(stores: &Stores, pod: &Pod, node: &str) -> Option<Vec<Promise>> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut promises = Vec::new();
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    for (name, _) in references(pod_name, pod.spec.as_ref()) {
        let claim = stores.persistent_volume_claims.get(namespace, &name)?;
        let selected = claim.annotations().get(names::SELECTED_NODE);
        let volume = if let Some(volume) = bound_to(&claim) {
            Some(volume.into())
        } else if selected.is_some_and(|selected| selected == node) {
            None
        } else {
            let volumes = stores.persistent_volumes.list();
            let claimed = volumes.iter().find(|volume| belongs_to(volume, &claim))?;
            Some(claimed.name_any().into())
        };
        let claim = format!("{namespace}/{name}").into();
        promises.push(Promise { claim, volume });
    }
    Some(promises)
}

impl Volumes<'_> {
    /// Ensures that every claim of the pod has its volume. `written` receives the writes to undo, also on errors.
    ///
    /// # Errors
    /// Why the pod cannot be bound.
    pub async fn provide(&self, written: &mut Written) -> Result<(), RequestError> {
        let deadline = Instant::now() + self.caller.context.settings.volume_binding_timeout;
        for promise in &self.bind.placement.volumes {
            let claim = self.claim(promise)?;
            if bound_to(&claim).is_some() {
                continue;
            }
            let _turn = self.caller.volume_turns.next(&promise.claim).await;
            // It may have got its volume meanwhile.
            let claim = self.claim(promise)?;
            if bound_to(&claim).is_some() {
                continue;
            }
            match &promise.volume {
                Some(volume) => {
                    let write = Write::Reference(Arc::clone(volume), Arc::clone(&claim));
                    written.0.push((Arc::clone(&promise.claim), write));
                    self.set_claim_ref(volume, &claim).await?;
                }
                None => self.select_node(promise, &claim, written).await?,
            }
        }
        self.wait(deadline).await
    }

    /// The watched claim of a promise.
    fn claim(&self, promise: &Promise) -> Result<Arc<PersistentVolumeClaim>, RequestError> {
        let (namespace, name) = promise.claim.split_once('/').unwrap_or_default();
        let claim = self.stores.persistent_volume_claims.get(namespace, name);
        claim
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| not_found(name))
    }

    fn claims_api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.caller.context.writes.clone(), &self.bind.placement.pod.namespace)
    }

    async fn volume(&self, name: &str) -> Result<Option<PersistentVolume>, RequestError> {
        let api: Api<PersistentVolume> = Api::all(self.caller.context.reads.clone());
        self.caller.call("look at a volume", || api.get_opt(name)).await
    }

    async fn patch_volume(&self, name: &str, patch: Value) -> Result<(), RequestError> {
        let api: Api<PersistentVolume> = Api::all(self.caller.context.writes.clone());
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        let patched = self
            .caller
            .call("change the claim of a volume", || api.patch(name, &params, &patch))
            .await;
        patched.map(drop)
    }

    /// Writes the `claimRef` of an existing volume.
    async fn set_claim_ref(&self, volume: &str, claim: &PersistentVolumeClaim) -> Result<(), RequestError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let found = self.volume(volume).await?;
            let found = found.ok_or_else(|| refused(format!("persistentvolume {volume:?} not found")))?;
            if belongs_to(&found, claim) {
                return Ok(());
            }
            let meant = found.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let for_another = meant.is_some_and(|meant| {
                (&meant.namespace, &meant.name) != (&claim.metadata.namespace, &claim.metadata.name)
                    || meant.uid.is_some()
            });
            if for_another {
                return Err(refused(format!("persistentvolume {volume:?} has another claim by now")));
            }
            // A `claimRef` set by the volume's creator is not marked as bound by a controller.
            let annotations = match meant {
                None => json!({names::BOUND_BY_CONTROLLER: "yes"}),
                Some(_) => json!({}),
            };
            let reference = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.metadata.namespace,
                "name": claim.metadata.name, "uid": claim.metadata.uid,
            });
            let metadata = json!({"resourceVersion": found.metadata.resource_version, "annotations": annotations});
            let patch = json!({"metadata": metadata, "spec": {"claimRef": reference}});
            match self.patch_volume(volume, patch).await {
                Err(error) if error.failure == Failure::Conflict => last = Some(error),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(|| refused(format!("persistentvolume {volume:?} cannot be had"))))
    }

    /// Writes the selected-node annotation of a claim.
    async fn select_node(
        &self,
        promise: &Promise,
        claim: &Arc<PersistentVolumeClaim>,
        written: &mut Written,
    ) -> Result<(), RequestError> {
        let (node, name) = (&self.bind.placement.node, claim.name_any());
        let mut selected = claim.annotations().get(names::SELECTED_NODE).cloned();
        if selected.is_some() {
            // Another bind may have removed it, and the watch be behind.
            let found = self.read_claim(claim).await?.ok_or_else(|| not_found(&name))?;
            selected = found.annotations().get(names::SELECTED_NODE).cloned();
        }
        if let Some(other) = selected.as_deref().filter(|selected| *selected != &**node) {
            return Err(refused(format!(
                "a volume for persistentvolumeclaim {name:?} is being made for node {other}"
            )));
        }
        let write = Write::Node(Arc::clone(node), Arc::clone(claim));
        written.0.push((Arc::clone(&promise.claim), write));
        if selected.is_some() {
            return Ok(());
        }
        self.annotate(claim, Some(node)).await
    }

    async fn annotate(&self, claim: &PersistentVolumeClaim, node: Option<&str>) -> Result<(), RequestError> {
        let metadata = json!({"uid": claim.metadata.uid, "annotations": {names::SELECTED_NODE: node}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let (api, name, params) = (self.claims_api(), claim.name_any(), PatchParams::default());
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let written = self
                .caller
                .call("write the selected node of a claim", || {
                    api.patch(&name, &params, &patch)
                })
                .await;
            match written {
                Ok(_) => return Ok(()),
                Err(error) if error.failure == Failure::Conflict => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Waits until all claims are bound to volumes that can be used on the node.
    async fn wait(&self, deadline: Instant) -> Result<(), RequestError> {
        let mut changes = self.stores.persistent_volume_claims.changes();
        let context = &self.caller.context;
        // The watch may be behind the last write.
        let mut seen = BTreeSet::new();
        loop {
            let mut missing = None;
            for promise in &self.bind.placement.volumes {
                let claim = self.claim(promise)?;
                if bound_to(&claim).is_some() {
                    continue;
                }
                let name = claim.name_any();
                if claim.annotations().contains_key(names::SELECTED_NODE) {
                    seen.insert(name.clone());
                } else if promise.volume.is_none() && seen.contains(&name) && !self.is_under_way(&claim).await? {
                    return Err(refused(format!("provisioning failed for PVC {name:?}")));
                }
                missing = Some(name);
            }
            let Some(missing) = missing else {
                return self.check_reach().await;
            };
            if Instant::now() >= deadline {
                return Err(refused(format!("timed out waiting for PVC {missing:?} to be bound")));
            }
            self.check_pod()?;
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(deadline.min(Instant::now() + CHECK_INTERVAL)) => {}
                () = context.shutdown.cancelled() => return Err(refused("the process is shutting down".to_owned())),
            }
            if !context.is_leading() {
                return Err(refused("this process does not lead".to_owned()));
            }
        }
    }

    /// Whether the API server's claim has a node or a volume. The watch may show first how another bind removed the node, and then how this one wrote it again.
    async fn is_under_way(&self, claim: &PersistentVolumeClaim) -> Result<bool, RequestError> {
        let found = self.read_claim(claim).await?;
        Ok(found
            .is_some_and(|found| bound_to(&found).is_some() || found.annotations().contains_key(names::SELECTED_NODE)))
    }

    /// Checks the node affinity of a bound volume, which may have been provisioned for another node or bound by another client.
    async fn check_reach(&self) -> Result<(), RequestError> {
        let node = self.stores.nodes.get("", &self.bind.placement.node);
        for promise in &self.bind.placement.volumes {
            let claim = self.claim(promise)?;
            let name = bound_to(&claim).unwrap_or_default();
            let volume = match self.stores.persistent_volumes.get("", name) {
                Some(volume) => Some(volume),
                None => self.volume(name).await?.map(Arc::new),
            };
            let volume = volume.ok_or_else(|| refused(format!("persistentvolume {name:?} not found")))?;
            if !node.as_ref().is_some_and(|node| reaches(&volume, node)) {
                let node = &self.bind.placement.node;
                return Err(refused(format!(
                    "persistentvolume {name:?} cannot be used from node {node}"
                )));
            }
        }
        Ok(())
    }

    /// Checks that the pod still exists unbound.
    fn check_pod(&self) -> Result<(), RequestError> {
        let wanted = &self.bind.placement.pod;
        let pods = &self.stores.pods;
        let pod = pods.get_same(&wanted.namespace, &wanted.name, Some(&wanted.uid));
        let waits = pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none() && !pods::is_finished(&pod));
        waits.then_some(()).ok_or(RequestError {
            failure: Failure::Gone,
            why: "the pod is gone".to_owned(),
        })
    }

    /// Undoes the writes for unbound claims, also those that other binds have left to be undone. Claims that are being bound right now are not touched. The
    /// writes for claims that other open binds wait for are left to the last of these.
    pub async fn undo(&self, written: &Written) {
        let turns = &self.caller.volume_turns;
        for Promise { claim, .. } in &self.bind.placement.volumes {
            let _turn = turns.next(claim).await;
            let mut writes = turns.take(claim);
            let own = written.0.iter().filter(|(of, _)| of == claim);
            writes.extend(own.map(|(_, write)| write.clone()));
            if self.caller.open_claims.has(claim) {
                turns.leave(claim, writes);
                continue;
            }
            for write in &writes {
                let undone = match write {
                    Write::Node(node, claim) => self.clear_node(node, claim).await,
                    Write::Reference(volume, claim) => self.clear_claim_ref(volume, claim).await,
                };
                if let Err(error) = undone {
                    debug!(error = error.why, %claim, "the claim keeps its node or volume");
                }
            }
        }
    }

    /// Forgets what other binds have left to be undone: the claims have their volumes.
    pub fn keep(&self) {
        for promise in &self.bind.placement.volumes {
            self.caller.volume_turns.take(&promise.claim);
        }
    }

    /// Removes the annotation of a claim that names the node, unless the claim is being bound.
    async fn clear_node(&self, node: &str, claim: &PersistentVolumeClaim) -> Result<(), RequestError> {
        let found = self.unbound(claim).await?;
        let selected = found
            .as_ref()
            .and_then(|found| found.annotations().get(names::SELECTED_NODE));
        if selected.is_some_and(|selected| selected == node) {
            self.annotate(claim, None).await?;
        }
        Ok(())
    }

    /// Removes a volume's `claimRef`, unless the two are being bound.
    async fn clear_claim_ref(&self, volume: &str, claim: &PersistentVolumeClaim) -> Result<(), RequestError> {
        for _ in 0..ATTEMPTS {
            let Some(found) = self.volume(volume).await? else {
                return Ok(());
            };
            let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
            if !belongs_to(&found, claim) || phase == Some("Bound") || self.unbound(claim).await?.is_none() {
                return Ok(());
            }
            let before = if found.annotations().contains_key(names::BOUND_BY_CONTROLLER) {
                Value::Null
            } else {
                json!({"uid": null, "resourceVersion": null})
            };
            let annotations = json!({names::BOUND_BY_CONTROLLER: null});
            let metadata = json!({"resourceVersion": found.metadata.resource_version, "annotations": annotations});
            let patch = json!({"metadata": metadata, "spec": {"claimRef": before}});
            match self.patch_volume(volume, patch).await {
                Err(error) if error.failure == Failure::Conflict => {}
                done => return done,
            }
        }
        Ok(())
    }

    /// The claim as the API server has it.
    async fn read_claim(&self, claim: &PersistentVolumeClaim) -> Result<Option<PersistentVolumeClaim>, RequestError> {
        let namespace = &self.bind.placement.pod.namespace;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.caller.context.reads.clone(), namespace);
        let name = claim.name_any();
        let found = self.caller.call("read a claim", || api.get_opt(&name)).await?;
        Ok(found.filter(|found| found.metadata.uid == claim.metadata.uid))
    }

    /// The same, if it names no volume.
    async fn unbound(&self, claim: &PersistentVolumeClaim) -> Result<Option<PersistentVolumeClaim>, RequestError> {
        let found = self.read_claim(claim).await?;
        Ok(found.filter(|found| {
            let volume = found.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            volume.is_none_or(str::is_empty)
        }))
    }
}

fn not_found(claim: &str) -> RequestError {
    refused(format!("persistentvolumeclaim {claim:?} not found"))
}

fn refused(why: String) -> RequestError {
    RequestError {
        failure: Failure::Refused,
        why,
    }
}

/// Whether a volume's `claimRef` has this claim's uid.
fn belongs_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let named = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    named.is_some_and(|named| {
        (&named.namespace, &named.name, &named.uid)
            == (&claim.metadata.namespace, &claim.metadata.name, &claim.metadata.uid)
    })
}
