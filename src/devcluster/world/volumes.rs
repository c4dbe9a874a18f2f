//! Volumes: each claim gets one. A stand-in for the controller that binds volumes and for the provisioners of storage drivers.
//!
//! A claim gets the volume that it names or that names it, else the smallest that fits, else a new one; one whose class waits for a
//! consumer gets its volume when a scheduler has named a volume or a node. Absent: capacity, and any storage.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::informer::{Informer, Key};
use super::queue::{Again, WorkQueue};
use super::{Shared, spawn_watch};
use crate::api::names::volume as names;
use crate::api::quantity::Amount;

/// How many claims and volumes are worked on at once.
const AT_ONCE: usize = 16;
/// Where the volumes of drivers without zones are.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Where all others are.
const ZONE: &str = "topology.kubernetes.io/zone";

struct Volumes {
    shared: Arc<Shared>,
    claims: Arc<Informer<PersistentVolumeClaim>>,
    volumes: Arc<Informer<PersistentVolume>>,
    classes: Arc<Informer<StorageClass>>,
}

/// Spawns the controller and its watches.
pub(super) fn spawn(tasks: &mut JoinSet<&'static str>, shared: &Arc<Shared>) {
    let all = Volumes {
        shared: Arc::clone(shared),
        claims: Informer::new(),
        volumes: Informer::new(),
        classes: Informer::new(),
    };
    // Volumes are keyed by name alone.
    let queue: Arc<WorkQueue<Key>> = Arc::new(WorkQueue::new());
    let (changed, volumes) = (Arc::clone(&queue), Arc::downgrade(&all.volumes));
    all.claims.on_change(move |change| {
        changed.add(change.key.clone());
        // The volumes of a claim that is gone, whether they were bound or not.
        if let (Some(claim), None, Some(volumes)) = (change.old, change.new, volumes.upgrade()) {
            for volume in volumes.list().iter().filter(|volume| names(volume, claim)) {
                changed.add(Key::of(&volume.metadata));
            }
        }
    });
    let (changed, claims) = (Arc::clone(&queue), Arc::downgrade(&all.claims));
    all.volumes.on_change(move |change| {
        changed.add(change.key.clone());
        let unbound = claims.upgrade().into_iter().flat_map(|claims| claims.list());
        for claim in unbound.filter(|claim| !is_bound(claim)) {
            changed.add(Key::of(&claim.metadata));
        }
    });
    let (changed, claims) = (Arc::clone(&queue), Arc::downgrade(&all.claims));
    all.classes.on_change(move |_| {
        for claim in claims.upgrade().into_iter().flat_map(|claims| claims.list()) {
            changed.add(Key::of(&claim.metadata));
        }
    });
    spawn_watch(tasks, "watch of claims", &all.claims, &shared.client);
    spawn_watch(tasks, "watch of volumes", &all.volumes, &shared.client);
    spawn_watch(tasks, "watch of storage classes", &all.classes, &shared.client);
    let shared = Arc::clone(shared);
    tasks.spawn(async move {
        all.claims.synced().await;
        all.volumes.synced().await;
        all.classes.synced().await;
        queue.run(&shared.clock, AT_ONCE, |key| all.reconcile(key)).await;
        "volume controller"
    });
}

fn phase(status: Option<&String>) -> &str {
    status.map(String::as_str).unwrap_or_default()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    phase(claim.status.as_ref().and_then(|status| status.phase.as_ref())) == "Bound"
}

/// Whether a volume names a claim.
fn names(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let named = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    named.is_some_and(|named| {
        named.name == claim.metadata.name
            && named.namespace == claim.metadata.namespace
            && (named.uid.is_none() || named.uid == claim.metadata.uid)
    })
}

impl Volumes {
    async fn reconcile(&self, key: Key) -> kube::Result<Again> {
        let done = if key.ns.is_empty() {
            match self.volumes.get(&key) {
                Some(volume) => self.volume(&volume).await,
                None => Ok(()),
            }
        } else {
            match self.claims.get(&key) {
                Some(claim) if claim.metadata.deletion_timestamp.is_none() && !is_bound(&claim) => {
                    self.claim(&claim).await
                }
                Some(_) | None => Ok(()),
            }
        };
        match done {
            // Gone, or changed meanwhile: the watch will show it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(Again::OnChange),
            done => done.map(|()| Again::OnChange),
        }
    }

