//! Predicates of pods, and fields of our own pods, for several components.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Capabilities, LocalObjectReference, Pod, PodSecurityContext, SeccompProfile, SecurityContext,
};

use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, Preconditions};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use sha2::{Digest, Sha256};

use super::Settings;
use crate::engine::input::PodRef;

pub use crate::mirror::identity::{Account, OwnPods, Role, annotated_group, default_group_name, group_key, pod_ref};

/// Whether the pod names our scheduler.
#[must_use]
pub fn is_ours(pod: &Pod, settings: &Settings) -> bool {
    pod.spec
        .as_ref()
        .is_some_and(|spec| spec.scheduler_name.as_deref() == Some(settings.scheduler_name.as_str()))
}

/// The pod's phase; empty if it has none yet.
#[must_use]
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// Whether it has succeeded or failed.
#[must_use]
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// The node that it is bound to.
#[must_use]
pub fn node(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref()?.node_name.as_deref()?;
    Some(node).filter(|node| !node.is_empty())
}

/// Whether it is bound to another node than this one.
#[must_use]
pub fn is_bound_elsewhere(pod: &Pod, here: &str) -> bool {
    node(pod).is_some_and(|node| node != here)
}

/// Whether it has a node.
#[must_use]
pub fn is_bound(pod: &Pod) -> bool {
    node(pod).is_some()
}

/// The queue that the labels of a pod or namespace name. An empty label names none.
#[must_use]
pub fn named_queue<'a>(labels: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a String> {
    labels?.get(key).filter(|queue| !queue.is_empty())
}

/// Whether it waits for its scheduling gates to be removed.
#[must_use]
pub fn has_gates(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

/// The security context of containers of our own pods: no privileges, no capabilities.
#[must_use]
pub fn without_privileges() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        run_as_non_root: Some(true),
        run_as_user: Some(10_000),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        ..SecurityContext::default()
    }
}

/// The security context of our own pods: the container runtime's default seccomp profile.
#[must_use]
pub fn default_seccomp() -> PodSecurityContext {
    PodSecurityContext {
        seccomp_profile: Some(SeccompProfile {
            localhost_profile: None,
            type_: "RuntimeDefault".to_owned(),
        }),
        ..PodSecurityContext::default()
    }
}

/// The first 8 bytes of a text's SHA-256 in hexadecimal, for what must be the same in every process and release.
#[must_use]
pub fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Image pull secrets by name.
#[must_use]
pub fn pull_secrets(names: &[String]) -> Option<Vec<LocalObjectReference>> {
    let secret = |name: &String| LocalObjectReference { name: name.clone() };
    (!names.is_empty()).then(|| names.iter().map(secret).collect())
}

/// Evicts a pod, if it still has this uid. Not by the client library's method: it sends delete options under a name that the API server does not know.
///
/// # Errors
/// What the API server answered: 429 if a disruption budget forbids it, 404 or 409 if the pod is gone.
pub async fn evict(api: &Api<Pod>, pod: &PodRef) -> kube::Result<()> {
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(pod.name.to_string()),
            namespace: Some(pod.namespace.to_string()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.to_string()),
                resource_version: None,
            }),
            ..DeleteOptions::default()
        }),
    };
    api.create_subresource::<_, serde_json::Value>("eviction", &pod.name, &PostParams::default(), &eviction)
        .await
        .map(drop)
}
