//! Pods that share a GPU get the runtime class for GPUs. A class that the pod names is kept. If the cluster has no such
//! class the rule does not apply: the API server would refuse the pod.
//!
//! ```yaml
//! annotations: {gpu-fraction: "0.5"}   # → spec.runtimeClassName: nvidia
//! ```

use k8s_openapi::api::core::v1::Pod;

use crate::components::fractions::is_fractional;

/// Sets the class; an empty one turns the rule off.
pub fn mutate(pod: &mut Pod, class: &str) {
    if class.is_empty() || !is_fractional(pod) {
        return;
    }
    if let Some(spec) = &mut pod.spec
        && spec.runtime_class_name.as_deref().is_none_or(str::is_empty)
    {
        spec.runtime_class_name = Some(class.to_owned());
    }
}