    /// Makes a new volume available; one whose claim is gone is deleted or retained.
    async fn volume(&self, volume: &PersistentVolume) -> kube::Result<()> {
        let phase = phase(volume.status.as_ref().and_then(|status| status.phase.as_ref()));
        let spec = volume.spec.as_ref();
        let named = spec.and_then(|spec| spec.claim_ref.as_ref());
        let Some(named) = named.filter(|named| named.uid.is_some()) else {
            return match phase {
                "" | "Pending" => self.volume_phase(volume, "Available").await,
                _ => Ok(()),
            };
        };
        let key = Key::new(
            named.namespace.as_deref().unwrap_or_default(),
            named.name.as_deref().unwrap_or_default(),
        );
        let claim = self.claims.get(&key);
        if phase == "Released" || claim.is_some_and(|claim| claim.metadata.uid == named.uid) {
            return Ok(());
        }
        // A volume may be seen before its claim.
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.shared.client.clone(), &key.ns);
        let claim = claims.get_opt(&key.name).await?;
        if claim.is_some_and(|claim| claim.metadata.uid == named.uid) {
            return Ok(());
        }
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if policy == Some("Delete") {
            let (name, params) = (volume.name_any(), DeleteParams::default());
            return self.volumes_api().delete(&name, &params).await.map(drop);
        }
        self.volume_phase(volume, "Released").await
    }

    async fn claim(&self, claim: &PersistentVolumeClaim) -> kube::Result<()> {
        let Some(spec) = &claim.spec else { return Ok(()) };
        if let Some(name) = spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
            return match self.volumes.get(&Key::new("", name)) {
                Some(volume) => self.bind(claim, &volume).await,
                None => Ok(()),
            };
        }
        let all = self.volumes.list();
        if let Some(volume) = all.iter().find(|volume| names(volume, claim)) {
            return self.bind(claim, volume).await;
        }
        let class_name = spec.storage_class_name.as_deref().unwrap_or_default();
        let class = self.classes.get(&Key::new("", class_name));
        let waits = class
            .as_ref()
            .is_some_and(|class| class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"));
        let node = claim.annotations().get(names::SELECTED_NODE);
        if !waits {
            let will_do = all.iter().filter(|volume| will_do(volume, claim, class_name));
            if let Some(volume) = will_do.min_by_key(|volume| (size(volume), volume.name_any())) {
                return self.bind(claim, volume).await;
            }
        }
        match class {
            Some(class) if class.provisioner != names::NO_PROVISIONER && (!waits || node.is_some()) => {
                let made = self.make(claim, &class, node.map(String::as_str)).await?;
                self.bind(claim, &made).await
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Creates a volume for a claim, in the zone of the selected node if there is one.
    async fn make(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        node: Option<&str>,
    ) -> kube::Result<PersistentVolume> {
        let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
        let mut spec = json!({
            "accessModes": claim.spec.as_ref().and_then(|spec| spec.access_modes.as_ref()),
            "capacity": requests(claim),
            "csi": {"driver": class.provisioner, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": class.reclaim_policy,
            "storageClassName": class.name_any(),
            "volumeMode": claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_ref()),
            "claimRef": reference(claim),
        });
        if let Some(node) = node.and_then(|node| self.shared.nodes.get(&Key::new("", node))) {
            let hostname = node.name_any();
            let (key, value) = match node.labels().get(ZONE) {
                Some(zone) => (ZONE, zone),
                None => (HOSTNAME, &hostname),
            };
            let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]});
            spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [term]}});
        }
        let volume = json!({"metadata": {"name": name}, "spec": spec});
        let volume: PersistentVolume = serde_json::from_value(volume).map_err(kube::Error::SerdeError)?;
        let made = self.volumes_api().create(&PostParams::default(), &volume).await?;
        self.volumes.observe(made.clone());
        Ok(made)
    }

    /// Binds a volume and a claim.
    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> kube::Result<()> {
        let name = volume.name_any();
        let seen = json!({"resourceVersion": volume.metadata.resource_version});
        let with_claim = json!({"metadata": seen, "spec": {"claimRef": reference(claim)}});
        let (volumes, params) = (self.volumes_api(), PatchParams::default());
        volumes.patch(&name, &params, &Patch::Merge(&with_claim)).await?;
        self.volume_phase(volume, "Bound").await?;
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.shared.client.clone(), &claim.namespace().unwrap_or_default());
        let own_name = claim.name_any();
        let annotations = json!({names::BIND_COMPLETED: "yes", names::BOUND_BY_CONTROLLER: "yes"});
        let with_volume = json!({"metadata": {"annotations": annotations}, "spec": {"volumeName": name}});
        claims.patch(&own_name, &params, &Patch::Merge(&with_volume)).await?;
        let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
        let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_ref());
        let status = json!({"status": {"phase": "Bound", "capacity": capacity, "accessModes": modes}});
        let bound = claims.patch_status(&own_name, &params, &Patch::Merge(&status)).await?;
        self.claims.observe(bound);
        Ok(())
    }

    async fn volume_phase(&self, volume: &PersistentVolume, phase: &str) -> kube::Result<()> {
        let status = json!({"status": {"phase": phase}});
        let patch = Patch::Merge(&status);
        let params = PatchParams::default();
        let name = volume.name_any();
        let patched = self.volumes_api().patch_status(&name, &params, &patch).await?;
        self.volumes.observe(patched);
        Ok(())
    }

    fn volumes_api(&self) -> Api<PersistentVolume> {
        Api::all(self.shared.client.clone())
    }
}

fn reference(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
    })
}

fn requests(claim: &PersistentVolumeClaim) -> Value {
    let resources = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    json!(resources.and_then(|resources| resources.requests.as_ref()))
}

fn size(volume: &PersistentVolume) -> i64 {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref());
    let storage = capacity.and_then(|capacity| capacity.get("storage"));
    storage
        .and_then(|storage| Amount::of(storage).ok())
        .map_or(0, Amount::units)
}

/// Whether a free volume has what a claim asks for.
fn will_do(volume: &PersistentVolume, claim: &PersistentVolumeClaim, class: &str) -> bool {
    let (Some(spec), Some(asked)) = (&volume.spec, &claim.spec) else {
        return false;
    };
    let requests = asked
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let wanted = requests.and_then(|requests| requests.get("storage"));
    let wanted = wanted
        .and_then(|storage| Amount::of(storage).ok())
        .map_or(0, Amount::units);
    let has_mode = |mode: &String| spec.access_modes.iter().flatten().any(|other| other == mode);
    phase(volume.status.as_ref().and_then(|status| status.phase.as_ref())) == "Available"
        && spec.claim_ref.is_none()
        && spec.storage_class_name.as_deref().unwrap_or_default() == class
        && size(volume) >= wanted
        && asked.access_modes.iter().flatten().all(has_mode)
}
