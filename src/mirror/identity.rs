//! Identities of objects for the engine and the components. Missing fields are empty.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

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

/// A service account.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Account {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Account {
    /// That of a namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    fn is(&self, namespace: &str, name: &str) -> bool {
        self.namespace == namespace && self.name == name
    }
}

/// The service accounts of the operator's own pods, which they are recognised by: tenants cannot fake these, as they can labels.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct OwnPods {
    /// Of reservation pods.
    pub reservation: Account,
    /// Of scaling pods.
    pub scaling: Account,
}

impl Default for OwnPods {
    /// KAI's defaults.
    fn default() -> Self {
        Self {
            reservation: Account::new(object::RESERVATION_NAMESPACE, object::RESERVATION_SERVICE_ACCOUNT),
            scaling: Account::new(object::SCALE_ADJUST_NAMESPACE, object::SCALE_ADJUST_SERVICE_ACCOUNT),
        }
    }
}

impl OwnPods {
    /// The role of a pod.
    #[must_use]
    pub fn role(&self, pod: &Pod) -> Role {
        let account = pod.spec.as_ref().map(|spec| text(&spec.service_account_name));
        self.role_of(text(&pod.metadata.namespace), account.unwrap_or_default())
    }

    /// The role of a pod with this namespace and service account.
    #[must_use]
    pub fn role_of(&self, namespace: &str, account: &str) -> Role {
        if self.reservation.is(namespace, account) {
            Role::Reservation
        } else if self.scaling.is(namespace, account) {
            Role::Scaling
        } else {
            Role::Workload
        }
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
