//! Opt-in: the container that gets a part of a GPU reads its limit of GPU memory from the config map that the
//! binder fills. The limit itself is enforced by the HAMi-core library in the container.

use k8s_openapi::api::core::v1::{ConfigMapKeySelector, EnvVar, EnvVarSource, Pod};

use super::gpu_sharing;
use crate::api::names::env;

/// Adds the reference, after [`gpu_sharing::mutate`] has named the config map.
///
/// # Errors
/// When the pod names a container that it does not have.
pub fn mutate(pod: &mut Pod) -> Result<(), String> {
    let Some((container, capabilities)) = gpu_sharing::fraction_container_mut(pod)? else {
        return Ok(());
    };
    let list = container.env.get_or_insert_default();
    list.retain(|variable| variable.name != env::CUDA_DEVICE_MEMORY_LIMIT);
    list.push(EnvVar {
        name: env::CUDA_DEVICE_MEMORY_LIMIT.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                name: capabilities,
                key: env::CUDA_DEVICE_MEMORY_LIMIT.to_owned(),
                optional: Some(true),
            }),
            ..EnvVarSource::default()
        }),
    });
    Ok(())
}
