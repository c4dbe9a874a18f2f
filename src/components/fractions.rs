//! Shared GPUs as admission and the binder both use them: which container of a pod gets the GPU portion, and the names of the ConfigMaps that tell it
//! its GPU.

pub mod users;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};

use super::gpu_operator::Cdi;
use crate::api::QuantityMap;
use crate::api::names::{annotation, object};

/// The position of the container that gets the GPU portion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Among the init containers.
    Init(usize),
    /// Among the others.
    Regular(usize),
}

/// The container that gets the GPU portion: the one that an annotation names, else the first.
///
/// # Errors
/// When the annotation names a container that the pod does not have.
pub fn fraction_place(pod: &Pod) -> Result<Place, String> {
    let annotations = pod.metadata.annotations.as_ref();
    let Some(name) = annotations.and_then(|all| all.get(annotation::GPU_FRACTION_CONTAINER_NAME)) else {
        return Ok(Place::Regular(0));
    };
    let spec = pod.spec.as_ref();
    let position = |containers: &[Container]| containers.iter().position(|container| container.name == *name);
    let init = spec
        .and_then(|spec| spec.init_containers.as_deref())
        .and_then(position)
        .map(Place::Init);
    init.or_else(|| spec.and_then(|spec| position(&spec.containers)).map(Place::Regular))
        .ok_or_else(|| {
            format!("failed to get fraction container ref: container with name {name} not found for fraction request")
        })
}

/// The container at a position.
#[must_use]
pub fn container(pod: &Pod, place: Place) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    match place {
        Place::Init(index) => spec.init_containers.as_ref()?.get(index),
        Place::Regular(index) => spec.containers.get(index),
    }
}

/// The name of the ConfigMap with the GPU of the container.
#[must_use]
pub fn capabilities(prefix: &str, place: Place) -> String {
    match place {
        Place::Init(index) => format!("{prefix}-i{index}"),
        Place::Regular(index) => format!("{prefix}-{index}"),
    }
}

/// The name of the ConfigMap that is the container's environment.
#[must_use]
pub fn direct(capabilities: &str) -> String {
    format!("{capabilities}-evar")
}

/// Settings of GPU sharing.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The image of reservation pods: unikai's own.
    pub image: String,
    /// The value of the label `app` on reservation pods.
    pub app_label: String,
    /// The runtime class of reservation pods.
    pub runtime_class: Option<String>,
    /// Timeout for the device that a reservation pod reports.
    pub max_wait: Duration,
    /// Whether containers get their GPUs by CDI names.
    pub cdi: Cdi,
    /// Whether containers get their limit of GPU memory.
    pub hami_core: bool,
    /// Every bind leaves the same objects as KAI's: a bind request that stays as long as its pod, the condition `PodBound` and the event `Bound`.
    /// Otherwise only multi-step binds have a request, which is deleted at their end.
    pub always_bind_requests: bool,
    /// Image pull secrets of reservation pods.
    pub pull_secrets: Vec<String>,
    /// The security context of reservation pods, if not the default.
    pub pod_security: Option<PodSecurityContext>,
    /// The security context of their container, if not the default.
    pub container_security: Option<SecurityContext>,
    /// Requests of their container beside the GPU, if any.
    pub requests: QuantityMap,
    /// Limits of their container beside the GPU, if any.
    pub limits: QuantityMap,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            image: IMAGE.to_owned(),
            app_label: object::RESERVATION_APP.to_owned(),
            runtime_class: None,
            max_wait: Duration::from_secs(40),
            cdi: Cdi::Auto,
            hami_core: false,
            always_bind_requests: false,
            pull_secrets: Vec::new(),
            pod_security: None,
            container_security: None,
            requests: QuantityMap::new(),
            limits: QuantityMap::new(),
        }
    }
}

/// Prefix of a reservation pod's message when its restarted container has another GPU than the reserved one.
pub const OTHER_DEVICE: &str = "the container has another GPU than before";

/// The image where none is configured.
pub const IMAGE: &str = concat!("unikai:", env!("CARGO_PKG_VERSION"));

/// Whether the pod requests a GPU portion, valid or not.
#[must_use]
pub fn is_fractional(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .is_some_and(|all| all.contains_key(annotation::GPU_FRACTION) || all.contains_key(annotation::GPU_MEMORY))
}
/// The command that installs what shared GPUs need, with reservation pods in that namespace.
#[must_use]
pub fn installation(namespace: &str) -> String {
    if namespace == object::RESERVATION_NAMESPACE {
        "kubectl apply -f manifests/gpu-sharing/".to_owned()
    } else {
        format!("unikai manifests --gpu-sharing --reservation-namespace {namespace} | kubectl apply -f -")
    }
}
