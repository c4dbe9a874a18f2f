//! Volumes for claims that waited for a pod: a volume that exists is given its claim, for any other the claim is told the node; then it is waited for
//! until all of them are bound.
//!
//! Each step looks first what is there, so that going through it again does no harm. If the bind fails, volumes that are not bound yet lose their claim
//! again, and claims the node, so that the pod may go elsewhere.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::requests::{Caller, Trouble};
use crate::api::names::volume as names;
use crate::components::bus::OrderedBind;
use crate::components::pods;
use crate::components::retry::Failure;
use crate::components::watches::Stores;
use crate::engine::decision::Promise;
use crate::mirror::volumes::{bound_to, reaches, references};

/// What is waited for is looked at at least this often, and so is the pod that waits.
const LOOK: Duration = Duration::from_secs(1);
/// How often an object that somebody else changed is looked at again.
const LOOKS: usize = 4;

/// The volumes of one bind.
pub struct Volumes<'a> {
    /// Sends the requests.
    pub caller: &'a Caller,
    /// What the watches show.
    pub stores: &'a Stores,
    /// What is to be done.
    pub bind: &'a OrderedBind,
}

/// What is to be taken back if the bind fails.
#[derive(Debug, Default)]
pub struct Written {
    /// Claims that were told the node.
    told: Vec<Arc<PersistentVolumeClaim>>,
    /// Volumes that were given their claim.
    given: Vec<(String, Arc<PersistentVolumeClaim>)>,
}

/// What a bind that was cut short had promised the claims of its pod, as its writes show. `None`: they do not show all.
#[must_use]
pub fn promised(stores: &Stores, pod: &Pod, node: &str) -> Option<Vec<Promise>> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let mut promises = Vec::new();
    for (name, _) in references(pod) {
        let claim = stores.persistent_volume_claims.get(namespace, &name)?;
        if bound_to(&claim).is_some() {
            continue;
        }
        let told = claim.annotations().get(names::SELECTED_NODE);
        let volume = if told.is_some_and(|told| told == node) {
            None
        } else {
            let volumes = stores.persistent_volumes.list();
            let given = volumes.iter().find(|volume| belongs_to(volume, &claim))?;
            Some(given.name_any().into())
        };
        let claim = format!("{namespace}/{name}").into();
        promises.push(Promise { claim, volume });
    }
    Some(promises)
}

