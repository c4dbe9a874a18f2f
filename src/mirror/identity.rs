//! Identities of objects for the engine and the components. Missing fields are empty.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::api::names::{annotation, object};
use crate::engine::input::{GroupKey, PodRef};

fn text(said: &Option<String>) -> &str {
    said.as_deref().unwrap_or_default()
}

/// A pod.
#[must_use]
pub fn pod_ref(pod: &Pod) -> PodRef {
    let meta = &pod.metadata;
    PodRef::new(text(&meta.namespace), text(&meta.name), text(&meta.uid))
}

/// A pod group.
#[must_use]
pub fn group_key(meta: &ObjectMeta) -> GroupKey {
    GroupKey::new(text(&meta.namespace), text(&meta.name))
}

/// The name of the pod group that is made for a pod or for an owner of pods.
#[must_use]
pub fn default_group_name(name: &str, uid: &str) -> String {
    format!("pg-{name}-{uid}")
}

/// The pod group that the pod's annotation names, if it names one.
#[must_use]
pub fn annotated_group(pod: &Pod) -> Option<GroupKey> {
    let meta = &pod.metadata;
    let group = meta.annotations.as_ref()?.get(annotation::POD_GROUP_NAME)?;
    (!group.is_empty()).then(|| GroupKey::new(text(&meta.namespace), group))
}

/// The role of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A tenant's workload.
    #[default]
    Workload,
    /// A reservation pod, which holds a shared GPU.
    Reservation,
    /// A scaling pod, which shows missing GPUs to a cluster autoscaler.
    Scaling,
}

/// The role of a pod, by namespace and service account, which tenants cannot fake. Labels are not used.
#[must_use]
pub fn role(pod: &Pod) -> Role {
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
    match (pod.metadata.namespace.as_deref(), account) {
        (Some(object::RESERVATION_NAMESPACE), Some(object::RESERVATION_SERVICE_ACCOUNT)) => Role::Reservation,
        (Some(object::SCALE_ADJUST_NAMESPACE), Some(object::SCALE_ADJUST_NAMESPACE)) => Role::Scaling,
        _ => Role::Workload,
    }
}

/// `namespace/name`.
pub(super) fn object_key(namespace: &str, name: &str) -> Box<str> {
    let mut key = String::with_capacity(namespace.len() + name.len() + 1);
    key.push_str(namespace);
    key.push('/');
    key.push_str(name);
    key.into_boxed_str()
}
