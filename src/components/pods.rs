//! Predicates of pods, and fields of our own pods, for several components.

use k8s_openapi::api::core::v1::{
    Capabilities, LocalObjectReference, Pod, PodSecurityContext, SeccompProfile, SecurityContext,
};

use super::Settings;

pub use crate::mirror::identity::{Role, annotated_group, group_key, pod_ref, role};

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

/// Whether it has a node.
#[must_use]
pub fn is_bound(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .is_some_and(|spec| spec.node_name.as_deref().is_some_and(|node| !node.is_empty()))
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
/// Image pull secrets by name.
#[must_use]
pub fn pull_secrets(names: &[String]) -> Option<Vec<LocalObjectReference>> {
    let secret = |name: &String| LocalObjectReference { name: name.clone() };
    (!names.is_empty()).then(|| names.iter().map(secret).collect())
}
