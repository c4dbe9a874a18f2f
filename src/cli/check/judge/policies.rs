//! The admission policies: whether they are in force, and have the names that the operator has. Config may change these; the policies keep those with which
//! `unikai manifests` or the chart rendered them.

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::ResourceExt;

use super::{Lines, Section};
use crate::api::names::{label, object};
use crate::cli::check::seen::{Installation, Policies};

/// Protects what bound pods are charged by.
const PODS: &str = "unikai-pods";
/// Protects reservation and scaling pods.
const RESERVATION_PODS: &str = "unikai-reservation-pods";
/// Protects claims that pods hold, from everyone.
const CLAIMS: &str = "unikai-claims";

/// A name that the policy of pods has in common with the operator.
struct Name {
    /// The flag of the operator and of `unikai manifests`.
    flag: &'static str,
    usual: &'static str,
    value: String,
    /// What the policy does if it has another name.
    fault: &'static str,
}

/// Checks them.
pub fn judge(seen: &Installation) -> Section {
    let mut lines = Lines(Vec::new());
    match &seen.policies {
        Err(why) => lines.warn(
            format!("the admission policies are not known: {why}"),
            "API servers have them from Kubernetes 1.30 on; run this as a user with the right to list them",
        ),
        Ok(policies) => installed(seen, policies, &mut lines),
    }
    lines.or(
        "Admission policies",
        "in force, with the names of scheduler and labels that the operator has",
    )
}

fn installed(seen: &Installation, there: &Policies, lines: &mut Lines) {
    let names = names(seen);
    let remedy = rendered(&names);
    let operator = format!("system:serviceaccount:{}:{}", seen.found.namespace, object::OPERATOR);
    for wanted in [PODS, RESERVATION_PODS, CLAIMS] {
        let Some(policy) = there.policies.iter().find(|policy| policy.name_any() == wanted) else {
            lines.fail(format!("admission policy {wanted} is missing"), &remedy);
            continue;
        };
        if !is_bound(there, wanted) {
            let says = format!("admission policy {wanted} has no binding that denies requests, so it has no effect");
            lines.fail(says, &remedy);
        }
        if wanted != CLAIMS && !has(policy, &operator) {
            lines.fail(
                format!("admission policy {wanted} does not exempt the operator, {operator}, whose writes it refuses"),
                "install policies and operator from the same manifests, or from a chart's release in the operator's namespace",
            );
        }
        for Name { value, fault, .. } in names.iter().filter(|_| wanted == PODS) {
            // Without a key there are no node pools.
            if !value.is_empty() && !has(policy, value) {
                lines.fail(format!("admission policy {wanted} {fault} {value}"), &remedy);
            }
        }
    }
}

/// The names that are in effect: those of Config, else of the flags.
fn names(seen: &Installation) -> [Name; 3] {
    let global = seen
        .found
        .config
        .as_ref()
        .and_then(|config| config.spec.global.as_ref());
    let name = |flag: &'static str, usual: &'static str, given: Option<&String>, fault: &'static str| {
        let by_flag = || seen.found.own.as_ref()?.flag(flag);
        let value = given.cloned().or_else(by_flag);
        Name {
            flag,
            usual,
            value: value.unwrap_or_else(|| usual.to_owned()),
            fault,
        }
    };
    [
        name(
            "scheduler-name",
            object::SCHEDULER_NAME,
            global.and_then(|global| global.scheduler_name.as_ref()),
            "is for pods of another scheduler than",
        ),
        name(
            "queue-label-key",
            label::QUEUE,
            global.and_then(|global| global.queue_label_key.as_ref()),
            "does not protect the queue label",
        ),
        name(
            "node-pool-label-key",
            label::NODE_POOL,
            global.and_then(|global| global.node_pool_label_key.as_ref()),
            "does not protect the node-pool label",
        ),
    ]
}

/// Whether an expression of the policy has this text as a constant.
fn has(policy: &ValidatingAdmissionPolicy, text: &str) -> bool {
    let spec = serde_json::to_string(&policy.spec).unwrap_or_default();
    spec.contains(&format!("'{text}'"))
}

fn is_bound(there: &Policies, policy: &str) -> bool {
    let mut specs = there.bindings.iter().filter_map(|binding| binding.spec.as_ref());
    specs.any(|spec| {
        let denies = spec.validation_actions.iter().flatten().any(|action| action == "Deny");
        denies && spec.policy_name.as_deref() == Some(policy)
    })
}

/// How to install policies with these names.
fn rendered(names: &[Name]) -> String {
    let changed = names.iter().filter(|name| name.value != name.usual);
    let flags: String = changed.map(|name| format!(" --{}={}", name.flag, name.value)).collect();
    if flags.is_empty() {
        return "kubectl apply -f manifests/35-admission-policies.yaml, or upgrade the chart's release".to_owned();
    }
    format!(
        "unikai manifests --dir FOLDER{flags}, then kubectl apply -f FOLDER/35-admission-policies.yaml; or the chart with these names as values"
    )
}
