//! Rules for pods of our scheduler: mutation and validation. One file per rule; this file has their order, and the first refusal
//! decides. Pure: facts about the cluster are passed as [`Workload`].

pub mod device_access;
pub mod gpu_sharing;
pub mod hami_core;
pub mod queue_label;
pub mod runtime_class;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::Deserialize;

use super::Settings;
use super::review::{Operation, Request, Verdict};
use crate::mirror::bounds;
use queue_label::Workload;

/// The input of mutating rules beside the pod and the settings.
#[derive(Debug, Clone, Copy)]
pub struct PodContext<'a> {
    /// The pod's queue, if it is to be written.
    pub queue: Option<&'a str>,
    /// The cluster has the runtime class of pods that share a GPU.
    pub has_runtime_class: bool,
    /// Random suffix of the names of the pod's ConfigMaps, if it needs any.
    pub random: &'a str,
}

/// Mutates a pod on creation, and the ephemeral containers that an update adds.
#[must_use]
pub fn mutate(request: &Request, context: PodContext, settings: &Settings) -> Verdict {
    let pod = match ours(request, settings) {
        Ok(Some(pod)) => pod,
        Ok(None) => return Verdict::allow(),
        Err(verdict) => return verdict,
    };
    let before = pod.clone();
    let rules = || -> Result<json_patch::Patch, String> {
        let mut pod = pod;
        if request.operation == Operation::Create {
            mutate_new(&mut pod, &request.namespace, context, settings)?;
        } else if settings.block_nvidia_visible_devices {
            device_access::mutate_update(&mut pod, request.old_object.read().ok().as_ref());
        }
        difference(&before, &pod).map_err(|error| error.to_string())
    };
    match rules() {
        Ok(patch) => Verdict {
            patch: Some(patch),
            ..Verdict::allow()
        },
        Err(message) => Verdict::deny(message),
    }
}

fn mutate_new(pod: &mut Pod, in_namespace: &str, context: PodContext, settings: &Settings) -> Result<(), String> {
    namespace(pod, in_namespace)?;
    gpu_sharing::mutate(pod, context.random)?;
    if settings.hami_core {
        hami_core::mutate(pod)?;
    }
    if settings.block_nvidia_visible_devices {
        device_access::mutate(pod)?;
    }
    if context.has_runtime_class {
        runtime_class::mutate(pod, &settings.gpu_fraction_runtime_class);
    }
    if let Some(queue) = context.queue {
        queue_label::mutate(pod, queue, settings);
    }
    Ok(())
}

/// Validates a pod. On update only the changed parts are checked, so that a changed setting never makes an existing pod
/// immutable.
#[must_use]
pub fn validate(request: &Request, workload: Option<&Workload>, settings: &Settings) -> Verdict {
    let pod = match ours(request, settings) {
        Ok(Some(pod)) => pod,
        Ok(None) => return Verdict::allow(),
        Err(verdict) => return verdict,
    };
    if settings.exempt_namespaces().contains(&&*request.namespace) {
        return unreviewed(request, settings);
    }
    let old: Option<Pod> = request.old_object.read().ok();
    let rules = || -> Result<(), String> {
        if let Some(excess) = bounds::of_pod(&pod).filter(|_| old.is_none()) {
            return Err(format!("the pod has {excess}"));
        }
        gpu_sharing::validate(&pod, old.as_ref(), settings)?;
        if let Some(old) = &old {
            gpu_sharing::validate_update(&pod, old)?;
        }
        if settings.block_nvidia_visible_devices {
            device_access::validate(&pod, old.as_ref())?;
        }
        Ok(())
    };
    if let Err(message) = rules() {
        return Verdict::deny(message);
    }
    match workload.filter(|_| request.operation == Operation::Create) {
        Some(workload) => queue_label::validate(workload, &request.namespace, settings),
        None => Verdict::allow(),
    }
}

/// Pods in exempt namespaces are neither changed nor refused; workloads there draw a warning.
fn unreviewed(request: &Request, settings: &Settings) -> Verdict {
    if request.operation != Operation::Create {
        return Verdict::allow();
    }
    let (namespace, key) = (&request.namespace, &settings.queue_label_key);
    Verdict::allow().warn([format!(
        "pods in namespace {namespace} are not reviewed: they are not given the label {key}, and cannot share GPUs. Run workloads in a namespace of their own"
    )])
}

/// The pod, if the request has one of our scheduler.
///
/// # Errors
/// The verdict on a pod that cannot be read.
pub fn ours(request: &Request, settings: &Settings) -> Result<Option<Pod>, Verdict> {
    let scheduler = request
        .object
        .read::<Addressed>()
        .ok()
        .and_then(|pod| pod.spec.scheduler_name);
    if scheduler.as_ref() != Some(&settings.scheduler_name) {
        return Ok(None);
    }
    match request.object.read() {
        Ok(pod) => Ok(Some(pod)),
        Err(error) => Err(Verdict::unreadable(format!("the pod cannot be read: {error}"))),
    }
}

/// The fields of a pod that identify its scheduler.
#[derive(Deserialize)]
struct Addressed {
    spec: AddressedSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddressedSpec {
    scheduler_name: Option<String>,
}

/// The namespace of the request, which some clients leave out of the object.
fn namespace(pod: &mut Pod, namespace: &str) -> Result<(), String> {
    match pod.metadata.namespace.as_deref() {
        None | Some("") => pod.metadata.namespace = Some(namespace.to_owned()),
        Some(own) if own != namespace && !namespace.is_empty() => {
            return Err(format!(
                "error: the namespace from the provided object {own} does not match the namespace {namespace}"
            ));
        }
        Some(_) => {}
    }
    Ok(())
}

/// The rules work on a typed pod: a patch from the difference of two typed pods leaves unknown fields unchanged.
fn difference(before: &Pod, after: &Pod) -> serde_json::Result<json_patch::Patch> {
    let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
    Ok(json_patch::diff(&before, &after))
}

/// The value of an annotation.
pub(super) fn annotation_of<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Init containers, then regular ones.
pub(super) fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.as_ref();
    let init = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    init.iter()
        .chain(spec.map(|spec| spec.containers.as_slice()).unwrap_or_default())
}

/// Init containers, then regular ones, to be changed.
pub(super) fn containers_mut(pod: &mut Pod) -> impl Iterator<Item = &mut Container> {
    pod.spec
        .as_mut()
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter_mut().flatten().chain(&mut spec.containers))
}

#[cfg(test)]
pub(super) mod tests;
