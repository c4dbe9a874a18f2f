//! Existing ConfigMaps, for pods that cannot start without them (KAI's check `ConfigMap`).
//!
//! Only names are read. Nothing is checked if ConfigMaps are not watched. Absent: Secrets, which KAI does not check either.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, PodSpec, VolumeMount};
use kube::ResourceExt;

use super::identity::object_key;
use super::links::Links;
use super::{Entry, Mirror, Output, packed};
use crate::api::names::annotation;
use crate::engine::input::Name;
use crate::kinds::types::ConfigMap;

/// Existing ConfigMaps, and the pods that need them.
#[derive(Default)]
pub struct ConfigMaps {
    there: HashSet<Box<str>>,
    /// Unbound pods by the ConfigMaps that they need, existing or not.
    users: Links,
}

impl ConfigMaps {
    /// Records what a pod needs as long as it has no node. `old`: the pod as it was recorded last; `new`: as it is now, if it is not gone.
    pub(super) fn note_pod(&mut self, key: &str, old: Option<&packed::Pod>, new: Option<&packed::Pod>) {
        let needed = |pod: Option<&packed::Pod>| -> BTreeSet<Box<str>> {
            let pod = pod.filter(|pod| pod.node.is_none());
            let names = pod
                .into_iter()
                .flat_map(|pod| required(pod).into_iter().map(move |name| (pod, name)));
            names.map(|(pod, name)| object_key(&pod.pod.namespace, name)).collect()
        };
        let (old, new) = (needed(old), needed(new));
        for gone in old.difference(&new) {
            self.users.remove(gone, key);
        }
        for fresh in new.difference(&old) {
            self.users.add(fresh.clone(), key);
        }
    }

    /// The message about missing ConfigMaps of a pod, in KAI's words.
    #[must_use]
    pub fn missing(&self, pod: &packed::Pod) -> Option<Name> {
        if pod.node.is_some() {
            return None;
        }
        let namespace = &pod.pod.namespace;
        let is_missing = |name: &&str| !self.there.contains(&object_key(namespace, name));
        let missing: Vec<_> = required(pod).into_iter().filter(is_missing).collect();
        (!missing.is_empty()).then(|| format!("Missing required configmaps: [{}]", missing.join(" ")).into())
    }
}

impl Entry for ConfigMap {
    type Packed = Self;
    fn trim(&mut self) {
        (self.metadata.annotations, self.metadata.labels) = (None, None);
    }
    fn changed(map: &Arc<Self>, there: bool, mirror: &mut Mirror, out: &mut Output) {
        let key = object_key(&map.namespace().unwrap_or_default(), &map.name_any());
        if mirror.config_maps.there.contains(&key) == there {
            return;
        }
        let pods: Vec<_> = mirror.config_maps.users.to(&key).cloned().collect();
        mirror.with_these_pods(&pods, out, |mirror| {
            if there {
                mirror.config_maps.there.insert(key);
            } else {
                mirror.config_maps.there.remove(&key);
            }
        });
    }
}

/// A container's references to ConfigMaps: mounted volumes, and names.
struct Part<'a> {
    mounts: Vec<&'a str>,
    named: Vec<&'a str>,
}

fn part<'a>(env: &'a [EnvVar], from: &'a [EnvFromSource], mounts: &'a [VolumeMount]) -> Part<'a> {
    let keys = env
        .iter()
        .filter_map(|env| env.value_from.as_ref()?.config_map_key_ref.as_ref());
    let keys = keys.filter(|key| key.optional != Some(true)).map(|key| &*key.name);
    let whole = from.iter().filter_map(|source| source.config_map_ref.as_ref());
    let whole = whole.filter(|map| map.optional != Some(true)).map(|map| &*map.name);
    Part {
        mounts: mounts.iter().map(|mount| &*mount.name).collect(),
        named: keys.chain(whole).collect(),
    }
}

fn parts(spec: &PodSpec) -> Vec<Part<'_>> {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let containers = containers.map(|c| (&c.env, &c.env_from, &c.volume_mounts));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|c| (&c.env, &c.env_from, &c.volume_mounts));
    containers
        .chain(ephemeral)
        .map(|(env, from, mounts)| {
            part(
                env.as_deref().unwrap_or_default(),
                from.as_deref().unwrap_or_default(),
                mounts.as_deref().unwrap_or_default(),
            )
        })
        .collect()
}

/// The ConfigMaps that a pod cannot start without: mounted ones and those of environment variables, unless optional. Those that the binder creates do not
/// count.
fn required(pod: &packed::Pod) -> BTreeSet<&str> {
    let Some(spec) = pod.spec() else { return BTreeSet::new() };
    let parts = parts(spec);
    let mounted = |volume: &str| parts.iter().any(|part| part.mounts.contains(&volume));
    let volumes = spec.volumes.iter().flatten().filter(|volume| mounted(&volume.name));
    let in_volumes = volumes.flat_map(|volume| {
        let projected = volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten());
        let projected = projected.filter_map(|source| source.config_map.as_ref());
        let projected = projected.filter(|map| map.optional != Some(true)).map(|map| &*map.name);
        let whole = volume.config_map.iter().filter(|map| map.optional != Some(true));
        whole.map(|map| &*map.name).chain(projected)
    });
    let ours = pod
        .annotations
        .get(annotation::SHARED_GPU_CONFIG_MAP)
        .filter(|ours| !ours.is_empty());
    in_volumes
        .chain(parts.iter().flat_map(|part| part.named.iter().copied()))
        .filter(|name| !name.is_empty() && ours.is_none_or(|ours| !name.starts_with(ours)))
        .collect()
}

#[cfg(test)]
mod tests;
