//! Opt-in: a container sees only the GPUs that it was given.
//!
//! Many CUDA images set `NVIDIA_VISIBLE_DEVICES=all`, which shows a container every GPU of its node. So a container that
//! requests no GPU gets `void`, and one that requests some may not set the variable itself. Ephemeral containers, which can request none, get `void`.
//! The container that shares a GPU is left alone, because the binder sets the variable for it; so is one with resource claims, whose driver does.

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

use super::gpu_sharing::fraction_container;
use super::{containers, containers_mut};
use crate::api::names::{env, resource};

/// Hides GPUs from the containers that request none.
///
/// # Errors
/// When the pod names a container that it does not have.
pub fn mutate(pod: &mut Pod) -> Result<(), String> {
    let exempt = fraction_container(pod)?.map(|container| container.name.clone());
    for container in containers_mut(pod) {
        if exempt.as_ref() != Some(&container.name) && !gets_gpus(container) {
            hide(&mut container.env);
        }
    }
    Ok(())
}

/// Hides GPUs from the ephemeral containers that an update adds; others cannot be changed any more.
pub fn mutate_update(pod: &mut Pod, old: Option<&Pod>) {
    let containers = pod.spec.as_mut().and_then(|spec| spec.ephemeral_containers.as_mut());
    for container in containers.into_iter().flatten() {
        if old.and_then(|old| environment(old, &container.name)).is_none() {
            hide(&mut container.env);
        }
    }
}

/// Refuses a container that chooses GPUs by itself. Faults of the old version of the pod are accepted.
///
/// # Errors
/// What is wrong, for the user.
pub fn validate(pod: &Pod, old: Option<&Pod>) -> Result<(), String> {
    let exempt = match fraction_container(pod) {
        Ok(container) => container.map(|container| container.name.as_str()),
        Err(fault) if old.is_some_and(|old| fraction_container(old).is_err_and(|known| known == fault)) => None,
        Err(fault) => return Err(fault),
    };
    // The container that shared a GPU was exempt: it may refer to the GPU of another pod.
    let was_exempt = old.and_then(|old| fraction_container(old).ok()?);
    for (name, variables) in environments(pod).filter(|(name, _)| Some(*name) != exempt) {
        let before = old.filter(|_| was_exempt.is_none_or(|container| container.name != name));
        if before.and_then(|old| environment(old, name)) == Some(variables) {
            continue;
        }
        for variable in variables
            .iter()
            .filter(|variable| variable.name == env::NVIDIA_VISIBLE_DEVICES)
        {
            judge(name, variable)?;
        }
    }
    Ok(())
}

/// The names and variables of all containers, ephemeral ones included.
fn environments(pod: &Pod) -> impl Iterator<Item = (&str, &[EnvVar])> {
    let spec = pod.spec.as_ref();
    let ephemeral = spec.and_then(|spec| spec.ephemeral_containers.as_deref());
    let ephemeral = ephemeral
        .unwrap_or_default()
        .iter()
        .map(|container| (&container.name, &container.env));
    let all = containers(pod).map(|container| (&container.name, &container.env));
    all.chain(ephemeral)
        .map(|(name, variables)| (name.as_str(), variables.as_deref().unwrap_or_default()))
}

/// The variables of a container, if the pod has it.
fn environment<'a>(pod: &'a Pod, name: &str) -> Option<&'a [EnvVar]> {
    environments(pod)
        .find(|(other, _)| *other == name)
        .map(|(_, variables)| variables)
}

fn judge(name: &str, variable: &EnvVar) -> Result<(), String> {
    let key = env::NVIDIA_VISIBLE_DEVICES;
    match (variable.value.as_deref().unwrap_or_default(), &variable.value_from) {
        ("void" | "none", _) | ("", None) => Ok(()),
        ("", Some(_)) => Err(format!(
            "container {name} has an environment variable {key} defined with a valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
        )),
        (value, _) => Err(format!(
            "container {name} has an environment variable {key} defined with a value of {value}. This is forbidden due to conflicts with Nvidia's device plugin. The only values that are allowed are 'void' or 'none'"
        )),
    }
}

fn gets_gpus(container: &Container) -> bool {
    let Some(resources) = &container.resources else {
        return false;
    };
    let requested = resources
        .requests
        .iter()
        .flatten()
        .chain(resources.limits.iter().flatten());
    let mut gpus =
        requested.filter(|(name, _)| *name == resource::NVIDIA_GPU || name.starts_with(resource::NVIDIA_MIG_PREFIX));
    gpus.any(|(_, amount)| amount.0 != "0") || resources.claims.as_ref().is_some_and(|claims| !claims.is_empty())
}

fn hide(variables: &mut Option<Vec<EnvVar>>) {
    let variables = variables.get_or_insert_default();
    match variables
        .iter_mut()
        .find(|variable| variable.name == env::NVIDIA_VISIBLE_DEVICES)
    {
        Some(variable) => (variable.value, variable.value_from) = (Some("void".to_owned()), None),
        None => variables.push(EnvVar {
            name: env::NVIDIA_VISIBLE_DEVICES.to_owned(),
            value: Some("void".to_owned()),
            ..EnvVar::default()
        }),
    }
}
