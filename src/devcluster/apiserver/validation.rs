//! Validity of objects: metadata of every kind, and the rules of built-in kinds that clients rely on.

use serde_json::Value;

use super::{
    crd::Crd,
    policies::Policies,
    registry::Resource,
    schema::{ErrorKind, FieldError},
    status::{ApiError, ApiResult},
    webhook::Webhooks,
};

mod claim;
mod metadata;
mod pod;
mod workload;

/// What is wrong with a new object.
pub(crate) fn on_create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::check(resource, object);
    if let Some(version) = resource.custom() {
        errors.extend(version.validate(object, None));
        return errors;
    }
    errors.extend(built_in(resource, object));
    errors
}

/// What is wrong with the new state of an object.
pub(crate) fn on_update(resource: &Resource, subresource: &str, old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = metadata::check(resource, new);
    errors.extend(metadata::check_update(old, new));
    if let Some(version) = resource.custom() {
        errors.extend(version.validate(new, Some(old)));
        return errors;
    }
    if subresource == "status" {
        if resource.is("resource.k8s.io", "resourceclaims") {
            errors.extend(claim::check_status(old, new));
        }
        return errors;
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => errors.extend(pod::check_update(old, new)),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") | ("batch", "jobs") => {
            errors.extend(built_in(resource, new));
            errors.extend(workload::check_update(&resource.plural, old, new));
        }
        ("scheduling.k8s.io", "priorityclasses") => {
            errors.extend(immutable(old, new, "value", "may not be changed in an update."));
        }
        _ => errors.extend(built_in(resource, new)),
    }
    errors
}

fn built_in(resource: &Resource, object: &Value) -> Vec<FieldError> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::check(&object["spec"], "spec"),
        ("apps" | "batch", plural) => workload::check(plural, object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => Crd::compile(object).err().unwrap_or_default(),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies" | "validatingadmissionpolicybindings") => {
            Policies::check(object)
        }
        ("admissionregistration.k8s.io", _) => Webhooks::check(object),
        _ => Vec::new(),
    }
}

/// Kinds whose updates must name the revision that they were made from.
pub(crate) fn unconditional_update(resource: &Resource, name: &str) -> ApiResult<()> {
    let conditional = resource.custom().is_some()
        || matches!(
            resource.plural.as_str(),
            "leases" | "poddisruptionbudgets" | "customresourcedefinitions" | "priorityclasses"
        );
    if !conditional {
        return Ok(());
    }
    let error = FieldError {
        kind: ErrorKind::Invalid,
        field: "metadata.resourceVersion".to_owned(),
        body: "Invalid value: 0: must be specified for an update".to_owned(),
    };
    let mut subject = resource.subject(name);
    subject.kind.clone_from(&subject.resource);
    Err(ApiError::invalid(&subject, &[error]))
}

/// A field that may not change.
fn immutable(old: &Value, new: &Value, field: &str, detail: &str) -> Option<FieldError> {
    let at = |object: &Value| field.split('.').fold(object.clone(), |value, step| value[step].clone());
    let changed = at(old) != at(new);
    changed.then(|| FieldError::plain(ErrorKind::Forbidden, field, detail))
}

/// A value that is not one of those known.
pub(crate) fn not_supported(field: &str, value: &Value, supported: &[&str]) -> FieldError {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    FieldError::with_value(
        ErrorKind::NotSupported,
        field,
        value,
        &format!("supported values: {}", supported.join(", ")),
    )
}
