//! Fields of pods that placement depends on and that not every pod has: node constraints, relations, volumes, claims, ports, ConfigMaps. The pods of one
//! template have equal fields, so equal ones are shared.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use k8s_openapi::api::core::v1 as core;
use serde::Serialize;

use super::any;

/// Prefix of the name of the token volume that the API server adds. The rest of the name is different in each pod, and is dropped here, so that the
/// fields of pods are equal. No volume can have the prefix alone as its name.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// See the module.
#[derive(Debug, PartialEq, Serialize)]
pub struct Further {
    /// A spec with nothing but these fields. Boxed, so that little memory stays allocated for the weak reference when no pod uses them any more.
    pub spec: Box<core::PodSpec>,
    /// The claims that were created for the pod.
    pub claims: Vec<core::PodResourceClaimStatus>,
}

/// The further fields of a pod, if it has any.
pub fn of(pod: &core::Pod) -> Option<Arc<Further>> {
    if !says_more(pod) {
        return None;
    }
    let status = pod.status.as_ref();
    let claims = status.and_then(|status| status.resource_claim_statuses.clone());
    Some(shared(Further {
        spec: Box::new(pod.spec.as_ref().map(reduced).unwrap_or_default()),
        claims: claims.unwrap_or_default(),
    }))
}

/// The fields in use, by hash.
#[derive(Default)]
struct Known {
    by_hash: HashMap<u64, Weak<Further>>,
    /// At so many entries, those that no pod uses any more are removed.
    clean_at: usize,
}

/// The shared copy of equal fields, which is this one if there is none yet.
fn shared(further: Further) -> Arc<Further> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let mut hashing = Hashing(foldhash::fast::FixedState::default().build_hasher());
    if serde_json::to_writer(&mut hashing, &further).is_err() {
        return Arc::new(further);
    }
    let hash = hashing.0.finish();
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let same = known.by_hash.get(&hash).and_then(Weak::upgrade);
    if let Some(same) = same.filter(|same| **same == further) {
        return same;
    }
    if known.by_hash.len() >= known.clean_at {
        known.by_hash.retain(|_, one| one.strong_count() > 0);
        known.clean_at = known.by_hash.len() * 2 + 64;
    }
    let new = Arc::new(further);
    known.by_hash.insert(hash, Arc::downgrade(&new));
    new
}

struct Hashing<H>(H);

impl<H: Hasher> io::Write for Hashing<H> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a pod has fields that affect placement and that [`super::Pod`] does not have.
fn says_more(pod: &core::Pod) -> bool {
    let container = |container: &core::Container| {
        any(&container.ports)
            || any(&container.env_from)
            || container.env.iter().flatten().any(|env| env.value_from.is_some())
    };
    let spec = |spec: &core::PodSpec| {
        spec.affinity.is_some()
            || spec.host_network == Some(true)
            || any(&spec.tolerations)
            || any(&spec.volumes)
            || any(&spec.topology_spread_constraints)
            || any(&spec.resource_claims)
            || any(&spec.ephemeral_containers)
            || spec.node_selector.iter().flatten().next().is_some()
            || spec.overhead.iter().flatten().next().is_some()
            || spec.resources.is_some()
            || spec.containers.iter().any(container)
            || spec.init_containers.iter().flatten().any(container)
    };
    pod.spec.as_ref().is_some_and(spec)
        || pod
            .status
            .as_ref()
            .is_some_and(|status| any(&status.resource_claim_statuses))
}

/// The spec with these fields only.
fn reduced(spec: &core::PodSpec) -> core::PodSpec {
    let token = token_volume(spec);
    let containers = |all: &[core::Container]| -> Vec<_> { all.iter().map(|one| container(one, token)).collect() };
    core::PodSpec {
        affinity: spec.affinity.clone(),
        containers: containers(&spec.containers),
        ephemeral_containers: spec
            .ephemeral_containers
            .as_ref()
            .map(|all| all.iter().map(|one| ephemeral(one, token)).collect()),
        host_network: spec.host_network,
        init_containers: spec.init_containers.as_deref().map(containers),
        node_selector: spec.node_selector.clone(),
        overhead: spec.overhead.clone(),
        resource_claims: spec.resource_claims.clone(),
        resources: spec.resources.clone(),
        tolerations: spec.tolerations.clone(),
        topology_spread_constraints: spec.topology_spread_constraints.clone(),
        volumes: spec
            .volumes
            .as_ref()
            .map(|all| all.iter().map(|one| volume(one, token)).collect()),
        ..core::PodSpec::default()
    }
}

/// The name of the token volume that the API server adds, behind those that the pod had. It is a projected one; the names of other kinds stay: the claim
/// of an ephemeral volume is named after it.
fn token_volume(spec: &core::PodSpec) -> Option<&str> {
    let is_token = |volume: &&core::Volume| volume.projected.is_some() && volume.name.starts_with(TOKEN_VOLUME);
    let token = spec.volumes.iter().flatten().rfind(is_token)?;
    Some(&token.name)
}

fn container(container: &core::Container, token: Option<&str>) -> core::Container {
    core::Container {
        env: variables(container.env.as_deref()),
        env_from: container.env_from.clone(),
        ports: container.ports.clone(),
        restart_policy: container.restart_policy.clone(),
        volume_mounts: mounts(container.volume_mounts.as_deref(), token),
        ..core::Container::default()
    }
}

fn ephemeral(container: &core::EphemeralContainer, token: Option<&str>) -> core::EphemeralContainer {
    core::EphemeralContainer {
        env: variables(container.env.as_deref()),
        env_from: container.env_from.clone(),
        volume_mounts: mounts(container.volume_mounts.as_deref(), token),
        ..core::EphemeralContainer::default()
    }
}

/// The variables whose values come from other objects or fields.
fn variables(all: Option<&[core::EnvVar]>) -> Option<Vec<core::EnvVar>> {
    let from_elsewhere = all?.iter().filter(|variable| variable.value_from.is_some());
    let kept: Vec<_> = from_elsewhere.cloned().collect();
    (!kept.is_empty()).then_some(kept)
}

fn mounts(all: Option<&[core::VolumeMount]>, token: Option<&str>) -> Option<Vec<core::VolumeMount>> {
    let name = |mount: &core::VolumeMount| core::VolumeMount {
        name: common_name(&mount.name, token),
        ..core::VolumeMount::default()
    };
    Some(all?.iter().map(name).collect())
}

fn volume(volume: &core::Volume, token: Option<&str>) -> core::Volume {
    core::Volume {
        name: common_name(&volume.name, token),
        ..volume.clone()
    }
}

fn common_name(name: &str, token: Option<&str>) -> String {
    if token == Some(name) { TOKEN_VOLUME } else { name }.to_owned()
}