impl Volumes<'_> {
    /// Makes sure that every claim of the pod has its volume. `written` is what to undo, whatever comes.
    ///
    /// # Errors
    /// Why the pod cannot be bound.
    pub async fn provide(&self, written: &mut Written) -> Result<(), Trouble> {
        let deadline = Instant::now() + self.caller.context.settings.volume_binding_timeout;
        for promise in &self.bind.placement.volumes {
            let claim = self.claim(promise)?;
            if bound_to(&claim).is_some() {
                continue;
            }
            match &promise.volume {
                Some(volume) => self.give(volume, &claim, written).await?,
                None => self.tell(&claim, written).await?,
            }
        }
        self.wait(deadline).await
    }

    /// The claim of a promise, as the watch shows it.
    fn claim(&self, promise: &Promise) -> Result<Arc<PersistentVolumeClaim>, Trouble> {
        let (namespace, name) = promise.claim.split_once('/').unwrap_or_default();
        let claim = self.stores.persistent_volume_claims.get(namespace, name);
        claim
            .filter(|claim| claim.metadata.deletion_timestamp.is_none())
            .ok_or_else(|| refused(format!("persistentvolumeclaim {name:?} not found")))
    }

    fn claims_api(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.caller.context.writes.clone(), &self.bind.placement.pod.namespace)
    }

    async fn volume(&self, name: &str) -> Result<Option<PersistentVolume>, Trouble> {
        let api: Api<PersistentVolume> = Api::all(self.caller.context.reads.clone());
        self.caller.call("look at a volume", || api.get_opt(name)).await
    }

    async fn patch_volume(&self, name: &str, patch: Value) -> Result<(), Trouble> {
        let api: Api<PersistentVolume> = Api::all(self.caller.context.writes.clone());
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        let patched = self
            .caller
            .call("change the claim of a volume", || api.patch(name, &params, &patch))
            .await;
        patched.map(drop)
    }

    /// Gives a volume that exists to a claim.
    async fn give(
        &self,
        volume: &str,
        claim: &Arc<PersistentVolumeClaim>,
        written: &mut Written,
    ) -> Result<(), Trouble> {
        written.given.push((volume.to_owned(), Arc::clone(claim)));
        let mut last = None;
        for _ in 0..LOOKS {
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
            // What its author meant for this claim was not bound by a controller.
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
                Err(trouble) if trouble.failure == Failure::Conflict => last = Some(trouble),
                done => return done,
            }
        }
        Err(last.unwrap_or_else(|| refused(format!("persistentvolume {volume:?} cannot be had"))))
    }

    /// Tells a claim the node for which its volume is to be made.
    async fn tell(&self, claim: &Arc<PersistentVolumeClaim>, written: &mut Written) -> Result<(), Trouble> {
        let node = &*self.bind.placement.node;
        if let Some(other) = claim
            .annotations()
            .get(names::SELECTED_NODE)
            .filter(|told| *told != node)
        {
            let name = claim.name_any();
            return Err(refused(format!(
                "a volume for persistentvolumeclaim {name:?} is being made for node {other}"
            )));
        }
        written.told.push(Arc::clone(claim));
        if claim.annotations().contains_key(names::SELECTED_NODE) {
            return Ok(());
        }
        self.annotate(claim, Some(node)).await
    }

    async fn annotate(&self, claim: &PersistentVolumeClaim, node: Option<&str>) -> Result<(), Trouble> {
        let metadata = json!({"uid": claim.metadata.uid, "annotations": {names::SELECTED_NODE: node}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        let (api, name, params) = (self.claims_api(), claim.name_any(), PatchParams::default());
        let mut last = None;
        for _ in 0..LOOKS {
            let written = self
                .caller
                .call("tell a claim its node", || api.patch(&name, &params, &patch))
                .await;
            match written {
                Ok(_) => return Ok(()),
                Err(trouble) if trouble.failure == Failure::Conflict => last = Some(trouble),
                Err(trouble) => return Err(trouble),
            }
        }
        last.map_or(Ok(()), Err)
    }

    /// Waits until all claims are bound, to volumes that can be used from the node.
    async fn wait(&self, deadline: Instant) -> Result<(), Trouble> {
        let mut changes = self.stores.persistent_volume_claims.changes();
        let context = &self.caller.context;
        // The watch may be behind what was just written.
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
                } else if promise.volume.is_none() && seen.contains(&name) {
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
            self.pod_waits()?;
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(deadline.min(Instant::now() + LOOK)) => {}
                () = context.shutdown.cancelled() => return Err(refused("the process is shutting down".to_owned())),
            }
            if !context.is_leading() {
                return Err(refused("this process does not lead".to_owned()));
            }
        }
    }

    /// A volume may have been made for another node before, or given by somebody else.
    async fn check_reach(&self) -> Result<(), Trouble> {
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

    /// The pod is still there to be bound.
    fn pod_waits(&self) -> Result<(), Trouble> {
        let wanted = &self.bind.placement.pod;
        let pod = self.stores.pods.get(&wanted.namespace, &wanted.name);
        let waits = pod.is_some_and(|pod| {
            pod.metadata.uid.as_deref() == Some(&*wanted.uid)
                && pod.metadata.deletion_timestamp.is_none()
                && !pods::is_finished(&pod)
        });
        waits.then_some(()).ok_or(Trouble {
            failure: Failure::Gone,
            why: "the pod is gone".to_owned(),
        })
    }

    /// Takes back what was written for claims that are not bound. What is being bound right now is left to be.
    pub async fn undo(&self, written: &Written) {
        for (volume, claim) in &written.given {
            if let Err(trouble) = self.take_back(volume, claim).await {
                debug!(error = trouble.why, volume, "the volume keeps its claim");
            }
        }
        for claim in &written.told {
            let told = match self.unbound(claim).await {
                Ok(true) => self.annotate(claim, None).await,
                Ok(false) => Ok(()),
                Err(trouble) => Err(trouble),
            };
            if let Err(trouble) = told {
                debug!(
                    error = trouble.why,
                    claim = claim.name_any(),
                    "the claim keeps its node"
                );
            }
        }
    }

    /// Takes a claim from a volume, unless somebody is about to bind the two.
    async fn take_back(&self, volume: &str, claim: &PersistentVolumeClaim) -> Result<(), Trouble> {
        for _ in 0..LOOKS {
            let Some(found) = self.volume(volume).await? else {
                return Ok(());
            };
            let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
            if !belongs_to(&found, claim) || phase == Some("Bound") || !self.unbound(claim).await? {
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
                Err(trouble) if trouble.failure == Failure::Conflict => {}
                done => return done,
            }
        }
        Ok(())
    }

    /// Whether a claim is still there and names no volume.
    async fn unbound(&self, claim: &PersistentVolumeClaim) -> Result<bool, Trouble> {
        let namespace = &self.bind.placement.pod.namespace;
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.caller.context.reads.clone(), namespace);
        let name = claim.name_any();
        let found = self.caller.call("look at a claim", || api.get_opt(&name)).await?;
        let found = found.filter(|found| found.metadata.uid == claim.metadata.uid);
        Ok(found.is_some_and(|found| {
            let volume = found.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            volume.is_none_or(str::is_empty)
        }))
    }
}

fn refused(why: String) -> Trouble {
    Trouble {
        failure: Failure::Refused,
        why,
    }
}

/// Whether a volume was given to this very claim.
fn belongs_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let named = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    named.is_some_and(|named| {
        (&named.namespace, &named.name, &named.uid)
            == (&claim.metadata.namespace, &claim.metadata.name, &claim.metadata.uid)
    })
}
