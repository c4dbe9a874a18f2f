//! Opt-in: a container sees only the GPUs that it was given.
//!
//! Many CUDA images set `NVIDIA_VISIBLE_DEVICES=all`, which shows a container every GPU of its node. So a container that
//! requests no GPU gets `void`, and one that requests some may not set the variable itself. The container that shares a
//! GPU is left alone, because the binder sets the variable for it; so is one with resource claims, whose driver does.

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
            hide(container);
        }
    }
    Ok(())
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
    for container in containers(pod).filter(|container| Some(container.name.as_str()) != exempt) {
        let before = old.and_then(|old| containers(old).find(|before| before.name == container.name));
        if before.is_some_and(|before| before.env == container.env) {
            continue;
        }
        for variable in container
            .env
            .iter()
            .flatten()
            .filter(|variable| variable.name == env::NVIDIA_VISIBLE_DEVICES)
        {
            judge(container, variable)?;
        }
    }
    Ok(())
}

fn judge(container: &Container, variable: &EnvVar) -> Result<(), String> {
    let (name, key) = (&container.name, env::NVIDIA_VISIBLE_DEVICES);
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

fn hide(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
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
