//! ConfigMaps and labels of a pod that shares GPUs. Pure.
//!
//! ```text
//! 0.5 of one device:   <prefix>-0: NVIDIA_VISIBLE_DEVICES=GPU-6e0e…, RUNAI_NUM_OF_GPUS=0.50, GPU_PORTION=0.50
//!                      <prefix>-0-evar: empty                  label runai-gpu-group: <group>
//! 0.5 of two devices:  NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b      labels runai-gpu-group/<group>: <group>, one per device
//! ```

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Node, Pod};
use kube::api::ObjectMeta;

use super::bind_request;
use crate::api::gpu_request::is_group_label;
use crate::api::names::{annotation, env, label, node_label};
use crate::components::bus::OrderedBind;
use crate::components::fractions::{self, capabilities, container, fraction_place};
use crate::mirror::node::gpu_memory_mib;

/// Prefix of CDI device names; the UUID follows.
const CDI_PREFIX: &str = "k8s.device-plugin.nvidia.com/gpu=";

/// How devices are passed to containers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variables {
    /// By CDI (Container Device Interface) names.
    pub cdi: bool,
    /// With a memory limit for HAMi-core.
    pub hami_core: bool,
}

/// The config maps of a pod, with their final content.
///
/// # Errors
/// If the pod has no annotation with their names, or a requested memory limit cannot be set.
pub fn config_maps(
    bind: &OrderedBind,
    pod: &Pod,
    node: Option<&Node>,
    devices: &[String],
    words: Variables,
) -> Result<[ConfigMap; 2], String> {
    let annotations = pod.metadata.annotations.as_ref();
    let place = fraction_place(pod)?;
    let prefix = annotations.and_then(|all| all.get(annotation::SHARED_GPU_CONFIG_MAP));
    let prefix = prefix.ok_or_else(|| {
        let (ns, name) = (&bind.placement.pod.namespace, &bind.placement.pod.name);
        format!(
            "failed to create capabilities configmap: failed to get capabilities configmap name: no desired configmap name found in pod {ns}/{name}"
        )
    })?;
    let name = capabilities(prefix, place);
    if !is_object_name(&fractions::direct(&name)) {
        return Err(format!(
            "annotation {}: {:?} gives no valid name of a config map",
            annotation::SHARED_GPU_CONFIG_MAP,
            prefix.chars().take(64).collect::<String>()
        ));
    }
    let portion = bind_request::portion(bind.placement.gpu_portion);
    let prefix = if words.cdi { CDI_PREFIX } else { "" };
    let visible: Vec<String> = devices.iter().map(|device| format!("{prefix}{device}")).collect();
    let visible = (env::NVIDIA_VISIBLE_DEVICES.to_owned(), visible.join(","));
    let mut told = BTreeMap::from([
        (env::RUNAI_NUM_OF_GPUS.to_owned(), portion.clone()),
        (env::GPU_PORTION.to_owned(), portion.clone()),
    ]);
    if words.hami_core {
        let limit = memory_limit(node, &portion).ok_or_else(|| {
            format!(
                "the node's label {} gives no memory of which {portion} could be the limit",
                node_label::GPU_MEMORY
            )
        })?;
        told.insert(env::CUDA_DEVICE_MEMORY_LIMIT.to_owned(), limit);
    }
    let mut direct = BTreeMap::new();
    // Pods created without our webhook have no reference to the first map.
    if container(pod, place).is_some_and(refers) {
        told.extend([visible]);
    } else {
        direct.extend([visible]);
    }
    let map = |name: String, data| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(bind.placement.pod.namespace.to_string()),
            owner_references: Some(vec![bind_request::owned_by(bind)]),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    };
    Ok([map(fractions::direct(&name), direct), map(name, told)])
}

/// Whether it is a valid object name.
fn is_object_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part =
        |part: &str| part.starts_with(letter) && part.ends_with(letter) && part.chars().all(|c| letter(c) || c == '-');
    text.len() <= 253 && text.split('.').all(part)
}

/// Whether the container takes its visible devices from a config map.
fn refers(container: &Container) -> bool {
    let mut variables = container.env.iter().flatten();
    variables.any(|variable| {
        variable.name == env::NVIDIA_VISIBLE_DEVICES
            && variable
                .value_from
                .as_ref()
                .is_some_and(|source| source.config_map_key_ref.is_some())
    })
}

/// The part of a GPU's memory, in MiB, as HAMi-core reads it.
fn memory_limit(node: Option<&Node>, portion: &str) -> Option<String> {
    let labels = node?.metadata.labels.as_ref()?;
    let memory = gpu_memory_mib(labels.get(node_label::GPU_MEMORY)?)?;
    let (whole, places) = portion.split_once('.')?;
    let parts: i64 = format!("{whole}{places}").parse().ok()?;
    let limit = memory.checked_mul(parts)? / 10_i64.checked_pow(u32::try_from(places.len()).ok()?)?;
    (limit > 0).then(|| format!("{limit}m"))
}

/// The changes to the labels of a pod that make it a member of these groups and of no other; empty if it is one already.
#[must_use]
pub fn labels(pod: &Pod, groups: &[&str]) -> BTreeMap<String, Option<String>> {
    let wanted: BTreeMap<String, String> = match groups {
        [group] => [(label::GPU_GROUP.to_owned(), (*group).to_owned())].into(),
        many => many
            .iter()
            .map(|group| (format!("{}{group}", label::GPU_GROUP_PREFIX), (*group).to_owned()))
            .collect(),
    };
    let present: BTreeMap<&String, &String> = group_labels(pod).collect();
    let stale = present.keys().filter(|key| !wanted.contains_key(**key));
    let mut changes: BTreeMap<String, Option<String>> = stale.map(|key| ((*key).clone(), None)).collect();
    let missing = wanted
        .into_iter()
        .filter(|(key, value)| present.get(key) != Some(&value));
    changes.extend(missing.map(|(key, value)| (key, Some(value))));
    changes
}

/// The labels of a pod that name GPU groups, in both forms.
pub fn group_labels(pod: &Pod) -> impl Iterator<Item = (&String, &String)> {
    let labels = pod.metadata.labels.iter().flatten();
    labels.filter(|(key, value)| !value.is_empty() && is_group_label(key))
}

#[cfg(test)]
mod tests;
