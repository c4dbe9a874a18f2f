//! What admission and the binder both know of pods that get a part of a GPU: which container gets it, and the names of the
//! config maps by which it learns which GPU it is.

pub mod users;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSecurityContext, SecurityContext};

use super::gpu_operator::Cdi;
use crate::api::QuantityMap;
use crate::api::names::annotation;

/// Where the container stands that gets the part of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Among the init containers.
    Init(usize),
    /// Among the others.
    Regular(usize),
}

/// The container that gets the part of a GPU: the one that the pod names, else the first.
///
/// # Errors
/// When the pod names a container that it does not have.
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

/// The container at a place.
#[must_use]
pub fn container(pod: &Pod, place: Place) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    match place {
        Place::Init(index) => spec.init_containers.as_ref()?.get(index),
        Place::Regular(index) => spec.containers.get(index),
    }
}

/// The name of the config map that says which GPU the container got.
#[must_use]
pub fn capabilities(prefix: &str, place: Place) -> String {
    match place {
        Place::Init(index) => format!("{prefix}-i{index}"),
        Place::Regular(index) => format!("{prefix}-{index}"),
    }
}

/// The name of the config map whose content becomes the container's environment as it is.
#[must_use]
pub fn direct(capabilities: &str) -> String {
    format!("{capabilities}-evar")
}

/// How GPUs are shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The image of reservation pods: our own.
    pub image: String,
    /// The runtime class of reservation pods.
    pub runtime_class: Option<String>,
    /// How long a reservation pod may take to say which GPU it has.
    pub patience: Duration,
    /// Whether containers are told their GPUs in the words of the container device interface.
    pub cdi: Cdi,
    /// Containers are told how much GPU memory they may use.
    pub hami_core: bool,
    /// Every bind leaves what KAI's leaves: a bind request that stays as long as its pod, the condition `PodBound` and the event
    /// `Bound`. Otherwise only binds of several steps have a request, which goes with their end.
    pub always_bind_requests: bool,
    /// The secrets with which the image of reservation pods is pulled.
    pub pull_secrets: Vec<String>,
    /// The security context of reservation pods, if not the usual one.
    pub pod_security: Option<PodSecurityContext>,
    /// That of their container, if not the usual one.
    pub container_security: Option<SecurityContext>,
    /// What their container requests beside the GPU, if not the usual.
    pub requests: QuantityMap,
    /// Its limits beside the GPU, if not the usual.
    pub limits: QuantityMap,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            image: IMAGE.to_owned(),
            runtime_class: None,
            patience: Duration::from_secs(40),
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

/// How a reservation pod begins to say, when its container is started again, that this one has another GPU than the one that was reserved.
pub const OTHER_DEVICE: &str = "the container has another GPU than before";

/// Our image, where no other is named.
pub const IMAGE: &str = concat!("unikai:", env!("CARGO_PKG_VERSION"));

/// Whether the pod asks for a part of a GPU, whatever it says about it.
#[must_use]
pub fn is_fractional(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations
        .is_some_and(|all| all.contains_key(annotation::GPU_FRACTION) || all.contains_key(annotation::GPU_MEMORY))
}
